package runfile

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/internal/yamlfile"
)

func (d *draft) data(to *Data) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Mapping(
		key("train", "The tasks to train with.", yamlfile.Via(tasks, func(t Tasks) { to.Train = &t })),
		key("val", "The tasks to validate with.", yamlfile.Via(tasks, func(t Tasks) { to.Val = &t })),
		key("val_share", "Takes this share of train for validation, instead of val.", yamlfile.Number(&to.ValShare, yamlfile.Above(0), yamlfile.Below(1))),
		key("shuffle", "Shuffles the tasks first.", yamlfile.Bool(&to.Shuffle)).Default(false),
		key("seed", "The seed of the shuffle; by default that of the run.", yamlfile.Integer(&to.Seed)),
	).Check(func(s *yamlfile.Scope) {
		if s.Given("val") && s.Given("val_share") {
			s.Failf("val_share", "given together with val, must be one of them")
		}
	})
}

// tasks declares a task file, or its path alone.
func tasks(t *Tasks) yamlfile.Value {
	key := yamlfile.Key
	var types []yamlfile.Entry[dataset.Type]
	mapping := yamlfile.Mapping(
		key("file", "The file.", yamlfile.File(&t.Path)).Required(),
		key("format", "The format; by default that of the file's name: .jsonl and .ndjson, .csv, .parquet.",
			yamlfile.Words(&t.Options.Format, dataset.FormatJSONL, dataset.FormatCSV, dataset.FormatParquet)),
		key("columns", "The members of a task: columns of the file, or members of its objects; by default all.", yamlfile.NonEmptyList(&t.Options.Columns, column)),
		key("types", "The types of CSV columns, by name; by default text.",
			yamlfile.Map(&types, "the name of a column", `.`, func(to *dataset.Type) yamlfile.Value {
				return yamlfile.Words(to, dataset.TypeString, dataset.TypeNumber, dataset.TypeBool, dataset.TypeJSON)
			})),
		key("limit", "Takes only the first tasks, after shuffling; 0 takes all.", yamlfile.Integer(&t.Limit)).Default(0),
	)
	return yamlfile.Short(yamlfile.File(&t.Path), mapping).Check(func(s *yamlfile.Scope) {
		if !s.Clean() {
			return
		}
		for _, e := range types {
			if t.Options.Types == nil {
				t.Options.Types = make(map[string]dataset.Type)
			}
			t.Options.Types[e.Name] = e.Value
		}
		file, err := dataset.Open(t.Path, t.Options)
		switch {
		case err == nil:
			s.FailAt("", file.Close())
		case !errors.Is(err, fs.ErrNotExist): // yamlfile.File reports a missing file, unless it may be on another machine
			s.FailAt("", err)
		}
	})
}

// column declares a column, or its name alone.
func column(c *dataset.Column) yamlfile.Value {
	return yamlfile.Short(yamlfile.Text(&c.Name), yamlfile.Mapping(
		yamlfile.Key("name", "The column's name in the file.", yamlfile.Text(&c.Name)).Required(),
		yamlfile.Key("as", "The member's name in the task; by default that of the column.", yamlfile.Text(&c.As)),
	))
}

// template is a prompt template in a file.
type template struct {
	file   yamlfile.TextFile
	text   string
	engine agl.PromptEngine
}

// promptPattern matches the names of prompt templates.
const promptPattern = `^[A-Za-z_][A-Za-z0-9_.-]*$`

// modelName is the name of the model among the resources.
const modelName = "llm"

func prompts(to *[]agl.NamedResource) yamlfile.Value {
	var templates []yamlfile.Entry[template]
	return yamlfile.Map(&templates, "the name of a prompt template", promptPattern, prompt).Check(func(s *yamlfile.Scope) {
		if s.Given(modelName) {
			s.Failf(modelName, "is the name of the model among the resources, must be another name")
		}
		for _, t := range templates {
			*to = append(*to, agl.NamedResource{Name: t.Name, Resource: agl.PromptTemplate{Template: t.Value.text, Engine: t.Value.engine}})
		}
	})
}

// prompt declares a prompt template, or its file alone.
func prompt(t *template) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Short(yamlfile.Contents(&t.file), yamlfile.Mapping(
		key("file", "The file of the template.", yamlfile.Contents(&t.file)),
		key("text", "The template itself, instead of a file.", yamlfile.Text(&t.text)),
		key("engine", "The language of the template; by default jinja for a file that ends in .j2 or .jinja, poml for .poml, else f-string.",
			yamlfile.Words(&t.engine, agl.PromptFString, agl.PromptJinja, agl.PromptPOML)),
	).Check(func(s *yamlfile.Scope) {
		if s.Given("file") == s.Given("text") {
			s.Failf("", "must have one of the keys file, text")
		}
	})).Check(func(*yamlfile.Scope) {
		if t.file.Path != "" {
			t.text = t.file.Text
		}
		if t.engine != "" {
			return
		}
		switch strings.ToLower(filepath.Ext(t.file.Path)) {
		case ".j2", ".jinja":
			t.engine = agl.PromptJinja
		case ".poml":
			t.engine = agl.PromptPOML
		default:
			t.engine = agl.PromptFString
		}
	})
}

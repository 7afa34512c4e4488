package runfile_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/trainer/runfile"
)

var update = flag.Bool("update", false, "write the reference of the file anew")

// schema is what is read of a JSON Schema.
type schema struct {
	Ref              string         `json:"$ref"`
	Description      string         `json:"description"`
	Type             jsontext.Value `json:"type"`
	Properties       properties     `json:"properties"`
	Required         []string       `json:"required"`
	Additional       jsontext.Value `json:"additionalProperties"`
	Items            *schema        `json:"items"`
	AnyOf            []schema       `json:"anyOf"`
	Enum             []string       `json:"enum"`
	Minimum          *float64       `json:"minimum"`
	Maximum          *float64       `json:"maximum"`
	ExclusiveMinimum *float64       `json:"exclusiveMinimum"`
	ExclusiveMaximum *float64       `json:"exclusiveMaximum"`
	MaxProperties    int            `json:"maxProperties"`
	Default          jsontext.Value `json:"default"`
	Defs             properties     `json:"$defs"`
}

// properties keep the schema's order.
type properties []property

type property struct {
	name string
	schema
}

// UnmarshalJSONFrom reads an object of schemas.
func (p *properties) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		one := property{name: name.String()}
		if err := json.UnmarshalDecode(dec, &one.schema); err != nil {
			return err
		}
		*p = append(*p, one)
	}
	_, err := dec.ReadToken()
	return err
}

func readSchema(t *testing.T) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal(runfile.Schema(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// kind says in a few words what a value is.
func (s *schema) kind() string {
	switch {
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case s.AnyOf != nil:
		return s.AnyOf[0].kind() + " or " + s.AnyOf[1].kind()
	case s.Enum != nil:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case s.MaxProperties == 1:
		return "one of these"
	case s.Properties != nil:
		return "mapping"
	case s.free() != nil:
		return "mapping of " + s.free().kind()
	}
	what := strings.Trim(string(s.Type), `"`)
	switch what {
	case "boolean":
		return "`true`, `false`"
	case "object":
		return "JSON object"
	case "integer", "number":
		return what + s.bounds()
	}
	return "text"
}

func (s *schema) bounds() string {
	var parts []string
	for _, b := range []struct {
		sign  string
		value *float64
	}{{"≥", s.Minimum}, {">", s.ExclusiveMinimum}, {"≤", s.Maximum}, {"<", s.ExclusiveMaximum}} {
		if b.value != nil {
			parts = append(parts, fmt.Sprintf(" %s %s", b.sign, strconv.FormatFloat(*b.value, 'f', -1, 64)))
		}
	}
	return strings.Join(parts, ",")
}

// free is the schema of the values of free keys; nil when there are none.
func (s *schema) free() *schema {
	var out schema
	if s.Additional.Kind() != '{' || json.Unmarshal(s.Additional, &out) != nil {
		return nil
	}
	return &out
}

// keys calls f for every key below a schema, the outer ones first, and stops
// going down where it returns false.
func (s *schema) keys(at string, f func(path string, key *property, required bool) (down bool)) {
	for i := range s.AnyOf {
		s.AnyOf[i].keys(at, f)
	}
	if s.Items != nil {
		s.Items.keys(at+"[]", f)
	}
	if free := s.free(); free != nil {
		free.keys(at+".NAME", f)
	}
	for i := range s.Properties {
		key := &s.Properties[i]
		path := strings.TrimPrefix(at+"."+key.name, ".")
		if f(path, key, slices.Contains(s.Required, key.name)) {
			key.keys(path, f)
		}
	}
}

// reference is the part of the documentation that is made of the schema.
func reference(root schema) string {
	var out strings.Builder
	out.WriteString("\n| value | |\n|---|---|\n")
	for _, def := range root.Defs {
		fmt.Fprintf(&out, "| %s | %s |\n", def.name, def.Description)
	}
	out.WriteString("\n| key | value | default | |\n|---|---|---|---|\n")
	seen := map[string]string{} // what a mapping is like: its keys
	root.keys("", func(path string, key *property, required bool) bool {
		initial := ""
		switch {
		case required:
			initial = "required"
		case key.Default != nil:
			initial = "`" + strings.Trim(string(key.Default), `"`) + "`"
		}
		var below []string
		key.keys("", func(path string, key *property, _ bool) bool {
			below = append(below, path+key.kind())
			return true
		})
		like, again := seen[strings.Join(below, "\n")]
		again = again && len(below) > 2
		meaning := key.Description
		if again {
			meaning += " Keys as in `" + like + "`."
		} else {
			seen[strings.Join(below, "\n")] = path
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", path, key.kind(), initial, meaning)
		return !again
	})
	return out.String()
}

// The documentation has every key with its default, as the schema has it.
func TestReference(t *testing.T) {
	t.Parallel()
	const file, mark = "../../docs/train-file.md", "-update -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := bytes.Cut(text, []byte(mark))
	if !found {
		t.Fatalf("%s has no mark %q", file, mark)
	}
	want := reference(readSchema(t))
	if *update {
		if err := os.WriteFile(file, []byte(string(before)+mark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(after)); diff != "" {
		t.Errorf("run this test with -update: %s", diff)
	}
}

// The files of the tests are valid by the schema, and have all of its keys.
func TestSchema(t *testing.T) {
	t.Parallel()
	var compiled openapi3.Schema
	if err := compiled.UnmarshalJSON(runfile.Schema()); err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, name := range []string{"grpo.yaml", "apo.yaml", "apo-live.yaml", "baseline.yaml", "tinker.yaml", "characters.yaml", "sft.yaml", "rejection.yaml", "distil.yaml", "command.yaml", "server.yaml", "online.yaml", "agents.yaml"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var raw jsontext.Value
		if err := (yamlfile.Document{Name: name, Data: data}).Read(yamlfile.Object(&raw)); err != nil {
			t.Fatal(err)
		}
		var value map[string]any
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Fatal(err)
		}
		if err := compiled.VisitJSON(value, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mark("", value, given)
		value["sed"] = 1
		if err := compiled.VisitJSON(value, openapi3.EnableJSONSchema2020()); err == nil {
			t.Errorf("%s: a key that is not there is valid", name)
		}
	}
	root := readSchema(t)
	root.keys("", func(path string, key *property, _ bool) bool {
		if key.Description == "" {
			t.Errorf("%s: says nothing", path)
		}
		// The keys of a proxy are tested where they are declared.
		elsewhere := strings.HasPrefix(path, "proxy.") && !slices.Contains([]string{"proxy.listen", "proxy.model", "proxy.sampling", "proxy.val_sampling"}, path)
		// The same mapping stands in two places.
		path = strings.NewReplacer("data.val.", "data.train.", "online.loss", "grpo.loss", "online.correction", "grpo.correction", "online.kl", "grpo.kl", "online.learning_rate", "grpo.schedule", "online.schedule", "grpo.schedule", "edit_model.", "gradient_model.", "grpo.learning_rate", "grpo.schedule", "engine.tinker.warm_start.", "engine.policy.warm_start.").Replace(path)
		if !given[path] && !elsewhere && !strings.HasPrefix(path, "engine.policy.warm_start.schedule") {
			t.Errorf("%s: in none of the files", path)
		}
		return true
	})
}

// mark notes the paths of a document.
func mark(at string, value any, given map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, item := range v {
			for _, path := range []string{strings.TrimPrefix(at+"."+name, "."), at + ".NAME"} {
				given[path] = true
				mark(path, item, given)
			}
		}
	case []any:
		for _, item := range v {
			mark(at+"[]", item, given)
		}
	}
}

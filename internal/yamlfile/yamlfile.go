// Package yamlfile reads YAML files strictly: an unknown key, a value of the wrong type and a secret in the file are
// mistakes. All mistakes are reported at once, each with its line.
//
// A file is declared once, as a [Value] that is bound to the variables that it sets:
//
//	var name string
//	var calls int
//	file := yamlfile.Mapping(
//		yamlfile.Key("name", "Shown to users.", yamlfile.Text(&name)).Required(),
//		yamlfile.Key("calls", "Calls at once.", yamlfile.Integer(&calls)),
//	)
//
// [Document.Read] reads a document by the declaration, and [Schema] turns the same declaration into a JSON Schema.
//
// The package knows YAML and types of values. It must not know what any file is about.
package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Document is a file to read.
type Document struct {
	Name string // for error messages
	Data []byte
	// Dir is the folder that relative paths in the file start from. Empty is the working directory.
	Dir string
	// Elsewhere lets the file name files and folders that do not exist here because
	// they are on another machine. Their contents read as empty.
	Elsewhere bool
	// Empty completes the error for an empty file: "it must at least have …".
	Empty string
}

// Read reads the document into the variables that root is bound to. Its error is an
// *Error; the variables are then undefined.
func (d Document) Read(root Value) error {
	r := &reader{dir: d.Dir, elsewhere: d.Elsewhere, keys: make(map[string]*yaml.Node)}
	text := string(d.Data)
	dec := yaml.NewDecoder(strings.NewReader(text))
	var document, another yaml.Node
	switch err := dec.Decode(&document); {
	case errors.Is(err, io.EOF):
		r.failf(nil, "the file is empty, %s", d.Empty)
	case err != nil:
		r.syntax(err, text)
	default:
		root.read(r, r.plain(document.Content[0]), "")
		switch err := dec.Decode(&another); {
		case err == nil:
			r.failf(&another, "a second document; there must be one")
		case !errors.Is(err, io.EOF):
			r.syntax(err, text)
		}
	}
	if len(r.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{Name: d.Name, Mistakes: r.mistakes}
}

// Schema returns the JSON Schema (draft 2020-12) of the files that a declaration
// reads. It does not touch the variables that the declaration is bound to.
//
// Read refuses every document that the schema refuses, with one exception: Read treats a null as an absent key. Only Read
// makes checks that involve several values.
func Schema(title, description string, root Value) jsontext.Value {
	d := &defs{named: make(map[string]bool)}
	schema := object{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}, {"description", description}}
	schema = append(schema, root.schema(d)...)
	if len(d.list) > 0 {
		schema = append(schema, member{"$defs", d.list})
	}
	out := jsontext.Value(schema.appendJSON(nil))
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		panic(fmt.Sprintf("the schema is not valid JSON: %v", err)) // a bug in this package
	}
	return append(out, '\n')
}

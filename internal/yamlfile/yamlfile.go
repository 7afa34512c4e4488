// Package yamlfile reads YAML files strictly: a key that nobody declared, a value
// of the wrong type and a secret that stands in the file are mistakes, and all
// mistakes are reported at once, each with its line.
//
// A file is declared once, as a [Value] that is bound to where it goes: the
// declaration reads documents, see [Document.Read], and is what [Schema] makes a
// JSON Schema of. The package knows YAML and kinds of values; it must not know
// what any file is about.
package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl"
)

// Mistake is one thing that is wrong in a file.
type Mistake struct {
	Line    int // from 1 on; 0 is the file as a whole
	Message string
}

// Error is what is wrong in a file, in the order of its lines.
type Error struct {
	Name     string // of the file
	Mistakes []Mistake
}

func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = e.Name
		if m.Line > 0 {
			lines[i] += ":" + strconv.Itoa(m.Line)
		}
		lines[i] += ": " + m.Message
	}
	return strings.Join(lines, "\n")
}

// Is makes the error match agl.ErrInvalid.
func (e *Error) Is(target error) bool { return target == agl.ErrInvalid }

// Document is a file to read.
type Document struct {
	Name string // for its errors
	Data []byte
	// Dir is the folder from which relative paths in the file start; empty is the
	// working directory.
	Dir string
	// Elsewhere lets the file name files and folders that are not there, because
	// they are on another machine. The texts of such files are empty.
	Elsewhere bool
	// Empty is what a file that says nothing is told: "it must at least have …".
	Empty string
}

// Read reads the document into what root is bound to. Its error is an *Error;
// what root is bound to is then of no use.
func (d Document) Read(root Value) error {
	r := &reader{dir: d.Dir, elsewhere: d.Elsewhere, keys: make(map[string]*yaml.Node)}
	dec := yaml.NewDecoder(strings.NewReader(string(d.Data)))
	var document, another yaml.Node
	switch err := dec.Decode(&document); {
	case errors.Is(err, io.EOF):
		r.failf(nil, "the file is empty, %s", d.Empty)
	case err != nil:
		r.syntax(err)
	default:
		root.read(r, r.plain(document.Content[0]), "")
		if dec.Decode(&another) == nil {
			r.failf(&another, "a second document; there must be one")
		}
	}
	if len(r.mistakes) == 0 {
		return nil
	}
	slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
	return &Error{Name: d.Name, Mistakes: r.mistakes}
}

// reader walks a document and gathers what is wrong in it.
type reader struct {
	dir       string
	elsewhere bool
	mistakes  []Mistake
	keys      map[string]*yaml.Node // by path; those whose value is not null
}

func (r *reader) failf(n *yaml.Node, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.mistakes = append(r.mistakes, Mistake{Line: line, Message: fmt.Sprintf(format, args...)})
}

// wrong reports a value that is not what it must be.
func (r *reader) wrong(n *yaml.Node, at, must string) {
	r.failf(n, "%s: got %s, must be %s", named(at), describe(n), must)
}

// errors reports an error that others have found in a value, line by line.
func (r *reader) errors(n *yaml.Node, prefix string, err error) {
	if err == nil {
		return
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, one := range joined.Unwrap() {
			r.failf(n, "%s%v", prefix, one)
		}
		return
	}
	r.failf(n, "%s%v", prefix, err)
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

// syntax takes the error of a file that is no YAML.
func (r *reader) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	m := Mistake{Message: "not YAML: " + text}
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		if line, err := strconv.Atoi(found[1]); err == nil {
			m = Mistake{Line: line, Message: "not YAML: " + text[len(found[0]):]}
		}
	}
	r.mistakes = append(r.mistakes, m)
}

// plain refuses aliases, by which a short file can be endless.
func (r *reader) plain(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	r.failf(n, "*%s: aliases are not supported, write the value out", n.Value)
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: nullTag, Line: n.Line}
}

// absolute makes a path of the file independent of the working directory.
func (r *reader) absolute(path string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	return filepath.Abs(path)
}

const nullTag = "!!null"

func named(at string) string { return cmp.Or(at, "the file") }

// below is the path of a key in the mapping at a path.
func below(at, key string) string {
	if at == "" || key == "" {
		return at + key
	}
	return at + "." + key
}

// describe says what a node is, without what it says, which may be a secret.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!int", "!!float":
			return "the number " + n.Value
		case "!!bool":
			return n.Value
		case nullTag:
			return "null"
		}
		return "a text"
	default:
		return "something else"
	}
}

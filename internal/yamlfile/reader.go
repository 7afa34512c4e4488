package yamlfile

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl/internal/homedir"
)

// reader walks a document and collects its mistakes.
type reader struct {
	dir       string
	elsewhere bool
	mistakes  []Mistake
	keys      map[string]*yaml.Node // by path, without those whose value is null
}

func (r *reader) failf(n *yaml.Node, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.mistakes = append(r.mistakes, Mistake{Line: line, Message: fmt.Sprintf(format, args...)})
}

// wrong reports a value of the wrong type or out of range.
func (r *reader) wrong(n *yaml.Node, at, must string) {
	r.failf(n, "%s: got %s, must be %s", named(at), describe(n), must)
}

// errors reports an error that the caller's own check found in a value. Each of several joined errors is a mistake.
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

var (
	yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)
	// parserError matches the errors whose line the library counts from 0. For the first line it names none.
	parserError = regexp.MustCompile(`^did not find expected ('[-,]'|<document|node content|key)|^found (undefined tag handle|duplicate %|incompatible)`)
)

// syntax reports the error of a file that is not YAML.
func (r *reader) syntax(err error, data string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	m := Mistake{Message: "not YAML: " + text}
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		if line, err := strconv.Atoi(found[1]); err == nil {
			m = Mistake{Line: line, Message: "not YAML: " + text[len(found[0]):]}
		}
	}
	bad := unreadable(data)
	switch {
	case parserError.MatchString(strings.TrimPrefix(m.Message, "not YAML: ")):
		m.Line = min(m.Line+1, strings.Count(strings.TrimRight(data, "\n"), "\n")+1) // the library counts the end of the file as a line
	case m.Line == 0 && bad >= 0:
		m = Mistake{Line: strings.Count(data[:bad], "\n") + 1, Message: "not YAML: must be a text in UTF-8, without control characters"}
	case m.Line == 0 && !strings.HasPrefix(text, "unknown anchor"): // the library names every line but the first
		m.Line = 1
	}
	if strings.Contains(text, "cannot start any token") || strings.Contains(text, "tab character") {
		lines := strings.Split(data, "\n")
		first := min(max(m.Line-1, 0), len(lines)) // the tab is there or below
		if i := slices.IndexFunc(lines[first:], tabIndents); i >= 0 {
			m = Mistake{Line: first + i + 1, Message: "not YAML: a tab in the indentation; indent with spaces"}
		}
	}
	r.mistakes = append(r.mistakes, m)
}

// unreadable returns where the first control character that YAML does not allow is, or the first byte that is not UTF-8; -1 if there is none.
func unreadable(data string) int {
	const allowed = "\t\n\r\u0085"
	for i, c := range data {
		_, size := utf8.DecodeRuneInString(data[i:])
		if c == utf8.RuneError && size == 1 || unicode.IsControl(c) && !strings.ContainsRune(allowed, c) {
			return i
		}
	}
	return -1
}

func tabIndents(line string) bool {
	return strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t")
}

// plain refuses aliases, which let a short file expand without bound.
func (r *reader) plain(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	r.failf(n, "*%s: aliases are not supported, write the value out", n.Value)
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: nullTag, Line: n.Line}
}

// absolute resolves a path in the file.
func (r *reader) absolute(path string) (string, error) {
	path, err := homedir.Expand(path)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	return filepath.Abs(path)
}

const nullTag = "!!null"

func named(at string) string { return cmp.Or(at, "the file") }

// below returns the path of a key in the mapping at a path.
func below(at, key string) string {
	if at == "" || key == "" {
		return at + key
	}
	return at + "." + key
}

// describe names the type of a node. It leaves out texts, which may be secrets.
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
		if n.Value == "" {
			return "an empty text"
		}
		return "a text"
	default:
		return "something else"
	}
}

// Package configfile reads the YAML file that configures an LLM proxy. It is
// strict: a key that it does not know, a value of the wrong type and a secret
// that stands in the file are mistakes, and all mistakes are reported at once,
// each with its line. It knows the proxy's configuration and nothing of where
// the file comes from or when it is read again.
package configfile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
)

// File is what a configuration file says. What it does not say is zero, but for
// Proxy.LogCalls, which is set unless it says false.
type File struct {
	Listen string // host:port
	Store  string // base URL of the store that takes the records
	Token  string // env:NAME, for the store and the admin routes
	Proxy  proxy.Config
}

// Frozen returns the keys by which next differs from f and which a running proxy
// cannot change: all but models and control.
func (f *File) Frozen(next *File) []string {
	a, b := &f.Proxy, &next.Proxy
	var changed []string
	for _, part := range [...]struct {
		key  string
		same bool
	}{
		{"listen", f.Listen == next.Listen},
		{"store", f.Store == next.Store},
		{"token", f.Token == next.Token},
		{"public_url", a.PublicURL == b.PublicURL},
		{"key_secret", a.KeySecret == b.KeySecret},
		{"retry", a.Retry == b.Retry},
		{"health", a.Health == b.Health},
		{"pause", a.PauseTimeout == b.PauseTimeout && a.PauseQueue == b.PauseQueue},
		{"cache", a.CacheBytes == b.CacheBytes},
		{"capture", a.Capture == b.Capture && a.SpoolDir == b.SpoolDir && a.SpoolBytes == b.SpoolBytes && a.CaptureBytes == b.CaptureBytes &&
			a.MaxReplyBytes == b.MaxReplyBytes && a.StoreTimeout == b.StoreTimeout && a.StoreRetry == b.StoreRetry && a.WriteDelay == b.WriteDelay},
		{"request_size", a.MaxRequestBytes == b.MaxRequestBytes},
		{"queue_timeout", a.QueueTimeout == b.QueueTimeout},
		{"idle_timeout", a.IdleTimeout == b.IdleTimeout},
		{"log", a.LogCalls == b.LogCalls && a.LogContents == b.LogContents},
	} {
		if !part.same {
			changed = append(changed, part.key)
		}
	}
	return changed
}

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

// Parse reads a file. The name is only for its errors, which are *Error.
func Parse(name string, data []byte) (*File, error) {
	r := &reader{}
	file := &File{Proxy: proxy.Config{LogCalls: true}}
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	var document, another yaml.Node
	switch err := dec.Decode(&document); {
	case err != nil && len(strings.TrimSpace(string(data))) == 0:
		r.failf(nil, "the file is empty, it must at least have models")
	case err != nil:
		r.syntax(err)
	default:
		r.file(document.Content[0], file)
		if dec.Decode(&another) == nil {
			r.failf(&another, "a second document; there must be one")
		}
	}
	if len(r.mistakes) > 0 {
		slices.SortStableFunc(r.mistakes, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
		return nil, &Error{Name: name, Mistakes: r.mistakes}
	}
	if err := file.Proxy.Validate(); err != nil {
		return nil, &Error{Name: name, Mistakes: []Mistake{{Message: err.Error()}}}
	}
	return file, nil
}

// reader walks a file and gathers what is wrong in it.
type reader struct {
	mistakes []Mistake
}

func (r *reader) failf(n *yaml.Node, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.mistakes = append(r.mistakes, Mistake{Line: line, Message: fmt.Sprintf(format, args...)})
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

// field reads the value of a key.
type field func(n *yaml.Node, at string)

// object reads a mapping. A value of null is as good as none.
func (r *reader) object(n *yaml.Node, at string, fields map[string]field) (given map[string]*yaml.Node) {
	given = make(map[string]*yaml.Node)
	if n.Kind != yaml.MappingNode {
		r.failf(n, "%s: got %s, must be a mapping", named(at, "the file"), describe(n))
		return given
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], r.plain(n.Content[i+1])
		path := key.Value
		if at != "" {
			path = at + "." + path
		}
		read, known := fields[key.Value]
		switch {
		case !known:
			r.failf(key, "%s: unknown; there are %s", path, strings.Join(sorted(fields), ", "))
		case given[key.Value] != nil:
			r.failf(key, "%s: given twice, first in line %d", path, given[key.Value].Line)
		default:
			given[key.Value] = key
			if value.Tag != "!!null" {
				read(value, path)
			}
		}
	}
	return given
}

// list reads a sequence.
func (r *reader) list(n *yaml.Node, at string, each field) {
	if n.Kind != yaml.SequenceNode {
		r.failf(n, "%s: got %s, must be a list", at, describe(n))
		return
	}
	for i, item := range n.Content {
		each(r.plain(item), fmt.Sprintf("%s[%d]", at, i))
	}
}

// plain refuses aliases, by which a short file can be endless.
func (r *reader) plain(n *yaml.Node) *yaml.Node {
	if n.Kind != yaml.AliasNode {
		return n
	}
	r.failf(n, "*%s: aliases are not supported, write the value out", n.Value)
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line}
}

func named(at, otherwise string) string { return cmp.Or(at, otherwise) }

func sorted(fields map[string]field) []string {
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
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
		case "!!null":
			return "null"
		}
		return "a text"
	default:
		return "something else"
	}
}

func (r *reader) text(to *string) field {
	return func(n *yaml.Node, at string) {
		if n.Kind != yaml.ScalarNode || n.Tag == "!!bool" {
			r.failf(n, "%s: got %s, must be a text", at, describe(n))
			return
		}
		*to = n.Value
	}
}

func (r *reader) boolean(to *bool) field {
	return func(n *yaml.Node, at string) {
		if n.Tag != "!!bool" || n.Decode(to) != nil {
			r.failf(n, "%s: got %s, must be true or false", at, describe(n))
		}
	}
}

// integer reads a number that is not negative.
func integer[T int | int64](r *reader, to *T) field {
	return func(n *yaml.Node, at string) {
		if n.Tag != "!!int" || n.Decode(to) != nil || *to < 0 {
			r.failf(n, "%s: got %s, must be an integer that is not negative", at, describe(n))
		}
	}
}

// duration reads a time such as 100ms or 5m.
func (r *reader) duration(to *time.Duration) field {
	return func(n *yaml.Node, at string) {
		d, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
			got := describe(n)
			if got == "a text" {
				got = strconv.Quote(n.Value)
			}
			r.failf(n, "%s: got %s, must be a time such as 100ms, 30s or 5m", at, got)
			return
		}
		*to = d
	}
}

// size reads a number of bytes such as 256MiB or 1048576.
func (r *reader) size(to *int64) field {
	return func(n *yaml.Node, at string) {
		number, factor := n.Value, int64(1)
		for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
			if rest, ok := strings.CutSuffix(number, unit); ok {
				number, factor = strings.TrimSpace(rest), int64(1)<<(10*(i+1))
				break
			}
		}
		count, err := strconv.ParseInt(number, 10, 64)
		if n.Kind != yaml.ScalarNode || err != nil || count < 0 || count > (1<<62)/factor {
			r.failf(n, "%s: got %s, must be a size such as 256MiB, or a number of bytes", at, describe(n))
			return
		}
		*to = count * factor
	}
}

// secret reads where a secret is to be found: it has no place in the file.
func (r *reader) secret(to *string) field {
	return func(n *yaml.Node, at string) {
		name, isEnv := strings.CutPrefix(n.Value, "env:")
		if n.Kind != yaml.ScalarNode || !isEnv || !envName.MatchString(name) {
			r.failf(n, "%s: must be env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file", at)
			return
		}
		*to = n.Value
	}
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// word reads one of a few words.
func word[T ~string](r *reader, to *T, words map[string]T) field {
	return func(n *yaml.Node, at string) {
		value, ok := words[n.Value]
		if n.Kind != yaml.ScalarNode || !ok {
			var allowed []string
			for w := range words {
				allowed = append(allowed, w)
			}
			slices.Sort(allowed)
			r.failf(n, "%s: got %q, must be %s", at, n.Value, strings.Join(allowed, " or "))
			return
		}
		*to = value
	}
}

// check reports an error of the proxy's own, line by line.
func (r *reader) check(n *yaml.Node, err error) {
	if err == nil {
		return
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		for _, one := range joined.Unwrap() {
			r.failf(n, "%v", one)
		}
		return
	}
	r.failf(n, "%v", err)
}

package yamlfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/yamlfile"
)

// sample has a value of each kind.
type sample struct {
	Text    string
	On      bool
	Count   int
	Seed    uint64
	Share   float64
	Wait    time.Duration
	Size    int64
	Small   int
	Secret  string
	Word    string
	URL     string
	Address string
	Path    string
	File    string
	Prompt  yamlfile.TextFile
	JSON    jsontext.Value
	List    []string
	Items   []item
	Env     []yamlfile.Entry[string]
	Short   item
	Seconds float64
	One     []string
}

type item struct{ Name, As string }

func declareItem(i *item) yamlfile.Value {
	return yamlfile.Mapping(
		yamlfile.Key("name", "Its name.", yamlfile.Text(&i.Name)).Required(", which it needs"),
		yamlfile.Key("as", "Another.", yamlfile.Text(&i.As)).Default("name"),
	)
}

func declare(s *sample) yamlfile.Value {
	key := yamlfile.Key
	choice := func(name string) yamlfile.Value {
		var v string
		return yamlfile.Mapping(key("x", "X.", yamlfile.Text(&v))).Check(func(*yamlfile.Scope) { s.One = append(s.One, name+v) })
	}
	return yamlfile.Mapping(
		key("text", "A text.", yamlfile.Text(&s.Text)),
		key("bool", "A choice.", yamlfile.Bool(&s.On)).Default(true),
		key("integer", "A count.", yamlfile.Integer(&s.Count)).Default(3),
		key("seed", "A seed.", yamlfile.Integer(&s.Seed)),
		key("number", "A share.", yamlfile.Number(&s.Share, yamlfile.Above(0), yamlfile.Max(1))).Default(0.5),
		key("time", "A time.", yamlfile.Duration(&s.Wait)).Default("5s"),
		key("size", "A size.", yamlfile.Size(&s.Size)),
		key("small", "A size.", yamlfile.SizeOrZero(&s.Small)),
		key("secret", "A secret.", yamlfile.Secret(&s.Secret)),
		key("word", "A word.", yamlfile.Words(&s.Word, "one", "two")),
		key("url", "A URL.", yamlfile.URL(&s.URL)),
		key("address", "An address.", yamlfile.Address(&s.Address)),
		key("path", "A path.", yamlfile.Path(&s.Path)),
		key("file", "A file.", yamlfile.File(&s.File)),
		key("prompt", "A text in a file.", yamlfile.Contents(&s.Prompt)),
		key("json", "An object.", yamlfile.Object(&s.JSON)),
		key("list", "Texts.", yamlfile.NonEmptyList(&s.List, yamlfile.Text)),
		key("items", "Mappings.", yamlfile.List(&s.Items, declareItem)),
		key("env", "Free keys.", yamlfile.Map(&s.Env, "the name of a variable", `^[A-Z]+$`, yamlfile.Text)),
		key("short", "A mapping or its name.", yamlfile.Short(yamlfile.Text(&s.Short.Name), declareItem(&s.Short))),
		key("seconds", "A time as a number.", yamlfile.Via(yamlfile.DurationOrZero, func(d time.Duration) { s.Seconds = d.Seconds() })),
		key("one", "One of two.", yamlfile.OneOf(key("a", "A.", choice("a")), key("b", "B.", choice("b")))),
	)
}

// folder is a folder with a text in it.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"prompt.txt": "\ufeffHello {name}\n", "binary": "\xff", "huge": strings.Repeat("x", 1<<20+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read(dir, text string) (*sample, error) {
	var s sample
	return &s, yamlfile.Document{Name: "f.yaml", Data: []byte(text), Dir: dir, Empty: "it must have something"}.Read(declare(&s))
}

func TestRead(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	got, err := read(dir, `
text: 2024-10-21
bool: false
integer: 0x10
seed: 18446744073709551615
number: 1
time: 1m30s
size: 2 GiB
small: 4096
secret: env:KEY
word: two
url: http://127.0.0.1:8000/v1
address: :80
path: ../elsewhere
file: prompt.txt
prompt: prompt.txt
json: {a: 1.0, "b": [true, null, "x"], c: 2024-10-21}
list: [a, 1]
items: [{name: x, as: y}, {name: z}]
env: {B: 1, A: two}
short: word
seconds: 1.5s
one: {b: }
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &sample{
		Text: "2024-10-21", Count: 16, Seed: 1<<64 - 1, Share: 1, Wait: 90 * time.Second, Size: 2 << 30, Small: 4096, Secret: "env:KEY", Word: "two",
		URL: "http://127.0.0.1:8000/v1", Address: ":80", Path: filepath.Join(filepath.Dir(dir), "elsewhere"), File: filepath.Join(dir, "prompt.txt"),
		Prompt: yamlfile.TextFile{Path: filepath.Join(dir, "prompt.txt"), Text: "Hello {name}\n"},
		JSON:   jsontext.Value(`{"a":1.0,"b":[true,null,"x"],"c":"2024-10-21"}`),
		List:   []string{"a", "1"}, Items: []item{{"x", "y"}, {"z", ""}},
		Env: []yamlfile.Entry[string]{{Name: "B", Value: "1"}, {Name: "A", Value: "two"}}, Short: item{Name: "word"}, Seconds: 1.5, One: []string{"b"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Each mistake is reported with its line and what is allowed.
func TestMistakes(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for text, want := range map[string]string{
		"":                              "f.yaml: the file is empty, it must have something",
		"# nothing\n":                   "f.yaml: the file is empty, it must have something",
		"a: [":                          "f.yaml:1: not YAML: did not find expected node content",
		"\n\"a":                         "f.yaml:2: not YAML: found unexpected end of stream",
		"text: a\nshort:\n\tname: b":    "f.yaml:3: not YAML: a tab in the indentation; indent with spaces",
		"short:\n  as: a\n \tname: b":   "f.yaml:3: not YAML: a tab in the indentation; indent with spaces",
		"- 1":                           "f.yaml:1: the file: got a list, must be a mapping",
		"null":                          "f.yaml:1: the file: got null, must be a mapping",
		"{}\n---\n{}":                   "f.yaml:2: a second document; there must be one",
		"{}\n---\na: [":                 "f.yaml:3: not YAML: did not find expected node content",
		"txt: a":                        "f.yaml:1: txt: unknown, perhaps text is meant; there are address, bool, env, file, integer, items, json, list, number, one, path, prompt, seconds, secret, seed, short, size, small, text, time, url, word",
		"short: {x: 1}":                 "f.yaml:1: short.x: unknown; there are as, name\nf.yaml:1: short.name: missing, which it needs",
		"text: true":                    "f.yaml:1: text: got true, must be a text; put it in quotes",
		"text: [a]":                     "f.yaml:1: text: got a list, must be a text",
		"bool: yes":                     "f.yaml:1: bool: got a text, must be true or false",
		"integer: -1":                   "f.yaml:1: integer: got the number -1, must be an integer that is not negative",
		"integer: 1.5":                  "f.yaml:1: integer: got the number 1.5, must be an integer that is not negative",
		"seed: -1":                      "f.yaml:1: seed: got the number -1, must be an integer that is not negative",
		"integer: 99999999999999999999": "f.yaml:1: integer: got the number 99999999999999999999, must be an integer that is not negative and of at most 9223372036854775807",
		"seed: 18446744073709551616":    "f.yaml:1: seed: got the number 18446744073709551616, must be an integer that is not negative and of at most 18446744073709551615",
		"number: 0":                     "f.yaml:1: number: got the number 0, must be a number above 0 and of at most 1",
		"number: .inf":                  "f.yaml:1: number: got the number .inf, must be a number above 0 and of at most 1",
		"number: half":                  "f.yaml:1: number: got a text, must be a number above 0 and of at most 1",
		"time: 5":                       "f.yaml:1: time: got the number 5, must be a time above 0 such as 100ms, 30s or 5m",
		"time: soon":                    `f.yaml:1: time: got "soon", must be a time above 0 such as 100ms, 30s or 5m`,
		"time: -1s":                     `f.yaml:1: time: got "-1s", must be a time above 0 such as 100ms, 30s or 5m`,
		"seconds: soon":                 `f.yaml:1: seconds: got "soon", must be a time such as 100ms, 30s or 5m`,
		"size: 3 apples":                `f.yaml:1: size: got "3 apples", must be a size above 0 such as 256MiB, in KiB, MiB, GiB or TiB, or a number of bytes`,
		"size: 9223372036854775807 KiB": `f.yaml:1: size: got "9223372036854775807 KiB", must be a size above 0 such as 256MiB, in KiB, MiB, GiB or TiB, or a number of bytes`,
		"secret: hunter2":               "f.yaml:1: secret: must be env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file",
		"word: three":                   `f.yaml:1: word: got "three", must be one or two`,
		"url: localhost":                "f.yaml:1: url: must be an http or https URL such as http://127.0.0.1:8000/v1",
		"url: http://me:hunter2@x":      "f.yaml:1: url: it holds a user or a password, which have no place in this file; use api_key or token",
		"address: 80":                   `f.yaml:1: address: got "80", must be HOST:PORT such as 127.0.0.1:4748`,
		"path: ''":                      "f.yaml:1: path: got an empty text, must be the path of a file or a folder",
		"path: ~bob/x":                  `f.yaml:1: path: got "~bob/x", whose ~bob is not expanded, must be a path such as ~/NAME, /NAME or ./NAME`,
		"file: gone":                    "f.yaml:1: file: there is no file DIR/gone",
		"file: .":                       "f.yaml:1: file: DIR is not a regular file",
		"prompt: binary":                "f.yaml:1: prompt: DIR/binary is not UTF-8, must be a text",
		"prompt: huge":                  "f.yaml:1: prompt: DIR/huge is longer than 1 MiB, must be a text",
		"json: {a: 0x1, b: 1, b: 2}":    "f.yaml:1: json.a: got 0x1, must be spelled as JSON has numbers, such as 12 or 0.5\nf.yaml:1: json.b: given twice",
		"list: []":                      "f.yaml:1: list: empty, there must be one at least",
		"list: text":                    "f.yaml:1: list: got a text, must be a list",
		"items: [{as: x}]":              "f.yaml:1: items[0].name: missing, which it needs",
		"env: {a: 1}":                   `f.yaml:1: env: got "a", must be the name of a variable, like ^[A-Z]+$`,
		"env: {A: 1,\n A: 2}":           "f.yaml:2: env.A: given twice, first in line 1",
		"short: [a]":                    "f.yaml:1: short: got a list, must be a text or a mapping",
		"one: {}":                       "f.yaml:1: one: empty, must have one of the keys a, b",
		"one: {a: {}, b: {}}":           "f.yaml:1: one: got a and b, must be one of them",
		"one: a":                        "f.yaml:1: one: got a text, must be a mapping with one of the keys a, b",
		"text: a\ntext: b":              "f.yaml:2: text: given twice, first in line 1",
		"text: &x a\nword: *x":          "f.yaml:2: *x: aliases are not supported, write the value out",
		"number: 2\nbool: 1\n":          "f.yaml:1: number: got the number 2, must be a number above 0 and of at most 1\nf.yaml:2: bool: got the number 1, must be true or false",

		"a: [1":                                  "f.yaml:1: not YAML: did not find expected ',' or ']'",
		"text: a\nshort: {name: b\nbool: true\n": "f.yaml:2: not YAML: did not find expected ',' or '}'",
		"text: a\nbool: true\nshort: {}}\n":      "f.yaml:3: not YAML: did not find expected key",
		"%YAML 1.2\n---\ntext: a\n":              "f.yaml:1: not YAML: found incompatible YAML document",
		"text: a: b":                             "f.yaml:1: not YAML: mapping values are not allowed in this context",
		"text: a: b\nword: \ufffd\u0085":         "f.yaml:1: not YAML: mapping values are not allowed in this context",
		"url: http://h:65536":                    "f.yaml:1: url: the port 65536 is above 65535",
		"text: *x":                               "f.yaml: not YAML: unknown anchor 'x' referenced",
		"bool: true\ntext: caf\xe9\n":            "f.yaml:2: not YAML: must be a text in UTF-8, without control characters",
		"bool: true\ntext: a\x00b\n":             "f.yaml:2: not YAML: must be a text in UTF-8, without control characters",
		"short: {name:b}": `f.yaml:1: short.name:b: unknown, perhaps "name: b" is meant, with a space after the colon; there are as, name` +
			"\nf.yaml:1: short.name: missing, which it needs",
	} {
		_, err := read(dir, text)
		if err == nil || strings.ReplaceAll(err.Error(), dir, "DIR") != want {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
			continue
		}
		if !errors.Is(err, agl.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v is not ErrInvalid, or tells a secret", text, err)
		}
	}
}

// Files of another machine need not be there.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	var s sample
	err := yamlfile.Document{Data: []byte("file: gone\nprompt: gone, too"), Dir: "/nowhere", Elsewhere: true}.Read(declare(&s))
	if err != nil || s.File != "/nowhere/gone" || s.Prompt != (yamlfile.TextFile{Path: "/nowhere/gone, too"}) {
		t.Errorf("got %v, %+v", err, s)
	}
}

// A check sees what the file has, and reports at the line of a key or of the
// nearest one around it.
func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a: {b: 1}":       "",
		"a:\n  b: 2":      "f:2: a.b: is 2",
		"\na: {}":         "f:2: a.b: absent",
		"\na:\n  b: null": "f:2: a.b: absent", // a is there, b is not
		"b: 3":            "f:1: a.b: absent\nf:1: root\nf:1: b: of b",
		"a: {b: x}":       "f:1: a.b: got a text, must be an integer that is not negative",
	} {
		var inner, outer int
		root := yamlfile.Mapping(
			yamlfile.Key("a", "A.", yamlfile.Mapping(yamlfile.Key("b", "B.", yamlfile.Integer(&inner)))),
			yamlfile.Key("b", "B.", yamlfile.Integer(&outer)),
		).Check(func(s *yamlfile.Scope) {
			switch {
			case !s.Given("a.b"):
				s.Failf("a.b", "absent")
			case s.Clean() && inner == 2:
				s.Failf("a.b", "is %d", inner)
			}
			if s.Given("b") {
				s.Fail(errors.New("root"))
				s.FailAt("b", errors.New("of b"))
				s.FailAt("b", nil)
			}
		})
		got := ""
		if err := (yamlfile.Document{Name: "f", Data: []byte(text)}).Read(root); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
}

// schema compiles a schema as the draft has it.
func schema(t *testing.T, data []byte) func(value any) error {
	t.Helper()
	var s openapi3.Schema
	if err := s.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return func(value any) error {
		return s.VisitJSON(value, openapi3.EnableJSONSchema2020(), openapi3.MultiErrors())
	}
}

// The schema takes what Read takes, and refuses what no single value may be.
func TestSchemaAgrees(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	valid := schema(t, yamlfile.Schema("sample", "All kinds.", declare(&sample{})))
	for text, accepted := range map[string]bool{
		"text: a": true, "text: 1": true, "text: true": false, "text: []": false, "txt: a": false,
		"bool: true": true, "bool: 'true'": false,
		"integer: 0": true, "integer: -1": false, "integer: 1.5": false, "seed: 18446744073709551615": true,
		"number: 1": true, "number: 0.25": true, "number: 0": false, "number: 1.01": false,
		"time: 5s": true, "time: 1h2m": true, "time: .5s": true, "time: 0": false, "time: 0s": false, "time: 0h0.0s": false, "time: 0.1s": true, "time: 5": false, "time: -5s": false, "time: 5 s": false, "time: ''": false, "time: 1d": false, "time: +1s": true, "time: 1.s": true, "time: 5µs": true,
		"seconds: 0": true, "seconds: 0s": true, "seconds: 1s": true, "seconds: 5": false, "seconds: -1s": false,
		"small: 0": true, "small: 0KiB": true, "small: 1": true, "small: -1": false,
		"size: 0": false, "size: 0MiB": false, "size: '0'": false, "size: '010'": true, "size: 1": true, "size: 1MiB": true, "size: 1 MiB": true, "size: '12'": true, "size: 1MB": false, "size: -1": false, "size: 1.5": false, "size: MiB": false,
		"secret: env:A_1": true, "secret: 'env:'": false, "secret: env:1A": false, "secret: x": false,
		"word: one": true, "word: three": false,
		"url: http://x": true, "url: HTTPS://x/v1": true, "url: ftp://x": false, "url: x": false,
		"address: a:1": true, "address: '[::1]:80'": true, "address: 'a:'": false, "address: a:b": false, "address: a": false,
		"file: prompt.txt": true, "file: false": false,
		"json: {a: [1, {}]}": true, "json: []": false,
		"list: [a]": true, "list: []": false, "list: a": false, "list: [[]]": false,
		"items: [{name: x}]": true, "items: [{}]": false, "items: [{name: x, other: y}]": false,
		"env: {A: b}": true, "env: {a: b}": false, "env: {A: []}": false,
		"short: a": true, "short: {name: a}": true, "short: {as: a}": false, "short: []": false,
		"one: {a: {}}": true, "one: {a: {x: y}}": true, "one: {}": false, "one: {a: {}, b: {}}": false, "one: {c: {}}": false,
	} {
		_, err := read(dir, text)
		var raw jsontext.Value
		if err := (yamlfile.Document{Data: []byte(text)}).Read(yamlfile.Object(&raw)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Fatal(err)
		}
		if refused := valid(value); (err == nil) != accepted || (refused == nil) != accepted {
			t.Errorf("%s: want %t, reader: %v, schema: %v", text, accepted, err, refused)
		}
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	var rate float64
	var key, other string
	got := yamlfile.Schema("file", "A file.", yamlfile.Mapping(
		yamlfile.Key("rate", "How fast.", yamlfile.Number(&rate, yamlfile.Above(0))).Default(1e-3),
		yamlfile.Key("key", "A key.", yamlfile.Secret(&key)).Required(),
		yamlfile.Key("other", "Another.", yamlfile.Secret(&other)),
	))
	const want = `{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "file",
  "description": "A file.",
  "type": "object",
  "properties": {
    "rate": {
      "description": "How fast.",
      "type": "number",
      "exclusiveMinimum": 0,
      "default": 0.001
    },
    "key": {
      "description": "A key.",
      "$ref": "#/$defs/secret"
    },
    "other": {
      "description": "Another.",
      "$ref": "#/$defs/secret"
    }
  },
  "additionalProperties": false,
  "required": [
    "key"
  ],
  "$defs": {
    "secret": {
      "description": "env:NAME, the name of the environment variable that holds a secret.",
      "type": "string",
      "pattern": "^env:[A-Za-z_][A-Za-z0-9_]*$"
    }
  }
}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestCommand(t *testing.T) { //nolint:paralleltest // it sets the home directory of the process
	home := t.TempDir()
	t.Setenv("HOME", home)
	for text, want := range map[string]string{
		"[~/.venv/bin/python, agent.py, ~/x]": filepath.Join(home, ".venv/bin/python") + " agent.py ~/x",
		"[./agent, a]":                        "./agent a",
		"[python]":                            "python",
		"[~bob/agent]":                        `f.yaml:1: command: got "~bob/agent", whose ~bob is not expanded, must be a path such as ~/NAME, /NAME or ./NAME`,
		"[]":                                  "f.yaml:1: command: empty, there must be one at least",
	} {
		var got []string
		err := yamlfile.Document{Name: "f.yaml", Data: []byte("command: " + text)}.Read(yamlfile.Mapping(yamlfile.Key("command", "A program.", yamlfile.Command(&got))))
		if said := strings.Join(got, " "); err != nil && err.Error() != want || err == nil && said != want {
			t.Errorf("%s: got %q, %v, want %s", text, said, err, want)
		}
	}
}

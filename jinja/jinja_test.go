package jinja_test

import (
	"errors"
	"math/big"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/jinja"
)

// value decodes JSON as Python does: integers are not floats, and objects keep their order.
type value struct{ v any }

func (v *value) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	switch tok.Kind() {
	case 'n':
		v.v = nil
	case 't', 'f':
		v.v = tok.Bool()
	case '"':
		v.v = tok.String()
	case '0':
		text := tok.String()
		if n, ok := new(big.Int).SetString(text, 10); ok {
			v.v = n
			return nil
		}
		f, err := strconv.ParseFloat(text, 64)
		v.v = f
		return err
	case '[':
		list := []any{}
		for dec.PeekKind() != ']' {
			var item value
			if err := item.UnmarshalJSONFrom(dec); err != nil {
				return err
			}
			list = append(list, item.v)
		}
		v.v = list
		_, err = dec.ReadToken()
		return err
	case '{':
		dict := &jinja.Dict{}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err != nil {
				return err
			}
			key := name.String()
			var item value
			if err := item.UnmarshalJSONFrom(dec); err != nil {
				return err
			}
			dict.Set(key, item.v)
		}
		v.v = dict
		_, err = dec.ReadToken()
		return err
	}
	return nil
}

type golden struct {
	Vars  map[string]value `json:"vars"`
	Cases []struct {
		Template string  `json:"template"`
		Text     *string `json:"text"`
		Error    string  `json:"error"`
	} `json:"cases"`
}

func readGolden(t testing.TB) (golden, map[string]any) {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	vars := map[string]any{}
	for name, v := range g.Vars {
		vars[name] = v.v
	}
	return g, vars
}

func render(template string, vars map[string]any, cfg jinja.Config) (string, error) {
	t, err := jinja.Parse(template, cfg)
	if err != nil {
		return "", err
	}
	return t.Render(vars)
}

// Every template renders as in the reference, or fails where the reference raises.
func TestGolden(t *testing.T) {
	t.Parallel()
	g, vars := readGolden(t)
	if len(g.Cases) < 950 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		got, err := render(c.Template, vars, jinja.Config{})
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%q renders %q; the reference raises %s", c.Template, got, c.Error)
		case c.Text != nil && err != nil:
			t.Errorf("%q: %v; the reference renders %q", c.Template, err, *c.Text)
		case c.Text != nil && got != *c.Text:
			t.Errorf("%q:\n got %q\nwant %q", c.Template, got, *c.Text)
		}
	}
}

// No template can exceed its limits.
func TestLimits(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for _, c := range []struct{ name, template string }{
		{"steps", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"},
		{"output", "{% for a in range(99999) %}{% for b in range(9) %}{{ 'x' * 1000 }}{% endfor %}{% endfor %}"},
		{"text times", "{{ 'x' * 9999999999 }}"},
		{"list times", "{{ [1] * 9999999999 }}"},
		{"doubling", "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"},
		{"doubling of lists", "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"},
		{"shared lists printed", "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"},
		{"shared lists compared", "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}"},
		{"shared lists as JSON", "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}"},
		{"shared tuples as keys", "{% set ns = namespace(x=(1,)) %}{% for a in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}"},
		{"macros without end", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
		{"loops without end", "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
		{"deep values", "{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"},
		{"power", "{{ 9 ** 9 ** 9 ** 9 ** 9 ** 9 }}"},
		{"squares", "{% set ns = namespace(x=10) %}{% for a in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}"},
		{"width", "{{ 'x'.center(9999999999) }}"},
		{"percent", "{{ '%99999999999d' % 1 }}"},
		{"precision", "{{ '%.999999999f' % 1.5 }}"},
		{"format", "{{ '{:99999999999}'.format(1) }}"},
		{"replace", "{{ ('x' * 100000).replace('', 'y' * 100000) }}"},
		{"join", "{{ ('y' * 100000).join('x' * 100000) }}"},
		{"indent", "{{ 'x'|tojson(indent=9999999999) }}"},
		{"indent of lines", "{{ ('\n' * 100000)|indent(100000, blank=true) }}"},
		{"fill", "{{ [1]|batch(9999999999, 0)|list }}"},
		{"columns", "{{ [1]|slice(9999999999)|list }}"},
		{"searching", "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{{ x.count('ab') }}{{ x.find('b') }}{% endfor %}"},
		{"sigmas", "{% set x = 'Σ' * 100000 %}{% for i in range(99999) %}{% set y = x.lower() %}{% endfor %}"},
		{"comparing", "{% set x = 'a' * 1000000 %}{% set y = 'a' * 1000000 %}{% for i in range(99999) %}{{ x == y }}{{ x in {} }}{{ x.startswith(y) }}{% endfor %}"},
		{"counting", "{% set x = 'é' * 400000 %}{% for i in range(99999) %}{{ x | length }}{{ x[5] }}{{ x.center(3) and '' }}{% endfor %}"},
		{"deep source", "{{ " + deep + " }}"},
		{"signs", "{{ " + strings.Repeat("-", 100000) + "1 }}"},
		{"nested blocks", strings.Repeat("{% if 1 %}", 10000)},
		{"elifs", "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 10000) + "{% endif %}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limits := jinja.Limits{Steps: 300_000, Output: 1 << 20, Work: 8 << 20}
			text, err := render(c.template, nil, jinja.Config{Limits: limits})
			failure, ok := errors.AsType[*jinja.Error](err)
			if !ok || failure.Kind != jinja.Limit && failure.Kind != jinja.Syntax {
				t.Errorf("got %d bytes, %v; want a limit", len(text), err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ template, want string }{
		{"a\n{{ x.y }}", "jinja: line 2: error: 'x' is undefined"},
		{"\n\n{% for %}", `jinja: line 3: syntax error: expected a name to assign to, got "%}"`},
		{"{{ raise_exception('only ' ~ 1) }}", "jinja: line 1: raised: only 1"},
		{"{{ 'a' + none }}", "jinja: line 1: error: unsupported operand type(s) for +: 'str' and 'NoneType'"},
		{"{% include 'x' %}", `jinja: line 1: syntax error: the tag "include" is not supported`},
		{"{{ 1 | urlize }}", `jinja: line 1: syntax error: unknown filter "urlize"`},
		{"{{ {}.a.b }}", "jinja: line 1: error: 'dict object' has no attribute 'a'"},
	} {
		if _, err := render(c.template, nil, jinja.Config{}); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.template, err, c.want)
		}
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	now := func() time.Time { return time.Date(2026, 3, 5, 7, 8, 9, 123456789, time.UTC) }
	const format = "%a %A %b %B %d %e %m %y %Y %H %I %M %S %p %f %j %w %u %U %W %V %G %C %F %T %R %D %-d %-m %% %q|%Z%z|"
	const want = "Thu Thursday Mar March 05  5 03 26 2026 07 07 08 09 AM 123456 064 4 4 09 09 10 2026 20 2026-03-05 07:08:09 07:08 03/05/26 5 3 % %q||"
	got, err := render("{{ strftime_now(f) }}", map[string]any{"f": format}, jinja.Config{Now: now})
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

func TestVariables(t *testing.T) {
	t.Parallel()
	tpl, err := jinja.Parse("{{ v }}", jinja.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		v    any
		want string
	}{
		{3, "3"},
		{map[string]any{"b": 1, "a": []any{nil, 2.0}}, "{'a': [None, 2.0], 'b': 1}"},
		{jinja.Tuple{1}, "(1,)"},
	} {
		if got, err := tpl.Render(map[string]any{"v": c.v}); err != nil || got != c.want {
			t.Errorf("%v: got %q, %v", c.v, got, err)
		}
	}
	if _, err := tpl.Render(map[string]any{"v": struct{}{}}); err == nil {
		t.Error("a struct was accepted")
	}
	if _, err := jinja.Parse("", jinja.Config{Limits: jinja.Limits{Steps: -1}}); err == nil {
		t.Error("a negative limit was accepted")
	}
}

// FuzzRender checks that no template panics, hangs or exceeds its limits.
func FuzzRender(f *testing.F) {
	g, vars := readGolden(f)
	for _, c := range g.Cases {
		f.Add(c.Template)
	}
	limits := jinja.Limits{Steps: 20_000, Output: 1 << 16, Work: 1 << 20}
	f.Fuzz(func(t *testing.T, template string) {
		text, err := render(template, vars, jinja.Config{Limits: limits})
		if err != nil && text != "" {
			t.Errorf("both a text and %v", err)
		}
		if len(text) > limits.Output {
			t.Errorf("%d bytes", len(text))
		}
	})
}

func BenchmarkRender(b *testing.B) {
	_, vars := readGolden(b)
	tpl, err := jinja.Parse(`{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.content is string %}{{ m.content | trim }}{% endif %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}`, jinja.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tpl.Render(vars); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	g, _ := readGolden(b)
	var source strings.Builder
	for _, c := range g.Cases {
		if _, err := jinja.Parse(c.Template, jinja.Config{}); err == nil {
			source.WriteString(c.Template + "\n")
		}
	}
	b.SetBytes(int64(source.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := jinja.Parse(source.String(), jinja.Config{}); err != nil {
			b.Fatal(err)
		}
	}
}

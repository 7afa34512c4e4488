package rawjson

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*plainBytes)
	for _, c := range []struct {
		name, raw string
		want      []string // name=value
		complete  bool
	}{
		{"empty", `{}`, nil, true},
		{"space", " {\n} ", nil, true},
		{"every type", `{"a":1,"b":"s","c":[1,{"x":"]"}],"d":{"y":"}"},"e":null,"f":true}`, []string{"a=1", `b="s"`, `c=[1,{"x":"]"}]`, `d={"y":"}"}`, "e=null", "f=true"}, true},
		{"space between", " { \"a\" : 1 ,\n\t\"b\" : [ ] } rest", []string{"a=1", "b=[ ]"}, true},
		{"escapes", `{"a\"":"\\","b":"\\\"}"}`, []string{`a\"="\\"`, `b="\\\"}"`}, true},
		{"long strings", `{"` + long + `":"` + long + `\""}`, []string{long + `="` + long + `\""`}, true},
		{"an escape late", `{"a":"` + long[:8] + `\\"}`, []string{`a="` + long[:8] + `\\"`}, true},
		{"repeated", `{"a":1,"a":2}`, []string{"a=1", "a=2"}, true},
		{"an array", `[1]`, nil, false},
		{"nothing", ``, nil, false},
		{"no end", `{"a":1`, []string{"a=1"}, false},
		{"no end behind a comma", `{"a":1,`, []string{"a=1"}, false},
		{"no value", `{"a":}`, nil, false},
		{"no colon", `{"a" 1}`, nil, false},
		{"no quote", `{a:1}`, nil, false},
		{"half a string", `{"a":"`, nil, false},
		{"half a name", `{"`, nil, false},
		{"an escape at the end", `{"a":"\`, nil, false},
		{"half an array", `{"a":1,"b":[1,`, []string{"a=1"}, false},
		{"no comma", `{"a":1 "b":2}`, []string{"a=1"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for name, value := range Members([]byte(c.raw)) {
				got = append(got, string(name)+"="+string(value))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("Members yields %q, want %q", got, c.want)
			}
			got = nil
			complete := EachMember([]byte(c.raw), func(m Member) {
				got = append(got, string(m.Name)+"="+string(m.Value))
				if string(m.Value) != c.raw[m.ValueStart:m.End] || c.raw[m.Start] != '"' {
					t.Errorf("member %+v has other offsets", m)
				}
			})
			if !slices.Equal(got, c.want) || complete != c.complete {
				t.Errorf("EachMember visits %q, complete %v, want %q, %v", got, complete, c.want, c.complete)
			}
		})
	}
}

func TestElements(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]struct {
		list     []string
		complete bool
	}{
		`[]`:                      {nil, true},
		` [ 1 , "a,]" ,[2],{} ] `: {[]string{"1", `"a,]"`, "[2]", "{}"}, true},
		`[1,2`:                    {[]string{"1", "2"}, false},
		`[1,`:                     {[]string{"1"}, false},
		`[1 2]`:                   {[]string{"1"}, false},
		`{}`:                      {nil, false},
		``:                        {nil, false},
		`[[1,2,3,4,5,6,7,8,9,10],[ 1,2,3,4,5,6,7,8,9 ],[1,"23456789012345]",{"a":[]}],[1,2,3,4,5,6,[7,8,9]]]`: {
			[]string{"[1,2,3,4,5,6,7,8,9,10]", "[ 1,2,3,4,5,6,7,8,9 ]", `[1,"23456789012345]",{"a":[]}]`, "[1,2,3,4,5,6,[7,8,9]]"}, true,
		},
		`[[1,2,3,4,5,6,7,8,9,10,11,12`: {nil, false},
	} {
		var got []string
		for value := range Elements([]byte(raw)) {
			got = append(got, string(value))
		}
		if !slices.Equal(got, want.list) {
			t.Errorf("%s: Elements yields %q, want %q", raw, got, want.list)
		}
		got = nil
		if complete := EachElement([]byte(raw), func(value []byte) { got = append(got, string(value)) }); complete != want.complete || !slices.Equal(got, want.list) {
			t.Errorf("%s: EachElement visits %q, complete %v", raw, got, complete)
		}
	}
}

func TestMembersStop(t *testing.T) {
	t.Parallel()
	n := 0
	for range Members([]byte(`{"a":1,"b":2}`)) {
		n++
		break
	}
	for range Elements([]byte(`[1,2]`)) {
		n++
		break
	}
	if n != 2 {
		t.Errorf("%d steps after two breaks", n)
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`"a"`: "a", `""`: "", `"é"`: "é", `"\u00e9\n\/"`: "é\n/", "\"a\xffb\"": "a\ufffdb", "\"\\n\xff\"": "\n\ufffd",
		`"\ud83d\ude00"`: "😀", `1`: "", `null`: "", ``: "", `"`: "",
	} {
		if got := Unquote([]byte(raw)); got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
	if !NameIs([]byte(`a\u0062`), "ab") || !NameIs([]byte("ab"), "ab") || NameIs([]byte("a"), "ab") {
		t.Error("names are compared wrongly")
	}
}

func TestReadable(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"a" :1.50,"b":"\/"}`: `{"a" :1.50,"b":"\/"}`, `{"q":["\u4e2d\u6587 \ud83d\ude00","\u0007"],"n":12345678901234567890}`: `{"q": ["中文 😀", "\u0007"], "n": 12345678901234567890}`,
		`"\u`: `"\u`,
	} {
		given := []byte(raw)
		if got := Readable(given); got != want || string(given) != raw {
			t.Errorf("%s: got %s, want %s; afterwards it is %s", raw, got, want, given)
		}
	}
}

// A string ends where reading it byte by byte says, wherever its quotes and backslashes are.
func TestSkipString(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := []byte{'"'}
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			switch rapid.IntRange(0, 3).Draw(t, "piece") {
			case 0:
				raw = append(raw, strings.Repeat("\\", rapid.IntRange(1, 20).Draw(t, "backslashes"))...)
			case 1:
				raw = append(raw, strings.Repeat("x", rapid.IntRange(1, 2*plainBytes).Draw(t, "plain"))...)
			case 2:
				raw = append(raw, '"')
			default: // '#' differs from a quote in its last bit
				raw = append(raw, rapid.SliceOfN(rapid.SampledFrom([]byte("\"\\#\xff\x00a")), 0, 20).Draw(t, "bytes")...)
			}
		}
		want := -1
		for i := 1; i < len(raw); i++ {
			if raw[i] == '\\' {
				i++
			} else if raw[i] == '"' {
				want = i + 1
				break
			}
		}
		if got := SkipString(raw, 0); got != want {
			t.Errorf("%q ends at %d, want %d", raw, got, want)
		}
	})
}

func BenchmarkSkipString(b *testing.B) {
	quoted := func(s string) []byte { return AppendString(nil, s) }
	const logprob = `{"token":" word","logprob":-0.5,"bytes":[32,119,111,114,100],"top_logprobs":[]},`
	for name, raw := range map[string][]byte{
		"name": []byte(`"gen_ai.prompt"`), "prose": quoted(strings.Repeat("All happy families are alike. ", 500)),
		"code": quoted(strings.Repeat("func f(a string) {\n\tx := \"abc\"\n}\n", 300)), "JSON": quoted(strings.Repeat(logprob, 200)),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if SkipString(raw, 0) != len(raw) {
					b.Fatal("the string ends elsewhere")
				}
			}
		})
	}
}

var fuzzSeeds = []string{
	`{}`, `[]`, `{"a":1,"b":[1,"x",{"c":null}],"d":"\"\\"}`, ` { "a" : { } } `, `[1,2.5e3,"a",[],{}]`, `{"a":1,"a":2}`,
	`{"` + "\xff" + `":"\ud800"}`, `{"a":"` + strings.Repeat("long ", 10) + `\\"}`, `{"a`, `{"a":"\`, `[[[[`, `"x"`, `-`,
	`{"a":[[1,2,3,4,5,6,7,8,9,10],[-1,"23456789012345]"],[1,2,3,4,5,6,7,8,[9]]]}`,
}

// On valid JSON the scanner sees what a decoder sees; on anything else it ends.
func FuzzScan(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var names, values []string
		complete := EachMember(raw, func(m Member) {
			names, values = append(names, string(m.Name)), append(values, string(m.Value))
		})
		var elements []string
		listComplete := EachElement(raw, func(value []byte) { elements = append(elements, string(value)) })
		value := jsontext.Value(raw)
		if !value.IsValid(Options()) {
			return
		}
		dec := NewDecoder(bytes.Clone(raw))
		kind := dec.PeekKind()
		if complete != (kind == '{') || listComplete != (kind == '[') {
			t.Fatalf("a %s is complete as an object %v, as an array %v", kind, complete, listComplete)
		}
		if kind != '{' && kind != '[' {
			return
		}
		if _, err := dec.ReadToken(); err != nil {
			t.Fatal(err)
		}
		for i := 0; dec.PeekKind() != '}' && dec.PeekKind() != ']'; i++ {
			if kind == '{' {
				name, err := dec.ReadValue()
				if err != nil || names[i] != string(name[1:len(name)-1]) {
					t.Fatalf("name %d is %s, %v, scanned as %q", i, name, err, names)
				}
			} else {
				values = elements
			}
			want, err := dec.ReadValue()
			if err != nil || values[i] != string(want) {
				t.Fatalf("value %d is %s, %v, scanned as %q", i, want, err, values)
			}
		}
	})
}

func TestMore(t *testing.T) {
	t.Parallel()
	for text, has := range map[string]int{
		``: 0, `1`: 0, `[null,1,"n",null]`: 3, `{}`: 1, `[{},{},[]]`: 4, `{"{[{[":"{\\\"[{","b":[1]}`: 2, `["{{{{{{`: 1,
	} {
		if More([]byte(text), has) {
			t.Errorf("%s has more than %d", text, has)
		}
		if has > 1 && !More([]byte(text), has-1) {
			t.Errorf("%s has no more than %d", text, has-1)
		}
	}
}

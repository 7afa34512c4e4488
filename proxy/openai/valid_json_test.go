package openai

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// byJSONText is the verdict that ValidObject must give.
func byJSONText(raw []byte) bool {
	v := jsontext.Value(raw)
	return len(raw) > 0 && v.Kind() == '{' && v.IsValid(jsontext.AllowDuplicateNames(true))
}

// documents are valid and not, with every byte and escape that strings can have
// at every place of a word of eight.
func documents() []string {
	docs := []string{
		``, ` `, `{}`, ` { } `, `{`, `}`, `[]`, `null`, `"{}"`, `{}{}`, `{} x`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":1 "b":2}`,
		`{"a":1,"a":2}`, `{"a":[1,2,{"b":[]}]}`, `{"a":[1,]}`, `{"a":[1}`, `{"a":[1}]}`, `{"a":true,"b":false,"c":null}`, `{"a":tru}`, `{"a":nul`, `{"a":truex}`,
		`{"a":0}`, `{"a":-0}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1.5e+7}`, `{"a":1e}`, `{"a":1e-}`, `{"a":1E5}`, `{"a":+1}`, `{"a":1`, `{"a":0x1}`,
		`{"a":"\u00e9\ud83d\ude00"}`, `{"a":"\ud83d"}`, `{"a":"\ude00"}`, `{"a":"\ud83d\u0041"}`, `{"a":"\u12g4"}`, `{"a":"\u12`, `{"a":"\x"}`, `{"a":"\`,
		"{\"a\":\"\xff\"}", "{\"\xc3\xa9\":\"é\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\ufffd\"}", "\ufeff{}", "{\t\r\n}", "{\v}",
		strings.Repeat(`{"a":`, maxDepth) + `1` + strings.Repeat(`}`, maxDepth),
		strings.Repeat(`{"a":`, maxDepth+1) + `1` + strings.Repeat(`}`, maxDepth+1),
	}
	for c := range 256 {
		for at := range 17 {
			docs = append(docs, `{"a":"`+strings.Repeat("x", at)+string([]byte{byte(c)})+`yyyyyyyyyy"}`, `{"a":"`+strings.Repeat("~", at)+`\`+string([]byte{byte(c)})+`\u0020"}`)
		}
	}
	return docs
}

func TestValidObject(t *testing.T) {
	t.Parallel()
	for _, doc := range documents() {
		if got, want := ValidObject([]byte(doc)), byJSONText([]byte(doc)); got != want {
			t.Errorf("%.200q: got %v, want %v", doc, got, want)
		}
	}
}

// EachValid gives the verdict of ValidObject and the members of jsontext, whether a list is visited whole or by element.
func TestEachValid(t *testing.T) {
	t.Parallel()
	for _, doc := range append(documents(), `{"a":[1,{"b":["c"]},[]],"a":[],"x":"y"}`, `{"a":[1 2]}`, `{"a":[,]}`, `{"a":["\x"]}`, "{\"a\xff\":1}", `{"a":[] "b":1}`) {
		for _, whole := range []bool{true, false} {
			var got []string
			valid := EachValid([]byte(doc), func(name []byte) func([]byte) {
				if whole {
					return nil
				}
				return func(element []byte) { got = append(got, string(name)+"[] "+string(element)) }
			}, func(name, value []byte) { got = append(got, string(name)+" "+string(value)) })
			if valid != byJSONText([]byte(doc)) {
				t.Errorf("%.200q: got %v", doc, valid)
			}
			if !valid {
				continue
			}
			var want []string
			Members([]byte(doc), func(name, value []byte) {
				if whole || value[0] != '[' {
					want = append(want, string(name)+" "+string(value))
					return
				}
				Elements(value, func(element []byte) { want = append(want, string(name)+"[] "+string(element)) })
			})
			if !slices.Equal(got, want) {
				t.Errorf("%.200q: got %.200q, want %.200q", doc, got, want)
			}
		}
	}
}

// Every byte is seen at every place of a long text, also behind those that a
// borrow could mark in its stead.
func TestPlain(t *testing.T) {
	t.Parallel()
	for _, around := range []byte{'x', '#', ']', '!', '[', ' ', '~'} {
		text := []byte(strings.Repeat(string(around), 64))
		for c := range 256 {
			for at := range text {
				text[at] = byte(c)
				want := at
				if c >= ' ' && c != '"' && c != '\\' && c < 0x80 {
					want = len(text)
				}
				if got := plain(text); got != want {
					t.Fatalf("%q: %d bytes are plain, want %d", text, got, want)
				}
				text[at] = around
			}
		}
	}
}

// TestValidNumbers has lists of ids, whole and damaged at any byte, after lists that are known.
func TestValidNumbers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.SampledFrom([]string{"0", "7", "10", "123456", "2147483647", "-1", "1.5"}), 1, 30).Draw(t, "ids")
		list := []byte("[" + strings.Join(ids, ",") + "]")
		known := []byte("[" + strings.Join(ids[:rapid.IntRange(0, len(ids)).Draw(t, "known")], ",") + "]")
		doc := append([]byte(`{"a":`), list...)
		for range rapid.IntRange(0, 2).Draw(t, "edits") {
			at := rapid.IntRange(0, len(doc)-1).Draw(t, "at")
			doc[at] = rapid.SampledFrom([]byte("0019,,[]-. x\"")).Draw(t, "to")
		}
		doc = append(doc, '}')
		want := byJSONText(doc)
		if got := ValidObject(doc); got != want {
			t.Fatalf("%s: got %t, want %t", doc, got, want)
		}
		if got := ValidObjectWith(doc, known); got != want {
			t.Fatalf("%s after %s: got %t, want %t", doc, known, got, want)
		}
	})
}

func FuzzValidObject(f *testing.F) {
	for i, doc := range documents() {
		if i%50 == 0 {
			f.Add([]byte(doc))
		}
	}
	f.Add([]byte(`{"a":"\u00e9 text","b":[1.5e-3,{"c":null}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if got, want := ValidObject(doc), byJSONText(doc); got != want {
			t.Errorf("%q: got %v, want %v", doc, got, want)
		}
	})
}

func BenchmarkValidObject(b *testing.B) {
	doc := []byte(`{"a":"` + strings.Repeat("All happy families are alike. ", 1300) + `"}`)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if !ValidObject(doc) {
			b.Fatal("not valid")
		}
	}
}

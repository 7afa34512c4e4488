package openai

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/agl-go/agl/internal/rawjson"
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

// eachChecked gives the verdict of ValidObject, and the members of EachMember also where there is a fault.
func TestEachChecked(t *testing.T) {
	t.Parallel()
	for _, doc := range append(documents(), `{"a":[1,{"b":["c"]},[]],"a":[],"x":"y"}`, `{"a":[1 2],"b":3}`, `{"a":1,"b":["\x"],"c":"\x"}`, "{\"a\xff\":1,\"b\":2}", `{"a":[] "b":1}`, "{\"a\":\"\x00\",\"b\":1}") {
		var got, want []rawjson.Member
		complete, _, checked := eachChecked([]byte(doc), func(m rawjson.Member) { got = append(got, m) })
		wantComplete := rawjson.EachMember([]byte(doc), func(m rawjson.Member) { want = append(want, m) })
		if valid := checked != nil; valid != byJSONText([]byte(doc)) || complete != wantComplete {
			t.Errorf("%.200q: complete %v, want %v; valid %v", doc, complete, wantComplete, valid)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%.200q: got %.200v, want %.200v", doc, got, want)
		}
	}
}

// A checked object is walked with Skip as with SkipValue, whatever strings it has.
func TestCheckedSkip(t *testing.T) {
	t.Parallel()
	text := rapid.Custom(func(t *rapid.T) string {
		part := rapid.SampledFrom([]string{"x", `\\`, `\"`, "é", "] }", ","}).Draw(t, "part")
		return `"` + strings.Repeat(part, rapid.SampledFrom([]int{0, 1, longString/2 - 1, longString, 2 * longString}).Draw(t, "times")) + `"`
	})
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(text, 1, 6).Draw(t, "texts")
		list := "[" + strings.Join(texts, " ,") + "]"
		doc := []byte(`{"a":` + list + `, "b":{"c":` + texts[0] + `},"d":` + texts[0] + `,"e":[{"f":` + list + `}, 1]}`)
		checked := Check(doc)
		if checked == nil {
			t.Fatalf("%s is valid", doc)
		}
		long := 0
		for i, text := range append(texts, texts...) { // of a and e
			if len(text) >= longString {
				long++
				if i == 0 { // of b and d
					long += 2
				}
			}
		}
		if len(checked.long) != long {
			t.Fatalf("%d strings of %s were noted, want %d", len(checked.long), doc, long)
		}
		skip := checked.Skip(doc)
		enter := rapid.SliceOfN(rapid.Bool(), 4, 4).Draw(t, "enter")
		rawjson.WalkMembers(doc, 0, func(m rawjson.Member) int {
			check := func(i int) int {
				got, want := skip(i), rawjson.SkipValue(doc, i)
				if got != want {
					t.Fatalf("the value at %d of %s ends at %d, want %d", i, doc, got, want)
				}
				return got
			}
			if doc[m.ValueStart] == '[' && enter[m.Name[0]%4] {
				return rawjson.WalkElements(doc, m.ValueStart, check)
			}
			return check(m.ValueStart)
		})
	})
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

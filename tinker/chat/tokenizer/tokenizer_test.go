package tokenizer_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

func kinds() []string { return []string{"onedigit", "threedigits", "deepseek", "fallback"} }

func load(t testing.TB, kind string) *tokenizer.Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", kind+".json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

type golden struct {
	Text       string  `json:"text"`
	IDs        []int32 `json:"ids"`
	Decoded    string  `json:"decoded"`
	Broken     []int32 `json:"broken"`
	BrokenText string  `json:"broken_text"`
}

func readGolden(t testing.TB, kind string) []golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", kind+".golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []golden
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// stream decodes ids one by one.
func stream(d *tokenizer.Decoder, ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Add(id))
	}
	b.WriteString(d.Flush())
	return b.String()
}

// Each kind of pipeline has the ids and texts of the reference. test/tokenizers does the same with real models.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tok := load(t, kind)
			for _, c := range readGolden(t, kind) {
				for range 2 { // the second time from memory
					if got := tok.Append(nil, c.Text, tokenizer.Options{Added: true}); !slices.Equal(got, c.IDs) {
						t.Errorf("%q: ids %v, want %v", c.Text, got, c.IDs)
					}
				}
				for _, d := range []struct {
					got, streamed, want string
				}{
					{tok.Decode(c.IDs), stream(tok.NewDecoder(), c.IDs), c.Decoded},
					{tok.Decode(c.Broken), stream(tok.NewDecoder(), c.Broken), c.BrokenText},
				} {
					if d.got != d.want || d.streamed != d.want {
						t.Errorf("%q: decoded to %q, streamed %q, want %q", c.Text, d.got, d.streamed, d.want)
					}
				}
				var spelt []byte
				for _, id := range c.IDs {
					spelt = append(spelt, tok.TokenBytes(id)...)
				}
				if string(spelt) != c.Decoded {
					t.Errorf("%q: its tokens' bytes are %q, want %q", c.Text, spelt, c.Decoded)
				}
			}
		})
	}
}

// Encode never returns an added token, and its ids decode to the text.
func TestEncodeKeepsMarksOut(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		tok := load(t, kind)
		const text = "a<|im_start|>b<think></think>\n\n<start_of_turn>"
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(ids, tok.Special) {
			t.Errorf("%s: %v holds a special token", kind, ids)
		}
		if got := tok.Decode(ids); got != text {
			t.Errorf("%s: decodes to %q", kind, got)
		}
		id, ok := tok.ID("<|im_start|>")
		if !ok || !tok.Special(id) || !tok.Added(id) || int(id) >= tok.Vocab() {
			t.Errorf("%s: <|im_start|> has the id %d, %v, of %d", kind, id, ok, tok.Vocab())
		}
		if got := tok.Append(nil, text, tokenizer.Options{Added: true}); !slices.Contains(got, id) {
			t.Errorf("%s: %v holds no <|im_start|>", kind, got)
		}
	}
}

// The vocabulary ends with its last token: a model may have no rows beyond it.
func TestVocab(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds() {
		tok := load(t, kind)
		if n := tok.Vocab(); tok.Decode([]int32{int32(n - 1)}) == "" {
			t.Errorf("%s: the last of %d ids has no token", kind, n)
		}
	}
}

func TestUnknownIDs(t *testing.T) {
	t.Parallel()
	tok := load(t, "onedigit")
	if got := tok.Decode([]int32{-1, 1 << 30}); got != "" {
		t.Errorf("got %q", got)
	}
}

// Long words are merged with a heap, short ones by looking at every pair. Both have the same result.
func TestLongWords(t *testing.T) {
	t.Parallel()
	tok := load(t, "threedigits")
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		// The split keeps letters together, so this is one word.
		word := make([]byte, 20+rng.IntN(60))
		for i := range word {
			word[i] = "etaoinshr"[rng.IntN(9)]
		}
		long, err := tok.Encode(string(word))
		if err != nil {
			t.Fatal(err)
		}
		if want := naive(tok, string(word)); !slices.Equal(long, want) {
			t.Fatalf("%s: %v, want %v", word, long, want)
		}
	}
}

// naive merges the pair of the lowest token id, which in a trained vocabulary is the one learnt first.
func naive(tok *tokenizer.Tokenizer, word string) []int32 {
	parts := strings.Split(word, "")
	for {
		best, at := int32(1<<30), -1
		for i := range len(parts) - 1 {
			if id, ok := tok.ID(parts[i] + parts[i+1]); ok && id < best {
				best, at = id, i
			}
		}
		if at < 0 {
			break
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
	ids := make([]int32, len(parts))
	for i, p := range parts {
		ids[i], _ = tok.ID(p)
	}
	return ids
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	tok := load(t, "onedigit")
	cases := readGolden(t, "onedigit")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, c := range cases {
				if got := tok.Append(nil, c.Text, tokenizer.Options{Added: true}); !slices.Equal(got, c.IDs) {
					t.Errorf("%q: ids %v, want %v", c.Text, got, c.IDs)
				}
			}
		})
	}
	wg.Wait()
}

// A file may divide text by nothing at all: then the merges reach over all of it.
func TestTextThatNothingDivides(t *testing.T) {
	t.Parallel()
	for kind, change := range map[string]func(file map[string]any){
		"onedigit": func(file map[string]any) {
			file["pre_tokenizer"] = map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}
		},
		"fallback": func(file map[string]any) { file["normalizer"], file["pre_tokenizer"] = nil, nil },
	} {
		data, err := os.ReadFile(filepath.Join("testdata", kind+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var file map[string]any
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatal(err)
		}
		change(file)
		if data, err = json.Marshal(file); err != nil {
			t.Fatal(err)
		}
		tok, err := tokenizer.Load(data)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		const text = "x y  12"
		if ids := tok.Append(nil, text, tokenizer.Options{}); stream(tok.NewDecoder(), ids) != text {
			t.Errorf("%s: the ids %v are not those of %q", kind, ids, text)
		}
	}
}

// What cannot be reproduced exactly is refused, with its name.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/onedigit.json")
	if err != nil {
		t.Fatal(err)
	}
	fallback, err := os.ReadFile("testdata/fallback.json")
	if err != nil {
		t.Fatal(err)
	}
	file, gemma := string(data), string(fallback)
	for _, c := range []struct{ name, file, old, replacement, want string }{
		{"not JSON", file, "{", "[", "tokenizer.json: "},
		{"model", file, `"type":"BPE"`, `"type":"WordPiece"`, `model: type "WordPiece" is not supported`},
		{"dropout", file, `"dropout":null`, `"dropout":0.1`, "model: dropout is 0.1"},
		{"suffix", file, `"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, "end_of_word_suffix"},
		{"normalizer", file, `"type":"NFC"`, `"type":"NFKC"`, "normalizer: NFKC is not supported"},
		{"split", file, `\\p{N}|`, `\\p{N}{1,2}|`, "pre_tokenizer: Split at the regular expression"},
		{"behavior", file, `"behavior":"Isolated"`, `"behavior":"Removed"`, "(Removed) is not known"},
		{"invert", file, `"invert":false`, `"invert":true`, "Split with invert"},
		{"prefix space", file, `"add_prefix_space":false`, `"add_prefix_space":true`, "add_prefix_space"},
		{"post-processor", file, `"post_processor":{"type":"ByteLevel"`, `"post_processor":{"type":"BertProcessing"`, "post_processor: BertProcessing"},
		{"decoder", file, `"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"WordPiece"`, `decoder: "WordPiece"`},
		{"split of text", gemma, `"pattern":{"String":" "},"behavior"`, `"pattern":{"String":"x"},"behavior"`, `pre_tokenizer: Split at the text "x"`},
		{"bytes", gemma, `"<0x41>"`, `"<0x4141>"`, "no token for the byte 0x41"},
		{"bytes without fallback", gemma, `"byte_fallback":true`, `"byte_fallback":false`, "without byte_fallback"},
		{"decoder of bytes", gemma, `{"type":"Fuse"}`, `{"type":"Strip"}`, "decoder:"},
		{"merge", file, `"merges":[[`, `"merges":[["ab","zzz"],[`, "model: merge 0"},
		{"huge id", file, `"vocab":{`, `"vocab":{"zzzz":99999999,`, "allowed are 0 to"},
		{"two tokens of one id", file, `"vocab":{`, `"vocab":{"zzzz":0,`, "both have the id 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			compact := compactJSON(t, c.file)
			changed := strings.Replace(compact, c.old, c.replacement, 1)
			if changed == compact {
				t.Fatalf("the file has no %s", c.old)
			}
			_, err := tokenizer.Load([]byte(changed))
			if agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func compactJSON(t *testing.T, text string) string {
	t.Helper()
	// The reference writes the file in one line or indented.
	var b strings.Builder
	inText := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			b.WriteByte(c)
			i++
			b.WriteByte(text[i])
			continue
		case c == '"':
			inText = !inText
		case !inText && (c == ' ' || c == '\n'):
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// The ids of text that is not normalized decode to it, whole and streamed.
func FuzzRoundTrip(f *testing.F) {
	for _, c := range readGolden(f, "deepseek") {
		f.Add(c.Text)
	}
	toks := map[string]*tokenizer.Tokenizer{}
	for _, kind := range []string{"threedigits", "deepseek", "fallback"} {
		toks[kind] = load(f, kind)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			text = strings.ToValidUTF8(text, "\ufffd")
		}
		for kind, tok := range toks {
			if kind == "fallback" && strings.Contains(text, "▁") {
				continue // decodes to a blank
			}
			ids, err := tok.Encode(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := tok.Decode(ids); got != text {
				t.Errorf("%s: %q became %q", kind, text, got)
			}
			if got := stream(tok.NewDecoder(), ids); got != text {
				t.Errorf("%s: %q streamed is %q", kind, text, got)
			}
		}
	})
}

// No file makes Load panic or take memory beyond the file's size.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]},"added_tokens":[{"id":5,"content":"x"}]}`))
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":4000000},"merges":[["a","b"]]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := tokenizer.Load(data)
		if err != nil {
			return
		}
		if ids, err := tok.Encode("some text"); err != nil || len(ids) == 0 {
			t.Errorf("%v, %v", ids, err)
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	for _, kind := range kinds() {
		b.Run(kind, func(b *testing.B) {
			tok := load(b, kind)
			text := strings.Repeat("func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { return 12345 } // ok\n", 200)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var ids []int32
			for b.Loop() {
				ids = tok.Append(ids[:0], text, tokenizer.Options{Added: true})
			}
		})
	}
}

package tokenizer

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// The parts of a tokenizer.json. What changes ids and is not here is refused.

type file struct {
	AddedTokens   []fileAdded `json:"added_tokens"`
	Normalizer    *component  `json:"normalizer"`
	PreTokenizer  *component  `json:"pre_tokenizer"`
	PostProcessor *component  `json:"post_processor"`
	Decoder       *component  `json:"decoder"`
	Model         fileModel   `json:"model"`
}

type fileAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type fileModel struct {
	Type                    string           `json:"type"`
	Dropout                 *float64         `json:"dropout"`
	ContinuingSubwordPrefix string           `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string           `json:"end_of_word_suffix"`
	ByteFallback            bool             `json:"byte_fallback"`
	IgnoreMerges            bool             `json:"ignore_merges"`
	Vocab                   map[string]int32 `json:"vocab"`
	Merges                  []mergePair      `json:"merges"`
}

// component is a normalizer, pre-tokenizer, post-processor or decoder, or a sequence of them.
type component struct {
	Type           string      `json:"type"`
	Pattern        pattern     `json:"pattern"`
	Content        string      `json:"content"`
	Behavior       string      `json:"behavior"`
	Invert         bool        `json:"invert"`
	AddPrefixSpace bool        `json:"add_prefix_space"`
	UseRegex       *bool       `json:"use_regex"`
	Normalizers    []component `json:"normalizers"`
	Pretokenizers  []component `json:"pretokenizers"`
	Processors     []component `json:"processors"`
	Decoders       []component `json:"decoders"`
}

type pattern struct {
	String string `json:"String"`
	Regex  string `json:"Regex"`
}

// flat returns a component, or the components of a sequence, as one list; that of a missing one is empty.
func (c *component) flat() []component {
	if c == nil {
		return nil
	}
	if c.Type != "Sequence" {
		return []component{*c}
	}
	var all []component
	for _, list := range [][]component{c.Normalizers, c.Pretokenizers, c.Processors, c.Decoders} {
		for i := range list {
			all = append(all, list[i].flat()...)
		}
	}
	return all
}

// maxID bounds ids, so that a damaged file cannot ask for any amount of memory.
const maxID = 1 << 22

// mergePair is two tokens, written as ["a","b"] or, in older files, as "a b".
type mergePair [2]string

func (p *mergePair) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '"' {
		return json.UnmarshalDecode(dec, (*[2]string)(p))
	}
	tok, err := dec.ReadToken()
	if err != nil {
		return err
	}
	a, b, ok := strings.Cut(tok.String(), " ")
	if !ok || strings.Contains(b, " ") {
		return fmt.Errorf("a merge is %q, not two tokens", tok.String())
	}
	*p = mergePair{a, b}
	return nil
}

// Load reads the content of a tokenizer.json. A part that cannot be reproduced exactly is agl.ErrInvalid, and named.
func Load(data []byte) (*Tokenizer, error) {
	var f file
	dec := jsontext.NewDecoder(bytes.NewBuffer(data))
	if err := json.UnmarshalDecode(dec, &f); err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "tokenizer.json: %w", err)
	}
	t := &Tokenizer{added: map[int32]bool{}}
	for _, step := range []func(*file) error{t.loadModel, t.loadNormalizer, t.loadSplits, t.loadAdded, t.loadPost, t.loadDecoder, t.finish} {
		if err := step(&f); err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "tokenizer.json: %w", err)
		}
	}
	return t, nil
}

func (t *Tokenizer) loadModel(f *file) error {
	m := &f.Model
	switch {
	case m.Type != "BPE":
		return fmt.Errorf("model: type %q is not supported; only BPE is", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model: dropout is %v; it makes ids random and is not supported", *m.Dropout)
	case m.ContinuingSubwordPrefix != "" || m.EndOfWordSuffix != "":
		return fmt.Errorf("model: continuing_subword_prefix and end_of_word_suffix are not supported")
	case len(m.Vocab) == 0:
		return fmt.Errorf("model: vocab is empty")
	}
	t.ignoreMerges = m.IgnoreMerges
	t.byteLevel = slices.ContainsFunc(f.PreTokenizer.flat(), func(c component) bool { return c.Type == "ByteLevel" })
	if !t.byteLevel && !m.ByteFallback {
		return fmt.Errorf("model: BPE without ByteLevel and without byte_fallback is not supported")
	}
	t.ids = make(map[string]int32, len(m.Vocab))
	for token, id := range m.Vocab {
		if t.byteLevel {
			token = byteLevelText(token)
		}
		if err := t.addToken(token, id); err != nil {
			return err
		}
	}
	t.merges = newMerges(len(m.Merges))
	for rank, pair := range m.Merges {
		if t.byteLevel {
			pair = mergePair{byteLevelText(pair[0]), byteLevelText(pair[1])}
		}
		left, okLeft := t.ids[pair[0]]
		right, okRight := t.ids[pair[1]]
		into, okInto := t.ids[pair[0]+pair[1]]
		if !okLeft || !okRight || !okInto {
			return fmt.Errorf("model: merge %d of %q and %q: they, or the two joined, are no token", rank, pair[0], pair[1])
		}
		t.merges.put(left, right, int32(rank), into)
	}
	return t.loadBytes()
}

// addToken adds a token of the vocabulary.
func (t *Tokenizer) addToken(token string, id int32) error {
	if id < 0 || id > maxID {
		return fmt.Errorf("model: token %q has the id %d; allowed are 0 to %d", token, id, maxID)
	}
	if n := int(id) + 1 - len(t.tokens); n > 0 {
		t.tokens = append(t.tokens, make([]string, n)...)
	}
	if old := t.tokens[id]; old != "" {
		return fmt.Errorf("model: tokens %q and %q both have the id %d", old, token, id)
	}
	t.tokens[id], t.ids[token] = token, id
	return nil
}

// loadBytes finds the tokens of single bytes.
func (t *Tokenizer) loadBytes() error {
	for b := range 256 {
		name := string([]byte{byte(b)})
		if !t.byteLevel {
			name = fmt.Sprintf("<0x%02X>", b)
		}
		id, ok := t.ids[name]
		if !ok {
			return fmt.Errorf("model: vocab has no token for the byte 0x%02x", b)
		}
		t.bytes[b] = id
	}
	return nil
}

func (t *Tokenizer) loadNormalizer(f *file) error {
	for _, c := range f.Normalizer.flat() {
		switch {
		case c.Type == "NFC":
			t.normalize = append(t.normalize, nfc)
		case c.Type == "Replace" && c.Pattern.String != "":
			from, to := c.Pattern.String, c.Content
			t.normalize = append(t.normalize, func(text string) string { return strings.ReplaceAll(text, from, to) })
			t.replaced = append(t.replaced, from)
		default:
			return fmt.Errorf("normalizer: %s is not supported", c.Type)
		}
	}
	return nil
}

func (t *Tokenizer) loadSplits(f *file) error {
	known := map[string]splitter{
		oneDigit: cl100k(1), threeDigits: cl100k(3),
		deepSeekDigits: digitGroups, deepSeekCJK: cjkRuns, deepSeekWords: deepSeekWord,
	}
	for i, c := range f.PreTokenizer.flat() {
		switch c.Type {
		case "ByteLevel":
			if c.AddPrefixSpace || c.UseRegex == nil || *c.UseRegex {
				return fmt.Errorf("pre_tokenizer: ByteLevel with add_prefix_space or use_regex is not supported")
			}
			if i != len(f.PreTokenizer.flat())-1 {
				return fmt.Errorf("pre_tokenizer: ByteLevel is not the last step")
			}
		case "Split":
			if c.Invert {
				return fmt.Errorf("pre_tokenizer: Split with invert is not supported")
			}
			if c.Pattern.String != "" {
				// A text that the normalizer has replaced everywhere does not occur.
				if !slices.Contains(t.replaced, c.Pattern.String) {
					return fmt.Errorf("pre_tokenizer: Split at the text %q is not supported", c.Pattern.String)
				}
				continue
			}
			s, ok := known[c.Pattern.Regex]
			if !ok || c.Behavior != "Isolated" {
				return fmt.Errorf("pre_tokenizer: Split at the regular expression %q (%s) is not known", c.Pattern.Regex, c.Behavior)
			}
			t.splits = append(t.splits, s)
		default:
			return fmt.Errorf("pre_tokenizer: %s is not supported", c.Type)
		}
	}
	return nil
}

func (t *Tokenizer) loadAdded(f *file) error {
	for _, a := range f.AddedTokens {
		if a.ID < 0 || a.ID > maxID || a.Content == "" {
			return fmt.Errorf("added_tokens: %q has the id %d; a text, and an id from 0 to %d, are needed", a.Content, a.ID, maxID)
		}
		if n := int(a.ID) + 1 - len(t.tokens); n > 0 {
			t.tokens = append(t.tokens, make([]string, n)...)
		}
		t.tokens[a.ID] = a.Content
		t.ids[a.Content] = a.ID
		token := addedToken{id: a.ID, lstrip: a.Lstrip, rstrip: a.Rstrip, singleWord: a.SingleWord}
		if a.Normalized {
			t.addedNormal.add(t.normalized(a.Content), token)
		} else {
			t.addedRaw.add(a.Content, token)
		}
		t.added[a.ID] = a.Special
	}
	return nil
}

func (t *Tokenizer) loadPost(f *file) error {
	for _, c := range f.PostProcessor.flat() {
		switch c.Type {
		case "ByteLevel": // changes offsets only
		case "TemplateProcessing": // puts tokens around a text, which chat templates do themselves
		default:
			return fmt.Errorf("post_processor: %s is not supported", c.Type)
		}
	}
	return nil
}

func (t *Tokenizer) loadDecoder(f *file) error {
	steps := f.Decoder.flat()
	names := make([]string, len(steps))
	for i, c := range steps {
		names[i] = c.Type
		if c.Type == "Replace" {
			t.spaceMark = c.Pattern.String
			if c.Content != " " || t.spaceMark == "" {
				return fmt.Errorf("decoder: Replace %q by %q is not supported", c.Pattern.String, c.Content)
			}
		}
	}
	want := "Replace ByteFallback Fuse"
	if t.byteLevel {
		want = "ByteLevel"
	}
	if got := strings.Join(names, " "); got != want {
		return fmt.Errorf("decoder: %q is not supported with this model; only %q is", got, want)
	}
	return nil
}

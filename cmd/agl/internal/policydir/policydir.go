// Package policydir describes a model of the embedded policy: the flags of its
// sizes, and the directory in which agl policy keeps it.
package policydir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
)

// Sizes has the flags that describe a new model. Zero means the default.
type Sizes struct {
	Name       string `placeholder:"NAME" help:"Name of the base model. Default: agl-policy."`
	Characters string `xor:"vocabulary" placeholder:"TEXT" help:"Vocabulary: one token for each of these characters, and role marks. Default: those of small arithmetic and plain lower-case phrases."`
	Bytes      bool   `xor:"vocabulary" help:"Vocabulary: one token for each byte of UTF-8, and role marks."`
	Vocab      size   `xor:"vocabulary" placeholder:"N" help:"Vocabulary: N tokens that stand for no text, for clients that have a tokenizer."`
	Context    size   `placeholder:"N" help:"Longest sequence in tokens. Default: 48."`
	Layers     size   `placeholder:"N" help:"Transformer blocks. Default: 2."`
	Dim        size   `placeholder:"N" help:"Width of the residual stream, a multiple of 16 times the heads. Default: 64."`
	Heads      size   `placeholder:"N" help:"Attention heads. Default: 4."`
	FF         size   `name:"ff" placeholder:"N" help:"Width of the feed-forward layers, a multiple of 16. Default: 256."`
}

// size is one of the sizes of a model; 0 means not given.
type size int

// UnmarshalText reads a size.
func (w *size) UnmarshalText(text []byte) error {
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil || n < 1 {
		return fmt.Errorf("got %q, must be a whole number of at least 1", text)
	}
	*w = size(n)
	return nil
}

// Given returns the name of the first flag that was given; empty if none was.
func (s Sizes) Given() string {
	flags := reflect.ValueOf(s)
	for i := range flags.NumField() {
		if !flags.Field(i).IsZero() {
			return "--" + strings.ToLower(flags.Type().Field(i).Name)
		}
	}
	return ""
}

// Checked returns the model that the flags describe, with its defaults filled in.
func (s Sizes) Checked() (Model, error) {
	m := Model{
		Name: s.Name, Vocabulary: vocabulary{Characters: s.Characters, Bytes: s.Bytes, Size: int(s.Vocab)},
		Context: int(s.Context), Layers: int(s.Layers), Dim: int(s.Dim), Heads: int(s.Heads), FF: int(s.FF),
	}
	if m.Vocabulary == (vocabulary{}) {
		m.Vocabulary.Characters = chat.DefaultAlphabet
	}
	if _, err := m.Tokenizer(); err != nil {
		return m, fmt.Errorf("--characters: %w", err)
	}
	return m.checked()
}

// Model describes a model in its directory, beside its weights.
type Model struct {
	Name       string     `json:"name"`
	Vocabulary vocabulary `json:"vocabulary"`
	Context    int        `json:"context"`
	Layers     int        `json:"layers"`
	Dim        int        `json:"dim"`
	Heads      int        `json:"heads"`
	FF         int        `json:"ff"`
}

// vocabulary describes the tokens of a model. Exactly one field is set.
type vocabulary struct {
	Characters string `json:"characters,omitzero"`
	Bytes      bool   `json:"bytes,omitzero"`
	Size       int    `json:"size,omitzero"`
}

func (v vocabulary) String() string {
	switch {
	case v.Bytes:
		return fmt.Sprintf("%d tokens of bytes and role marks", chat.Bytes{}.Vocab())
	case v.Characters != "":
		return fmt.Sprintf("tokens of the characters %q and role marks", v.Characters)
	}
	return fmt.Sprintf("%d tokens", v.Size)
}

// ModelFile is the path of the description of the model in a directory.
func ModelFile(dir string) string { return filepath.Join(dir, "model.json") }

// WeightsFile is the path of the weights of the model in a directory.
func WeightsFile(dir string) string { return filepath.Join(dir, "base.ckpt") }

// Of describes the model of a configuration; without characters it has those of
// [chat.DefaultAlphabet].
func Of(cfg policy.Config, characters string) (Model, error) {
	m := Model{
		Name: cfg.Name, Vocabulary: vocabulary{Characters: cmp.Or(characters, chat.DefaultAlphabet)},
		Context: cfg.Context, Layers: cfg.Layers, Dim: cfg.Dim, Heads: cfg.Heads, FF: cfg.FF,
	}
	return m.checked()
}

// checked returns the model with its defaults filled in.
func (m Model) checked() (Model, error) {
	cfg, err := m.Config(policy.Config{}).Checked()
	m.Name, m.Context, m.Layers, m.Dim, m.Heads, m.FF = cfg.Name, cfg.Context, cfg.Layers, cfg.Dim, cfg.Heads, cfg.FF
	return m, err
}

// Tokenizer returns the tokenizer of the model; nil if its tokens stand for no text.
func (m Model) Tokenizer() (chat.Marked, error) {
	switch v := m.Vocabulary; {
	case v.Bytes:
		return chat.Bytes{}, nil
	case v.Characters != "":
		return chat.NewCharacters(v.Characters)
	}
	return nil, nil //nolint:nilnil // no tokenizer is no error
}

// Config sets the model's name, vocabulary and sizes in a configuration.
func (m Model) Config(cfg policy.Config) policy.Config {
	cfg.Name, cfg.Vocab = m.Name, m.Vocabulary.Size
	cfg.Context, cfg.Layers, cfg.Dim, cfg.Heads, cfg.FF = m.Context, m.Layers, m.Dim, m.Heads, m.FF
	if tokenizer, err := m.Tokenizer(); err == nil && tokenizer != nil {
		cfg.Vocab = tokenizer.Vocab()
	}
	return cfg
}

// Write puts the model into its directory.
func (m Model) Write(dir string) error {
	if err := durable.WriteJSON(ModelFile(dir), m, jsontext.Multiline(true)); err != nil {
		return fmt.Errorf("create a model: %w", err)
	}
	return nil
}

// Read reads and checks the description that Write has written, which people may have edited since.
func Read(dir string) (Model, error) {
	var m Model
	data, err := os.ReadFile(ModelFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("there is no model.json; agl policy create %s makes a model", dir)
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m, json.RejectUnknownMembers(true)); err != nil {
		return m, fmt.Errorf("model.json: %w", err)
	}
	kinds := 0
	for _, is := range []bool{m.Vocabulary.Characters != "", m.Vocabulary.Bytes, m.Vocabulary.Size != 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return m, fmt.Errorf("model.json: vocabulary: must have exactly one of characters, bytes and size, it has %d", kinds)
	}
	if _, err := m.Tokenizer(); err != nil {
		return m, fmt.Errorf("model.json: vocabulary: %w", err)
	}
	if _, err := m.Config(policy.Config{}).Checked(); err != nil {
		return m, fmt.Errorf("model.json: %w", err)
	}
	return m, nil
}

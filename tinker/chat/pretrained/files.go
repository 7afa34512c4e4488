package pretrained

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Files are the contents of a model's files.
type Files struct {
	// Tokenizer is tokenizer.json and Config tokenizer_config.json.
	Tokenizer, Config []byte
	// Template is chat_template.jinja; nil means the chat_template of Config.
	Template []byte
	// Generation is generation_config.json, which may name further tokens that end a reply; nil is none.
	Generation []byte
}

// Open loads a model from a folder as Hugging Face lays it out: tokenizer.json, tokenizer_config.json, and, if they are
// there, chat_template.jinja and generation_config.json.
func Open(dir string, cfg Config) (*Model, error) {
	var f Files
	for _, file := range []struct {
		name     string
		data     *[]byte
		optional bool
	}{
		{"tokenizer.json", &f.Tokenizer, false},
		{"tokenizer_config.json", &f.Config, false},
		{"chat_template.jinja", &f.Template, true},
		{"generation_config.json", &f.Generation, true},
	} {
		data, err := os.ReadFile(filepath.Join(dir, file.name))
		switch {
		case err == nil:
			*file.data = data
		case !file.optional || !errors.Is(err, fs.ErrNotExist):
			return nil, agl.Errorf(agl.CodeNotFound, "model: %w", err)
		}
	}
	return Load(f, cfg)
}

// template returns the source of the chat template, and the texts of the special tokens by the names that templates know.
func (f Files) template() (source string, special map[string]string, err error) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(f.Config, &members); err != nil {
		return "", nil, agl.Errorf(agl.CodeInvalid, "tokenizer_config.json: %w", err)
	}
	special = map[string]string{}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		var token struct {
			Content string `json:"content"`
		}
		switch data := members[name]; data.Kind() {
		case '"':
			err = json.Unmarshal(data, &token.Content)
		case '{':
			err = json.Unmarshal(data, &token)
		}
		if err != nil {
			return "", nil, agl.Errorf(agl.CodeInvalid, "tokenizer_config.json: %s: %w", name, err)
		}
		if token.Content != "" {
			special[name] = token.Content
		}
	}
	if f.Template != nil {
		return string(f.Template), special, nil
	}
	switch data := members["chat_template"]; data.Kind() {
	case '"':
		err = json.Unmarshal(data, &source)
	case '[':
		var named []struct {
			Name     string `json:"name"`
			Template string `json:"template"`
		}
		err = json.Unmarshal(data, &named)
		for _, n := range named {
			if n.Name == "default" {
				source = n.Template
			}
		}
	}
	if err != nil || source == "" {
		return "", nil, agl.Errorf(agl.CodeInvalid, "tokenizer_config.json: there is no chat_template")
	}
	return source, special, nil
}

// ends are the tokens that end a reply according to generation_config.json.
func (f Files) ends() (ids []int32, err error) {
	if f.Generation == nil {
		return nil, nil
	}
	var g struct {
		EOS jsontext.Value `json:"eos_token_id"`
	}
	if err := json.Unmarshal(f.Generation, &g); err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "generation_config.json: %w", err)
	}
	switch g.EOS.Kind() {
	case '0':
		ids = make([]int32, 1)
		err = json.Unmarshal(g.EOS, &ids[0])
	case '[':
		err = json.Unmarshal(g.EOS, &ids)
	}
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "generation_config.json: eos_token_id: %w", err)
	}
	return ids, nil
}

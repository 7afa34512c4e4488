package engine

import (
	"log/slog"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
)

// PolicyConfig configures [NewPolicy]. Every field may be zero.
type PolicyConfig struct {
	// Policy has the sizes of the model. NewPolicy sets Vocab.
	Policy policy.Config
	// Characters is the vocabulary; empty means chat.DefaultAlphabet.
	Characters string
	// Name, Lost and Logger are those of [Config].
	Name   string
	Lost   func(error)
	Logger *slog.Logger
}

// NewPolicy makes an engine of the embedded policy. Sizes or characters out of range
// are agl.ErrInvalid.
func NewPolicy(cfg PolicyConfig) (*Engine, error) {
	tokenizer, err := chat.NewCharacters(cfg.Characters)
	if err != nil {
		return nil, err
	}
	cfg.Policy.Vocab = tokenizer.Vocab()
	service, err := policy.NewService(cfg.Policy)
	if err != nil {
		return nil, err
	}
	return New(Config{Service: service, Tokenizer: tokenizer, Renderer: chat.NewRoleMarks(tokenizer), Name: cfg.Name, Lost: cfg.Lost, Logger: cfg.Logger})
}

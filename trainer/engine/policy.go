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
	// Name is the model that agents request, whatever its weights; empty means
	// DefaultName.
	Name string
	// Lost is called when the served model can no longer be sampled, because the
	// engine is unavailable or has lost it, or because its weights have become useless,
	// so that the run cannot continue. It may be called many times, by several
	// goroutines. Nil does nothing.
	Lost func(error)
	// Logger gets failures of the sampler; nil discards them.
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
	return newEngine(service, tokenizer, chat.NewRoleMarks(tokenizer), cfg.Name, cfg.Lost, cfg.Logger)
}

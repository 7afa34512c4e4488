package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/tinker/client"
)

// RemoteConfig configures [NewRemote]. Client.URL is required.
type RemoteConfig struct {
	// Client says how the engine is reached. NewRemote sets its Logger.
	Client client.Config
	// Folder holds the tokenizer and the chat template of the model, as
	// pretrained.Open reads them; empty means one token per character.
	Folder string
	// Pretrained has settings that the files of Folder lack.
	Pretrained pretrained.Config
	// Characters is the vocabulary without a Folder; empty means chat.DefaultAlphabet.
	Characters string
	// Name, Lost and Logger are those of [PolicyConfig].
	Name   string
	Lost   func(error)
	Logger *slog.Logger
}

// NewRemote makes an engine of a remote one that speaks the Tinker protocol. It sends
// no request: see [Engine.Check].
func NewRemote(cfg RemoteConfig) (*Engine, error) {
	tokenizer, renderer, err := cfg.format()
	if err != nil {
		return nil, err
	}
	cfg.Client.Logger = cfg.Logger
	service, err := client.New(cfg.Client)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(service, tokenizer, renderer, cfg.Name, cfg.Lost, cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, service.Close())
	}
	e.close = service.Close
	return e, nil
}

// format makes the chat format.
func (cfg RemoteConfig) format() (chat.Tokenizer, chat.Renderer, error) {
	if cfg.Folder == "" {
		tokenizer, err := chat.NewCharacters(cfg.Characters)
		if err != nil {
			return nil, nil, err
		}
		return tokenizer, chat.NewRoleMarks(tokenizer), nil
	}
	cfg.Pretrained.Logger = cfg.Logger
	model, err := pretrained.Open(cfg.Folder, cfg.Pretrained)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cfg.Folder, err)
	}
	return model.Tokenizer(), model, nil
}

// Check asks the engine for a base model (an empty name means its first) and checks
// that the model fits the chat format. It returns what the engine reports about the
// model; unknown fields are zero.
func (e *Engine) Check(ctx context.Context, baseModel string) (tinker.ModelSpec, error) {
	can, err := e.Service.Capabilities(ctx)
	if err != nil {
		return tinker.ModelSpec{}, err
	}
	spec := tinker.ModelSpec{Name: baseModel}
	switch i := slices.IndexFunc(can.Models, func(m tinker.ModelSpec) bool { return baseModel == "" || m.Name == baseModel }); {
	case i >= 0:
		spec = can.Models[i]
	case len(can.Models) == 0 && baseModel == "":
		return spec, agl.Errorf(agl.CodeInvalid, "the engine does not list its models, so one must be named")
	case len(can.Models) > 0:
		names := make([]string, len(can.Models))
		for i, m := range can.Models {
			names[i] = m.Name
		}
		return spec, agl.Errorf(agl.CodeNotFound, "the engine has no model %q, only %q", baseModel, names)
	}
	format, ok := e.Tokenizer.(interface{ Vocab() int })
	if !ok || spec.Vocab == 0 {
		return spec, nil
	}
	// Models are often wider than their tokenizer, to fill up their matrices.
	_, exact := e.Tokenizer.(*chat.Characters)
	if n := format.Vocab(); n > spec.Vocab || exact && n < spec.Vocab {
		return spec, agl.Errorf(agl.CodeInvalid, "the chat format has %d tokens, but the engine's model %q has %d", n, spec.Name, spec.Vocab)
	}
	return spec, nil
}

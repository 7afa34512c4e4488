package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"unicode/utf8"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/job"
	"github.com/agl-go/agl/trainer/runfile"
)

// engine creates the embedded engine in memory, or asks the remote one for its model,
// and reads the conversations of the warm start.
func (d *Doctor) engine(ctx context.Context, f *runfile.File) {
	if f.Engine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	var e *engine.Engine
	model, field := "", "engine.policy"
	switch {
	case f.Engine.Policy != nil:
		p := f.Engine.Policy
		made, err := engine.NewPolicy(engine.PolicyConfig{Policy: p.Config, Characters: p.Characters})
		if err != nil {
			d.Addf("engine", Fail, "change engine.policy", "%v", err)
			return
		}
		e = made
		if spec, err := e.Check(ctx, ""); err == nil {
			d.Addf("engine", OK, "", "the embedded policy: a vocabulary of %d tokens (its %d characters, and marks), a context of %s; gives token ids and log-probabilities",
				spec.Vocab, utf8.RuneCountInString(cmp.Or(p.Characters, chat.DefaultAlphabet)), console.Count(spec.Context, "token"))
		}
	case f.Engine.Tinker != nil:
		model, field = f.Engine.Tinker.Model, "engine.tinker"
		if e = d.remote(ctx, f); e == nil {
			return
		}
	case f.Engine.Server != nil:
		s := f.Engine.Server.Config
		d.Addf("engine", OK, "", "the run starts %s and waits for %s", s.Command[0], s.BaseURL)
		return
	default:
		return
	}
	if w := f.Engine.WarmStart(); w != nil {
		data, err := e.Demonstrations(ctx, model, w.Path)
		if err != nil {
			d.Addf("warm start", Fail, "fix the file, or change "+field, "%v", err)
		} else {
			d.Addf("warm start", OK, "", "%s", console.Count(len(data), "conversation"))
		}
	}
	if err := e.Close(ctx); err != nil {
		d.Addf("engine", Warn, "", "%v", err)
	}
}

// remote asks a remote engine for its model. It returns nil when the engine cannot be used.
func (d *Doctor) remote(ctx context.Context, f *runfile.File) *engine.Engine {
	t := f.Engine.Tinker
	if !d.secret("engine.tinker.api_key", t.Client.APIKey) {
		return nil
	}
	cfg, err := job.Remote(t, d.cfg.LookupEnv, d.cfg.TLS)
	if err != nil {
		d.Addf("engine", Fail, "", "%v", err)
		return nil
	}
	cfg.Client.RetryFor = -1 // an engine that is unavailable is a finding
	e, err := engine.NewRemote(cfg)
	if err != nil {
		d.Addf("engine", Fail, "change engine.tinker, or the files of the model", "%v", err)
		return nil
	}
	spec, err := e.Check(ctx, t.Model)
	if losses := neededLosses(f); err == nil && len(losses) > 0 {
		_, err = algorithm.CheckEngine(ctx, e.Service, losses, "", slog.New(slog.DiscardHandler))
	}
	if err != nil {
		remedy := "start it, or change engine.tinker.base_url"
		switch {
		case httpserver.Untrusted(err):
			remedy = trustRemedy(err)
		case errors.Is(err, agl.ErrUnauthorized):
			remedy = "set its key: api_key: env:NAME"
		case errors.Is(err, agl.ErrNotFound):
			remedy = "change engine.tinker.model, or leave it out"
		case errors.Is(err, agl.ErrInvalid):
			remedy = "name the files of the engine's model in engine.tinker.chat"
		case errors.Is(err, agl.ErrUnimplemented):
			remedy = "change the algorithm, or use an engine that supports it"
		}
		d.Addf("engine", Fail, remedy, "%s: %v", t.Client.URL, err)
		if err := e.Close(ctx); err != nil {
			d.Addf("engine", Warn, "", "%v", err)
		}
		return nil
	}
	found := "answers; it does not report its capabilities"
	if spec.Name != "" {
		found = "answers; the model is " + spec.Name
	}
	if spec.Vocab > 0 {
		found += fmt.Sprintf(", a vocabulary of %s", console.Count(spec.Vocab, "token"))
	}
	if spec.Context > 0 {
		found += fmt.Sprintf(", a context of %s", console.Count(spec.Context, "token"))
	}
	d.Addf("engine", OK, "", "%s %s", t.Client.URL, found)
	return e
}

// neededLosses returns the losses that the algorithm and the warm start need.
func neededLosses(f *runfile.File) []tinker.LossName {
	losses := f.Algorithm.Needs().Losses
	if f.Engine.WarmStart() != nil {
		losses = append(losses, tinker.CrossEntropy)
	}
	return losses
}

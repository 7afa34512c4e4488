package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/job"
	"github.com/agl-go/agl/trainer/runfile"
)

// engine makes the engine, in memory, or asks the one elsewhere, and lets it read
// what it is to learn at first.
func (d *doctor) engine(ctx context.Context, f *runfile.File) {
	if f.Engine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var e *engine.Engine
	model, field := "", "engine.policy"
	switch {
	case f.Engine.Policy != nil:
		p := f.Engine.Policy
		made, err := engine.NewPolicy(engine.PolicyConfig{Policy: p.Config, Characters: p.Characters})
		if err != nil {
			d.addf("engine", fails, "change engine.policy", "%v", err)
			return
		}
		e = made
		if spec, err := e.Check(ctx, ""); err == nil {
			d.addf("engine", fine, "", "the embedded policy: %s, gives token ids and log-probabilities", count(spec.Vocab, "token"))
		}
	case f.Engine.Tinker != nil:
		model, field = f.Engine.Tinker.Model, "engine.tinker"
		if e = d.remote(ctx, f); e == nil {
			return
		}
	default:
		return
	}
	if w := f.Engine.WarmStart(); w != nil {
		data, err := e.Demonstrations(ctx, model, w.Path)
		if err != nil {
			d.addf("warm start", fails, "mend the file, or change "+field, "%v", err)
		} else {
			d.addf("warm start", fine, "", "%s", count(len(data), "conversation"))
		}
	}
	if err := e.Close(ctx); err != nil {
		d.addf("engine", warns, "", "%v", err)
	}
}

// remote asks an engine that is elsewhere for its model; nil when it cannot be
// used.
func (d *doctor) remote(ctx context.Context, f *runfile.File) *engine.Engine {
	t := f.Engine.Tinker
	if !d.secret("engine.tinker.api_key", t.Client.APIKey) {
		return nil
	}
	key := t.Client.APIKey
	if name, ok := strings.CutPrefix(key, "env:"); ok {
		key = os.Getenv(name)
	}
	cfg := job.Remote(t, key)
	cfg.Client.RetryBudget = -1 // what is not there now is a finding
	e, err := engine.NewRemote(cfg)
	if err != nil {
		d.addf("engine", fails, "change engine.tinker, or the files of the model", "%v", err)
		return nil
	}
	spec, err := e.Check(ctx, t.Model)
	if err == nil && f.Algorithm.GRPO != nil {
		err = hasLoss(ctx, e, f)
	}
	if err != nil {
		remedy := "start it, or change engine.tinker.base_url"
		switch {
		case errors.Is(err, agl.ErrUnauthorized):
			remedy = "give its key: api_key: env:NAME"
		case errors.Is(err, agl.ErrNotFound):
			remedy = "change engine.tinker.model, or leave it out"
		case errors.Is(err, agl.ErrInvalid):
			remedy = "take the files of the engine's model in engine.tinker.chat"
		case errors.Is(err, agl.ErrUnimplemented):
			remedy = "change algorithm.grpo.loss"
		}
		d.addf("engine", fails, remedy, "%s: %v", t.Client.URL, err)
		if err := e.Close(ctx); err != nil {
			d.addf("engine", warns, "", "%v", err)
		}
		return nil
	}
	found := "answers; it does not say what it can do"
	if spec.Name != "" {
		found = "answers; the model is " + spec.Name
	}
	if spec.Vocab > 0 {
		found += ", " + count(spec.Vocab, "token")
	}
	if spec.Context > 0 {
		found += fmt.Sprintf(", context %d", spec.Context)
	}
	d.addf("engine", fine, "", "%s %s", t.Client.URL, found)
	return e
}

// hasLoss looks whether an engine has the loss of the algorithm.
func hasLoss(ctx context.Context, e *engine.Engine, f *runfile.File) error {
	can, err := e.Service.Capabilities(ctx)
	if err != nil {
		return err
	}
	loss := cmp.Or(f.Algorithm.GRPO.Loss.Name, tinker.ImportanceSampling)
	if !slices.Contains(can.Losses, loss) {
		return agl.Errorf(agl.CodeUnimplemented, "the engine has no loss %q, only %q", loss, can.Losses)
	}
	return nil
}

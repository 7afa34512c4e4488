package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// from replaces the first weights by those that the run in a folder has trained.
func (c Config) from(folder string) (Config, error) {
	b, err := trainedWeights(folder)
	if err != nil {
		return c, err
	}
	if c.File.Engine == nil {
		return c, agl.Errorf(agl.CodeInvalid, "engine: none given, so there is no model for the weights of %s", folder)
	}
	file, e := *c.File, *c.File.Engine
	switch {
	case e.Tinker != nil:
		t := *e.Tinker
		t.Weights, t.WarmStart = b.Weights, nil
		e.Tinker = &t
	case e.Policy != nil:
		p := *e.Policy
		p.Config.Base, p.WarmStart = filepath.Join(folder, b.WeightsFile), nil
		if b.Agents != nil {
			p.Config.Dir = filepath.Join(folder, weightsDir)
		}
		e.Policy = &p
	}
	file.Engine = &e
	c.File = &file
	c.agents = map[string]string{}
	for name, w := range b.Agents {
		c.agents[name] = w.Weights
	}
	return c, nil
}

// Trained is a chat server of the model that a run has trained.
type Trained struct {
	// Name is the model to request. Others are those of further agents.
	Name   string
	Others []string
	// Handler serves it under /v1, like OpenAI's API.
	Handler http.Handler

	engine *engine.Engine
}

// OpenTrained opens the model of the run in a folder. cfg has LookupEnv and Logger. A
// folder without a run, or without trained weights, is agl.ErrNotFound. The caller
// closes it.
func OpenTrained(ctx context.Context, folder string, cfg Config) (_ *Trained, err error) {
	if cfg, err = cfg.trained(folder); err != nil {
		return nil, err
	}
	e, err := cfg.newEngine(ctx, "", func(err error) { cfg.Logger.Error("the engine is lost", "error", err) })
	if err != nil {
		return nil, err
	}
	t := &Trained{Name: e.Model().Name, Handler: e.Handler(), engine: e}
	l := learner{cfg: cfg, engine: e}
	err = t.serve(ctx, l.model(), l.fileWeights(), t.Name)
	for _, role := range cfg.File.Roles {
		if weights := cfg.agents[role.Name]; weights != "" && err == nil {
			t.Others = append(t.Others, role.ModelName)
			if err = t.serve(ctx, l.model(), weights, role.ModelName); err != nil {
				err = fmt.Errorf("agents.%s: %w", role.Name, err)
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, t.Close(context.WithoutCancel(ctx)))
	}
	return t, nil
}

// serve serves weights under the name of a model.
func (t *Trained) serve(ctx context.Context, p tinker.CreateModelParams, weights, name string) error {
	snapshot, err := t.engine.Snapshot(ctx, p, weights)
	if err != nil {
		return err
	}
	return t.engine.Serve(ctx, snapshot, name)
}

// trained returns the configuration of the run in a folder, with the weights that it
// has trained as the first ones.
func (c Config) trained(folder string) (_ Config, err error) {
	_, source, err := output.Read(folder)
	if err != nil {
		return c, err
	}
	options := runfile.Options{Elsewhere: []runfile.Part{runfile.PartAgent}}
	if c.File, err = runfile.Parse(source.Path, source.Text, filepath.Dir(source.Path), options); err != nil {
		return c, err
	}
	return c.withDefaults().from(folder)
}

// TrainedPolicy returns the embedded policy that the run in a folder has trained, with
// its weights as Config.Base: of several agents those of the named one, or of the first
// that is trained if the name is empty. A folder without a run, or without trained
// weights, is agl.ErrNotFound; weights of another engine, and an agent that the run does
// not have, are agl.ErrInvalid.
func TrainedPolicy(folder, agent string) (*runfile.Policy, error) {
	c, err := Config{}.trained(folder)
	if err != nil {
		return nil, err
	}
	e := c.File.Engine
	switch {
	case e.Policy != nil:
		return c.policyOf(folder, agent)
	case e.Tinker != nil:
		return nil, agl.Errorf(agl.CodeInvalid, "the engine at %s has the weights of %s, as %s; they are exported there", e.Tinker.Client.URL, folder, e.Tinker.Weights)
	}
	return nil, agl.Errorf(agl.CodeInvalid, "the run in %s has trained no model of agl", folder)
}

// policyOf returns the policy with the weights of an agent.
func (c Config) policyOf(folder, agent string) (*runfile.Policy, error) {
	p := *c.File.Engine.Policy
	if agent == "" {
		return &p, nil
	}
	var names []string
	for _, role := range c.File.Roles {
		weights := c.agents[role.Name]
		switch {
		case role.ModelName == c.trainedModel():
		case weights == "":
			continue // it keeps the weights that a model begins with
		case role.Name == agent:
			path, err := tinker.ParsePath(weights)
			if err != nil {
				return nil, fmt.Errorf("agents.%s: %w", agent, err)
			}
			p.Config.Base = policy.WeightsFile(p.Config.Dir, path)
		}
		if role.Name == agent {
			return &p, nil
		}
		names = append(names, role.Name)
	}
	if len(names) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "agent %q: the run in %s has only one, so none is named", agent, folder)
	}
	return nil, agl.Errorf(agl.CodeInvalid, "agent %q: the run in %s has weights of %s", agent, folder, strings.Join(names, ", "))
}

// Close unloads the model.
func (t *Trained) Close(ctx context.Context) error { return t.engine.Close(ctx) }

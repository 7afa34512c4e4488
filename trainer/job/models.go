package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/runfile"
)

// weightsDir is the engine's folder in that of the run.
const weightsDir = "policy"

// newEngine makes the engine of the file; nil when it has none. One that is
// elsewhere is asked for the model, as the agents would only find out later; lost
// is called when it is not there any more.
func (c Config) newEngine(ctx context.Context, outDir string, lost func(error)) (*engine.Engine, error) {
	switch file := c.File.Engine; {
	case file == nil:
		return nil, nil //nolint:nilnil // no engine is no error
	case file.Tinker != nil:
		return c.newRemote(ctx, file.Tinker, lost)
	case file.Policy == nil:
		return nil, nil //nolint:nilnil // neither
	}
	p := c.File.Engine.Policy
	cfg := engine.PolicyConfig{Policy: p.Config, Characters: p.Characters, Name: c.trainedModel(), Logger: c.Logger}
	if outDir != "" {
		cfg.Policy.Dir = filepath.Join(outDir, weightsDir)
	}
	e, err := engine.NewPolicy(cfg)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "engine.policy: %w", err)
	}
	return e, nil
}

// Remote is what a file says of an engine that is elsewhere, with its API key from
// the environment if it is there.
func Remote(t *runfile.Tinker, lookupEnv func(name string) (string, bool)) (engine.RemoteConfig, error) {
	key, err := secret(lookupEnv, "engine.tinker.api_key", t.Client.APIKey)
	if err != nil {
		return engine.RemoteConfig{}, err
	}
	cfg := engine.RemoteConfig{
		Client: t.Client, Folder: t.Chat.Folder, Pretrained: pretrained.Config{Style: t.Chat.Style, Stop: t.Chat.Stop}, Characters: t.Chat.Characters,
	}
	cfg.Client.APIKey = key
	return cfg, nil
}

// newRemote makes an engine that is elsewhere.
func (c Config) newRemote(ctx context.Context, t *runfile.Tinker, lost func(error)) (*engine.Engine, error) {
	cfg, err := Remote(t, c.LookupEnv)
	if err != nil {
		return nil, err
	}
	cfg.Name, cfg.Logger = c.trainedModel(), c.Logger
	cfg.Lost = func(err error) { lost(fmt.Errorf("engine.tinker: %s: %w", t.Client.URL, err)) }
	e, err := engine.NewRemote(cfg)
	if err != nil {
		return nil, fmt.Errorf("engine.tinker: %w", err)
	}
	if _, err := e.Check(ctx, t.Model); err != nil {
		return nil, errors.Join(fmt.Errorf("engine.tinker: %s: %w", t.Client.URL, err), e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// trainedModel is the name of the engine's model for agents.
func (c Config) trainedModel() string {
	if c.File.Proxy != nil {
		return c.File.Proxy.Model
	}
	return ""
}

// newProxy makes the LLM proxy; nil when no model is to be called. Its admin
// routes ask for the token of the store.
func (c Config) newProxy(e *engine.Engine, token string) *trainer.Proxy {
	settings := c.File.Proxy
	if settings == nil {
		if e == nil {
			return nil
		}
		settings = &runfile.Proxy{}
	}
	cfg := trainer.ProxyConfig{Config: settings.Config, Listen: settings.Listen, Model: settings.Model, Sampling: settings.Sampling}
	cfg.LookupEnv, cfg.Logger = c.LookupEnv, c.Logger
	if cfg.Token == "" {
		cfg.Token = token
	}
	if e != nil {
		var others http.RoundTripper
		if len(cfg.Models) > 0 {
			others = proxy.NewTransport()
		}
		cfg.Transport = e.Transport(others)
		cfg.Models = append([]proxy.Model{e.Model()}, cfg.Models...)
		if cfg.Model == "" {
			cfg.Model = e.Model().Name
		}
	}
	if cfg.Model == "" && len(cfg.Models) > 0 {
		cfg.Model = cfg.Models[0].Name
	}
	return trainer.NewProxy(cfg)
}

// reach looks whether runners elsewhere, if there may be any, find the models: an
// address that nobody can be sent to is an error, one that only this machine has is
// worth a notice.
func (c Config) reach() (notice string, err error) {
	p := c.File.Proxy
	if p == nil {
		p = &runfile.Proxy{}
	}
	if host, _, err := net.SplitHostPort(p.Listen); err == nil && unspecified(host) && p.Config.PublicURL == "" {
		return "", agl.Errorf(agl.CodeInvalid, "proxy.public_url: none given, and proxy.listen is %s: agents must be told where they find the proxy", p.Listen)
	}
	if here(c.File.Store.Listen) || !here(p.Listen) {
		return "", nil
	}
	return "runners on other machines find the store, but not the models: set proxy.listen, and proxy.public_url", nil
}

// here reports whether only this machine reaches an address; empty is one of its own.
func here(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "localhost" || ip != nil && ip.IsLoopback()
}

// unspecified reports whether a server of that host listens on every address.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// otherModels are those of the proxy that nobody trains.
func (c Config) otherModels() []proxy.Model {
	if c.File.Proxy == nil {
		return nil
	}
	return c.File.Proxy.Config.Models
}

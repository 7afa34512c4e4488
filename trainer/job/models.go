package job

import (
	"net"
	"net/http"
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/runfile"
)

// weightsDir is the engine's folder in that of the run.
const weightsDir = "policy"

// newEngine makes the embedded engine; nil when the file has none.
func (c Config) newEngine(outDir string) (*engine.Engine, error) {
	if c.File.Engine == nil || c.File.Engine.Policy == nil {
		return nil, nil //nolint:nilnil // no engine is no error
	}
	p := c.File.Engine.Policy
	cfg := engine.Config{Policy: p.Config, Characters: p.Characters, Name: c.trainedModel(), Logger: c.Logger}
	if outDir != "" {
		cfg.Policy.Dir = filepath.Join(outDir, weightsDir)
	}
	e, err := engine.New(cfg)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "engine.policy: %w", err)
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

package job

import (
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

// otherModels are those of the proxy that nobody trains.
func (c Config) otherModels() []proxy.Model {
	if c.File.Proxy == nil {
		return nil
	}
	return c.File.Proxy.Config.Models
}

package job

import (
	"cmp"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/runfile"
)

// newProxy makes the LLM proxy; nil if no model is called. Its admin routes require
// the token of the store.
func (c Config) newProxy(e *engine.Engine, s *inference.Server, token string) *trainer.Proxy {
	settings := c.File.Proxy
	if settings == nil {
		if e == nil && s == nil {
			return nil
		}
		settings = &runfile.Proxy{}
	}
	cfg := trainer.ProxyConfig{Config: settings.Config, Listen: settings.Listen, CertFile: settings.TLS.Cert, KeyFile: settings.TLS.Key, Model: settings.Model, Sampling: settings.Sampling}
	cfg.LookupEnv, cfg.Logger = c.LookupEnv, c.Logger
	cfg.Token = cmp.Or(cfg.Token, token)
	backends := proxy.NewTransport()
	backends.TLSClientConfig = c.TLS
	cfg.Transport = backends
	if e != nil {
		cfg.Transport = e.Transport(backends)
		cfg.KL = divergence{e}.of
		if c.File.Algorithm != nil && c.File.Algorithm.Needs().NoTasks {
			cfg.Sessions.Ready = e.Published()
		}
		cfg.Models = append([]proxy.Model{e.Model()}, cfg.Models...)
	}
	if s != nil {
		cfg.Transport = s.Transport(backends)
		cfg.Models = append([]proxy.Model{c.servedModel()}, cfg.Models...)
	}
	if cfg.Model == "" && len(cfg.Models) > 0 {
		cfg.Model = cfg.Models[0].Name
	}
	return trainer.NewProxy(cfg)
}

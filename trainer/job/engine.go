package job

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/runfile"
)

// weightsDir is the engine's folder in that of the run.
const weightsDir = "policy"

// newEngine makes the engine of the file; nil if it has none. A remote engine is
// asked for the model, so that a missing model fails here rather than in the agents;
// lost is called when the engine becomes unavailable.
func (c Config) newEngine(ctx context.Context, outDir string, lost func(error)) (*engine.Engine, error) {
	file := c.File.Engine
	if !file.Trains() {
		return nil, nil //nolint:nilnil // no engine is needed
	}
	if file.Tinker != nil {
		return c.newRemote(ctx, file.Tinker, lost)
	}
	p := file.Policy
	cfg := engine.PolicyConfig{Policy: p.Config, Characters: p.Characters, Name: c.trainedModel(), Logger: c.Logger}
	cfg.Lost = func(err error) { lost(fmt.Errorf("engine.policy: %w", err)) }
	if outDir != "" {
		cfg.Policy.Dir = filepath.Join(outDir, weightsDir)
	}
	e, err := engine.NewPolicy(cfg)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "engine.policy: %w", err)
	}
	return e, nil
}

// Remote returns the configuration of a remote engine in a file, with its API key.
func Remote(t *runfile.Tinker, lookupEnv func(name string) (string, bool), trust *tls.Config) (engine.RemoteConfig, error) {
	key, err := keys.Secret(lookupEnv, "engine.tinker.api_key", t.Client.APIKey)
	if err != nil {
		return engine.RemoteConfig{}, err
	}
	cfg := engine.RemoteConfig{
		Client: t.Client, Folder: t.Chat.Folder, Pretrained: t.Chat.Config, Characters: t.Chat.Characters,
	}
	cfg.Client.APIKey, cfg.Client.TLS = key, trust
	return cfg, nil
}

func (c Config) newRemote(ctx context.Context, t *runfile.Tinker, lost func(error)) (*engine.Engine, error) {
	cfg, err := Remote(t, c.LookupEnv, c.TLS)
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

// serverLog has the output of the inference server, in the folder of the run.
const serverLog = "engine.log"

// startServer starts the inference server of the file and returns when it is ready; nil
// if the file has none. lost is called when it has died for good. stop ends it.
func (c Config) startServer(ctx context.Context, outDir string, lost func(error)) (s *inference.Server, stop func() error, err error) {
	if c.File.Engine == nil || c.File.Engine.Server == nil {
		return nil, func() error { return nil }, nil
	}
	cfg := c.File.Engine.Server.Config
	cfg.Env, cfg.TLS, cfg.Logger = c.Environ, c.TLS, c.Logger
	cfg.Lost = func(err error) { lost(fmt.Errorf("engine.command: %w", err)) }
	closeLog := func() error { return nil }
	if outDir != "" {
		const mode = 0o600
		path := filepath.Join(outDir, serverLog)
		// The display begins when the server is ready.
		fmt.Fprintf(c.Out, "starting the inference server %s; its output is in %s\n", cfg.Command[0], path)
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, mode)
		if err != nil {
			return nil, nil, err
		}
		cfg.Output, closeLog = file, file.Close
	}
	if s, err = inference.Start(ctx, cfg); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("engine.command: %w", err), closeLog())
	}
	return s, func() error {
		s.Close()
		return closeLog()
	}, nil
}

// servedModel is the entry of the inference server in the proxy.
func (c Config) servedModel() proxy.Model {
	served := c.File.Engine.Server
	m := served.Model
	m.Name, m.BaseURL = cmp.Or(c.trainedModel(), m.BackendModel, engine.DefaultName), served.Config.BaseURL
	m.Supervised = true
	return m
}

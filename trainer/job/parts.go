package job

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/trainer"
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
	switch file := c.File.Engine; {
	case file == nil:
		return nil, nil //nolint:nilnil // no engine is needed
	case file.Tinker != nil:
		return c.newRemote(ctx, file.Tinker, lost)
	case file.Policy == nil:
		return nil, nil //nolint:nilnil // no engine is needed
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

// Remote returns the configuration of a remote engine in a file, with its API key.
func Remote(t *runfile.Tinker, lookupEnv func(name string) (string, bool), trust *tls.Config) (engine.RemoteConfig, error) {
	key, err := keys.Secret(lookupEnv, "engine.tinker.api_key", t.Client.APIKey)
	if err != nil {
		return engine.RemoteConfig{}, err
	}
	cfg := engine.RemoteConfig{
		Client: t.Client, Folder: t.Chat.Folder, Pretrained: pretrained.Config{Style: t.Chat.Style, Stop: t.Chat.Stop, Turns: t.Chat.Turns, TurnBytes: t.Chat.TurnBytes}, Characters: t.Chat.Characters,
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
	return m
}

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
	if cfg.Token == "" {
		cfg.Token = token
	}
	backends := proxy.NewTransport()
	backends.TLSClientConfig = c.TLS
	cfg.Transport = backends
	if e != nil {
		cfg.Transport = e.Transport(backends)
		cfg.KL = divergence{e}.of
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

// checkListen refuses an address that other machines can reach if what is sent there can be
// read on its way.
func (c Config) checkListen(key, address string, tls runfile.TLS) error {
	if c.Role == execution.RoleRunner || loopback(address) || tls.Cert != "" || tls.Insecure {
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "%s.listen: got %s, which others can reach, and read what is sent: set %s.tls_cert and %s.tls_key (agl cert makes them), or allow it with %s.insecure: true", key, address, key, key, key)
}

// checkReach checks whether runners elsewhere, if there may be any, reach the models:
// an address that agents cannot be told is an error; one that only this machine
// reaches is worth a notice.
func (c Config) checkReach(token string) (notice string, err error) {
	p, s := c.File.Proxy, c.File.Store
	if p == nil {
		p = &runfile.Proxy{}
	}
	if c.Role != execution.RoleRunner && !loopback(s.Listen) && token == "" {
		return "", agl.Errorf(agl.CodeInvalid, "store.listen: got %s, which others can reach: set store.token, or AGL_TOKEN", s.Listen)
	}
	if err := c.checkListen("store", s.Listen, s.TLS); err != nil {
		return "", err
	}
	if host, _, err := net.SplitHostPort(p.Listen); err == nil && unspecified(host) && p.Config.PublicURL == "" {
		return "", agl.Errorf(agl.CodeInvalid, "proxy.public_url: none given, and proxy.listen is %s: agents must be told the address of the proxy", p.Listen)
	}
	if c.Role != execution.RoleRunner && !loopback(p.Listen) && p.Config.KeySecret == "" {
		return "", agl.Errorf(agl.CodeInvalid, "proxy.listen: got %s, which others can reach, and the proxy would forward anybody's calls with its keys: set proxy.key_secret", p.Listen)
	}
	if err := c.checkListen("proxy", p.Listen, p.TLS); err != nil {
		return "", err
	}
	if loopback(s.Listen) || !loopback(p.Listen) {
		return "", nil
	}
	return "runners on other machines reach the store, but not the models: set proxy.listen, and proxy.public_url", nil
}

// loopback reports whether only this machine reaches an address; empty stands for a
// loopback address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "localhost" || ip != nil && ip.IsLoopback()
}

// unspecified reports whether a server of that host listens on every address.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// newAgent returns the agent, or makes one of the program of the file. Closing it ends the
// processes that it keeps.
func (c Config) newAgent(ctx context.Context, storeURL, token string) (_ agl.Agent, closeAgent func(), err error) {
	if c.Agent != nil {
		return c.Agent, func() {}, nil
	}
	p := c.File.Agent.Process
	p.Environ, p.StoreURL, p.Reaper, p.Logger, p.Hurry = c.Environ, storeURL, c.Reaper, c.Logger, execution.Forced(ctx)
	p.Withhold = c.File.Secrets()
	if storeURL != "" { // an agent that knows no store sends it no spans
		if p.SpanToken, err = client.SpanTokens(client.Config{URL: storeURL, Token: token, TLS: c.TLS}); err != nil {
			return nil, nil, err
		}
	}
	agent, err := process.New(p)
	if err != nil {
		return nil, nil, err
	}
	return agent, agent.Close, nil
}

// agentCommand is the command line, for people; empty if there is none.
func (c Config) agentCommand() string { return strings.Join(c.File.Agent.Process.Command, " ") }

// runnerConfig makes the runner's grace period longer than that of the agent's program.
func (c Config) runnerConfig() runner.Config {
	grace := c.File.Agent.Process.GracePeriod
	if grace == 0 {
		grace = process.DefaultGracePeriod
	}
	// A run that is stopped cancels its rollouts. Agents learn of it with the next
	// heartbeat, while a person is waiting.
	const heartbeat = 3 * time.Second
	cfg := runner.Config{GracePeriod: grace + time.Second, HeartbeatInterval: heartbeat}
	if c.TLS != nil {
		cfg.HTTPClient = &http.Client{Transport: c.transport()}
	}
	return cfg
}

// transport sends single requests.
func (c Config) transport() http.RoundTripper {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS}
}

// drainTimeout is how long runners may take to finish their rollouts. It covers the
// grace period of the agents.
func (c Config) drainTimeout() time.Duration {
	const least = 10 * time.Second
	return max(least, c.runnerConfig().GracePeriod+least/2)
}

// database is where the run is stored, in the form of trainer.Config.
func (c Config) database(outDir string) string {
	switch {
	case c.File.Store.URL != "":
		return ""
	case c.File.Store.Database != "":
		return c.File.Store.Database
	default:
		return "sqlite:" + filepath.Join(outDir, keys.DatabaseFile)
	}
}

// strategy places the sides of the run: runners in this process, and in others that
// reach the store. It returns the URL of the store for agents.
func (c Config) strategy(ctx context.Context, token string) (s execution.ClientServer, storeURL string, err error) {
	s = execution.ClientServer{
		Config: execution.Config{Role: c.Role, Token: token}, TLS: c.TLS, InProcess: true, GracefulTimeout: c.drainTimeout(), Logger: c.Logger,
	}
	if c.File.Store.URL != "" {
		s.StoreURL, s.ExternalStore = c.storeURL(), true
		return s, s.StoreURL, nil
	}
	address := c.File.Store.Listen
	switch {
	case address != "":
	case c.Role == execution.RoleAlgorithm:
		address = defaultStoreListen
	default:
		address = loopbackListen
	}
	if s.Listener, err = httpserver.Listen(ctx, address, "name another, such as 127.0.0.1:0 for a free port"); err != nil {
		return s, "", fmt.Errorf("store.listen: %w", err)
	}
	if tls := c.File.Store.TLS; tls.Cert != "" {
		encrypted, err := httpserver.TLS{CertFile: tls.Cert, KeyFile: tls.Key}.Listener(s.Listener, c.Logger)
		if err != nil {
			return s, "", agl.Errorf(agl.CodeInvalid, "store.tls_cert: %w", errors.Join(err, s.Listener.Close()))
		}
		s.Listener = encrypted
	}
	return s, execution.ClientURL(s.Listener), nil
}

// closeListener closes the listener of a strategy that is not executed.
func closeListener(s execution.ClientServer) error {
	if s.Listener == nil {
		return nil
	}
	return s.Listener.Close()
}

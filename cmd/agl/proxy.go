package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/rest/client"
)

type proxyCommand struct {
	flags.Listen `set:"port=0"`
	flags.Store  `set:"tokenfor= The routes under /admin require it, too."`
	flags.Log    `set:"logLevel=info"`

	Config   string            `type:"home" placeholder:"FILE" help:"Read the models and everything else from this YAML file, and reload it on SIGHUP and when it changes. Its settings override the other flags."`
	Keys     bool              `name:"require-keys" help:"Require a key of every call: one that agl key create has made at the store, an attempt's, or the token."`
	Model    []flags.Model     `sep:"none" placeholder:"NAME=URL" help:"A model that agents may ask for and the base URL of its backend; repeat it for several, the same name again adds a replica."`
	APIKey   flags.Token       `name:"api-key" env:"AGL_PROXY_API_KEY" placeholder:"KEY" help:"Key sent to the backends, or env:NAME. Default: the agent's own is passed on."`
	AllowEnv []string          `sep:"none" placeholder:"NAME" help:"Let models that are set by PUT /admin/models have this variable as their key (env:NAME), whatever their servers are; repeat it for several. Variables that the configuration names are good for the same servers."`
	TextOnly bool              `help:"Do not ask the backends for token ids and log-probabilities, which some reject."`
	Capture  proxy.CaptureMode `default:"require" enum:"require,best-effort,off" help:"What becomes of calls that might not be recorded: require refuses them, best-effort lets them pass, off records none."`
	SpoolDir string            `type:"home" placeholder:"DIR" help:"Keep records in this directory while the store is unavailable."`

	SessionIdle  flags.Duration `placeholder:"TIME" help:"Record the calls of live programs, which name their session in the header X-Agl-Session or have its key; a session ends after this long without a call (15m). Default: record none."`
	RewardWindow flags.Duration `placeholder:"TIME" help:"With --session-idle: how long a session that has ended waits for its reward (24h). Default: the store's --reward-window."`

	LogContents bool `help:"Put requests and replies into the log, as they are."`

	settings proxy.Config     // what flags and file say
	file     *configfile.File // nil without one
}

func (c *proxyCommand) Validate() error {
	switch {
	case c.Config == "" && len(c.Model) == 0:
		return errors.New("give --model, or a file with --config")
	case c.Config != "" && len(c.Model) > 0:
		return errors.New("--model and --config: give one of them, the file has models of its own")
	}
	if c.Config != "" {
		return nil // run reads the file: a mistake in it is not a usage error
	}
	c.settings = proxy.Config{Capture: c.Capture, SpoolDir: c.SpoolDir, LogCalls: true, LogContents: c.LogContents, Sessions: c.sessions()}
	if err := c.settings.Sessions.Check(); err != nil {
		return fmt.Errorf("--session-idle and --reward-window: %w", err)
	}
	for _, f := range c.Model {
		c.settings.Models = append(c.settings.Models, proxy.Model{Name: f.Name, BaseURL: string(f.URL), APIKey: string(c.APIKey), TextOnly: c.TextOnly})
	}
	return c.Check(c.Keys, "the proxy forwards anybody's calls; require keys with --require-keys, or allow it with --no-auth")
}

func (c *proxyCommand) sessions() proxy.Sessions {
	return proxy.Sessions{IdleTimeout: time.Duration(c.SessionIdle), RewardWindow: time.Duration(c.RewardWindow)}
}

// readFile reads the configuration; the flags supply what it leaves out.
func (c *proxyCommand) readFile() error {
	file, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	c.file, c.settings = file, file.Proxy
	c.settings.Capture = cmp.Or(c.settings.Capture, c.Capture)
	c.settings.SpoolDir = cmp.Or(c.settings.SpoolDir, c.SpoolDir)
	if c.settings.Sessions.IdleTimeout == 0 {
		c.settings.Sessions = c.sessions()
	}
	c.settings.LogContents = c.settings.LogContents || c.LogContents
	if file.Store != "" {
		c.StoreURL = flags.URL(file.Store)
	}
	if name, ok := strings.CutPrefix(file.Token, "env:"); ok {
		c.Token = flags.Token(os.Getenv(name))
		if err := c.Token.Check(); err != nil {
			return fmt.Errorf("%s: token: the environment variable %s: %w", c.Config, name, err)
		}
		if c.Token == "" {
			return fmt.Errorf("%s: token: the environment variable %s is not set", c.Config, name)
		}
	}
	if name, ok := strings.CutPrefix(file.Proxy.KeySecret, "env:"); ok {
		secret := os.Getenv(name)
		if secret == "" {
			return fmt.Errorf("%s: key_secret: the environment variable %s is not set", c.Config, name)
		}
		if err := proxy.CheckKeySecret(secret); err != nil {
			return fmt.Errorf("%s: key_secret: the environment variable %s: %w", c.Config, name, err)
		}
	}
	if file.Listen != "" {
		host, number, err := net.SplitHostPort(file.Listen)
		if err != nil {
			return fmt.Errorf("%s: listen: %w", c.Config, err)
		}
		if err := c.Port.UnmarshalText([]byte(number)); err != nil {
			return fmt.Errorf("%s: listen: %w", c.Config, err)
		}
		c.Host = host
	}
	// With a key_secret, every call needs a key.
	return c.Check(file.Proxy.KeySecret != "" || c.Keys, c.Config+": listen: set key_secret or --require-keys, or allow it with --no-auth")
}

// spoolSetting is the name of the setting that gave the directory of the spool.
func (c *proxyCommand) spoolSetting() string {
	if c.file != nil && c.file.Proxy.SpoolDir != "" {
		return c.Config + ": capture.spool_dir"
	}
	return "--spool-dir"
}

// warnUnset logs the models whose API keys are taken from variables that are not set, or hold what cannot be sent. Calls of
// other models work.
func warnUnset(log *slog.Logger, models []proxy.Model) {
	for i := range models {
		name, ok := strings.CutPrefix(models[i].APIKey, "env:")
		if !ok {
			continue
		}
		if err := secret.Check("the variable "+name, os.Getenv(name)); err != nil {
			log.Warn("the API key of a model cannot be sent, its calls fail", "model", models[i].Name, "error", err)
		} else if os.Getenv(name) == "" {
			log.Warn("the API key of a model is not set where the proxy runs, its calls get 500", "model", models[i].Name, "variable", name)
		}
	}
}

func readConfig(path string) (*configfile.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return configfile.Parse(path, data)
}

// proxyGCPercent lets the heap grow further between two collections: a proxy has a few
// megabytes of live memory and allocates gigabytes.
const proxyGCPercent = 400

func (c *proxyCommand) run(ctx context.Context, out *console.Console) (err error) {
	if c.Config != "" {
		if err := c.readFile(); err != nil {
			return err
		}
	}
	log := c.Logger(out.Err)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(proxyGCPercent)
	}
	warnUnset(log, c.settings.Models)
	// The proxy retries by itself, and must know at once that the store is unavailable.
	to, err := c.Store.Config()
	if err != nil {
		return err
	}
	to.Logger, to.RetryTimeout = log, -1
	spans, err := client.New(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spans.Close()) }()
	if err := checkStore(ctx, spans, log); err != nil {
		return fmt.Errorf("--store: %s: %w", secret.RedactURL(string(c.StoreURL)), err)
	}
	cfg := c.settings
	backends := proxy.NewTransport()
	backends.TLSClientConfig = to.TLS
	cfg.Transport = backends
	cfg.Spans, cfg.Rollouts, cfg.Token, cfg.LookupEnv, cfg.Logger = spans, spans, to.Token, os.LookupEnv, log
	if to.TokenFile != "" {
		cfg.Token = spans.Token()
	}
	cfg.Access, cfg.Budgets, cfg.Audit, cfg.RequireKeys = spans.Keys(), spans, spans, c.Keys
	cfg.AllowEnv = c.AllowEnv
	cfg.Failed = newThrottle(log)
	cfg.Revoked, cfg.Project = spans.Revocations(), spans.ProjectLimits()
	cfg.Sessions.Store, cfg.Sessions.Releases = spans, spans
	gateway, err := proxy.New(cfg)
	if spool, ok := errors.AsType[*proxy.SpoolError](err); ok {
		return spool.Named(c.spoolSetting())
	}
	if err != nil {
		return err
	}
	listener, err := c.OpenPort(ctx, log)
	if err != nil {
		return errors.Join(err, gateway.Close(ctx))
	}
	gateway.Start(context.WithoutCancel(ctx)) // the records of the last calls are stored after ctx has ended
	if c.file != nil {
		stop := watchConfig(ctx, &configWatch{path: c.Config, running: c.file, reload: gateway.Reload, log: log})
		defer stop()
	}
	err = service{name: "LLM proxy", handler: gateway, abort: gateway.Abort, listen: &c.Listen, log: log}.serve(ctx, out, listener)
	// All calls have ended; some of their records may not be stored yet.
	closing, cancel := execution.CleanupContext(ctx, c.DrainTimeout)
	defer cancel()
	return errors.Join(err, gateway.Close(closing))
}

// checkStore is [askStore] of a server with a token of its own.
func checkStore(ctx context.Context, store *client.Client, log *slog.Logger) error {
	if err := askStore(ctx, store, log); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := takesSpans(ctx, store); err != nil {
		return err
	}
	who, err := store.WhoAmI(ctx)
	switch {
	case errors.Is(err, agl.ErrUnauthorized):
		log.ErrorContext(ctx, "the store refuses the token of the proxy (--token, AGL_TOKEN or --token-file); records of calls wait until it is accepted", "error", err)
	case err == nil && who.Allow(access.Runner|access.Train) != nil:
		log.ErrorContext(ctx, "the token of the proxy does not suffice: it learns of no revoked attempt and no budget", "error", who.Allow(access.Runner|access.Train))
	}
	return nil
}

// pollInterval is the time between two checks of the configuration file.
const pollInterval = time.Second

// watchConfig reloads the configuration on SIGHUP and when its file changes, until
// stop is called, which waits for a running reload.
func watchConfig(ctx context.Context, w *configWatch) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Reset(syscall.SIGHUP) // it no longer ends the command
	signal.Notify(hangups, syscall.SIGHUP)
	ticker := time.NewTicker(pollInterval)
	stopRun := background.Start(ctx, func(ctx context.Context) { w.run(ctx, ticker.C, hangups) })
	return func() {
		signal.Stop(hangups)
		ticker.Stop()
		stopRun()
	}
}

// configWatch reloads the configuration of a running proxy. A file with a mistake changes nothing.
type configWatch struct {
	path    string
	running *configfile.File // the configuration of the proxy
	reload  func(models []proxy.Model, control proxy.Control) error
	log     *slog.Logger

	modified time.Time // of the file, at the last check
	size     int64
}

// run checks the file at each tick and reads it at each hangup, until ctx ends.
func (w *configWatch) run(ctx context.Context, ticks <-chan time.Time, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			if !w.look() {
				continue
			}
		case <-hangups:
			w.look()
		}
		if err := w.read(); err != nil {
			w.log.Error("configuration refused, the old one stays in use", "file", w.path, "error", err)
		}
	}
}

// look reports whether the file has changed since the last call; the first call reports a change. A missing file, such as
// while an editor replaces it, has not changed.
func (w *configWatch) look() bool {
	info, err := os.Stat(w.path)
	if err != nil {
		return false
	}
	changed := !info.ModTime().Equal(w.modified) || info.Size() != w.size
	w.modified, w.size = info.ModTime(), info.Size()
	return changed
}

// read reads the file and reloads the proxy with it.
func (w *configWatch) read() error {
	next, err := readConfig(w.path)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(next, w.running) {
		return nil
	}
	if changed := w.running.Frozen(next); len(changed) > 0 {
		return fmt.Errorf("%s: %s can only change with a restart", w.path, strings.Join(changed, ", "))
	}
	if err := w.reload(next.Proxy.Models, next.Proxy.Control); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	w.running = next
	warnUnset(w.log, next.Proxy.Models)
	w.log.Info("configuration read", "file", w.path, "models", len(next.Proxy.Models))
	return nil
}

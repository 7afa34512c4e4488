package main

import (
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
	"sync"
	"syscall"
	"time"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/rest"
)

type proxyCommand struct {
	flags.Listen `set:"port=0"`
	flags.Log    `set:"logLevel=info"`

	Config   string            `placeholder:"FILE" help:"Read the models and everything else from this YAML file, and again on SIGHUP and when it changes. What it says goes before the other flags."`
	StoreURL flags.URL         `name:"store" default:"http://localhost:4747" env:"AGL_STORE_URL" help:"Base URL of the store that takes the recorded calls."`
	Token    string            `env:"AGL_TOKEN" placeholder:"TOKEN" help:"The store's bearer token. The routes under /admin ask for it, too."`
	Model    []flags.Model     `sep:"none" placeholder:"NAME=URL" help:"A model that agents may ask for and the base URL of its backend; repeat it for several, the same name again is a replica."`
	APIKey   string            `name:"api-key" env:"AGL_PROXY_API_KEY" placeholder:"KEY" help:"Key sent to the backends, or env:NAME. Default: the agent's own is passed on."`
	TextOnly bool              `help:"Do not ask the backends for token ids and log-probabilities, which some reject."`
	Capture  proxy.CaptureMode `default:"require" enum:"require,best-effort,off" help:"What becomes of calls that might not be recorded: require refuses them, best-effort lets them pass, off records none."`
	SpoolDir string            `placeholder:"DIR" help:"Keep records in this directory while the store is away."`

	LogContents bool `help:"Put requests and replies into the log, as they are."`

	settings proxy.Config     // what flags and file say
	file     *configfile.File // nil without one
}

// Help is shown below the flags.
func (proxyCommand) Help() string {
	return "Agents call it under /rollout/ID/attempt/ID/v1, which the resource that a run hands them takes care of; such calls are recorded in the store.\n\n" +
		"Examples:\n  agl proxy --store http://localhost:4747 --port 4748 --model qwen=http://localhost:8000/v1\n  agl proxy --config proxy.yaml"
}

// Validate is called by kong.
func (c *proxyCommand) Validate() error {
	switch {
	case c.Config == "" && len(c.Model) == 0:
		return errors.New("give --model, or a file with --config")
	case c.Config != "" && len(c.Model) > 0:
		return errors.New("--model and --config: give one of them, the file has models of its own")
	}
	if c.Config != "" {
		return c.readFile()
	}
	c.settings = proxy.Config{Capture: c.Capture, SpoolDir: c.SpoolDir, LogCalls: true, LogContents: c.LogContents}
	for _, f := range c.Model {
		c.settings.Models = append(c.settings.Models, proxy.Model{Name: f.Name, BaseURL: string(f.URL), APIKey: c.APIKey, TextOnly: c.TextOnly})
	}
	return c.Check(false, "the proxy passes on the calls of anybody; allow it with --no-auth")
}

// readFile takes what the file says, and what it leaves to the flags.
func (c *proxyCommand) readFile() error {
	file, err := readConfig(c.Config)
	if err != nil {
		return err
	}
	c.file, c.settings = file, file.Proxy
	if c.settings.Capture == "" {
		c.settings.Capture = c.Capture
	}
	if c.settings.SpoolDir == "" {
		c.settings.SpoolDir = c.SpoolDir
	}
	c.settings.LogContents = c.settings.LogContents || c.LogContents
	if file.Store != "" {
		c.StoreURL = flags.URL(file.Store)
	}
	if name, ok := strings.CutPrefix(file.Token, "env:"); ok {
		if c.Token = os.Getenv(name); c.Token == "" {
			return fmt.Errorf("%s: token: the environment variable %s is not set", c.Config, name)
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
	// With a secret for keys nobody calls who was not given one.
	return c.Check(file.Proxy.KeySecret != "", c.Config+": listen: set key_secret, or allow it with --no-auth")
}

func readConfig(path string) (*configfile.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return configfile.Parse(path, data)
}

// proxyGCPercent is how far a proxy's heap grows between two collections: what
// is live in it are a few megabytes, and what passes through are gigabytes.
const proxyGCPercent = 400

func (c *proxyCommand) run(ctx context.Context, out *console.Console) (err error) {
	log := c.Logger(out.Err)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(proxyGCPercent)
	}
	// The proxy repeats what fails by itself, and must know at once that the store is away.
	spans, err := rest.NewClient(rest.ClientConfig{URL: string(c.StoreURL), Token: c.Token, Logger: log, RetryBudget: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spans.Close()) }()
	cfg := c.settings
	cfg.Spans, cfg.Token, cfg.LookupEnv, cfg.Logger = spans, c.Token, os.LookupEnv, log
	gateway, err := proxy.New(cfg)
	if err != nil {
		return err
	}
	listener, err := c.OpenPort(ctx)
	if err != nil {
		return errors.Join(err, gateway.Close(ctx))
	}
	if c.file != nil {
		stop := watchConfig(ctx, &configWatch{path: c.Config, running: c.file, reload: gateway.Reload, log: log})
		defer stop()
	}
	err = service{name: "LLM proxy", handler: gateway, drainTimeout: c.DrainTimeout, log: log}.serve(ctx, out, listener)
	// Calls have ended by now; their records may still be on their way.
	closing, cancel := execution.CleanupContext(ctx, c.DrainTimeout)
	defer cancel()
	return errors.Join(err, gateway.Close(closing))
}

// pollInterval is how often a configuration file is looked at.
const pollInterval = time.Second

// watchConfig reloads the file on SIGHUP and when it changes, until stop, which
// waits for the last reload.
func watchConfig(ctx context.Context, w *configWatch) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ticker := time.NewTicker(pollInterval)
	var group sync.WaitGroup
	group.Go(func() { w.run(ctx, ticker.C, hangups) })
	return func() {
		signal.Stop(hangups)
		ticker.Stop()
		cancel()
		group.Wait()
	}
}

// configWatch brings a running proxy what changes in its configuration file. A
// file that is wrong in any part changes nothing.
type configWatch struct {
	path    string
	running *configfile.File // what the proxy goes by
	reload  func(models []proxy.Model, control proxy.Control) error
	log     *slog.Logger

	modified time.Time // of the file when it was last looked at
	size     int64
}

// run looks at the file at each tick and reads it at each hangup, until ctx ends.
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
			w.log.Error("configuration refused, the old one stays", "file", w.path, "error", err)
		}
	}
}

// look reports whether the file has changed since it was last called, and at
// first. One that is not there, as while an editor writes it, has not.
func (w *configWatch) look() bool {
	info, err := os.Stat(w.path)
	if err != nil {
		return false
	}
	changed := !info.ModTime().Equal(w.modified) || info.Size() != w.size
	w.modified, w.size = info.ModTime(), info.Size()
	return changed
}

// read takes what the file says now.
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
	w.log.Info("configuration read", "file", w.path, "models", len(next.Proxy.Models))
	return nil
}

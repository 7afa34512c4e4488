package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest"
)

type proxyCommand struct {
	listenFlags
	logFlags
	StoreURL storeURL    `name:"store" default:"http://localhost:4747" env:"AGL_STORE_URL" help:"Base URL of the store that takes the recorded calls."`
	Token    string      `env:"AGL_TOKEN" placeholder:"TOKEN" help:"The store's bearer token. The routes under /admin ask for it, too."`
	Port     port        `default:"0" help:"Port to listen on; 0 takes a free one."`
	Model    []modelFlag `required:"" sep:"none" placeholder:"NAME=URL" help:"A model that agents may ask for and the base URL of its backend; repeat it for several, the same name again is a replica."`
	APIKey   string      `name:"api-key" env:"AGL_PROXY_API_KEY" placeholder:"KEY" help:"Key sent to the backends, or env:NAME. Default: the agent's own is passed on."`
	TextOnly bool        `help:"Do not ask the backends for token ids and log-probabilities, which some reject."`
}

// Help is shown below the flags.
func (proxyCommand) Help() string {
	return "Agents call it under /rollout/ID/attempt/ID/v1, which the resource that a run hands them takes care of; such calls are recorded in the store.\n\n" +
		"Example:\n  agl proxy --store http://localhost:4747 --port 4748 --model qwen=http://localhost:8000/v1"
}

// Validate is called by kong.
func (c *proxyCommand) Validate() error {
	return c.check(false, "the proxy passes on the calls of anybody; allow it with --no-auth")
}

// modelFlag is NAME=BACKEND_URL.
type modelFlag struct{ name, url string }

// UnmarshalText reads a model.
func (f *modelFlag) UnmarshalText(text []byte) error {
	name, url, found := strings.Cut(string(text), "=")
	if !found || name == "" || url == "" {
		return fmt.Errorf("got %q, must be NAME=BACKEND_URL such as qwen=http://localhost:8000/v1", redactURL(string(text)))
	}
	var checked storeURL
	if err := checked.UnmarshalText([]byte(url)); err != nil {
		return fmt.Errorf("model %s: %w", name, err)
	}
	*f = modelFlag{name, url}
	return nil
}

func (c *proxyCommand) run(ctx context.Context, m *Main) (err error) {
	log := c.logger(m.Stderr)
	spans, err := rest.NewClient(rest.ClientConfig{URL: string(c.StoreURL), Token: c.Token, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spans.Close()) }()
	var models []proxy.Model
	for _, f := range c.Model {
		models = append(models, proxy.Model{Name: f.name, BaseURL: f.url, APIKey: c.APIKey, TextOnly: c.TextOnly})
	}
	gateway, err := proxy.New(proxy.Config{Models: models, Spans: spans, Token: c.Token, LookupEnv: os.LookupEnv, Logger: log})
	if err != nil {
		return err
	}
	listener, err := listen(ctx, c.Host, c.Port)
	if err != nil {
		return errors.Join(err, gateway.Close(ctx))
	}
	err = service{name: "LLM proxy", handler: gateway, drainTimeout: c.DrainTimeout, log: log}.serve(ctx, m, listener)
	// Calls have ended by now; their records may still be on their way.
	closing, cancel := execution.CleanupContext(ctx, c.DrainTimeout)
	defer cancel()
	return errors.Join(err, gateway.Close(closing))
}

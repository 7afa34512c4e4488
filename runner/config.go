package runner

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
)

// Config configures a [Runner]. Store and Agent are required; every other zero
// value has a default.
type Config struct {
	Store agl.Store
	Agent agl.Agent
	// Tracer traces the attempts; nil is a [tracer.Tracer] over Store.
	Tracer agl.Tracer
	// Hooks watch the attempts, in this order.
	Hooks []agl.Hook
	// Workers is the number of attempts that run at once, at most [MaxWorkers]; 0 is 1.
	Workers int
	// WorkerPrefix and FirstWorker determine the worker ids, prefix-n-run: n counts from FirstWorker, and run is
	// random and new for each Run. The empty prefix is host-pid.
	WorkerPrefix string
	FirstWorker  int
	// MaxRollouts ends Run after this many rollouts, over all workers; 0 means no limit.
	MaxRollouts int
	// DequeueWait is how long one request for work may block; 0 is 30 s.
	DequeueWait time.Duration
	// PollInterval is the pause before the next request for work if a store answers without blocking; 0 is 1 s.
	PollInterval time.Duration
	// MaxOutage ends Run with an error when requests for work have failed for this long; 0 is 5 minutes, a negative
	// one means never.
	MaxOutage time.Duration
	// HeartbeatInterval is the pause between two heartbeats of a worker; 0 is 10 s. While it has a rollout whose
	// unresponsive_seconds are less than twice that, there are others at a third of those. A negative one sends none: a
	// cancelled rollout is then noticed only when spans are stored.
	HeartbeatInterval time.Duration
	// Snapshot returns what heartbeats say about the system, as an object. Nil reports CPU, memory, disk and network
	// as the Python runner does.
	Snapshot func(ctx context.Context) (jsontext.Value, error)
	// GracePeriod is how long an agent may take to return once its context has
	// ended, and how long the last reports to the store may take when the runner
	// stops; 0 is 3 s.
	GracePeriod time.Duration
	// ReportTimeout is how long each request about an attempt (for its resources,
	// spans, flush and report) is retried while the server is unavailable; 0 is
	// MaxOutage, but at least 1 minute.
	ReportTimeout time.Duration
	// Flusher is called before an attempt is reported whose resources name a proxy, so that all its model calls are
	// stored. Nil asks each of these proxies by POST /admin/attempts/flush. A proxy without that path is another
	// product, and is not asked again.
	Flusher Flusher
	// ProxyToken is the bearer token for that request, if the proxy requires one.
	ProxyToken string
	// CurrentProxyToken returns the token for each request where ProxyToken is empty: one that is replaced before it expires.
	CurrentProxyToken func() string
	// HTTPClient sends that request; nil is [http.DefaultClient].
	HTTPClient *http.Client
	// Logger logs failed attempts and lost connections; nil discards.
	Logger *slog.Logger
}

// MaxWorkers bounds Config.Workers: each takes memory, and a connection to the store.
const MaxWorkers = 100_000

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 1)
	c.DequeueWait = cmp.Or(c.DequeueWait, 30*time.Second)
	c.PollInterval = cmp.Or(c.PollInterval, time.Second)
	c.MaxOutage = cmp.Or(c.MaxOutage, 5*time.Minute)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 10*time.Second)
	c.GracePeriod = cmp.Or(c.GracePeriod, 3*time.Second)
	c.ReportTimeout = cmp.Or(c.ReportTimeout, max(c.MaxOutage, time.Minute))
	if c.WorkerPrefix == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "runner"
		}
		c.WorkerPrefix = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	c.HTTPClient = cmp.Or(c.HTTPClient, http.DefaultClient)
	if c.ProxyToken != "" || c.CurrentProxyToken == nil {
		token := c.ProxyToken
		c.CurrentProxyToken = func() string { return token }
	}
	if c.Snapshot == nil {
		c.Snapshot = SystemSnapshot
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if c.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "runner: Config.Store: got nil, must be a store")
	}
	if c.Agent == nil {
		return agl.Errorf(agl.CodeInvalid, "runner: Config.Agent: got nil, must be an agent")
	}
	if i := slices.Index(c.Hooks, nil); i >= 0 {
		return agl.Errorf(agl.CodeInvalid, "runner: Config.Hooks[%d]: got nil, must be a hook", i)
	}
	if err := bounds.NotNegative("runner: Config.",
		bounds.Number("Workers", c.Workers), bounds.Number("FirstWorker", c.FirstWorker),
		bounds.Number("MaxRollouts", c.MaxRollouts), bounds.Number("DequeueWait", c.DequeueWait),
		bounds.Number("PollInterval", c.PollInterval), bounds.Number("GracePeriod", c.GracePeriod),
		bounds.Number("ReportTimeout", c.ReportTimeout),
	); err != nil {
		return err
	}
	if c.Workers > MaxWorkers {
		return agl.Errorf(agl.CodeInvalid, "runner: Config.Workers: got %d, must be at most %d", c.Workers, MaxWorkers)
	}
	return nil
}

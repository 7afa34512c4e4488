package runner

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
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
	// Workers is how many attempts run at once; 0 is 1.
	Workers int
	// WorkerPrefix and FirstWorker make the worker ids prefix-n-run: n counts from
	// FirstWorker, and run is random, anew for each Run. The empty prefix is
	// host-pid.
	WorkerPrefix string
	FirstWorker  int
	// MaxRollouts ends Run after so many rollouts, over all workers; 0 is no limit.
	MaxRollouts int
	// DequeueWait is how long one request for work may block; 0 is 30 s.
	DequeueWait time.Duration
	// PollInterval is the pause after a store answered that there is no work
	// without having waited for it; 0 is 1 s.
	PollInterval time.Duration
	// MaxOutage ends Run with an error once asking for work has failed for that
	// long; 0 is 5 minutes, a negative one never.
	MaxOutage time.Duration
	// HeartbeatInterval is the pause between two heartbeats of a worker; 0 is
	// 10 s, a negative one sends none, so that only spans tell of a cancelled
	// rollout.
	HeartbeatInterval time.Duration
	// Snapshot returns what heartbeats say about the system: an object. Nil is
	// [SystemSnapshot].
	Snapshot func(ctx context.Context) (jsontext.Value, error)
	// GracePeriod is how long an agent may take to return once its context has
	// ended, and, when the runner stops, how long the last words to the store may
	// take; 0 is 3 s.
	GracePeriod time.Duration
	// ReportTimeout is how long each exchange about an attempt is retried while
	// the other side is away: its resources, spans, flush and report; 0 is 1
	// minute.
	ReportTimeout time.Duration
	// Flusher is the barrier that every model call of an attempt whose resources
	// name a proxy passes before the attempt is reported. Nil asks each of these
	// proxies by POST /admin/attempts/flush; one that has no such path is none of ours and
	// is not asked again.
	Flusher Flusher
	// ProxyToken is the bearer token for that request, if the proxy wants one.
	ProxyToken string
	// HTTPClient makes that request; nil is [http.DefaultClient].
	HTTPClient *http.Client
	// Logger hears about failed attempts and troubles; nil discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	setDefault(&c.Workers, 1)
	setDefault(&c.DequeueWait, 30*time.Second)
	setDefault(&c.PollInterval, time.Second)
	setDefault(&c.MaxOutage, 5*time.Minute)
	setDefault(&c.HeartbeatInterval, 10*time.Second)
	setDefault(&c.GracePeriod, 3*time.Second)
	setDefault(&c.ReportTimeout, time.Minute)
	if c.WorkerPrefix == "" {
		host, err := os.Hostname()
		if err != nil || host == "" {
			host = "runner"
		}
		c.WorkerPrefix = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	if c.HTTPClient == nil {
		c.HTTPClient = http.DefaultClient
	}
	if c.Snapshot == nil {
		c.Snapshot = SystemSnapshot
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	if c.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "runner: Config.Store is nil, a store is required")
	}
	if c.Agent == nil {
		return agl.Errorf(agl.CodeInvalid, "runner: Config.Agent is nil, an agent is required")
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Workers", int64(c.Workers)},
		{"FirstWorker", int64(c.FirstWorker)},
		{"MaxRollouts", int64(c.MaxRollouts)},
		{"DequeueWait", int64(c.DequeueWait)},
		{"PollInterval", int64(c.PollInterval)},
		{"GracePeriod", int64(c.GracePeriod)},
		{"ReportTimeout", int64(c.ReportTimeout)},
	} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "runner: Config.%s: got %d, must not be negative", f.name, f.value)
		}
	}
	return nil
}

// New makes a runner. It does nothing before Run or Step.
func New(cfg Config) (*Runner, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if cfg.Tracer == nil {
		t, err := tracer.New(tracer.Config{Store: cfg.Store, RetryBudget: cfg.ReportTimeout, Logger: cfg.Logger})
		if err != nil {
			return nil, err
		}
		cfg.Tracer = t
	}
	return &Runner{
		cfg:      cfg,
		barrier:  &barrier{flusher: cfg.Flusher, client: cfg.HTTPClient, token: cfg.ProxyToken},
		suffix:   newSuffix(),
		snapshot: &snapshots{take: cfg.Snapshot, maxAge: cfg.HeartbeatInterval / 2},
		drain:    make(chan struct{}),
	}, nil
}

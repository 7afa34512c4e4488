package upstream

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/internal/secret"
)

// Config configures a [Pool]. The zero value of each field but Models is usable.
type Config struct {
	// Models are the models served at first; see [Pool.SetModels].
	Models []Model
	// LookupEnv resolves "env:NAME" keys; nil allows none.
	LookupEnv func(name string) (value string, ok bool)
	// Transport makes the requests; nil is one of [NewTransport].
	Transport http.RoundTripper
	// MaxReplyBytes bounds the reply that is received for Request.Buffer; 0 is 64 MiB.
	MaxReplyBytes int64
	// QueueTimeout bounds the wait for Model.Limits; 0 is 30 s.
	QueueTimeout time.Duration
	// PauseTimeout bounds the wait of a call while the proxy is paused; 0 is 5 minutes.
	PauseTimeout time.Duration
	// PauseQueue is how many calls may wait then; 0 is 10,000.
	PauseQueue int
	// Retry says how failing requests are repeated.
	Retry Retry
	// Health says when backends count as down.
	Health Health
	// IdleTimeout is how long a backend may send nothing; 0 is 10 minutes.
	IdleTimeout time.Duration
	// CacheBytes is the size of the reply cache; 0 is no cache. A call whose request
	// equals an earlier one, except for the order of members and white space, gets the
	// same reply. Do not use it for training, which needs a new sample for each call.
	CacheBytes int64
	// Logger receives messages for operators; nil discards them.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.MaxReplyBytes = cmp.Or(c.MaxReplyBytes, 64<<20)
	c.QueueTimeout = cmp.Or(c.QueueTimeout, 30*time.Second)
	c.PauseTimeout = cmp.Or(c.PauseTimeout, 5*time.Minute)
	c.PauseQueue = cmp.Or(c.PauseQueue, 10_000)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 10*time.Minute)
	c.Retry, c.Health = c.Retry.withDefaults(), c.Health.withDefaults()
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports what is wrong with a configuration: CodeInvalid, with the field,
// the value and what is allowed.
func (c *Config) Validate() error {
	err := bounds.NotNegative("", bounds.Number("MaxReplyBytes", c.MaxReplyBytes), bounds.Number("QueueTimeout", c.QueueTimeout),
		bounds.Number("PauseTimeout", c.PauseTimeout), bounds.Number("PauseQueue", c.PauseQueue),
		bounds.Number("IdleTimeout", c.IdleTimeout), bounds.Number("CacheBytes", c.CacheBytes))
	if err == nil {
		err = c.Retry.validate()
	}
	if err == nil {
		err = c.Health.validate()
	}
	if err == nil {
		_, err = newTable(c.Models, nil)
	}
	return err
}

// Secret resolves a key of the form "env:NAME" with lookup, which may be nil. Other
// keys stay as they are.
func Secret(key string, lookup func(name string) (value string, ok bool)) (string, error) {
	name, isEnv := strings.CutPrefix(key, "env:")
	if !isEnv {
		return key, nil
	}
	if lookup != nil {
		if value, _ := lookup(name); value != "" {
			return value, nil
		}
	}
	return "", agl.Errorf(agl.CodeInvalid, "the API key is taken from the environment variable %s, which is not set where the proxy runs", name)
}

// Pool sends calls to the backends of models. Create it with [New], start it with
// [Pool.Start] and stop it with [Pool.Close]. It is safe for concurrent use.
type Pool struct {
	cfg     Config
	swap    sync.Mutex // held by SetModels
	models  atomic.Pointer[table]
	gate    gate
	posting sync.Mutex  // held while the engines are told of a pause or its end, so that none stays paused
	cache   *replyCache // nil when there is none
	buffers sync.Pool   // of *[]byte, for replies
	own     *http.Transport
	probes  sync.WaitGroup
	cancel  context.CancelFunc
}

// keyOf returns the key that a backend gets, empty if it gets the agent's.
func (p *Pool) keyOf(b *backend) (string, error) {
	key, err := Secret(b.APIKey, p.cfg.LookupEnv)
	if err == nil {
		err = secret.Check("the API key of model "+b.Name, key)
	}
	return key, err
}

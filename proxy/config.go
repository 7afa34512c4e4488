package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl"
)

// Spans is where calls are recorded. An agl.Store is one.
type Spans interface {
	// Capabilities says whether the store has AddSpansJSON and ReserveSequenceIDsOf.
	Capabilities() agl.Capabilities
	// AddSpans copies what it keeps: the memory that the spans refer to is used
	// again when it returns.
	AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	AddSpansJSON(ctx context.Context, p agl.AddSpansJSONParams) (agl.AddSpansResult, error)
	ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (first int64, err error)
	ReserveSequenceIDsOf(ctx context.Context, p []agl.ReserveSequenceIDsParams) (first []int64, err error)
}

// Model is one backend of a model name. Several entries of one name are
// replicas: the calls of a rollout stay on one of them, rollouts are spread.
type Model struct {
	Name    string // what agents ask for
	BaseURL string // of the backend's API, usually ending in /v1
	// BackendModel is what the backend calls the model; empty means Name.
	BackendModel string
	// APIKey is sent to the backend in the header that its API has for it;
	// "env:NAME" is resolved at each call. Empty forwards the agent's own key.
	APIKey string
	// Version says which weights these are, usually a resources id. It is
	// recorded with each call.
	Version string
	// TextOnly marks a backend that rejects requests for token ids and
	// log-probabilities, as hosted services do: they are not asked for.
	TextOnly bool
	// API is what the backend speaks; empty is OpenAI's.
	API API
	// APIVersion is the api-version of Azure, empty is 2024-10-21, or the
	// anthropic-version of Anthropic where the agent sends none, empty is
	// 2023-06-01. Others have none.
	APIVersion string
	// ChatOnly marks a backend whose one interface for agents is Chat Completions,
	// as the embedded policy is: Responses are translated for it. They also are,
	// without it, wherever token ids are wanted, which engines give for chat only.
	ChatOnly bool
	// Replay marks a backend that refuses token ids while it streams, as SGLang
	// does for chat: a recorded call is made without streaming, and the reply is
	// replayed to the agent as a stream. A backend that says so, as SGLang does, is
	// taken for one from then on.
	Replay bool
	// CacheSalt gives requests the version as their cache_salt, unless they have
	// one or there is no version, so that an engine whose weights change in place
	// takes no prefix that it computed with the ones before.
	CacheSalt bool
	// Limits bound what this backend gets to do.
	Limits Limits
	// HealthURL, if set, is asked with GET every Health.ProbeInterval whether the
	// backend is up. A path such as /health is taken from the root of BaseURL.
	HealthURL string
	// PauseURL and ResumeURL, if set, are asked with POST by [Proxy.Pause] and
	// [Proxy.Resume], so that the engine stops and goes on, too: for vLLM
	// /pause?mode=keep and /resume, for SGLang /pause_generation and
	// /continue_generation. Paths are taken from the root of BaseURL.
	PauseURL, ResumeURL string
}

// Config configures a [Proxy]. The zero value of each field but Models is usable.
type Config struct {
	// Models are the models served at first; see [Proxy.SetModels].
	Models []Model
	// Spans takes the records; nil records nothing.
	Spans Spans
	// Logger gets what operators must know; nil discards it.
	Logger *slog.Logger
	// LogCalls logs a line for each call at level info instead of debug.
	LogCalls bool
	// LogContents puts requests and replies, as they are, into these lines.
	LogContents bool
	// Token, when set, is the bearer token that the routes under /admin need.
	// Without one they answer to loopback addresses only.
	Token string
	// KeySecret, when set, makes calls of attempts need the virtual key of the
	// attempt, which the resource of [Proxy.AsResource] has and [Proxy.AttemptKey]
	// gives, and other calls Token. It may be "env:NAME". Keys go no further than
	// the proxy. Without it agents need none.
	KeySecret string
	// PublicURL is where agents reach the proxy, for [Proxy.AsResource].
	PublicURL string
	// LookupEnv resolves "env:NAME" keys; nil allows none.
	LookupEnv func(name string) (value string, ok bool)
	// Transport makes the calls to backends; nil is one of the proxy's own, tuned
	// for many calls to few hosts.
	Transport http.RoundTripper
	// MaxRequestBytes bounds a request body; 0 is 64 MiB. Longer ones get 413.
	MaxRequestBytes int64
	// MaxReplyBytes bounds how much of a reply is recorded; 0 is 64 MiB. A longer
	// reply still reaches the agent, whole, and its record says that it is cut.
	MaxReplyBytes int64
	// CaptureBytes bounds the memory for calls that are running or not yet
	// stored; 0 is 256 MiB. While it is full, new calls wait for QueueTimeout and
	// are then refused with 503. Running calls may exceed it, never new ones.
	CaptureBytes int64
	// QueueTimeout bounds that wait, and the one for Model.Limits; 0 is 30 s.
	QueueTimeout time.Duration
	// PauseTimeout is how long a call waits while the proxy is paused; 0 is 5
	// minutes.
	PauseTimeout time.Duration
	// PauseQueue is how many calls may wait so; 0 is 10,000.
	PauseQueue int
	// Control is what calls of rollouts may and may not; see [Proxy.SetControl].
	Control Control
	// CacheBytes is the size of the cache; 0 is no cache, which training wants: a
	// call that is the same as an earlier one, byte for byte but for the order of
	// its members and the space between them, gets the same reply.
	CacheBytes int64
	// Retry says how failing requests are repeated.
	Retry Retry
	// Health says when backends count as down.
	Health Health
	// IdleTimeout is how long a backend may send nothing; 0 is 10 minutes.
	IdleTimeout time.Duration
	// Capture says what becomes of calls whose records might not be kept; empty is
	// CaptureRequire.
	Capture CaptureMode
	// SpoolDir is a directory of this proxy alone. With it a store that is away
	// costs nothing: records go to disk, synced before they leave memory, and are
	// replayed in order when it is back, by a later process if need be. Calls that
	// a killed process had begun and not yet stored or spooled are reported as
	// lost. Empty keeps records in memory, for StoreRetry.
	SpoolDir string
	// SpoolBytes bounds the records in SpoolDir; 0 is 1 GiB. Once they fill it,
	// records stay in memory, see CaptureBytes.
	SpoolBytes int64
	// StoreTimeout bounds one request to Spans; 0 is 30 s, with a spool 5 s.
	StoreTimeout time.Duration
	// StoreRetry is how long a failing write is repeated before the record is
	// given up; 0 is 2 minutes. With a spool none is.
	StoreRetry time.Duration
	// WriteDelay is how long a record may wait for others to be written with; 0
	// is 5 ms. It waits for a random time between half of that and all of it; a
	// Flush and a write that is full do not wait.
	WriteDelay time.Duration
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.LookupEnv == nil {
		c.LookupEnv = func(string) (string, bool) { return "", false }
	}
	const mib = 1 << 20
	orDefault(&c.MaxRequestBytes, 64*mib)
	orDefault(&c.MaxReplyBytes, 64*mib)
	orDefault(&c.CaptureBytes, 256*mib)
	orDefault(&c.QueueTimeout, 30*time.Second)
	orDefault(&c.PauseTimeout, 5*time.Minute)
	orDefault(&c.PauseQueue, 10_000)
	c.Retry = c.Retry.withDefaults()
	c.Health = c.Health.withDefaults()
	orDefault(&c.IdleTimeout, 10*time.Minute)
	orDefault(&c.Capture, CaptureRequire)
	orDefault(&c.SpoolBytes, 1024*mib)
	if c.SpoolDir != "" {
		orDefault(&c.StoreTimeout, 5*time.Second)
	}
	orDefault(&c.StoreTimeout, 30*time.Second)
	orDefault(&c.StoreRetry, 2*time.Minute)
	orDefault(&c.WriteDelay, 5*time.Millisecond)
	return c
}

// Validate reports what is wrong with a configuration: CodeInvalid, naming the
// field, the value and what is allowed.
func (c *Config) Validate() error {
	for _, f := range [...]struct {
		name  string
		value int64
	}{
		{"MaxRequestBytes", c.MaxRequestBytes},
		{"MaxReplyBytes", c.MaxReplyBytes},
		{"CaptureBytes", c.CaptureBytes},
		{"QueueTimeout", int64(c.QueueTimeout)},
		{"PauseTimeout", int64(c.PauseTimeout)},
		{"PauseQueue", int64(c.PauseQueue)},
		{"CacheBytes", c.CacheBytes},
		{"IdleTimeout", int64(c.IdleTimeout)},
		{"SpoolBytes", c.SpoolBytes},
		{"StoreTimeout", int64(c.StoreTimeout)},
		{"StoreRetry", int64(c.StoreRetry)},
		{"WriteDelay", int64(c.WriteDelay)},
	} {
		if f.value < 0 {
			return agl.Errorf(agl.CodeInvalid, "%s: got %d, must not be negative", f.name, f.value)
		}
	}
	if err := c.Control.Validate(); err != nil {
		return err
	}
	if err := c.Capture.check(); err != nil {
		return err
	}
	if err := c.Retry.check(); err != nil {
		return err
	}
	if err := c.Health.check(); err != nil {
		return err
	}
	if _, err := newTable(c.Models, nil); err != nil {
		return err
	}
	if c.PublicURL != "" {
		return checkURL("PublicURL", c.PublicURL)
	}
	return nil
}

// checkURL wants an absolute HTTP URL. The message leaves out the URL's password.
func checkURL(field, raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "%s: not a URL: %w", field, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return agl.Errorf(agl.CodeInvalid, "%s: got %q, must be an absolute http or https URL such as http://127.0.0.1:8000/v1", field, u.Redacted())
	}
	return nil
}

// secret resolves an "env:NAME" key.
func (c *Config) secret(key string) (string, error) {
	name, isEnv := strings.CutPrefix(key, "env:")
	if !isEnv {
		return key, nil
	}
	value, ok := c.LookupEnv(name)
	if !ok || value == "" {
		return "", agl.Errorf(agl.CodeInvalid, "the API key is taken from the environment variable %s, which is not set where the proxy runs", name)
	}
	return value, nil
}

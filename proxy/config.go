package proxy

import (
	"cmp"
	"log/slog"
	"math"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/capture"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/extract"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/upstream"
)

type (
	// Spans is the store to which calls are recorded. Every agl.Store is one.
	Spans = capture.Spans
	// CaptureMode says what happens to a call whose record might not be kept.
	CaptureMode = capture.Mode
	// SpoolError says why Config.SpoolDir cannot be used.
	SpoolError = capture.SpoolError
	// Model is one backend of a model name.
	Model = upstream.Model
	// API is the interface that a backend speaks.
	API = upstream.API
	// Price is what the tokens of a model cost.
	Price = upstream.Price
	// Limits bound the calls to a backend.
	Limits = upstream.Limits
	// Retry says how a failing request is repeated.
	Retry = upstream.Retry
	// Health says when a backend counts as down.
	Health = upstream.Health
	// PauseMode says what happens to calls while the proxy is paused.
	PauseMode = upstream.PauseMode
	// PauseState says whether the proxy is paused.
	PauseState = upstream.PauseState
	// Backend is the present state of a backend.
	Backend = upstream.Backend
	// EnginesError says which engines could not be paused or resumed.
	EnginesError = upstream.EnginesError
	// Control says what the calls of a rollout may do.
	Control = quota.Control
	// Budget limits what each attempt of a rollout may spend.
	Budget = quota.Budget
	// OverBudget says how a call is answered when the budget is spent.
	OverBudget = quota.OverBudget
	// Client uses the admin routes of a proxy in another process.
	Client = admin.Client
)

// The values of their fields, and the headers of replies.
const (
	CaptureRequire    = capture.Require
	CaptureBestEffort = capture.BestEffort
	CaptureOff        = capture.Off
	APIOpenAI         = upstream.APIOpenAI
	APIAzure          = upstream.APIAzure
	APIAnthropic      = upstream.APIAnthropic
	PauseHold         = upstream.PauseHold
	PauseReject       = upstream.PauseReject
	PauseDrain        = upstream.PauseDrain
	PauseAbort        = upstream.PauseAbort
	OverError         = quota.OverError
	OverLength        = quota.OverLength
	HeaderSource      = exchange.HeaderSource
	HeaderTries       = exchange.HeaderTries
	HeaderOutcome     = exchange.HeaderOutcome
	HeaderCache       = upstream.HeaderCache
	SourceGateway     = record.SourceGateway
	SourceProvider    = record.SourceProvider
)

// Config configures a [Proxy]. The zero value of each field but Models is usable.
type Config struct {
	// Models are the models served at first; see [Proxy.SetModels].
	Models []Model
	// Spans takes the records; nil records nothing.
	Spans Spans
	// Logger receives messages for operators; nil discards them.
	Logger *slog.Logger
	// LogCalls logs a line for each call at level info instead of debug.
	LogCalls bool
	// LogContents adds the complete requests and replies to these lines.
	LogContents bool
	// Token, when set, is the bearer token that the routes under /admin need.
	// Without one they answer to loopback addresses only.
	Token string
	// KeySecret, when set, is the secret from which virtual keys are made. Calls of an
	// attempt then need the virtual key of the attempt, which comes with the resource of
	// [Proxy.AsResource] or from [Proxy.AttemptKey]; other calls need Token. It may be
	// "env:NAME". Virtual keys are not forwarded to backends. It has at least
	// [MinKeySecret] bytes. Without a KeySecret agents need no key.
	KeySecret string
	// Access checks the keys of callers, such as those of a store; nil knows none. A key
	// that is given must be valid and have the scope of its route, even if the proxy
	// requires no keys. Keys are not forwarded to backends.
	Access access.Checker
	// Failed limits how often an address may send a wrong key or token; nil is unlimited.
	Failed *access.Throttle
	// Revoked knows the attempts whose keys are revoked; nil knows none.
	Revoked *access.Revocations
	// Audit records what callers with the scope train change under /admin; nil records
	// nothing.
	Audit access.Teller
	// Budgets reserves and spends the budgets of keys; nil refuses keys that have a budget.
	Budgets access.Charger
	// Project has the budget of calls without a key of the store, also those of the judge; nil is unlimited.
	Project *access.ProjectLimits
	// RequireKeys requires a key or the Token of every call, even without a KeySecret.
	RequireKeys bool
	// PublicURL is where agents reach the proxy, for [Proxy.AsResource].
	PublicURL string
	// LookupEnv resolves "env:NAME" keys; nil allows none.
	LookupEnv func(name string) (value string, ok bool)
	// AllowEnv names environment variables that a model set over HTTP may use as its key,
	// "env:NAME", whatever its server is. Names that begin with AGL_ are not allowed. A
	// variable that Models or [Proxy.SetModels] names for a server is allowed for that server.
	AllowEnv []string
	// Transport makes the requests to backends; nil is one of the proxy's own, see
	// [NewTransport].
	Transport http.RoundTripper
	// ForwardPaths are further paths whose POSTs are forwarded to the backend of the
	// body's model, without /v1, such as /rerank. Unknown paths get 404.
	ForwardPaths []string
	// MaxRequestBytes bounds a request body; 0 is 64 MiB. Longer ones get 413.
	MaxRequestBytes int64
	// MaxReplyBytes bounds how much of a reply is recorded; 0 is 64 MiB. The agent
	// still gets all of a longer reply, and its record says that it is cut.
	MaxReplyBytes int64
	// CaptureBytes bounds the memory for calls that are running or not yet stored; 0 is
	// 256 MiB. While it is full, new calls wait for QueueTimeout and are then refused
	// with 503. Running calls may exceed it.
	CaptureBytes int64
	// QueueTimeout bounds that wait, and the one for Model.Limits; 0 is 30 s.
	QueueTimeout time.Duration
	// Control applies to the calls of rollouts that have no control of their own; see
	// [Proxy.SetControl].
	Control Control
	// PauseTimeout, PauseQueue, Retry, Health, IdleTimeout and CacheBytes are those of
	// [upstream.Config].
	PauseTimeout time.Duration
	PauseQueue   int
	Retry        Retry
	Health       Health
	IdleTimeout  time.Duration
	CacheBytes   int64
	// Sessions records the calls of live programs.
	Sessions Sessions
	// Rollouts finds the resources with which a rollout was enqueued. It is needed when several
	// versions of a model are served, see Model.Resources. Every agl.Store is one. With nil no
	// rollout is bound to a version.
	Rollouts Rollouts
	// Capture says what happens to calls whose records might not be kept; empty is
	// CaptureRequire.
	Capture CaptureMode
	// SpoolDir is a directory that no other proxy uses. While the store is unavailable,
	// records go to disk there, synced before they leave memory, and are replayed in
	// order when it is back, by a later process if need be. Calls that a killed process
	// had begun and neither stored nor spooled are reported as lost. Empty keeps records
	// in memory, for StoreRetry.
	SpoolDir string
	// SpoolBytes bounds the records in SpoolDir; 0 is 1 GiB. Further records stay in
	// memory, see CaptureBytes.
	SpoolBytes int64
	// StoreTimeout bounds one request to Spans; 0 is 30 s, with a spool 5 s.
	StoreTimeout time.Duration
	// StoreRetry is how long a failing write is repeated before the record is lost; 0
	// is 2 minutes. With a spool records are never given up.
	StoreRetry time.Duration
	// WriteDelay is how long a record may wait to be written together with others; 0 is
	// 5 ms. The wait is random, between half of that and all of it. A Flush and a full
	// batch do not wait.
	WriteDelay time.Duration
}

// MinKeySecret is the least length of [Config.KeySecret] in bytes. Whoever has the key of one attempt can try secrets
// without asking the proxy, until one of them makes that key.
const MinKeySecret = 16

// CheckKeySecret refuses a secret that can be guessed with CodeInvalid. The message leaves it out.
func CheckKeySecret(secret string) error {
	if n := len(secret); n > 0 && n < MinKeySecret {
		return agl.Errorf(agl.CodeInvalid, "got %d characters, must have at least %d, such as those of openssl rand -hex 32: whoever has an attempt's key could guess it", n, MinKeySecret)
	}
	return nil
}

// CheckPublicURL refuses what cannot be [Config.PublicURL] with CodeInvalid.
func CheckPublicURL(given string) error {
	if at := strings.IndexAny(given, "?#"); at >= 0 {
		return agl.Errorf(agl.CodeInvalid, "got a URL with %q, must end before it: agents append their paths to it", given[at])
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	const mib = 1 << 20
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, 64*mib)
	c.MaxReplyBytes = cmp.Or(c.MaxReplyBytes, 64*mib)
	c.CaptureBytes = cmp.Or(c.CaptureBytes, 256*mib)
	c.QueueTimeout = cmp.Or(c.QueueTimeout, 30*time.Second)
	c.Capture = cmp.Or(c.Capture, CaptureRequire)
	c.SpoolBytes = cmp.Or(c.SpoolBytes, 1024*mib)
	if c.SpoolDir != "" {
		c.StoreTimeout = cmp.Or(c.StoreTimeout, 5*time.Second)
	}
	c.StoreTimeout = cmp.Or(c.StoreTimeout, 30*time.Second)
	c.StoreRetry = cmp.Or(c.StoreRetry, 2*time.Minute)
	c.WriteDelay = cmp.Or(c.WriteDelay, 5*time.Millisecond)
	return c
}

// Validate reports what is wrong with a configuration: CodeInvalid, with the field,
// the value and what is allowed.
func (c *Config) Validate() error {
	if err := bounds.NotNegative("",
		bounds.Number("MaxRequestBytes", c.MaxRequestBytes), bounds.Number("CaptureBytes", c.CaptureBytes),
		bounds.Number("SpoolBytes", c.SpoolBytes), bounds.Number("StoreTimeout", c.StoreTimeout),
		bounds.Number("StoreRetry", c.StoreRetry), bounds.Number("WriteDelay", c.WriteDelay),
	); err != nil {
		return err
	}
	to := c.upstream()
	if err := to.Validate(); err != nil {
		return err
	}
	if c.RequireKeys && c.Access == nil && c.Token == "" {
		return agl.Errorf(agl.CodeInvalid, "RequireKeys: got true, needs Access or a Token to check keys by")
	}
	if err := c.Control.Validate(); err != nil {
		return err
	}
	if err := c.Capture.Validate(); err != nil {
		return err
	}
	if err := c.Sessions.Check(); err != nil {
		return err
	}
	for _, given := range c.ForwardPaths {
		if err := CheckForwardPath(given); err != nil {
			return agl.Errorf(agl.CodeInvalid, "ForwardPaths: %w", err)
		}
	}
	if secret, err := upstream.Secret(c.KeySecret, c.LookupEnv); err == nil {
		if err := CheckKeySecret(secret); err != nil {
			return agl.Errorf(agl.CodeInvalid, "KeySecret: %w", err)
		}
	}
	if c.PublicURL == "" {
		return nil
	}
	if err := CheckPublicURL(c.PublicURL); err != nil {
		return agl.Errorf(agl.CodeInvalid, "PublicURL: %w", err)
	}
	return upstream.CheckURL("PublicURL", c.PublicURL)
}

// CheckForwardPath refuses what cannot be one of [Config.ForwardPaths] with CodeInvalid.
func CheckForwardPath(given string) error {
	if parseRoute(given).path != given || !strings.HasPrefix(given, "/") || strings.ContainsAny(given, "%?#\\") || path.Clean(given) != given || exchange.Generates(given) {
		return agl.Errorf(agl.CodeInvalid, "got %q, must be a plain path without /v1, such as /rerank", given)
	}
	return nil
}

// Sessions configures the recording of live programs, whose calls belong to no attempt of
// a runner. The zero value records none.
type Sessions struct {
	// Store keeps the sessions as rollouts. Usually it is Config.Spans.
	Store agl.Store
	// IdleTimeout ends a session that has made no call for this long; 0 records no sessions.
	IdleTimeout time.Duration
	// Events maps each event that an application may report about a session to its reward.
	Events map[string]float64
	// Judge and Program, if not nil, give each session rewards when it ends.
	Judge   *extract.Judge
	Program *extract.Program
	// Releases says which models and resources serve the sessions that begin now; nil leaves
	// the choice to the sessions.
	Releases Releases
	// RewardWindow is how long a session that has ended waits for its reward, see
	// agl.MetadataRewardWindow; 0 leaves it to the collector.
	RewardWindow time.Duration
	// Ready, if not nil, is closed when the models are served. Until then no session begins or makes a call, so that each has
	// the version that is meant for it: such requests wait for 2 s at most, and are then refused with status 503.
	Ready <-chan struct{}
}

// Check refuses invalid settings with CodeInvalid.
func (s *Sessions) Check() error {
	switch {
	case s.IdleTimeout < 0 || s.RewardWindow < 0:
		return agl.Errorf(agl.CodeInvalid, "Sessions: got an IdleTimeout of %s and a RewardWindow of %s, must not be negative", s.IdleTimeout, s.RewardWindow)
	case s.IdleTimeout == 0 && s.RewardWindow > 0:
		return agl.Errorf(agl.CodeInvalid, "Sessions: got a RewardWindow of %s, needs an IdleTimeout, without which no session is recorded", s.RewardWindow)
	}
	if s.IdleTimeout == 0 && (len(s.Events) > 0 || s.Judge != nil || s.Program != nil) {
		return agl.Errorf(agl.CodeInvalid, "Sessions: Events, Judge or Program is given, needs an IdleTimeout, without which no session is recorded")
	}
	for name, value := range s.Events {
		if name == "" || math.IsNaN(value) || math.IsInf(value, 0) {
			return agl.Errorf(agl.CodeInvalid, "Sessions: Events: got %q: %v, must be a name and a finite number", name, value)
		}
	}
	if s.Judge != nil {
		if err := s.Judge.Check(); err != nil {
			return agl.Errorf(agl.CodeInvalid, "Sessions: Judge: %w", err)
		}
	}
	if s.Program != nil {
		if err := s.Program.Check(); err != nil {
			return agl.Errorf(agl.CodeInvalid, "Sessions: Program: %w", err)
		}
	}
	return nil
}

func (c *Config) upstream() upstream.Config {
	return upstream.Config{
		Models: c.Models, LookupEnv: c.LookupEnv, Transport: c.Transport, MaxReplyBytes: c.MaxReplyBytes, QueueTimeout: c.QueueTimeout,
		PauseTimeout: c.PauseTimeout, PauseQueue: c.PauseQueue, Retry: c.Retry, Health: c.Health, IdleTimeout: c.IdleTimeout, CacheBytes: c.CacheBytes, Logger: c.Logger,
	}
}

func (c *Config) capture(cancelled, unknown func(rolloutID, attemptID string)) capture.Config {
	return capture.Config{
		Spans: c.Spans, Mode: c.Capture, MemoryBytes: c.CaptureBytes, QueueTimeout: c.QueueTimeout, SpoolDir: c.SpoolDir, SpoolBytes: c.SpoolBytes,
		StoreTimeout: c.StoreTimeout, StoreRetry: c.StoreRetry, WriteDelay: c.WriteDelay, Logger: c.Logger, Cancelled: cancelled, Unknown: unknown,
	}
}

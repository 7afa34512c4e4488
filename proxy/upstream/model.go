package upstream

import (
	"cmp"
	"math"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/internal/secret"
)

// API is the interface that a backend speaks.
type API string

// The interfaces of backends.
const (
	// APIOpenAI is OpenAI's, as inference engines (vLLM, SGLang, llama.cpp), the
	// embedded policy and most hosted services speak it.
	APIOpenAI API = ""
	// APIAzure is OpenAI's as Azure serves it: the base URL is the resource's, such
	// as https://NAME.openai.azure.com, the backend model is the deployment, and the
	// key goes into the header api-key.
	APIAzure API = "azure"
	// APIAnthropic is Anthropic's Messages.
	APIAnthropic API = "anthropic"
)

// UnmarshalText reads a name, which for OpenAI's is openai or empty.
func (a *API) UnmarshalText(name []byte) error {
	*a = API(name)
	if *a == "openai" {
		*a = APIOpenAI
	}
	return nil
}

// Model is one backend of a model name. Several entries of one name are replicas:
// the calls of a rollout stay on one of them, and rollouts are spread over all.
type Model struct {
	Name string `json:"name"` // what agents ask for
	// BaseURL is that of the backend's API, usually ending in /v1. Its query, if it has one, is sent with each request;
	// a parameter of the agent's request takes the place of those with its name.
	BaseURL string `json:"base_url"`
	// BackendModel is what the backend calls the model; empty means Name.
	BackendModel string `json:"backend_model,omitzero"`
	// APIKey is sent to the backend in the header of its API; "env:NAME" is resolved
	// at each call. Empty forwards the agent's own key.
	APIKey string `json:"api_key,omitzero"`
	// Version says which weights these are, usually a resources id. It is recorded
	// with each call.
	Version string `json:"version,omitzero"`
	// Resources reserves the backend for the rollouts that were enqueued with these
	// resources. No other backend of that name answers them, so that a rollout keeps the
	// weights that it began with.
	Resources string `json:"resources,omitzero"`
	// TextOnly marks a backend that rejects requests for token ids and
	// log-probabilities, as hosted services do. The proxy does not ask it for them.
	TextOnly bool `json:"text_only,omitzero"`
	// API is what the backend speaks; empty is OpenAI's.
	API API `json:"api,omitzero"`
	// APIVersion is the api-version of Azure (empty is 2024-10-21) or the
	// anthropic-version for agents that send none (empty is 2023-06-01). It is ignored
	// for OpenAI's API.
	APIVersion string `json:"api_version,omitzero"`
	// ChatOnly marks a backend that speaks Chat Completions only, such as the embedded
	// policy: calls of Responses are translated for it. They are also translated when
	// token ids are wanted, because engines return those for chat only.
	ChatOnly bool `json:"chat_only,omitzero"`
	// Replay marks a backend that refuses token ids while it streams, as SGLang does
	// for chat: a recorded call is made without streaming, and the reply is replayed
	// to the agent as a stream. The proxy recognizes SGLang's refusal and treats such a
	// backend like this from then on.
	Replay bool `json:"replay,omitzero"`
	// CacheSalt sends the version as cache_salt with requests that have none, so that
	// an engine whose weights change in place does not reuse prefixes that it computed
	// with the old weights.
	CacheSalt bool `json:"cache_salt,omitzero"`
	// Supervised marks a backend that this program starts again when it dies: its calls wait in Config.Transport
	// meanwhile, so failed ones never mean that it is down (see Health).
	Supervised bool `json:"-"`
	// Limits bound the calls to this backend.
	Limits Limits `json:"limits,omitzero"`
	// Price is what its tokens cost; nil is unknown. Keys whose budget is in dollars may
	// only call models with a price.
	Price *Price `json:"price,omitzero"`
	// HealthURL, if set, is requested with GET every Health.ProbeInterval to see
	// whether the backend is up. A path such as /health starts at the root of BaseURL.
	HealthURL string `json:"health_url,omitzero"`
	// PauseURL and ResumeURL, if set, are requested with POST by [Pool.Pause] and
	// [Pool.Resume], so that the engine stops and continues as well: for vLLM
	// /pause?mode=keep and /resume, for SGLang /pause_generation and
	// /continue_generation. Paths start at the root of BaseURL.
	PauseURL  string `json:"pause_url,omitzero"`
	ResumeURL string `json:"resume_url,omitzero"`
}

// Price is what tokens cost, in dollars per million.
type Price struct {
	Prompt     float64 `json:"prompt"`
	Completion float64 `json:"completion"`
}

// maxPrice bounds a price, in dollars per million tokens.
const maxPrice = 1e6

// NanoUSD returns what tokens cost, in billionths of a dollar, rounded up. A nil price costs nothing.
func (p *Price) NanoUSD(prompt, completion int64) int64 {
	if p == nil {
		return 0
	}
	const nanoPerToken = 1000 // of a price of one dollar per million
	nano := math.Ceil((float64(prompt)*p.Prompt + float64(completion)*p.Completion) * nanoPerToken)
	return int64(min(nano, math.MaxInt64/8)) //nolint:mnd // sums of it must not overflow
}

// Validate refuses an invalid price with CodeInvalid. Its message begins with field.
func (p *Price) Validate(field string) error {
	if p == nil || p.Prompt >= 0 && p.Completion >= 0 && p.Prompt <= maxPrice && p.Completion <= maxPrice {
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "%s: got prompt %v and completion %v, must be dollars per million tokens, 0 to %.0f", field, p.Prompt, p.Completion, maxPrice)
}

// Salt returns the cache_salt of requests to the backend; empty is none.
func (m *Model) Salt() string {
	if m.CacheSalt {
		return m.Version
	}
	return ""
}

// Validate reports what is wrong with a model: CodeInvalid, with the field, the
// value and what is allowed.
func (m *Model) Validate() error {
	if m.Name == "" {
		return agl.Errorf(agl.CodeInvalid, "name: empty, must be the name that agents ask for")
	}
	_, err := newBackend(*m)
	return err
}

// backend is a valid model with its parsed URLs and its state.
type backend struct {
	Model
	base                  *url.URL
	health, pause, resume *url.URL // nil where there is none
	seed                  uint64   // for rendezvous hashing
	state                 *state
}

// state is the running state of a backend. It survives SetModels, so that new weights
// behind the same base URL inherit it.
type state struct {
	load       atomic.Int64           // calls that run on it or wait for it
	tries      atomic.Int64           // requests sent to it
	missed     atomic.Int32           // failed probes in a row
	unstreamed atomic.Bool            // its streams do not have all token ids; see Target.Unstreamed
	encoded    atomic.Bool            // it has sent an encoded reply, and was named in the log
	failure    atomic.Pointer[string] // how a try failed last; nil before
	breaker    circuitBreaker
	limits     limiter
}

// maxMissed is the number of consecutive failed probes after which a backend is down.
const maxMissed = 2

// downFor returns how long a backend gets no calls; 0 means that it is up.
func (s *state) downFor(now time.Time) time.Duration {
	if s.missed.Load() >= maxMissed {
		return max(s.breaker.wait(now), time.Second)
	}
	return s.breaker.wait(now)
}

// url is the address of the backend for logs, labels and records: without its
// password, or its user that may be a token, and without its query, which may have a key.
func (b *backend) url() string {
	at := *b.base
	at.RawQuery = ""
	return secret.RedactURL(at.String())
}

// parseBase parses a base URL without the slashes at the end of its path.
func parseBase(raw string) (*url.URL, error) {
	end := len(raw)
	if at := strings.IndexAny(raw, "?#"); at >= 0 {
		end = at
	}
	u, err := url.Parse(strings.TrimRight(raw[:end], "/") + raw[end:])
	if err == nil {
		u.ForceQuery = false
	}
	return u, err
}

func newBackend(m Model) (*backend, error) {
	field := func(name string) string { return "model " + m.Name + ": " + name }
	if err := CheckURL(field("base_url"), m.BaseURL); err != nil {
		return nil, err
	}
	if m.APIKey == "env:" {
		return nil, agl.Errorf(agl.CodeInvalid, `%s: got "env:", must be "env:NAME" or a key`, field("api_key"))
	}
	switch m.API {
	case APIOpenAI, APIAzure, APIAnthropic:
	default:
		return nil, agl.Errorf(agl.CodeInvalid, "%s: got %q, must be \"openai\", %q or %q", field("api"), string(m.API), string(APIAzure), string(APIAnthropic))
	}
	if m.CacheSalt && (m.API != APIOpenAI || m.TextOnly) {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: must not be set for services that do not know it (text_only, azure, anthropic)", field("cache_salt"))
	}
	if err := m.Price.Validate(field("price")); err != nil {
		return nil, err
	}
	l := &m.Limits
	if err := bounds.NotNegative(field("limits."), bounds.Number("in_flight", l.InFlight),
		bounds.Number("requests_per_minute", l.RequestsPerMinute), bounds.Number("tokens_per_minute", l.TokensPerMinute)); err != nil {
		return nil, err
	}
	base, err := parseBase(m.BaseURL)
	if err != nil {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: %w", field("base_url"), err)
	}
	for _, call := range [...]string{"/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"} {
		if strings.HasSuffix(base.Path, call) { // copied from a curl command
			return nil, agl.Errorf(agl.CodeInvalid, "%s: got the path %q, must end before %s, which the calls append", field("base_url"), base.Path, strings.TrimPrefix(call, "/v1"))
		}
	}
	b := &backend{Model: m, base: base}
	b.BackendModel = cmp.Or(m.BackendModel, m.Name)
	for _, u := range [...]struct {
		name, raw string
		to        **url.URL
	}{{"health_url", m.HealthURL, &b.health}, {"pause_url", m.PauseURL, &b.pause}, {"resume_url", m.ResumeURL, &b.resume}} {
		if u.raw == "" {
			continue
		}
		at, err := base.Parse(u.raw)
		if err != nil {
			return nil, agl.Errorf(agl.CodeInvalid, "%s: not a URL or a path such as /health: %w", field(u.name), err)
		}
		if err := CheckURL(field(u.name), at.String()); err != nil {
			return nil, err
		}
		*u.to = at
	}
	return b, nil
}

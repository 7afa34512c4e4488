package gateway

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/bounds"
	"github.com/agl-go/agl/proxy/upstream"
)

// Config configures a [Gateway]. Store is required.
type Config struct {
	// Store needs the capabilities CreateRollouts, ReviseRollout and QuerySpansJSON, and
	// must be an agl.DocumentStore, too.
	Store agl.Store
	// Key is required in every request but GET /healthz, as a bearer token or in the header X-Api-Key. If it is
	// empty, every request is admitted.
	Key string
	// Access checks other keys than Key; nil accepts none.
	Access access.Checker
	// Failed limits how often an address may send a wrong key; nil means no limit.
	Failed *access.Throttle
	// Budgets counts what keys of Access with limits use; nil refuses such keys.
	Budgets *access.Keys
	// Audit records what callers do with the scope train; nil records nothing.
	Audit *access.Audit
	// Origins are the origins whose web pages may change something, besides this server's own; "*" means every
	// origin. AllowedHosts are the names under which the server may be called, besides addresses and localhost; nil
	// means every name. See httpserver.Guard.
	Origins      []string
	AllowedHosts []string
	// Model is the name under which calls find their backends among the registered models, whatever model they ask
	// for. Empty is DefaultModel.
	Model string
	// Price is the price of Model's tokens, for keys with a budget in dollars; nil refuses their calls.
	Price *upstream.Price
	// TrainTemperature and ValTemperature replace the temperature of calls. Null is 1,
	// and 0.7 for validation.
	TrainTemperature, ValTemperature agl.Null[float64]
	// NoLogprobs does not ask backends for log-probabilities in training.
	NoLogprobs bool
	// RoutedExperts asks backends for the experts of each token in training.
	RoutedExperts bool
	// Runners queues rollouts for the runners of the store if their config names neither a local agent nor a
	// Kubernetes job. Without it, and for all other rollouts, only the controllers of this API run them.
	Runners bool
	// Streams lets agents ask for streams, which the original server refuses.
	Streams bool
	// Translate serves OpenAI's Responses below openai/v1 and Anthropic's Messages below
	// anthropic/v1, too, as chat completions. The original server does not have them.
	Translate bool
	// Transport makes the requests to backends; nil is one of upstream.NewTransport.
	Transport http.RoundTripper
	// Timeout bounds the wait for the head of a backend's reply, and then for its body. 0
	// is 5 minutes.
	Timeout time.Duration
	// MaxBodyBytes bounds the bodies of requests and of backends' replies. 0 is 64 MiB.
	MaxBodyBytes int64
	// Logger receives errors that clients do not see; nil discards them.
	Logger *slog.Logger
}

// DefaultModel is the default of Config.Model, that of Agent-lightning v1.0.
const DefaultModel = "Qwen/Qwen2.5-7B-Instruct"

func (c Config) withDefaults() Config {
	c.Model = cmp.Or(c.Model, DefaultModel)
	c.TrainTemperature = agl.Some(c.TrainTemperature.Or(1))
	c.ValTemperature = agl.Some(c.ValTemperature.Or(0.7))
	c.Timeout = cmp.Or(c.Timeout, 5*time.Minute)
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 64<<20)
	if c.Transport == nil {
		c.Transport = upstream.NewTransport()
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validate() error {
	if c.Store == nil {
		return agl.Errorf(agl.CodeInvalid, "gateway: Store: got nil, must be a store")
	}
	if can := c.Store.Capabilities(); !can.CreateRollouts || !can.ReviseRollout || !can.QuerySpansJSON {
		return agl.Errorf(agl.CodeInvalid, "gateway: Store: got one with the capabilities %+v, must have CreateRollouts, ReviseRollout and QuerySpansJSON", can)
	}
	if _, ok := c.Store.(agl.DocumentStore); !ok {
		return agl.Errorf(agl.CodeInvalid, "gateway: Store: got a %T, must be an agl.DocumentStore", c.Store)
	}
	if err := c.Price.Validate("Price"); err != nil {
		return agl.Errorf(agl.CodeInvalid, "gateway: %w", err)
	}
	for _, t := range []struct {
		name string
		of   agl.Null[float64]
	}{{"TrainTemperature", c.TrainTemperature}, {"ValTemperature", c.ValTemperature}} {
		if !(t.of.V >= 0 && t.of.V <= maxTemperature) {
			return agl.Errorf(agl.CodeInvalid, "gateway: %s: got %v, must be between 0 and %d", t.name, t.of.V, maxTemperature)
		}
	}
	return bounds.NotNegative("gateway: ", bounds.Number("Timeout", c.Timeout), bounds.Number("MaxBodyBytes", c.MaxBodyBytes))
}

// maxTemperature is above what any engine accepts.
const maxTemperature = 100

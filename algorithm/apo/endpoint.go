package apo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/time/rate"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
)

// EndpointConfig configures [NewEndpoint].
type EndpointConfig struct {
	// BaseURL is that of an OpenAI-compatible API and ends before /chat/completions: https://api.openai.com/v1, or that of
	// agl's LLM proxy. Required.
	BaseURL string
	// Model to ask for. Required.
	Model string
	// APIKey is sent as a bearer token; empty sends none.
	APIKey string
	// HTTPClient makes the requests; nil means one without a timeout of its own.
	HTTPClient *http.Client
	// RequestsPerSecond bounds the requests, repeated ones included; zero means no bound.
	RequestsPerSecond float64
	// Timeout of one request; zero means 5 minutes.
	Timeout time.Duration
	// MaxAttempts is how often a request is made in all; zero means 6.
	MaxAttempts int
	// SendSeed sends Request.Seed, which not every API accepts.
	SendSeed bool
}

// Endpoint is a [Model] behind an OpenAI-compatible API. A request without an answer, or with status 408, 429 or 5xx, is
// retried with exponential backoff from 0.5 s to 30 s with jitter, and not before the time of a Retry-After header. If a
// reply has no usage, a token is counted for every four bytes of request and reply, so that a budget ends all the same. It
// is safe for concurrent use.
type Endpoint struct {
	cfg     EndpointConfig
	limiter *rate.Limiter
}

var _ Model = (*Endpoint)(nil)

const (
	// longestRetryAfter bounds what a server may ask for; beyond it the call fails,
	// rather than let the search sleep for hours.
	longestRetryAfter = 10 * time.Minute
	largestReply      = 16 << 20
)

func endpointBackoff() backoff.Exponential {
	return backoff.Exponential{First: 500 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.5}
}

// NewEndpoint makes an Endpoint. A config out of range is agl.ErrInvalid.
func NewEndpoint(cfg EndpointConfig) (*Endpoint, error) {
	if u, err := url.Parse(cfg.BaseURL); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, invalid("BaseURL is %q, must be an http or https URL", cfg.BaseURL)
	}
	if cfg.Model == "" {
		return nil, invalid("Model is empty; the name of a model is required")
	}
	if cfg.RequestsPerSecond < 0 || cfg.Timeout < 0 || cfg.MaxAttempts < 0 {
		return nil, invalid("RequestsPerSecond %v, Timeout %v, MaxAttempts %d: none may be negative", cfg.RequestsPerSecond, cfg.Timeout, cfg.MaxAttempts)
	}
	cfg.HTTPClient = httpserver.ByMethod(cmp.Or(cfg.HTTPClient, http.DefaultClient))
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Minute)
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, 6)
	limit := rate.Inf
	if cfg.RequestsPerSecond > 0 {
		limit = rate.Limit(cfg.RequestsPerSecond)
	}
	return &Endpoint{cfg: cfg, limiter: rate.NewLimiter(limit, 1)}, nil
}

// chatRequest is the body of POST /chat/completions.
type chatRequest struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages"`
	// Temperature is left out at 1, the API's default: some models accept no other and refuse the field.
	Temperature agl.Null[float64] `json:"temperature,omitzero"`
	Seed        agl.Null[uint64]  `json:"seed,omitzero"`
}

// chatReply holds the members of the answer that are used.
type chatReply struct {
	Choices []struct {
		Message struct {
			Content agl.Null[string] `json:"content"`
		} `json:"message"`
		FinishReason agl.Null[string] `json:"finish_reason"`
	} `json:"choices"`
	Usage Usage `json:"usage"`
}

// Complete implements [Model]. A status that is not retried, and a failure of the last attempt, are errors:
// agl.ErrUnauthorized for 401 and 403, agl.ErrInvalid for other 4xx, else agl.ErrUnavailable.
func (e *Endpoint) Complete(ctx context.Context, r Request) (Reply, error) {
	body := chatRequest{Model: e.cfg.Model, Messages: r.Messages}
	if r.Temperature != 1 {
		body.Temperature = agl.Some(r.Temperature)
	}
	if e.cfg.SendSeed {
		body.Seed = agl.Some(r.Seed)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return Reply{}, fmt.Errorf("encode request: %w", err)
	}
	for attempt := 1; ; attempt++ {
		if err := e.limiter.Wait(ctx); err != nil {
			return Reply{}, fmt.Errorf("wait for the rate limit: %w", err)
		}
		reply, after, err := e.post(ctx, data)
		if err == nil || !errors.Is(err, agl.ErrUnavailable) || ctx.Err() != nil {
			return reply, err
		}
		if attempt == e.cfg.MaxAttempts || after > longestRetryAfter {
			return Reply{}, fmt.Errorf("model %s, attempt %d of %d: %w", e.cfg.Model, attempt, e.cfg.MaxAttempts, err)
		}
		if err := backoff.Sleep(ctx, max(endpointBackoff().Delay(attempt-1), after)); err != nil {
			return Reply{}, err
		}
	}
}

// post makes the request once. A failure that is worth a retry is agl.ErrUnavailable;
// after is the delay that the server asks for.
func (e *Endpoint) post(ctx context.Context, body []byte) (reply Reply, after time.Duration, err error) {
	ctx, done := context.WithTimeout(ctx, e.cfg.Timeout)
	defer done()
	target, err := url.Parse(e.cfg.BaseURL)
	if err != nil {
		return Reply{}, 0, fmt.Errorf("BaseURL: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target.JoinPath("chat/completions").String(), bytes.NewReader(body))
	if err != nil {
		return Reply{}, 0, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if e.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+e.cfg.APIKey)
	}
	res, err := e.cfg.HTTPClient.Do(req)
	if err != nil {
		return Reply{}, 0, agl.Errorf(agl.CodeUnavailable, "ask the model: %w", err)
	}
	defer res.Body.Close()
	if redirected := httpserver.Redirected(req, res, "the model"); redirected != "" {
		return Reply{}, 0, invalid("%s", redirected)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, largestReply))
	if err != nil {
		return Reply{}, 0, agl.Errorf(agl.CodeUnavailable, "read the model's reply: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		if e.cfg.APIKey != "" { // some servers answer with the key that they refuse
			data = bytes.ReplaceAll(data, []byte(e.cfg.APIKey), []byte("[the key]"))
		}
		return Reply{}, backoff.RetryAfter(res.Header, time.Now()), statusError(res.StatusCode, data)
	}
	var answer chatReply
	if err := json.Unmarshal(data, &answer); err != nil {
		return Reply{}, 0, agl.Errorf(agl.CodeUnavailable, "read the model's reply: %w", err)
	}
	if len(answer.Choices) > 0 {
		reply.Text = answer.Choices[0].Message.Content.V
		reply.CutOff = answer.Choices[0].FinishReason.V == "length"
	}
	if reply.Usage = answer.Usage; reply.Usage == (Usage{}) {
		reply.Usage = Usage{PromptTokens: estimateTokens(len(body)), CompletionTokens: estimateTokens(len(reply.Text))}
	}
	return reply, 0, nil
}

// estimateTokens estimates the tokens of a text, at four bytes per token.
func estimateTokens(size int) int64 {
	const perToken = 4
	return int64((size + perToken - 1) / perToken)
}

func statusError(status int, body []byte) error {
	code := agl.CodeInvalid
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		code = agl.CodeUnavailable
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		code = agl.CodeUnauthorized
	}
	const most = 500
	return agl.Errorf(code, "the model's API answered %d: %s", status, shorten(strings.TrimSpace(string(body)), most))
}

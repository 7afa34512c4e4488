package apo_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// answers is a server that gives one answer after another.
type answers struct {
	list   []answer
	bodies []string
	keys   []string
	urls   []string
	at     []time.Duration // since the first request
	start  time.Time
}

type answer struct {
	status     int // 0 is no answer
	body       string
	retryAfter string
	location   string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if a.start.IsZero() {
		a.start = time.Now()
	}
	n := len(a.bodies)
	a.bodies, a.keys, a.at = append(a.bodies, string(body)), append(a.keys, r.Header.Get("Authorization")), append(a.at, time.Since(a.start))
	a.urls = append(a.urls, r.URL.String())
	next := a.list[min(n, len(a.list)-1)]
	if next.status == 0 {
		return nil, errors.New("connection refused")
	}
	header := http.Header{}
	if next.retryAfter != "" {
		header.Set("Retry-After", next.retryAfter)
	}
	if next.location != "" {
		header.Set("Location", next.location)
	}
	return &http.Response{StatusCode: next.status, Header: header, Body: io.NopCloser(strings.NewReader(next.body)), Request: r}, nil
}

const good = `{"choices":[{"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4}}`

func ask(ctx context.Context, t *testing.T, a *answers, cfg apo.EndpointConfig, temperature float64) (apo.Reply, error) {
	t.Helper()
	cfg.BaseURL, cfg.Model, cfg.HTTPClient = "https://models.example/v1/", "m", &http.Client{Transport: a}
	e, err := apo.NewEndpoint(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e.Complete(ctx, apo.Request{Messages: []apo.Message{{Role: "user", Content: "hello"}}, Temperature: temperature, Seed: 5})
}

// The query of a base URL stays behind the path.
func TestEndpointWithAQuery(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"https://models.example/v1?api-version=1":  "https://models.example/v1/chat/completions?api-version=1",
		"https://models.example/v1/?api-version=1": "https://models.example/v1/chat/completions?api-version=1",
		"https://models.example":                   "https://models.example/chat/completions",
		"https://models.example/a%2Fb/":            "https://models.example/a%2Fb/chat/completions",
	} {
		a := &answers{list: []answer{{status: 200, body: good}}}
		e, err := apo.NewEndpoint(apo.EndpointConfig{BaseURL: base, Model: "m", HTTPClient: &http.Client{Transport: a}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Complete(t.Context(), apo.Request{}); err != nil {
			t.Fatal(err)
		}
		if got := a.urls[0]; got != want {
			t.Errorf("%s: asked %s, want %s", base, got, want)
		}
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	a := &answers{list: []answer{{status: 200, body: good}}}
	reply, err := ask(t.Context(), t, a, apo.EndpointConfig{APIKey: "key", SendSeed: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(apo.Reply{Text: "hi", Usage: apo.Usage{PromptTokens: 3, CompletionTokens: 1}}, reply); diff != "" {
		t.Errorf("reply (-want +got):\n%s", diff)
	}
	cut := &answers{list: []answer{{status: 200, body: strings.Replace(good, `"hi"}`, `"hi"},"finish_reason":"length"`, 1)}}}
	if reply, err = ask(t.Context(), t, cut, apo.EndpointConfig{}, 1); err != nil || !reply.CutOff {
		t.Errorf("cut off %t, %v; want a reply that is cut off", reply.CutOff, err)
	}
	want := `{"model":"m","messages":[{"role":"user","content":"hello"}],"temperature":0,"seed":5}`
	if a.bodies[0] != want || a.keys[0] != "Bearer key" {
		t.Errorf("asked %s with %q, want %s", a.bodies[0], a.keys[0], want)
	}
	if _, err := ask(t.Context(), t, a, apo.EndpointConfig{}, 1); err != nil {
		t.Fatal(err)
	}
	if want := `{"model":"m","messages":[{"role":"user","content":"hello"}]}`; a.bodies[1] != want || a.keys[1] != "" {
		t.Errorf("asked %s with %q, want %s and no key", a.bodies[1], a.keys[1], want)
	}
	silent := &answers{list: []answer{{status: 200, body: `{"choices":[{"message":{"content":"hello"}}]}`}}}
	if reply, err := ask(t.Context(), t, silent, apo.EndpointConfig{}, 1); err != nil || reply.Usage != (apo.Usage{PromptTokens: 15, CompletionTokens: 2}) {
		t.Errorf("got %+v, %v; want the tokens guessed from %d and 5 bytes", reply.Usage, err, len(silent.bodies[0]))
	}
	for _, body := range []string{`{"choices":[]}`, `{"choices":[{"message":{"content":null}}]}`} {
		if reply, err := ask(t.Context(), t, &answers{list: []answer{{status: 200, body: body}}}, apo.EndpointConfig{}, 1); err != nil || reply.Text != "" {
			t.Errorf("%s: got %+v, %v; want an empty text", body, reply, err)
		}
	}
}

// A redirect that makes a GET of the request, as from http to https, is told with its target.
func TestEndpointRedirects(t *testing.T) {
	t.Parallel()
	a := &answers{list: []answer{{status: 301, location: "https://other.example/v1"}, {status: 200, body: good}}}
	_, err := ask(t.Context(), t, a, apo.EndpointConfig{}, 1)
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), `"https://other.example/v1"`) || len(a.bodies) != 1 {
		t.Errorf("%v after %d requests", err, len(a.bodies))
	}
}

func TestEndpointRetries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		list     []answer
		requests int
		atLeast  time.Duration
		atMost   time.Duration
		err      error
	}{
		"fine":            {[]answer{{status: 200, body: good}}, 1, 0, 0, nil},
		"away, then back": {[]answer{{}, {status: 503}, {status: 408}, {status: 200, body: "<html>"}, {status: 200, body: good}}, 5, 3750 * time.Millisecond, 7500 * time.Millisecond, nil},
		"rate limit":      {[]answer{{status: 429, retryAfter: "20"}, {status: 200, body: good}}, 2, 20 * time.Second, 20 * time.Second, nil},
		"for hours":       {[]answer{{status: 429, retryAfter: "7200"}}, 1, 0, 0, agl.ErrUnavailable},
		"away for good":   {[]answer{{status: 500, body: "oops"}}, 6, 7750 * time.Millisecond, 15500 * time.Millisecond, agl.ErrUnavailable},
		"bad request":     {[]answer{{status: 400, body: "no such model"}}, 1, 0, 0, agl.ErrInvalid},
		"wrong key":       {[]answer{{status: 401}}, 1, 0, 0, agl.ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &answers{list: tt.list}
				reply, err := ask(t.Context(), t, a, apo.EndpointConfig{}, 1)
				if !errors.Is(err, tt.err) || (err == nil && reply.Text != "hi") {
					t.Errorf("got %+v, %v; want %v", reply, err, tt.err)
				}
				last := a.at[len(a.at)-1]
				if len(a.at) != tt.requests || last < tt.atLeast || last > tt.atMost {
					t.Errorf("requests at %v; want %d, the last between %v and %v", a.at, tt.requests, tt.atLeast, tt.atMost)
				}
			})
		})
	}
}

func TestEndpointRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &answers{list: []answer{{status: 429}, {status: 200, body: good}}}
		if _, err := ask(t.Context(), t, a, apo.EndpointConfig{RequestsPerSecond: 0.1}, 1); err != nil {
			t.Fatal(err)
		}
		// The limiter reckons in float64: a nanosecond may be missing.
		if a.at[1].Round(time.Millisecond) != 10*time.Second {
			t.Errorf("the second request came after %v, want 10 s", a.at[1])
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := ask(ctx, t, &answers{list: []answer{{}}}, apo.EndpointConfig{}, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

// TestEndpointThroughProxy: the model may be one of our proxy's, which wants its
// token; what the proxy cannot help is tried again.
func TestEndpointThroughProxy(t *testing.T) {
	t.Parallel()
	backend := proxytest.NewServer(proxytest.First(1, proxytest.Fails(http.StatusServiceUnavailable, "loading"),
		proxytest.VLLM(func(prompt string, _ int) string { return "more of " + prompt })))
	t.Cleanup(backend.Close)
	gateway, err := proxy.New(proxy.Config{
		Models: []proxy.Model{{Name: "writer", BaseURL: backend.BaseURL()}}, Token: "token", KeySecret: "secret of the run", Retry: proxy.Retry{Attempts: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	gateway.Start(context.WithoutCancel(t.Context()))
	server := httptest.NewServer(gateway)
	t.Cleanup(func() {
		server.Close()
		if err := gateway.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		key  string
		want error
	}{{"token", nil}, {"wrong", agl.ErrUnauthorized}} {
		e, err := apo.NewEndpoint(apo.EndpointConfig{BaseURL: server.URL + "/v1", Model: "writer", APIKey: tt.key, HTTPClient: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := e.Complete(t.Context(), apo.Request{Messages: []apo.Message{{Role: "user", Content: "this"}}, Temperature: 1})
		if !errors.Is(err, tt.want) {
			t.Fatalf("%s: got %v, want %v", tt.key, err, tt.want)
		}
		if err == nil && (reply.Text != "more of this" || reply.Usage.PromptTokens == 0 || reply.Usage.CompletionTokens == 0) {
			t.Errorf("got %+v", reply)
		}
	}
	if got := len(backend.Requests()); got != 2 {
		t.Errorf("the model was asked %d times, want twice", got)
	}
}

func TestNewEndpointRejects(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]apo.EndpointConfig{
		`apo: BaseURL is "localhost", must be an http or https URL`:                  {BaseURL: "localhost", Model: "m"},
		"apo: Model is empty; the name of a model is required":                       {BaseURL: "http://localhost/v1"},
		"apo: RequestsPerSecond 0, Timeout 0s, MaxAttempts -1: none may be negative": {BaseURL: "http://localhost/v1", Model: "m", MaxAttempts: -1},
	} {
		if _, err := apo.NewEndpoint(cfg); !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

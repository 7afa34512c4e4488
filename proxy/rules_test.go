package proxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// rated is a proxy with the models m and dear, and the requests that have reached a backend.
func rated(t *testing.T, edit func(c *proxy.Config)) (p *proxy.Proxy, reached *atomic.Int64) {
	t.Helper()
	reached = &atomic.Int64{}
	p, _ = plugged(t, func(*http.Request) (*http.Response, error) {
		reached.Add(1)
		return ok(), nil
	}, func(c *proxy.Config) {
		dear := c.Models[0]
		dear.Name = "dear"
		c.Models = append(c.Models, dear)
		c.ForwardPaths = []string{"/rerank"}
		if edit != nil {
			edit(c)
		}
	}, "backend")
	return p, reached
}

// expect sends a request and wants a status, and the code of an error.
func expect(t *testing.T, p *proxy.Proxy, key, path, body string, status int, code string) *httptest.ResponseRecorder {
	t.Helper()
	header := http.Header{}
	if key != "" {
		header.Set("Authorization", "Bearer "+key)
	}
	w := ask(t.Context(), p, path, body, header)
	if w.Code != status || !strings.Contains(w.Body.String(), `"`+code+`"`) && code != "" {
		t.Errorf("%s %s: %d %s, want %d %s", path, body, w.Code, w.Body, status, code)
	}
	return w
}

// models returns the answer to a list of models.
func models(t *testing.T, p *proxy.Proxy, key, path string) string {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+key)
	p.ServeHTTP(w, r)
	return w.Body.String()
}

// dearly are requests for a model that is not listed, by every way to a backend.
func dearly(prefix string) [][2]string {
	const body = `{"model":"dear","messages":[{"role":"user","content":"hi"}],"input":"hi","prompt":"hi","max_tokens":1}`
	requests := [][2]string{
		{prefix + "/v1/chat/completions", `{"mod\u0065l":"dear","messages":[]}`},
	}
	for _, path := range []string{"chat/completions", "completions", "responses", "messages", "messages/count_tokens", "embeddings", "rerank"} {
		requests = append(requests, [2]string{prefix + "/v1/" + path, body})
	}
	return requests
}

// An attempt may ask for the models of its control's list only, and as often as its rate
// says; other attempts have rates of their own.
func TestAttemptRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, reached := rated(t, func(c *proxy.Config) {
			c.Control.Rules = access.Rules{Models: []string{"m"}, CallsPerMinute: 2}
		})
		for _, r := range dearly("/rollout/ro-1/attempt/at-1") {
			expect(t, p, "", r[0], r[1], http.StatusForbidden, "model_forbidden")
		}
		for _, body := range []string{`{"model":"m","model":"dear","messages":[]}`, `{"model":"dear","mod\u0065l":"m","messages":[]}`, `{"model":"m","\u006dodel":"dear","messages":[]}`} {
			expect(t, p, "", attemptPath, body, http.StatusBadRequest, "invalid_body")
		}
		if n := reached.Load(); n != 0 {
			t.Errorf("%d calls of a model that is not allowed have reached a backend", n)
		}
		if list := models(t, p, "", "/rollout/ro-1/attempt/at-1/v1/models"); strings.Contains(list, "dear") || !strings.Contains(list, `"m"`) {
			t.Errorf("the models are %s", list)
		}
		if one := models(t, p, "", "/rollout/ro-1/attempt/at-1/v1/models/dear"); !strings.Contains(one, "model_not_found") {
			t.Errorf("a model that is not allowed is %s", one)
		}
		expect(t, p, "", attemptPath, hello, http.StatusOK, "")
		time.Sleep(20 * time.Second)
		expect(t, p, "", attemptPath, hello, http.StatusOK, "")
		time.Sleep(10 * time.Second)
		for range 3 { // what is refused does not count
			w := expect(t, p, "", attemptPath, hello, http.StatusTooManyRequests, "rate_limit_exceeded")
			if got := w.Header().Get("Retry-After"); got != "30" {
				t.Errorf("Retry-After: %q", got)
			}
		}
		expect(t, p, "", "/rollout/ro-1/attempt/at-2/v1/chat/completions", hello, http.StatusOK, "")
		expect(t, p, "", "/v1/chat/completions", `{"model":"dear","messages":[]}`, http.StatusOK, "")
		time.Sleep(30 * time.Second) // the first call is a minute old, the second is not
		expect(t, p, "", attemptPath, hello, http.StatusOK, "")
		expect(t, p, "", attemptPath, hello, http.StatusTooManyRequests, "rate_limit_exceeded")
		if err := p.SetControl("ro-1", &proxy.Control{Rules: access.Rules{Models: []string{"dear"}}}); err != nil {
			t.Fatal(err)
		}
		expect(t, p, "", attemptPath, hello, http.StatusForbidden, "model_forbidden")
		expect(t, p, "", attemptPath, `{"model":"dear","messages":[]}`, http.StatusOK, "")
		closed(t, p)
	})
}

// A key has a list of models and a rate, of an attempt or not, in every way to call.
func TestKeyRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys := access.NewKeys(memorytest.Open(t))
		p, reached := rated(t, func(c *proxy.Config) { c.Access = keys })
		rules := access.Rules{Models: []string{"m", "other"}, CallsPerMinute: 1}
		for scope, path := range map[access.Scope]string{access.Agent: "/rollout/ro-1/attempt/at-1", access.Live: ""} {
			reached.Store(0)
			wanted := access.NewKey{Name: "k", Scopes: scope, Rules: rules}
			if scope == access.Agent {
				wanted.Attempt = agl.Some(agl.Claim{RolloutID: "ro-1", AttemptID: "at-1"})
			}
			key := create(t, keys, wanted)
			for _, r := range dearly(path) {
				expect(t, p, key, r[0], r[1], http.StatusForbidden, "model_forbidden")
			}
			if list := models(t, p, key, path+"/v1/models"); strings.Contains(list, "dear") {
				t.Errorf("the models are %s", list)
			}
			expect(t, p, key, path+completions, hello, http.StatusOK, "")
			expect(t, p, key, path+"/v1/embeddings", hello, http.StatusTooManyRequests, "rate_limit_exceeded")
			if n := reached.Load(); n != 1 {
				t.Errorf("%d calls have reached a backend, want 1", n)
			}
		}
		closed(t, p)
	})
}

func TestRulesInvalid(t *testing.T) {
	t.Parallel()
	keys := access.NewKeys(memorytest.Open(t))
	for want, rules := range map[string]access.Rules{
		"models[1]":        {Models: []string{"m", ""}},
		"models: got 101":  {Models: make([]string, 101)},
		"calls_per_minute": {CallsPerMinute: -1},
		"and 10000":        {CallsPerMinute: 10_001},
	} {
		if _, err := keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Rules: rules}); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		control := proxy.Control{Rules: rules}
		if err := control.Validate(); agl.ErrorCode(err) != agl.CodeInvalid || !strings.Contains(err.Error(), "control.") || !strings.Contains(err.Error(), want) {
			t.Errorf("control: %s: %v", want, err)
		}
	}
}

// The keys of an attempt that stand in no list are refused within a second of their
// revocation by every proxy with the secret, and by the store; those of others are not.
// While the store is away, proxies go by what they knew.
func TestRevokedAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memorytest.Open(t)
		keys := access.NewKeys(store)
		api, err := server.New(server.Config{Store: store, Token: "s3cret", Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		var down atomic.Bool
		newProxy := func() *proxy.Proxy {
			p, _ := rated(t, func(c *proxy.Config) {
				c.KeySecret = "the proxies' secret"
				c.Revoked = access.NewRevocations(func(ctx context.Context) ([]access.RevokedAttempt, error) {
					if down.Load() {
						<-ctx.Done() // it does not answer
						return nil, ctx.Err()
					}
					return keys.RevokedAttempts(ctx)
				}, access.AskTTL)
			})
			return p
		}
		proxies := []*proxy.Proxy{newProxy(), newProxy()}
		key := func(attempt string) string {
			text, err := proxies[0].AttemptKey("ro-1", attempt, 0)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		path := func(attempt string) string { return "/rollout/ro-1/attempt/" + attempt + completions }
		spans := func(attempt string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/traces", strings.NewReader(`{"resourceSpans":[]}`))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+client.SpanToken("s3cret", "ro-1", attempt, time.Now().Add(time.Hour)))
			api.ServeHTTP(w, r)
			return w.Code
		}
		all := func(attempt string, status, ofSpans int) {
			t.Helper()
			for _, p := range proxies {
				expect(t, p, key(attempt), path(attempt), hello, status, "")
			}
			if got := spans(attempt); got != ofSpans {
				t.Errorf("spans of %s: %d, want %d", attempt, got, ofSpans)
			}
		}
		all("at-1", http.StatusOK, http.StatusOK)
		all("at-2", http.StatusOK, http.StatusOK)
		for range 2 { // the second time changes nothing
			if got, err := keys.RevokeAttempt(t.Context(), agl.Claim{RolloutID: "ro-1", AttemptID: "at-1"}, "root"); err != nil || got.RevokedBy != "root" {
				t.Fatal(got, err)
			}
		}
		time.Sleep(time.Second)
		all("at-1", http.StatusUnauthorized, http.StatusUnauthorized)
		all("at-2", http.StatusOK, http.StatusOK)
		down.Store(true)
		time.Sleep(time.Second)
		all("at-1", http.StatusUnauthorized, http.StatusUnauthorized)
		all("at-2", http.StatusOK, http.StatusOK)
		down.Store(false)
		if _, err := keys.RevokeAttempt(t.Context(), agl.Claim{RolloutID: "ro-1"}, "root"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		all("at-3", http.StatusUnauthorized, http.StatusUnauthorized)
		for _, p := range proxies {
			closed(t, p)
		}
	})
}

package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// budgets are proxies, each of which asks another server of one store.
type budgets struct {
	keys    *access.Keys
	proxies []*proxy.Proxy
}

func newBudgets(t *testing.T, n int, backend transport, edit func(*proxy.Config)) *budgets {
	t.Helper()
	store := memorytest.Open(t)
	b := &budgets{keys: access.NewKeys(store)}
	for range n {
		handler, err := server.New(server.Config{Store: store, Token: "s3cret", Keys: access.NewKeys(store)})
		if err != nil {
			t.Fatal(err)
		}
		api := httptest.NewServer(handler)
		t.Cleanup(api.Close)
		c, err := client.New(client.Config{URL: api.URL, Token: "s3cret", Transport: api.Client().Transport, RetryTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		p, _ := plugged(t, backend, func(cfg *proxy.Config) {
			cfg.Access, cfg.Budgets = c.Keys(), c
			if edit != nil {
				edit(cfg)
			}
		}, "one")
		closeAtEnd(t, p)
		b.proxies = append(b.proxies, p)
	}
	return b
}

// call makes a call with a key and returns the answer.
func (b *budgets) call(ctx context.Context, n int, key, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	b.proxies[n%len(b.proxies)].ServeHTTP(w, r)
	return w
}

// used returns what a key has used, once nothing is reserved any more.
func (b *budgets) used(t *testing.T, id string) access.Amounts {
	t.Helper()
	for {
		list, err := b.keys.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list {
			if k.ID == id && k.Usage.Reserved == (access.Amounts{}) {
				return k.Usage.Spent
			}
		}
		runtime.Gosched()
	}
}

const usedBody = `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":5,"total_tokens":8}}`

// A thousand calls at once over three proxies and three servers of one store: as many get in
// as fit by what they may use, the others are refused with the numbers, and what the calls
// have not used fits later ones.
func TestBudgetHoldsOverProxies(t *testing.T) {
	t.Parallel()
	const plain = `{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":20}`
	// The same in Python's escapes, with a tokenizer that makes a token of each byte: what is used is all that was reserved.
	text := strings.Repeat("中é😀\n", 30)
	escaped := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(`\u4e2d\u00e9\ud83d\ude00\n`, 30) + `"}],"max_tokens":20}`
	frame := len(`{"model":"m","messages":[{"role":"user","content":""}],"max_tokens":20}`)
	worst := fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":20}}`, frame+len(text))
	for name, tc := range map[string]struct {
		body, reply string
		most, cost  int
	}{"plain": {plain, usedBody, len(plain) + 20, 8}, "escaped": {escaped, worst, frame + len(text) + 20, frame + len(text) + 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holdsOverProxies(t, tc.body, tc.reply, tc.most, tc.cost)
		})
	}
}

// holdsOverProxies makes calls that may use most tokens, and use cost.
func holdsOverProxies(t *testing.T, body, reply string, most, cost int) {
	t.Helper()
	var gate atomic.Pointer[chan struct{}]
	arrived := make(chan struct{}, 2000)
	b := newBudgets(t, 3, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/tokenize" {
			return respond(http.StatusNotFound, nil, ""), nil
		}
		arrived <- struct{}{}
		select {
		case <-*gate.Load():
			return respond(http.StatusOK, nil, reply), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}, nil)
	const fits, calls = 250, 1000
	limit := fits*most + most - 1
	key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: access.Limits{MaxTokens: int64(limit)}})
	if err != nil {
		t.Fatal(err)
	}
	spent := 0
	for _, want := range []int{fits, (limit - fits*cost) / most} {
		opened := make(chan struct{})
		gate.Store(&opened)
		refused := make(chan *httptest.ResponseRecorder, calls)
		var group sync.WaitGroup
		for i := range calls {
			group.Go(func() {
				if w := b.call(t.Context(), i, key.Text, "/v1/chat/completions", body); w.Code != http.StatusOK {
					refused <- w
				}
			})
		}
		in := 0
		for range calls { // each is let in or refused before the first one ends
			select {
			case <-arrived:
				in++
			case w := <-refused:
				message := fmt.Sprintf("the key %s has a budget of %d tokens: ", key.ID, limit)
				if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), message) || !strings.Contains(w.Body.String(), " are left, ") || !strings.Contains(w.Body.String(), fmt.Sprintf("may need %d", most)) {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
		}
		close(opened)
		group.Wait()
		if in != want {
			t.Errorf("%d calls were let in, %d fit", in, want)
		}
		spent += in * cost
		if got := b.used(t, key.ID); got != (access.Amounts{Tokens: int64(spent)}) {
			t.Errorf("used: %+v, want %d tokens", got, spent)
		}
	}
}

// What each call costs, and which ones are refused.
func TestBudgetOfCalls(t *testing.T) {
	t.Parallel()
	const prompt = `{"model":"m","messages":[]`
	answer := func(status int, body string) transport {
		return func(r *http.Request) (*http.Response, error) {
			sent, err := io.ReadAll(r.Body)
			return respond(status, http.Header{"Sent": {string(sent)}}, body), err
		}
	}
	price := func(c *proxy.Config) {
		for i := range c.Models {
			c.Models[i].Price = &proxy.Price{Prompt: 2, Completion: 10}
		}
		c.Retry.Attempts = 1
	}
	pinned := func(c *proxy.Config) {
		price(c)
		newest := c.Models[0]
		newest.Price = &proxy.Price{Prompt: 1, Completion: 1}
		c.Models[0].Resources = "rs-1"
		c.Models = append(c.Models, newest)
		c.Rollouts = &enqueued{resources: map[string]string{"r": "rs-1"}}
	}
	for _, test := range []struct {
		name    string
		limits  access.Limits
		edit    func(*proxy.Config)
		backend transport
		path    string
		body    string
		status  int
		message string
		used    access.Amounts
		sent    string
	}{
		{"tokens", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":9}`, 200, "", access.Amounts{Tokens: 8}, ""},
		{"too many", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":90}`, 429, "a budget of 100 tokens: 100 are left, running requests have reserved 0, and this request may need 133", access.Amounts{}, ""},
		{"the larger of two limits counts", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":1,"max_completion_tokens":90}`, 429, "may need", access.Amounts{}, ""},
		{"several replies", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":20,"n":4}`, 429, "may need", access.Amounts{}, ""},
		{"several prompts", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/completions", `{"model":"m","prompt":["a","b","c"],"max_tokens":20}`, 429, "may need", access.Amounts{}, ""},
		{"an escaped name", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max\u005ftokens":90}`, 429, "may need", access.Amounts{}, ""},
		{"no limit of its own", access.Limits{MaxTokens: 5000}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `}`, 200, "", access.Amounts{Tokens: 8}, `"max_completion_tokens":4096`},
		{"another case of a name", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":9,"MAX_TOKENS":90}`, 429, "may need", access.Amounts{}, ""},
		{"an earlier response", access.Limits{MaxTokens: 10_000}, nil, answer(200, usedBody), "/v1/responses", `{"model":"m","input":"a","previous_response_id":"r"}`, 400, "previous_response_id: got", access.Amounts{}, ""},
		{"an earlier response, without a limit of tokens", access.Limits{MaxCalls: 1}, nil, answer(200, usedBody), "/v1/responses", `{"model":"m","input":"a","previous_response_id":"r"}`, 200, "", access.Amounts{Tokens: 8}, `"input":"a","previous_response_id":"r"}`},
		{"no number", access.Limits{MaxTokens: 5000}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":-1}`, 400, "max_tokens: got -1, must be a number between 1 and", access.Amounts{}, ""},
		{"dollars", access.Limits{MaxUSD: 0.01}, price, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":9}`, 200, "", access.Amounts{Tokens: 8, NanoUSD: 3*2000 + 5*10000}, ""},
		{"dollars of a pinned version", access.Limits{MaxUSD: 0.01}, pinned, answer(200, usedBody), "/rollout/r/attempt/a/v1/chat/completions", prompt + `,"max_tokens":9}`, 200, "", access.Amounts{Tokens: 8, NanoUSD: 3*2000 + 5*10000}, ""},
		{"dollars of no pinned version", access.Limits{MaxUSD: 0.01}, pinned, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":9}`, 200, "", access.Amounts{Tokens: 8, NanoUSD: 3*1000 + 5*1000}, ""},
		{"too many dollars", access.Limits{MaxUSD: 0.001}, price, answer(200, usedBody), "/v1/chat/completions", prompt + `,"max_tokens":100}`, 429, "a budget of 0.001 dollars: 0.001 are left, running requests have reserved 0, and this request may need 0.001", access.Amounts{}, ""},
		{"no price", access.Limits{MaxUSD: 1}, nil, answer(200, usedBody), "/v1/chat/completions", prompt + `}`, 403, "has no price", access.Amounts{}, ""},
		{"no store that counts", access.Limits{MaxUSD: 1}, func(c *proxy.Config) { c.Budgets = nil }, answer(200, usedBody), "/v1/chat/completions", prompt + `}`, 403, "no store that counts", access.Amounts{}, ""},
		{"a failing backend", access.Limits{MaxTokens: 100}, price, answer(500, `{"error":{"message":"down"}}`), "/v1/chat/completions", prompt + `,"max_tokens":9}`, 500, "down", access.Amounts{}, ""},
		{"an unknown model", access.Limits{MaxTokens: 100}, nil, answer(200, usedBody), "/v1/chat/completions", `{"model":"x","max_tokens":9}`, 404, "x", access.Amounts{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBudgets(t, 1, test.backend, test.edit)
			key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: test.limits})
			if err != nil {
				t.Fatal(err)
			}
			w := b.call(t.Context(), 0, key.Text, test.path, test.body)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.message) {
				t.Errorf("%d %s, want %d with %q", w.Code, w.Body, test.status, test.message)
			}
			if sent := w.Header().Get("Sent"); !strings.Contains(sent, test.sent) {
				t.Errorf("the backend was sent %s, want %s in it", sent, test.sent)
			}
			if got := b.used(t, key.ID); got != test.used {
				t.Errorf("used: %+v, want %+v", got, test.used)
			}
			if retry := w.Header().Get("X-Should-Retry"); (retry == "false") != (test.status == http.StatusTooManyRequests) {
				t.Errorf("X-Should-Retry: %q", retry)
			}
		})
	}
}

// Calls at once are limited, and a place is free when its call has ended.
func TestCallsAtOnce(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	b := newBudgets(t, 2, func(*http.Request) (*http.Response, error) {
		arrived <- struct{}{}
		<-release
		return respond(http.StatusOK, nil, usedBody), nil
	}, nil)
	key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: access.Limits{MaxCalls: 1}})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"model":"m","messages":[]}`
	for range 3 {
		first := make(chan int)
		go func() { first <- b.call(t.Context(), 0, key.Text, "/v1/chat/completions", body).Code }()
		<-arrived
		if w := b.call(t.Context(), 1, key.Text, "/v1/chat/completions", body); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "a budget of 1 calls at once: 0 are left") || w.Header().Get("Retry-After") == "" {
			t.Errorf("a second one: %d %s", w.Code, w.Body)
		}
		release <- struct{}{}
		if status := <-first; status != http.StatusOK {
			t.Errorf("the first one: %d", status)
		}
		b.used(t, key.ID)
	}
}

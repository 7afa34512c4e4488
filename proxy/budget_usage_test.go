package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
)

// breaking is a body that breaks off.
type breaking struct{ io.Reader }

func (b breaking) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Nothing that a backend may have generated goes uncounted: a stream whose agent does not ask for
// usage, a backend that does not say it, replies that are lost, and repeats.
func TestBudgetOfWhatNobodyCounts(t *testing.T) {
	t.Parallel()
	const (
		body   = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9}`
		stream = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}],"max_tokens":9}`
		chunk  = `data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"w"},"finish_reason":"stop"}]}` + "\n\n"
		counts = `data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":7,"total_tokens":37}}` + "\n\n"
		done   = "data: [DONE]\n\n"
	)
	events := http.Header{"Content-Type": {"text/event-stream"}}
	whole := int64(len(body) + 9)
	once := func(c *proxy.Config) { c.Retry.Attempts = 1 }
	// tries answers a call's tries one after the other.
	tries := func(answers ...func(r *http.Request) (*http.Response, error)) transport {
		var n atomic.Int64
		return func(r *http.Request) (*http.Response, error) { return answers[n.Add(1)-1](r) }
	}
	gone := func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	silent := func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	works := func(*http.Request) (*http.Response, error) { return respond(http.StatusOK, nil, usedBody), nil }
	breaks := func(*http.Request) (*http.Response, error) {
		res := respond(http.StatusOK, nil, "")
		res.Body, res.ContentLength = io.NopCloser(breaking{strings.NewReader(usedBody[:40])}), -1
		return res, nil
	}
	for _, tc := range []struct {
		name    string
		body    string
		edit    func(*proxy.Config)
		backend transport
		status  int
		used    int64
		want    string // in the reply
		not     string // in the reply
	}{
		{"a stream without usage", stream, nil, func(r *http.Request) (*http.Response, error) {
			sent, _ := io.ReadAll(r.Body)
			if !strings.Contains(string(sent), `"include_usage":true`) {
				t.Errorf("the backend is not asked for usage: %s", sent)
			}
			return respond(http.StatusOK, events, chunk+counts+done), nil
		}, 200, 37, "[DONE]", "usage"},
		{"a stream with usage", strings.Replace(stream, "{", `{"stream_options":{"include_usage":true},`, 1), nil, func(*http.Request) (*http.Response, error) {
			return respond(http.StatusOK, events, chunk+counts+done), nil
		}, 200, 37, `"usage"`, ""},
		{"a stream of a backend that does not count", stream, nil, func(*http.Request) (*http.Response, error) {
			return respond(http.StatusOK, events, chunk+done), nil
		}, 200, int64(len(stream) + 9), "[DONE]", ""},
		{"a backend that does not count", body, nil, func(*http.Request) (*http.Response, error) {
			return respond(http.StatusOK, nil, strings.Split(usedBody, `,"usage"`)[0]+"}"), nil
		}, 200, whole, "hi", ""},
		{"a refusal", body, once, func(*http.Request) (*http.Response, error) {
			return respond(http.StatusTooManyRequests, nil, "{}"), nil
		}, 429, 0, "", ""},
		{"a backend that is not there", body, nil, gone, 502, 0, "", ""},
		{"a reply that never comes", body, once, silent, 502, whole, "", ""},
		{"a reply that breaks off", body, once, breaks, 502, whole, "", ""},
		{"a repeat after nothing was sent", body, nil, tries(gone, works), 200, 8, "", ""},
		{"a repeat after a refusal", body, nil, tries(func(*http.Request) (*http.Response, error) {
			return respond(http.StatusServiceUnavailable, nil, "{}"), nil
		}, works), 200, 8, "", ""},
		{"a repeat after a lost reply", body, nil, tries(silent, works), 200, whole + 8, "", ""},
		{"a repeat after a broken reply", body, nil, tries(breaks, works), 200, whole + 8, "", ""},
		{"two lost replies", body, nil, tries(silent, breaks, works), 200, 2*whole + 8, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := newBudgets(t, 1, tc.backend, tc.edit)
			key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: access.Limits{MaxTokens: 100_000, MaxCalls: 1}})
			if err != nil {
				t.Fatal(err)
			}
			w := b.call(t.Context(), 0, key.Text, "/v1/chat/completions", tc.body)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) || tc.not != "" && strings.Contains(w.Body.String(), tc.not) {
				t.Errorf("%d %s, want %d with %q and without %q", w.Code, w.Body, tc.status, tc.want, tc.not)
			}
			if got := b.used(t, key.ID); got.Tokens != tc.used {
				t.Errorf("used: %d tokens, want %d", got.Tokens, tc.used)
			}
		})
	}
}

// A request is not sent again if what the lost reply may have cost leaves no room for it.
func TestBudgetEndsRepeats(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	b := newBudgets(t, 1, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/tokenize" {
			return respond(http.StatusNotFound, nil, ""), nil
		}
		sent.Add(1)
		return nil, io.ErrUnexpectedEOF
	}, nil)
	const body = `{"model":"m","messages":[],"max_tokens":9}`
	limit := int64(len(body)+9)*2 + 1
	key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: access.Limits{MaxTokens: limit}})
	if err != nil {
		t.Fatal(err)
	}
	if w := b.call(t.Context(), 0, key.Text, "/v1/chat/completions", body); w.Code != http.StatusBadGateway {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := b.used(t, key.ID); sent.Load() != 2 || got.Tokens != limit-1 {
		t.Errorf("sent %d times, used %d tokens, want 2 and %d", sent.Load(), got.Tokens, limit-1)
	}
}

// Where the bound by bytes does not fit, the engine counts the prompt, and as many calls are let in
// as fit by what the engine says, at once and not one more.
func TestBudgetByTheEnginesCount(t *testing.T) {
	t.Parallel()
	const prompt, reply = 50, 10
	text := strings.Repeat("a long text of a few tokens ", 100)
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"tools":[{"type":"function","function":{"name":"f"}}],"max_tokens":%d,"temperature":0.5}`, text, reply)
	used := fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, prompt, reply)
	gate := make(chan struct{})
	arrived := make(chan struct{}, 1000)
	var counted atomic.Int64
	b := newBudgets(t, 3, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/tokenize" {
			counted.Add(1)
			sent, err := io.ReadAll(r.Body)
			if s := string(sent); !strings.Contains(s, `"messages":[{"role":"user","content":"a long`) || !strings.Contains(s, `"name":"f"`) || !strings.Contains(s, `"model":"m"`) || strings.Contains(s, "max_tokens") {
				t.Errorf("the engine is asked to count %s", s)
			}
			return respond(http.StatusOK, nil, fmt.Sprintf(`{"count":%d,"max_model_len":4096,"tokens":[1,2]}`, prompt)), err
		}
		arrived <- struct{}{}
		<-gate
		return respond(http.StatusOK, nil, used), nil
	}, nil)
	const fits, calls = 20, 100
	limit := int64(fits*(prompt+reply) + 7)
	if limit > int64(len(body)) {
		t.Fatalf("the bound by bytes, %d, fits into %d", len(body), limit)
	}
	key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: access.Limits{MaxTokens: limit}})
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan int, calls)
	var group sync.WaitGroup
	for i := range calls {
		group.Go(func() {
			if w := b.call(t.Context(), i, key.Text, "/v1/chat/completions", body); w.Code != http.StatusOK {
				refused <- w.Code
			}
		})
	}
	in := 0
	for range calls {
		select {
		case <-arrived:
			in++
		case status := <-refused:
			if status != http.StatusTooManyRequests {
				t.Errorf("refused with %d", status)
			}
		}
	}
	close(gate)
	group.Wait()
	if got := b.used(t, key.ID); in != fits || got.Tokens != fits*(prompt+reply) {
		t.Errorf("%d calls were let in and used %d tokens, %d fit", in, got.Tokens, fits)
	}
	if w := b.call(t.Context(), 0, key.Text, "/v1/chat/completions", body); w.Code != http.StatusTooManyRequests {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	if before := counted.Load(); before > calls {
		t.Errorf("%d prompts were counted for %d calls: one whose reply alone does not fit needs no count", before, calls)
	}
}

// What the chat format of a model adds to prompts is reserved once it has been seen.
func TestBudgetLearnsChatFormats(t *testing.T) {
	t.Parallel()
	const body = `{"model":"m","messages":[],"max_tokens":10}`
	const prompt = len(body) + 300 // a long system prompt of the format
	var gate atomic.Pointer[chan struct{}]
	open := make(chan struct{})
	close(open)
	gate.Store(&open)
	arrived := make(chan struct{}, 100)
	b := newBudgets(t, 1, func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/tokenize" {
			return respond(http.StatusNotFound, nil, ""), nil
		}
		arrived <- struct{}{}
		<-*gate.Load()
		return respond(http.StatusOK, nil, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":10}}`, prompt)), nil
	}, nil)
	const fits = 5
	key, err := b.keys.Create(t.Context(), access.NewKey{Name: "k", Scopes: access.Live, Limits: access.Limits{MaxTokens: int64((1 + fits) * (prompt + 10))}})
	if err != nil {
		t.Fatal(err)
	}
	call := func(ctx context.Context) int { return b.call(ctx, 0, key.Text, "/v1/chat/completions", body).Code }
	if status := call(t.Context()); status != http.StatusOK {
		t.Fatal(status)
	}
	<-arrived
	b.used(t, key.ID)
	shut := make(chan struct{})
	gate.Store(&shut)
	refused := make(chan int, 100)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if status := call(t.Context()); status != http.StatusOK {
				refused <- status
			}
		})
	}
	in := 0
	for range 50 {
		select {
		case <-arrived:
			in++
		case <-refused:
		}
	}
	close(shut)
	group.Wait()
	if got := b.used(t, key.ID); in != fits || got.Tokens != int64((1+fits)*(prompt+10)) {
		t.Errorf("%d calls were let in, %d fit; used %d tokens", in, fits, got.Tokens)
	}
}

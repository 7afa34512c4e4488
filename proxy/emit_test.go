package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// emitting is a proxy over a real store, with an attempt.
type emitting struct {
	store agl.Store
	url   string // of the attempt, without /v1
	a     agl.AttemptedRollout
	proxy *gateway
}

func startEmitting(t *testing.T, edit func(c *proxy.Config)) emitting {
	t.Helper()
	store := memorytest.Open(t)
	a, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, serve(t, proxytest.VLLM(echo)).BaseURL(), func(c *proxy.Config) {
		c.Spans = store
		if edit != nil {
			edit(c)
		}
	})
	return emitting{store, g.URL + "/rollout/" + a.RolloutID + "/attempt/" + a.Attempt.AttemptID, a, g}
}

func (e emitting) spans(t *testing.T) []agl.Span {
	t.Helper()
	flush(t, e.proxy)
	page, err := e.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: e.a.RolloutID})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// An emitted reward stands behind the call before it and before the call after it.
func TestEmitBetweenCalls(t *testing.T) {
	t.Parallel()
	e := startEmitting(t, nil)
	for i := range 3 {
		body := hello
		if i == 1 {
			body = streamed(hello)
		}
		if r := post(t, e.url+"/v1/chat/completions", body); r.status != http.StatusOK {
			t.Fatalf("call: %d %s", r.status, r.body)
		}
		if r := post(t, e.url+"/v1/emit", fmt.Sprintf(`{"reward":0.%d}`, i+1)); r.status != http.StatusOK {
			t.Fatalf("emit: %d %s", r.status, r.body)
		}
	}
	triplets, err := adapter.ProxyTriplets{}.Adapt(e.spans(t))
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, one := range triplets {
		got = append(got, one.Reward.V)
	}
	if !slices.Equal(got, []float64{0.1, 0.2, 0.3}) {
		t.Errorf("rewards of the calls: got %v, want [0.1 0.2 0.3]", got)
	}
}

// checkBehind wants the reward of an emission behind the only call.
func checkBehind(t *testing.T, store *spans, emission *httptest.ResponseRecorder) {
	t.Helper()
	calls := store.calls()
	if emission.Code != http.StatusOK || len(calls) != 1 {
		t.Fatalf("emission: %d %s, %d calls", emission.Code, emission.Body, len(calls))
	}
	for _, s := range store.stored {
		if s.Name == agl.SpanAnnotation && s.SequenceID <= calls[0].SequenceID {
			t.Errorf("the reward has sequence id %d, the call that began before it %d", s.SequenceID, calls[0].SequenceID)
		}
	}
}

// What an agent emits while its call is running, before the store has given the call its sequence id, stands behind the call.
func TestEmitDuringACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		given := make(chan struct{})
		store := &spans{reserve: func() error {
			<-given
			return nil
		}}
		p := unplugged(t, func(r *http.Request) (string, error) {
			time.Sleep(time.Minute)
			return always(r)
		}, store, nil)
		var group sync.WaitGroup
		group.Go(func() { call(t.Context(), p, attemptPath) })
		time.Sleep(time.Second) // the id was asked for
		var emission *httptest.ResponseRecorder
		group.Go(func() { emission = ask(t.Context(), p, "/rollout/ro-1/attempt/at-1/emit", `{"reward":1}`, nil) })
		synctest.Wait()
		close(given)
		group.Wait()
		closed(t, p)
		checkBehind(t, store, emission)
	})
}

// A call that ended while the store was away has its place before what is emitted when the store is back, also at the next
// process of the proxy.
func TestEmitBehindSpooledCalls(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var back atomic.Bool
				store, dir := outage(&back), t.TempDir()
				p := unplugged(t, always, store, spooling(dir))
				if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
					t.Fatalf("call: %d %s", w.Code, w.Body)
				}
				time.Sleep(time.Minute)
				if restart {
					closed(t, p)
					p = unplugged(t, always, store, spooling(dir))
					time.Sleep(time.Minute)
				}
				back.Store(true)
				emission := ask(t.Context(), p, "/rollout/ro-1/attempt/at-1/emit", `{"reward":1}`, nil)
				if err := p.Flush(t.Context(), []string{"ro-1"}); err != nil {
					t.Fatal(err)
				}
				closed(t, p)
				checkBehind(t, store, emission)
			})
		})
	}
}

// An emission that the store does not take fails the flush of its attempt, so that an agent that ends because of it does not
// count as one that has failed by itself; not one that was taken when it was repeated.
func TestEmitUnstored(t *testing.T) {
	t.Parallel()
	for _, repeated := range []bool{false, true} {
		t.Run(fmt.Sprint("repeated ", repeated), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var back atomic.Bool
				p := unplugged(t, always, outage(&back), nil)
				emit := func() int {
					return ask(t.Context(), p, "/rollout/ro-1/attempt/at-1/emit", `{"reward":1}`, nil).Code
				}
				if status := emit(); status != http.StatusServiceUnavailable {
					t.Fatalf("got %d, want 503", status)
				}
				back.Store(true)
				if repeated && emit() != http.StatusOK {
					t.Fatal("the store is back, and the emission is refused")
				}
				if err := p.FlushAttempt(t.Context(), "ro-1", "at-2"); err != nil {
					t.Errorf("another attempt: %v", err)
				}
				for i := range 2 { // a runner that gets no answer asks again
					err := p.FlushAttempt(t.Context(), "ro-1", "at-1")
					if failed := agl.ErrorCode(err) == agl.CodeIllegalState; failed == repeated || repeated && err != nil {
						t.Errorf("flush %d: %v", i, err)
					}
				}
				closed(t, p)
			})
		})
	}
}

// An agent that leaves during its emission has emitted it: the flush of its attempt waits until it is stored, and fails only if it is not.
func TestEmitAndLeave(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprint("stored ", stored), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var back atomic.Bool
				store := outage(&back)
				p := unplugged(t, always, store, nil)
				ctx, leave := context.WithCancel(t.Context())
				var group sync.WaitGroup
				group.Go(func() { ask(ctx, p, "/rollout/ro-1/attempt/at-1/emit", `{"reward":1}`, nil) })
				time.Sleep(time.Second)
				leave()
				group.Go(func() {
					time.Sleep(time.Second)
					back.Store(stored)
				})
				err := p.FlushAttempt(t.Context(), "ro-1", "at-1")
				if code := agl.ErrorCode(err); stored && err != nil || !stored && code != agl.CodeIllegalState {
					t.Errorf("got %v", err)
				}
				if got := len(store.named(agl.SpanAnnotation)); got == 1 != stored {
					t.Errorf("%d rewards are stored", got)
				}
				group.Wait()
				closed(t, p)
			})
		})
	}
}

func TestEmitForms(t *testing.T) {
	t.Parallel()
	e := startEmitting(t, nil)
	for _, tt := range []struct{ body, name, attributes string }{
		{`{"reward":1}`, agl.SpanAnnotation, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1.0}`},
		{
			`{"rewards":{"b":0.5,"a":-1}}`, agl.SpanAnnotation,
			`{"agentlightning.reward.0.name":"b","agentlightning.reward.0.value":0.5,"agentlightning.reward.1.name":"a","agentlightning.reward.1.value":-1.0}`,
		},
		{`{"reward":true}`, agl.SpanAnnotation, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1.0}`},
		{
			`{"rewards":{"a":true,"b":false}}`, agl.SpanAnnotation,
			`{"agentlightning.reward.0.name":"a","agentlightning.reward.0.value":1.0,"agentlightning.reward.1.name":"b","agentlightning.reward.1.value":0.0}`,
		},
		{`{"message":"ä"}`, agl.SpanMessage, `{"agentlightning.message.body":"ä"}`},
		{`{"object":"x"}`, agl.SpanObject, `{"agentlightning.object.type":"str","agentlightning.object.literal":"x"}`},
		{`{"object":1.0}`, agl.SpanObject, `{"agentlightning.object.type":"float","agentlightning.object.literal":"1.0"}`},
		{`{"object":7}`, agl.SpanObject, `{"agentlightning.object.type":"int","agentlightning.object.literal":"7"}`},
		{`{"object":{"a":[1]}}`, agl.SpanObject, `{"agentlightning.object.type":"dict","agentlightning.object.json":"{\"a\":[1]}"}`},
		{
			`{"exception":{"type":"ValueError","message":"m","stacktrace":"s"}}`, agl.SpanException,
			`{"exception.type":"ValueError","exception.message":"m","exception.escaped":false,"exception.stacktrace":"s"}`,
		},
		// Half of a surrogate pair, as in names of files that are not UTF-8, and in texts that Python has cut.
		{`{"message":"a\udc80"}`, agl.SpanMessage, `{"agentlightning.message.body":"a�"}`},
		{`{"object":["\ud83d"]}`, agl.SpanObject, `{"agentlightning.object.type":"list","agentlightning.object.json":"[\"\\ud83d\"]"}`},
		{`{"rewards":{"\ud83d":1}}`, agl.SpanAnnotation, `{"agentlightning.reward.0.name":"�","agentlightning.reward.0.value":1.0}`},
	} {
		r := post(t, e.url+"/emit", tt.body)
		if r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", tt.body, r.status, r.body)
		}
		if !strings.HasSuffix(string(r.body), "}\n") {
			t.Errorf("%s: got %q, want a line: the next one that a script prints may be its result", tt.body, r.body)
		}
		spans := e.spans(t)
		if last := spans[len(spans)-1]; last.Name != tt.name || string(last.Attributes) != tt.attributes || last.SequenceID != int64(len(spans)) {
			t.Errorf("%s is stored as span %d, %s %s; want %s %s", tt.body, last.SequenceID, last.Name, last.Attributes, tt.name, tt.attributes)
		}
	}
}

// A repeat with the same span id, for an answer that was lost, counts once.
func TestEmitRepeated(t *testing.T) {
	t.Parallel()
	e := startEmitting(t, nil)
	for range 2 {
		if r := post(t, e.url+"/emit", `{"reward":1,"span_id":"0123456789abcdef"}`); r.status != http.StatusOK {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	if n := len(e.spans(t)); n != 1 {
		t.Errorf("%d spans are stored, want 1", n)
	}
}

func TestEmitRefused(t *testing.T) {
	t.Parallel()
	e := startEmitting(t, nil)
	for body, want := range map[string]string{
		`{}`:                              "has 0 of reward, rewards, message, object and exception, must have one",
		`{"reward":1,"message":"m"}`:      "has 2 of reward",
		`{"reward":"1"}`:                  `reward: got \"1\", must be a finite number`,
		`{"reward":1e999}`:                "must be a finite number",
		`{"rewards":{}}`:                  "no dimension given",
		`{"rewards":[1]}`:                 "must be an object of numbers",
		`{"rewards":{"a":null}}`:          "rewards.a: got null, must be a finite number",
		`{"exception":{"message":"m"}}`:   "exception.type: is empty",
		`{"score":1}`:                     "allowed are reward",
		`{"reward":1,"span_id":"x"}`:      "must be 16 hex digits",
		`[`:                               "body: ",
		`{"reward":1,"span_id":"ABCDEF"}`: "must be 16 hex digits",
	} {
		if r := post(t, e.url+"/emit", body); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), want) {
			t.Errorf("%s: got %d %s, want 400 with %s", body, r.status, r.body, want)
		}
	}
	if n := len(e.spans(t)); n != 0 {
		t.Errorf("%d spans are stored, want none", n)
	}
	if r := post(t, e.proxy.URL+"/rollout/nope/attempt/nope/emit", `{"reward":1}`); r.status != http.StatusGone {
		t.Errorf("an unknown attempt: got %d %s, want 410", r.status, r.body)
	}
	if r := post(t, e.proxy.URL+"/emit", `{"reward":1}`); r.status != http.StatusNotFound {
		t.Errorf("outside of an attempt: got %d, want 404", r.status)
	}
	e.proxy.CancelAttempt(e.a.RolloutID, e.a.Attempt.AttemptID)
	if r := post(t, e.url+"/emit", `{"reward":1}`); r.status != http.StatusGone {
		t.Errorf("a cancelled attempt: got %d, want 410", r.status)
	}
}

// With virtual keys an emission needs that of its attempt.
func TestEmitNeedsTheKey(t *testing.T) {
	t.Parallel()
	e := startEmitting(t, func(c *proxy.Config) { c.KeySecret = "secret of the run" })
	key, err := e.proxy.AttemptKey(e.a.RolloutID, e.a.Attempt.AttemptID, 0)
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, key: http.StatusOK} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimPrefix(e.url, e.proxy.URL)+"/emit", strings.NewReader(`{"reward":1}`))
		req.Header.Set("Authorization", "Bearer "+given)
		w := httptest.NewRecorder()
		if e.proxy.ServeHTTP(w, req); w.Code != want {
			t.Errorf("key %.20q: got %d %s, want %d", given, w.Code, w.Body, want)
		}
	}
}

// An emission waits for a store that comes back, and is refused, not lost in silence,
// while it stays away.
func TestEmitWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int64
		failures.Store(3)
		p, store := plugged(t, nil, func(c *proxy.Config) { c.StoreTimeout = 2 * time.Second }, "backend")
		store.refuse = func([]agl.Span) error {
			if failures.Add(-1) >= 0 {
				return agl.ErrUnavailable
			}
			return nil
		}
		const path = "/rollout/ro-1/attempt/at-1/emit"
		if w := ask(t.Context(), p, path, `{"reward":1}`, nil); w.Code != http.StatusOK {
			t.Errorf("after 3 failures: got %d %s, want 200", w.Code, w.Body)
		}
		failures.Store(1 << 20)
		if w := ask(t.Context(), p, path, `{"reward":1}`, nil); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("an outage: got %d %s, want 503 with Retry-After", w.Code, w.Body)
		}
		closed(t, p)
		none, _ := plugged(t, nil, func(c *proxy.Config) { c.Spans = nil }, "backend")
		if w := ask(t.Context(), none, path, `{"reward":1}`, nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "not_recorded") {
			t.Errorf("without a store: got %d %s, want 404", w.Code, w.Body)
		}
		closed(t, none)
	})
}

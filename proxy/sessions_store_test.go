package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// awayOnce is a store that says once that it does not know what spans belong to, as a project that is archived for a while.
type awayOnce struct {
	agl.Store
	now atomic.Bool
}

func (s *awayOnce) Capabilities() agl.Capabilities { return agl.Capabilities{} }

func (s *awayOnce) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	if s.now.Swap(false) {
		return agl.AddSpansResult{}, agl.Errorf(agl.CodeNotFound, "the project is archived")
	}
	return s.Store.AddSpans(ctx, p)
}

// A session that its store did not know for a while goes on.
func TestOpenSessionUnknownOnce(t *testing.T) {
	t.Parallel()
	store := &awayOnce{Store: memorytest.Open(t)}
	l := startLive(t, store, nil)
	_, id := l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if err := l.Flush(t.Context(), []string{id}); err != nil {
		t.Fatal(err)
	}
	store.now.Store(true)
	l.call(t, completions, hello, 200, "X-Agl-Session", "s")
	if err := l.Flush(t.Context(), nil); err == nil {
		t.Error("a record that the store refused is said to be stored")
	}
	if _, again := l.call(t, completions, hello, 200, "X-Agl-Session", "s"); again != id {
		t.Errorf("got rollout %q, want %q", again, id)
	}
}

// While the store is away, live calls pass and are not recorded.
func TestSessionsWithoutStore(t *testing.T) {
	t.Parallel()
	l := startLive(t, memorytest.Open(t), func(c *proxy.Config) {
		c.Sessions.Store = agl.UnimplementedStore{}
	})
	if _, rollout := l.call(t, completions, hello, 200, "X-Agl-Session", "s"); rollout != "" {
		t.Errorf("the call is in rollout %s", rollout)
	}
	l.call(t, "/v1/agl/sessions", ``, 502)
}

// hanging is a store that starts a rollout after a delay.
type hanging struct {
	agl.Store
	delay atomic.Int64
}

func (h *hanging) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	select {
	case <-ctx.Done():
		return agl.AttemptedRollout{}, ctx.Err()
	case <-time.After(time.Duration(h.delay.Load())):
	}
	return h.Store.StartRollout(ctx, p)
}

// While the store hangs, few live calls wait for it, and none for long. They are recorded as soon as it answers.
func TestSessionsWhileStoreHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &hanging{Store: memorytest.Open(t)}
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) { return respond(200, nil, "{}"), nil }, func(c *proxy.Config) {
			c.Spans, c.Sessions = store, proxy.Sessions{Store: store, IdleTimeout: time.Hour}
		}, "backend")
		calls := 0
		callOf := func(session string) (took time.Duration, rollout string) {
			begun := time.Now()
			w := ask(t.Context(), p, completions, hello, http.Header{"X-Agl-Session": {session}})
			if w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			return time.Since(begun), w.Header().Get(proxy.HeaderRollout)
		}
		call := func() (took time.Duration, rollout string) {
			calls++
			return callOf(fmt.Sprint("chat-", calls))
		}
		callOf("open")
		store.delay.Store(int64(time.Hour))
		waited, longest := time.Duration(0), time.Duration(0)
		for range 60 {
			took, _ := call()
			waited, longest = waited+took, max(longest, took)
			if _, rollout := callOf("open"); rollout == "" {
				t.Error("a call of an open session is not recorded")
			}
			time.Sleep(500 * time.Millisecond)
		}
		if waited > 15*time.Second || longest > 3*time.Second {
			t.Errorf("60 calls waited for %s, one for %s", waited, longest)
		}
		store.delay.Store(int64(time.Second))
		recorded := 0
		for range 60 {
			callOf("open")
			if _, rollout := call(); rollout != "" {
				recorded++
			}
			time.Sleep(500 * time.Millisecond)
		}
		if recorded < 30 {
			t.Errorf("%d of 60 calls are recorded though the store answers", recorded)
		}
		closed(t, p)
	})
}

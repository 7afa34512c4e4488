package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl/proxy"
)

// Cancelling an attempt ends all of its calls that are running, whether they are
// recorded or not, and none of other attempts.
func TestCancelEndsEveryCall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		path string
		edit func(c *proxy.Config)
	}{
		"recorded":           {path: attemptPath},
		"capture off":        {path: attemptPath, edit: func(c *proxy.Config) { c.Capture = proxy.CaptureOff }},
		"no store":           {path: attemptPath, edit: func(c *proxy.Config) { c.Spans = nil }},
		"nothing generated":  {path: "/rollout/ro-1/attempt/at-1/v1/embeddings"},
		"waiting for memory": {path: attemptPath, edit: func(c *proxy.Config) { c.CaptureBytes = 1 }},
		"paused":             {path: attemptPath, edit: nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cancelled := 0
				var mu sync.Mutex
				p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
					<-r.Context().Done()
					mu.Lock()
					defer mu.Unlock()
					cancelled++
					return nil, r.Context().Err()
				}, tt.edit, "backend")
				if name == "paused" {
					if err := p.Pause(t.Context(), proxy.PauseHold); err != nil {
						t.Fatal(err)
					}
				}
				codes := make(chan int, 2)
				other, leave := context.WithCancel(t.Context())
				var group sync.WaitGroup
				for range cap(codes) {
					group.Go(func() { codes <- ask(t.Context(), p, tt.path, `{"model":"m"}`, nil).Code })
				}
				synctest.Wait()
				group.Go(func() { ask(other, p, "/rollout/ro-1/attempt/at-2/v1/chat/completions", hello, nil) })
				synctest.Wait()
				if running := p.CancelAttempt("ro-1", "at-1"); running != 2 {
					t.Errorf("%d calls were running, want 2", running)
				}
				for range cap(codes) {
					if code := <-codes; code != http.StatusGone {
						t.Errorf("a cancelled call got %d", code)
					}
				}
				synctest.Wait()
				if w := ask(t.Context(), p, tt.path, `{"model":"m"}`, nil); w.Code != http.StatusGone {
					t.Errorf("a call of the cancelled attempt got %d %s", w.Code, w.Body)
				}
				leave()
				group.Wait()
				closed(t, p)
			})
		})
	}
}

// Calls of one attempt may end in any order: those that are left are cancelled, and no others.
func TestCancelAfterSomeCallsEnded(t *testing.T) {
	t.Parallel()
	const calls = 4
	orders := [][]int{nil}
	for last := range calls {
		var longer [][]int
		for _, order := range orders {
			for at := range len(order) + 1 {
				longer = append(longer, slices.Insert(slices.Clone(order), at, last))
			}
		}
		orders = longer
	}
	for _, order := range orders {
		for ended := range calls + 1 {
			t.Run(fmt.Sprint(order, " ended ", ended), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { cancelAfter(t, order, ended) })
			})
		}
	}
}

// cancelAfter begins calls one after the other, ends some of them in an order, and cancels their attempt.
func cancelAfter(t *testing.T, order []int, ended int) {
	t.Helper()
	begun := make(chan chan struct{}, 1)
	p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
		end := make(chan struct{})
		begun <- end
		select {
		case <-end:
			return ok(), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}, func(c *proxy.Config) { c.Retry.Attempts = 1 }, "backend")
	var group sync.WaitGroup
	codes, ends := make([]int, len(order)), make([]chan struct{}, len(order))
	for i := range order {
		group.Go(func() { codes[i] = ask(t.Context(), p, attemptPath, hello, nil).Code })
		ends[i] = <-begun
	}
	for _, i := range order[:ended] {
		close(ends[i])
		synctest.Wait()
	}
	if running := p.CancelAttempt("ro-1", "at-1"); running != len(order)-ended {
		t.Errorf("%d calls were running, want %d", running, len(order)-ended)
	}
	group.Wait()
	for at, i := range order {
		want := http.StatusGone
		if at < ended {
			want = http.StatusOK
		}
		if codes[i] != want {
			t.Errorf("call %d got %d, want %d", i, codes[i], want)
		}
	}
	closed(t, p)
}

// A proxy that was not started serves no call, and says so; what needs no work
// beside the calls it serves.
func TestNotStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: "http://backend/v1"}}, Transport: backend(always), Spans: &spans{}})
		if err != nil {
			t.Fatal(err)
		}
		if w := call(t.Context(), p, attemptPath); w.Code != http.StatusServiceUnavailable {
			t.Errorf("got %d %s, want 503", w.Code, w.Body)
		}
		p.Start(t.Context())
		p.Start(t.Context())
		if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
			t.Errorf("after Start: %d %s", w.Code, w.Body)
		}
		closed(t, p)
		p.Start(t.Context()) // too late, and no goroutine begins
		if w := call(t.Context(), p, attemptPath); w.Code != http.StatusServiceUnavailable {
			t.Errorf("after Close: %d %s", w.Code, w.Body)
		}
	})
}

// What runs beside the calls runs before the first one, and carries nothing of it.
func TestBackgroundBelongsToStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var of []any
		p, err := proxy.New(proxy.Config{
			Models: []proxy.Model{{Name: "m", BaseURL: "http://backend/v1", HealthURL: "/health"}},
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/health" {
					of = append(of, r.Context().Value(key{}))
					return respond(200, nil, ""), nil
				}
				_, err := io.Copy(io.Discard, r.Body)
				return ok(), err
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Start(context.WithValue(t.Context(), key{}, "start"))
		synctest.Wait()
		if len(of) != 1 || of[0] != "start" {
			t.Errorf("probes of %v before the first call, want one of start", of)
		}
		call(context.WithValue(t.Context(), key{}, "call"), p, attemptPath)
		closed(t, p)
	})
}

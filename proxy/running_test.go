package proxy_test

import (
	"context"
	"io"
	"net/http"
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

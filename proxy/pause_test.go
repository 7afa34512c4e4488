package proxy_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/record"
	"github.com/google/go-cmp/cmp"
)

// pausable is a proxy in a bubble whose backend takes ten seconds for a call.
type pausable struct {
	*proxy.Proxy
	t     *testing.T
	group sync.WaitGroup

	mu        sync.Mutex
	began     int
	cancelled int
	codes     []int
	told      []string // the engine URLs that were asked
	sick      string   // the engine that fails
}

func newPausable(t *testing.T, edit func(c *proxy.Config)) *pausable {
	b := &pausable{t: t}
	b.Proxy, _ = plugged(t, func(r *http.Request) (*http.Response, error) {
		b.mu.Lock()
		if !strings.Contains(r.URL.Path, "chat") {
			defer b.mu.Unlock()
			b.told = append(b.told, r.Method+" "+r.URL.String())
			if r.URL.Host == b.sick {
				return respond(500, nil, "no such engine"), nil
			}
			return respond(200, nil, "{}"), nil
		}
		b.began++
		b.mu.Unlock()
		select {
		case <-time.After(10 * time.Second):
			return ok(), nil
		case <-r.Context().Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			b.cancelled++
			return nil, r.Context().Err()
		}
	}, edit, "a", "b")
	return b
}

// calls begins n calls.
func (b *pausable) calls(n int) {
	for range n {
		b.group.Go(func() {
			w := call(b.t.Context(), b.Proxy, attemptPath)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.codes = append(b.codes, w.Code)
			if w.Code != 200 && w.Header().Get("Retry-After") == "" {
				b.t.Errorf("%d without Retry-After", w.Code)
			}
		})
	}
	synctest.Wait()
}

func (b *pausable) pause(mode proxy.PauseMode) {
	b.t.Helper()
	if err := b.Pause(b.t.Context(), mode); err != nil {
		b.t.Error(err)
	}
}

func (b *pausable) resume() {
	b.t.Helper()
	if err := b.Resume(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

// expect waits for all calls and wants so many to have begun and been cancelled.
func (b *pausable) expect(began, cancelled int, codes ...int) {
	b.t.Helper()
	b.group.Wait()
	slices.Sort(b.codes)
	if diff := cmp.Diff(codes, b.codes); diff != "" || b.began != began || b.cancelled != cancelled {
		b.t.Errorf("%d began, want %d; %d were cancelled, want %d; statuses %s", b.began, began, b.cancelled, cancelled, diff)
	}
	if s := b.PauseState(); s.Held != 0 || s.Running != 0 {
		b.t.Errorf("left over: %+v", s)
	}
	closed(b.t, b.Proxy)
}

func TestPauseHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, nil)
		b.calls(2)
		began := time.Now()
		b.pause("")
		b.calls(3)
		if diff := cmp.Diff(proxy.PauseState{Mode: proxy.PauseHold, Held: 3, Running: 2}, b.PauseState()); diff != "" {
			t.Error(diff)
		}
		time.Sleep(time.Minute)
		b.mu.Lock()
		if b.began != 2 {
			t.Errorf("%d calls began, want the 2 from before", b.began)
		}
		b.mu.Unlock()
		b.resume()
		b.expect(5, 0, 200, 200, 200, 200, 200)
		if took := time.Since(began); took != 70*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestPauseHoldIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, func(c *proxy.Config) { c.PauseQueue, c.PauseTimeout = 2, time.Minute })
		b.pause(proxy.PauseHold)
		b.calls(3)
		time.Sleep(30 * time.Second)
		b.mu.Lock()
		if diff := cmp.Diff([]int{503}, b.codes); diff != "" {
			t.Errorf("one call too many: %s", diff)
		}
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.resume()
		b.expect(0, 0, 503, 503, 503)
	})
}

func TestPauseReject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, nil)
		b.pause(proxy.PauseHold)
		b.calls(2)
		b.pause(proxy.PauseReject) // also those that wait
		b.calls(2)
		b.resume()
		b.calls(1)
		b.expect(1, 0, 200, 429, 429, 429, 429)
	})
}

func TestPauseDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, nil)
		b.calls(2)
		began := time.Now()
		var late sync.WaitGroup
		late.Go(func() {
			time.Sleep(time.Second)
			b.calls(1)
		})
		b.pause(proxy.PauseDrain)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("drained after %v", took)
		}
		late.Wait()
		b.resume()
		b.expect(3, 0, 200, 200, 200)
	})
}

// Who resumes the proxy while another caller waits for its calls to end is right: the engines are not paused afterwards.
func TestResumeWhileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, func(c *proxy.Config) { c.Models[0].PauseURL, c.Models[0].ResumeURL = "/pause", "/resume" })
		b.calls(1)
		var draining sync.WaitGroup
		draining.Go(func() {
			began := time.Now()
			if err := b.Pause(t.Context(), proxy.PauseDrain); !errors.Is(err, agl.ErrConflict) || time.Since(began) != time.Second {
				t.Errorf("pause: after %v: %v", time.Since(began), err)
			}
		})
		time.Sleep(time.Second)
		b.resume()
		draining.Wait()
		b.expect(1, 0, 200)
		if diff := cmp.Diff([]string{"POST http://a/resume"}, b.told); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPauseAbort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, nil)
		b.calls(2)
		b.pause(proxy.PauseAbort)
		b.calls(1)
		b.resume()
		b.expect(3, 2, 200, 503, 503)
	})
}

// A pause of a proxy tells every engine, once each, and says which did not stop.
func TestPauseEngines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, func(c *proxy.Config) {
			for i := range c.Models {
				c.Models[i].PauseURL, c.Models[i].ResumeURL = "/pause?mode=keep", "/resume?key=s3cret"
			}
			c.Models = append(c.Models, proxy.Model{Name: "other name of a", BaseURL: "http://a/v1", PauseURL: "/pause?mode=keep"})
			c.Models = append(c.Models, proxy.Model{Name: "hosted", BaseURL: "http://hosted/v1"})
		})
		b.pause(proxy.PauseHold)
		b.sick = "b"
		err := b.Resume(t.Context())
		var engines *proxy.EnginesError
		if !errors.As(err, &engines) || len(engines.Failures) != 1 || engines.Failures[0].URL != "http://b/resume?key=xxxxx" || !strings.Contains(err.Error(), "no such engine") {
			t.Errorf("resume: %v", err)
		}
		slices.Sort(b.told)
		want := []string{"POST http://a/pause?mode=keep", "POST http://a/resume?key=s3cret", "POST http://b/pause?mode=keep", "POST http://b/resume?key=s3cret"}
		if diff := cmp.Diff(want, b.told); diff != "" {
			t.Error(diff)
		}
		b.calls(1) // it goes on all the same
		b.expect(1, 0, 200)
	})
}

func TestPauseInvalid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, nil)
		if err := b.Pause(t.Context(), "stop"); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), `"stop"`) {
			t.Error(err)
		}
		b.calls(1)
		b.expect(1, 0, 200)
	})
}

// The admin API does what the Go API does.
func TestPauseAdmin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPausable(t, nil)
		client := &http.Client{Transport: through{b.Proxy, "127.0.0.1:5"}}
		remote := &proxy.Client{BaseURL: "http://localhost", HTTP: client}
		if err := remote.Pause(t.Context(), proxy.PauseHold); err != nil {
			t.Error(err)
		}
		b.calls(2)
		if got, want := admin(t, client, "", http.MethodGet, "/admin/pause", ""), `{"paused":true,"mode":"hold","held":2,"running":0}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if err := remote.Pause(t.Context(), "stop"); !errors.Is(err, agl.ErrInvalid) {
			t.Error(err)
		}
		if err := remote.Resume(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if got := admin(t, client, "", http.MethodPost, "/admin/pause", `{"mode":"drain","timeout_seconds":1}`); !strings.Contains(got, "2 calls are still running") {
			t.Errorf("got %s", got)
		}
		if got, want := admin(t, client, "", http.MethodPost, "/admin/resume", ""), `{"paused":false,"held":0,"running":2}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		const backends = `{"backends":[{"model":"m","base_url":"http://a/v1","up":true,"calls":%d},{"model":"m","base_url":"http://b/v1","up":true,"calls":%d}]}`
		if got := admin(t, client, "", http.MethodGet, "/admin/backends", ""); got != fmt.Sprintf(backends, 2, 0) && got != fmt.Sprintf(backends, 1, 1) && got != fmt.Sprintf(backends, 0, 2) {
			t.Errorf("got %s", got)
		}
		b.expect(2, 0, 200, 200)
	})
}

// An aborted stream breaks off: the agent must not take it for a whole reply.
func TestPauseAbortsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
			res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
			res.ContentLength = -1
			res.Body = &endless{done: r.Context().Done()}
			return res, nil
		}, nil, "a")
		var broken error
		w := httptest.NewRecorder()
		var group sync.WaitGroup
		group.Go(func() {
			defer func() { broken, _ = recover().(error) }()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, attemptPath, strings.NewReader(strings.Replace(hello, "{", `{"stream":true,`, 1)))
			p.ServeHTTP(w, r)
		})
		synctest.Wait()
		if err := p.Pause(t.Context(), proxy.PauseAbort); err != nil {
			t.Error(err)
		}
		group.Wait()
		if !errors.Is(broken, http.ErrAbortHandler) {
			t.Errorf("ended with %v after %s", broken, w.Body)
		}
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if c := store.calls()[0]; c.Status.Code != agl.StatusError || !strings.Contains(c.Status.Description.V, "aborted") || attribute(t, &c, record.AttrDelivered) != "false" {
			t.Errorf("recorded as %+v", c.Status)
		}
		closed(t, p)
	})
}

// endless is a stream that sends an event a second until its request ends.
type endless struct{ done <-chan struct{} }

func (e *endless) Read(b []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return copy(b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n"), nil
	case <-e.done:
		return 0, errors.New("cancelled")
	}
}

func (*endless) Close() error { return nil }

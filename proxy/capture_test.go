package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// outage is a store that is away while its switch is off.
func outage(back *atomic.Bool) *spans {
	away := func() error {
		if !back.Load() {
			return errors.New("connection refused")
		}
		return nil
	}
	return &spans{reserve: away, refuse: func([]agl.Span) error { return away() }}
}

func spooling(dir string) func(c *proxy.Config) {
	return func(c *proxy.Config) { c.SpoolDir = dir }
}

// A store that stays away much longer than StoreRetry costs no record, whether
// the proxy that saw the calls or a later one replays them, and their sequence
// ids are in the order of the calls' starts.
func TestSpool(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var back atomic.Bool
				store, dir := outage(&back), t.TempDir()
				n := 0
				slowFirst := func(r *http.Request) (string, error) {
					n++
					id := fmt.Sprint("call-", n)
					if n%2 == 1 {
						time.Sleep(time.Minute) // the next one ends before it
					}
					return completion(id, []int{1, 2}, []int{3}), nil
				}
				p := unplugged(t, slowFirst, store, spooling(dir))
				var group sync.WaitGroup
				for range 10 {
					group.Go(func() {
						began := time.Now()
						if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
							t.Errorf("%d %s", w.Code, w.Body)
						}
						if took := time.Since(began); took%time.Minute > time.Second {
							t.Errorf("a call took %v", took)
						}
					})
					synctest.Wait()
					time.Sleep(time.Second)
				}
				group.Wait()
				time.Sleep(time.Hour)
				if restart {
					closed(t, p)
					p = unplugged(t, always, store, spooling(dir))
				}
				wantMetric(t, p, "agl_proxy_records_spooled 10")
				back.Store(true)
				if err := p.Flush(t.Context(), []string{"ro-1"}); err != nil {
					t.Fatal(err)
				}
				checkSequence(t, store, 10)
				synctest.Wait() // for the disk
				wantMetric(t, p, "agl_proxy_records_spooled 0")
				wantMetric(t, p, "agl_proxy_records_lost_total 0")
				closed(t, p)
				// Everything is stored, so a third one finds nothing.
				p = unplugged(t, always, store, spooling(dir))
				closed(t, p)
				checkSequence(t, store, 10)
			})
		})
	}
}

// A store that refuses the proxy's token, such as between a change of the token and the restart of the proxy with the
// new one, costs no record: without a spool they wait for StoreRetry, with one for the next proxy.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	for _, spool := range []bool{false, true} {
		t.Run(fmt.Sprint("spool ", spool), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var right atomic.Bool
				var asked atomic.Int64
				refuse := func() error {
					asked.Add(1)
					if right.Load() {
						return nil
					}
					return agl.Errorf(agl.CodeUnauthorized, "the token is wrong")
				}
				store := &spans{reserve: refuse, refuse: func([]agl.Span) error { return refuse() }}
				edit := func(*proxy.Config) {}
				if spool {
					edit = spooling(t.TempDir())
				}
				reply := func(*http.Request) (string, error) { return completion("call-1", []int{1, 2}, []int{3}), nil }
				p := unplugged(t, reply, store, edit)
				if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
				time.Sleep(time.Minute)
				if n := asked.Load(); n < 2 || n > 10 { // more would lock others out
					t.Errorf("the store was asked %d times within a minute", n)
				}
				if spool {
					closed(t, p)
					p = unplugged(t, always, store, edit)
				}
				right.Store(true)
				if err := p.Flush(t.Context(), []string{"ro-1"}); err != nil {
					t.Error(err)
				}
				checkSequence(t, store, 1)
				closed(t, p)
			})
		})
	}
}

func wantMetric(t *testing.T, p *proxy.Proxy, line string) {
	t.Helper()
	got := admin(t, &http.Client{Transport: through{p, "127.0.0.1:5"}}, "", http.MethodGet, "/metrics", "")
	if !strings.Contains(got, "\n"+line+"\n") {
		t.Errorf("no %s in\n%s", line, got)
	}
}

// checkSequence wants n calls, call-1 first, under one sequence id each.
func checkSequence(t *testing.T, store *spans, n int) {
	t.Helper()
	calls := store.calls()
	if len(calls) != n {
		t.Fatalf("%d calls stored, want %d", len(calls), n)
	}
	ids := make(map[int64]string)
	for _, c := range calls {
		id, _ := c.Attributes.GetString(agl.AttrGenAIResponseID)
		ids[c.SequenceID] = id
		if resource, _ := c.Resource.Attributes.Get(agl.AttrSpanSequenceID); string(resource) != fmt.Sprint(c.SequenceID) {
			t.Errorf("the resource of call %d says %s", c.SequenceID, resource)
		}
	}
	for i := range n {
		if want := fmt.Sprint("call-", i+1); ids[int64(i+1)] != want {
			t.Errorf("sequence id %d is of %q, want %q", i+1, ids[int64(i+1)], want)
		}
	}
}

// While the store is away and the spool is full, calls are refused before they
// are made, and nothing is lost.
func TestSpoolFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		store := outage(&back)
		var log bytes.Buffer
		p := unplugged(t, always, store, func(c *proxy.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.SpoolDir, c.SpoolBytes, c.CaptureBytes = t.TempDir(), 30<<10, 40<<10
		})
		made := 0
		for range 100 {
			w := call(t.Context(), p, attemptPath)
			if w.Code == http.StatusServiceUnavailable {
				break
			}
			if w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			made++
		}
		// The memory alone holds less than ten.
		if made < 12 || made == 100 {
			t.Errorf("%d calls were let through", made)
		}
		time.Sleep(5 * time.Minute)
		back.Store(true)
		if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != made {
			t.Errorf("%v, %d of %d calls stored", err, len(store.calls()), made)
		}
		if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
			t.Errorf("after the outage: %d %s", w.Code, w.Body)
		}
		closed(t, p)
		if n := strings.Count(log.String(), "the spool is full"); n < 8 || n > 12 {
			t.Errorf("%d lines about the spool in five minutes, want one every 30 s", n)
		}
	})
}

// A proxy that is killed loses what was under way, and the next one says so,
// until a flush of the attempt has heard it.
func TestKilledProxy(t *testing.T) {
	t.Parallel()
	dir, store := t.TempDir(), &spans{}
	synctest.Test(t, func(t *testing.T) {
		alive, release := t.TempDir(), make(chan struct{})
		p := unplugged(t, func(r *http.Request) (string, error) {
			<-release
			return always(r)
		}, store, spooling(alive))
		var group sync.WaitGroup
		group.Go(func() { call(t.Context(), p, "/rollout/half/attempt/a/chat/completions") })
		synctest.Wait()
		// What is on disk now is what kill -9 would leave.
		if err := os.CopyFS(dir, os.DirFS(alive)); err != nil {
			t.Fatal(err)
		}
		close(release)
		group.Wait()
		closed(t, p)
	})
	synctest.Test(t, func(t *testing.T) {
		p := unplugged(t, always, store, spooling(dir))
		call(t.Context(), p, "/rollout/whole/attempt/a/chat/completions")
		if err := p.Flush(t.Context(), []string{"whole"}); err != nil {
			t.Error(err)
		}
		err := p.FlushAttempt(t.Context(), "half", "a")
		if err == nil || !strings.Contains(err.Error(), `1 call records could not be stored, one of them of rollout "half"`) {
			t.Errorf("flush of what was lost: %v", err)
		}
		if err := p.Close(t.Context()); err == nil {
			t.Error("close does not tell of the loss")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := unplugged(t, always, store, spooling(dir))
		if err := p.FlushAttempt(t.Context(), "half", "a"); err != nil {
			t.Errorf("a loss that was reported is reported by a third process: %v", err)
		}
		closed(t, p)
	})
}

func TestCaptureModes(t *testing.T) {
	t.Parallel()
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := &spans{}
			p := unplugged(t, always, store, func(c *proxy.Config) { c.Capture = proxy.CaptureOff })
			if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			closed(t, p)
			if len(store.stored) != 0 {
				t.Errorf("%d spans stored", len(store.stored))
			}
		})
	})
	t.Run("best effort", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			var back atomic.Bool
			p := unplugged(t, always, outage(&back), func(c *proxy.Config) {
				c.Capture, c.CaptureBytes, c.StoreRetry = proxy.CaptureBestEffort, 20<<10, time.Minute
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			began := time.Now()
			for range 10 {
				if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("10 calls took %v", took)
			}
			if err := p.Flush(t.Context(), []string{"ro-1"}); err != nil {
				t.Errorf("flush: %v", err)
			}
			closed(t, p)
			if !strings.Contains(log.String(), "call not recorded") || !strings.Contains(log.String(), "call record lost") {
				t.Errorf("log: %s", log.String())
			}
		})
	})
	for _, c := range []proxy.Config{{Capture: "always"}, {SpoolBytes: -1}, {SpoolDir: "/dev/null/spool"}} {
		if _, err := proxy.New(c); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// An attempt that makes no call is not told of what the one before it lost.
func TestFlushOfAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spans{refuse: func([]agl.Span) error { return agl.Errorf(agl.CodeNotFound, "gone") }}
		p := unplugged(t, always, store, nil)
		call(t.Context(), p, "/rollout/r/attempt/first/chat/completions")
		if err := p.FlushAttempt(t.Context(), "r", "first"); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("first attempt: %v", err)
		}
		flushed := httptest.NewRecorder()
		p.ServeHTTP(flushed, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/rollout/r/attempt/second/flush", http.NoBody))
		if flushed.Code != http.StatusOK {
			t.Errorf("second attempt: %d %s", flushed.Code, flushed.Body)
		}
		if err := p.Flush(t.Context(), []string{"r"}); err != nil {
			t.Errorf("the rollout, whose latest attempt lost nothing: %v", err)
		}
		if err := p.Close(t.Context()); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("close: %v", err)
		}
	})
}

// Cancelling an attempt is seen by the backend of each of its calls, by the agent
// and by nobody else.
func TestCancelAttempt(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"by call", "by the store"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			started := make(chan struct{}, 8)
			backend := serve(t, func(ctx context.Context, r proxytest.Request) proxytest.Reply {
				if strings.Contains(string(r.Body), "wait") {
					started <- struct{}{}
					<-ctx.Done()
				}
				return proxytest.VLLM(echo)(ctx, r)
			})
			byStore := make(chan string, 1)
			g := start(t, backend.BaseURL(), func(c *proxy.Config) {
				c.Spans = &cancelling{spans: &spans{}, attempts: byStore}
			})
			const wait = `{"model":"m","messages":[{"role":"user","content":"wait"}]}`
			replies := make(chan reply, 2)
			for range cap(replies) {
				go func() {
					r, err := send(t.Context(), g.URL+attemptPath, wait)
					if err != nil {
						t.Error(err)
					}
					replies <- r
				}()
			}
			for range cap(replies) {
				<-started
			}
			if how == "by call" {
				client := proxy.Client{BaseURL: g.URL}
				if err := client.CancelAttempt(t.Context(), "ro-1", "at-1"); err != nil {
					t.Fatal(err)
				}
			} else {
				byStore <- "at-1" // in the answer to the record of the next call
				if r := post(t, g.URL+attemptPath, hello); r.status != http.StatusOK {
					t.Fatalf("%d %s", r.status, r.body)
				}
			}
			for range cap(replies) {
				if r := <-replies; r.status != http.StatusGone || !strings.Contains(string(r.body), "attempt_cancelled") {
					t.Errorf("a cancelled call got %d %s", r.status, r.body)
				}
				<-backend.Gone()
			}
			if r := post(t, g.URL+attemptPath, hello); r.status != http.StatusGone {
				t.Errorf("a call of the cancelled attempt got %d", r.status)
			}
			if r := post(t, g.URL+strings.Replace(attemptPath, "at-1", "at-2", 1), hello); r.status != http.StatusOK {
				t.Errorf("a call of another attempt got %d", r.status)
			}
		})
	}
}

// cancelling is a store that says which attempts were cancelled.
type cancelling struct {
	*spans

	attempts chan string
}

func (s *cancelling) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	result, err := s.spans.AddSpans(ctx, p)
	select {
	case a := <-s.attempts:
		result.Cancelled = append(result.Cancelled, a)
	default:
	}
	return result, err
}

// A virtual key is good for its attempt and for nothing else, and goes no
// further than the proxy.
func TestVirtualKeys(t *testing.T) {
	t.Parallel()
	var log lockedBuilder
	backend := serve(t, proxytest.VLLM(echo))
	g := start(t, backend.BaseURL(), func(c *proxy.Config) {
		c.KeySecret, c.Token, c.PublicURL = "env:SECRET", "admin", "http://localhost/v1"
		c.LookupEnv = func(name string) (string, bool) { return "s3cret-of-the-keys", name == "SECRET" }
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	resource, err := g.AsResource("m", nil)
	if err != nil {
		t.Fatal(err)
	}
	llm, err := resource.ForAttempt("ro-1", "at-1")
	if err != nil {
		t.Fatal(err)
	}
	key := llm.APIKey.V
	own, err := g.AttemptKey("ro-1", "at-1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(attemptPath, "at-1", "at-2", 1)
	for _, c := range []struct {
		name, path, header, value string
		want                      int
	}{
		{"its attempt", attemptPath, "Authorization", "Bearer " + key, 200},
		{"as Anthropic's clients send it", attemptPath, "X-Api-Key", key, 200},
		{"as Azure's clients send it", attemptPath, "Api-Key", key, 200},
		{"of the admin API", attemptPath, "Authorization", "Bearer " + own, 200},
		{"another attempt", other, "Authorization", "Bearer " + key, 401},
		{"the run key", attemptPath, "Authorization", "Bearer " + resource.APIKey.V, 401},
		{"none", attemptPath, "X-Nothing", "", 401},
		{"outside of an attempt", "/v1/chat/completions", "Authorization", "Bearer " + key, 401},
		{"outside of an attempt, with the token", "/v1/chat/completions", "Authorization", "Bearer admin", 200},
		{"models, none", "/v1/models", "X-Nothing", "", 401},
		{"models, outside of an attempt", "/v1/models/m", "Authorization", "Bearer " + key, 401},
		{"models, with the token", "/v1/models", "Authorization", "Bearer admin", 200},
		{"models, its attempt", "/rollout/ro-1/attempt/at-1/v1/models", "Authorization", "Bearer " + key, 200},
		{"models, another attempt", "/rollout/ro-1/attempt/at-2/v1/models", "Authorization", "Bearer " + key, 401},
	} {
		method := http.MethodPost
		if strings.HasPrefix(c.name, "models") {
			method = http.MethodGet
		}
		req, err := http.NewRequestWithContext(t.Context(), method, g.URL+c.path, strings.NewReader(hello))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.header, c.value)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != c.want || bytes.Contains(body, []byte("/admin/attempts/key")) != (c.name == "the run key") {
			t.Errorf("%s: %v, %d, want %d: %s", c.name, err, res.StatusCode, c.want, body)
		}
	}
	for _, r := range backend.Requests() {
		for name, values := range r.Header {
			if v := strings.Join(values, " "); strings.Contains(v, "agl-") || strings.Contains(v, "admin") {
				t.Errorf("the backend got %s: %s", name, v)
			}
		}
	}
	for _, secret := range []string{key, own, resource.APIKey.V, "s3cret"} {
		if strings.Contains(log.String(), secret) {
			t.Errorf("the log holds %s", secret)
		}
	}
}

type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

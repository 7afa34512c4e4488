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
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/record"
)

// backend is a transport without a network, for tests with a clock of their own.
type backend func(r *http.Request) (string, error)

func (b backend) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := b(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

func completion(id string, prompt, reply []int) string {
	return strings.ReplaceAll(fmt.Sprintf(`{"id":%q,"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"token_ids":%v}],"prompt_token_ids":%v}`, id, reply, prompt), " ", ",")
}

func always(*http.Request) (string, error) { return completion("c", []int{1, 2}, []int{3, 4}), nil }

// unplugged makes a proxy without a network.
func unplugged(t *testing.T, b backend, store *spans, edit func(c *proxy.Config)) *proxy.Proxy {
	t.Helper()
	cfg := proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: "http://backend/v1"}}, Spans: store, Transport: b}
	if edit != nil {
		edit(&cfg)
	}
	p, err := proxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	return p
}

func call(ctx context.Context, p *proxy.Proxy, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(hello)))
	return w
}

func closed(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	if err := p.Close(t.Context()); err != nil {
		t.Errorf("close: %v", err)
	}
}

// A backend that counts more tokens in a whole reply than it gives ids is told about once. One that gives none is not asked to.
func TestRepliesLackIDs(t *testing.T) {
	t.Parallel()
	for ids, warnings := range map[string]int{`[3,4]`: 1, `[3,4,5]`: 0, `[]`: 0} {
		t.Run(ids, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				store := &spans{}
				p := unplugged(t, func(*http.Request) (string, error) {
					return `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop","token_ids":` + ids +
						`}],"prompt_token_ids":[1,2],"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}}`, nil
				}, store, func(c *proxy.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				for range 2 {
					call(t.Context(), p, attemptPath)
				}
				closed(t, p)
				if got := strings.Count(log.String(), "the backend counts 3 tokens in a reply and gives the ids of 2: the call cannot be trained on"); got != warnings {
					t.Errorf("%d warnings, want %d: %s", got, warnings, &log)
				}
				for _, c := range store.calls() {
					if got, _ := c.Attributes.GetInts(agl.AttrResponseTokenIDs); (len(got) == 3) != (ids == `[3,4,5]`) {
						t.Errorf("recorded with the ids %v", got)
					}
				}
			})
		})
	}
}

// A flush returns when the calls that had begun are stored, and not before; it
// does not wait for the calls of others or for later ones.
func TestFlushBarrier(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spans{}
		seconds := 10 * time.Second
		p := unplugged(t, func(r *http.Request) (string, error) {
			time.Sleep(seconds)
			return always(r)
		}, store, nil)
		var group sync.WaitGroup
		begin := func(rollout string) {
			group.Go(func() { call(t.Context(), p, "/rollout/"+rollout+"/attempt/a/v1/chat/completions") })
			synctest.Wait()
		}
		begin("a")
		seconds = time.Hour
		begin("b")
		began := time.Now()
		done := make(chan error, 1)
		go func() { done <- p.Flush(t.Context(), []string{"a", "none", "a"}) }()
		synctest.Wait()
		begin("a") // after the flush
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("the flush took %v, want the 10s of the call", took)
		}
		if n := len(store.calls()); n != 1 {
			t.Errorf("%d calls stored", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.Flush(ctx, nil); !errors.Is(err, agl.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a flush that ran out of time: %v", err)
		}
		group.Wait()
		if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != 3 {
			t.Errorf("%v, %d calls", err, len(store.calls()))
		}
		closed(t, p)
	})
}

// A store that is away for a while loses nothing and delays no reply.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		outage := func() error {
			if !back.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		store := &spans{}
		store.reserve = outage
		store.refuse = func([]agl.Span) error { return outage() }
		p := unplugged(t, always, store, nil)
		began := time.Now()
		for i := range 10 {
			if w := call(t.Context(), p, fmt.Sprintf("/rollout/r%d/attempt/a/chat/completions", i%3)); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("10 calls took %v without the store", took)
		}
		time.AfterFunc(time.Minute, func() { back.Store(true) })
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if n := len(store.calls()); n != 10 {
			t.Errorf("%d calls stored, want 10", n)
		}
		closed(t, p)
	})
}

// slowAgent takes its time over every piece that it gets.
type slowAgent struct {
	*httptest.ResponseRecorder

	pause time.Duration
}

func (w slowAgent) Write(b []byte) (int, error) {
	time.Sleep(w.pause)
	return w.ResponseRecorder.Write(b)
}

// pieces is a backend's stream, which ends early when its request does.
type pieces struct {
	ctx  context.Context // of the request that it answers
	left []string
}

func (p *pieces) Read(b []byte) (int, error) {
	switch {
	case p.ctx.Err() != nil:
		return 0, p.ctx.Err()
	case len(p.left) == 0:
		return 0, io.EOF
	}
	n := copy(b, p.left[0])
	p.left = p.left[1:]
	return n, nil
}

func (*pieces) Close() error { return nil }

// transport is a backend that makes its whole response.
type transport func(r *http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A backend is not silent while the agent takes what it sent.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := unplugged(t, nil, &spans{}, func(c *proxy.Config) {
			c.IdleTimeout = time.Second
			c.Transport = transport(func(r *http.Request) (*http.Response, error) {
				const event = "data: {\"id\":\"c\",\"choices\":[]}\n\n"
				return &http.Response{
					StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
					Body: &pieces{r.Context(), []string{event, event, "data: [DONE]\n\n"}}, Request: r,
				}, nil
			})
		})
		w := slowAgent{httptest.NewRecorder(), time.Minute}
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, attemptPath, strings.NewReader(hello)))
		if got := w.Body.String(); !strings.HasSuffix(got, "data: [DONE]\n\n") {
			t.Errorf("the agent got %q", got)
		}
		closed(t, p)
	})
}

// What an attempt has lost does not fail the flushes of the one that follows it.
func TestLossOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spans{refuse: func(batch []agl.Span) error {
			if batch[0].AttemptID == "first" {
				return agl.Errorf(agl.CodeNotFound, "no such attempt")
			}
			return nil
		}}
		p := unplugged(t, always, store, nil)
		attempt := func(id string) error {
			call(t.Context(), p, "/rollout/r/attempt/"+id+"/chat/completions")
			return p.Flush(t.Context(), []string{"r"})
		}
		if err := attempt("first"); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("flush of lost records: %v", err)
		}
		if err := attempt("second"); err != nil || len(store.calls()) != 1 {
			t.Errorf("flush of the next attempt: %v, %d calls stored", err, len(store.calls()))
		}
		if err := p.Close(t.Context()); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("close after lost records: %v", err)
		}
	})
}

// Records that cannot be stored are not forgotten: every flush of their
// rollout says so. Other records of the same write are stored.
func TestRecordsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const gone = "go\nne" // an id from outside must not begin a line of its own in a log
		store := &spans{refuse: func(batch []agl.Span) error {
			for i, s := range batch {
				if s.RolloutID == gone {
					return agl.Errorf(agl.CodeNotFound, "span %d: attempt %s not found", i, s.AttemptID)
				}
			}
			return nil
		}}
		p := unplugged(t, always, store, nil)
		for _, rollout := range []string{"a", gone, "b", gone} {
			call(t.Context(), p, "/rollout/"+url.PathEscape(rollout)+"/attempt/x/chat/completions")
		}
		for range 2 {
			if err := p.Flush(t.Context(), []string{"a", "b"}); err != nil {
				t.Error(err)
			}
			err := p.Flush(t.Context(), []string{"a", gone})
			if !errors.Is(err, agl.ErrNotFound) || !strings.Contains(err.Error(), "2 call records") || !strings.Contains(err.Error(), `rollout "go\nne"`) {
				t.Errorf("flush of lost records: %v", err)
			}
		}
		if n := len(store.calls()); n != 2 {
			t.Errorf("%d calls stored, want 2", n)
		}
		wantMetric(t, p, "agl_proxy_records_lost_total 2")
		if err := p.Close(t.Context()); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("close after lost records: %v", err)
		}
	})
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			store := &spans{reserve: func() error { return agl.Errorf(agl.CodeUnavailable, "shut down") }}
			p := unplugged(t, always, store, func(c *proxy.Config) {
				c.StoreRetry = time.Minute
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			began := time.Now()
			call(t.Context(), p, attemptPath)
			// Whoever flushes again does not wait for what is lost.
			if err := p.Flush(t.Context(), nil); !errors.Is(err, agl.ErrIllegalState) || errors.Is(err, agl.ErrUnavailable) || agl.Transient(err) {
				t.Errorf("flush: %v", err)
			}
			if took := time.Since(began); took > time.Minute || took < 50*time.Second {
				t.Errorf("given up after %v, want about a minute", took)
			}
			for range 2 {
				if err := p.Flush(t.Context(), []string{"ro-1"}); !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "shut down") {
					t.Errorf("flush of the rollout: %v", err)
				}
			}
			flushed := httptest.NewRecorder()
			p.ServeHTTP(flushed, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/rollout/ro-1/attempt/at-1/flush", http.NoBody))
			if flushed.Code != http.StatusGone || !strings.Contains(flushed.Body.String(), "records_lost") {
				t.Errorf("flush over HTTP: %d %s", flushed.Code, flushed.Body)
			}
			if err := p.Flush(t.Context(), nil); err != nil {
				t.Errorf("the loss is reported again: %v", err)
			}
			closed(t, p)
			if !strings.Contains(log.String(), "call record lost") {
				t.Errorf("log: %s", log.String())
			}
		})
	})
}

// While the memory for records is full, new calls wait, in their order, and are
// refused after a time; those that run go on.
func TestMemoryBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var back atomic.Bool
		store := &spans{refuse: func([]agl.Span) error {
			if !back.Load() {
				return errors.New("no")
			}
			return nil
		}}
		p := unplugged(t, always, store, func(c *proxy.Config) {
			c.CaptureBytes = 20 << 10 // four calls of four KiB and some bytes
			c.StoreRetry = time.Hour
		})
		for i := range 4 {
			if w := call(t.Context(), p, attemptPath); w.Code != http.StatusOK {
				t.Fatalf("call %d: %d %s", i, w.Code, w.Body)
			}
		}
		began := time.Now()
		w := call(t.Context(), p, attemptPath)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || w.Header().Get(proxy.HeaderSource) != proxy.SourceGateway {
			t.Errorf("with memory full: %d %v %s", w.Code, w.Header(), w.Body)
		}
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("refused after %v, want 30s", took)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		call(ctx, p, attemptPath) // an agent that does not wait
		codes := make(chan int, 8)
		var group sync.WaitGroup
		for range cap(codes) {
			group.Go(func() { codes <- call(t.Context(), p, attemptPath).Code })
		}
		synctest.Wait()
		back.Store(true)
		group.Wait()
		for range cap(codes) {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("a call that waited got %d", code)
			}
		}
		if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != 12 {
			t.Errorf("%v, %d calls stored, want 12", err, len(store.calls()))
		}
		closed(t, p)
	})
}

// Records that come together are written together.
func TestBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spans{}
		p := unplugged(t, always, store, func(c *proxy.Config) { c.WriteDelay = time.Second })
		began := time.Now()
		for i := range 100 {
			call(t.Context(), p, fmt.Sprintf("/rollout/r%d/attempt/a/chat/completions", i))
		}
		time.Sleep(2 * time.Second)
		if n := len(store.calls()); n != 100 || store.writes != 1 {
			t.Errorf("%d calls stored in %d writes, want 100 in 1", n, store.writes)
		}
		call(t.Context(), p, attemptPath)
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the flush waited for the delay: %v", took-2*time.Second)
		}
		closed(t, p)
	})
}

// Records are not written at a fixed time after their calls: else an agent that
// calls at that pace always waits behind a write.
func TestWriteDelayVaries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pace = 2 * time.Second // of the calls, which take no time
		began := time.Now()
		var after []time.Duration
		store := &spans{refuse: func([]agl.Span) error {
			after = append(after, time.Since(began)%pace)
			return nil
		}}
		p := unplugged(t, always, store, func(c *proxy.Config) { c.WriteDelay = time.Second })
		for range 100 {
			call(t.Context(), p, attemptPath)
			time.Sleep(pace)
		}
		closed(t, p)
		slices.Sort(after)
		if n := len(after); n != 100 || after[0] < time.Second/2 || after[n-1] > time.Second || after[n-1]-after[0] < time.Second/4 {
			t.Errorf("%d writes, after %v; want 100 after half a second to a second", n, after)
		}
	})
}

func TestDrift(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := []struct {
			prompt, reply []int
			want          string
		}{
			{[]int{1, 2}, []int{3}, ""},
			{[]int{1, 2, 3, 4}, []int{5, 6}, "-1"},
			{[]int{1, 2, 3, 4, 5, 9, 9}, []int{7}, "5"},
			{[]int{1, 2}, []int{8}, "2"},
			{[]int{1, 2, 8}, []int{8}, "-1"},
			{[]int{0}, []int{8}, "0"},
		}
		n := 0
		store := &spans{}
		p := unplugged(t, func(*http.Request) (string, error) {
			n++
			return completion("c", turns[n-1].prompt, turns[n-1].reply), nil
		}, store, nil)
		for range turns {
			call(t.Context(), p, attemptPath)
		}
		if err := p.Flush(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		ids := make(map[string]bool)
		for i, c := range store.calls() {
			if got := attribute(t, &c, record.AttrDriftIndex); got != turns[i].want {
				t.Errorf("call %d: drift %q, want %q", i, got, turns[i].want)
			}
			ids[attribute(t, &c, agl.AttrGenAIResponseID)] = true
		}
		if len(ids) != len(turns) {
			t.Errorf("%d response ids for %d calls: %v", len(ids), len(turns), ids)
		}
		closed(t, p)
	})
}

// Close waits for what runs, refuses what comes, and cuts off what does not end.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &spans{}
		p := unplugged(t, func(r *http.Request) (string, error) {
			select {
			case <-time.After(time.Minute):
				return always(r)
			case <-r.Context().Done():
				return "", r.Context().Err()
			}
		}, store, nil)
		first := make(chan int, 1)
		go func() { first <- call(t.Context(), p, attemptPath).Code }()
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- p.Close(t.Context()) }()
		synctest.Wait()
		if w := call(t.Context(), p, attemptPath); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "shutting down") {
			t.Errorf("a call to a closing proxy: %d %s", w.Code, w.Body)
		}
		if code := <-first; code != http.StatusOK {
			t.Errorf("the running call got %d", code)
		}
		if err := <-done; err != nil || len(store.calls()) != 1 {
			t.Errorf("%v, %d calls stored", err, len(store.calls()))
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("the second close: %v", err)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			p := unplugged(t, func(r *http.Request) (string, error) {
				<-r.Context().Done()
				return "", r.Context().Err()
			}, &spans{}, nil)
			first := make(chan int, 1)
			go func() { first <- call(t.Context(), p, attemptPath).Code }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := p.Close(ctx); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "1 calls") {
				t.Errorf("close: %v", err)
			}
			if code := <-first; code != http.StatusServiceUnavailable {
				t.Errorf("the call that was cut off got %d", code)
			}
		})
	})
}

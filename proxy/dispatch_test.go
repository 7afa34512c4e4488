package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
)

// respond makes a backend's reply.
func respond(status int, header http.Header, body string) *http.Response {
	if header == nil {
		header = http.Header{}
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	return &http.Response{
		Status: fmt.Sprint(status, " ", http.StatusText(status)), StatusCode: status, Header: header,
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}

func ok() *http.Response { return respond(200, nil, completion("c", []int{1, 2}, []int{3, 4})) }

// plugged makes a proxy over a transport, with the model "m" at each of the hosts.
func plugged(t *testing.T, rt transport, edit func(c *proxy.Config), hosts ...string) (*proxy.Proxy, *spans) {
	t.Helper()
	store := &spans{}
	cfg := proxy.Config{Spans: store, Transport: rt}
	for _, h := range hosts {
		cfg.Models = append(cfg.Models, proxy.Model{Name: "m", BaseURL: "http://" + h + "/v1"})
	}
	if edit != nil {
		edit(&cfg)
	}
	p, err := proxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Start(t.Context())
	return p, store
}

func ask(ctx context.Context, p *proxy.Proxy, path, body string, header http.Header) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(body))
	maps.Copy(r.Header, header)
	p.ServeHTTP(w, r)
	return w
}

// silence is a body that never comes.
type silence chan struct{}

func (s silence) Read([]byte) (int, error) {
	<-s
	return 0, errors.New("closed")
}

func (s silence) Close() error {
	select {
	case <-s:
	default:
		close(s)
	}
	return nil
}

// What a backend fails to answer is asked again, as long as it may help.
func TestRetries(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	const patient, impatient = "2", "60"
	for _, tt := range []struct {
		name   string
		fails  int // times
		err    error
		status int
		header http.Header
		cut    bool // the body
		hang   bool // in the body
		edit   func(c *proxy.Config)
		want   int // status
		tries  int
		least  time.Duration
	}{
		{name: "works", want: 200, tries: 1},
		{name: "network", fails: 2, err: refused, want: 200, tries: 3},
		{name: "network, for good", fails: 9, err: refused, want: 502, tries: 3},
		{name: "broken off", fails: 2, status: 200, cut: true, want: 200, tries: 3},
		{name: "an error broken off", fails: 1, status: 500, cut: true, want: 200, tries: 2},
		{name: "broken off, for good", fails: 9, status: 200, cut: true, want: 502, tries: 3},
		{name: "408", fails: 1, status: 408, want: 200, tries: 2},
		{name: "429", fails: 1, status: 429, want: 200, tries: 2},
		{name: "500 for good", fails: 9, status: 500, want: 500, tries: 3},
		{name: "503", fails: 1, status: 503, want: 200, tries: 2},
		{name: "503, and then silence", fails: 2, status: 503, hang: true, want: 200, tries: 3},
		{name: "501 stays", fails: 1, status: 501, want: 501, tries: 1},
		{name: "400 stays", fails: 1, status: 400, want: 400, tries: 1},
		{name: "asks for time", fails: 1, status: 429, header: http.Header{"Retry-After": {patient}}, want: 200, tries: 2, least: 2 * time.Second},
		{name: "asks for milliseconds", fails: 1, status: 429, header: http.Header{"Retry-After-Ms": {"1500"}}, want: 200, tries: 2, least: 1500 * time.Millisecond},
		{name: "counts tries of its own", fails: 1, status: 400, header: http.Header{proxy.HeaderTries: {"77"}}, want: 400, tries: 1},
		{name: "asks for too much time", fails: 1, status: 429, header: http.Header{"Retry-After": {impatient}}, want: 429, tries: 1},
		{name: "says that it is no use", fails: 1, status: 503, header: http.Header{"X-Should-Retry": {"false"}}, want: 503, tries: 1},
		{name: "not wanted", fails: 1, status: 503, edit: func(c *proxy.Config) { c.Retry.Attempts = 1 }, want: 503, tries: 1},
		{name: "more wanted", fails: 4, status: 503, edit: func(c *proxy.Config) { c.Retry.Attempts = 5 }, want: 200, tries: 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
					if body, err := io.ReadAll(r.Body); err != nil || !strings.Contains(string(body), `"hi"`) {
						t.Errorf("try %d has the body %s, %v", tries, body, err)
					}
					tries++
					switch {
					case tries > tt.fails:
						return ok(), nil
					case tt.err != nil:
						return nil, tt.err
					}
					res := respond(tt.status, tt.header.Clone(), `{"error":{"message":"no"}}`)
					if tt.cut {
						res.ContentLength++
					}
					if tt.hang {
						res.ContentLength, res.Body = -1, silence(make(chan struct{}))
					}
					return res, nil
				}, tt.edit, "backend")
				began := time.Now()
				w := call(t.Context(), p, attemptPath)
				took := time.Since(began)
				if w.Code != tt.want || tries != tt.tries {
					t.Errorf("%d after %d tries, want %d after %d: %s", w.Code, tries, tt.want, tt.tries, w.Body)
				}
				if got := w.Header().Get(proxy.HeaderTries); got != fmt.Sprint(tt.tries) {
					t.Errorf("%s: %q", proxy.HeaderTries, got)
				}
				most := tt.least + time.Duration(tt.tries-1)*time.Second*2
				if took < tt.least || took > most {
					t.Errorf("took %v, want %v to %v", took, tt.least, most)
				}
				if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != 1 {
					t.Fatalf("%d records of one call, %v", len(store.calls()), err)
				}
				if c := store.calls()[0]; (c.Status.Code == agl.StatusOK) != (tt.want == 200) {
					t.Errorf("recorded as %+v", c.Status)
				}
				closed(t, p)
			})
		})
	}
}

// An agent that leaves while the proxy waits to repeat ends the call.
func TestAgentLeavesBetweenTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
			tries++
			return respond(503, http.Header{"Retry-After": {"5"}}, "{}"), nil
		}, nil, "backend")
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		call(ctx, p, attemptPath)
		if tries != 1 {
			t.Errorf("%d tries", tries)
		}
		closed(t, p)
	})
}

// A failing try goes to another replica next, at once; the rollout comes back
// to its own once that works.
func TestRetryElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := ""
		var hosts []string
		p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
			hosts = append(hosts, r.URL.Host)
			if r.URL.Host == broken {
				return respond(429, http.Header{"Retry-After": {"60"}}, "{}"), nil
			}
			return ok(), nil
		}, nil, "a", "b", "c")
		call(t.Context(), p, attemptPath)
		broken = hosts[0]
		for range 3 {
			hosts = nil
			if w := call(t.Context(), p, attemptPath); w.Code != 200 || len(hosts) != 2 || hosts[0] != broken || hosts[1] == broken {
				t.Errorf("%d by way of %v, with %s broken", w.Code, hosts, broken)
			}
		}
		broken, hosts = "", nil
		if call(t.Context(), p, attemptPath); len(hosts) != 1 {
			t.Errorf("by way of %v", hosts)
		}
		closed(t, p)
	})
}

// A backend that fails is left alone, tried by one call after its rest, and
// used again once that works.
func TestBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries, broken, answers := 0, true, false
		var hang chan struct{}
		p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
			tries++
			switch {
			case hang != nil:
				<-r.Context().Done()
				return nil, r.Context().Err()
			case broken && answers:
				return respond(500, nil, "{}"), nil
			case broken:
				return nil, io.ErrUnexpectedEOF
			}
			return ok(), nil
		}, func(c *proxy.Config) { c.Retry.Attempts = 1 }, "backend")
		expect := func(what string, status, more int) *httptest.ResponseRecorder {
			t.Helper()
			before := tries
			w := call(t.Context(), p, attemptPath)
			if w.Code != status || tries-before != more {
				t.Errorf("%s: %d after %d tries, want %d after %d: %s", what, w.Code, tries-before, status, more, w.Body)
			}
			return w
		}
		for range 5 {
			expect("failing", 502, 1)
		}
		w := expect("open", 503, 0)
		if got := w.Header().Get("Retry-After"); got != "1" || !strings.Contains(w.Body.String(), `http://backend/v1 (its calls fail, the last one with \"unexpected EOF\")`) {
			t.Errorf("Retry-After %q: %s", got, w.Body)
		}
		time.Sleep(time.Second)
		answers = true
		expect("a trial that fails", 500, 1)
		time.Sleep(time.Second)
		if w := expect("rests twice as long", 503, 0); !strings.Contains(w.Body.String(), `the last one with \"HTTP 500\"`) {
			t.Errorf("the last failure is not named: %s", w.Body)
		}
		time.Sleep(time.Second)
		hang = make(chan struct{})
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		var group sync.WaitGroup
		group.Go(func() { call(ctx, p, attemptPath) })
		synctest.Wait()
		expect("only one trial", 503, 0)
		leave()
		group.Wait()
		hang, broken = nil, false
		expect("a trial that was left says nothing", 200, 1)
		for range 3 {
			expect("closed", 200, 1)
		}
		closed(t, p)
	})
}

// A supervised backend is not down however many calls fail: the next one waits in the transport until it has been started again.
func TestNoBreakerOfSupervised(t *testing.T) {
	t.Parallel()
	var tries int
	p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
		if tries++; tries <= 20 {
			return nil, io.ErrUnexpectedEOF
		}
		return ok(), nil
	}, func(c *proxy.Config) { c.Retry.Attempts, c.Models[0].Supervised = 1, true }, "backend")
	for i := range 22 {
		want := http.StatusBadGateway
		if i >= 20 {
			want = http.StatusOK
		}
		if w := call(t.Context(), p, attemptPath); w.Code != want || tries != i+1 {
			t.Errorf("call %d: %d after %d tries, want %d: %s", i+1, w.Code, tries, want, w.Body)
		}
	}
	closed(t, p)
}

// Replies that break off count as failures, however well they begin; one that
// comes whole ends the row.
func TestBreakerOfBrokenReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries, broken := 0, true
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) {
			tries++
			res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
			end := iotest.ErrReader(io.ErrUnexpectedEOF)
			if !broken {
				end = strings.NewReader("data: [DONE]\n\n")
			}
			res.ContentLength = -1
			res.Body = io.NopCloser(io.MultiReader(strings.NewReader("data: {\"choices\":[]}\n\n"), end))
			return res, nil
		}, nil, "backend")
		stream := func(what string, whole bool, want int) {
			t.Helper()
			defer func() {
				if cut := recover() != nil; cut == whole {
					t.Errorf("%s: the reply was cut off: %v", what, cut)
				}
				if tries != want {
					t.Errorf("%s: %d tries so far, want %d", what, tries, want)
				}
			}()
			ask(t.Context(), p, attemptPath, strings.Replace(hello, "{", `{"stream":true,`, 1), nil)
		}
		for i := range 4 {
			stream("broken", false, i+1)
		}
		broken = false
		stream("whole", true, 5)
		broken = true
		for i := range 5 {
			stream("broken again", false, i+6)
		}
		stream("open", true, 10) // a 503
		time.Sleep(time.Second)
		stream("a trial", false, 11)
		stream("still broken", true, 11)
		time.Sleep(time.Second)
		broken = false
		for i := range 3 {
			stream("closed", true, i+12)
		}
		closed(t, p)
	})
}

// A backend whose probe fails gets no calls until it works.
func TestProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sick, probes := "", 0
		served := make(map[string]int)
		p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.URL.Path == "/health" {
				probes++
				if r.URL.Host == sick {
					return respond(500, nil, "out of memory"), nil
				}
				return respond(200, nil, ""), nil
			}
			served[r.URL.Host]++
			return ok(), nil
		}, func(c *proxy.Config) {
			for i := range c.Models {
				c.Models[i].HealthURL = "/health"
			}
		}, "a", "b")
		spread := func() map[string]int {
			clear(served)
			for i := range 20 {
				if w := call(t.Context(), p, fmt.Sprintf("/rollout/r%d/attempt/a/chat/completions", i)); w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
			}
			return served
		}
		if got := spread(); len(got) != 2 {
			t.Errorf("served by %v", got)
		}
		mu.Lock()
		sick = "a"
		mu.Unlock()
		time.Sleep(11 * time.Second)
		if got := spread(); got["a"] != 0 || probes < 4 {
			t.Errorf("served by %v after %d probes", got, probes)
		}
		mu.Lock()
		sick = ""
		mu.Unlock()
		time.Sleep(6 * time.Second)
		if got := spread(); len(got) != 2 {
			t.Errorf("served by %v", got)
		}
		closed(t, p)
	})
}

// Many calls of one rollout at a time spread over the replicas, none of which
// has more than its share; a lone rollout stays where its prefixes are, and a
// session is as good as a rollout.
func TestBoundedLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		running, most := make(map[string]int), make(map[string]int)
		hold := time.Second
		p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			running[r.URL.Host]++
			most[r.URL.Host] = max(most[r.URL.Host], running[r.URL.Host])
			mu.Unlock()
			time.Sleep(hold)
			mu.Lock()
			running[r.URL.Host]--
			mu.Unlock()
			return ok(), nil
		}, nil, "a", "b", "c", "d")
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { call(t.Context(), p, attemptPath) })
			synctest.Wait()
		}
		group.Wait()
		for host, n := range most {
			if n > 32 { // ceil(1.25 × 100 / 4)
				t.Errorf("%s ran %d of 100 calls at a time", host, n)
			}
		}
		hold = 0
		clear(most)
		for range 20 {
			call(t.Context(), p, attemptPath)
		}
		if len(most) != 1 {
			t.Errorf("a rollout alone was served by %v", most)
		}
		clear(most)
		for range 20 {
			ask(t.Context(), p, "/v1/chat/completions", hello, http.Header{"X-Session-Id": {"s"}})
		}
		if len(most) != 1 {
			t.Errorf("a session alone was served by %v", most)
		}
		clear(most)
		for range 20 {
			ask(t.Context(), p, "/v1/chat/completions", hello, nil)
		}
		if len(most) != 4 {
			t.Errorf("calls of nobody were served by %v", most)
		}
		closed(t, p)
	})
}

// Where all weights change, rollouts stay on their replicas: a swap to another
// version is no reason to lose the prefixes of the prompts.
func TestRoutesOutliveSwap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		served := ""
		p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
			served = r.URL.Host
			return ok(), nil
		}, nil, "a", "b", "c")
		place := func(i int) string {
			call(t.Context(), p, fmt.Sprintf("/rollout/r%d/attempt/a/chat/completions", i))
			return served
		}
		before := make([]string, 30)
		for i := range before {
			before[i] = place(i)
		}
		models := p.Models()
		for i := range models {
			models[i].Version, models[i].BackendModel = "2", "lora-2"
		}
		if err := p.SetModels(models); err != nil {
			t.Fatal(err)
		}
		if err := p.SetModels(models[:2]); err != nil { // one goes, and only its rollouts move
			t.Fatal(err)
		}
		for i, b := range before {
			if got := place(i); got != b && b != "c" {
				t.Errorf("rollout %d moved from %s to %s", i, b, got)
			}
		}
		closed(t, p)
	})
}

func TestModelValidate(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]proxy.Model{
		"name":                            {BaseURL: "http://x"},
		"health_url":                      {Name: "m", BaseURL: "http://x", HealthURL: "ftp://x"},
		"resume_url":                      {Name: "m", BaseURL: "http://x", ResumeURL: "http://%zz"},
		"limits.in_flight: got -1":        {Name: "m", BaseURL: "http://x", Limits: proxy.Limits{InFlight: -1}},
		"cache_salt: must not be set":     {Name: "m", BaseURL: "http://x", CacheSalt: true, TextOnly: true},
		"limits.requests_per_minute: got": {Name: "m", BaseURL: "http://x", Limits: proxy.Limits{RequestsPerMinute: -1}},
	} {
		if err := m.Validate(); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

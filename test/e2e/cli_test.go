//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/test/process"
)

// answered is the result of a request.
type answered struct {
	status int
	body   string
	err    error
}

// post sends a request in the background. begun is closed when the server has
// the request, which it shows by asking for its body.
func post(t *testing.T, url, body string) (begun <-chan struct{}, done <-chan answered) {
	t.Helper()
	read, result := make(chan struct{}), make(chan answered, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &announced{Reader: strings.NewReader(body), read: read})
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	req.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{ExpectContinueTimeout: longest}
	t.Cleanup(transport.CloseIdleConnections)
	go func() {
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			result <- answered{err: err}
			return
		}
		text, err := io.ReadAll(res.Body)
		if closing := res.Body.Close(); err == nil {
			err = closing
		}
		result <- answered{res.StatusCode, string(text), err}
	}()
	return read, result
}

// announced is a body that signals when it is read for the first time.
type announced struct {
	io.Reader
	read chan struct{}
}

func (a *announced) Read(p []byte) (int, error) {
	select {
	case <-a.read:
	default:
		close(a.read)
	}
	return a.Reader.Read(p)
}

func TestStoreDrains(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			server, url := startStore(t)
			rollouts, err := connect(t, url).EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value("1")}}})
			if err != nil {
				t.Fatal(err)
			}
			begun, done := post(t, url+"/v1/agl/waits/rollouts", fmt.Sprintf(`{"rollout_ids":[%q],"timeout":3600}`, rollouts[0].RolloutID))
			<-begun
			server.signalGroup(sig)
			if a := <-done; a.err != nil || a.status != http.StatusOK || a.body != "[]" {
				t.Errorf("the blocked wait got %+v, want status 200 and no rollout", a)
			}
			if exit := server.end(); exit != 0 {
				t.Errorf("exit code %d, want 0", exit)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	_, url := startStore(t)
	watch := start(t, aglBinary, []string{"rollouts", "--watch", "--json", "--store", url}, nil)
	c := connect(t, url)
	// The watch prints nothing before the first event: make events until it prints one.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, err := c.EnqueueRollouts(context.WithoutCancel(t.Context()), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{}}}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	line := regexp.MustCompile(`^\{"rollout_id":"ro-[0-9a-f]+","input":null,.*"status":"queuing",`)
	what, rest, ok := watch.next(time.After(longest), "a rollout")
	if text := strings.TrimSuffix(what+" "+rest, " "); !ok || !line.MatchString(text) {
		t.Errorf("line %q, want a rollout", text)
	}
	close(stop)
	<-stopped
	watch.signalGroup(syscall.SIGINT)
	if exit := watch.end(); exit != ctrlC {
		t.Errorf("exit code %d, want %d; standard error: %s", exit, ctrlC, watch.stderr)
	}
	if text := watch.stderr.String(); text != "" {
		t.Errorf("standard error %q, want nothing", text)
	}
}

// TestWatchOverRestart kills the store under commands that watch it. They wait for it, and then show what has changed.
func TestWatchOverRestart(t *testing.T) {
	t.Parallel()
	dir := process.Dir(t)
	server := process.Store(t, aglBinary, "store", dir, "--db", "sqlite:"+filepath.Join(dir, "agl.db"))
	c := connect(t, server.URL())
	enqueue := func() string {
		t.Helper()
		queued, err := c.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value("1")}}})
		if err != nil {
			t.Fatal(err)
		}
		return queued[0].RolloutID
	}
	await := func(s *started, text string) {
		t.Helper()
		for deadline := time.After(longest); ; {
			what, rest, ok := s.next(deadline, text)
			if !ok {
				t.Fatalf("%v ended before it showed %s", s.cmd.Args, text)
			}
			if strings.Contains(what+" "+rest, text) {
				return
			}
		}
	}
	first := enqueue()
	rollouts := start(t, aglBinary, []string{"rollouts", "--watch", "--json", "--store", server.URL()}, nil)
	stats := start(t, aglBinary, []string{"stats", "--watch", "--json", "--every=10ms", "--store", server.URL()}, nil)
	await(rollouts, first)
	await(stats, `"total_rollouts":1,`)
	server.Kill()
	rollouts.awaitStderr("the store is away")
	stats.awaitStderr("the store is away")
	server.Start()
	await(rollouts, enqueue())
	await(stats, `"total_rollouts":2,`)
	for _, watch := range []*started{rollouts, stats} {
		watch.signalGroup(syscall.SIGINT)
		if exit := watch.end(); exit != ctrlC {
			t.Errorf("%v: exit code %d, want %d", watch.cmd.Args, exit, ctrlC)
		}
		if n := strings.Count(watch.stderr.String(), "the store is away"); n != 1 {
			t.Errorf("%v says %d times that the store is away, want once", watch.cmd.Args, n)
		}
	}
}

func TestProxyRecordsAndDrains(t *testing.T) {
	t.Parallel()
	_, storeURL := startStore(t)
	release := make(chan struct{})
	model := proxytest.NewServer(func(context.Context, proxytest.Request) proxytest.Reply {
		<-release
		return proxytest.Reply{Body: `{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`}
	})
	t.Cleanup(model.Close)
	gateway, url := startProxy(t, storeURL, model.BaseURL())
	c := connect(t, storeURL)
	r, err := c.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
	if err != nil {
		t.Fatal(err)
	}
	begun, done := post(t, url+"/rollout/"+r.RolloutID+"/attempt/"+r.Attempt.AttemptID+"/v1/chat/completions",
		`{"model":"m","messages":[{"role":"user","content":"hello"}]}`)
	<-begun
	gateway.signalGroup(syscall.SIGTERM)
	gateway.awaitLine("msg=draining")
	close(release)
	if a := <-done; a.err != nil || a.status != http.StatusOK || !strings.Contains(a.body, `"hi"`) {
		t.Errorf("the running call got %+v, want the model's reply", a)
	}
	if exit := gateway.end(); exit != 0 {
		t.Errorf("exit code %d, want 0", exit)
	}
	page, err := c.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
	if err != nil {
		t.Fatal(err)
	}
	if page.Total == 0 {
		t.Error("the call that was running at the end is not recorded")
	}
}

// A model is called through the HTTP proxy that the environment names, unless NO_PROXY names the model.
func TestProxyBehindAnHTTPProxy(t *testing.T) {
	t.Parallel()
	_, storeURL := startStore(t)
	company := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "asked for %s", r.URL) }))
	t.Cleanup(company.Close)
	for bypassed, want := range map[string]string{
		"":              "asked for http://model.invalid/v1/chat/completions",
		"model.invalid": "backend_unreachable",
	} {
		_, url := startProxyIn(t, []string{"HTTP_PROXY=" + company.URL, "NO_PROXY=" + bypassed, "no_proxy="}, storeURL, "http://model.invalid/v1")
		begun, done := post(t, url+"/v1/chat/completions", `{"model":"m","messages":[]}`)
		<-begun
		if a := <-done; a.err != nil || !strings.Contains(a.body, want) {
			t.Errorf("NO_PROXY=%s: got %+v, want %s", bypassed, a, want)
		}
	}
}

// silentModel is a model server that never answers while the test runs.
func silentModel(t *testing.T) string {
	t.Helper()
	ended := make(chan struct{})
	model := proxytest.NewServer(func(context.Context, proxytest.Request) proxytest.Reply {
		<-ended
		return proxytest.Reply{}
	})
	t.Cleanup(func() { close(ended); model.Close() })
	return model.BaseURL()
}

func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	_, storeURL := startStore(t)
	gateway, url := startProxy(t, storeURL, silentModel(t), "--drain-timeout=2s") // the record is stored within as long again
	c := connect(t, storeURL)
	r, err := c.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value("1")}})
	if err != nil {
		t.Fatal(err)
	}
	begun, done := post(t, url+"/rollout/"+r.RolloutID+"/attempt/"+r.Attempt.AttemptID+"/v1/chat/completions", `{"model":"m","messages":[]}`)
	<-begun
	gateway.signalGroup(syscall.SIGTERM)
	gateway.awaitLine("requests are still running after 2s")
	if exit := gateway.end(); exit != 1 {
		t.Errorf("exit code %d, want 1", exit)
	}
	if a := <-done; a.err != nil || a.status != http.StatusServiceUnavailable {
		t.Errorf("the call got %+v, want 503", a)
	}
	page, err := c.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
	if err != nil {
		t.Fatal(err)
	}
	if outcome := adapter.CallOutcome(page.Items); outcome != agl.OutcomeModelError {
		t.Errorf("the call that the proxy broke off has the outcome %q: %+v", outcome, page.Items)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	_, storeURL := startStore(t)
	gateway, url := startProxy(t, storeURL, silentModel(t), "--drain-timeout=1h")
	begun, done := post(t, url+"/v1/chat/completions", `{"model":"m","messages":[]}`)
	<-begun
	gateway.signalGroup(syscall.SIGINT)
	gateway.awaitLine("msg=draining")
	gateway.signalGroup(syscall.SIGINT)
	if exit := gateway.end(); exit != ctrlC {
		t.Errorf("exit code %d, want %d", exit, ctrlC)
	}
	if a := <-done; a.err == nil && a.status != http.StatusServiceUnavailable {
		t.Errorf("the call got %+v although the proxy was ended", a)
	}
}

// startProxy runs agl proxy before a model called m.
func startProxy(t *testing.T, storeURL, modelURL string, flags ...string) (gateway *started, url string) {
	t.Helper()
	return startProxyIn(t, nil, storeURL, modelURL, flags...)
}

// startProxyIn starts a proxy with further environment variables.
func startProxyIn(t *testing.T, env []string, storeURL, modelURL string, flags ...string) (gateway *started, url string) {
	t.Helper()
	gateway = startMerged(t, aglBinary, append([]string{"proxy", "--store", storeURL, "--model", "m=" + modelURL}, flags...), env)
	listening := regexp.MustCompile(`LLM proxy listens.* url=(\S+)`)
	for deadline := time.After(longest); ; {
		what, rest, ok := gateway.next(deadline, "the proxy to listen")
		if !ok {
			t.Fatalf("agl proxy ended: %v", gateway.seen)
		}
		if m := listening.FindStringSubmatch(what + " " + rest); m != nil {
			return gateway, m[1]
		}
	}
}

// awaitLine reads on until a line contains a text.
func (s *started) awaitLine(text string) {
	s.t.Helper()
	for deadline := time.After(longest); ; {
		what, rest, ok := s.next(deadline, text)
		if !ok {
			s.t.Fatalf("the program ended before it had said %q", text)
		}
		if strings.Contains(what+" "+rest, text) {
			return
		}
	}
}

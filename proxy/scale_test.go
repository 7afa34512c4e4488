package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
	"github.com/go-json-experiment/json"
)

// streamOf is a stream of events, each of which says one of the words.
func streamOf(words ...string) []string {
	var pieces []string
	for i, w := range words {
		pieces = append(pieces, fmt.Sprintf(`data: {"id":"c%d","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"%s "},"finish_reason":null}]}`+"\n\n", i, w))
	}
	return append(pieces, "data: [DONE]\n\n")
}

// 100 swaps under 64 concurrent streams fail no call, and what each call got is
// of the weights that its record names, or of two versions that it names. The
// model "adapter" is served by weights of another name after each swap, as LoRA
// adapters are; those of "weights" change in place while the proxy is drained.
func TestSwapsUnderStreams(t *testing.T) {
	t.Parallel()
	var inPlace atomic.Int64
	backend := func(ctx context.Context, r proxytest.Request) proxytest.Reply {
		var q struct {
			Model string `json:"model"`
		}
		if err := json.Unmarshal(r.Body, &q); err != nil {
			return proxytest.Reply{Status: 400, Body: err.Error()}
		}
		word := func() string {
			if q.Model == "weights" {
				return fmt.Sprint(inPlace.Load())
			}
			return strings.TrimPrefix(q.Model, "lora-")
		}
		// Each piece says which weights it comes from as it is sent.
		pieces := streamOf(word(), word(), word())
		reply := proxytest.Reply{ContentType: "text/event-stream", Pieces: pieces}
		reply.Step = func(_ context.Context, i int) error {
			if i < len(pieces)-1 {
				pieces[i] = streamOf(word())[0]
			}
			return ctx.Err()
		}
		return reply
	}
	backends := []*proxytest.Server{serve(t, backend), serve(t, backend)}
	models := func(version int) []proxy.Model {
		v := fmt.Sprint(version)
		at := backends[version%len(backends)].BaseURL()
		return []proxy.Model{
			{Name: "adapter", BaseURL: at, BackendModel: "lora-" + v, Version: v},
			{Name: "adapter", BaseURL: backends[0].BaseURL() + "/", BackendModel: "lora-" + v, Version: v},
			{Name: "weights", BaseURL: backends[0].BaseURL(), Version: fmt.Sprint(inPlace.Load())},
		}
	}
	g := start(t, "", func(c *proxy.Config) { c.Models = models(0) })
	const swaps, workers = 100, 64
	stop := make(chan struct{})
	made := make(chan struct{}, workers)
	failed := make(chan struct{})
	var once sync.Once
	var total atomic.Int64
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, []string{"adapter", "weights"}[worker%2])
			url := fmt.Sprintf("%s/rollout/r%d/attempt/a/v1/chat/completions", g.URL, worker)
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := send(t.Context(), url, body)
				if err != nil || r.status != 200 || !strings.HasSuffix(string(r.body), "data: [DONE]\n\n") {
					t.Errorf("call failed: %v %d %s", err, r.status, r.body)
					once.Do(func() { close(failed) })
					return
				}
				total.Add(1)
				select {
				case made <- struct{}{}:
				case <-stop:
				}
			}
		})
	}
	for version := 1; version <= swaps; version++ {
		if version%10 == 0 {
			if err := g.Pause(t.Context(), proxy.PauseDrain); err != nil {
				t.Error(err)
			}
			inPlace.Add(1)
		}
		if err := g.SetModels(models(version)); err != nil {
			t.Error(err)
		}
		if version%10 == 0 {
			if err := g.Resume(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for range workers / 8 { // let them run between swaps
			select {
			case <-made:
			case <-failed:
				close(stop)
				group.Wait()
				t.FailNow()
			}
		}
	}
	close(stop)
	group.Wait()
	flush(t, g)
	calls := g.spans.calls()
	if int64(len(calls)) != total.Load() {
		t.Errorf("%d calls on record, %d were made", len(calls), total.Load())
	}
	versions := make(map[string]bool)
	for _, c := range calls {
		first, last := attribute(t, &c, agl.AttrModelVersion), attribute(t, &c, agl.AttrModelVersionEnd)
		versions[first] = true
		words := strings.Fields(attribute(t, &c, agl.AttrGenAICompletion+".0.content"))
		if len(words) != 3 || words[0] != first || words[2] != last || words[1] != first && words[1] != last {
			t.Errorf("a call of versions %q to %q got %q", first, last, words)
		}
	}
	if len(versions) < 2 {
		t.Errorf("all calls were of the versions %v", versions)
	}
}

// 1,000 agents leave in the middle of their streams. The backend sees each of
// them go, and nothing of them is left: no slot, no memory, no goroutine (which
// TestMain looks for), and each has one record that says so.
func TestAbandonedStreams(t *testing.T) {
	t.Parallel()
	const agents = 1000
	left := make([]atomic.Int64, agents) // when each agent left, in nanoseconds
	seen := make(chan time.Duration, agents)
	backend := serve(t, func(_ context.Context, r proxytest.Request) proxytest.Reply {
		var q struct {
			User int `json:"user"`
		}
		if err := json.Unmarshal(r.Body, &q); err != nil {
			return proxytest.Reply{Status: 400, Body: err.Error()}
		}
		if q.User >= agents {
			return proxytest.Reply{ContentType: "text/event-stream", Pieces: streamOf("a", "b")}
		}
		return proxytest.Reply{ContentType: "text/event-stream", Pieces: streamOf("a", "b"), Step: func(ctx context.Context, i int) error {
			if i == 0 {
				return nil
			}
			<-ctx.Done()
			seen <- time.Duration(time.Now().UnixNano() - left[q.User].Load())
			return ctx.Err()
		}}
	})
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Models[0].Limits.InFlight = agents })
	transport := &http.Transport{MaxConnsPerHost: 0, DisableKeepAlives: true}
	client := &http.Client{Transport: transport}
	body := func(user int) string {
		return fmt.Sprintf(`{"model":"m","user":%d,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, user)
	}
	var group sync.WaitGroup
	gate := make(chan struct{}, 64) // how many connections are opened at a time
	began := make(chan struct{}, agents)
	leave := make(chan struct{})
	for i := range agents {
		group.Go(func() {
			gate <- struct{}{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/rollout/r%d/attempt/a/v1/chat/completions", g.URL, i), strings.NewReader(body(i)))
			if err != nil {
				t.Error(err)
				return
			}
			res, err := client.Do(req)
			<-gate
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"a "`) {
				t.Errorf("%q %v", line, err)
			}
			began <- struct{}{}
			<-leave
			left[i].Store(time.Now().UnixNano())
			cancel()
		})
	}
	for range agents {
		<-began
	}
	if s := g.PauseState(); s.Running != agents {
		t.Errorf("%d streams run", s.Running)
	}
	// Half of them leave one after another, which shows how long each takes to be
	// seen, and then the other half at once.
	after := make([]time.Duration, agents/2)
	for i := range after {
		leave <- struct{}{}
		after[i] = <-seen
	}
	slices.Sort(after)
	close(leave)
	group.Wait()
	last := time.Duration(0)
	for range agents - len(after) {
		last = max(last, <-seen)
	}
	t.Logf("one by one the agents were seen to go after %v (median), %v (p99), %v (most); all at once after %v",
		after[len(after)/2], after[len(after)*99/100], after[len(after)-1], last)
	flush(t, g)
	calls := g.spans.calls()
	delivered := 0
	for _, c := range calls {
		if attribute(t, &c, record.AttrDelivered) != "false" || c.Status.Code != agl.StatusError {
			delivered++
		}
	}
	if len(calls) != agents || delivered > 0 {
		t.Errorf("%d records of %d calls, %d as delivered", len(calls), agents, delivered)
	}
	if s := g.PauseState(); s.Running != 0 || s.Held != 0 {
		t.Errorf("left over: %+v", s)
	}
	metrics := get(t, g.URL+"/metrics")
	for _, want := range []string{
		`agl_proxy_backend_calls{backend="` + backend.BaseURL() + `",model="m"} 0`,
		`agl_proxy_total{model="m",path="/chat/completions",status="200"} ` + fmt.Sprint(agents),
		"agl_proxy_capture_bytes 0",
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	// Every slot is free again.
	res, err := send(t.Context(), g.URL+attemptPath, body(agents))
	if err != nil || res.status != 200 {
		t.Errorf("%v %d %s", err, res.status, res.body)
	}
	transport.CloseIdleConnections()
}

package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/wire"
)

func tiny(t *testing.T) *Engine {
	t.Helper()
	e, err := NewPolicy(PolicyConfig{Policy: policy.Config{Layers: 1, Dim: 16, Heads: 1, FF: 16, Context: 16}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func conversations(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "conversations.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const hello = `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}],"source":"by hand"}`

func TestDemonstrationsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	e := tiny(t)
	for name, test := range map[string]struct{ line, want string }{
		"not an object":     {`7`, "conversation 2: must be an object with messages"},
		"a character":       {`{"messages":[{"role":"assistant","content":"Hi"}]}`, `conversation 2: messages[0].content: character 'H'`},
		"a role":            {`{"messages":[{"role":"system","content":"x"}]}`, `conversation 2: messages[0].role: "system"`},
		"nothing to learn":  {`{"messages":[{"role":"user","content":"hi"}]}`, "the assistant writes nothing"},
		"a reply elsewhere": {`{"messages":[{"role":"user","content":"hi"},{"role":"assistant","text":"hello"}]}`, "conversation 2: messages[1] has no content"},
		"a tool call": {
			`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]}`,
			"conversation 2: messages[0].tool_calls: this model takes no structured tool calls",
		},
		"longer than it is": {`{"messages":[{"role":"assistant","content":"much too long a reply"}]}`, "has 22 tokens, the model's context is 16"},
	} {
		_, err := e.Demonstrations(t.Context(), "", conversations(t, hello, test.line))
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error is %v, want %q", name, err, test.want)
		}
	}
	if _, err := e.Demonstrations(t.Context(), "", conversations(t)); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("an empty file: %v", err)
	}
	parts := `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}]}`
	data, err := e.Demonstrations(t.Context(), "", conversations(t, hello, parts))
	if err != nil || len(data) != 2 || !slices.Equal(data[0].Targets, data[1].Targets) {
		t.Errorf("%d demonstrations, %v", len(data), err)
	}
}

func TestWarmStartTeachesAndGoesOn(t *testing.T) {
	t.Parallel()
	e := tiny(t)
	var losses []float64
	w := WarmStart{
		Path: conversations(t, hello), Steps: 60, Batch: 2, Model: tinker.CreateModelParams{Seed: 1}, OutDir: t.TempDir(),
		OnStep: func(r sft.StepReport) { losses = append(losses, r.Loss) },
	}
	weights, err := e.WarmStart(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if len(losses) != 60 || losses[59] > losses[0]/2 {
		t.Errorf("losses %v", losses)
	}
	again, err := e.WarmStart(t.Context(), w)
	if err != nil || again != weights || len(losses) != 60 {
		t.Errorf("done again: %s and %s, %d steps, %v", weights, again, len(losses), err)
	}
}

// models is a proxy's list.
type models struct{ list []proxy.Model }

func (m *models) SetModels(list []proxy.Model) error {
	m.list = list
	return nil
}

// elsewhere is the rest of the world.
type elsewhere struct{}

func (elsewhere) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody, Request: req}, nil
}

func TestPublisherSwapsTheModel(t *testing.T) {
	t.Parallel()
	e := tiny(t)
	transport := e.Transport(elsewhere{})
	ask := func(url, model string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/chat/completions",
			strings.NewReader(`{"model":"`+model+`","max_tokens":2,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	here := e.Model().BaseURL
	if got := ask("http://judge.example/v1", "judge"); got != http.StatusTeapot {
		t.Errorf("another backend: status %d", got)
	}
	if got := ask(here, "v1"); got != http.StatusNotFound {
		t.Errorf("before a publication: status %d", got)
	}
	listed := &models{}
	publisher := e.Publisher(listed, proxy.Model{Name: "judge", BaseURL: "http://judge.example/v1"})
	publish := func(ctx context.Context, version string) {
		t.Helper()
		path, err := e.Snapshot(ctx, tinker.CreateModelParams{Seed: 1}, "")
		if err == nil {
			err = publisher.Publish(ctx, algorithm.Publication{Snapshot: path, Version: version})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"v1", "v2", "v3"} {
		publish(t.Context(), version)
	}
	if len(listed.list) != 2 || listed.list[0].Name != DefaultName || listed.list[0].BackendModel != "v3" || listed.list[0].Version != "v3" || listed.list[1].Name != "judge" {
		t.Errorf("models %+v", listed.list)
	}
	for version, want := range map[string]int{"v1": http.StatusNotFound, "v2": http.StatusOK, "v3": http.StatusOK} {
		if got := ask(here, version); got != want {
			t.Errorf("%s: status %d, want %d", version, got, want)
		}
	}
	if err := publisher.Publish(t.Context(), algorithm.Publication{}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("a publication of nothing: %v", err)
	}
}

// A draw at which an engine fails is lost alone; that the engine is away ends what is served.
func TestLostIsNotOneDraw(t *testing.T) {
	t.Parallel()
	characters, err := chat.NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	service, err := policy.NewService(policy.Config{Layers: 1, Dim: 16, Heads: 1, FF: 16, Context: 16, Vocab: characters.Vocab()})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := server.New(server.Config{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	const poison = 666
	var away, full atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			panic(http.ErrAbortHandler) // the client has left
		case away.Load():
			w.WriteHeader(http.StatusBadGateway)
		case full.Load() && strings.HasSuffix(r.URL.Path, wire.Sample):
			w.WriteHeader(http.StatusTooManyRequests)
		case strings.HasSuffix(r.URL.Path, wire.Sample) && bytes.Contains(body, fmt.Appendf(nil, `"seed":%d`, poison)):
			http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		default:
			r.Body = io.NopCloser(bytes.NewReader(body))
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		web.Close()
		if err := handler.Close(); err != nil {
			t.Error(err)
		}
	})
	var lost []error
	e, err := NewRemote(RemoteConfig{
		Client: client.Config{URL: web.URL, RetryFor: 100 * time.Millisecond}, Lost: func(err error) { lost = append(lost, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	path, err := e.Snapshot(t.Context(), tinker.CreateModelParams{}, "")
	if err == nil {
		err = e.Serve(t.Context(), path, "v1")
	}
	if err != nil {
		t.Fatal(err)
	}
	transport := e.Transport(nil)
	ask := func(seed int) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.Model().BaseURL+"/chat/completions",
			strings.NewReader(fmt.Sprintf(`{"model":"v1","max_tokens":2,"seed":%d,"messages":[{"role":"user","content":"hi"}]}`, seed)))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	if got := ask(poison); got != http.StatusInternalServerError || len(lost) > 0 {
		t.Errorf("the draw that fails: status %d, and the engine is given up: %v", got, lost)
	}
	if got := ask(1); got != http.StatusOK || len(lost) > 0 {
		t.Errorf("the next one: status %d, %v", got, lost)
	}
	full.Store(true)
	if got := ask(1); got != http.StatusInternalServerError || len(lost) != 1 {
		t.Errorf("an engine that has no room: status %d, %v", got, lost)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	away.Store(true)
	if got := ask(1); got != http.StatusServiceUnavailable || len(lost) != 2 {
		t.Errorf("an engine that is away: status %d, %v", got, lost)
	}
}

// TestUselessWeights: replies that are mostly NaN end what is served, a few among others do not.
func TestUselessWeights(t *testing.T) {
	t.Parallel()
	var lost []error
	w := &watched{lost: func(err error) { lost = append(lost, err) }}
	sample := func(logprob float64, times int) {
		t.Helper()
		w.SamplingClient = fixed(logprob)
		for range times {
			if _, err := w.Sample(t.Context(), tinker.SampleParams{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	sample(-1, 5)
	sample(math.NaN(), 4)
	if len(lost) > 0 {
		t.Errorf("4 replies of 9 are NaN: %v", lost)
	}
	sample(math.NaN(), 1)
	if len(lost) != 1 || !errors.Is(lost[0], agl.ErrIllegalState) || !strings.Contains(lost[0].Error(), "5 of 10 replies have the log-probability NaN") {
		t.Errorf("5 replies of 10 are NaN: %v", lost)
	}
}

// fixed is a sampler whose replies all have this log-probability.
type fixed float64

func (f fixed) Sample(context.Context, tinker.SampleParams) (tinker.SampleResult, error) {
	return tinker.SampleResult{Sequences: []tinker.Sequence{{Tokens: []int32{1}, Logprobs: []float32{float32(f)}}}}, nil
}

func (fixed) Spec() tinker.ModelSpec { return tinker.ModelSpec{} }

// TestServedIsNotPublished: a call to weights that the proxy was never told of says so.
func TestServedIsNotPublished(t *testing.T) {
	t.Parallel()
	e := tiny(t)
	snapshot, err := e.Snapshot(t.Context(), tinker.CreateModelParams{Seed: 1}, "")
	if err == nil {
		err = e.Serve(t.Context(), snapshot, "v1")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	for model, want := range map[string]string{
		"policy": `the model \"policy\" has no weights yet: a run trains or loads them when it starts; in Go, Engine.Publisher(proxy).Publish makes a proxy send`,
		"v0":     "it was never served here, or its weights were replaced by newer ones; GET /v1/models lists what is served",
		"v1":     `"content":`,
	} {
		recorder := httptest.NewRecorder()
		body := strings.NewReader(`{"model":"` + model + `","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`)
		e.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", body))
		if got := recorder.Body.String(); !strings.Contains(got, want) {
			t.Errorf("model %s: got %s, want %s", model, got, want)
		}
	}
}

// Snapshots that were made to be served are gone when nothing serves them any more.
func TestCloseDeletesSnapshots(t *testing.T) {
	t.Parallel()
	e, err := NewPolicy(PolicyConfig{Policy: policy.Config{Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16}})
	if err != nil {
		t.Fatal(err)
	}
	path, err := e.Snapshot(t.Context(), tinker.CreateModelParams{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path}); err != nil {
		t.Errorf("before: %v", err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := e.Service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("after: %v, want none", err)
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
	"github.com/agl-go/agl/tinker/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen counts requests by path, and may let them fail.
type seen struct {
	mu    sync.Mutex
	paths map[string]int
	fault func(path string) tinkertest.Fault
}

func (s *seen) hear(c tinkertest.Call) tinkertest.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[string]int{}
	}
	s.paths[c.Path]++
	if s.fault == nil {
		return tinkertest.None
	}
	return s.fault(c.Path)
}

func (s *seen) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[path]
}

// A run over real sockets.
func TestOverSockets(t *testing.T) {
	t.Parallel()
	engine, err := policy.NewService(tiny(""))
	if err != nil {
		t.Fatal(err)
	}
	handler, err := server.New(server.Config{Service: engine, Compress: true})
	if err != nil {
		t.Fatal(err)
	}
	defer handler.Close()
	web := httptest.NewServer(handler)
	defer web.Close()
	c, err := client.New(client.Config{URL: web.URL, Encoding: engines.Protobuf})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	d := driven{service: c}
	if _, err := d.run(t.Context()); err != nil || len(d.errors) > 0 {
		t.Errorf("%v, %v", err, d.errors)
	}
}

// A refused URL does not show its user, which may be a token.
func TestRefusedURLHidesItsUser(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{URL: "ftp://s3cret@host"})
	if !errors.Is(err, agl.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

// Heartbeats are sent every 10 s until Close.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s seen
		w := newWorld(t, "", client.Config{}, server.Config{}, s.hear)
		if _, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Minute + time.Second)
		if n := s.count("/session_heartbeat"); n != 60 {
			t.Errorf("%d heartbeats in 10 min, want 60", n)
		}
		w.close(t)
		time.Sleep(time.Minute)
		if n := s.count("/session_heartbeat"); n != 60 {
			t.Errorf("%d heartbeats after Close", n)
		}
		if _, err := w.client.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: "tinker://m/x"}); err == nil {
			t.Error("sampled after Close")
		}
	})
}

// A server that stays unreachable is an error after RetryFor, and not before.
func TestRetryFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault tinkertest.Fault
		code  agl.Code
	}{{tinkertest.LoseRequest, agl.CodeUnavailable}, {tinkertest.Refuse, agl.CodeExhausted}, {tinkertest.BadGateway, agl.CodeUnavailable}} {
		synctest.Test(t, func(t *testing.T) {
			s := seen{fault: func(string) tinkertest.Fault { return c.fault }}
			w := newWorld(t, "", client.Config{RetryFor: time.Minute}, server.Config{}, s.hear)
			defer w.close(t)
			begin := time.Now()
			_, err := w.client.Capabilities(t.Context())
			if took := time.Since(begin); agl.ErrorCode(err) != c.code || took < time.Minute || took > 2*time.Minute {
				t.Errorf("%v: %v after %v", c.fault, err, took)
			}
			if n := s.count("/client/config"); n < 5 || n > 40 {
				t.Errorf("%v: %d tries in a minute", c.fault, n)
			}
		})
	}
}

// An engine that answers 501 to what it cannot do is not asked again.
func TestNotImplemented(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "no", http.StatusNotImplemented)
	}))
	defer web.Close()
	c, err := client.New(client.Config{URL: web.URL, RetryFor: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.DeleteWeights(t.Context(), tinker.DeleteWeightsParams{Path: "tinker://m/sampler_weights/a"})
	if !errors.Is(err, agl.ErrUnimplemented) || asked.Load() != 1 {
		t.Errorf("%v after %d requests, want one, and unimplemented", err, asked.Load())
	}
}

// messages are the warnings of a log.
type messages struct {
	slog.Handler

	mu   sync.Mutex
	list []string
}

func (m *messages) Enabled(context.Context, slog.Level) bool { return true }

func (m *messages) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		m.list = append(m.list, r.Message)
	}
	return nil
}

// An outage is told, and lasts for RetryFor although each call ends sooner.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := seen{fault: func(string) tinkertest.Fault { return tinkertest.Refuse }}
		var log messages
		w := newWorld(t, "", client.Config{RetryFor: 2 * time.Minute, Logger: slog.New(&log)}, server.Config{}, s.hear)
		defer w.close(t)
		try := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			_, err := w.client.Capabilities(ctx)
			return err
		}
		begin, err := time.Now(), try()
		for tries := 1; errors.Is(err, context.DeadlineExceeded) && tries < 10; tries++ {
			err = try()
		}
		if took := time.Since(begin); !errors.Is(err, agl.ErrExhausted) || took < 2*time.Minute || took > 3*time.Minute {
			t.Errorf("%v after %v", err, took)
		}
		if n := len(log.list); n < 3 || n > 6 {
			t.Errorf("%d warnings, want one each half minute: %q", n, log.list)
		}
		// What failed long ago is another outage.
		time.Sleep(2 * time.Minute)
		if err := try(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		s.mu.Lock()
		s.fault = nil
		s.mu.Unlock()
		if err := try(); err != nil {
			t.Error(err)
		}
	})
}

// A call that takes long is told once.
func TestSlowCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := seen{fault: func(path string) tinkertest.Fault {
			if path == wire.RetrieveFuture && time.Since(begin) < 5*time.Minute {
				return tinkertest.Pending
			}
			return tinkertest.None
		}}
		var log messages
		w := newWorld(t, "", client.Config{Logger: slog.New(&log)}, server.Config{}, s.hear)
		defer w.close(t)
		if _, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{}); err != nil || len(log.list) != 1 {
			t.Errorf("%v, warnings %q", err, log.list)
		}
	})
}

// A call that ends with its context may have run: the model is in doubt until a checkpoint is loaded.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var slow bool
		s := seen{fault: func(path string) tinkertest.Fault {
			if slow && path == "/retrieve_future" {
				return tinkertest.Pending
			}
			return tinkertest.None
		}}
		w := newWorld(t, "", client.Config{}, server.Config{}, s.hear)
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
		if err != nil {
			t.Fatal(err)
		}
		path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		slow = true
		_, err = m.ForwardBackward(ctx, data(0))
		if !errors.Is(err, client.ErrInDoubt) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want in doubt and the context's", err)
		}
		if n := s.count("/retrieve_future"); n > 75 {
			t.Errorf("a server that answers at once was asked %d times in a minute", n)
		}
		slow = false
		if _, err := m.OptimStep(t.Context(), adam); !errors.Is(err, client.ErrInDoubt) {
			t.Errorf("the next call: %v", err)
		}
		if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path}); err != nil {
			t.Fatal(err)
		}
		res, err := m.OptimStep(t.Context(), adam)
		if err != nil || res.GradNorm != 0 {
			t.Errorf("the gradient of the cancelled call is %v, %v", res.GradNorm, err)
		}
	})
}

// The result of a sample comes with the answer to its submit from servers that can do that, even if that answer was lost
// once; other servers give the same result.
func TestEarlyResult(t *testing.T) {
	t.Parallel()
	sample := func(t *testing.T, early, lost bool, cc client.Config) (res tinker.SampleResult, paths []string) {
		t.Helper()
		listening := false
		w := newWorldOn(t, "", cc, tinkertest.Config{EarlyResults: early, Fault: func(c tinkertest.Call) tinkertest.Fault {
			if c.Path != wire.Sample && c.Path != wire.RetrieveFuture || !listening {
				return tinkertest.None
			}
			if paths = append(paths, c.Path); lost && len(paths) == 1 {
				return tinkertest.LoseAnswer
			}
			return tinkertest.None
		}})
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.client.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		listening = true
		res, err = c.Sample(t.Context(), tinker.SampleParams{Prompt: []int32{1, 2}, NumSamples: 2, MaxTokens: 4, Temperature: 1, Seed: new(uint64(3))})
		if err != nil {
			t.Fatal(err)
		}
		return res, paths
	}
	var want tinker.SampleResult
	for _, test := range []struct {
		name        string
		early, lost bool
		cc          client.Config
		paths       []string
	}{
		{"late", false, false, client.Config{}, []string{wire.Sample, wire.RetrieveFuture}},
		{"early", true, false, client.Config{}, []string{wire.Sample}},
		{"early, JSON", true, false, client.Config{Encoding: engines.JSON}, []string{wire.Sample}},
		{"protobuf", true, false, client.Config{Encoding: engines.Protobuf}, []string{wire.Sample, wire.RetrieveFuture}},
		{"short requests", true, false, client.Config{RequestTimeout: time.Second}, []string{wire.Sample, wire.RetrieveFuture}},
		{"lost", true, true, client.Config{}, []string{wire.Sample, wire.Sample}},
	} {
		synctest.Test(t, func(t *testing.T) {
			res, paths := sample(t, test.early, test.lost, test.cc)
			if want.Sequences == nil {
				want = res
			}
			if diff := cmp.Diff(want, res); diff != "" {
				t.Errorf("%s: %s", test.name, diff)
			}
			if diff := cmp.Diff(test.paths, paths); diff != "" {
				t.Errorf("%s: %s", test.name, diff)
			}
		})
	}
}

// A server may hold requests for a result for longer than RequestTimeout.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s seen
		s.fault = func(path string) tinkertest.Fault {
			if path == "/retrieve_future" && s.paths[path] < 10 {
				return tinkertest.Delay // by 5 s
			}
			return tinkertest.None
		}
		w := newWorld(t, "", client.Config{RequestTimeout: 2 * time.Second, RetryFor: 3 * time.Second}, server.Config{}, s.hear)
		defer w.close(t)
		if _, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{}); err != nil {
			t.Error(err)
		}
		if n := s.count("/retrieve_future"); n != 10 {
			t.Errorf("asked %d times, want 10", n)
		}
	})
}

// A batch that is sent in several requests has the result of one request.
func TestChunkedBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s seen
		w := newWorld(t, "", client.Config{ChunkData: 2}, server.Config{Order: engines.Strict}, s.hear)
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		local, err := w.engine.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.ForwardBackward(t.Context(), data(0))
		if err != nil {
			t.Fatal(err)
		}
		want, err := local.ForwardBackward(t.Context(), data(0))
		if err != nil {
			t.Fatal(err)
		}
		if got.Loss != want.Loss || len(got.Losses) != 5 || s.count("/forward_backward") != 3 {
			t.Errorf("loss %v, want %v, of %d data in %d requests", got.Loss, want.Loss, len(got.Losses), s.count("/forward_backward"))
		}
		// A later part that is lost leaves a part of the batch behind.
		s.mu.Lock()
		s.fault = func(path string) tinkertest.Fault {
			if path == "/forward_backward" && s.paths[path] >= 5 {
				return tinkertest.Refuse
			}
			return tinkertest.None
		}
		s.mu.Unlock()
		if _, err := m.ForwardBackward(t.Context(), data(1)); !errors.Is(err, client.ErrInDoubt) || !errors.Is(err, agl.ErrExhausted) {
			t.Errorf("error %v, want in doubt", err)
		}
	})
}

// On an engine whose snapshots change, only a snapshot that equals the model's weights is sampled.
func TestSnapshotsThatChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", client.Config{Engine: &engines.Engine{Vocab: vocab, Context: 16}}, server.Config{}, nil)
	defer w.close(t)
	m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	sample := func(name string) error {
		t.Helper()
		path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		c, err := w.client.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		p := tinker.SampleParams{Prompt: []int32{1}, MaxTokens: 2}
		if _, err := c.Sample(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := m.ForwardBackward(t.Context(), data(0)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Sample(t.Context(), p); err != nil {
			t.Errorf("a gradient changes no weights: %v", err)
		}
		if _, err := m.OptimStep(t.Context(), adam); err != nil {
			t.Fatal(err)
		}
		_, err = c.Sample(t.Context(), p)
		return err
	}
	for _, name := range []string{"a", "b"} {
		if err := sample(name); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("%s after a step: %v", name, err)
		}
	}
}

// Bad data never reach the server.
func TestBadData(t *testing.T) {
	t.Parallel()
	var s seen
	w := newWorld(t, "", client.Config{Engine: &engines.Engine{Losses: []tinker.LossName{tinker.CrossEntropy}, Normalization: engines.DatumMean}}, server.Config{}, s.hear)
	defer w.close(t)
	m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	bad := data(0)
	bad.Data[1].Targets[0] = vocab
	for _, p := range []tinker.ForwardParams{{}, {Loss: tinker.Loss{Name: tinker.CrossEntropy}}, bad, data(1)} {
		if _, err := m.ForwardBackward(t.Context(), p); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "a/b"}); !errors.Is(err, agl.ErrInvalid) {
		t.Error(err)
	}
	if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: "tinker://m/sampler_weights/a"}); !errors.Is(err, agl.ErrInvalid) {
		t.Error(err)
	}
	if _, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{BaseModel: "other"}); !errors.Is(err, agl.ErrNotFound) {
		t.Error(err)
	}
	if n := s.count("/forward_backward"); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// The memory of snapshots that change does not grow with their number. An old snapshot is refused as long as its model is in
// training, in either form of its path.
func TestOldSnapshotsAreRefusedWithoutBeingRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", client.Config{Engine: &engines.Engine{Vocab: vocab, Context: 16}}, server.Config{}, nil)
	defer w.close(t)
	m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	sample := func(path string) error {
		t.Helper()
		c, err := w.client.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Sample(t.Context(), tinker.SampleParams{Prompt: []int32{1}, MaxTokens: 2})
		return err
	}
	var paths []string
	for i := range 20 {
		path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: fmt.Sprint("s", i)})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		if err := sample(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := w.client.Remembered(); n > 1 {
		t.Errorf("%d snapshots are remembered of one model", n)
	}
	for _, path := range []string{paths[0], paths[18], strings.Replace(paths[3], "sampler_weights/", "", 1)} {
		if err := sample(path); !errors.Is(err, agl.ErrIllegalState) {
			t.Errorf("the old snapshot %s: %v, want illegal state", path, err)
		}
	}
	if err := sample(strings.Replace(paths[19], "sampler_weights/", "", 1)); err != nil {
		t.Errorf("the newest snapshot by its short path: %v", err)
	}
	if err := m.Unload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.client.Remembered(); n != 0 {
		t.Errorf("%d snapshots are remembered of no model", n)
	}
	if err := sample(paths[0]); err != nil {
		t.Errorf("no training is left to disturb: %v", err)
	}
}

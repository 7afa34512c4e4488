package client_test

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

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// lost are the faults after which a submit has run although the client does not know it; strict order makes a difference
// for these.
var lost = []tinkertest.Fault{tinkertest.LoseAnswer, tinkertest.BadGateway, tinkertest.Repeat, tinkertest.Gone}

// One fault of each kind at each request of a run: the run ends with the weights of a run without faults, and reports a model
// that is in doubt.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	t.Parallel()
	engine, err := policy.NewService(tiny(""))
	if err != nil {
		t.Fatal(err)
	}
	plain := driven{service: engine}
	path, err := plain.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := consequence(t, engine, path)
	for _, order := range []engines.Order{engines.Arrival, engines.Strict, engines.Ignored} {
		name := string(order)
		if name == "" {
			name = "arrival"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, fault := range tinkertest.Faults() {
				// A repeat that a server does not notice cannot be helped by its client.
				if fault == tinkertest.Repeat && order == engines.Ignored {
					continue
				}
				if order == engines.Strict && !slices.Contains(lost, fault) {
					continue // as on arrival
				}
				for _, queued := range []bool{false, true} {
					for n, calls := 0, 1; n < calls; n++ {
						calls = faultyRun(t, order, fault, n, queued, want)
					}
				}
			}
		})
	}
}

// faultyRun makes a run whose request n meets a fault. It returns the number of requests.
func faultyRun(t *testing.T, order engines.Order, fault tinkertest.Fault, n int, queued bool, want tinker.ForwardResult) (calls int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", client.Config{}, server.Config{Order: order}, func(c tinkertest.Call) tinkertest.Fault {
			if c.N == n {
				return fault
			}
			return tinkertest.None
		})
		defer w.close(t)
		d := driven{service: w.client, queued: queued}
		path, err := d.run(t.Context())
		where := fmt.Sprintf("%s: %v at request %d, queued %t", order, fault, n, queued)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if diff := cmp.Diff(want, consequence(t, w.engine, path)); diff != "" {
			t.Errorf("%s: other weights; on the way: %v\n%s", where, d.errors, diff)
		}
		// What runs once can be repeated, so nobody needs to know.
		if order != engines.Ignored && fault != tinkertest.Restart && len(d.errors) > 0 {
			t.Errorf("%s: %v", where, d.errors)
		}
		calls = w.fake.Calls()
	})
	return calls
}

// consequence returns a result that is equal, bit for bit, for equal weights and optimizer states.
func consequence(t *testing.T, engine tinker.Service, path string) tinker.ForwardResult {
	t.Helper()
	m, err := engine.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	d := driven{service: engine, model: m, step: runSteps - 1}
	if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
		t.Fatal(err)
	}
	if err := d.attempt(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := m.Forward(t.Context(), data(0))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// An unload does not wait long for a server that is gone for good, whichever request it is about to make.
func TestUnloadOfLostEngine(t *testing.T) {
	t.Parallel()
	for _, dies := range []string{"/forward_backward", "/unload_model", "/retrieve_future"} {
		synctest.Test(t, func(t *testing.T) {
			training, dead := false, false
			w := newWorld(t, "", client.Config{}, server.Config{Order: engines.Ignored, HideEngine: true}, func(c tinkertest.Call) tinkertest.Fault {
				if dead = dead || training && c.Path == dies; dead {
					return tinkertest.LoseRequest
				}
				return tinkertest.None
			})
			defer w.close(t)
			m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
			if err != nil {
				t.Fatal(err)
			}
			training = true
			if _, err := m.ForwardBackward(t.Context(), data(0)); (err != nil) != (dies != "/unload_model") {
				t.Fatal(err)
			}
			begin := time.Now()
			if err := m.Unload(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
				t.Errorf("%s: %v, want unavailable", dies, err)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("%s: the unload took %v", dies, took)
			}
		})
	}
}

// An unload does not wait long for a server that never ends it.
func TestUnloadWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		unloads := false
		w := newWorld(t, "", client.Config{}, server.Config{}, func(c tinkertest.Call) tinkertest.Fault {
			if unloads = unloads || c.Path == "/unload_model"; unloads && c.Path == "/retrieve_future" {
				return tinkertest.Pending
			}
			return tinkertest.None
		})
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := m.Unload(t.Context()); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "not unloaded after 30s") {
			t.Errorf("%v, want unavailable", err)
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("the unload took %v", took)
		}
	})
}

// On a server that runs repeats twice, a lost answer is reported, and nothing continues before a checkpoint is loaded.
func TestLostAnswerIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lose := false
		w := newWorld(t, "", client.Config{}, server.Config{Order: engines.Ignored, HideEngine: true}, func(c tinkertest.Call) tinkertest.Fault {
			if lose && c.Path == "/forward_backward" {
				return tinkertest.LoseAnswer
			}
			return tinkertest.None
		})
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{})
		if err != nil {
			t.Fatal(err)
		}
		path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "a"})
		if err != nil {
			t.Fatal(err)
		}
		lose = true
		if _, err := m.ForwardBackward(t.Context(), data(0)); !errors.Is(err, client.ErrInDoubt) {
			t.Fatalf("error %v, want in doubt", err)
		}
		if _, err := m.OptimStep(t.Context(), adam); !errors.Is(err, client.ErrInDoubt) {
			t.Errorf("the next call: %v", err)
		}
		if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.OptimStep(t.Context(), adam); err != nil {
			t.Error(err)
		}
	})
}

// paged answers the second request to each path as a load balancer that has no engine behind it for a moment.
type paged struct {
	next http.RoundTripper
	mu   sync.Mutex
	seen map[string]int
}

func (p *paged) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	p.seen[r.URL.Path]++
	n := p.seen[r.URL.Path]
	p.mu.Unlock()
	if n != 2 {
		return p.next.RoundTrip(r)
	}
	w := httptest.NewRecorder()
	w.WriteHeader(http.StatusNotFound)
	_, err := w.WriteString("<html><h1>404 Not Found</h1></html>")
	return w.Result(), err
}

// TestAbsentEngine: the page of a load balancer that has no engine for a moment ends neither a run nor its heartbeats, and is not taken for
// the engine's word that something is gone.
func TestAbsentEngine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "", client.Config{}, server.Config{}, nil)
		defer w.close(t)
		plain := driven{service: w.engine}
		path, err := plain.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := consequence(t, w.engine, path)
		between := &paged{next: chat.Transport{Handler: w.fake}, seen: map[string]int{}}
		c, err := client.New(client.Config{URL: "http://tinker.invalid", Transport: between})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		d := driven{service: c}
		path, err = d.run(t.Context())
		if err != nil || len(d.errors) > 0 {
			t.Errorf("%v, %v", err, d.errors)
		}
		if diff := cmp.Diff(want, consequence(t, w.engine, path)); diff != "" {
			t.Errorf("weights differ: %s", diff)
		}
		time.Sleep(time.Minute)
		between.mu.Lock()
		defer between.mu.Unlock()
		if n := between.seen["/api/v1/session_heartbeat"]; n < 4 {
			t.Errorf("%d heartbeats in a minute after one that was refused", n)
		}
	})
}

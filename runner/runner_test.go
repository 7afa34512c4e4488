package runner_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/tracer"
)

func done(context.Context, agl.Task) (agl.Result, error) { return agl.Result{}, nil }

func TestManyWorkers(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	addResources(t, s, someResources)
	const rollouts, workers = 400, 16
	batch := make([]agl.EnqueueRollout, rollouts)
	for i := range batch {
		batch[i].Input = fmt.Appendf(nil, "%d", i)
	}
	enqueued, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: batch})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string]int{}
	r := newRunner(t, runner.Config{Store: s, Workers: workers, MaxRollouts: rollouts, HeartbeatInterval: time.Millisecond,
		Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
			mu.Lock()
			seen[string(task.Input())]++
			mu.Unlock()
			for range 3 {
				inner, span := tracer.Start(ctx, "turn")
				if _, err := tracer.EmitMessage(inner, string(task.Input())); err != nil {
					return agl.Result{}, err
				}
				span.End()
			}
			return agl.RewardResult(1), nil
		})})
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(seen) != rollouts {
		t.Errorf("%d of %d tasks were done", len(seen), rollouts)
	}
	for i, rollout := range enqueued {
		checkEnd(t, s, rollout.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		spans := spansOf(t, s, rollout.RolloutID)
		if len(spans) != 8 {
			t.Fatalf("rollout %d has spans %v", i, spanNames(spans))
		}
		if body, _ := spans[0].Attributes.GetString(agl.AttrMessageBody); body != fmt.Sprint(i) {
			t.Errorf("rollout %d has the message of %s", i, body)
		}
	}
	page, err := s.QueryWorkers(t.Context(), agl.QueryWorkersParams{})
	if err != nil || len(page.Items) != workers {
		t.Fatalf("%d workers, %v", len(page.Items), err)
	}
}

func TestRunEndsWithTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		var count atomic.Int64
		r := newRunner(t, runner.Config{Store: s, Workers: 3, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			count.Add(1)
			time.Sleep(time.Hour)
			return agl.Result{}, nil
		})})
		_, wait := inBackground(t, r)
		time.Sleep(time.Hour) // the workers wait
		id := enqueue(t, s, agl.RolloutConfig{})
		synctest.Wait()
		if count.Load() != 1 {
			t.Fatal("a waiting worker does not wake")
		}
		if err := s.CloseQueue(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait()
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		first, second := enqueue(t, s, agl.RolloutConfig{}), enqueue(t, s, agl.RolloutConfig{})
		r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			time.Sleep(time.Hour)
			return agl.Result{}, nil
		})})
		_, wait := inBackground(t, r)
		time.Sleep(time.Minute)
		r.Drain()
		r.Drain()
		wait()
		checkEnd(t, s, first, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		if rollout := get(t, s, second); rollout.Status != agl.RolloutQueuing {
			t.Errorf("the rollout that nobody may take is %s", rollout.Status)
		}
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		ignore bool
		took   time.Duration
	}{
		{"the agent obeys", false, 0},
		{"the agent ignores it", true, grace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				id := enqueue(t, s, agl.RolloutConfig{})
				release := make(chan struct{})
				r := newRunner(t, runner.Config{Store: s, Workers: 2, Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
					if tc.ignore {
						<-release
					}
					return untilDone(ctx, task)
				})})
				cancel, wait := inBackground(t, r)
				time.Sleep(time.Minute)
				began := time.Now()
				cancel()
				wait()
				if took := time.Since(began); took != tc.took {
					t.Errorf("Run returned after %s, want %s", took, tc.took)
				}
				checkEnd(t, s, id, agl.RolloutFailed, agl.AttemptFailed, agl.OutcomeCancelled)
				close(release)
			})
		})
	}
}

// With the store gone, too, a stop takes no longer than it must.
func TestStopWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		enqueue(t, s, agl.RolloutConfig{})
		var gone atomic.Bool
		away := func() error {
			if gone.Load() {
				return agl.Errorf(agl.CodeUnavailable, "gone")
			}
			return nil
		}
		s.addSpans = func(agl.AddSpansParams) error { return away() }
		s.updateAttempt = func(agl.UpdateAttemptParams) error { return away() }
		r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
			if _, err := tracer.EmitMessage(ctx, "x"); err != nil {
				return agl.Result{}, err
			}
			return untilDone(ctx, task)
		})})
		cancel, wait := inBackground(t, r)
		synctest.Wait()
		gone.Store(true)
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		wait()
		if took := time.Since(began); took > 2*grace {
			t.Errorf("Run returned after %s", took)
		}
	})
}

func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		s.dequeue = func() error { return agl.Errorf(agl.CodeUnavailable, "away") }
		r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(done), MaxOutage: time.Minute, HeartbeatInterval: -1})
		began := time.Now()
		err := r.Run(t.Context())
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "has failed for 1m0s") {
			t.Errorf("error is %v", err)
		}
		if took := time.Since(began); took < time.Minute || took > 70*time.Second {
			t.Errorf("gave up after %s", took)
		}

		s.dequeue = func() error { return agl.Errorf(agl.CodeUnauthorized, "no token") }
		if err := r.Run(t.Context()); !errors.Is(err, agl.ErrUnauthorized) {
			t.Errorf("error is %v", err)
		}

		calls := 0
		s.dequeue = func() error {
			if calls++; calls < 10 {
				return agl.Errorf(agl.CodeUnavailable, "away")
			}
			return nil
		}
		id := enqueue(t, s, agl.RolloutConfig{})
		runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(done)})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
	})
}

// lateStore hands out a rollout in the moment in which the runner stops.
type lateStore struct {
	*faultyStore
	stop    func()
	returns error // if not nil, claims are not taken back
}

func (s *lateStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	res, err := s.faultyStore.DequeueRollouts(ctx, p)
	s.stop()
	return res, err
}

func (s *lateStore) ReturnClaims(ctx context.Context, p agl.ReturnClaimsParams) error {
	if s.returns != nil {
		return s.returns
	}
	return s.Store.ReturnClaims(ctx, p)
}

// A claim that arrives as the runner stops is neither executed nor reported: its
// rollout waits for another runner, as if nobody had claimed it.
func TestLateClaimIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, s *faultyStore) agl.Store{
		"in process": func(_ *testing.T, s *faultyStore) agl.Store { return s },
		"over HTTP":  overHTTP,
	} {
		for how, drains := range map[string]bool{"stopped": false, "drained": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := openStore(t)
				late := &lateStore{faultyStore: &faultyStore{Store: open(t, s)}, stop: cancel}
				id := enqueue(t, s, agl.RolloutConfig{MaxAttempts: 1})
				r := newRunner(t, runner.Config{Store: late, Agent: agl.AgentFunc(done)})
				if drains {
					late.stop = r.Drain
				}
				if err := r.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if rollout := get(t, s, id); rollout.Status != agl.RolloutQueuing || rollout.Attempt != nil {
					t.Errorf("rollout is %s with attempt %v", rollout.Status, rollout.Attempt)
				}
			})
		}
	}
}

// A claim that cannot be given back is executed, and the log says why.
func TestLateClaimIsNotTakenBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := &lateStore{faultyStore: openStore(t), stop: cancel, returns: errors.New("no returns today")}
	id := enqueue(t, s, agl.RolloutConfig{})
	var log strings.Builder
	cfg := runner.Config{Store: s, Agent: agl.AgentFunc(done), Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if err := newRunner(t, cfg).Run(ctx); err != nil {
		t.Fatal(err)
	}
	if rollout := get(t, s, id); rollout.Attempt == nil {
		t.Errorf("rollout is %s without an attempt", rollout.Status)
	}
	if !strings.Contains(log.String(), "no returns today") || !strings.Contains(log.String(), id) {
		t.Errorf("log: %s", log.String())
	}
}

// impatientStore answers at once, as servers that do not know waiting do.
type impatientStore struct {
	*faultyStore
	calls atomic.Int64
}

func (s *impatientStore) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	s.calls.Add(1)
	p.Wait = 0
	return s.faultyStore.DequeueRollouts(ctx, p)
}

func TestStoreThatDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &impatientStore{faultyStore: openStore(t)}
		cancel, wait := inBackground(t, newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(done)}))
		time.Sleep(time.Minute)
		cancel()
		wait()
		if calls := s.calls.Load(); calls < 55 || calls > 65 {
			t.Errorf("asked %d times in a minute", calls)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		// Without heartbeats the attempt would be unresponsive after 20 s.
		id := enqueue(t, s, agl.RolloutConfig{UnresponsiveSeconds: seconds(20)})
		var snapshots atomic.Int64
		r := newRunner(t, runner.Config{Store: s, Workers: 4, WorkerPrefix: "w", FirstWorker: 7,
			Snapshot: func(context.Context) (jsontext.Value, error) {
				return jsontext.Value(fmt.Sprintf(`{"n":%d}`, snapshots.Add(1))), nil
			},
			Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
				time.Sleep(time.Minute)
				return agl.Result{}, nil
			})})
		cancel, wait := inBackground(t, r)
		time.Sleep(59 * time.Second)
		page, err := s.QueryWorkers(t.Context(), agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "worker_id"}})
		if err != nil || len(page.Items) != 4 {
			t.Fatalf("%d workers, %v", len(page.Items), err)
		}
		if w := page.Items[0]; !strings.HasPrefix(w.WorkerID, "w-10-") || string(w.HeartbeatStats) != `{"n":6}` {
			t.Errorf("worker is %s with %s", w.WorkerID, w.HeartbeatStats)
		}
		time.Sleep(2 * time.Second)
		cancel()
		wait()
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		if snapshots.Load() != 7 {
			t.Errorf("%d snapshots were taken for four workers and seven beats", snapshots.Load())
		}
	})
}

// A snapshot that hangs, such as that of a program which waits for a broken GPU, keeps no heartbeat back, and not the end of the runner.
func TestSnapshotHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		id := enqueue(t, s, agl.RolloutConfig{UnresponsiveSeconds: seconds(20)})
		hung := make(chan struct{})
		var log bytes.Buffer
		begin := time.Now()
		runOne(t, runner.Config{Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Snapshot: func(context.Context) (jsontext.Value, error) {
				<-hung
				return jsontext.Value("{}"), nil
			},
			Agent: agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
				return agl.Result{}, nil
			})})
		checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("the runner took %s", took)
		}
		if !strings.Contains(log.String(), "it has not been taken within 30s") {
			t.Errorf("the log does not say so:\n%s", log.String())
		}
		close(hung)
	})
}

// TestHeartbeatsWithinALimit: a rollout whose limit is shorter than the interval of heartbeats does not end the attempts of a
// live runner.
func TestHeartbeatsWithinALimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []float64{0.5, 5} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				id := enqueue(t, s, agl.RolloutConfig{UnresponsiveSeconds: seconds(limit)})
				runOne(t, runner.Config{Store: s, Agent: agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
					select {
					case <-time.After(time.Minute):
					case <-ctx.Done():
					}
					return agl.Result{}, nil
				})})
				checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
			})
		})
	}
}

// panickyTracer panics when a trace begins.
type panickyTracer struct{}

func (panickyTracer) Start(context.Context, agl.TraceParams) (context.Context, agl.Trace, error) {
	panic("boom")
}

// A part of the caller's own that panics does not end the process.
func TestPanickingParts(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	id := enqueue(t, s, agl.RolloutConfig{})
	runOne(t, runner.Config{
		Store: s, Agent: agl.AgentFunc(done), Snapshot: func(context.Context) (jsontext.Value, error) { panic("boom") },
	})
	checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
	enqueue(t, s, agl.RolloutConfig{})
	err := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(done), Tracer: panickyTracer{}}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "panic: boom, at ") {
		t.Errorf("Run: got %v, want the panic and where it was", err)
	}
}

// Runs that share a prefix, in one process or in containers of one host name, must
// not take each other's attempts for their own.
func TestWorkersOfTwoRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		ids := []string{enqueue(t, s, agl.RolloutConfig{}), enqueue(t, s, agl.RolloutConfig{}), enqueue(t, s, agl.RolloutConfig{})}
		cfg := runner.Config{Store: s, WorkerPrefix: "host-1", Agent: agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
			select {
			case <-time.After(time.Minute):
				return agl.Result{}, nil
			case <-ctx.Done():
				return agl.Result{}, ctx.Err()
			}
		})}
		one := newRunner(t, cfg)
		var stops, waits []func()
		for _, r := range []*runner.Runner{one, one, newRunner(t, cfg)} {
			stop, wait := inBackground(t, r)
			stops, waits = append(stops, stop), append(waits, wait)
		}
		time.Sleep(61 * time.Second)
		for i := range stops {
			stops[i]()
			waits[i]()
		}
		for _, id := range ids {
			checkEnd(t, s, id, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		}
	})
}

func TestSystemSnapshot(t *testing.T) {
	t.Parallel()
	stats, err := runner.SystemSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key := range agl.Attributes(stats).All() {
		keys = append(keys, key)
	}
	want := []string{
		"timestamp", "host", "os", "cpu_name", "cpu_cores", "cpu_threads", "cpu_usage_pct", "mem_used_gb", "mem_total_gb",
		"mem_pct", "disk_used_gb", "disk_total_gb", "disk_pct", "bytes_sent_mb", "bytes_recv_mb",
	}
	if !slices.Equal(keys, want) {
		t.Errorf("keys are %v", keys)
	}
	if total, _ := agl.Attributes(stats).GetFloat("mem_total_gb"); total <= 0 {
		t.Errorf("snapshot is %s", stats)
	}
}

func TestConfigRejects(t *testing.T) {
	t.Parallel()
	agent := agl.AgentFunc(done)
	for want, cfg := range map[string]runner.Config{
		"Config.Store: got nil":                              {Agent: agent},
		"Config.Agent: got nil":                              {Store: agl.UnimplementedStore{}},
		"Config.Workers: got -1, must not be negative":       {Store: agl.UnimplementedStore{}, Agent: agent, Workers: -1},
		"Config.Workers: got 100001, must be at most 100000": {Store: agl.UnimplementedStore{}, Agent: agent, Workers: runner.MaxWorkers + 1},
		"Config.Hooks[1]: got nil, must be a hook":           {Store: agl.UnimplementedStore{}, Agent: agent, Hooks: []agl.Hook{agl.UnimplementedHook{}, nil}},
		"Config.GracePeriod: got -1s, must not be":           {Store: agl.UnimplementedStore{}, Agent: agent, GracePeriod: -time.Second},
	} {
		if _, err := runner.New(cfg); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

// TestUnansweredHeartbeats: while agents run, heartbeats alone tell that the store takes requests and does not answer. Each worker says so once.
func TestUnansweredHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		enqueue(t, s, agl.RolloutConfig{})
		begin := time.Now()
		s.updateWorker = func(ctx context.Context) error {
			if since := time.Since(begin); since < 15*time.Second || since > 5*time.Minute {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		var log bytes.Buffer
		runOne(t, runner.Config{Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil)), Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
			time.Sleep(10 * time.Minute)
			return done(ctx, task)
		})})
		for _, line := range []string{"the store does not answer the worker's heartbeats", "the store answers the worker's heartbeats again"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%d lines %q in\n%s", n, line, log.String())
			}
		}
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
)

const (
	spansPerRollout = 8
	// spanPadding brings a span to 1.5 KB of JSON.
	spanPadding = 780
	// readers is how many requests of the algorithm are in flight, of each kind.
	readers = 16
	// ahead is how many rollouts per runner the algorithm keeps in the store.
	ahead = 4
)

const benchResources = `{"main_llm":{"resource_type":"llm","endpoint":"http://127.0.0.1:8000/v1","model":"policy","api_key":null,"sampling_parameters":{"temperature":1.0}}}`

// worker makes the calls of a kind of client. Many goroutines call its methods at the
// same time; each call is timed under a name.
type worker interface {
	// setup stores the resources and returns their id.
	setup(ctx context.Context) error
	// enqueue puts one rollout into the queue.
	enqueue(ctx context.Context, t *timings, index int) error
	// rollout takes one rollout, runs it and returns its id.
	rollout(ctx context.Context, t *timings, runner int) (string, error)
	// collect waits for the rollout and verifies each of its spans.
	collect(ctx context.Context, t *timings, rolloutID string) error
}

// timings are the durations of the calls of one goroutine, by name.
type timings struct {
	on    *atomic.Bool
	calls map[string][]time.Duration
}

func (t *timings) add(name string, since time.Time) {
	if t.on.Load() {
		t.calls[name] = append(t.calls[name], time.Since(since))
	}
}

type result struct {
	rollouts int
	elapsed  time.Duration
	calls    map[string][]time.Duration // sorted
	// The CPU times of the load itself, and, with the warm-up, of the server and of its database.
	loadCPU, serverCPU, databaseCPU time.Duration
	withTabs                        []withTabs // for each pair of windows
}

func (r result) rolloutsPerSecond() float64 { return float64(r.rollouts) / r.elapsed.Seconds() }

func (r result) requests() int {
	n := 0
	for _, d := range r.calls {
		n += len(d)
	}
	return n
}

func (r result) requestsPerSecond() float64 { return float64(r.requests()) / r.elapsed.Seconds() }

func (r result) p99(name string) time.Duration { return bench.Quantile(r.calls[name], 99) }

// load runs the runners and the algorithm against w: a warm-up, then the time that counts, which is until measured returns. That gets the
// counter of rollouts.
func load(ctx context.Context, w worker, opt options, measured func(ctx context.Context, rollouts *atomic.Int64) error) (result, error) {
	if err := w.setup(ctx); err != nil {
		return result{}, fmt.Errorf("setup: %w", err)
	}
	outer := ctx
	group, ctx := errgroup.WithContext(ctx)
	until, stop := context.WithCancel(ctx) // is done when no more work may begin
	defer stop()
	var (
		on       atomic.Bool
		finished atomic.Int64
		done     = make(chan string, opt.Runners*ahead)
		credit   = make(chan struct{}, opt.Runners*ahead)
		index    atomic.Int64
		all      []*timings
	)
	spawn := func(body func(t *timings) error) {
		t := &timings{on: &on, calls: map[string][]time.Duration{}}
		all = append(all, t)
		group.Go(func() error { return body(t) })
	}
	for range opt.Runners * ahead {
		credit <- struct{}{}
	}
	// Runners must not wait for the algorithm.
	for range readers {
		spawn(func(t *timings) error { return feed(ctx, until, credit, w, t, &index) })
	}
	var runners sync.WaitGroup
	runners.Add(opt.Runners)
	for i := range opt.Runners {
		spawn(func(t *timings) error {
			defer runners.Done()
			return runLoop(ctx, until, done, w, t, i)
		})
	}
	for range readers {
		spawn(func(t *timings) error {
			for id := range done {
				if err := w.collect(ctx, t, id); err != nil {
					return err
				}
				if on.Load() {
					finished.Add(1)
				}
				background.Wake(credit)
			}
			return nil
		})
	}
	_ = backoff.Sleep(ctx, opt.Time/5) // an end of ctx is reported below
	on.Store(true)
	spent, err := bench.Measure(func() error { return measured(ctx, &finished) })
	on.Store(false)
	stop()
	runners.Wait()
	close(done)
	failure := group.Wait()
	res := result{rollouts: int(finished.Load()), elapsed: spent.Wall, loadCPU: spent.CPU, calls: map[string][]time.Duration{}}
	for _, t := range all {
		for name, d := range t.calls {
			res.calls[name] = append(res.calls[name], d...)
		}
	}
	for _, d := range res.calls {
		slices.Sort(d)
	}
	return res, errors.Join(failure, err, outer.Err()) // an interrupted load is no result
}

// wait measures for the whole time.
func (o options) wait(ctx context.Context, _ *atomic.Int64) error {
	_ = backoff.Sleep(ctx, o.Time) // an end of ctx is reported by load
	return nil
}

// feed enqueues a rollout for each one that was collected.
func feed(ctx, until context.Context, credit <-chan struct{}, w worker, t *timings, index *atomic.Int64) error {
	for {
		select {
		case <-until.Done():
			return nil
		case <-credit:
		}
		if err := w.enqueue(ctx, t, int(index.Add(1))); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
}

func runLoop(ctx, until context.Context, done chan<- string, w worker, t *timings, i int) error {
	for until.Err() == nil {
		id, err := w.rollout(ctx, t, i)
		if err != nil {
			return err
		}
		if id == "" {
			continue
		}
		select {
		case done <- id:
		case <-ctx.Done():
		}
	}
	return nil
}

// spanJSON is the JSON of the n-th span of an attempt.
func spanJSON(rollout, attempt string, sequence int64, n int) []byte {
	s := benchSpan(rollout, attempt, n)
	s.SequenceID = sequence
	return s.AppendJSON(nil)
}

func benchSpan(rollout, attempt string, n int) agl.Span {
	traceID := fmt.Sprintf("%032x", len(rollout)+n)
	spanID := fmt.Sprintf("%016x", n+1)
	attrs := agl.Attributes(`{"gen_ai.request.model":"policy","gen_ai.usage.input_tokens":12,"gen_ai.usage.output_tokens":34,"task":"` +
		rollout + "/" + strconv.Itoa(n) + `","gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"` + padding + `"}`)
	return agl.Span{
		RolloutID: rollout, AttemptID: attempt, TraceID: traceID, SpanID: spanID,
		Name: "openai.chat.completion", Status: agl.SpanStatus{Code: agl.StatusOK}, Attributes: attrs,
		StartTime: agl.Some(agl.Timestamp(1760706315.5)), EndTime: agl.Some(agl.Timestamp(1760706316.25)),
		Context:  &agl.SpanContext{TraceID: traceID, SpanID: spanID},
		Resource: agl.SpanResource{Attributes: agl.Attributes(`{"service.name":"bench","agentlightning.rollout_id":"` + rollout + `","agentlightning.attempt_id":"` + attempt + `"}`)},
	}
}

var padding = strings.Repeat("abcdefghijklmnopqrstuvwxyz", spanPadding/26)

// verifySpans checks that every span of a rollout is there, unchanged and once.
func verifySpans(rolloutID string, spans []agl.Span) error {
	if len(spans) != spansPerRollout {
		return fmt.Errorf("rollout %s: %d spans came back, want %d", rolloutID, len(spans), spansPerRollout)
	}
	for i := range spans {
		s := &spans[i]
		want := benchSpan(rolloutID, s.AttemptID, i)
		want.SequenceID = int64(i + 1)
		if s.RolloutID != rolloutID || s.SequenceID != want.SequenceID || s.SpanID != want.SpanID || string(s.Attributes) != string(want.Attributes) {
			return verifyLoosely(i, s, &want)
		}
	}
	return nil
}

// verifyLoosely compares attribute by attribute, for servers that write JSON with other white space.
func verifyLoosely(i int, got, want *agl.Span) error {
	if got.RolloutID != want.RolloutID || got.SequenceID != want.SequenceID || got.SpanID != want.SpanID {
		return fmt.Errorf("rollout %s, span %d: got span %s with sequence id %d of rollout %s", want.RolloutID, i, got.SpanID, got.SequenceID, got.RolloutID)
	}
	same := func(a, b jsontext.Value) bool { return string(a) == string(b) }
	if !maps.EqualFunc(maps.Collect(got.Attributes.All()), maps.Collect(want.Attributes.All()), same) {
		return fmt.Errorf("rollout %s, span %d: the attributes %s came back, want %s", want.RolloutID, i, got.Attributes, want.Attributes)
	}
	return nil
}

// tasks are n rollouts to be.
func tasks(n int) []agl.EnqueueRollout {
	all := make([]agl.EnqueueRollout, n)
	for i := range all {
		all[i] = agl.EnqueueRollout{Input: taskInput(i), Mode: agl.ModeTrain}
	}
	return all
}

func taskInput(index int) []byte {
	return []byte(`{"question":"12 times 7","index":` + strconv.Itoa(index) + `}`)
}

package store_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

func openMemory(tb testing.TB, config memory.Config) *store.Store {
	tb.Helper()
	d, err := memory.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := store.New(tb.Context(), store.Config{Driver: d})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// benchSpan is a span of about 1.5 KB of JSON.
func benchSpan(r *agl.AttemptedRollout, n int64) agl.Span {
	return agl.Span{
		RolloutID:  r.RolloutID,
		AttemptID:  r.Attempt.AttemptID,
		SequenceID: n,
		TraceID:    "0af7651916cd43dd8448eb211c80319c",
		SpanID:     fmt.Sprintf("%016x", n),
		Name:       "openai.chat.completion",
		StartTime:  agl.Some(agl.Timestamp(1760706315.5)),
		EndTime:    agl.Some(agl.Timestamp(1760706316.5)),
		Attributes: agl.Attributes(`{"gen_ai.request.model":"m","gen_ai.prompt.0.content":"` + strings.Repeat("x", 1100) + `"}`),
		Resource:   agl.SpanResource{Attributes: agl.Attributes(`{}`)},
	}
}

func startRollouts(tb testing.TB, s agl.Store, n int) []agl.AttemptedRollout {
	tb.Helper()
	out := make([]agl.AttemptedRollout, n)
	for i := range out {
		r, err := s.StartRollout(tb.Context(), agl.StartRolloutParams{
			EnqueueRollout: agl.EnqueueRollout{Input: jsontext.Value(strconv.Itoa(i))},
			WorkerID:       agl.Some("w-" + strconv.Itoa(i)),
		})
		if err != nil {
			tb.Fatal(err)
		}
		out[i] = r
	}
	return out
}

func BenchmarkAddSpan(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openMemory(b, memory.Config{CapacityBytes: 8 << 30})
			rollouts := startRollouts(b, s, callers)
			b.ReportAllocs()
			each(b, callers, func(caller, i int) error {
				span := benchSpan(&rollouts[caller], int64(i+1))
				_, err := s.AddSpans(b.Context(), agl.AddSpansParams{Spans: []agl.Span{span}})
				return err
			})
		})
	}
}

func BenchmarkReserveSequenceID(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openMemory(b, memory.Config{})
			rollouts := startRollouts(b, s, callers)
			b.ReportAllocs()
			each(b, callers, func(caller, _ int) error {
				_, err := s.ReserveSequenceIDs(b.Context(), agl.ReserveSequenceIDsParams{RolloutID: rollouts[caller].RolloutID})
				return err
			})
		})
	}
}

// TestReserveSequenceIDAllocations also covers what every other write costs: batches
// reuse the memory of the one before.
//
//nolint:paralleltest // allocations of other tests would be counted
func TestReserveSequenceIDAllocations(t *testing.T) {
	s := openMemory(t, memory.Config{})
	rollout := startRollouts(t, s, 1)[0]
	n := testing.AllocsPerRun(100, func() {
		if _, err := s.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: rollout.RolloutID}); err != nil {
			t.Error(err)
		}
	})
	if n > 4 {
		t.Errorf("one reservation makes %v allocations, want at most 4", n)
	}
}

// BenchmarkRollout is a rollout's whole life without spans.
func BenchmarkRollout(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			s := openMemory(b, memory.Config{})
			succeeded := agl.AttemptSucceeded
			b.ReportAllocs()
			each(b, callers, func(caller, _ int) error {
				ctx := b.Context()
				_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value("1")}}})
				if err != nil {
					return err
				}
				d, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w-" + strconv.Itoa(caller))})
				if err != nil {
					return err
				}
				_, err = s.UpdateAttempt(ctx, agl.UpdateAttemptParams{
					RolloutID: d.Rollouts[0].RolloutID, AttemptID: agl.LatestAttempt, Status: &succeeded,
				})
				return err
			})
		})
	}
}

// each runs b.N calls by so many goroutines.
func each(b *testing.B, callers int, call func(caller, i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	b.ResetTimer()
	for c := range callers {
		wg.Go(func() {
			for i := c; i < b.N; i += callers {
				if err := call(c, i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkWake measures how long a blocked dequeue needs to return after an
// enqueue, and a blocked wait after the end of its rollout, with 100 of them
// waiting.
func BenchmarkWake(b *testing.B) {
	const waiters = 100
	b.Run("dequeue", func(b *testing.B) {
		s := openMemory(b, memory.Config{})
		times := make(chan time.Time, waiters)
		var wg sync.WaitGroup
		ctx, stop := context.WithCancel(b.Context())
		for range waiters {
			wg.Go(func() {
				for {
					d, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
					if err != nil || len(d.Rollouts) == 0 {
						return
					}
					times <- time.Now()
				}
			})
		}
		took := make([]time.Duration, 0, b.N)
		for b.Loop() {
			start := time.Now()
			_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value("1")}}})
			if err != nil {
				b.Fatal(err)
			}
			took = append(took, (<-times).Sub(start))
		}
		stop()
		wg.Wait()
		percentiles(b, took)
	})
	b.Run("wait", func(b *testing.B) {
		s := openMemory(b, memory.Config{})
		succeeded := agl.AttemptSucceeded
		var took []time.Duration
		pace := time.NewTicker(100 * time.Microsecond)
		defer pace.Stop()
		for b.Loop() {
			rollouts := startRollouts(b, s, waiters)
			times := make([]time.Time, waiters)
			var ready, wg sync.WaitGroup
			ready.Add(waiters)
			for i := range rollouts {
				wg.Go(func() {
					ready.Done()
					_, err := s.WaitForRollouts(b.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{rollouts[i].RolloutID}})
					if err != nil {
						b.Error(err)
					}
					times[i] = time.Now()
				})
			}
			ready.Wait()
			starts := make([]time.Time, waiters)
			for i := range rollouts {
				<-pace.C
				starts[i] = time.Now()
				_, err := s.UpdateAttempt(b.Context(), agl.UpdateAttemptParams{
					RolloutID: rollouts[i].RolloutID, AttemptID: agl.LatestAttempt, Status: &succeeded,
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			wg.Wait()
			for i := range times {
				took = append(took, times[i].Sub(starts[i]))
			}
		}
		percentiles(b, took)
	})
}

func percentiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	at := func(p float64) float64 {
		return float64(took[min(int(p*float64(len(took))), len(took)-1)].Nanoseconds()) / 1e3
	}
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.99), "p99-µs")
}

// BenchmarkLongRollout ingests a rollout's spans one by one and pages through
// them. The time per span must not grow with their number.
func BenchmarkLongRollout(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		b.Run(fmt.Sprintf("spans=%d", n), func(b *testing.B) {
			s := openMemory(b, memory.Config{CapacityBytes: 64 << 30})
			for b.Loop() {
				r := startRollouts(b, s, 1)[0]
				for i := range n {
					if _, err := s.AddSpans(b.Context(), agl.AddSpansParams{Spans: []agl.Span{benchSpan(&r, int64(i+1))}}); err != nil {
						b.Fatal(err)
					}
				}
				for offset := 0; offset < n; offset += 100 {
					_, err := s.QuerySpansJSON(b.Context(), agl.QuerySpansParams{
						RolloutID: r.RolloutID, Paging: agl.Paging{Limit: 100, Offset: offset, SortBy: "sequence_id"},
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				failed := agl.RolloutFailed
				if _, err := s.UpdateRollout(b.Context(), agl.UpdateRolloutParams{RolloutID: r.RolloutID, Status: &failed}); err != nil {
					b.Fatal(err)
				}
				if err := s.DeleteRollout(b.Context(), agl.DeleteRolloutParams{RolloutID: r.RolloutID}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/span")
		})
	}
}

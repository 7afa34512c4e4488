//go:build unix

package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/sqlite"
)

// words returns text that compresses like natural language.
func words(n int, seed uint64) string {
	source := rand.New(rand.NewPCG(seed, 1))
	vocabulary := make([]string, 2000)
	for i := range vocabulary {
		vocabulary[i] = strconv.FormatUint(source.Uint64N(1<<40), 36)[:2+source.IntN(6)]
	}
	var out []byte
	for len(out) < n {
		out = append(append(out, vocabulary[source.IntN(len(vocabulary))]...), ' ')
	}
	return string(out)
}

// benchSpan is a span of about 1.5 KB of JSON.
func benchSpan(r *agl.AttemptedRollout, n int64, text string) agl.Span {
	at := (int(n) * 37) % (len(text) - 1000)
	return agl.Span{
		RolloutID:  r.RolloutID,
		AttemptID:  r.Attempt.AttemptID,
		SequenceID: n,
		TraceID:    "0af7651916cd43dd8448eb211c80319c",
		SpanID:     fmt.Sprintf("%016x", n),
		Name:       "openai.chat.completion",
		StartTime:  agl.Some(agl.Timestamp(1760706315.5)),
		EndTime:    agl.Some(agl.Timestamp(1760706316.5)),
		Attributes: agl.Attributes(`{"gen_ai.request.model":"m","gen_ai.prompt.0.content":"` + text[at:at+1000] + `"}`),
		Resource:   agl.SpanResource{Attributes: agl.Attributes(`{}`)},
	}
}

// commits counts the calls of Apply.
type commits struct{ n atomic.Int64 }

func (*commits) ObserveStore(string, error, time.Duration) {}

func (*commits) ObserveRollout(agl.RolloutStatus, agl.Mode, time.Duration) {}

func (c *commits) ObserveDriver(method string, _ error, _ time.Duration) {
	if method == "Apply" {
		c.n.Add(1)
	}
}

func benchStore(b *testing.B, d driver.Driver, o store.Observer) *store.Store {
	b.Helper()
	s, err := store.New(b.Context(), store.Config{Driver: d, Observer: o})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	return s
}

// BenchmarkRollout is the whole life of a rollout with eight spans, each with a
// request of its own, by 64 runners.
func BenchmarkRollout(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) driver.Driver{
		"memory": func(b *testing.B) driver.Driver {
			d, err := memory.New(memory.Config{})
			if err != nil {
				b.Fatal(err)
			}
			return d
		},
		"full":   func(b *testing.B) driver.Driver { return open(b, sqlite.Config{}) },
		"normal": func(b *testing.B) driver.Driver { return open(b, sqlite.Config{Sync: sqlite.SyncNormal}) },
	} {
		b.Run(name, func(b *testing.B) {
			var applied commits
			s := benchStore(b, open(b), &applied)
			text := words(100_000, 1)
			b.ReportAllocs()
			before := processorTime()
			each(b, 64, func(caller, _ int) error { return life(b.Context(), s, caller, text) })
			b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(applied.n.Load())/float64(b.N), "commits/op")
		})
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// life makes the calls of a runner and the algorithm for one rollout.
func life(ctx context.Context, s *store.Store, caller int, text string) error {
	_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`{"q":1}`), Mode: agl.ModeTrain}}})
	if err != nil {
		return err
	}
	claimed, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("w-" + strconv.Itoa(caller))})
	if err != nil {
		return err
	}
	r := &claimed.Rollouts[0]
	for range 8 {
		n, err := s.ReserveSequenceIDs(ctx, agl.ReserveSequenceIDsParams{RolloutID: r.RolloutID})
		if err != nil {
			return err
		}
		if _, err := s.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{benchSpan(r, n, text)}}); err != nil {
			return err
		}
	}
	succeeded := agl.AttemptSucceeded
	if _, err := s.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &succeeded}); err != nil {
		return err
	}
	if _, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}}); err != nil {
		return err
	}
	page, err := s.QuerySpansJSON(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt})
	if err == nil && len(page.Items) != 8 {
		err = fmt.Errorf("%d spans", len(page.Items))
	}
	return err
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

// fill enqueues rollouts.
func fill(b *testing.B, s *store.Store, n int) {
	b.Helper()
	for n > 0 {
		batch := make([]agl.EnqueueRollout, min(n, 1000))
		for i := range batch {
			batch[i].Input = jsontext.Value(`{"question":"12 times 7"}`)
		}
		if _, err := s.EnqueueRollouts(b.Context(), agl.EnqueueRolloutsParams{Rollouts: batch}); err != nil {
			b.Fatal(err)
		}
		n -= len(batch)
	}
}

// BenchmarkClaim claims 512 rollouts of a short and of a long queue.
func BenchmarkClaim(b *testing.B) {
	for _, queued := range []int{2_000, 200_000} {
		b.Run(fmt.Sprintf("queued=%d", queued), func(b *testing.B) {
			s := benchStore(b, open(b, sqlite.Config{}), nil)
			fill(b, s, queued)
			for b.Loop() {
				got, err := s.DequeueRollouts(b.Context(), agl.DequeueRolloutsParams{Limit: 512, WorkerID: agl.Some("w")})
				if err != nil || len(got.Rollouts) != 512 {
					b.Fatal(len(got.Rollouts), err)
				}
				b.StopTimer()
				fill(b, s, 512)
				b.StartTimer()
			}
		})
	}
}

// BenchmarkPage reads pages of 100 of 100,000 rollouts and of the 1,000,000 spans of
// one attempt, at the beginning and far into them.
func BenchmarkPage(b *testing.B) {
	const rollouts, spans = 110_000, 1_000_000
	path := filepath.Join(b.TempDir(), "agl.db")
	s := benchStore(b, open(b, sqlite.Config{Path: path, Sync: sqlite.SyncNormal}), nil)
	fill(b, s, rollouts)
	got, err := s.DequeueRollouts(b.Context(), agl.DequeueRolloutsParams{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	r := &got.Rollouts[0]
	text := words(100_000, 1)
	for n := 0; n < spans; n += 1000 {
		batch := make([]agl.Span, 1000)
		for i := range batch {
			batch[i] = benchSpan(r, int64(n+i+1), text)
		}
		if _, err := s.AddSpans(b.Context(), agl.AddSpansParams{Spans: batch}); err != nil {
			b.Fatal(err)
		}
	}
	for _, order := range []agl.SortOrder{agl.Ascending, agl.Descending} {
		for _, offset := range []int{0, 500, 100_000, 900_000} {
			b.Run(fmt.Sprintf("spans/%s/offset=%d", order, offset), func(b *testing.B) {
				for b.Loop() {
					page, err := s.QuerySpansJSON(b.Context(), agl.QuerySpansParams{
						RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt,
						Paging: agl.Paging{Limit: 100, Offset: offset, SortBy: "sequence_id", Order: order},
					})
					if err != nil || len(page.Items) != 100 || page.Total != spans {
						b.Fatal(len(page.Items), page.Total, err)
					}
				}
			})
			if offset > rollouts {
				continue
			}
			b.Run(fmt.Sprintf("rollouts/%s/offset=%d", order, offset), func(b *testing.B) {
				for b.Loop() {
					page, err := s.QueryRollouts(b.Context(), agl.QueryRolloutsParams{
						Paging: agl.Paging{Limit: 100, Offset: offset, SortBy: "start_time", Order: order},
					})
					if err != nil || len(page.Items) != 100 || page.Total != rollouts {
						b.Fatal(len(page.Items), page.Total, err)
					}
				}
			})
		}
	}
}

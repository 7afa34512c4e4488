package postgres_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

const (
	benchRunners   = 64
	spansPerTask   = 8
	benchSpanBytes = 1500
)

// BenchmarkTwoServers takes rollouts through their life, one request for each
// step as the reference's clients do: 64 runners on two engines over one
// database that waits for the disk.
func BenchmarkTwoServers(b *testing.B) {
	server, err := postgrestest.Start(b.Context(), postgrestest.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "256MB",
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := server.Close(context.WithoutCancel(b.Context())); err != nil {
			b.Error(err)
		}
	})
	url, err := server.NewDatabase(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	engines := []*store.Store{engine(b, postgres.Config{URL: url}), engine(b, postgres.Config{URL: url})}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var runners sync.WaitGroup
	for i := range benchRunners {
		runners.Go(func() {
			r := benchRunner{engines: engines, worker: "w" + strconv.Itoa(i), turn: i}
			for left.Add(-1) >= 0 {
				if err := r.task(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	runners.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rollouts/s")
}

// benchRunner sends its requests to the engines in turn, as through a load
// balancer.
type benchRunner struct {
	engines []*store.Store
	worker  string
	turn    int
}

func (r *benchRunner) next() *store.Store {
	r.turn++
	return r.engines[r.turn%len(r.engines)]
}

func (r *benchRunner) task(ctx context.Context) error {
	_, err := r.next().EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`{"task":"x"}`)}}})
	if err != nil {
		return err
	}
	var got agl.DequeueResult
	for len(got.Rollouts) == 0 {
		got, err = r.next().DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some(r.worker)})
		if err != nil {
			return err
		}
	}
	a := got.Rollouts[0].Attempt
	if _, err := r.next().GetRollout(ctx, agl.GetRolloutParams{RolloutID: a.RolloutID}); err != nil {
		return err
	}
	for i := range spansPerTask {
		if err := r.span(ctx, a, i); err != nil {
			return err
		}
	}
	if _, err := r.next().UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: r.worker}); err != nil {
		return err
	}
	status := agl.AttemptSucceeded
	_, err = r.next().UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: a.RolloutID, AttemptID: a.AttemptID, Status: &status})
	if err != nil {
		return err
	}
	_, err = r.next().WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{a.RolloutID}})
	return err
}

func (r *benchRunner) span(ctx context.Context, a *agl.Attempt, n int) error {
	p := agl.ReserveSequenceIDsParams{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
	sequence, err := r.next().ReserveSequenceIDs(ctx, p)
	if err != nil {
		return err
	}
	_, err = r.next().AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{{
		RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: strconv.Itoa(n), SequenceID: sequence, TraceID: "0af7651916cd43dd8448eb211c80319c",
		Name: "openai.chat.completion", Status: agl.SpanStatus{Code: agl.StatusOK},
		Attributes: agl.Attributes(`{"text":"` + strings.Repeat("words and ", benchSpanBytes/10) + `"}`),
	}}})
	return err
}

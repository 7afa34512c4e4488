package client_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// BenchmarkWake measures how long after an enqueue began one of 100 clients that
// long-poll over HTTP has the rollout, p50 and p99 in microseconds.
func BenchmarkWake(b *testing.B) {
	const waiters = 100
	db := memorytest.Open(b)
	handler, err := server.New(server.Config{Store: db})
	if err != nil {
		b.Fatal(err)
	}
	api := httptest.NewServer(handler)
	c, err := client.New(client.Config{URL: api.URL})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	times := make(chan time.Time, waiters)
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			for {
				d, err := c.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Hour})
				if err != nil || len(d.Rollouts) == 0 {
					return
				}
				times <- time.Now()
			}
		})
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := c.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value("1")}}}); err != nil {
			b.Fatal(err)
		}
		took = append(took, (<-times).Sub(start))
	}
	stop()
	wg.Wait()
	c.Close()
	api.Close()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

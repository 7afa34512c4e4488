//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/process"
)

// writer is a client that enqueues until the server refuses, and records what was
// acknowledged.
type writer struct {
	acknowledged []string
	err          error // the refusal
}

func (w *writer) run(ctx context.Context, c *client.Client, number int, count *atomic.Int64) {
	for i := 0; ; i++ {
		queued, err := c.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{
			Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(fmt.Sprintf(`"%d/%d"`, number, i))}},
		})
		if err != nil {
			w.err = err
			return
		}
		w.acknowledged = append(w.acknowledged, queued[0].RolloutID)
		count.Add(1)
	}
}

// impatient returns a client that repeats nothing.
func impatient(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Token: token, RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestTermUnderLoad ends a server that 16 clients write to while others wait. The database
// must have exactly the acknowledged writes, and the waiting clients must be answered at once.
func TestTermUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		writers = 16
		waiters = 8
		enough  = 400 // acknowledged writes before the signal
	)
	database := "sqlite:" + filepath.Join(process.Dir(t), "agl.db")
	server, url := startStoreOn(t, database)
	// Its attempt is under way for the whole test, so that waits for it block.
	endless, err := impatient(t, url).StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	var all [writers]writer
	var count atomic.Int64
	var writing, waiting sync.WaitGroup
	for i := range all {
		c := impatient(t, url)
		writing.Go(func() { all[i].run(t.Context(), c, i, &count) })
	}
	answers := make(chan answered, waiters)
	var begun []<-chan struct{}
	for range waiters {
		began, done := post(t, url+"/v1/agl/waits/rollouts", fmt.Sprintf(`{"rollout_ids":[%q],"timeout":3600}`, endless.RolloutID))
		begun = append(begun, began)
		waiting.Go(func() { answers <- <-done })
	}
	for _, began := range begun {
		<-began
	}
	awaitCount(t, &count, enough)
	server.signalGroup(syscall.SIGTERM)
	told := time.Now()
	waiting.Wait()
	close(answers)
	for a := range answers {
		if a.err != nil || a.status != 200 || a.body != "[]" {
			t.Errorf("a blocked wait got %+v, want status 200 and no rollout", a)
		}
	}
	writing.Wait()
	if exit := server.end(); exit != 0 {
		t.Errorf("exit code %d, want 0: %v", exit, server.seen)
	}
	t.Logf("%d writes were acknowledged, the server ended after %s", count.Load(), time.Since(told).Round(time.Millisecond))

	want := []string{endless.RolloutID}
	for i := range all {
		want = append(want, all[i].acknowledged...)
		if !errors.Is(all[i].err, agl.ErrUnavailable) {
			t.Errorf("writer %d ended with %v, want unavailable", i, all[i].err)
		}
	}
	_, url = startStoreOn(t, database)
	var got []string
	for id := range statuses(t, connect(t, url)) {
		got = append(got, id)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d rollouts are there, %d were acknowledged; lost: %v, executed without an answer: %v",
			len(got), len(want), without(want, got), without(got, want))
	}
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	var left []string
	for _, id := range a {
		if _, found := slices.BinarySearch(b, id); !found {
			left = append(left, id)
		}
	}
	return left
}

func awaitCount(t *testing.T, count *atomic.Int64, n int64) {
	t.Helper()
	deadline := time.After(longest)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for count.Load() < n {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited %s for %d acknowledged writes, got %d", longest, n, count.Load())
		}
	}
}

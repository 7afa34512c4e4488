package e2e

import (
	"context"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
)

// liveTraffic starts, rewards and ends rollouts until the store is gone.
func liveTraffic(ctx context.Context, c *client.Client, round, writer int) {
	for n := 0; ctx.Err() == nil; n++ {
		r, err := c.StartRollout(ctx, agl.StartRolloutParams{})
		if err != nil {
			return
		}
		status := agl.AttemptSucceeded
		if _, err := c.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}); err != nil {
			return
		}
		key := strconv.Itoa(round) + "-" + strconv.Itoa(writer) + "-" + strconv.Itoa(n)
		if _, err := c.AddReward(ctx, agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: 1}}, IdempotencyKey: key}); err != nil {
			return
		}
	}
}

// consumer learns from a store. What it has learned and its cursor are saved together.
type consumer struct {
	cursor  string
	learned map[string]int
	rewards map[string]int // by rollout
}

// learn processes one batch. A consumer that is killed saves nothing of it.
func (k *consumer) learn(ctx context.Context, c *client.Client, wait time.Duration, killed bool) (many int, err error) {
	got, err := c.Collect(ctx, agl.CollectParams{Since: k.cursor, Min: 10, Max: 25, MaxWait: wait})
	if err != nil || killed {
		return len(got.Rollouts) + len(got.Corrections), err
	}
	for _, r := range got.Rollouts {
		k.learned[r.Rollout.RolloutID]++
		k.rewards[r.Rollout.RolloutID] += r.Rewards
	}
	for _, r := range got.Corrections {
		k.rewards[r.Rollout.RolloutID] += r.Rewards
	}
	k.cursor = got.Next
	return len(got.Rollouts) + len(got.Corrections), nil
}

// Every rollout is learned from once, and so is every reward, while store and consumer
// are killed again and again in the middle of the traffic.
func TestCollectOverKills(t *testing.T) {
	t.Parallel()
	const kills = 10
	database := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	k := consumer{learned: map[string]int{}, rewards: map[string]int{}}
	for round := range kills {
		server, url := startStoreOn(t, database, "--max-events", "200")
		c := impatient(t, url)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for writer := range 4 {
			group.Go(func() { liveTraffic(ctx, c, round, writer) })
		}
		for batch := range 6 {
			if _, err := k.learn(ctx, c, longest, batch%2 == round%2); err != nil {
				t.Fatal(err)
			}
		}
		lost := make(chan error, 1)
		go func() { // a call that the kill may cut off
			_, err := c.Collect(ctx, agl.CollectParams{Since: k.cursor})
			lost <- err
		}()
		server.signalGroup(syscall.SIGKILL)
		<-lost
		server.end()
		cancel()
		group.Wait()
	}

	_, url := startStoreOn(t, database)
	c := connect(t, url)
	page, err := c.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	status := agl.AttemptSucceeded
	for _, r := range page.Items {
		if !r.Status.Finished() {
			if _, err := c.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt, Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for many := 1; many > 0; {
		if many, err = k.learn(t.Context(), c, 0, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range page.Items {
		spans, err := c.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil {
			t.Fatal(err)
		}
		if k.learned[r.RolloutID] != 1 || k.rewards[r.RolloutID] != spans.Total {
			t.Errorf("rollout %s was learned from %d times, with %d of its %d rewards", r.RolloutID, k.learned[r.RolloutID], k.rewards[r.RolloutID], spans.Total)
		}
	}
	if len(k.learned) != len(page.Items) || len(page.Items) < kills*10 {
		t.Errorf("learned from %d rollouts of %d", len(k.learned), len(page.Items))
	}
	t.Logf("%d rollouts over %d kills of the store", len(page.Items), kills)
}

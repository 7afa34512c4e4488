package runner_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/tracer"
)

// overHTTP serves a store and returns a client of the server.
func overHTTP(t *testing.T, s *faultyStore) agl.Store {
	t.Helper()
	api, err := server.New(server.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(api)
	c, err := client.New(client.Config{URL: listening.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		listening.Close()
	})
	return c
}

// The same runner works through the client of a store server.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	db := openStore(t)
	client := overHTTP(t, db)
	addResources(t, client, someResources)
	const rollouts = 20
	batch := make([]agl.EnqueueRollout, rollouts)
	for i := range batch {
		batch[i].Input = jsontext.Value(`"quick"`)
	}
	batch[0].Input, batch[1].Input = jsontext.Value(`"told by a heartbeat"`), jsontext.Value(`"told by a span"`)
	enqueued, err := client.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: batch})
	if err != nil {
		t.Fatal(err)
	}
	cancelRollout := func(ctx context.Context, task agl.Task) error {
		_, err := db.CancelRollout(context.WithoutCancel(ctx), agl.CancelRolloutParams{RolloutID: task.Rollout.RolloutID})
		return err
	}
	run := func(interval time.Duration, limit int) {
		r := newRunner(t, runner.Config{Store: client, Workers: 4, MaxRollouts: limit, HeartbeatInterval: interval,
			Agent: agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
				switch string(task.Input()) {
				case `"told by a heartbeat"`:
					if err := cancelRollout(ctx, task); err != nil {
						return agl.Result{}, err
					}
					return untilDone(ctx, task)
				case `"told by a span"`:
					if err := cancelRollout(ctx, task); err != nil {
						return agl.Result{}, err
					}
					if _, err := tracer.EmitMessage(ctx, "x"); err != nil {
						return agl.Result{}, err
					}
					return untilDone(ctx, task)
				}
				return agl.RewardResult(1), nil
			})})
		if err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}
	run(5*time.Millisecond, 1)
	run(-1, rollouts-1)
	for i, rollout := range enqueued {
		if i < 2 {
			checkEnd(t, client, rollout.RolloutID, agl.RolloutCancelled, agl.AttemptFailed, agl.OutcomeCancelled)
			continue
		}
		checkEnd(t, client, rollout.RolloutID, agl.RolloutSucceeded, agl.AttemptSucceeded, agl.OutcomeOK)
		if spans := spansOf(t, client, rollout.RolloutID); len(spans) != 2 || spans[0].Name != agl.SpanAnnotation {
			t.Errorf("spans are %v", spanNames(spans))
		}
	}
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// An algorithm enqueues a task. A runner claims it and reports its end.
func Example() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// claimed {"question":"6*7"}
	// the rollout has succeeded
}

func run(ctx context.Context) (err error) {
	s, err := store.Open(ctx, "memory:", store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(ctx)) }()
	_, err = s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{
		Rollouts: []agl.EnqueueRollout{{Input: jsontext.Value(`{"question":"6*7"}`)}},
	})
	if err != nil {
		return err
	}
	claimed, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some("runner-1")})
	if err != nil {
		return err
	}
	r := claimed.Rollouts[0]
	fmt.Println("claimed", r.Input)
	succeeded := agl.AttemptSucceeded
	_, err = s.UpdateAttempt(ctx, agl.UpdateAttemptParams{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &succeeded,
	})
	if err != nil {
		return err
	}
	finished, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{r.RolloutID}})
	if err != nil {
		return err
	}
	fmt.Println("the rollout has", finished[0].Status)
	return nil
}

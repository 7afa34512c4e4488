package store_test

import (
	"context"
	"fmt"
	"log"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/go-json-experiment/json/jsontext"
)

// An algorithm puts a task into the store, a runner takes it and reports.
func Example() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// claimed {"question":"6*7"}
	// the rollout has succeeded
}

func run(ctx context.Context) (err error) {
	driver, err := memory.New(memory.Config{})
	if err != nil {
		return err
	}
	s, err := store.New(ctx, store.Config{Driver: driver})
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := s.Close(ctx); err == nil {
			err = closeErr
		}
	}()
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

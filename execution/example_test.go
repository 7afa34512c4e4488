package execution_test

import (
	"context"
	"fmt"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

// The algorithm enqueues a task and waits for it. Then the run is over: the queue is
// closed, and the runner leaves.
func ExampleSharedMemory() {
	parts := execution.Parts{
		OpenStore: func(ctx context.Context) (execution.OpenedStore, error) {
			driver, err := memory.New(memory.Config{})
			if err != nil {
				return execution.OpenedStore{}, err
			}
			s, err := store.New(ctx, store.Config{Driver: driver})
			if err != nil {
				return execution.OpenedStore{}, err
			}
			return execution.OpenedStore{Store: s, Close: func() error { return s.Close(ctx) }}, nil
		},
		Algorithm: func(ctx context.Context, s agl.Store) error {
			rollouts, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte(`"6 times 7"`)}}})
			if err != nil {
				return err
			}
			done, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{rollouts[0].RolloutID}})
			if err == nil {
				fmt.Printf("%s is %s\n", done[0].Input, done[0].Status)
			}
			return err
		},
		// A real one is a runner.Runner.
		Runner: func(ctx context.Context, s agl.Store, worker int) error {
			id := fmt.Sprint("worker-", worker)
			for {
				work, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, WorkerID: agl.Some(id), Wait: time.Minute})
				if err != nil || work.Closed {
					return err
				}
				status := agl.AttemptSucceeded
				for _, r := range work.Rollouts {
					if _, err := s.UpdateAttempt(ctx, agl.UpdateAttemptParams{
						RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status,
					}); err != nil {
						return err
					}
				}
			}
		},
	}
	err := execution.SharedMemory{}.Execute(context.Background(), parts)
	fmt.Println("error:", err)
	// Output:
	// "6 times 7" is succeeded
	// error: <nil>
}

// The role variables of the environment decide what a process does.
func ExampleConfigFromEnv() {
	environment := map[string]string{"AGL_CURRENT_ROLE": "runner", "AGL_STORE_URL": "http://trainer:4747"}
	config, err := execution.ConfigFromEnv(func(name string) string { return environment[name] })
	fmt.Println(config.Role, config.StoreURL, err)
	// Output: runner http://trainer:4747 <nil>
}

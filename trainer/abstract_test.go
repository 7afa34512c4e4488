package trainer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/store/storetest"
	"github.com/agl-go/agl/trainer"
)

// A run over such a store works and ends by itself, in one process and over HTTP, whatever it runs.
func TestStoreOfAbstractMethods(t *testing.T) {
	t.Parallel()
	served := execution.ClientServer{Config: execution.Config{Role: execution.RoleBoth, Host: "127.0.0.1", AnyPort: true, Token: "t"}, InProcess: true}
	for name, strategy := range map[string]execution.Strategy{"shared memory": nil, "client-server": served} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			var done, hooked atomic.Int64
			tr, err := trainer.New(trainer.Config{
				Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
					done.Add(1)
					return agl.RewardResult(1), nil
				}),
				Algorithm: agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
					if _, err := in.Store.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: "x"}); !errors.Is(err, agl.ErrUnimplemented) {
						t.Errorf("what the store lacks: got %v", err)
					}
					return onePass(ctx, in)
				}),
				Train: tasks(20), InitialResources: prompt(), Runners: 3, Store: storetest.Abstract(s), Strategy: strategy,
				Hooks: []agl.Hook{countingHook{count: &hooked}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for run := range 2 { // the first run ends what the second begins anew
				if err := tr.Fit(t.Context()); err != nil {
					t.Fatalf("run %d: %v", run, err)
				}
			}
			if done.Load() != 40 || hooked.Load() != 40 {
				t.Errorf("the agent ran %d times and the hook saw %d, want 40 of each", done.Load(), hooked.Load())
			}
		})
	}
}

// The algorithms of the project ask for no more than such a store has.
func TestAlgorithmsOverAbstractMethods(t *testing.T) {
	t.Parallel()
	var steps atomic.Int64
	agent := agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
		steps.Add(1)
		return agl.RewardResult(1), nil
	})
	tr, err := trainer.New(trainer.Config{Agent: agent, Train: tasks(4), InitialResources: prompt(), Store: storetest.Abstract(newStore(t))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Dev(t.Context()); err != nil {
		t.Fatal(err)
	}
	if steps.Load() != 4 {
		t.Errorf("the agent ran %d times, want 4", steps.Load())
	}
}

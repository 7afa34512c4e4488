package trainer_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer"
)

// withDatabase calls use with the store of a database, which nobody has.
func withDatabase(t *testing.T, database string, use func(s *store.Store)) {
	t.Helper()
	s, err := store.Open(t.Context(), database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	use(s)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// leaveBehind makes what an interrupted run leaves: queued rollouts, one that
// runs, and a closed queue.
func leaveBehind(t *testing.T, database string) {
	t.Helper()
	withDatabase(t, database, func(s *store.Store) {
		if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 3)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseQueue(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// statuses counts the rollouts of a database by their status.
func statuses(t *testing.T, database string) map[agl.RolloutStatus]int {
	t.Helper()
	counts := map[agl.RolloutStatus]int{}
	withDatabase(t, database, func(s *store.Store) {
		page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			counts[r.Status]++
		}
	})
	return counts
}

func TestRunIsKept(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	leaveBehind(t, database)
	for run := range 2 {
		err := fit(t.Context(), trainer.Config{
			Agent: rewarded, Algorithm: agl.AlgorithmFunc(onePass), Train: tasks(4), InitialResources: prompt(), Database: database, Runners: 2,
		})
		if err != nil {
			t.Fatal(err)
		}
		got := statuses(t, database)
		if got[agl.RolloutCancelled] != 3 || got[agl.RolloutSucceeded] != 4*(run+1) || len(got) != 2 {
			t.Errorf("after run %d: %v, want the 3 of the interrupted run cancelled and all others succeeded", run, got)
		}
	}
}

// TestServedDatabaseKeepsItsQueue: without an algorithm, what is queued is what
// there is to do.
func TestServedDatabaseKeepsItsQueue(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	leaveBehind(t, database)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	served := make(chan struct{}, 2)
	agent := agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
		served <- struct{}{}
		return agl.RewardResult(1), nil
	})
	ended := make(chan error, 1)
	go func() {
		ended <- fit(ctx, trainer.Config{Agent: agent, InitialResources: prompt(), Database: database})
	}()
	<-served
	<-served
	cancel(enough)
	if err := <-ended; !errors.Is(err, enough) {
		t.Errorf("error %v, want the cause of the interrupt", err)
	}
	if got := statuses(t, database); got[agl.RolloutSucceeded] != 2 || got[agl.RolloutPreparing] != 1 {
		t.Errorf("%v, want two succeeded and the other as it was", got)
	}
}

// TestDevKeepsNothing: a trial does not touch the database of the runs.
func TestDevKeepsNothing(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	tr, err := trainer.New(trainer.Config{Agent: rewarded, Train: tasks(2), InitialResources: prompt(), Database: database})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Dev(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := statuses(t, database); len(got) != 0 {
		t.Errorf("the database holds %v", got)
	}
}

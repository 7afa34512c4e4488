package trainer_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
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

// TestDefaultStoreIsInMemory: a program that names no database has a whole run, and finds no file.
func TestDefaultStoreIsInMemory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	var done int
	algorithm := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		if err := onePass(ctx, in); err != nil {
			return err
		}
		page, err := in.Store.QueryRollouts(ctx, agl.QueryRolloutsParams{})
		done = len(page.Items)
		return err
	})
	if err := fit(t.Context(), trainer.Config{Agent: rewarded, Algorithm: algorithm, Train: tasks(4), InitialResources: prompt(), Runners: 2}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if done != 4 || len(files) > 0 {
		t.Errorf("%d rollouts, want 4; files %v, want none", done, files)
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

// TestLearnedResourcesStay: a trainer that is started again leaves what was learned the
// latest; other initial resources are new ones.
func TestLearnedResourcesStay(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	learned := agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: "learned", Engine: agl.PromptFString}}}
	latest := func(initial agl.Resources, proxied bool, learn bool) (got agl.Resources) {
		config := trainer.Config{Agent: rewarded, InitialResources: initial, Database: database, Unrewarded: true}
		if proxied {
			config.Proxy = trainer.NewProxy(trainer.ProxyConfig{Model: "m"})
		}
		config.Algorithm = agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
			u, err := in.Store.GetLatestResources(ctx)
			got = u.Resources
			if err == nil && learn {
				_, err = in.Store.AddResources(ctx, agl.AddResourcesParams{Resources: learned})
			}
			return err
		})
		if err := fit(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		return got
	}
	latest(prompt(), false, true)
	if got := latest(prompt(), false, false); string(got.AppendJSON(nil)) != string(learned.AppendJSON(nil)) {
		t.Errorf("started again: got %s", got.AppendJSON(nil))
	}
	other := agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: "other", Engine: agl.PromptFString}}}
	if got := latest(other, false, false); string(got.AppendJSON(nil)) != string(other.AppendJSON(nil)) {
		t.Errorf("other resources: got %s", got.AppendJSON(nil))
	} // The proxy of each run listens elsewhere.
	latest(other, true, true)
	got := latest(other, true, false)
	if text, err := got.PromptTemplate(); err != nil || text.Template != "learned" {
		t.Errorf("started again with a proxy: got %s, %v", got.AppendJSON(nil), err)
	}
	if _, err := got.LLM("r", "a"); err != nil {
		t.Errorf("started again with a proxy: got %s, %v", got.AppendJSON(nil), err)
	}
}

// TestServedDatabaseKeepsLiveWork: runners in other processes may still be at work.
func TestServedDatabaseKeepsLiveWork(t *testing.T) {
	t.Parallel()
	database := "sqlite:" + filepath.Join(t.TempDir(), "agl.db")
	leaveBehind(t, database)
	err := fit(t.Context(), trainer.Config{
		Algorithm: agl.AlgorithmFunc(func(context.Context, agl.AlgorithmInput) error { return nil }), InitialResources: prompt(), Database: database,
		Unrewarded: true, Strategy: execution.ClientServer{Config: execution.Config{Role: execution.RoleAlgorithm, Host: "127.0.0.1", AnyPort: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := statuses(t, database); got[agl.RolloutCancelled] != 2 || got[agl.RolloutPreparing] != 1 {
		t.Errorf("%v, want the queued ones cancelled and the other as it was", got)
	}
}

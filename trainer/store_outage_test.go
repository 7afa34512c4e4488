package trainer_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/postgres/postgrestest"
	"github.com/agl-go/agl/trainer"
)

// awaitWarning is a slog.Handler that tells of the first warning.
type awaitWarning struct {
	slog.Handler

	there chan struct{} // capacity 1
}

func (a awaitWarning) Enabled(context.Context, slog.Level) bool { return true }

func (a awaitWarning) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn && r.Message == "the store is away; its callers wait" {
		select {
		case a.there <- struct{}{}:
		default:
		}
	}
	return nil
}

// TestDatabaseRestarts: an algorithm whose PostgreSQL restarts goes on.
func TestDatabaseRestarts(t *testing.T) {
	t.Parallel()
	if os.Getenv(postgrestest.URLVariable) != "" {
		t.Skip("the server is not ours to stop")
	}
	db, err := postgrestest.Start(t.Context(), postgrestest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	database, err := db.NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{}, 1)
	algorithm := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		if _, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 2)}); err != nil {
			return err
		}
		for _, call := range []func() (found int, err error){
			func() (int, error) {
				page, err := in.Store.QueryRollouts(ctx, agl.QueryRolloutsParams{})
				return len(page.Items), err
			},
			func() (int, error) {
				ready, err := in.Collector.Collect(ctx, agl.CollectParams{Min: 2, MaxWait: time.Minute})
				return len(ready.Rollouts), err
			},
		} {
			if err := db.Stop(ctx); err != nil {
				return err
			}
			resumed := make(chan error, 1)
			go func() {
				select {
				case <-waits:
					resumed <- db.Resume(t.Context())
				case <-t.Context().Done():
				}
			}()
			found, err := call()
			if err != nil {
				return err
			}
			if found != 2 {
				t.Errorf("%d rollouts after the restart, want 2", found)
			}
			if err := <-resumed; err != nil {
				return err
			}
		}
		return nil
	})
	err = fit(t.Context(), trainer.Config{
		Agent: rewarded, Algorithm: algorithm, InitialResources: prompt(), Database: database, Unrewarded: true,
		Logger: slog.New(awaitWarning{slog.DiscardHandler, waits}),
	})
	if err != nil {
		t.Error(err)
	}
}

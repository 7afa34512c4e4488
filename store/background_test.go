package store_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
)

// unsearchable is a gate at which the search for what can be removed fails, too.
type unsearchable struct{ gate }

func (u *unsearchable) Oldest(ctx context.Context, kind driver.Removable, limit int) (driver.OldestList, error) {
	if err := u.fail.Load(); err != nil {
		return driver.OldestList{}, *err
	}
	return u.gate.Oldest(ctx, kind, limit)
}

// TestBackgroundFailuresAreToldOnce: a database that is full or away for an hour does not fill the log with one and the same error. One that
// is away, as while it is restarted, is a warning: what failed is done when it is there again.
func TestBackgroundFailuresAreToldOnce(t *testing.T) {
	t.Parallel()
	for level, failure := range map[string]error{
		"ERROR": errors.New("the disk is full"),
		"WARN":  agl.Errorf(agl.CodeUnavailable, "the database system is starting up"),
	} {
		synctest.Test(t, func(t *testing.T) {
			d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			g := &unsearchable{}
			g.Driver = d
			var log bytes.Buffer
			s, err := store.New(t.Context(), store.Config{Driver: g, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			for times := 1; times <= 2; times++ {
				enqueue(t, s, 1, agl.RolloutConfig{TimeoutSeconds: agl.Some(1.0)})
				claimed, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
				if err != nil || len(claimed.Rollouts) != 1 {
					t.Fatal(claimed, err)
				}
				g.fail.Store(&failure)
				time.Sleep(time.Hour) // its deadline is in vain meanwhile
				synctest.Wait()
				g.fail.Store(nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				got, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: claimed.Rollouts[0].RolloutID})
				if err != nil || got.Status != agl.RolloutFailed {
					t.Errorf("rollout %s, error %v, want failed by its deadline", got.Status, err)
				}
				for _, what := range []string{`"background work failed"`, `"retention failed" kind=workers`} {
					if n := strings.Count(log.String(), "level="+level+" msg="+what); n != times {
						t.Errorf("%s told %d times as %s, want %d:\n%.2000s", what, n, level, times, log.String())
					}
				}
			}
		})
	}
}

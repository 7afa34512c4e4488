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
	"github.com/agl-go/agl/store/memory"
)

// TestBackgroundFailuresAreToldOnce: a database that is full for an hour does not fill the log with one and the same error.
func TestBackgroundFailuresAreToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		g := &gate{}
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
		full := errors.New("the disk is full")
		for times := 1; times <= 2; times++ {
			enqueue(t, s, 1, agl.RolloutConfig{TimeoutSeconds: agl.Some(1.0)})
			claimed, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{Limit: 1})
			if err != nil || len(claimed.Rollouts) != 1 {
				t.Fatal(claimed, err)
			}
			g.fail.Store(&full)
			time.Sleep(time.Hour) // its deadline is in vain meanwhile
			synctest.Wait()
			g.fail.Store(nil)
			time.Sleep(time.Minute)
			synctest.Wait()
			got, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: claimed.Rollouts[0].RolloutID})
			if err != nil || got.Status != agl.RolloutFailed {
				t.Errorf("rollout %s, error %v, want failed by its deadline", got.Status, err)
			}
			if n := strings.Count(log.String(), "the disk is full"); n != times {
				t.Errorf("told %d times, want %d:\n%.2000s", n, times, log.String())
			}
		}
	})
}

package grpo_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestForgetWhileLearning: sessions that are deleted between the moment when a step gets them and when it reads them cost the run nothing but
// themselves, and a program that asks about one does not hold it up.
func TestForgetWhileLearning(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	var mu sync.Mutex
	deleted := map[string]bool{}
	live := grpo.Live{Replay: grpo.Replay{Times: 1, Rollouts: 8}, Allow: func(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(r.RolloutID)%2 == 0 || r.RolloutID[len(r.RolloutID)-1]%3 == 0 {
			deleted[r.RolloutID] = true
			return true, store.DeleteRollout(ctx, agl.DeleteRolloutParams{RolloutID: r.RolloutID})
		}
		return true, nil
	}}
	reports := learnLive(t, s, newSpeller(t), t.TempDir(), 4, live)
	if len(reports) != 4 || len(deleted) == 0 {
		t.Fatalf("%d steps, %d sessions were deleted", len(reports), len(deleted))
	}
	for id := range deleted {
		if _, err := s.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id}); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("session %s is there again: %v", id, err)
		}
		for _, r := range reports {
			if slices.Contains(r.Learned, id) {
				t.Errorf("step %d names session %s, which was deleted before it was read", r.Step, id)
			}
		}
	}
}

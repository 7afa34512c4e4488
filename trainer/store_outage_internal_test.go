package trainer

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// lossy is a store that loses answers.
type lossy struct {
	agl.Store

	lose int // the answers that are lost, from the next one on
}

var errLost = agl.Errorf(agl.CodeUnavailable, "the connection was lost")

func lossyAnswer[T any](l *lossy, out T, err error) (T, error) {
	if l.lose > 0 {
		l.lose--
		var none T
		return none, errLost
	}
	return out, err
}

func (l *lossy) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	out, err := l.Store.EnqueueRollouts(ctx, p)
	return lossyAnswer(l, out, err)
}

func (l *lossy) DequeueRollouts(ctx context.Context, p agl.DequeueRolloutsParams) (agl.DequeueResult, error) {
	out, err := l.Store.DequeueRollouts(ctx, p)
	return lossyAnswer(l, out, err)
}

// TestLostAnswers: a write whose answer was lost acts once, and its caller gets what the first one has made. A database that stays
// away is an error.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		l := &lossy{Store: memorytest.Open(t)}
		s := &outlast{Store: l, log: slog.New(slog.DiscardHandler)}
		l.lose = 2
		made, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 3)})
		if err != nil {
			t.Fatal(err)
		}
		l.lose = 2
		got, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1})
		if err != nil || len(got.Rollouts) != 1 || got.Rollouts[0].RolloutID != made[0].RolloutID {
			t.Fatalf("dequeued %v, %v, want the rollout %s, which the first call has claimed", got.Rollouts, err, made[0].RolloutID)
		}
		stats, err := s.Statistics(ctx)
		if err != nil || stats.TotalRollouts != 3 || stats.TotalAttempts != 1 {
			t.Errorf("%d rollouts with %d attempts, %v, want 3 with 1", stats.TotalRollouts, stats.TotalAttempts, err)
		}
		l.lose = 1000
		if _, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{}); agl.ErrorCode(err) != agl.CodeUnavailable {
			t.Errorf("got %v, want the error of a store that stays away", err)
		}
	})
}

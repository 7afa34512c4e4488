package server

import (
	"context"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// countShare bounds the work for counts: an answer is reused for this many times the time it took.
	countShare = 50
	// countsFor is the shortest time for which an answer is reused. Pages ask about twice a second.
	countsFor = 200 * time.Millisecond
	// countsTimeout bounds one count.
	countsTimeout = 30 * time.Second
)

// statusCounts counts the rollouts of each status, once for everybody who asks at about the same time, because a
// store reads each rollout that it counts.
type statusCounts struct {
	store agl.Store

	turn   chan struct{} // a lock for the fields below
	until  time.Time     // when counts become too old
	counts []byte
}

func newStatusCounts(store agl.Store) *statusCounts {
	return &statusCounts{store: store, turn: make(chan struct{}, 1)}
}

func (s *statusCounts) get(x *exchange) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-x.context().Done():
		return x.context().Err()
	}
	fresh := time.Now().After(s.until)
	if fresh {
		// Others reuse the answer, even if this client has disconnected.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.context()), countsTimeout)
		defer cancel()
		began := time.Now()
		counts, err := s.count(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		s.counts, s.until = counts, now.Add(max(countsFor, countShare*now.Sub(began)))
	}
	doc := rawjson.NewObject(x.out)
	doc.Raw("by_status", s.counts)
	if !fresh { // seconds until the next count
		doc.Key("fresh_in")
		doc = rawjson.AppendFloat(doc, time.Until(s.until).Seconds())
	}
	return x.send(http.StatusOK, doc.End())
}

func (s *statusCounts) count(ctx context.Context) ([]byte, error) {
	counts := rawjson.NewObject(nil)
	for _, status := range agl.RolloutStatuses() {
		page, err := s.store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{status}, Paging: agl.Paging{Limit: 1}})
		if err != nil {
			return nil, err
		}
		counts.Int(string(status), int64(page.Total))
	}
	return counts.End(), nil
}

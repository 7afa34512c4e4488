package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/backend"
	"github.com/agl-go/agl/trainer/runfile"
)

// stored are the rollouts that another run has made, where they are kept. That run
// may still go on: its database is read beside it, and nothing is changed there.
func (c Config) stored(ctx context.Context, from *runfile.Store) (_ sft.Rollouts, done func() error, err error) {
	if from.URL != "" {
		token, err := c.secret("algorithm.sft.from.token", from.Token)
		if err != nil {
			return nil, nil, err
		}
		if found, ok := c.LookupEnv(tokenVariable); ok && token == "" {
			token = found
		}
		client, err := rest.NewClient(rest.ClientConfig{URL: from.URL, Token: token, Logger: c.Logger})
		if err != nil {
			return nil, nil, err
		}
		return sft.Stored(client), client.Close, nil
	}
	dsn, err := backend.Parse(from.Database)
	if err != nil {
		return nil, nil, err
	}
	if dsn.Kind == backend.SQLite {
		if _, err := os.Stat(dsn.Path); err != nil {
			return nil, nil, agl.Errorf(agl.CodeNotFound, "there are no rollouts: %w", err)
		}
	}
	db, err := backend.OpenDatabase(ctx, dsn)
	if err != nil {
		return nil, nil, err
	}
	return exported(db), db.Close, nil
}

// exported are the rollouts of a database, as it is at one moment.
func exported(db store.Exporter) sft.Rollouts {
	return func(ctx context.Context) iter.Seq2[algorithm.Episode, error] {
		return func(yield func(algorithm.Episode, error) bool) {
			var last *export
			for record, err := range db.Export(ctx) {
				switch {
				case err != nil:
					yield(algorithm.Episode{}, fmt.Errorf("read stored rollouts: %w", err))
					return
				case record.Rollout != nil:
					if last != nil && !yield(last.episode()) {
						return
					}
					last = &export{rollout: *record.Rollout.Rollout, evicted: record.Rollout.Evicted}
				case record.Attempt != nil:
					last.attempts = append(last.attempts, *record.Attempt)
				case record.Span != nil && last.rollout.Status == agl.RolloutSucceeded:
					last.spans = append(last.spans, bytes.Clone(record.Span.Payload))
				}
			}
			if last != nil {
				yield(last.episode())
			}
		}
	}
}

// export is what an export has of one rollout.
type export struct {
	rollout  agl.Rollout
	evicted  bool
	attempts []agl.Attempt
	spans    [][]byte // of all attempts
}

// episode is the rollout with the spans of its latest attempt, in the order in
// which a store gives them.
func (x *export) episode() (algorithm.Episode, error) {
	r := agl.AttemptedRollout{Rollout: x.rollout}
	for i := range x.attempts {
		if r.Attempt == nil || x.attempts[i].SequenceID > r.Attempt.SequenceID {
			r.Attempt = &x.attempts[i]
		}
	}
	e := algorithm.NewEpisode(r)
	e.Evicted = x.evicted
	for _, payload := range x.spans {
		var span agl.Span
		if err := spanjson.Parse(payload, &span); err != nil {
			return algorithm.Episode{}, agl.Errorf(agl.CodeInternal, "a stored span of rollout %s does not decode: %w", x.rollout.RolloutID, err)
		}
		if r.Attempt != nil && span.AttemptID == r.Attempt.AttemptID {
			e.Spans = append(e.Spans, span)
		}
	}
	slices.SortStableFunc(e.Spans, func(a, b agl.Span) int {
		return cmp.Or(cmp.Compare(a.SequenceID, b.SequenceID), compareTimes(a.StartTime, b.StartTime), compareTimes(a.EndTime, b.EndTime))
	})
	return e, nil
}

// compareTimes puts null last.
func compareTimes(a, b agl.Null[agl.Timestamp]) int {
	at := func(t agl.Null[agl.Timestamp]) float64 {
		if !t.Valid {
			return math.Inf(1)
		}
		return float64(t.V)
	}
	return cmp.Compare(at(a), at(b))
}

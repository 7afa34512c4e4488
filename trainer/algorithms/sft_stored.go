package algorithms

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/trainer/keys"
)

// StoredRollouts yields the rollouts of another run from where they are stored. The
// other run may still be in progress: its database is only read.
func StoredRollouts(from keys.Source, lookupEnv func(name string) (string, bool), trust *tls.Config, logger *slog.Logger) sft.Rollouts {
	return func(ctx context.Context) iter.Seq2[algorithm.Episode, error] {
		return func(yield func(algorithm.Episode, error) bool) {
			rollouts, closeSource, err := openSource(ctx, from, lookupEnv, trust, logger)
			if err != nil {
				yield(algorithm.Episode{}, fmt.Errorf("algorithm.sft.from: %w", err))
				return
			}
			more := true
			for episode, err := range rollouts(ctx) {
				if more = yield(episode, err); !more {
					break
				}
			}
			if err := closeSource(); err != nil && more {
				yield(algorithm.Episode{}, fmt.Errorf("algorithm.sft.from: %w", err))
			}
		}
	}
}

func openSource(ctx context.Context, from keys.Source, lookupEnv func(name string) (string, bool), trust *tls.Config, logger *slog.Logger) (_ sft.Rollouts, closeSource func() error, err error) {
	if from.URL != "" {
		token, err := keys.StoreToken(lookupEnv, "algorithm.sft.from.token", from.Token)
		if err != nil {
			return nil, nil, err
		}
		client, err := client.New(client.Config{URL: from.URL, Token: token, TLS: trust, Logger: logger})
		if err != nil {
			return nil, nil, err
		}
		return sft.Stored(client), client.Close, nil
	}
	dsn, err := store.ParseDSN(from.Database)
	if err != nil {
		return nil, nil, err
	}
	if dsn.Kind == store.SQLite {
		if _, err := os.Stat(dsn.Path); err != nil {
			return nil, nil, agl.Errorf(agl.CodeNotFound, "there are no rollouts: %w", err)
		}
	}
	db, err := store.OpenDatabase(ctx, from.Database)
	if err != nil {
		return nil, nil, err
	}
	return exported(db), db.Close, nil
}

// exported yields the rollouts of a database, as they are at one moment.
func exported(db driver.Exporter) sft.Rollouts {
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

// export is the records of one rollout.
type export struct {
	rollout  agl.Rollout
	evicted  bool
	attempts []agl.Attempt
	spans    [][]byte // of all attempts
}

// episode returns the rollout with the spans of its latest attempt, in the order of
// a store.
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
			return algorithm.Episode{}, agl.Errorf(agl.CodeInternal, "a stored span of rollout %q does not decode: %w", x.rollout.RolloutID, err)
		}
		if r.Attempt != nil && span.AttemptID == r.Attempt.AttemptID {
			e.Spans = append(e.Spans, span)
		}
	}
	slices.SortStableFunc(e.Spans, func(a, b agl.Span) int {
		return cmp.Or(cmp.Compare(a.SequenceID, b.SequenceID), cmp.Compare(driver.SortTime(a.StartTime), driver.SortTime(b.StartTime)),
			cmp.Compare(driver.SortTime(a.EndTime), driver.SortTime(b.EndTime)))
	})
	return e, nil
}

package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// newRollout validates a request and returns its rollout, which admit completes.
func newRollout(e *agl.EnqueueRollout) (r agl.Rollout, err error) {
	var config agl.RolloutConfig
	if e.Config != nil {
		config = *e.Config
	}
	err = cmp.Or(
		checkDocument("input", e.Input), checkObject("metadata", e.Metadata, true), checkMode(e.Mode),
		checkIDs(givenText{"resources_id", e.ResourcesID.V}), config.Validate(),
	)
	if err != nil {
		return r, err
	}
	r = agl.Rollout{
		RolloutID:   "ro-" + randomid.Hex(rolloutIDBytes),
		Input:       e.Input,
		Mode:        e.Mode,
		ResourcesID: e.ResourcesID,
		Metadata:    objectOrNil(e.Metadata),
	}
	if r.Input == nil {
		r.Input = rawjson.Null()
	}
	if r.Metadata == nil {
		r.Metadata = jsontext.Value("{}")
	}
	config.RetryCondition = slices.Clone(config.RetryCondition)
	r.Config = config.WithDefaults()
	return r, nil
}

// admit adds a copy of a new rollout, with its times, status and, by default, the latest resources. If its id is
// taken, it draws another.
func (w *unitOfWork) admit(given *agl.Rollout, status agl.RolloutStatus) *rolloutEntry {
	r := *given
	for w.rollouts[r.RolloutID] != nil {
		r.RolloutID = "ro-" + randomid.Hex(rolloutIDBytes)
	}
	r.StartTime = w.now
	r.Status = status
	if !r.ResourcesID.Valid {
		r.ResourcesID = w.latestResources
	}
	return w.addRollout(&r)
}

// EnqueueRollouts implements agl.Store.
func (s *Store) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return do(ctx, s, "EnqueueRollouts", checkIDs(givenText{"idempotency_key", p.IdempotencyKey}), func() ([]agl.Rollout, error) {
		rollouts := make([]agl.Rollout, len(p.Rollouts))
		for i := range p.Rollouts {
			var err error
			if rollouts[i], err = newRollout(&p.Rollouts[i]); err != nil {
				if len(p.Rollouts) > 1 {
					err = agl.Errorf(agl.ErrorCode(err), "rollouts[%d]: %w", i, err)
				}
				return nil, err
			}
		}
		key := newKey("enqueue", p.IdempotencyKey, nil, func(dst []byte) []byte {
			for i := range p.Rollouts {
				dst = p.Rollouts[i].AppendJSON(dst)
			}
			return dst
		})
		return submitOnce(ctx, s.committer, key, func(want *driver.LoadParams) {
			for i := range rollouts {
				want.Rollouts = append(want.Rollouts, rollouts[i].RolloutID)
			}
		}, func(w *unitOfWork) ([]agl.Rollout, error) {
			out := make([]agl.Rollout, len(rollouts))
			var keys []driver.AttemptKey
			for i := range rollouts {
				out[i] = *w.admit(&rollouts[i], agl.RolloutQueuing).cur
				if key != nil {
					keys = append(keys, driver.AttemptKey{RolloutID: out[i].RolloutID})
				}
			}
			key.record(w, driver.IdempotencyRecord{Made: keys})
			return out, nil
		}, func(earlier *driver.IdempotencyRecord) ([]agl.Rollout, error) {
			found, err := s.replayAttempts(ctx, earlier)
			out := make([]agl.Rollout, len(found))
			for i := range found {
				out[i] = found[i].Rollout
			}
			return out, err
		})
	})
}

// startRollout starts a new rollout, or another attempt of an existing one if rollout is nil.
func (s *Store) startRollout(ctx context.Context, key *idempotencyKey, rollout *agl.Rollout, rolloutID string, worker agl.Null[string]) (agl.AttemptedRollout, error) {
	return submitOnce(ctx, s.committer, key, func(want *driver.LoadParams) {
		want.Rollouts = append(want.Rollouts, rolloutID)
		if worker.V != "" {
			want.Workers = append(want.Workers, worker.V)
		}
	}, func(w *unitOfWork) (agl.AttemptedRollout, error) {
		var e *rolloutEntry
		if rollout != nil {
			e = w.admit(rollout, agl.RolloutPreparing)
		} else if e = w.rollout(rolloutID); e == nil {
			return agl.AttemptedRollout{}, errRollout(rolloutID)
		}
		w.syncWorker(w.startAttempt(e, worker))
		made := e.attempted()
		key.recordAttempts(w, []agl.AttemptedRollout{made})
		return made, nil
	}, func(earlier *driver.IdempotencyRecord) (agl.AttemptedRollout, error) {
		return s.replayAttempt(ctx, earlier)
	})
}

// StartRollout implements agl.Store.
func (s *Store) StartRollout(ctx context.Context, p agl.StartRolloutParams) (agl.AttemptedRollout, error) {
	invalid := checkIDs(givenText{"worker_id", p.WorkerID.V}, givenText{"idempotency_key", p.IdempotencyKey})
	return do(ctx, s, "StartRollout", invalid, func() (agl.AttemptedRollout, error) {
		r, err := newRollout(&p.EnqueueRollout)
		if err != nil {
			return agl.AttemptedRollout{}, err
		}
		for name := range rawjson.Members(r.Metadata) {
			if strings.HasPrefix(rawjson.UnquoteName(name), agl.MetadataGateway) {
				return agl.AttemptedRollout{}, agl.Errorf(agl.CodeInvalid, "metadata: got %.100q, and names that begin with %s are for rollouts of the API of Agent-lightning v1.0", rawjson.UnquoteName(name), agl.MetadataGateway)
			}
		}
		key := newKey("start_rollout", p.IdempotencyKey, nil, func(dst []byte) []byte {
			return append(p.AppendJSON(dst), p.WorkerID.V...)
		})
		return s.startRollout(ctx, key, &r, r.RolloutID, p.WorkerID)
	})
}

// StartAttempt implements agl.Store.
func (s *Store) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error) {
	invalid := checkIDs(givenText{"rollout_id", p.RolloutID}, givenText{"worker_id", p.WorkerID.V}, givenText{"idempotency_key", p.IdempotencyKey})
	return do(ctx, s, "StartAttempt", invalid, func() (agl.AttemptedRollout, error) {
		key := newKey("start_attempt", p.IdempotencyKey, []string{p.RolloutID}, func(dst []byte) []byte {
			return append(dst, p.WorkerID.V...)
		})
		return s.startRollout(ctx, key, nil, p.RolloutID, p.WorkerID)
	})
}

func (w *unitOfWork) updateRollout(p *agl.UpdateRolloutParams) (agl.Rollout, error) {
	e := w.rollout(p.RolloutID)
	if e == nil { // in the reference's words
		return agl.Rollout{}, agl.Errorf(agl.CodeNotFound, "Item does not exist with primary key(s): rollout_id='%s'", p.RolloutID)
	}
	r := *e.cur
	if p.Input != nil {
		r.Input = p.Input
	}
	if p.Mode != nil {
		r.Mode = *p.Mode
	}
	if p.ResourcesID != nil {
		r.ResourcesID = *p.ResourcesID
	}
	if p.Config != nil {
		r.Config = p.Config.WithDefaults()
		r.Config.RetryCondition = slices.Clone(r.Config.RetryCondition)
	}
	if p.Metadata != nil {
		r.Metadata = objectOrNil(p.Metadata)
	}
	if p.Status != nil {
		r, ended, err := rolloutStatusSet(r, e.latestAttempt(), *p.Status, w.now)
		if err != nil {
			return agl.Rollout{}, err
		}
		w.setBoth(e, r, ended)
	} else {
		w.setRollout(e, &r)
	}
	return *e.cur, nil
}

// setBoth sets a rollout and, if it has changed, its latest attempt.
func (w *unitOfWork) setBoth(e *rolloutEntry, r agl.Rollout, latest *agl.Attempt) {
	w.setRollout(e, &r)
	if latest != nil && latest != e.latest.cur {
		w.setAttempt(e.latest, latest)
		w.syncWorker(latest)
	}
}

// UpdateRollout implements agl.Store.
func (s *Store) UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (agl.Rollout, error) {
	return doWrite(ctx, s, "UpdateRollout", checkRolloutUpdate(&p), wantRollout(p.RolloutID), func(w *unitOfWork) (agl.Rollout, error) {
		return w.updateRollout(&p)
	})
}

func checkRolloutUpdate(p *agl.UpdateRolloutParams) error {
	if err := cmp.Or(checkDocument("input", p.Input), checkObject("metadata", p.Metadata, true)); err != nil {
		return err
	}
	if p.ResourcesID != nil {
		if err := checkIDs(givenText{"resources_id", p.ResourcesID.V}); err != nil {
			return err
		}
	}
	if p.Mode != nil {
		if err := checkMode(*p.Mode); err != nil {
			return err
		}
	}
	if p.Status != nil && !p.Status.Valid() {
		return agl.Errorf(agl.CodeInvalid, "status: got %q, must be one of %v", *p.Status, agl.RolloutStatuses())
	}
	if p.Config != nil {
		return p.Config.Validate()
	}
	return nil
}

// CancelRollout implements agl.Store.
func (s *Store) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return doWrite(ctx, s, "CancelRollout", nil, wantRollout(p.RolloutID), func(w *unitOfWork) (agl.Rollout, error) {
		e := w.rollout(p.RolloutID)
		if e == nil {
			return agl.Rollout{}, errRollout(p.RolloutID)
		}
		if !e.cur.Status.Finished() {
			r, ended := cancel(*e.cur, e.latestAttempt(), w.now)
			w.setBoth(e, r, ended)
		}
		return *e.cur, nil
	})
}

// DeleteRollout implements agl.Store.
func (s *Store) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) error {
	return s.run(ctx, "DeleteRollout", nil, func() error {
		var workers []string // busy with the rollout
		found, err := s.driver.Rollouts(ctx, []string{p.RolloutID})
		if err == nil && len(found) > 0 && found[0].Attempt != nil && found[0].Attempt.SequenceID > 1 {
			var busy map[string][]string
			busy, err = s.busyWorkers(ctx)
			workers = busy[p.RolloutID]
		}
		if err != nil {
			return err
		}
		_, err = submitWrite(ctx, s.committer, func(want *driver.LoadParams) {
			want.Rollouts = append(want.Rollouts, p.RolloutID)
			want.Workers = append(want.Workers, workers...)
		}, func(w *unitOfWork) (struct{}, error) {
			e := w.rollout(p.RolloutID)
			switch {
			case e == nil:
				return struct{}{}, errRollout(p.RolloutID)
			case !e.cur.Status.Finished():
				return struct{}{}, agl.Errorf(agl.CodeIllegalState, "Rollout %s is %s: only a finished rollout can be deleted, cancel it first",
					p.RolloutID, e.cur.Status)
			}
			w.deleteRollout(e, workers)
			return struct{}{}, nil
		})
		return err
	})
}

// GetRollout implements agl.Store.
func (s *Store) GetRollout(ctx context.Context, p agl.GetRolloutParams) (agl.AttemptedRollout, error) {
	return do(ctx, s, "GetRollout", nil, func() (agl.AttemptedRollout, error) {
		found, err := s.driver.Rollouts(ctx, []string{p.RolloutID})
		switch {
		case err != nil:
			return agl.AttemptedRollout{}, err
		case len(found) == 0:
			return agl.AttemptedRollout{}, errRollout(p.RolloutID)
		}
		return found[0], nil
	})
}

// QueryRollouts implements agl.Store.
func (s *Store) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	invalid := cmp.Or(checkQuery(&p.Paging, p.Logic, sortableRollouts), checkStatuses(p.StatusIn, agl.RolloutStatuses()), checkRolloutFilters(&p))
	return do(ctx, s, "QueryRollouts", invalid, func() (agl.Page[agl.AttemptedRollout], error) {
		page, err := s.driver.QueryRollouts(ctx, p)
		if err != nil || p.After == "" {
			return page, err
		}
		// Checked afterwards: behind a rollout that is deleted just before the query there would be nothing.
		if found, err := s.driver.Rollouts(ctx, []string{p.After}); err != nil || len(found) == 0 {
			return agl.Page[agl.AttemptedRollout]{}, cmp.Or(err, agl.Errorf(agl.CodeInvalid, "after: there is no rollout %.200q; begin again without it", p.After))
		}
		return page, nil
	})
}

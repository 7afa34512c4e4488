package store

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
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
		RolloutID:   newID("ro-", rolloutIDBytes),
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
		r.RolloutID = newID("ro-", rolloutIDBytes)
	}
	r.StartTime = w.now
	r.Status = status
	if !r.ResourcesID.Valid {
		r.ResourcesID = w.latestResources
	}
	return w.addRollout(&r)
}

type enqueueCommand struct {
	header

	key      *idempotencyKey
	rollouts []agl.Rollout
	made     []*agl.Rollout
	replay   *driver.IdempotencyRecord
}

func (c *enqueueCommand) load(want *driver.LoadParams) {
	c.key.load(want)
	for i := range c.rollouts {
		want.Rollouts = append(want.Rollouts, c.rollouts[i].RolloutID)
	}
}

func (c *enqueueCommand) run(w *unitOfWork) (err error) {
	c.made = c.made[:0]
	if c.replay, err = c.key.replay(w); err != nil || c.replay != nil {
		return err
	}
	var keys []driver.AttemptKey
	for i := range c.rollouts {
		r := w.admit(&c.rollouts[i], agl.RolloutQueuing).cur
		c.made = append(c.made, r)
		if c.key != nil {
			keys = append(keys, driver.AttemptKey{RolloutID: r.RolloutID})
		}
	}
	c.key.record(w, driver.IdempotencyRecord{Made: keys})
	return nil
}

// EnqueueRollouts implements agl.Store.
func (s *Store) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	return do(ctx, s, "EnqueueRollouts", checkIDs(givenText{"idempotency_key", p.IdempotencyKey}), func() ([]agl.Rollout, error) {
		c := &enqueueCommand{rollouts: make([]agl.Rollout, len(p.Rollouts)), made: make([]*agl.Rollout, 0, len(p.Rollouts))}
		for i := range p.Rollouts {
			var err error
			if c.rollouts[i], err = newRollout(&p.Rollouts[i]); err != nil {
				if len(p.Rollouts) > 1 {
					err = agl.Errorf(agl.ErrorCode(err), "rollouts[%d]: %w", i, err)
				}
				return nil, err
			}
		}
		c.key = newKey("enqueue", p.IdempotencyKey, nil, func(dst []byte) []byte {
			for i := range p.Rollouts {
				dst = p.Rollouts[i].AppendJSON(dst)
			}
			return dst
		})
		if err := s.submit(ctx, c); err != nil {
			return nil, err
		}
		out := make([]agl.Rollout, 0, len(c.rollouts))
		if c.replay == nil {
			for _, r := range c.made {
				out = append(out, *r)
			}
			return out, nil
		}
		found, err := s.replayAttempts(ctx, c.replay)
		for i := range found {
			out = append(out, found[i].Rollout)
		}
		return out, err
	})
}

// startCommand starts a new rollout, or another attempt of an existing one.
type startCommand struct {
	header

	key       *idempotencyKey
	rollout   *agl.Rollout // nil for another attempt
	rolloutID string
	worker    agl.Null[string]
	result    agl.AttemptedRollout
	replay    *driver.IdempotencyRecord
}

func (c *startCommand) load(want *driver.LoadParams) {
	c.key.load(want)
	want.Rollouts = append(want.Rollouts, c.rolloutID)
	if c.worker.V != "" {
		want.Workers = append(want.Workers, c.worker.V)
	}
}

func (c *startCommand) run(w *unitOfWork) (err error) {
	if c.replay, err = c.key.replay(w); err != nil || c.replay != nil {
		return err
	}
	var e *rolloutEntry
	if c.rollout != nil {
		e = w.admit(c.rollout, agl.RolloutPreparing)
	} else if e = w.rollout(c.rolloutID); e == nil {
		return errRollout(c.rolloutID)
	}
	w.syncWorker(w.startAttempt(e, c.worker))
	c.result = e.attempted()
	c.key.recordAttempts(w, []agl.AttemptedRollout{c.result})
	return nil
}

func (s *Store) start(ctx context.Context, c *startCommand) (agl.AttemptedRollout, error) {
	if err := s.submit(ctx, c); err != nil {
		return agl.AttemptedRollout{}, err
	}
	if c.replay != nil {
		return s.replayAttempt(ctx, c.replay)
	}
	return c.result, nil
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
		return s.start(ctx, &startCommand{key: key, rollout: &r, rolloutID: r.RolloutID, worker: p.WorkerID})
	})
}

// StartAttempt implements agl.Store.
func (s *Store) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (agl.AttemptedRollout, error) {
	invalid := checkIDs(givenText{"rollout_id", p.RolloutID}, givenText{"worker_id", p.WorkerID.V}, givenText{"idempotency_key", p.IdempotencyKey})
	return do(ctx, s, "StartAttempt", invalid, func() (agl.AttemptedRollout, error) {
		key := newKey("start_attempt", p.IdempotencyKey, []string{p.RolloutID}, func(dst []byte) []byte {
			return append(dst, p.WorkerID.V...)
		})
		return s.start(ctx, &startCommand{key: key, rolloutID: p.RolloutID, worker: p.WorkerID})
	})
}

type updateRolloutCommand struct {
	header

	params agl.UpdateRolloutParams
	result agl.Rollout
}

func (c *updateRolloutCommand) load(want *driver.LoadParams) {
	want.Rollouts = append(want.Rollouts, c.params.RolloutID)
}

func (c *updateRolloutCommand) run(w *unitOfWork) error {
	p := &c.params
	e := w.rollout(p.RolloutID)
	if e == nil { // in the reference's words
		return agl.Errorf(agl.CodeNotFound, "Item does not exist with primary key(s): rollout_id='%s'", p.RolloutID)
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
			return err
		}
		w.setBoth(e, r, ended)
	} else {
		w.setRollout(e, &r)
	}
	c.result = *e.cur
	return nil
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
	return do(ctx, s, "UpdateRollout", checkRolloutUpdate(&p), func() (agl.Rollout, error) {
		c := &updateRolloutCommand{params: p}
		err := s.submit(ctx, c)
		return c.result, err
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

type cancelCommand struct {
	header

	rolloutID string
	result    agl.Rollout
}

func (c *cancelCommand) load(want *driver.LoadParams) {
	want.Rollouts = append(want.Rollouts, c.rolloutID)
}

func (c *cancelCommand) run(w *unitOfWork) error {
	e := w.rollout(c.rolloutID)
	if e == nil {
		return errRollout(c.rolloutID)
	}
	if !e.cur.Status.Finished() {
		r, ended := cancel(*e.cur, e.latestAttempt(), w.now)
		w.setBoth(e, r, ended)
	}
	c.result = *e.cur
	return nil
}

// CancelRollout implements agl.Store.
func (s *Store) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (agl.Rollout, error) {
	return do(ctx, s, "CancelRollout", nil, func() (agl.Rollout, error) {
		c := &cancelCommand{rolloutID: p.RolloutID}
		err := s.submit(ctx, c)
		return c.result, err
	})
}

type deleteCommand struct {
	header

	rolloutID string
	workers   []string // busy with the rollout
}

func (c *deleteCommand) load(want *driver.LoadParams) {
	want.Rollouts = append(want.Rollouts, c.rolloutID)
	want.Workers = append(want.Workers, c.workers...)
}

func (c *deleteCommand) run(w *unitOfWork) error {
	e := w.rollout(c.rolloutID)
	switch {
	case e == nil:
		return errRollout(c.rolloutID)
	case !e.cur.Status.Finished():
		return agl.Errorf(agl.CodeIllegalState, "Rollout %s is %s: only a finished rollout can be deleted, cancel it first",
			c.rolloutID, e.cur.Status)
	}
	w.deleteRollout(e, c.workers)
	return nil
}

// DeleteRollout implements agl.Store.
func (s *Store) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) error {
	return s.run(ctx, "DeleteRollout", nil, func() error {
		c := &deleteCommand{rolloutID: p.RolloutID}
		found, err := s.driver.Rollouts(ctx, []string{p.RolloutID})
		if err == nil && len(found) > 0 && found[0].Attempt != nil && found[0].Attempt.SequenceID > 1 {
			var busy map[string][]string
			busy, err = s.busyWorkers(ctx)
			c.workers = busy[p.RolloutID]
		}
		if err != nil {
			return err
		}
		return s.submit(ctx, c)
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

package store

import (
	"context"
	"slices"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

func errRollout(id string) error {
	return agl.Errorf(agl.CodeNotFound, "Rollout %s not found", id)
}

func errNoAttempts(rolloutID string) error {
	return agl.Errorf(agl.CodeNotFound, "No attempts found for rollout %s", rolloutID)
}

func errAttempt(rolloutID, attemptID string) error {
	return agl.Errorf(agl.CodeNotFound, "Attempt %s not found for rollout %s", attemptID, rolloutID)
}

// checkDocument rejects what is not one JSON document; nil passes.
func checkDocument(field string, raw jsontext.Value) error {
	if raw != nil && !raw.IsValid(rawjson.Options()) {
		return agl.Errorf(agl.CodeInvalid, "%s: got %.100q, must be a JSON document", field, raw)
	}
	return nil
}

// checkObject rejects what is not a JSON object; nil passes, and null where it
// is allowed.
func checkObject(field string, raw jsontext.Value, nullable bool) error {
	if raw == nil {
		return nil
	}
	kind := raw.Kind()
	if !raw.IsValid(rawjson.Options()) || kind != '{' && (!nullable || kind != 'n') {
		return agl.Errorf(agl.CodeInvalid, "%s: got %.100q, must be a JSON object", field, raw)
	}
	return nil
}

func checkMode(field string, m agl.Mode) error {
	if !m.Valid() {
		return agl.Errorf(agl.CodeInvalid, "%s: got %q, must be train, val, test or null", field, m)
	}
	return nil
}

// object is metadata as it is kept: nil for null.
func object(raw jsontext.Value) jsontext.Value {
	if raw.Kind() == 'n' {
		return nil
	}
	return raw
}

// newRollout checks a request and makes a rollout of it, but for its times,
// status and the latest resources.
func newRollout(e *agl.EnqueueRollout) (r agl.Rollout, err error) {
	if err := checkDocument("input", e.Input); err != nil {
		return r, err
	}
	if err := checkObject("metadata", e.Metadata, true); err != nil {
		return r, err
	}
	if err := checkMode("mode", e.Mode); err != nil {
		return r, err
	}
	r = agl.Rollout{
		RolloutID:   newID("ro-", rolloutIDBytes),
		Input:       e.Input,
		Mode:        e.Mode,
		ResourcesID: e.ResourcesID,
		Metadata:    object(e.Metadata),
	}
	if r.Input == nil {
		r.Input = rawjson.Null()
	}
	if r.Metadata == nil {
		r.Metadata = jsontext.Value("{}")
	}
	var config agl.RolloutConfig
	if e.Config != nil {
		config = *e.Config
	}
	if err := config.Validate(); err != nil {
		return r, err
	}
	config.RetryCondition = slices.Clone(config.RetryCondition)
	r.Config = config.WithDefaults()
	return r, nil
}

// admit stores a copy of a new rollout. Its id was drawn before the batch was
// loaded; one that is taken is drawn anew.
func (w *work) admit(given *agl.Rollout, status agl.RolloutStatus) *rolloutEntry {
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

	key      *keyed
	rollouts []agl.Rollout
	made     []*agl.Rollout // of them
	replay   *IdempotencyRecord
}

func (c *enqueueCommand) load(want *LoadParams) {
	c.key.load(want)
	for i := range c.rollouts {
		want.Rollouts = append(want.Rollouts, c.rollouts[i].RolloutID)
	}
}

func (c *enqueueCommand) run(w *work) (err error) {
	c.made = c.made[:0]
	if c.replay, err = c.key.replay(w); err != nil || c.replay != nil {
		return err
	}
	var made []AttemptKey
	for i := range c.rollouts {
		r := w.admit(&c.rollouts[i], agl.RolloutQueuing).cur
		c.made = append(c.made, r)
		if c.key != nil {
			made = append(made, AttemptKey{RolloutID: r.RolloutID})
		}
	}
	c.key.record(w, IdempotencyRecord{Made: made})
	return nil
}

// EnqueueRollouts implements agl.Store.
func (s *Store) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) (_ []agl.Rollout, err error) {
	end, err := s.begin(ctx, "EnqueueRollouts")
	defer func() { end(err) }()
	if err != nil {
		return nil, err
	}
	if err := checkIDs(givenID{"idempotency_key", p.IdempotencyKey}); err != nil {
		return nil, err
	}
	c := &enqueueCommand{rollouts: make([]agl.Rollout, len(p.Rollouts)), made: make([]*agl.Rollout, 0, len(p.Rollouts))}
	for i := range p.Rollouts {
		if c.rollouts[i], err = newRollout(&p.Rollouts[i]); err != nil {
			if len(p.Rollouts) > 1 {
				err = agl.Errorf(agl.ErrorCode(err), "rollouts[%d]: %w", i, err)
			}
			return nil, err
		}
	}
	c.key = newKeyed("enqueue", p.IdempotencyKey, nil, func(dst []byte) []byte {
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
}

// startCommand starts a rollout, a new one or another attempt of an old one.
type startCommand struct {
	header

	key       *keyed
	rollout   *agl.Rollout // new; nil for another attempt
	rolloutID string
	worker    agl.Null[string]
	result    agl.AttemptedRollout
	replay    *IdempotencyRecord
}

func (c *startCommand) load(want *LoadParams) {
	c.key.load(want)
	want.Rollouts = append(want.Rollouts, c.rolloutID)
	if c.worker.V != "" {
		want.Workers = append(want.Workers, c.worker.V)
	}
}

func (c *startCommand) run(w *work) (err error) {
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
func (s *Store) StartRollout(ctx context.Context, p agl.StartRolloutParams) (_ agl.AttemptedRollout, err error) {
	end, err := s.begin(ctx, "StartRollout")
	defer func() { end(err) }()
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	if err := checkIDs(givenID{"worker_id", p.WorkerID.V}, givenID{"idempotency_key", p.IdempotencyKey}); err != nil {
		return agl.AttemptedRollout{}, err
	}
	r, err := newRollout(&p.EnqueueRollout)
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	key := newKeyed("start_rollout", p.IdempotencyKey, nil, func(dst []byte) []byte {
		return append(p.AppendJSON(dst), p.WorkerID.V...)
	})
	return s.start(ctx, &startCommand{key: key, rollout: &r, rolloutID: r.RolloutID, worker: p.WorkerID})
}

// StartAttempt implements agl.Store.
func (s *Store) StartAttempt(ctx context.Context, p agl.StartAttemptParams) (_ agl.AttemptedRollout, err error) {
	end, err := s.begin(ctx, "StartAttempt")
	defer func() { end(err) }()
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	err = checkIDs(givenID{"rollout_id", p.RolloutID}, givenID{"worker_id", p.WorkerID.V}, givenID{"idempotency_key", p.IdempotencyKey})
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	key := newKeyed("start_attempt", p.IdempotencyKey, []string{p.RolloutID}, func(dst []byte) []byte {
		return append(dst, p.WorkerID.V...)
	})
	return s.start(ctx, &startCommand{key: key, rolloutID: p.RolloutID, worker: p.WorkerID})
}

type updateRolloutCommand struct {
	header

	params agl.UpdateRolloutParams
	result agl.Rollout
}

func (c *updateRolloutCommand) load(want *LoadParams) {
	want.Rollouts = append(want.Rollouts, c.params.RolloutID)
}

func (c *updateRolloutCommand) run(w *work) error {
	p := &c.params
	e := w.rollout(p.RolloutID)
	if e == nil {
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
		r.Metadata = object(p.Metadata)
	}
	if p.Status != nil {
		var latest *agl.Attempt
		if e.latest != nil {
			latest = e.latest.cur
		}
		r, ended, err := rolloutStatusSet(r, latest, *p.Status, w.now)
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

// setBoth takes what became of a rollout and its latest attempt.
func (w *work) setBoth(e *rolloutEntry, r agl.Rollout, latest *agl.Attempt) {
	w.setRollout(e, &r)
	if latest != nil && latest != e.latest.cur {
		w.setAttempt(e.latest, latest)
		w.syncWorker(latest)
	}
}

// UpdateRollout implements agl.Store.
func (s *Store) UpdateRollout(ctx context.Context, p agl.UpdateRolloutParams) (_ agl.Rollout, err error) {
	end, err := s.begin(ctx, "UpdateRollout")
	defer func() { end(err) }()
	if err != nil {
		return agl.Rollout{}, err
	}
	if err := checkRolloutUpdate(&p); err != nil {
		return agl.Rollout{}, err
	}
	c := &updateRolloutCommand{params: p}
	if err := s.submit(ctx, c); err != nil {
		return agl.Rollout{}, err
	}
	return c.result, nil
}

func checkRolloutUpdate(p *agl.UpdateRolloutParams) error {
	if err := checkDocument("input", p.Input); err != nil {
		return err
	}
	if err := checkObject("metadata", p.Metadata, true); err != nil {
		return err
	}
	if p.Mode != nil {
		if err := checkMode("mode", *p.Mode); err != nil {
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

func (c *cancelCommand) load(want *LoadParams) { want.Rollouts = append(want.Rollouts, c.rolloutID) }

func (c *cancelCommand) run(w *work) error {
	e := w.rollout(c.rolloutID)
	if e == nil {
		return errRollout(c.rolloutID)
	}
	if !e.cur.Status.Finished() {
		var latest *agl.Attempt
		if e.latest != nil {
			latest = e.latest.cur
		}
		r, ended := cancel(*e.cur, latest, w.now)
		w.setBoth(e, r, ended)
	}
	c.result = *e.cur
	return nil
}

// CancelRollout implements agl.Store.
func (s *Store) CancelRollout(ctx context.Context, p agl.CancelRolloutParams) (_ agl.Rollout, err error) {
	end, err := s.begin(ctx, "CancelRollout")
	defer func() { end(err) }()
	if err != nil {
		return agl.Rollout{}, err
	}
	c := &cancelCommand{rolloutID: p.RolloutID}
	if err := s.submit(ctx, c); err != nil {
		return agl.Rollout{}, err
	}
	return c.result, nil
}

type deleteCommand struct {
	header

	rolloutID string
}

func (c *deleteCommand) load(want *LoadParams) { want.Rollouts = append(want.Rollouts, c.rolloutID) }

func (c *deleteCommand) run(w *work) error {
	e := w.rollout(c.rolloutID)
	switch {
	case e == nil:
		return errRollout(c.rolloutID)
	case !e.cur.Status.Finished():
		return agl.Errorf(agl.CodeIllegalState, "Rollout %s is %s: only a finished rollout can be deleted, cancel it first",
			c.rolloutID, e.cur.Status)
	}
	if e.latest != nil {
		w.releaseWorker(e.latest.cur.WorkerID.V, e.latest.cur)
	}
	w.deleteRollout(e)
	return nil
}

// DeleteRollout implements agl.Store.
func (s *Store) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) (err error) {
	end, err := s.begin(ctx, "DeleteRollout")
	defer func() { end(err) }()
	if err != nil {
		return err
	}
	return s.submit(ctx, &deleteCommand{rolloutID: p.RolloutID})
}

// GetRollout implements agl.Store.
func (s *Store) GetRollout(ctx context.Context, p agl.GetRolloutParams) (_ agl.AttemptedRollout, err error) {
	end, err := s.begin(ctx, "GetRollout")
	defer func() { end(err) }()
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	found, err := s.driver.Rollouts(ctx, []string{p.RolloutID})
	switch {
	case err != nil:
		return agl.AttemptedRollout{}, err
	case len(found) == 0:
		return agl.AttemptedRollout{}, errRollout(p.RolloutID)
	}
	return found[0], nil
}

// QueryRollouts implements agl.Store.
func (s *Store) QueryRollouts(ctx context.Context, p agl.QueryRolloutsParams) (_ agl.Page[agl.AttemptedRollout], err error) {
	end, err := s.begin(ctx, "QueryRollouts")
	defer func() { end(err) }()
	if err == nil {
		err = checkQuery(&p.Paging, p.Logic, sortRollouts)
	}
	for i, status := range p.StatusIn {
		if err == nil && !status.Valid() {
			err = agl.Errorf(agl.CodeInvalid, "status_in[%s]: got %q, must be one of %v", strconv.Itoa(i), status, agl.RolloutStatuses())
		}
	}
	if err != nil {
		return agl.Page[agl.AttemptedRollout]{}, err
	}
	return s.driver.QueryRollouts(ctx, p)
}

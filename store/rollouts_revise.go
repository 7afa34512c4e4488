package store

import (
	"bytes"
	"context"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

func (w *unitOfWork) reviseRollout(p *agl.ReviseRolloutParams) (revised agl.AttemptedRollout, err error) {
	e := w.rollout(p.RolloutID)
	switch {
	case e == nil:
		return revised, errRollout(p.RolloutID)
	case !bytes.Equal(e.cur.Metadata, p.IfMetadata):
		return revised, agl.Errorf(agl.CodeConflict, "Rollout %s: its metadata has changed", p.RolloutID)
	}
	r, latest := *e.cur, e.latestAttempt()
	if p.Status != nil {
		if r, latest, err = statusRevised(r, latest, *p.Status, w.now); err != nil {
			return revised, err
		}
	}
	r.Metadata = objectOrNil(p.Metadata)
	if p.NumberKey != "" {
		sequence := w.sequence(p.NumberKey)
		number := max(sequence.Last+1, p.NumberMin)
		if number > maxSequenceID {
			return revised, errSequenceEnd(p.NumberKey)
		}
		w.setSequence(sequence, number)
		r.Metadata = rawjson.Set(r.Metadata, p.NumberKey, strconv.AppendInt(nil, number, 10))
	}
	w.setBoth(e, r, latest)
	return e.attempted(), nil
}

// ReviseRollout implements agl.Store.
func (s *Store) ReviseRollout(ctx context.Context, p agl.ReviseRolloutParams) (agl.AttemptedRollout, error) {
	return doWrite(ctx, s, "ReviseRollout", checkRevision(&p), func(want *driver.LoadParams) {
		want.Rollouts = append(want.Rollouts, p.RolloutID)
		if p.NumberKey != "" {
			want.Sequences = append(want.Sequences, p.NumberKey)
		}
	}, func(w *unitOfWork) (agl.AttemptedRollout, error) { return w.reviseRollout(&p) })
}

func checkRevision(p *agl.ReviseRolloutParams) error {
	if p.Metadata == nil {
		return agl.Errorf(agl.CodeInvalid, "metadata: none given, must be a JSON object")
	}
	if err := checkObject("metadata", p.Metadata, false); err != nil {
		return err
	}
	if p.Status != nil {
		switch *p.Status {
		case agl.RolloutRunning, agl.RolloutSucceeded, agl.RolloutFailed, agl.RolloutCancelled:
		default:
			return agl.Errorf(agl.CodeInvalid, "status: got %q, must be running, succeeded, failed or cancelled", *p.Status)
		}
	}
	return checkIDs(givenText{"number_key", p.NumberKey})
}

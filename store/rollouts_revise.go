package store

import (
	"bytes"
	"context"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

type reviseCommand struct {
	header

	params agl.ReviseRolloutParams
	result agl.AttemptedRollout
}

func (c *reviseCommand) load(want *driver.LoadParams) {
	want.Rollouts = append(want.Rollouts, c.params.RolloutID)
	if c.params.NumberKey != "" {
		want.Sequences = append(want.Sequences, c.params.NumberKey)
	}
}

func (c *reviseCommand) run(w *unitOfWork) error {
	p := &c.params
	e := w.rollout(p.RolloutID)
	switch {
	case e == nil:
		return errRollout(p.RolloutID)
	case !bytes.Equal(e.cur.Metadata, p.IfMetadata):
		return agl.Errorf(agl.CodeConflict, "Rollout %s: its metadata has changed", p.RolloutID)
	}
	r, latest := *e.cur, e.latestAttempt()
	if p.Status != nil {
		var err error
		if r, latest, err = statusRevised(r, latest, *p.Status, w.now); err != nil {
			return err
		}
	}
	r.Metadata = objectOrNil(p.Metadata)
	if p.NumberKey != "" {
		sequence := w.sequence(p.NumberKey)
		number := max(sequence.Last+1, p.NumberMin)
		if number > maxSequenceID {
			return errSequenceEnd(p.NumberKey)
		}
		w.setSequence(sequence, number)
		r.Metadata = rawjson.Set(r.Metadata, p.NumberKey, strconv.AppendInt(nil, number, 10))
	}
	w.setBoth(e, r, latest)
	c.result = e.attempted()
	return nil
}

// ReviseRollout implements agl.Store.
func (s *Store) ReviseRollout(ctx context.Context, p agl.ReviseRolloutParams) (agl.AttemptedRollout, error) {
	return do(ctx, s, "ReviseRollout", checkRevision(&p), func() (agl.AttemptedRollout, error) {
		c := &reviseCommand{params: p}
		err := s.submit(ctx, c)
		return c.result, err
	})
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

package capture

import (
	"context"
	"slices"
)

// replay stores the spooled records in the order of the spool. After the recorder has begun to
// close it returns as soon as the spool is empty or the store fails.
func (w *writer) replay(ctx context.Context) {
	for {
		batch, ok := w.spool.next(ctx)
		if !ok {
			return
		}
		left := w.replayBatch(ctx, batch)
		w.spool.took(batch, left)
		if len(left) > 0 {
			return
		}
	}
}

// replayBatch stores the records of a batch and returns the calls whose records stay
// on disk.
func (w *writer) replayBatch(ctx context.Context, batch []*entry) (left []*entry) {
	var loaded []*entry
	for _, e := range batch {
		err := e.refused
		switch {
		case e.sequenceState == sequenceGiven:
			e.recordedID = e.sequenceID
			e.spans, err = w.spool.load(e)
		case !final(err):
			left = append(left, e)
			continue
		}
		if err != nil {
			w.spool.records.Done(e.ref)
			w.lose(e, err)
			continue
		}
		loaded = append(loaded, e)
	}
	unanswered := w.send(ctx, loaded, w.store.persist)
	for _, e := range loaded {
		if e.spans = nil; !slices.Contains(unanswered, e) {
			w.spool.records.Done(e.ref)
		}
	}
	return append(left, unanswered...)
}

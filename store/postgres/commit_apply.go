package postgres

import (
	"context"
	"maps"
	"math"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// maxRollouts is the distance between two numbers of the queue's sequences: the most
// rollouts of a batch.
const maxRollouts = 1 << 20

// Apply implements driver.Tx.
func (b *batch) Apply(ctx context.Context, c *driver.Changes) error {
	bounded, cancel := b.driver.config.bound(ctx)
	defer cancel()
	calls, err := b.changes(c)
	if err != nil {
		return err
	}
	calls = append(calls, call{sql: commit})
	if err := b.run(bounded, calls); err != nil {
		return batchFailed(ctx, "commit", err)
	}
	b.driver.lastNow.Store(math.Float64bits(float64(c.Now)))
	b.end()
	return nil
}

// changes returns the statements that write the changes of a batch. Every server
// writes rows in the same order.
func (b *batch) changes(c *driver.Changes) ([]call, error) {
	if len(c.Rollouts) > maxRollouts {
		return nil, agl.Errorf(agl.CodeInvalid, "postgres: got %d rollouts in one batch, must be at most %d", len(c.Rollouts), maxRollouts)
	}
	w := &writes{batch: b, changes: c, notification: notification{Server: b.driver.server}}
	w.rollouts()
	w.attempts()
	w.workers()
	w.sequences()
	w.resources()
	w.spans()
	w.documents()
	w.keys()
	w.queueState()
	w.removals()
	w.events()
	return w.calls, nil
}

const (
	// A rollout's place in the queue: the number that the batch has drawn, plus the
	// rollout's index in the batch.
	backPlace  = `(SELECT currval('queue_back')) + v.index`
	frontPlace = `(SELECT currval('queue_front')) + v.index`

	// The columns of v, one row for each rollout.
	placeArrays = `$1::text[], $2::text[], $3::float8[], $4::int4[], $5::bool[], $6::int4[]`
	placeNames  = `rollout_id, status, end_time, index, front, attempts`
	nextPlace   = `CASE WHEN v.status NOT IN ('queuing', 'requeuing') THEN NULL
		WHEN r.place IS NOT NULL THEN r.place WHEN v.front THEN ` + frontPlace + ` ELSE ` + backPlace + ` END`
)

// The columns of a rollout that seldom change.
const (
	bodyArrays = `$7::float8[], $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bytea[], $13::text[], $14::text[], $15::text[]`
	bodyNames  = `start_time, mode, resources_id, config, input, metadata, run, step, labels`
)

const (
	takeBack  = `SELECT nextval('queue_back')`
	takeFront = `SELECT nextval('queue_front')`

	insertRollouts = `INSERT INTO rollouts
		(rollout_id, status, end_time, place, attempts, ` + bodyNames + `)
		SELECT v.rollout_id, v.status, v.end_time,
			CASE WHEN v.status NOT IN ('queuing', 'requeuing') THEN NULL WHEN v.front THEN ` + frontPlace + ` ELSE ` + backPlace + ` END,
			v.attempts, ` + bodyNames + `
		FROM unnest(` + placeArrays + `, ` + bodyArrays + `) v (` + placeNames + `, ` + bodyNames + `)`
	// Most changes leave the documents alone.
	moveRollouts = `UPDATE rollouts r
		SET status = v.status, end_time = v.end_time, place = ` + nextPlace + `, attempts = r.attempts + v.attempts
		FROM unnest(` + placeArrays + `) v (` + placeNames + `) WHERE r.rollout_id = v.rollout_id`
	replaceRollouts = `UPDATE rollouts r
		SET status = v.status, end_time = v.end_time, place = ` + nextPlace + `, attempts = r.attempts + v.attempts,
			start_time = v.start_time, mode = v.mode, resources_id = v.resources_id, config = v.config, input = v.input, metadata = v.metadata,
			run = v.run, step = v.step, labels = v.labels
		FROM unnest(` + placeArrays + `, ` + bodyArrays + `) v (` + placeNames + `, ` + bodyNames + `) WHERE r.rollout_id = v.rollout_id`
	countAttempts = `UPDATE rollouts r SET attempts = r.attempts + v.attempts
		FROM unnest($1::text[], $2::int4[]) v (rollout_id, attempts) WHERE r.rollout_id = v.rollout_id`
)

// rolloutRow is a rollout at its index in the batch, with the number of attempts that
// it gains or loses.
type rolloutRow struct {
	*driver.RolloutChange

	index, attempts int
}

// placeColumns are the arguments of placeArrays.
func placeColumns(p *params, rows []rolloutRow) [][]byte {
	return [][]byte{
		textArray(p, rows, func(r rolloutRow) string { return r.Rollout.RolloutID }),
		textArray(p, rows, func(r rolloutRow) string { return string(r.Rollout.Status) }),
		nullFloatArray(p, rows, func(r rolloutRow) agl.Null[agl.Timestamp] { return r.Rollout.EndTime }),
		int4Array(p, rows, func(r rolloutRow) int32 { return int32(r.index) }),
		boolArray(p, rows, func(r rolloutRow) bool { return r.Front }),
		int4Array(p, rows, func(r rolloutRow) int32 { return int32(r.attempts) }),
	}
}

// rolloutColumnsOf are the arguments of a statement that writes documents, too.
func rolloutColumnsOf(p *params, rows []rolloutRow) [][]byte {
	labels := make([]driver.Labels, len(rows))
	for i, r := range rows {
		labels[i] = driver.LabelsOf(r.Rollout.Metadata)
	}
	return append(placeColumns(p, rows),
		floatArray(p, rows, func(r rolloutRow) float64 { return float64(r.Rollout.StartTime) }),
		nullTextArray(p, rows, func(r rolloutRow) agl.Null[string] { return nullIf(string(r.Rollout.Mode), string(agl.ModeNone)) }),
		nullTextArray(p, rows, func(r rolloutRow) agl.Null[string] { return r.Rollout.ResourcesID }),
		textArray(p, rows, func(r rolloutRow) string { return string(r.Rollout.Config.AppendJSON(nil)) }),
		bytesArray(p, rows, func(r rolloutRow) []byte {
			if r.Rollout.Input == nil {
				return rawjson.Null()
			}
			return r.Rollout.Input
		}),
		bytesArray(p, rows, func(r rolloutRow) []byte { return r.Rollout.Metadata }),
		nullTextArray(p, labels, func(l driver.Labels) agl.Null[string] { return l.Run }),
		nullTextArray(p, labels, func(l driver.Labels) agl.Null[string] { return l.Step }),
		textArray(p, labels, func(l driver.Labels) string { return l.Text }),
	)
}

func (w *writes) rollouts() {
	c := w.changes
	attempts := w.attemptCounts()
	var created, moved, replaced []rolloutRow
	var back, front bool
	for i := range c.Rollouts {
		change := &c.Rollouts[i]
		r := change.Rollout
		was := w.batch.rollouts[r.RolloutID]
		w.tell(change, was, attempts[r.RolloutID] > 0)
		if r.Status.Queued() && (was == nil || !was.Status.Queued()) {
			back, front = back || !change.Front, front || change.Front
		}
		row := rolloutRow{change, i, attempts[r.RolloutID]}
		delete(attempts, r.RolloutID)
		switch {
		case change.New:
			created = append(created, row)
		case was != nil && onlyMoved(r, was):
			moved = append(moved, row)
		default:
			replaced = append(replaced, row)
		}
	}
	if back {
		w.add(takeBack)
	}
	if front {
		w.add(takeFront)
	}
	addRows(w, insertRollouts, created, rolloutColumnsOf)
	addRows(w, moveRollouts, moved, placeColumns)
	addRows(w, replaceRollouts, replaced, rolloutColumnsOf)
	addRows(w, countAttempts, slices.Collect(maps.Keys(attempts)), func(p *params, ids []string) [][]byte {
		return [][]byte{textsParam(p, ids), int4Array(p, ids, func(id string) int32 { return int32(attempts[id]) })}
	})
}

// attemptCounts returns how many attempts each rollout gains or loses.
func (w *writes) attemptCounts() map[string]int {
	counts := map[string]int{}
	for i := range w.changes.Attempts {
		if change := &w.changes.Attempts[i]; change.New {
			counts[change.Attempt.RolloutID]++
		}
	}
	for _, key := range w.changes.ReturnedAttempts {
		counts[key.RolloutID]--
	}
	return counts
}

// tell adds to the notification that a rollout was queued, that it has finished, or that
// its deadline may be earlier than other servers know.
func (w *writes) tell(change *driver.RolloutChange, was *agl.Rollout, attempted bool) {
	r := change.Rollout
	if r.Status.Queued() && (was == nil || !was.Status.Queued()) {
		w.notification.Queue = true
	}
	limited := r.Config.TimeoutSeconds.Valid || r.Config.UnresponsiveSeconds.Valid
	switch {
	case r.Status.Finished() && (was == nil || !was.Status.Finished()),
		limited && attempted,
		!change.New && (was == nil || was.Config.TimeoutSeconds != r.Config.TimeoutSeconds ||
			was.Config.UnresponsiveSeconds != r.Config.UnresponsiveSeconds):
		w.notification.Rollouts = append(w.notification.Rollouts, r.RolloutID)
	}
}

// onlyMoved reports whether only the status and the end time differ from the loaded
// rollout.
func onlyMoved(r, was *agl.Rollout) bool {
	return r.StartTime == was.StartTime && r.Mode == was.Mode && r.ResourcesID == was.ResourcesID && sqlstore.SameDocuments(r, was)
}

package postgres

import (
	"bytes"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store"
)

// maxRollouts is how many rollouts fit between two numbers of the queue's
// sequences.
const maxRollouts = 1 << 20

// changes are the statements that write what a batch has changed. Rows are
// written in the order in which everybody writes them.
func (b *batch) changes(c *store.Changes) ([]call, error) {
	if len(c.Rollouts) > maxRollouts {
		return nil, agl.Errorf(agl.CodeInvalid, "postgres: got %d rollouts in one batch, must be at most %d", len(c.Rollouts), maxRollouts)
	}
	w := &writes{batch: b, changes: c, told: told{Server: b.driver.server}}
	w.rollouts()
	w.attempts()
	w.workers()
	w.sequences()
	w.resources()
	w.spans()
	w.keys()
	w.queueState()
	w.removals()
	w.events()
	return w.calls, nil
}

// writes gathers the statements of one Apply.
type writes struct {
	batch   *batch
	changes *store.Changes
	calls   []call
	told    told // what other servers must know
}

func (w *writes) add(s *statement, params ...[]byte) {
	w.calls = append(w.calls, call{statement: s, params: params})
}

const (
	// A rollout's place in the queue: the number that the batch has taken, and the
	// rollout's index in it.
	backPlace  = `(SELECT currval('queue_back')) + v.index`
	frontPlace = `(SELECT currval('queue_front')) + v.index`

	// Each of these is v's columns for one rollout.
	placeArrays = `$1::text[], $2::text[], $3::float8[], $4::int4[], $5::bool[], $6::int4[]`
	placeNames  = `rollout_id, status, end_time, index, front, attempts`
	nextPlace   = `CASE WHEN v.status NOT IN ('queuing', 'requeuing') THEN NULL
		WHEN r.place IS NOT NULL THEN r.place WHEN v.front THEN ` + frontPlace + ` ELSE ` + backPlace + ` END`
)

var (
	takeBack  = &statement{"take_back", `SELECT nextval('queue_back')`}
	takeFront = &statement{"take_front", `SELECT nextval('queue_front')`}

	insertRollouts = &statement{"insert_rollouts", `INSERT INTO rollouts
		(rollout_id, status, end_time, place, attempts, start_time, mode, resources_id, config, input, metadata)
		SELECT v.rollout_id, v.status, v.end_time,
			CASE WHEN v.status NOT IN ('queuing', 'requeuing') THEN NULL WHEN v.front THEN ` + frontPlace + ` ELSE ` + backPlace + ` END,
			v.attempts, v.start_time, v.mode, v.resources_id, v.config, v.input, v.metadata
		FROM unnest(` + placeArrays + `, $7::float8[], $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bytea[])
			v (` + placeNames + `, start_time, mode, resources_id, config, input, metadata)`}
	// What most changes are: the documents stay where they are.
	moveRollouts = &statement{"move_rollouts", `UPDATE rollouts r
		SET status = v.status, end_time = v.end_time, place = ` + nextPlace + `, attempts = r.attempts + v.attempts
		FROM unnest(` + placeArrays + `) v (` + placeNames + `) WHERE r.rollout_id = v.rollout_id`}
	replaceRollouts = &statement{"replace_rollouts", `UPDATE rollouts r
		SET status = v.status, end_time = v.end_time, place = ` + nextPlace + `, attempts = r.attempts + v.attempts,
			start_time = v.start_time, mode = v.mode, resources_id = v.resources_id, config = v.config, input = v.input, metadata = v.metadata
		FROM unnest(` + placeArrays + `, $7::float8[], $8::text[], $9::text[], $10::text[], $11::bytea[], $12::bytea[])
			v (` + placeNames + `, start_time, mode, resources_id, config, input, metadata) WHERE r.rollout_id = v.rollout_id`}
	countAttempts = &statement{"count_attempts", `UPDATE rollouts r SET attempts = r.attempts + v.attempts
		FROM unnest($1::text[], $2::int4[]) v (rollout_id, attempts) WHERE r.rollout_id = v.rollout_id`}
)

// rolloutRows are the parameters of a statement that writes rollouts.
type rolloutRows struct {
	id, status, end, index, front, attempts         *column
	start, mode, resources, config, input, metadata *column // nil when documents stay
}

func newRolloutRows(n int, documents bool) *rolloutRows {
	rows := &rolloutRows{
		id: textColumn(n), status: textColumn(n), end: floatColumn(n), index: int4Column(n), front: boolColumn(n), attempts: int4Column(n),
	}
	if documents {
		rows.start, rows.mode, rows.resources = floatColumn(n), textColumn(n), textColumn(n)
		rows.config, rows.input, rows.metadata = textColumn(n), bytesColumn(n, 0), bytesColumn(n, 0)
	}
	return rows
}

func (rows *rolloutRows) add(index int, change *store.RolloutChange, attempts int) {
	r := change.Rollout
	rows.id.text(r.RolloutID)
	rows.status.text(string(r.Status))
	rows.end.time(r.EndTime)
	rows.index.int4(index)
	rows.front.bool(change.Front)
	rows.attempts.int4(attempts)
	if rows.start == nil {
		return
	}
	rows.start.float(float64(r.StartTime))
	rows.mode.nullText(agl.Null[string]{V: string(r.Mode), Valid: r.Mode != agl.ModeNone})
	rows.resources.nullText(r.ResourcesID)
	rows.config.text(string(r.Config.AppendJSON(nil)))
	input := r.Input
	if input == nil {
		input = rawjson.Null()
	}
	rows.input.bytes(input)
	rows.metadata.bytes(r.Metadata)
}

func (rows *rolloutRows) params() [][]byte {
	out := [][]byte{rows.id.param(), rows.status.param(), rows.end.param(), rows.index.param(), rows.front.param(), rows.attempts.param()}
	if rows.start != nil {
		out = append(out, rows.start.param(), rows.mode.param(), rows.resources.param(), rows.config.param(),
			rows.input.param(), rows.metadata.param())
	}
	return out
}

func (w *writes) rollouts() {
	c := w.changes
	attempts := w.attemptCounts()
	n := len(c.Rollouts)
	var made, moved, replaced *rolloutRows
	var back, front bool
	for i := range c.Rollouts {
		change := &c.Rollouts[i]
		r := change.Rollout
		was := w.batch.rollouts[r.RolloutID]
		w.tell(change, was, attempts[r.RolloutID] > 0)
		if r.Status.Queued() && (was == nil || !was.Status.Queued()) {
			back, front = back || !change.Front, front || change.Front
		}
		rows := &replaced
		switch {
		case change.New:
			rows = &made
		case was != nil && sameDocuments(r, was):
			rows = &moved
		}
		if *rows == nil {
			*rows = newRolloutRows(n, rows != &moved)
		}
		(*rows).add(i, change, attempts[r.RolloutID])
		delete(attempts, r.RolloutID)
	}
	if back {
		w.add(takeBack)
	}
	if front {
		w.add(takeFront)
	}
	if made != nil {
		w.add(insertRollouts, made.params()...)
	}
	if moved != nil {
		w.add(moveRollouts, moved.params()...)
	}
	if replaced != nil {
		w.add(replaceRollouts, replaced.params()...)
	}
	if len(attempts) > 0 {
		ids, counts := textColumn(len(attempts)), int4Column(len(attempts))
		for id, n := range attempts {
			ids.text(id)
			counts.int4(n)
		}
		w.add(countAttempts, ids.param(), counts.param())
	}
}

// attemptCounts returns how many attempts each rollout gets or loses.
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

// tell notes what others must know of a rollout's change: that it was queued,
// that it has finished, that it may have a deadline before the one they know.
func (w *writes) tell(change *store.RolloutChange, was *agl.Rollout, attempted bool) {
	r := change.Rollout
	if r.Status.Queued() && (was == nil || !was.Status.Queued()) {
		w.told.Queue = true
	}
	limited := r.Config.TimeoutSeconds.Valid || r.Config.UnresponsiveSeconds.Valid
	switch {
	case r.Status.Finished() && (was == nil || !was.Status.Finished()),
		limited && attempted,
		!change.New && (was == nil || was.Config.TimeoutSeconds != r.Config.TimeoutSeconds ||
			was.Config.UnresponsiveSeconds != r.Config.UnresponsiveSeconds):
		w.told.Rollouts = append(w.told.Rollouts, r.RolloutID)
	}
}

// sameDocuments reports whether only a rollout's status and end differ from what
// was loaded.
func sameDocuments(r, was *agl.Rollout) bool {
	return r.StartTime == was.StartTime && r.Mode == was.Mode && r.ResourcesID == was.ResourcesID &&
		same(r.Input, was.Input) && same(r.Metadata, was.Metadata) && sameConfig(&r.Config, &was.Config)
}

// same is bytes.Equal, but at once for a document that was handed out.
func same(a, b []byte) bool {
	if len(a) > 0 && len(a) == len(b) && &a[0] == &b[0] {
		return true
	}
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}

func sameConfig(a, b *agl.RolloutConfig) bool {
	return a.TimeoutSeconds == b.TimeoutSeconds && a.UnresponsiveSeconds == b.UnresponsiveSeconds &&
		a.MaxAttempts == b.MaxAttempts && slices.Equal(a.RetryCondition, b.RetryCondition)
}

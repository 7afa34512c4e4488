package postgres

import (
	"cmp"
	"maps"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// writes gathers the statements of one Apply.
type writes struct {
	batch        *batch
	changes      *driver.Changes
	calls        []call
	notification notification
}

func (w *writes) add(sql string, params ...[]byte) {
	w.calls = append(w.calls, call{sql: sql, params: params})
}

func (w *writes) params() *params { return &w.batch.params }

// addIDs adds statements whose one argument is a list of ids, unless it is empty.
func (w *writes) addIDs(ids []string, statements ...string) {
	if len(ids) == 0 {
		return
	}
	for _, sql := range statements {
		w.add(sql, textsParam(w.params(), ids))
	}
}

// addRows adds a statement that writes rows, unless there are none. columns returns its
// arguments.
func addRows[R any](w *writes, sql string, rows []R, columns func(*params, []R) [][]byte) {
	if len(rows) > 0 {
		w.add(sql, columns(w.params(), rows)...)
	}
}

// upsert inserts the rows that the batch has looked for and not found. It inserts or
// replaces the other ones. found says which rows the batch has looked for, and whether they
// exist.
func upsert[R any](w *writes, insert, put string, rows []R, found map[string]bool, id func(R) string, columns func(*params, []R) [][]byte) {
	var missing, rest []R
	for _, r := range rows {
		if exists, sought := found[id(r)]; sought && !exists {
			missing = append(missing, r)
		} else {
			rest = append(rest, r)
		}
	}
	addRows(w, put, rest, columns)
	addRows(w, insert, missing, columns)
}

const (
	attemptArrays = `$1::text[], $2::text[], $3::int4[], $4::float8[], $5::float8[], $6::text[], $7::text[], $8::float8[],
		$9::int8[], $10::int8[], $11::bytea[], $12::float8[], $13::float8[], $14::int8[]`
	attemptNames = `rollout_id, attempt_id, sequence_id, start_time, end_time, status, worker_id, last_heartbeat_time,
		span_count, span_bytes, metadata, reward, reward_priority, reward_sequence`

	workerArrays = `$1::int4[], $2::text[], $3::text[], $4::float8[], $5::float8[], $6::float8[], $7::float8[], $8::text[], $9::text[],
		$10::bytea[]`
	workerNames = `ordinal, worker_id, status, last_heartbeat_time, last_dequeue_time, last_busy_time, last_idle_time,
		current_rollout_id, current_attempt_id, heartbeat_stats`

	resourcesArrays = `$1::text[], $2::float8[], $3::float8[], $4::int4[], $5::bytea[]`
	resourcesNames  = `resources_id, create_time, update_time, version, resources`

	spanArrays = `$1::text[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::text[], $7::text[], $8::float8[], $9::float8[],
		$10::int4[], $11::bytea[], $12::text[]`
	spanNames = `rollout_id, attempt_id, span_id, sequence_id, trace_id, parent_id, name, start_time, end_time, checksum, payload, base`

	keyArrays = `$1::text[], $2::text[], $3::float8[], $4::text[], $5::text[]`
	keyNames  = `scope, fingerprint, create_time, made, resources_id`
)

// A row that the batch has looked for and not found is only inserted: if another server
// has inserted it meanwhile, the batch fails, runs again and finds it. A row that the batch
// has not looked for is inserted or replaced.
const (
	insertAttempts = `INSERT INTO attempts (` + attemptNames + `)
		SELECT ` + attemptNames + ` FROM unnest(` + attemptArrays + `) v (` + attemptNames + `)`
	updateAttempts = `UPDATE attempts a
		SET sequence_id = v.sequence_id, start_time = v.start_time, end_time = v.end_time, status = v.status, worker_id = v.worker_id,
			last_heartbeat_time = v.last_heartbeat_time, span_count = a.span_count + v.span_count,
			span_bytes = a.span_bytes + v.span_bytes, metadata = v.metadata,
			reward = v.reward, reward_priority = v.reward_priority, reward_sequence = v.reward_sequence
		FROM unnest(` + attemptArrays + `) v (` + attemptNames + `)
		WHERE a.rollout_id = v.rollout_id AND a.attempt_id = v.attempt_id`
	countSpans = `UPDATE attempts a
		SET span_count = a.span_count + v.span_count, span_bytes = a.span_bytes + v.span_bytes
		FROM unnest($1::text[], $2::text[], $3::int8[], $4::int8[]) v (rollout_id, attempt_id, span_count, span_bytes)
		WHERE a.rollout_id = v.rollout_id AND a.attempt_id = v.attempt_id`
	removeAttempts = `DELETE FROM attempts a
		USING unnest($1::text[], $2::text[]) v (rollout_id, attempt_id) WHERE a.rollout_id = v.rollout_id AND a.attempt_id = v.attempt_id`
	// attempt_id = ANY finds the spans by their key. With a join alone, PostgreSQL reads the whole table if most spans are of one attempt.
	// || '' keeps it from the index spans_in_order, which has all spans of a rollout.
	removeSpans = `DELETE FROM spans WHERE attempt_id = ANY($2::text[])
		AND (rollout_id || '', attempt_id) IN (SELECT v.rollout_id, v.attempt_id FROM unnest($1::text[], $2::text[]) v (rollout_id, attempt_id))`

	followRewards = `UPDATE rollouts r SET reward = v.reward
		FROM (SELECT v.rollout_id, (SELECT a.reward FROM attempts a WHERE a.rollout_id = v.rollout_id
				ORDER BY a.sequence_id DESC, a.ordinal DESC LIMIT 1) AS reward FROM unnest($1::text[]) v (rollout_id)) v
		WHERE r.rollout_id = v.rollout_id AND r.reward IS DISTINCT FROM v.reward`

	insertWorkers = `INSERT INTO workers (` + workerNames + `)
		SELECT (SELECT nextval('workers_made')) + v.ordinal, v.worker_id, v.status, v.last_heartbeat_time, v.last_dequeue_time,
			v.last_busy_time, v.last_idle_time, v.current_rollout_id, v.current_attempt_id, v.heartbeat_stats
		FROM unnest(` + workerArrays + `) v (` + workerNames + `)`
	putWorkers = insertWorkers + ` ON CONFLICT (worker_id) DO UPDATE
		SET status = excluded.status, last_heartbeat_time = excluded.last_heartbeat_time,
			last_dequeue_time = excluded.last_dequeue_time, last_busy_time = excluded.last_busy_time,
			last_idle_time = excluded.last_idle_time, current_rollout_id = excluded.current_rollout_id,
			current_attempt_id = excluded.current_attempt_id, heartbeat_stats = excluded.heartbeat_stats`

	// With EXISTS, PostgreSQL would read all rollouts into a hash for each statement.
	insertSequences = `INSERT INTO sequences (rollout_id, last, unknown_since)
		SELECT v.rollout_id, v.last, CASE WHEN (SELECT true FROM rollouts r WHERE r.rollout_id = v.rollout_id) THEN NULL ELSE $3::float8 END
		FROM unnest($1::text[], $2::int8[]) v (rollout_id, last)`
	putSequences = insertSequences + ` ON CONFLICT (rollout_id) DO UPDATE
		SET last = excluded.last, unknown_since = excluded.unknown_since`

	insertResources = `INSERT INTO resources (` + resourcesNames + `)
		SELECT ` + resourcesNames + ` FROM unnest(` + resourcesArrays + `) v (` + resourcesNames + `)`
	putResources = insertResources + ` ON CONFLICT (resources_id) DO UPDATE
		SET create_time = excluded.create_time, update_time = excluded.update_time, version = excluded.version,
			resources = excluded.resources`
	setLatest = `UPDATE store SET latest_resources = $1::text`

	insertSpans = `INSERT INTO spans (` + spanNames + `)
		SELECT ` + spanNames + ` FROM unnest(` + spanArrays + `) v (` + spanNames + `)`

	insertKeys = `INSERT INTO idempotency (` + keyNames + `)
		SELECT ` + keyNames + ` FROM unnest(` + keyArrays + `) v (` + keyNames + `)`
	putKeys = insertKeys + ` ON CONFLICT (scope) DO UPDATE
		SET fingerprint = excluded.fingerprint, create_time = excluded.create_time, made = excluded.made,
			resources_id = excluded.resources_id`
	forgetKeys = `DELETE FROM idempotency WHERE scope = ANY($1::text[])`
	// Another server may have used an expired key meanwhile.
	removeKeys = `DELETE FROM idempotency k
		USING unnest($1::text[], $2::float8[]) v (scope, create_time) WHERE k.scope = v.scope AND k.create_time = v.create_time`

	setClosed = `UPDATE store SET queue_closed = $1::bool`

	deleteSpans     = `DELETE FROM spans WHERE rollout_id = ANY($1::text[])`
	deleteAttempts  = `DELETE FROM attempts WHERE rollout_id = ANY($1::text[])`
	deleteSequences = `DELETE FROM sequences WHERE rollout_id = ANY($1::text[])`
	deleteWorkers   = `DELETE FROM workers WHERE worker_id = ANY($1::text[])`
	deleteResources = `DELETE FROM resources WHERE resources_id = ANY($1::text[])`
	deleteRollouts  = `DELETE FROM rollouts WHERE rollout_id = ANY($1::text[])`
	markEvicted     = `UPDATE rollouts SET evicted = true WHERE rollout_id = ANY($1::text[])`
	clearCounts     = `UPDATE attempts SET span_count = 0, span_bytes = 0 WHERE rollout_id = ANY($1::text[])`

	// The counter stays locked until the commit, which is the next statement but one.
	insertEvents = `WITH c AS (UPDATE event_counter SET last = last + $1::int8 RETURNING last)
		INSERT INTO events (id, at, kind, rollout_id, attempt_id, resources_id, worker_id, status, document)
		SELECT c.last - $1::int8 + v.n, $2::float8, v.kind, v.rollout_id, v.attempt_id, v.resources_id, v.worker_id, v.status, v.document
		FROM c, unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
			$9::text[]) WITH ORDINALITY v (kind, rollout_id, attempt_id, resources_id, worker_id, status, document, n)`
	notify = `SELECT pg_notify('` + channel + `', $1::text)`
)

// spanCount is the number and the bytes of an attempt's new spans.
type spanCount struct {
	driver.AttemptKey

	count, bytes int64
}

func (w *writes) spanCounts() map[driver.AttemptKey]spanCount {
	counts := map[driver.AttemptKey]spanCount{}
	for i := range w.changes.Spans {
		s := &w.changes.Spans[i]
		key := driver.AttemptKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID}
		n := counts[key]
		counts[key] = spanCount{key, n.count + 1, n.bytes + int64(len(s.Payload))}
	}
	return counts
}

// attemptRow is an attempt with the counts of its new spans.
type attemptRow struct {
	*agl.Attempt

	spans spanCount
}

func attemptColumnsOf(p *params, rows []attemptRow) [][]byte {
	return [][]byte{
		textArray(p, rows, func(a attemptRow) string { return a.RolloutID }),
		textArray(p, rows, func(a attemptRow) string { return a.AttemptID }),
		int4Array(p, rows, func(a attemptRow) int32 { return int32(a.SequenceID) }),
		floatArray(p, rows, func(a attemptRow) float64 { return float64(a.StartTime) }),
		nullFloatArray(p, rows, func(a attemptRow) agl.Null[agl.Timestamp] { return a.EndTime }),
		textArray(p, rows, func(a attemptRow) string { return string(a.Status) }),
		nullTextArray(p, rows, func(a attemptRow) agl.Null[string] { return a.WorkerID }),
		nullFloatArray(p, rows, func(a attemptRow) agl.Null[agl.Timestamp] { return a.LastHeartbeatTime }),
		int8Array(p, rows, func(a attemptRow) int64 { return a.spans.count }),
		int8Array(p, rows, func(a attemptRow) int64 { return a.spans.bytes }),
		bytesArray(p, rows, func(a attemptRow) []byte { return a.Metadata }),
		nullFloatArray(p, rows, func(a attemptRow) agl.Null[float64] {
			return agl.Null[float64]{V: a.Reward.V.Value, Valid: a.Reward.Valid}
		}),
		nullFloatArray(p, rows, func(a attemptRow) agl.Null[float64] { return a.Reward.V.Priority }),
		int8Array(p, rows, func(a attemptRow) int64 { return a.Reward.V.SequenceID }),
	}
}

func (w *writes) attempts() {
	counts := w.spanCounts()
	var created, changed []attemptRow
	for _, change := range w.changes.Attempts {
		a := change.Attempt
		key := driver.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
		row := attemptRow{a, counts[key]}
		delete(counts, key)
		if change.New {
			created = append(created, row)
		} else {
			changed = append(changed, row)
		}
	}
	addRows(w, insertAttempts, created, attemptColumnsOf)
	addRows(w, updateAttempts, changed, attemptColumnsOf)
	addRows(w, countSpans, slices.Collect(maps.Values(counts)), func(p *params, rows []spanCount) [][]byte {
		return [][]byte{
			textArray(p, rows, func(n spanCount) string { return n.RolloutID }),
			textArray(p, rows, func(n spanCount) string { return n.AttemptID }),
			int8Array(p, rows, func(n spanCount) int64 { return n.count }),
			int8Array(p, rows, func(n spanCount) int64 { return n.bytes }),
		}
	})
	for _, sql := range []string{removeAttempts, removeSpans} {
		addRows(w, sql, w.changes.ReturnedAttempts, func(p *params, keys []driver.AttemptKey) [][]byte {
			return [][]byte{
				textArray(p, keys, func(k driver.AttemptKey) string { return k.RolloutID }),
				textArray(p, keys, func(k driver.AttemptKey) string { return k.AttemptID }),
			}
		})
	}
	w.addIDs(w.rewarded(), followRewards)
}

// rewarded returns the rollouts whose latest attempt, or its reward, may have changed.
func (w *writes) rewarded() []string {
	var ids []string
	for _, change := range w.changes.Attempts {
		a := change.Attempt
		was := w.batch.attempts[driver.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}]
		switch {
		case a.Reward.Valid && (was == nil || was.Reward != a.Reward),
			change.New && a.SequenceID > 1: // an earlier attempt may have a reward
			ids = append(ids, a.RolloutID)
		}
	}
	for _, key := range w.changes.ReturnedAttempts {
		ids = append(ids, key.RolloutID)
	}
	return unique(ids)
}

func (w *writes) workers() {
	type row struct {
		*agl.Worker

		index int
	}
	rows := make([]row, len(w.changes.Workers))
	for i, worker := range w.changes.Workers {
		rows[i] = row{worker, i}
	}
	// Every server locks the rows in the same order, whatever the order of their creation.
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.WorkerID, b.WorkerID) })
	upsert(w, insertWorkers, putWorkers, rows, w.batch.workers, func(r row) string { return r.WorkerID }, func(p *params, rows []row) [][]byte {
		return [][]byte{
			int4Array(p, rows, func(r row) int32 { return int32(r.index) }),
			textArray(p, rows, func(r row) string { return r.WorkerID }),
			textArray(p, rows, func(r row) string { return string(r.Status) }),
			nullFloatArray(p, rows, func(r row) agl.Null[agl.Timestamp] { return r.LastHeartbeatTime }),
			nullFloatArray(p, rows, func(r row) agl.Null[agl.Timestamp] { return r.LastDequeueTime }),
			nullFloatArray(p, rows, func(r row) agl.Null[agl.Timestamp] { return r.LastBusyTime }),
			nullFloatArray(p, rows, func(r row) agl.Null[agl.Timestamp] { return r.LastIdleTime }),
			nullTextArray(p, rows, func(r row) agl.Null[string] { return r.CurrentRolloutID }),
			nullTextArray(p, rows, func(r row) agl.Null[string] { return r.CurrentAttemptID }),
			bytesArray(p, rows, func(r row) []byte { return r.HeartbeatStats }),
		}
	})
}

func (w *writes) sequences() {
	rows := slices.SortedFunc(slices.Values(w.changes.Sequences), func(a, b driver.Sequence) int { return cmp.Compare(a.RolloutID, b.RolloutID) })
	id := func(s driver.Sequence) string { return s.RolloutID }
	upsert(w, insertSequences, putSequences, rows, w.batch.sequences, id, func(p *params, rows []driver.Sequence) [][]byte {
		return [][]byte{
			textArray(p, rows, func(s driver.Sequence) string { return s.RolloutID }),
			int8Array(p, rows, func(s driver.Sequence) int64 { return s.Last }),
			p.float(float64(w.changes.Now)),
		}
	})
}

func (w *writes) resources() {
	if w.changes.LatestResources.Valid {
		w.add(setLatest, w.params().text(w.changes.LatestResources.V))
	}
	list := w.changes.Resources
	if len(list) == 0 {
		return
	}
	// One statement cannot write a row twice: the last version counts.
	var rows []*agl.ResourcesUpdate
	for i, u := range list {
		if !slices.ContainsFunc(list[i+1:], func(later *agl.ResourcesUpdate) bool { return later.ResourcesID == u.ResourcesID }) {
			rows = append(rows, u)
		}
	}
	id := func(u *agl.ResourcesUpdate) string { return u.ResourcesID }
	upsert(w, insertResources, putResources, rows, w.batch.resources, id, func(p *params, rows []*agl.ResourcesUpdate) [][]byte {
		return [][]byte{
			textArray(p, rows, func(u *agl.ResourcesUpdate) string { return u.ResourcesID }),
			floatArray(p, rows, func(u *agl.ResourcesUpdate) float64 { return float64(u.CreateTime) }),
			floatArray(p, rows, func(u *agl.ResourcesUpdate) float64 { return float64(u.UpdateTime) }),
			int4Array(p, rows, func(u *agl.ResourcesUpdate) int32 { return int32(u.Version) }),
			bytesArray(p, rows, func(u *agl.ResourcesUpdate) []byte { return u.Resources.AppendJSON(nil) }),
		}
	})
}

func (w *writes) spans() {
	rows := make([]*driver.SpanRecord, len(w.changes.Spans))
	for i := range rows {
		rows[i] = &w.changes.Spans[i]
	}
	addRows(w, insertSpans, rows, func(p *params, rows []*driver.SpanRecord) [][]byte {
		return [][]byte{
			textArray(p, rows, func(s *driver.SpanRecord) string { return s.RolloutID }),
			textArray(p, rows, func(s *driver.SpanRecord) string { return s.AttemptID }),
			textArray(p, rows, func(s *driver.SpanRecord) string { return s.SpanID }),
			int8Array(p, rows, func(s *driver.SpanRecord) int64 { return s.SequenceID }),
			textArray(p, rows, func(s *driver.SpanRecord) string { return s.TraceID }),
			nullTextArray(p, rows, func(s *driver.SpanRecord) agl.Null[string] { return nullIf(s.ParentID, "") }),
			textArray(p, rows, func(s *driver.SpanRecord) string { return s.Name }),
			nullFloatArray(p, rows, func(s *driver.SpanRecord) agl.Null[agl.Timestamp] { return s.StartTime }),
			nullFloatArray(p, rows, func(s *driver.SpanRecord) agl.Null[agl.Timestamp] { return s.EndTime }),
			int4Array(p, rows, func(s *driver.SpanRecord) int32 { return checksum(s.Payload) }),
			bytesArray(p, rows, func(s *driver.SpanRecord) []byte { return s.Payload }),
			nullTextArray(p, rows, func(s *driver.SpanRecord) agl.Null[string] { return nullIf(s.Base, "") }),
		}
	})
}

func (w *writes) keys() {
	c := w.changes
	addRows(w, removeKeys, w.batch.expired, func(p *params, rows []driver.IdempotencyRecord) [][]byte {
		return [][]byte{
			textArray(p, rows, func(k driver.IdempotencyRecord) string { return k.Scope }),
			floatArray(p, rows, func(k driver.IdempotencyRecord) float64 { return float64(k.CreateTime) }),
		}
	})
	rows := make([]*driver.IdempotencyRecord, len(c.Keys))
	for i := range rows {
		rows[i] = &c.Keys[i]
	}
	slices.SortFunc(rows, func(a, b *driver.IdempotencyRecord) int { return cmp.Compare(a.Scope, b.Scope) })
	id := func(k *driver.IdempotencyRecord) string { return k.Scope }
	upsert(w, insertKeys, putKeys, rows, w.batch.keys, id, func(p *params, rows []*driver.IdempotencyRecord) [][]byte {
		return [][]byte{
			textArray(p, rows, func(k *driver.IdempotencyRecord) string { return k.Scope }),
			textArray(p, rows, func(k *driver.IdempotencyRecord) string { return k.Fingerprint }),
			floatArray(p, rows, func(k *driver.IdempotencyRecord) float64 { return float64(k.CreateTime) }),
			textArray(p, rows, func(k *driver.IdempotencyRecord) string { return string(appendMade(nil, k.Made)) }),
			textArray(p, rows, func(k *driver.IdempotencyRecord) string { return k.ResourcesID }),
		}
	})
	w.addIDs(c.ForgottenKeys, forgetKeys)
}

func (w *writes) queueState() {
	if closed := w.changes.QueueClosed; closed.Valid {
		w.add(setClosed, w.params().bool(closed.V))
		w.notification.Queue = true
	}
}

func (w *writes) removals() {
	c := w.changes
	w.addIDs(c.EvictedRollouts, markEvicted, clearCounts, deleteSpans)
	w.addIDs(c.DeletedRollouts, deleteSpans, deleteAttempts, deleteSequences, deleteRollouts)
	w.notification.Rollouts = append(w.notification.Rollouts, c.DeletedRollouts...)
	w.addIDs(c.DeletedWorkers, deleteWorkers)
	w.addIDs(c.DeletedResources, deleteResources)
	w.addIDs(c.DeletedSequences, deleteSequences)
}

func (w *writes) events() {
	c := w.changes
	addRows(w, insertEvents, c.Events, func(p *params, rows []agl.Event) [][]byte {
		return [][]byte{
			p.int8(int64(len(rows))),
			p.float(float64(c.Now)),
			textArray(p, rows, func(e agl.Event) string { return string(e.Kind) }),
			textArray(p, rows, func(e agl.Event) string { return e.RolloutID }),
			textArray(p, rows, func(e agl.Event) string { return e.AttemptID }),
			textArray(p, rows, func(e agl.Event) string { return e.ResourcesID }),
			textArray(p, rows, func(e agl.Event) string { return e.WorkerID }),
			textArray(p, rows, func(e agl.Event) string { return e.Status }),
			textArray(p, rows, func(e agl.Event) string { return e.Document }),
		}
	})
	if len(c.Events) > 0 || w.notification.Queue || len(w.notification.Rollouts) > 0 {
		w.add(notify, w.notification.payload())
	}
}

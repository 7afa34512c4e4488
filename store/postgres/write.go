package postgres

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	attemptArrays = `$1::text[], $2::text[], $3::int4[], $4::float8[], $5::float8[], $6::text[], $7::text[], $8::float8[],
		$9::int8[], $10::int8[], $11::bytea[]`
	attemptNames = `rollout_id, attempt_id, sequence_id, start_time, end_time, status, worker_id, last_heartbeat_time,
		span_count, span_bytes, metadata`

	workerArrays = `$1::int4[], $2::text[], $3::text[], $4::float8[], $5::float8[], $6::float8[], $7::float8[], $8::text[], $9::text[],
		$10::bytea[]`
	workerNames = `ordinal, worker_id, status, last_heartbeat_time, last_dequeue_time, last_busy_time, last_idle_time,
		current_rollout_id, current_attempt_id, heartbeat_stats`

	resourcesArrays = `$1::text[], $2::float8[], $3::float8[], $4::int4[], $5::bytea[]`
	resourcesNames  = `resources_id, create_time, update_time, version, resources`

	spanArrays = `$1::text[], $2::text[], $3::text[], $4::int8[], $5::text[], $6::text[], $7::text[], $8::float8[], $9::float8[],
		$10::int4[], $11::bytea[]`
	spanNames = `rollout_id, attempt_id, span_id, sequence_id, trace_id, parent_id, name, start_time, end_time, checksum, payload`

	keyArrays = `$1::text[], $2::text[], $3::float8[], $4::text[], $5::text[]`
	keyNames  = `scope, fingerprint, create_time, made, resources_id`
)

// Where a row was looked for and not found it is inserted, so that one that
// another server has made meanwhile is an error; the batch is run again then and
// finds it. Where a row was not looked for it is inserted or replaced.
var (
	insertAttempts = &statement{"insert_attempts", `INSERT INTO attempts (` + attemptNames + `)
		SELECT ` + attemptNames + ` FROM unnest(` + attemptArrays + `) v (` + attemptNames + `)`}
	updateAttempts = &statement{"update_attempts", `UPDATE attempts a
		SET sequence_id = v.sequence_id, start_time = v.start_time, end_time = v.end_time, status = v.status, worker_id = v.worker_id,
			last_heartbeat_time = v.last_heartbeat_time, span_count = a.span_count + v.span_count,
			span_bytes = a.span_bytes + v.span_bytes, metadata = v.metadata
		FROM unnest(` + attemptArrays + `) v (` + attemptNames + `)
		WHERE a.rollout_id = v.rollout_id AND a.attempt_id = v.attempt_id`}
	countSpans = &statement{"count_spans", `UPDATE attempts a
		SET span_count = a.span_count + v.span_count, span_bytes = a.span_bytes + v.span_bytes
		FROM unnest($1::text[], $2::text[], $3::int8[], $4::int8[]) v (rollout_id, attempt_id, span_count, span_bytes)
		WHERE a.rollout_id = v.rollout_id AND a.attempt_id = v.attempt_id`}
	removeAttempts = &statement{"remove_attempts", `DELETE FROM attempts a
		USING unnest($1::text[], $2::text[]) v (rollout_id, attempt_id) WHERE a.rollout_id = v.rollout_id AND a.attempt_id = v.attempt_id`}

	insertWorkers = &statement{"insert_workers", `INSERT INTO workers (` + workerNames + `)
		SELECT (SELECT nextval('workers_made')) + v.ordinal, v.worker_id, v.status, v.last_heartbeat_time, v.last_dequeue_time,
			v.last_busy_time, v.last_idle_time, v.current_rollout_id, v.current_attempt_id, v.heartbeat_stats
		FROM unnest(` + workerArrays + `) v (` + workerNames + `)`}
	putWorkers = &statement{"put_workers", insertWorkers.sql + ` ON CONFLICT (worker_id) DO UPDATE
		SET status = excluded.status, last_heartbeat_time = excluded.last_heartbeat_time,
			last_dequeue_time = excluded.last_dequeue_time, last_busy_time = excluded.last_busy_time,
			last_idle_time = excluded.last_idle_time, current_rollout_id = excluded.current_rollout_id,
			current_attempt_id = excluded.current_attempt_id, heartbeat_stats = excluded.heartbeat_stats`}

	insertSequences = &statement{"insert_sequences", `INSERT INTO sequences (rollout_id, last)
		SELECT rollout_id, last FROM unnest($1::text[], $2::int8[]) v (rollout_id, last)`}
	putSequences = &statement{"put_sequences", insertSequences.sql + ` ON CONFLICT (rollout_id) DO UPDATE SET last = excluded.last`}

	insertResources = &statement{"insert_resources", `INSERT INTO resources (` + resourcesNames + `)
		SELECT ` + resourcesNames + ` FROM unnest(` + resourcesArrays + `) v (` + resourcesNames + `)`}
	putResources = &statement{"put_resources", insertResources.sql + ` ON CONFLICT (resources_id) DO UPDATE
		SET create_time = excluded.create_time, update_time = excluded.update_time, version = excluded.version,
			resources = excluded.resources`}
	setLatest = &statement{"set_latest", `UPDATE store SET latest_resources = $1::text`}

	insertSpans = &statement{"insert_spans", `INSERT INTO spans (` + spanNames + `)
		SELECT ` + spanNames + ` FROM unnest(` + spanArrays + `) v (` + spanNames + `)`}

	insertKeys = &statement{"insert_keys", `INSERT INTO idempotency (` + keyNames + `)
		SELECT ` + keyNames + ` FROM unnest(` + keyArrays + `) v (` + keyNames + `)`}
	putKeys = &statement{"put_keys", insertKeys.sql + ` ON CONFLICT (scope) DO UPDATE
		SET fingerprint = excluded.fingerprint, create_time = excluded.create_time, made = excluded.made,
			resources_id = excluded.resources_id`}
	forgetKeys = &statement{"forget_keys", `DELETE FROM idempotency WHERE scope = ANY($1::text[])`}

	setClosed = &statement{"set_closed", `UPDATE store SET queue_closed = $1::bool`}

	deleteSpans     = &statement{"delete_spans", `DELETE FROM spans WHERE rollout_id = ANY($1::text[])`}
	deleteAttempts  = &statement{"delete_attempts", `DELETE FROM attempts WHERE rollout_id = ANY($1::text[])`}
	deleteSequences = &statement{"delete_sequences", `DELETE FROM sequences WHERE rollout_id = ANY($1::text[])`}
	deleteRollouts  = &statement{"delete_rollouts", `DELETE FROM rollouts WHERE rollout_id = ANY($1::text[])`}
	markEvicted     = &statement{"mark_evicted", `UPDATE rollouts SET evicted = true WHERE rollout_id = ANY($1::text[])`}
	clearCounts     = &statement{"clear_counts", `UPDATE attempts SET span_count = 0, span_bytes = 0 WHERE rollout_id = ANY($1::text[])`}

	// The counter is locked from here to the commit, which is next.
	insertEvents = &statement{"insert_events", `WITH c AS (UPDATE event_counter SET last = last + $1::int8 RETURNING last)
		INSERT INTO events (id, at, kind, rollout_id, attempt_id, resources_id, worker_id, status)
		SELECT c.last - $1::int8 + v.n, $2::float8, v.kind, v.rollout_id, v.attempt_id, v.resources_id, v.worker_id, v.status
		FROM c, unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
			WITH ORDINALITY v (kind, rollout_id, attempt_id, resources_id, worker_id, status, n)`}
	notify = &statement{"notify", `SELECT pg_notify('` + channel + `', $1::text)`}
)

// spanCount is what spans add to their attempt.
type spanCount struct{ count, bytes int64 }

func (w *writes) spanCounts() map[store.AttemptKey]spanCount {
	if len(w.changes.Spans) == 0 {
		return nil
	}
	counts := map[store.AttemptKey]spanCount{}
	for i := range w.changes.Spans {
		s := &w.changes.Spans[i]
		key := store.AttemptKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID}
		n := counts[key]
		counts[key] = spanCount{n.count + 1, n.bytes + int64(len(s.Payload))}
	}
	return counts
}

type attemptRows struct {
	rollout, attempt, sequence, start, end, status, worker, heartbeat, spans, bytes, metadata *column
}

func newAttemptRows(n int) *attemptRows {
	return &attemptRows{
		textColumn(n), textColumn(n), int4Column(n), floatColumn(n), floatColumn(n), textColumn(n), textColumn(n), floatColumn(n),
		int8Column(n), int8Column(n), bytesColumn(n, 0),
	}
}

func (rows *attemptRows) add(a *agl.Attempt, spans spanCount) {
	rows.rollout.text(a.RolloutID)
	rows.attempt.text(a.AttemptID)
	rows.sequence.int4(a.SequenceID)
	rows.start.float(float64(a.StartTime))
	rows.end.time(a.EndTime)
	rows.status.text(string(a.Status))
	rows.worker.nullText(a.WorkerID)
	rows.heartbeat.time(a.LastHeartbeatTime)
	rows.spans.int8(spans.count)
	rows.bytes.int8(spans.bytes)
	rows.metadata.bytes(a.Metadata)
}

func (rows *attemptRows) params() [][]byte {
	return params(rows.rollout, rows.attempt, rows.sequence, rows.start, rows.end, rows.status, rows.worker, rows.heartbeat,
		rows.spans, rows.bytes, rows.metadata)
}

func params(columns ...*column) [][]byte {
	out := make([][]byte, len(columns))
	for i, c := range columns {
		out[i] = c.param()
	}
	return out
}

func (w *writes) attempts() {
	c := w.changes
	if len(c.Attempts) == 0 && len(c.ReturnedAttempts) == 0 && len(c.Spans) == 0 {
		return
	}
	counts := w.spanCounts()
	var made, changed *attemptRows
	for i := range c.Attempts {
		rows := &changed
		if c.Attempts[i].New {
			rows = &made
		}
		if *rows == nil {
			*rows = newAttemptRows(len(c.Attempts))
		}
		a := c.Attempts[i].Attempt
		key := store.AttemptKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID}
		(*rows).add(a, counts[key])
		delete(counts, key)
	}
	if made != nil {
		w.add(insertAttempts, made.params()...)
	}
	if changed != nil {
		w.add(updateAttempts, changed.params()...)
	}
	if len(counts) > 0 {
		rollouts, attempts := textColumn(len(counts)), textColumn(len(counts))
		spans, bytes := int8Column(len(counts)), int8Column(len(counts))
		for key, n := range counts {
			rollouts.text(key.RolloutID)
			attempts.text(key.AttemptID)
			spans.int8(n.count)
			bytes.int8(n.bytes)
		}
		w.add(countSpans, params(rollouts, attempts, spans, bytes)...)
	}
	if n := len(c.ReturnedAttempts); n > 0 {
		rollouts, attempts := textColumn(n), textColumn(n)
		for _, key := range c.ReturnedAttempts {
			rollouts.text(key.RolloutID)
			attempts.text(key.AttemptID)
		}
		w.add(removeAttempts, params(rollouts, attempts)...)
	}
}

type workerRows struct {
	index, id, status, heartbeat, dequeue, busy, idle, rollout, attempt, stats *column
}

func (w *writes) workers() {
	list := w.changes.Workers
	// Everybody writes them in the same order, whatever the order of their creation.
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(list[i].WorkerID, list[j].WorkerID) })
	var made, put *workerRows
	for _, i := range order {
		worker := list[i]
		rows := &put
		if exists, sought := w.batch.workers[worker.WorkerID]; sought && !exists {
			rows = &made
		}
		if *rows == nil {
			n := len(list)
			*rows = &workerRows{
				int4Column(n), textColumn(n), textColumn(n), floatColumn(n), floatColumn(n), floatColumn(n), floatColumn(n),
				textColumn(n), textColumn(n), bytesColumn(n, 0),
			}
		}
		(*rows).add(i, worker)
	}
	if put != nil {
		w.add(putWorkers, put.params()...)
	}
	if made != nil {
		w.add(insertWorkers, made.params()...)
	}
}

func (rows *workerRows) add(index int, w *agl.Worker) {
	rows.index.int4(index)
	rows.id.text(w.WorkerID)
	rows.status.text(string(w.Status))
	rows.heartbeat.time(w.LastHeartbeatTime)
	rows.dequeue.time(w.LastDequeueTime)
	rows.busy.time(w.LastBusyTime)
	rows.idle.time(w.LastIdleTime)
	rows.rollout.nullText(w.CurrentRolloutID)
	rows.attempt.nullText(w.CurrentAttemptID)
	rows.stats.bytes(w.HeartbeatStats)
}

func (rows *workerRows) params() [][]byte {
	return params(rows.index, rows.id, rows.status, rows.heartbeat, rows.dequeue, rows.busy, rows.idle, rows.rollout, rows.attempt, rows.stats)
}

func (w *writes) sequences() {
	list := slices.SortedFunc(slices.Values(w.changes.Sequences), func(a, b store.Sequence) int { return cmp.Compare(a.RolloutID, b.RolloutID) })
	n := len(list)
	if n == 0 {
		return
	}
	var ids, last [2]*column // those that exist or were not looked for, those that do not exist
	for i := range ids {
		ids[i], last[i] = textColumn(n), int8Column(n)
	}
	for _, s := range list {
		i := 0
		if exists, sought := w.batch.sequences[s.RolloutID]; sought && !exists {
			i = 1
		}
		ids[i].text(s.RolloutID)
		last[i].int8(s.Last)
	}
	for i, s := range []*statement{putSequences, insertSequences} {
		if ids[i].n > 0 {
			w.add(s, params(ids[i], last[i])...)
		}
	}
}

func (w *writes) resources() {
	list := w.changes.Resources
	if len(list) == 0 {
		return
	}
	// One statement cannot write a row twice.
	last := map[string]int{}
	for i, u := range list {
		last[u.ResourcesID] = i
	}
	var columns [2][]*column
	for i := range columns {
		columns[i] = []*column{textColumn(len(list)), floatColumn(len(list)), floatColumn(len(list)), int4Column(len(list)), bytesColumn(len(list), 0)}
	}
	for i, u := range list {
		if last[u.ResourcesID] != i {
			continue
		}
		c := columns[0]
		if exists, sought := w.batch.resources[u.ResourcesID]; sought && !exists {
			c = columns[1]
		}
		c[0].text(u.ResourcesID)
		c[1].float(float64(u.CreateTime))
		c[2].float(float64(u.UpdateTime))
		c[3].int4(u.Version)
		c[4].bytes(u.Resources.AppendJSON(nil))
	}
	for i, s := range []*statement{putResources, insertResources} {
		if columns[i][0].n > 0 {
			w.add(s, params(columns[i]...)...)
		}
	}
	w.add(setLatest, textParam(list[len(list)-1].ResourcesID))
}

func (w *writes) spans() {
	list := w.changes.Spans
	n := len(list)
	if n == 0 {
		return
	}
	size := 0
	for i := range list {
		size += len(list[i].Payload)
	}
	rollouts, attempts, ids, sequences := textColumn(n), textColumn(n), textColumn(n), int8Column(n)
	traces, parents, names := newColumn(pgtype.TextOID, n, n*2*idBytes), textColumn(n), textColumn(n)
	starts, ends, sums, payloads := floatColumn(n), floatColumn(n), int4Column(n), bytesColumn(n, size)
	for i := range list {
		s := &list[i]
		rollouts.text(s.RolloutID)
		attempts.text(s.AttemptID)
		ids.text(s.SpanID)
		sequences.int8(s.SequenceID)
		traces.text(s.TraceID)
		parents.nullText(agl.Null[string]{V: s.ParentID, Valid: s.ParentID != ""})
		names.text(s.Name)
		starts.time(s.StartTime)
		ends.time(s.EndTime)
		sums.int4(checksum(s.Payload))
		payloads.bytes(s.Payload)
	}
	w.add(insertSpans, params(rollouts, attempts, ids, sequences, traces, parents, names, starts, ends, sums, payloads)...)
}

func (w *writes) keys() {
	c := w.changes
	if len(w.batch.expired) > 0 {
		w.add(forgetKeys, textArray(w.batch.expired))
	}
	if n := len(c.Keys); n > 0 {
		list := slices.SortedFunc(slices.Values(c.Keys), func(a, b store.IdempotencyRecord) int { return cmp.Compare(a.Scope, b.Scope) })
		var columns [2][]*column
		for i := range columns {
			columns[i] = []*column{textColumn(n), textColumn(n), floatColumn(n), textColumn(n), textColumn(n)}
		}
		for i := range list {
			k := &list[i]
			c := columns[0]
			if exists, sought := w.batch.keys[k.Scope]; sought && !exists {
				c = columns[1]
			}
			c[0].text(k.Scope)
			c[1].text(k.Fingerprint)
			c[2].float(float64(k.CreateTime))
			c[3].text(string(appendMade(nil, k.Made)))
			c[4].text(k.ResourcesID)
		}
		for i, s := range []*statement{putKeys, insertKeys} {
			if columns[i][0].n > 0 {
				w.add(s, params(columns[i]...)...)
			}
		}
	}
	if len(c.ForgottenKeys) > 0 {
		w.add(forgetKeys, textArray(c.ForgottenKeys))
	}
}

func (w *writes) queueState() {
	if closed := w.changes.QueueClosed; closed.Valid {
		w.add(setClosed, boolParam(closed.V))
		w.told.Queue = true
	}
}

func (w *writes) removals() {
	if ids := w.changes.EvictedRollouts; len(ids) > 0 {
		array := textArray(ids)
		w.add(markEvicted, array)
		w.add(clearCounts, array)
		w.add(deleteSpans, array)
	}
	if ids := w.changes.DeletedRollouts; len(ids) > 0 {
		array := textArray(ids)
		w.add(deleteSpans, array)
		w.add(deleteAttempts, array)
		w.add(deleteSequences, array)
		w.add(deleteRollouts, array)
		w.told.Rollouts = append(w.told.Rollouts, ids...)
	}
}

func (w *writes) events() {
	list := w.changes.Events
	if n := len(list); n > 0 {
		kinds, rollouts, attempts, resources, workers, statuses := textColumn(n), textColumn(n), textColumn(n), textColumn(n), textColumn(n), textColumn(n)
		for i := range list {
			e := &list[i]
			kinds.text(string(e.Kind))
			rollouts.text(e.RolloutID)
			attempts.text(e.AttemptID)
			resources.text(e.ResourcesID)
			workers.text(e.WorkerID)
			statuses.text(e.Status)
		}
		w.add(insertEvents, int8Param(int64(n)), floatParam(float64(w.changes.Now)), kinds.param(), rollouts.param(),
			attempts.param(), resources.param(), workers.param(), statuses.param())
	}
	if len(list) > 0 || w.told.Queue || len(w.told.Rollouts) > 0 {
		w.add(notify, w.told.payload())
	}
}

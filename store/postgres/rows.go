package postgres

import (
	"hash/crc32"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// The columns of each noun in the order in which its function below reads them.
const (
	rolloutColumns = `r.rollout_id, r.start_time, r.end_time, r.mode, r.resources_id, r.status, r.config, r.input, r.metadata`
	attemptColumns = `a.rollout_id, a.attempt_id, a.sequence_id, a.start_time, a.end_time, a.status, a.worker_id,
		a.last_heartbeat_time, a.metadata, a.reward, a.reward_priority, a.reward_sequence`
	workerColumns = `w.worker_id, w.status, w.heartbeat_stats, w.last_heartbeat_time, w.last_dequeue_time, w.last_busy_time,
		w.last_idle_time, w.current_rollout_id, w.current_attempt_id`
	resourcesColumns = `u.resources_id, u.create_time, u.update_time, u.version, u.resources`
	spanColumns      = `s.rollout_id, s.attempt_id, s.span_id, s.sequence_id, s.trace_id, s.parent_id, s.name,
		s.start_time, s.end_time, s.checksum, s.payload, s.base`
	keyColumns = `k.scope, k.fingerprint, k.create_time, k.made, k.resources_id`
)

func (r *row) rollout() (*agl.Rollout, error) {
	out := &agl.Rollout{
		RolloutID: r.text(), StartTime: r.time(), EndTime: r.nullTime(), Mode: agl.Mode(r.nullText().V),
		ResourcesID: r.nullText(), Status: agl.RolloutStatus(r.text()),
	}
	config := r.raw()
	out.Input, out.Metadata = r.json(), r.json()
	if string(config) == plainConfig {
		out.Config.MaxAttempts = 1
		return out, nil
	}
	if err := rawjson.Unmarshal(config, &out.Config); err != nil {
		return nil, errStored("the config of rollout %q does not decode: %w", out.RolloutID, err)
	}
	return out, nil
}

// plainConfig is the config of most rollouts.
const plainConfig = `{"timeout_seconds":null,"unresponsive_seconds":null,"max_attempts":1,"retry_condition":[]}`

func (r *row) attempt() *agl.Attempt {
	return &agl.Attempt{
		RolloutID: r.text(), AttemptID: r.text(), SequenceID: r.int4(), StartTime: r.time(), EndTime: r.nullTime(),
		Status: agl.AttemptStatus(r.text()), WorkerID: r.nullText(), LastHeartbeatTime: r.nullTime(), Metadata: r.json(),
		Reward: r.reward(),
	}
}

func (r *row) reward() (out agl.Null[agl.AttemptReward]) {
	value, priority, sequence := r.nullFloat(), r.nullFloat(), r.nullInt8()
	if value.Valid {
		out = agl.Some(agl.AttemptReward{Value: value.V, Priority: priority, SequenceID: sequence.V})
	}
	return out
}

// maybeAttempt reads the columns of an outer join.
func (r *row) maybeAttempt() *agl.Attempt {
	if r.values[r.next] == nil {
		return nil
	}
	return r.attempt()
}

func (r *row) worker() *agl.Worker {
	return &agl.Worker{
		WorkerID: r.text(), Status: agl.WorkerStatus(r.text()), HeartbeatStats: r.json(), LastHeartbeatTime: r.nullTime(),
		LastDequeueTime: r.nullTime(), LastBusyTime: r.nullTime(), LastIdleTime: r.nullTime(),
		CurrentRolloutID: r.nullText(), CurrentAttemptID: r.nullText(),
	}
}

func (r *row) resources() (*agl.ResourcesUpdate, error) {
	out := &agl.ResourcesUpdate{ResourcesID: r.text(), CreateTime: r.time(), UpdateTime: r.time(), Version: r.int4()}
	if err := rawjson.Unmarshal(r.json(), &out.Resources); err != nil {
		return nil, errStored("resources %s do not decode: %w", out.ResourcesID, err)
	}
	return out, nil
}

// span reads a span and verifies its checksum.
func (r *row) span() (*driver.SpanRecord, error) {
	out := &driver.SpanRecord{
		SpanKey:    driver.SpanKey{RolloutID: r.text(), AttemptID: r.text(), SpanID: r.text()},
		SequenceID: r.int8(), TraceID: r.text(), ParentID: r.nullText().V, Name: r.text(),
		StartTime: r.nullTime(), EndTime: r.nullTime(),
	}
	sum := int32(r.int4())
	out.Payload = r.json()
	if checksum(out.Payload) != sum {
		return nil, errDamaged(out.SpanKey)
	}
	out.Base = r.nullText().V
	return out, nil
}

func errStored(format string, args ...any) error {
	return agl.Errorf(agl.CodeInternal, "postgres: "+format+"; `agl db check` lists what is damaged", args...)
}

func errDamaged(key driver.SpanKey) error {
	return errStored("the payload of span %s/%s/%s does not match its checksum", key.RolloutID, key.AttemptID, key.SpanID)
}

// checksum returns a payload's CRC-32C (Castagnoli, RFC 3720) as a signed integer, the type
// of the column.
func checksum(payload []byte) int32 {
	return int32(crc32.Checksum(payload, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (r *row) key() (driver.IdempotencyRecord, error) {
	out := driver.IdempotencyRecord{Scope: r.text(), Fingerprint: r.text(), CreateTime: r.time()}
	var ids []string
	if err := rawjson.Unmarshal(r.raw(), &ids); err != nil || len(ids)%2 != 0 {
		return out, errStored("the idempotency record %q does not decode", out.Scope)
	}
	for i := 0; i < len(ids); i += 2 {
		out.Made = append(out.Made, driver.AttemptKey{RolloutID: ids[i], AttemptID: ids[i+1]})
	}
	out.ResourcesID = r.text()
	return out, nil
}

// appendMade encodes the attempts that a keyed write has created; row.key decodes them.
func appendMade(dst []byte, made []driver.AttemptKey) []byte {
	return rawjson.AppendArray(dst, made, func(dst []byte, key driver.AttemptKey) []byte {
		dst = append(rawjson.AppendString(dst, key.RolloutID), ',')
		return rawjson.AppendString(dst, key.AttemptID)
	})
}

func (r *row) event(identity string) agl.Event {
	return agl.Event{
		ID: driver.EventID(identity, r.int8()), Kind: agl.EventKind(r.text()), RolloutID: r.text(), AttemptID: r.text(),
		ResourcesID: r.text(), WorkerID: r.text(), Status: r.text(), Document: r.text(),
	}
}

package sqlite

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// rolloutRow is the committed state of a rollout. Only older changes, under Driver.mu.
type rolloutRow struct {
	ordinal  int64
	cur      *agl.Rollout
	place    int64 // in the queue; 0 if it is not queued
	latest   *attemptRow
	older    map[string]*attemptRow // earlier attempts that were looked up
	sequence agl.Null[int64]        // the last sequence id on disk
	boot     int64                  // the boot that may have given out more ids; 0 is none
	holds    bool                   // it has spans
	evicted  bool
}

// attemptRow is the committed state of an attempt. Only ids changes.
type attemptRow struct {
	ordinal int64
	cur     *agl.Attempt
	stream  int64
	spans   int64
	bytes   int64
	ids     map[string]struct{} // ids of all its spans; nil if unknown
}

// worker returns the id of the worker that runs the rollout, "" if none does.
func (r *rolloutRow) worker() string {
	if r == nil || r.latest == nil || !r.latest.cur.Status.Live() {
		return ""
	}
	return r.latest.cur.WorkerID.V
}

func (r *rolloutRow) attempted() agl.AttemptedRollout {
	out := agl.AttemptedRollout{Rollout: *r.cur}
	if r.latest != nil {
		out.Attempt = r.latest.cur
	}
	return out
}

func (r *rolloutRow) attempt(id string) *attemptRow {
	if r.latest != nil && r.latest.cur.AttemptID == id {
		return r.latest
	}
	return r.older[id]
}

// rowBytes is the estimated memory of a row without its documents.
const rowBytes = 800

func (r *rolloutRow) size() int64 {
	n := rowBytes + len(r.cur.Input) + len(r.cur.Metadata)
	if r.latest != nil {
		n += len(r.latest.cur.Metadata) + idBytes*len(r.latest.ids)
	}
	for _, a := range r.older {
		n += rowBytes + len(a.cur.Metadata) + idBytes*len(a.ids)
	}
	return int64(n)
}

const (
	idBytes = 64 // estimated memory of a span id in a set
	// maxIDs bounds the span ids of an attempt in memory.
	maxIDs = 256
)

// The columns of a rollout with its latest attempt, in the order of scanRollout, and their
// tables.
const (
	bodyColumns    = "b.input, b.config, b.metadata, b.crc"
	rolloutColumns = "r.ordinal, r.rollout_id, r.start_time, r.end_time, r.mode, r.resources_id, r.status, r.place, r.sequence, r.boot, r.holds, r.evicted, " + bodyColumns
	attemptColumns = "a.ordinal, a.attempt_id, a.sequence_id, a.start_time, a.end_time, a.status, a.worker_id, a.last_heartbeat_time, a.metadata, a.stream, a.spans, a.span_bytes, " +
		"a.reward, a.reward_priority, a.reward_sequence"
	rolloutWidth   = 16
	attemptWidth   = 15
	attemptJoin    = " LEFT JOIN bodies AS b ON b.rollout = r.ordinal LEFT JOIN attempts AS a ON a.ordinal = r.latest"
	selectRollouts = "SELECT " + rolloutColumns + ", " + attemptColumns + " FROM rollouts AS r" + attemptJoin
)

func (d *Driver) scanRollout(r row) (*rolloutRow, error) {
	cur := &agl.Rollout{
		RolloutID: r.text(1), StartTime: r.time(2), EndTime: r.nullTime(3), Mode: agl.Mode(r.text(4)), ResourcesID: r.nullText(5),
		Status: agl.RolloutStatus(r.text(6)), Input: r.bytes(12), Metadata: r.bytes(14),
	}
	config := r.bytes(13)
	if d.codec.sum(cur.Input, config, cur.Metadata) != r.int(15) {
		return nil, errPayload(d.path, "the task of rollout "+cur.RolloutID, errChecksum)
	}
	if err := rawjson.Unmarshal(config, &cur.Config); err != nil {
		return nil, errPayload(d.path, "the config of rollout "+cur.RolloutID, err)
	}
	out := &rolloutRow{
		ordinal: r.int(0), cur: cur, place: r.int(7), sequence: r.nullInt(8), boot: r.int(9), holds: r.bool(10), evicted: r.bool(11),
	}
	if !r.null(rolloutWidth) {
		out.latest = scanAttempt(r[rolloutWidth:], cur.RolloutID)
	}
	return out, nil
}

func scanAttempt(r row, rolloutID string) *attemptRow {
	return &attemptRow{
		ordinal: r.int(0),
		cur: &agl.Attempt{
			RolloutID: rolloutID, AttemptID: r.text(1), SequenceID: int(r.int(2)), StartTime: r.time(3), EndTime: r.nullTime(4),
			Status: agl.AttemptStatus(r.text(5)), WorkerID: r.nullText(6), LastHeartbeatTime: r.nullTime(7), Metadata: r.bytes(8),
			Reward: agl.Null[agl.AttemptReward]{Valid: !r.null(12), V: agl.AttemptReward{
				Value: r.float(12), Priority: agl.Null[float64]{V: r.float(13), Valid: !r.null(13)}, SequenceID: r.int(14),
			}},
		},
		stream: r.int(9), spans: r.int(10), bytes: r.int(11),
	}
}

// readRollout reads a rollout by its id, nil if it does not exist.
func (d *Driver) readRollout(ctx context.Context, c *conn, id string) (*rolloutRow, error) {
	return one(ctx, c, selectRollouts+" WHERE r.rollout_id = ?", []any{id}, d.scanRollout)
}

// readAttempt reads an attempt of a rollout by its id, nil if it does not exist.
func readAttempt(ctx context.Context, c *conn, r *rolloutRow, id string) (*attemptRow, error) {
	return one(ctx, c, "SELECT "+attemptColumns+" FROM attempts AS a WHERE a.rollout = ? AND a.attempt_id = ?",
		[]any{r.ordinal, id}, func(row row) (*attemptRow, error) { return scanAttempt(row, r.cur.RolloutID), nil })
}

// readAttempts reads all attempts of a rollout in the order of their creation.
func readAttempts(ctx context.Context, c *conn, ordinal int64, rolloutID string) (out []*attemptRow, err error) {
	err = c.query(ctx, "SELECT "+attemptColumns+" FROM attempts AS a WHERE a.rollout = ? ORDER BY a.ordinal",
		[]any{ordinal}, func(r row) error {
			out = append(out, scanAttempt(r, rolloutID))
			return nil
		})
	return out, err
}

// record is the committed state of a worker or a bundle.
type plainRow[T any] struct {
	ordinal int64
	cur     *T
	bytes   int64 // of its document
}

func (r *plainRow[T]) size() int64 { return rowBytes + r.bytes }

type (
	workerRow    = plainRow[agl.Worker]
	resourcesRow = plainRow[agl.ResourcesUpdate]
)

const workerColumns = "w.ordinal, w.worker_id, w.status, w.heartbeat_stats, w.last_heartbeat_time, w.last_dequeue_time, w.last_busy_time, " +
	"w.last_idle_time, w.current_rollout_id, w.current_attempt_id"

func scanWorker(r row) *workerRow {
	return &workerRow{
		ordinal: r.int(0),
		cur: &agl.Worker{
			WorkerID: r.text(1), Status: agl.WorkerStatus(r.text(2)), HeartbeatStats: r.bytes(3), LastHeartbeatTime: r.nullTime(4),
			LastDequeueTime: r.nullTime(5), LastBusyTime: r.nullTime(6), LastIdleTime: r.nullTime(7),
			CurrentRolloutID: r.nullText(8), CurrentAttemptID: r.nullText(9),
		},
	}
}

// readWorker reads a worker by its id, nil if it does not exist.
func readWorker(ctx context.Context, c *conn, id string) (*workerRow, error) {
	return one(ctx, c, "SELECT "+workerColumns+" FROM workers AS w WHERE w.worker_id = ?", []any{id},
		func(r row) (*workerRow, error) { return scanWorker(r), nil })
}

const resourcesColumns = "u.ordinal, u.resources_id, u.create_time, u.update_time, u.version, u.document, u.crc"

func (d *Driver) scanResources(r row) (*resourcesRow, error) {
	out := &resourcesRow{ordinal: r.int(0), cur: &agl.ResourcesUpdate{
		ResourcesID: r.text(1), CreateTime: r.time(2), UpdateTime: r.time(3), Version: int(r.int(4)),
	}}
	document := jsontext.Value(r.bytes(5))
	out.bytes = int64(len(document))
	if d.codec.sum(document) != r.int(6) {
		return nil, errPayload(d.path, "resources "+out.cur.ResourcesID, errChecksum)
	}
	if err := rawjson.Unmarshal(document, &out.cur.Resources); err != nil {
		return nil, errPayload(d.path, "resources "+out.cur.ResourcesID, err)
	}
	return out, nil
}

// readResources reads a bundle by its id, nil if it does not exist.
func (d *Driver) readResources(ctx context.Context, c *conn, id string) (*resourcesRow, error) {
	return one(ctx, c, "SELECT "+resourcesColumns+" FROM resources AS u WHERE u.resources_id = ?", []any{id}, d.scanResources)
}

package agl

import (
	"strconv"
	"time"

	"github.com/agl-go/agl/internal/rawjson"
)

// Statistics counts what a store holds.
type Statistics struct {
	Name           string
	TotalRollouts  int
	TotalAttempts  int
	TotalSpans     int
	TotalResources int
	TotalWorkers   int
	Uptime         time.Duration
	QueueClosed    bool              // no rollout is handed out
	Memory         *MemoryStatistics // nil for a store that does not keep spans in memory
}

// MemoryStatistics says how much memory spans use, in bytes.
type MemoryStatistics struct {
	TotalSpanBytes         int64
	EvictionThresholdBytes int64
	SafeThresholdBytes     int64
	MemoryCapacityBytes    int64
}

// QueueStatistics counts the rollouts that wait in a store, and its idle and busy workers.
type QueueStatistics struct {
	Queued int // rollouts that wait for a worker, counted up to 100,000
	// Oldest is the time since the next of them was enqueued or, if it had an attempt, since that ended; 0 if there is none.
	Oldest     time.Duration
	Idle, Busy int // workers that the store has heard of within the last minute
}

// members puts the fields of Memory into the same object and leaves them out if there is no Memory. It leaves QueueClosed out if it is
// false, since the store of Agent-lightning has no such member.
func (s *Statistics) members(w *wireForm) *wireForm {
	w.string("name", &s.Name)
	integer(w, "total_rollouts", &s.TotalRollouts)
	integer(w, "total_attempts", &s.TotalAttempts)
	integer(w, "total_spans", &s.TotalSpans)
	integer(w, "total_resources", &s.TotalResources)
	integer(w, "total_workers", &s.TotalWorkers)
	field(w, "uptime", &s.Uptime,
		func(dst []byte, d time.Duration) []byte { return rawjson.AppendFloat(dst, d.Seconds()) },
		func(in rawjson.Reader, d *time.Duration) error {
			var seconds float64
			err := rawjson.Float(in, &seconds)
			*d = time.Duration(seconds * float64(time.Second))
			return err
		})
	if w.reading || s.QueueClosed {
		field(w, "queue_closed", &s.QueueClosed, strconv.AppendBool, rawjson.Reader.Bool)
	}
	memory, ours := s.Memory, w.found
	if memory == nil {
		if !w.reading {
			return w
		}
		memory = new(MemoryStatistics)
	}
	integer(w, "total_span_bytes", &memory.TotalSpanBytes)
	integer(w, "eviction_threshold_bytes", &memory.EvictionThresholdBytes)
	integer(w, "safe_threshold_bytes", &memory.SafeThresholdBytes)
	integer(w, "memory_capacity_bytes", &memory.MemoryCapacityBytes)
	if w.found && !ours {
		s.Memory = memory
	}
	return w
}

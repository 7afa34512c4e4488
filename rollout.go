package agl

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// RolloutStatus is the state of a rollout.
type RolloutStatus string

// The statuses of a rollout. RolloutFailed, RolloutSucceeded and RolloutCancelled are final unless the rollout is reopened.
const (
	RolloutQueuing   RolloutStatus = "queuing"
	RolloutPreparing RolloutStatus = "preparing"
	RolloutRunning   RolloutStatus = "running"
	RolloutFailed    RolloutStatus = "failed"
	RolloutSucceeded RolloutStatus = "succeeded"
	RolloutCancelled RolloutStatus = "cancelled"
	RolloutRequeuing RolloutStatus = "requeuing"
)

// RolloutStatuses returns every status.
func RolloutStatuses() []RolloutStatus {
	return []RolloutStatus{
		RolloutQueuing, RolloutPreparing, RolloutRunning, RolloutFailed, RolloutSucceeded, RolloutCancelled, RolloutRequeuing,
	}
}

// Finished reports whether a rollout of this status is done: waits for it return.
func (s RolloutStatus) Finished() bool {
	return s == RolloutFailed || s == RolloutSucceeded || s == RolloutCancelled
}

// Queued reports whether a rollout of this status is waiting in the queue.
func (s RolloutStatus) Queued() bool { return s == RolloutQueuing || s == RolloutRequeuing }

// Valid reports whether s is one of [RolloutStatuses].
func (s RolloutStatus) Valid() bool { return slices.Contains(RolloutStatuses(), s) }

// Mode is the purpose of a rollout. The empty mode is null on the wire.
type Mode string

// The modes.
const (
	ModeNone  Mode = ""
	ModeTrain Mode = "train"
	ModeVal   Mode = "val"
	ModeTest  Mode = "test"
)

// Modes returns every mode that has a name.
func Modes() []Mode { return []Mode{ModeTrain, ModeVal, ModeTest} }

// Valid reports whether m is ModeNone or one of [Modes].
func (m Mode) Valid() bool { return m == ModeNone || slices.Contains(Modes(), m) }

func appendMode(dst []byte, m Mode) []byte {
	if m == ModeNone {
		return append(dst, "null"...)
	}
	return rawjson.AppendString(dst, m)
}

func readMode(in rawjson.Reader, m *Mode) error {
	if null, err := in.Null(); null || err != nil {
		return err
	}
	return rawjson.Enum(in, m, Modes())
}

// RolloutConfig limits the attempts of a rollout: their number and their time.
type RolloutConfig struct {
	// TimeoutSeconds ends an attempt that many seconds after its start. Null is never; a negative number, which Agent-lightning
	// accepts, too, is at once.
	TimeoutSeconds Null[float64]
	// UnresponsiveSeconds ends an attempt that has sent no span and no heartbeat for that many seconds. Null is never, a
	// negative number at once.
	UnresponsiveSeconds Null[float64]
	// MaxAttempts counts all attempts, including the first. 0 means 1.
	MaxAttempts int
	// RetryCondition lists the attempt statuses after which the rollout is queued again.
	RetryCondition []AttemptStatus
}

// WithDefaults returns the config with 1 for a MaxAttempts of 0.
func (c RolloutConfig) WithDefaults() RolloutConfig {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 1
	}
	return c
}

// Validate returns ErrInvalid for the first field that is out of range. Every number is in the range of the times.
func (c RolloutConfig) Validate() error {
	if c.MaxAttempts < 0 {
		return Errorf(CodeInvalid, "config.max_attempts: got %d, must be at least 1", c.MaxAttempts)
	}
	for _, s := range c.RetryCondition {
		if !s.Valid() {
			return Errorf(CodeInvalid, "config.retry_condition: got %q, must be %s", s, rawjson.Quoted(AttemptStatuses()))
		}
	}
	return nil
}

// Rollout is one unit of work for an agent, from queued to finished.
type Rollout struct {
	RolloutID   string
	Input       jsontext.Value // the task; any JSON
	StartTime   Timestamp      // when it was enqueued, or started without the queue
	EndTime     Null[Timestamp]
	Mode        Mode
	ResourcesID Null[string] // the resources to run with; null is the latest
	Status      RolloutStatus
	Config      RolloutConfig
	Metadata    jsontext.Value // an object
}

// AttemptedRollout is a rollout with its latest attempt. Attempt is nil if the rollout was never claimed.
type AttemptedRollout struct {
	Rollout
	Attempt *Attempt
}

// EnqueueRollout describes a new rollout.
type EnqueueRollout struct {
	Input       jsontext.Value // nil is null
	Mode        Mode
	ResourcesID Null[string]   // null is the latest resources when the rollout is enqueued
	Config      *RolloutConfig // nil is the zero config
	Metadata    jsontext.Value // an object; nil is {}
}

// MetadataGateway begins the names in the metadata of rollouts of the API of Agent-lightning v1.0 (package gateway).
const MetadataGateway = "agl.gateway"

// MetadataSession is the key of a rollout's metadata with the name of the live session that it is, and begins the names of what
// else a proxy keeps there about the session.
const MetadataSession = "agl.session"

func (c *RolloutConfig) members(w *wireForm) *wireForm {
	nullNumber(w, "timeout_seconds", &c.TimeoutSeconds)
	nullNumber(w, "unresponsive_seconds", &c.UnresponsiveSeconds)
	field(w, "max_attempts", &c.MaxAttempts,
		func(dst []byte, n int) []byte { return rawjson.AppendInt(dst, cmp.Or(n, 1)) },
		func(in rawjson.Reader, n *int) error { return rawjson.IntAtLeast(in, n, 1) })
	field(w, "retry_condition", &c.RetryCondition,
		func(dst []byte, list []AttemptStatus) []byte {
			return rawjson.AppendArray(dst, list, rawjson.AppendString)
		},
		func(in rawjson.Reader, list *[]AttemptStatus) error {
			return rawjson.Enums(in, list, AttemptStatuses())
		})
	return w
}

func (r *Rollout) members(w *wireForm) *wireForm {
	w.string("rollout_id", &r.RolloutID)
	field(w, "input", &r.Input, rawjson.AppendRaw, rawjson.Reader.Raw)
	w.time("start_time", &r.StartTime)
	nullNumber(w, "end_time", &r.EndTime)
	field(w, "mode", &r.Mode, appendMode, readMode)
	w.nullString("resources_id", &r.ResourcesID)
	enum(w, "status", &r.Status, RolloutStatuses)
	nested(w, "config", &r.Config)
	w.nullDict("metadata", &r.Metadata)
	return w
}

// members leaves the key "attempt" out, instead of null, if there is no attempt: clients decide by its presence.
func (r *AttemptedRollout) members(w *wireForm) *wireForm {
	r.Rollout.members(w)
	if w.reading || r.Attempt != nil {
		nullNested(w, "attempt", &r.Attempt)
	}
	return w
}

func (r *EnqueueRollout) members(w *wireForm) *wireForm {
	field(w, "input", &r.Input, rawjson.AppendRaw, rawjson.Reader.Raw)
	field(w, "mode", &r.Mode, appendMode, readMode)
	w.nullString("resources_id", &r.ResourcesID)
	nullNested(w, "config", &r.Config)
	w.nullDict("metadata", &r.Metadata)
	return w
}

package agl

import (
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// AttemptStatus is where an attempt stands.
type AttemptStatus string

// The statuses of an attempt. Preparing and running attempts are live.
const (
	AttemptPreparing    AttemptStatus = "preparing"
	AttemptRunning      AttemptStatus = "running"
	AttemptFailed       AttemptStatus = "failed"
	AttemptSucceeded    AttemptStatus = "succeeded"
	AttemptUnresponsive AttemptStatus = "unresponsive"
	AttemptTimeout      AttemptStatus = "timeout"
)

// AttemptStatuses returns every status.
func AttemptStatuses() []AttemptStatus {
	return []AttemptStatus{
		AttemptPreparing, AttemptRunning, AttemptFailed, AttemptSucceeded, AttemptUnresponsive, AttemptTimeout,
	}
}

// Live reports whether an attempt of this status has a runner that works on it.
func (s AttemptStatus) Live() bool { return s == AttemptPreparing || s == AttemptRunning }

// Valid reports whether s is one of [AttemptStatuses].
func (s AttemptStatus) Valid() bool { return contains(AttemptStatuses(), s) }

// Attempt is one execution of a rollout.
type Attempt struct {
	RolloutID         string
	AttemptID         string
	SequenceID        int // 1 for a rollout's first attempt
	StartTime         Timestamp
	EndTime           Null[Timestamp]
	Status            AttemptStatus
	WorkerID          Null[string]
	LastHeartbeatTime Null[Timestamp]
	Metadata          jsontext.Value // an object, or nil for null
}

// OutcomeKind says why an attempt ended as it did.
type OutcomeKind string

// The kinds of outcome. Only OutcomeOK and OutcomeAgentError say something
// about the agent; the others are failures of what is around it, which
// algorithms mask instead of counting them as reward 0.
const (
	OutcomeOK              OutcomeKind = "ok"
	OutcomeAgentError      OutcomeKind = "agent_error"
	OutcomePanic           OutcomeKind = "panic"
	OutcomeTimeout         OutcomeKind = "timeout"
	OutcomeUnresponsive    OutcomeKind = "unresponsive"
	OutcomeCancelled       OutcomeKind = "cancelled"
	OutcomeContextOverflow OutcomeKind = "context_overflow"
	OutcomeModelError      OutcomeKind = "model_error"
	OutcomeBudget          OutcomeKind = "budget"
	OutcomeSetupError      OutcomeKind = "setup_error"
)

// OutcomeKinds returns every kind.
func OutcomeKinds() []OutcomeKind {
	return []OutcomeKind{
		OutcomeOK, OutcomeAgentError, OutcomePanic, OutcomeTimeout, OutcomeUnresponsive, OutcomeCancelled,
		OutcomeContextOverflow, OutcomeModelError, OutcomeBudget, OutcomeSetupError,
	}
}

// Masked reports whether algorithms leave such an attempt out.
func (k OutcomeKind) Masked() bool { return k != OutcomeOK && k != OutcomeAgentError }

// Outcome is the typed result of an attempt, kept in its metadata under
// [MetadataOutcome].
type Outcome struct {
	Kind    OutcomeKind
	Message string
}

// Outcome reads the outcome out of the attempt's metadata. An attempt that
// carries none (a Python runner's) gets the kind that its status implies, and
// ok is false while it is live.
func (a *Attempt) Outcome() (outcome Outcome, ok bool) {
	if raw, found := GetMember(a.Metadata, MetadataOutcome); found {
		var o Outcome
		if DecodeJSON(raw, &o) == nil && contains(OutcomeKinds(), o.Kind) {
			return o, true
		}
	}
	switch a.Status {
	case AttemptSucceeded:
		return Outcome{Kind: OutcomeOK}, true
	case AttemptFailed:
		return Outcome{Kind: OutcomeAgentError}, true
	case AttemptTimeout:
		return Outcome{Kind: OutcomeTimeout}, true
	case AttemptUnresponsive:
		return Outcome{Kind: OutcomeUnresponsive}, true
	case AttemptPreparing, AttemptRunning:
	}
	return Outcome{}, false
}

// WithOutcome returns metadata with the outcome set, other members untouched.
func WithOutcome(metadata jsontext.Value, o Outcome) jsontext.Value {
	return SetMember(metadata, MetadataOutcome, o.AppendJSON(nil))
}

// AppendJSON appends the wire form.
func (o Outcome) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"kind":`...)
	dst = appendString(dst, string(o.Kind))
	dst = append(dst, `,"message":`...)
	dst = appendString(dst, o.Message)
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (o Outcome) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, o) }

// UnmarshalJSONFrom reads the wire form.
func (o *Outcome) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*o = Outcome{}
	return decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "kind":
			return readString(dec, (*string)(&o.Kind))
		case "message":
			return readString(dec, &o.Message)
		default:
			return dec.SkipValue()
		}
	})
}

// AppendJSON appends the wire form.
func (a *Attempt) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"rollout_id":`...)
	dst = appendString(dst, a.RolloutID)
	dst = append(dst, `,"attempt_id":`...)
	dst = appendString(dst, a.AttemptID)
	dst = append(dst, `,"sequence_id":`...)
	dst = appendInt(dst, a.SequenceID)
	dst = append(dst, `,"start_time":`...)
	dst = appendFloat(dst, float64(a.StartTime))
	dst = append(dst, `,"end_time":`...)
	dst = appendNullFloat(dst, a.EndTime)
	dst = append(dst, `,"status":`...)
	dst = appendString(dst, string(a.Status))
	dst = append(dst, `,"worker_id":`...)
	dst = appendNullString(dst, a.WorkerID)
	dst = append(dst, `,"last_heartbeat_time":`...)
	dst = appendNullFloat(dst, a.LastHeartbeatTime)
	dst = append(dst, `,"metadata":`...)
	dst = appendRaw(dst, a.Metadata, "null")
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (a *Attempt) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, a) }

// UnmarshalJSONFrom reads the wire form.
func (a *Attempt) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*a = Attempt{}
	return decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "rollout_id":
			return readString(dec, &a.RolloutID)
		case "attempt_id":
			return readString(dec, &a.AttemptID)
		case "sequence_id":
			return readInt(dec, &a.SequenceID)
		case "start_time":
			return readFloat(dec, &a.StartTime)
		case "end_time":
			return readNullFloat(dec, &a.EndTime)
		case "status":
			return readEnum(dec, &a.Status, AttemptStatuses())
		case "worker_id":
			return readNullString(dec, &a.WorkerID)
		case "last_heartbeat_time":
			return readNullFloat(dec, &a.LastHeartbeatTime)
		case "metadata":
			return readRawObject(dec, &a.Metadata, true)
		default:
			return dec.SkipValue()
		}
	})
}

func contains[T comparable](all []T, v T) bool { return slices.Contains(all, v) }

func appendInt[I ~int | ~int64](dst []byte, i I) []byte { return strconv.AppendInt(dst, int64(i), 10) }

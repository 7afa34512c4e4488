package agl

import (
	"github.com/go-json-experiment/json/jsontext"
)

// RolloutStatus is where a rollout stands in its life.
type RolloutStatus string

// The statuses of a rollout. Failed, succeeded and cancelled are final until
// the rollout is reopened.
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

// Finished reports whether waits on a rollout of this status return.
func (s RolloutStatus) Finished() bool {
	return s == RolloutFailed || s == RolloutSucceeded || s == RolloutCancelled
}

// Queued reports whether a rollout of this status waits to be claimed.
func (s RolloutStatus) Queued() bool { return s == RolloutQueuing || s == RolloutRequeuing }

// Valid reports whether s is one of [RolloutStatuses].
func (s RolloutStatus) Valid() bool { return contains(RolloutStatuses(), s) }

// Mode says what a rollout is for. The empty mode is null on the wire.
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
func (m Mode) Valid() bool { return m == ModeNone || contains(Modes(), m) }

// RolloutConfig bounds the attempts of a rollout.
type RolloutConfig struct {
	// TimeoutSeconds ends an attempt that many seconds after its start; null is never.
	TimeoutSeconds Null[float64]
	// UnresponsiveSeconds ends an attempt that sent no span and no heartbeat for
	// that many seconds; null is never.
	UnresponsiveSeconds Null[float64]
	// MaxAttempts counts all attempts, the first included; 0 means 1.
	MaxAttempts int
	// RetryCondition lists the attempt statuses after which the rollout is queued again.
	RetryCondition []AttemptStatus
}

// WithDefaults returns the config with MaxAttempts at least 1.
func (c RolloutConfig) WithDefaults() RolloutConfig {
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 1
	}
	return c
}

// Validate names the first field that is out of range.
func (c RolloutConfig) Validate() error {
	if c.MaxAttempts < 0 {
		return Errorf(CodeInvalid, "config.max_attempts: got %d, must be at least 1", c.MaxAttempts)
	}
	for _, s := range c.RetryCondition {
		if !s.Valid() {
			return Errorf(CodeInvalid, "config.retry_condition: got %q, must be %s", s, quotedList(AttemptStatuses()))
		}
	}
	return nil
}

// Rollout is one unit of work for an agent and its life from queued to finished.
type Rollout struct {
	RolloutID   string
	Input       jsontext.Value // the task; any JSON
	StartTime   Timestamp      // when it was enqueued or started
	EndTime     Null[Timestamp]
	Mode        Mode
	ResourcesID Null[string] // the resources to run with; null means the latest
	Status      RolloutStatus
	Config      RolloutConfig
	Metadata    jsontext.Value // an object
}

// AttemptedRollout is a rollout with its latest attempt, or with none (Attempt
// is nil) when it was never claimed.
type AttemptedRollout struct {
	Rollout
	Attempt *Attempt
}

// EnqueueRollout describes a rollout to be. Nil and zero fields take the
// defaults of the wire.
type EnqueueRollout struct {
	Input       jsontext.Value // nil is null
	Mode        Mode
	ResourcesID Null[string]   // null means the latest resources, looked up when the rollout is enqueued
	Config      *RolloutConfig // nil is the zero config
	Metadata    jsontext.Value // nil is {}
}

// AppendJSON appends the wire form.
func (c RolloutConfig) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"timeout_seconds":`...)
	dst = appendNullFloat(dst, c.TimeoutSeconds)
	dst = append(dst, `,"unresponsive_seconds":`...)
	dst = appendNullFloat(dst, c.UnresponsiveSeconds)
	dst = append(dst, `,"max_attempts":`...)
	dst = appendInt(dst, c.WithDefaults().MaxAttempts)
	dst = append(dst, `,"retry_condition":[`...)
	for i, s := range c.RetryCondition {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, string(s))
	}
	return append(dst, ']', '}')
}

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (c *RolloutConfig) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = RolloutConfig{MaxAttempts: 1}
	return decodeObject(dec, func(name []byte) error {
		switch string(name) {
		case "timeout_seconds":
			return readNullFloat(dec, &c.TimeoutSeconds)
		case "unresponsive_seconds":
			return readNullFloat(dec, &c.UnresponsiveSeconds)
		case "max_attempts":
			if err := readInt(dec, &c.MaxAttempts); err != nil {
				return err
			}
			if c.MaxAttempts < 1 {
				return &FieldError{
					Pointer: dec.StackPointer(), Type: "greater_than_equal",
					Message: "Input should be greater than or equal to 1", Input: appendInt(nil, c.MaxAttempts),
				}
			}
			return nil
		case "retry_condition":
			c.RetryCondition = nil
			return decodeArray(dec, func() error {
				var s AttemptStatus
				if err := readEnum(dec, &s, AttemptStatuses()); err != nil {
					return err
				}
				c.RetryCondition = append(c.RetryCondition, s)
				return nil
			})
		default:
			return dec.SkipValue()
		}
	})
}

// MarshalJSONTo writes the wire form.
func (c RolloutConfig) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, c) }

// AppendJSON appends the wire form.
func (r *Rollout) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"rollout_id":`...)
	dst = appendString(dst, r.RolloutID)
	dst = append(dst, `,"input":`...)
	dst = appendRaw(dst, r.Input, "null")
	dst = append(dst, `,"start_time":`...)
	dst = appendFloat(dst, float64(r.StartTime))
	dst = append(dst, `,"end_time":`...)
	dst = appendNullFloat(dst, r.EndTime)
	dst = append(dst, `,"mode":`...)
	dst = appendNullString(dst, Null[string]{string(r.Mode), r.Mode != ModeNone})
	dst = append(dst, `,"resources_id":`...)
	dst = appendNullString(dst, r.ResourcesID)
	dst = append(dst, `,"status":`...)
	dst = appendString(dst, string(r.Status))
	dst = append(dst, `,"config":`...)
	dst = r.Config.AppendJSON(dst)
	dst = append(dst, `,"metadata":`...)
	dst = appendRaw(dst, r.Metadata, "null")
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (r *Rollout) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, r) }

// UnmarshalJSONFrom reads the wire form.
func (r *Rollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = Rollout{}
	return decodeObject(dec, func(name []byte) error { return r.readField(dec, name) })
}

func (r *Rollout) readField(dec *jsontext.Decoder, name []byte) error {
	switch string(name) {
	case "rollout_id":
		return readString(dec, &r.RolloutID)
	case "input":
		return readRaw(dec, &r.Input)
	case "start_time":
		return readFloat(dec, &r.StartTime)
	case "end_time":
		return readNullFloat(dec, &r.EndTime)
	case "mode":
		return r.Mode.read(dec)
	case "resources_id":
		return readNullString(dec, &r.ResourcesID)
	case "status":
		return readEnum(dec, &r.Status, RolloutStatuses())
	case "config":
		return r.Config.UnmarshalJSONFrom(dec)
	case "metadata":
		return readRawObject(dec, &r.Metadata, true)
	default:
		return dec.SkipValue()
	}
}

func (m *Mode) read(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		*m = ModeNone
		return dec.SkipValue()
	}
	return readEnum(dec, m, Modes())
}

// AppendJSON appends the wire form. A rollout without an attempt has no
// "attempt" key at all: clients decide by its presence.
func (r *AttemptedRollout) AppendJSON(dst []byte) []byte {
	dst = r.Rollout.AppendJSON(dst)
	if r.Attempt == nil {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"attempt":`...)
	dst = r.Attempt.AppendJSON(dst)
	return append(dst, '}')
}

// MarshalJSONTo writes the wire form.
func (r *AttemptedRollout) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, r) }

// UnmarshalJSONFrom reads the wire form.
func (r *AttemptedRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = AttemptedRollout{}
	return decodeObject(dec, func(name []byte) error {
		if string(name) != "attempt" {
			return r.readField(dec, name)
		}
		if dec.PeekKind() == 'n' {
			return dec.SkipValue()
		}
		r.Attempt = new(Attempt)
		return r.Attempt.UnmarshalJSONFrom(dec)
	})
}

// AppendJSON appends the wire form.
func (r *EnqueueRollout) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	dst = r.appendMembers(dst)
	return append(dst, '}')
}

func (r *EnqueueRollout) appendMembers(dst []byte) []byte {
	dst = append(dst, `"input":`...)
	dst = appendRaw(dst, r.Input, "null")
	dst = append(dst, `,"mode":`...)
	dst = appendNullString(dst, Null[string]{string(r.Mode), r.Mode != ModeNone})
	dst = append(dst, `,"resources_id":`...)
	dst = appendNullString(dst, r.ResourcesID)
	dst = append(dst, `,"config":`...)
	if r.Config == nil {
		dst = append(dst, "null"...)
	} else {
		dst = r.Config.AppendJSON(dst)
	}
	dst = append(dst, `,"metadata":`...)
	return appendRaw(dst, r.Metadata, "null")
}

// MarshalJSONTo writes the wire form.
func (r *EnqueueRollout) MarshalJSONTo(enc *jsontext.Encoder) error { return marshalAppender(enc, r) }

// UnmarshalJSONFrom reads the wire form. The input is required; null is a
// value. Unknown keys are ignored.
func (r *EnqueueRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = EnqueueRollout{}
	err := decodeObject(dec, func(name []byte) error { return r.readField(dec, name) })
	if err == nil && r.Input == nil {
		err = missingField(dec, "input")
	}
	return err
}

func (r *EnqueueRollout) readField(dec *jsontext.Decoder, name []byte) error {
	switch string(name) {
	case "input":
		return readRaw(dec, &r.Input)
	case "mode":
		return r.Mode.read(dec)
	case "resources_id":
		return readNullString(dec, &r.ResourcesID)
	case "config":
		r.Config = nil
		if dec.PeekKind() == 'n' {
			return dec.SkipValue()
		}
		r.Config = new(RolloutConfig)
		return r.Config.UnmarshalJSONFrom(dec)
	case "metadata":
		return readRawObject(dec, &r.Metadata, true)
	default:
		return dec.SkipValue()
	}
}

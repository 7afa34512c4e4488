package agl

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
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
func (s RolloutStatus) Valid() bool { return slices.Contains(RolloutStatuses(), s) }

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
func (m Mode) Valid() bool { return m == ModeNone || slices.Contains(Modes(), m) }

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
			return Errorf(CodeInvalid, "config.retry_condition: got %q, must be %s", s, rawjson.Quoted(AttemptStatuses()))
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
	o := rawjson.NewObject(dst)
	o.NullFloat("timeout_seconds", c.TimeoutSeconds.V, c.TimeoutSeconds.Valid)
	o.NullFloat("unresponsive_seconds", c.UnresponsiveSeconds.V, c.UnresponsiveSeconds.Valid)
	o.Int("max_attempts", int64(c.WithDefaults().MaxAttempts))
	o.Key("retry_condition")
	o = rawjson.AppendArray(o, c.RetryCondition, rawjson.AppendString[AttemptStatus])
	return o.End()
}

// MarshalJSON returns the wire form.
func (c RolloutConfig) MarshalJSON() ([]byte, error) { return c.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (c *RolloutConfig) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, c) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (c *RolloutConfig) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*c = RolloutConfig{MaxAttempts: 1}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		switch string(name) {
		case "timeout_seconds":
			return c.TimeoutSeconds.UnmarshalJSONFrom(dec)
		case "unresponsive_seconds":
			return c.UnresponsiveSeconds.UnmarshalJSONFrom(dec)
		case "max_attempts":
			return rawjson.IntAtLeast(in, &c.MaxAttempts, 1)
		case "retry_condition":
			c.RetryCondition = nil
			return in.List(func() error {
				var s AttemptStatus
				err := rawjson.Enum(in, &s, AttemptStatuses())
				c.RetryCondition = append(c.RetryCondition, s)
				return err
			})
		default:
			return dec.SkipValue()
		}
	})
}

// AppendJSON appends the wire form.
func (r *Rollout) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("rollout_id", r.RolloutID)
	o.Raw("input", r.Input)
	o.Float("start_time", float64(r.StartTime))
	nullTime(&o, "end_time", r.EndTime)
	o.NullString("mode", string(r.Mode), r.Mode != ModeNone)
	nullString(&o, "resources_id", r.ResourcesID)
	o.String("status", string(r.Status))
	o.Key("config")
	o = r.Config.AppendJSON(o)
	o.Raw("metadata", r.Metadata)
	return o.End()
}

// MarshalJSON returns the wire form.
func (r Rollout) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (r *Rollout) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, r) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (r *Rollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = Rollout{}
	in := reader(dec)
	return in.Object(func(name []byte) error { return r.readField(in, name) })
}

func (r *Rollout) readField(in rawjson.Reader, name []byte) error {
	switch string(name) {
	case "rollout_id":
		return in.String(&r.RolloutID)
	case "input":
		return in.Raw(&r.Input)
	case "start_time":
		return rawjson.Float(in, &r.StartTime)
	case "end_time":
		return r.EndTime.UnmarshalJSONFrom(in.Decoder)
	case "mode":
		return r.Mode.read(in)
	case "resources_id":
		return r.ResourcesID.UnmarshalJSONFrom(in.Decoder)
	case "status":
		return rawjson.Enum(in, &r.Status, RolloutStatuses())
	case "config":
		return r.Config.UnmarshalJSONFrom(in.Decoder)
	case "metadata":
		return in.RawDictOrNull(&r.Metadata)
	default:
		return in.SkipValue()
	}
}

func (m *Mode) read(in rawjson.Reader) error {
	if in.PeekKind() == 'n' {
		*m = ModeNone
		return in.SkipValue()
	}
	return rawjson.Enum(in, m, Modes())
}

// AppendJSON appends the wire form. Without an attempt the key "attempt" is
// absent and not null: clients decide by its presence.
func (r *AttemptedRollout) AppendJSON(dst []byte) []byte {
	dst = r.Rollout.AppendJSON(dst)
	if r.Attempt == nil {
		return dst
	}
	o := rawjson.Reopen(dst)
	o.Value("attempt", r.Attempt)
	return o.End()
}

// MarshalJSON returns the wire form.
func (r AttemptedRollout) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (r *AttemptedRollout) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, r) }

// UnmarshalJSONFrom reads the wire form. Unknown keys are ignored.
func (r *AttemptedRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = AttemptedRollout{}
	in := reader(dec)
	return in.Object(func(name []byte) error {
		if string(name) != "attempt" {
			return r.readField(in, name)
		}
		if null, err := in.Null(); null || err != nil {
			return err
		}
		r.Attempt = new(Attempt)
		return r.Attempt.UnmarshalJSONFrom(dec)
	})
}

// AppendJSON appends the wire form.
func (r *EnqueueRollout) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Raw("input", r.Input)
	o.NullString("mode", string(r.Mode), r.Mode != ModeNone)
	nullString(&o, "resources_id", r.ResourcesID)
	if r.Config == nil {
		o.Raw("config", nil)
	} else {
		o.Value("config", r.Config)
	}
	o.Raw("metadata", r.Metadata)
	return o.End()
}

// MarshalJSON returns the wire form.
func (r EnqueueRollout) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// UnmarshalJSON reads the wire form.
func (r *EnqueueRollout) UnmarshalJSON(doc []byte) error { return rawjson.Unmarshal(doc, r) }

// UnmarshalJSONFrom reads the wire form. The input is required and may be null.
// Unknown keys are ignored.
func (r *EnqueueRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*r = EnqueueRollout{}
	in := reader(dec)
	return in.Object(func(name []byte) error { return r.readField(in, name) }, "input")
}

func (r *EnqueueRollout) readField(in rawjson.Reader, name []byte) error {
	switch string(name) {
	case "input":
		return in.Raw(&r.Input)
	case "mode":
		return r.Mode.read(in)
	case "resources_id":
		return r.ResourcesID.UnmarshalJSONFrom(in.Decoder)
	case "config":
		r.Config = nil
		if null, err := in.Null(); null || err != nil {
			return err
		}
		r.Config = new(RolloutConfig)
		return r.Config.UnmarshalJSONFrom(in.Decoder)
	case "metadata":
		return in.RawDictOrNull(&r.Metadata)
	default:
		return in.SkipValue()
	}
}

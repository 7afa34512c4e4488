package gateway

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// This file translates between the vocabulary of this API and that of the store.
//
//	this API                         the store
//	rollout                          rollout; its id is the rollout's, or rollout_id in the record
//	  is_train                       mode: train, val
//	  config                         in the record; that of the store only has max_attempts 1
//	  metadata                       metadata, without the record
//	  other parts of status          in the record, see [rollout.status]
//	  state                          status: preparing, or queued for our runners, is queuing;
//	                                 running; succeeded; failed and cancelled are failed
//	attempt "0", or any other name   the rollout's one attempt; events keep the name
//	event                            span; the event is its member "agl.gateway"
//	  model_request                  a span of a model call, as the proxy records it
//	  reward                         an annotation with a reward, if the value is a number
//	  others                         agl.event.TYPE
//	deleted                          hidden: deleted_at in the record; cancelled if not finished
//	place in the terminal log        metadata "agl.gateway.number"
//	equal inputs in one POST         metadata "agl.group": the id of the first of them

// State is the state of a rollout in this API.
type State string

// The states. Succeeded and failed are final.
const (
	StateQueuing   State = "queuing"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
)

// states returns every state.
func states() []State { return []State{StateQueuing, StateRunning, StateSucceeded, StateFailed} }

// Terminal reports whether no other state follows.
func (s State) Terminal() bool { return s == StateSucceeded || s == StateFailed }

// next reports whether a controller may change the state to another one.
func (s State) next(to State) bool {
	switch s {
	case StateQueuing:
		return to == StateRunning || to == StateFailed
	case StateRunning:
		return to.Terminal()
	default:
		return false
	}
}

// stored returns the store's status for a state that a controller reports.
func (s State) stored() agl.RolloutStatus {
	switch s {
	case StateRunning:
		return agl.RolloutRunning
	case StateSucceeded:
		return agl.RolloutSucceeded
	default:
		return agl.RolloutFailed
	}
}

// statusesOf returns the statuses that rollouts in these states may have in the store. There, a span makes a rollout
// running that is still queuing here.
func statusesOf(states []State) []agl.RolloutStatus {
	var out []agl.RolloutStatus
	if slices.Contains(states, StateQueuing) || slices.Contains(states, StateRunning) {
		out = append(out, agl.RolloutQueuing, agl.RolloutPreparing, agl.RolloutRequeuing, agl.RolloutRunning)
	}
	if slices.ContainsFunc(states, State.Terminal) {
		out = append(out, agl.RolloutSucceeded, agl.RolloutFailed, agl.RolloutCancelled)
	}
	return out
}

const (
	// keyRecord is the member of a rollout's metadata, and of a span, that holds what only this API knows.
	keyRecord = agl.MetadataGateway
	// keyNumber is the member of a rollout's metadata with its number in the terminal log, and the name of the
	// sequence that issues the numbers.
	keyNumber = agl.MetadataGateway + ".number"
	// keyGroup is the member of a rollout's metadata that is the same for siblings.
	keyGroup = "agl.group"
)

// reserved reports whether a member of a rollout's metadata belongs to this API.
func reserved(name string) bool { return name == keyRecord || name == keyNumber || name == keyGroup }

// recordV1 is the part of a rollout that only this API knows. The store keeps it in the metadata.
type recordV1 struct {
	// State is what controllers have reported; empty while they have reported nothing and the rollout was queued for
	// the store's runners.
	State         State            `json:"state,omitzero"`
	ID            string           `json:"rollout_id,omitzero"` // if it differs from the id in the store
	Version       int              `json:"version"`
	UpdatedAt     agl.Timestamp    `json:"updated_at,omitzero"` // 0 is the start
	K8sJobName    agl.Null[string] `json:"k8s_job_name,omitzero"`
	LastAttemptID agl.Null[string] `json:"last_attempt_id,omitzero"`
	ErrorMessage  agl.Null[string] `json:"error_message,omitzero"`
	Attempts      []string         `json:"attempts,omitzero"` // in the order of their first events
	Config        jsontext.Value   `json:"config"`
	DeletedAt     agl.Timestamp    `json:"deleted_at,omitzero"`
	// Successor is the store's id of the rollout that has taken over this one's id in this API.
	Successor string `json:"successor,omitzero"`
}

// rollout is a rollout of the store that belongs to this API.
type rollout struct {
	agl.AttemptedRollout
	recordV1
}

// rolloutOf reads a rollout of the store. ok is false for rollouts that were not created by this API, also for one whose
// metadata a client has given another record.
func rolloutOf(stored agl.AttemptedRollout) (r rollout, ok bool) {
	raw, found := rawjson.Get(stored.Metadata, keyRecord)
	if !found || rawjson.Unmarshal(raw, &r.recordV1) != nil || r.Config == nil {
		return rollout{}, false
	}
	r.AttemptedRollout = stored
	r.Config = bytes.Clone(r.Config)
	return r, true
}

// id returns the id in this API.
func (r *rollout) id() string { return cmp.Or(r.ID, r.RolloutID) }

// storeID returns the id in the store.
func (r *rollout) storeID() string { return r.RolloutID }

// status is the state of a rollout with its version, time and error.
type status struct {
	state        State
	version      int
	updatedAt    agl.Timestamp
	errorMessage agl.Null[string]
}

// status returns the status in the record, unless the store knows more: the rollout may have been cancelled there, or
// one of the store's runners may have it.
func (r *rollout) status() status {
	s := status{cmp.Or(r.State, StateQueuing), r.Version, cmp.Or(r.UpdatedAt, r.StartTime), r.ErrorMessage}
	if s.state.Terminal() {
		return s
	}
	switch r.Status {
	case agl.RolloutRunning:
		if r.State == "" {
			s.state = StateRunning
			s.version++
			if r.Attempt != nil {
				s.updatedAt = max(s.updatedAt, r.Attempt.StartTime)
			}
		}
	case agl.RolloutSucceeded, agl.RolloutFailed, agl.RolloutCancelled:
		s.state = StateFailed
		if r.Status == agl.RolloutSucceeded {
			s.state = StateSucceeded
		}
		s.version += 2
		s.updatedAt = max(s.updatedAt, r.EndTime.V)
		if s.state == StateFailed && !s.errorMessage.Valid {
			s.errorMessage = agl.Some(r.why())
		}
	default:
	}
	return s
}

// ofRunners reports whether the rollout is running on one of the store's runners, or queued for them. Controllers
// must not see it: they would end it.
func (r *rollout) ofRunners() bool { return r.State == "" && !r.Status.Finished() }

// why returns why a rollout failed that was not ended by a controller.
func (r *rollout) why() string {
	if r.Status == agl.RolloutCancelled {
		return "cancelled"
	}
	if r.Attempt != nil {
		if o, ok := r.Attempt.Outcome(); ok && o.Message != "" {
			return fmt.Sprintf("%s: %s", o.Kind, o.Message)
		}
	}
	return string(r.Status)
}

// attemptID returns the attempt whose events this API shows.
func (r *rollout) attemptID() string { return cmp.Or(r.LastAttemptID.V, defaultAttempt) }

const defaultAttempt = "0"

// appendJSON appends the rollout in the form of this API.
func (r *rollout) appendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.String("rollout_id", r.id())
	o.Raw("input", r.Input)
	o.Bool("is_train", r.Mode != agl.ModeVal)
	o.Raw("config", r.Config)
	o.Raw("metadata", r.metadata())
	o.Raw("status", r.appendStatus(nil))
	return o.End()
}

// appendStatus appends the status in the form of this API.
func (r *rollout) appendStatus(dst []byte) []byte {
	s := r.status()
	status := rawjson.NewObject(dst)
	status.String("state", string(s.state))
	status.NullString("k8s_job_name", r.K8sJobName.V, r.K8sJobName.Valid)
	status.NullString("last_attempt_id", r.LastAttemptID.V, r.LastAttemptID.Valid)
	status.NullString("error_message", s.errorMessage.V, s.errorMessage.Valid)
	status.Int("version", int64(s.version))
	status.Float("created_at", float64(r.StartTime))
	status.Float("updated_at", float64(s.updatedAt))
	return status.End()
}

// metadata returns the metadata without the members that belong to this API.
func (r *rollout) metadata() jsontext.Value {
	o := rawjson.NewObject(nil)
	for name, value := range rawjson.Members(r.Metadata) {
		if !reserved(rawjson.UnquoteName(name)) {
			o.Member(name, value)
		}
	}
	return o.End()
}

// withRecord returns the metadata of a rollout with another record.
func withRecord(metadata jsontext.Value, next recordV1) (jsontext.Value, error) {
	raw, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	return rawjson.Set(metadata, keyRecord, raw), nil
}

// dataID returns the id of the rollout's task, as the terminal log shows it.
func (r *rollout) dataID() string {
	for _, key := range []string{"data_id", "instance_id"} {
		value, ok := rawjson.Get(r.Input, key)
		switch {
		case !ok || falsy(value):
		case value.Kind() == 't':
			return "True"
		default:
			return rawjson.Text(value)
		}
	}
	return ""
}

// later returns the time of a change: now, but always after the last change.
func later(last, now agl.Timestamp) agl.Timestamp {
	if now > last {
		return now
	}
	return agl.Timestamp(math.Nextafter(float64(last), math.Inf(1)))
}

// creation describes a rollout to be created.
type creation struct {
	id       string
	input    jsontext.Value
	train    bool
	config   jsontext.Value
	timeout  int64
	metadata jsontext.Value
	agent    bool // config.local or config.k8s says how to run it
	group    string
}

// groups sets the group of each rollout that shares its input with others of the same request: they are n samples of
// one task. The trainer does not name groups in any other way.
func groups(asked []creation) {
	first := make(map[string]int, len(asked))
	for i := range asked {
		key := string(asked[i].input)
		if at, ok := first[key]; ok {
			asked[at].group, asked[i].group = asked[at].id, asked[at].id
		} else {
			first[key] = i
		}
	}
}

// create returns the rollout for the store. Controllers send no heartbeats and end their rollouts themselves, so the
// store must not end them.
func (c *creation) create(runners bool) (out agl.CreateRollout, err error) {
	const never = 10 * 365 * 24 * 3600 // seconds; null is the store's default
	queued := runners && !c.agent
	rec := recordV1{Version: 1, Config: c.config}
	out = agl.CreateRollout{RolloutID: c.id, Start: !queued, EnqueueRollout: agl.EnqueueRollout{
		Input: c.input, Mode: agl.ModeVal, Config: &agl.RolloutConfig{MaxAttempts: 1},
	}}
	if c.train {
		out.Mode = agl.ModeTrain
	}
	if queued {
		if c.timeout > 0 {
			out.Config.TimeoutSeconds = agl.Some(float64(c.timeout))
		}
	} else {
		rec.State = StateQueuing
		out.Config.UnresponsiveSeconds = agl.Some[float64](never)
	}
	out.Metadata, err = withRecord(c.metadata, rec)
	if err == nil && c.group != "" {
		out.Metadata = rawjson.Set(out.Metadata, keyGroup, rawjson.AppendString(nil, c.group))
	}
	return out, err
}

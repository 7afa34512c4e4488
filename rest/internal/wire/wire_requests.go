package wire

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// EnqueueRollouts is the body of [Enqueue].
func EnqueueRollouts(p *agl.EnqueueRolloutsParams) Envelope {
	return members{{"rollouts", list[agl.EnqueueRollout]{&p.Rollouts, func(r *agl.EnqueueRollout) Envelope { return r }}, required}}
}

// DequeueRollouts is the body of [Dequeue].
func DequeueRollouts(p *agl.DequeueRolloutsParams) Envelope {
	return members{{"limit", &p.Limit, optional}, {"worker_id", &p.WorkerID, optional}, {"wait_seconds", &p.Wait, optional}}
}

// ReturnClaims is the body of [Return].
func ReturnClaims(p *agl.ReturnClaimsParams) Envelope {
	return members{{"claims", list[agl.Claim]{&p.Claims, claim}, optional}, {"idempotency_key", &p.IdempotencyKey, optional}, {"revoke_key", &p.RevokeKey, optional}}
}

func claim(c *agl.Claim) Envelope {
	return members{{"rollout_id", &c.RolloutID, required}, {"attempt_id", &c.AttemptID, required}}
}

// WaitForRollouts is the body of [Waits].
func WaitForRollouts(p *agl.WaitForRolloutsParams) Envelope {
	return members{{"rollout_ids", &p.RolloutIDs, required}, {"timeout", &p.Timeout, optional}}
}

// StartRollout is the body that posts to [Rollouts].
func StartRollout(p *agl.StartRolloutParams) Envelope { return (*startRollout)(p) }

// startRollout is a rollout to enqueue, with the member worker_id.
type startRollout agl.StartRolloutParams

func (p *startRollout) worker() members { return members{{"worker_id", &p.WorkerID, optional}} }

func (p *startRollout) AppendJSON(dst []byte) []byte {
	o := rawjson.Reopen(p.EnqueueRollout.AppendJSON(dst))
	o.Members(p.worker().AppendJSON(nil))
	return o.End()
}

// UnmarshalJSONFrom reads the document twice.
func (p *startRollout) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	doc, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if err := p.worker().UnmarshalJSONFrom(rawjson.NewDecoder(doc)); err != nil {
		return err
	}
	return p.EnqueueRollout.UnmarshalJSONFrom(rawjson.NewDecoder(doc))
}

// StartAttempt is the body that posts to [Attempts].
func StartAttempt(p *agl.StartAttemptParams) Envelope {
	return members{{"worker_id", &p.WorkerID, optional}}
}

// ReserveSequenceIDs is the body of [NextSequenceID].
func ReserveSequenceIDs(p *agl.ReserveSequenceIDsParams) Envelope {
	return members{{"rollout_id", &p.RolloutID, required}, {"attempt_id", &p.AttemptID, required}, {"count", (*count)(&p.Count), optional}}
}

// ReserveSequenceIDsOf is the body of [NextSequenceIDsBatch].
func ReserveSequenceIDsOf(p *[]agl.ReserveSequenceIDsParams) Envelope {
	return members{{"attempts", list[agl.ReserveSequenceIDsParams]{p, ReserveSequenceIDs}, required}}
}

// UpdateRollout is the body that posts to [Rollout]. An absent member leaves its field as it is; null clears it.
func UpdateRollout(p *agl.UpdateRolloutParams) Envelope {
	return members{
		{"input", (*raw)(&p.Input), optional},
		{"mode", setEnum[agl.Mode]{&p.Mode, agl.Modes}, optional},
		{"resources_id", set[agl.Null[string]]{&p.ResourcesID}, optional},
		{"status", setEnum[agl.RolloutStatus]{&p.Status, agl.RolloutStatuses}, notNull},
		{"config", set[agl.RolloutConfig]{&p.Config}, notNull},
		{"metadata", (*dict)(&p.Metadata), optional},
	}
}

// UpdateAttempt is the body that posts to [Attempt]. An absent member leaves its field as it is.
func UpdateAttempt(p *agl.UpdateAttemptParams) Envelope {
	return members{
		{"status", setEnum[agl.AttemptStatus]{&p.Status, agl.AttemptStatuses}, notNull},
		{"worker_id", set[string]{&p.WorkerID}, notNull},
		{"last_heartbeat_time", set[agl.Timestamp]{&p.LastHeartbeatTime}, notNull},
		{"metadata", (*dict)(&p.Metadata), notNull},
	}
}

// UpdateWorker is the body that posts to [Worker].
func UpdateWorker(p *agl.UpdateWorkerParams) Envelope {
	return members{{"heartbeat_stats", (*dict)(&p.HeartbeatStats), notNull}}
}

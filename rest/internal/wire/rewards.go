package wire

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/rewardjson"
)

// NewReward is the body that posts to [RewardsOf]. It has either Value or Dimensions.
type NewReward struct {
	Value      jsontext.Value `json:"value,omitzero"`      // a number, true or false
	Dimensions jsontext.Value `json:"dimensions,omitzero"` // an object of such values, the primary one first
	Call       *string        `json:"call,omitzero"`
	Span       *string        `json:"span,omitzero"`
	Turn       *string        `json:"turn,omitzero"`
	Source     string         `json:"source,omitzero"`
	Priority   *int           `json:"priority,omitzero"`
	Message    string         `json:"message,omitzero"`
	At         *agl.Timestamp `json:"at,omitzero"` // Unix seconds
	// IdempotencyKey is an alternative to the header of that name.
	IdempotencyKey string `json:"idempotency_key,omitzero"`
}

// RewardOf returns the body for a reward.
func RewardOf(p *agl.AddRewardParams) *NewReward {
	r := &NewReward{Source: p.Source, Message: p.Message, IdempotencyKey: p.IdempotencyKey}
	if len(p.Rewards) == 1 && p.Rewards[0].Name == "primary" {
		r.Value = rawjson.AppendFloatText(nil, p.Rewards[0].Value)
	} else {
		o := rawjson.NewObject(nil)
		for _, d := range p.Rewards {
			o.Float(d.Name, d.Value)
		}
		r.Dimensions = o.End()
	}
	given := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	r.Call, r.Span, r.Turn = given(p.Call), given(p.SpanID), given(p.Turn)
	if p.Priority.Valid {
		r.Priority = &p.Priority.V
	}
	if p.Time.Valid {
		r.At = &p.Time.V
	}
	return r
}

// AppendJSON implements [rawjson.Appender].
func (r *NewReward) AppendJSON(dst []byte) []byte { return appendValue(dst, r) }

// UnmarshalJSONFrom rejects unknown members: with a misspelt call, the reward would be that of the whole rollout.
func (r *NewReward) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain NewReward
	return strict(dec, (*plain)(r), "value, dimensions, call, span, turn, source, priority, message, at and idempotency_key")
}

// Params returns the arguments for a rollout. key is the header's idempotency key.
func (r *NewReward) Params(rolloutID, key string) (p agl.AddRewardParams, err error) {
	p = agl.AddRewardParams{RolloutID: rolloutID, Source: r.Source, Message: r.Message, IdempotencyKey: r.IdempotencyKey}
	switch {
	case key != "" && r.IdempotencyKey != "" && key != r.IdempotencyKey:
		return p, agl.Errorf(agl.CodeInvalid, "idempotency_key: got %.100q, and %.100q in the header %s, must be one of them", r.IdempotencyKey, key, IdempotencyKey)
	case key != "":
		p.IdempotencyKey = key
	}
	if r.Call != nil {
		p.Call = *r.Call
	}
	if r.Span != nil {
		p.SpanID = *r.Span
	}
	if r.Turn != nil {
		p.Turn = *r.Turn
	}
	if r.Priority != nil {
		p.Priority = agl.Some(*r.Priority)
	}
	if r.At != nil {
		p.Time = agl.Some(*r.At)
	}
	p.Rewards, err = r.rewards()
	return p, err
}

func (r *NewReward) rewards() ([]agl.Reward, error) {
	value, dimensions := present(r.Value), present(r.Dimensions)
	switch {
	case value == dimensions:
		return nil, agl.Errorf(agl.CodeInvalid, "value and dimensions: got both or neither, must be one of them")
	case value:
		v, err := rewardjson.Value("value", r.Value)
		return []agl.Reward{{Name: "primary", Value: v}}, err
	}
	return rewardjson.Dimensions("dimensions", r.Dimensions)
}

// present reports whether a member is there and not null.
func present(raw jsontext.Value) bool { return len(raw) > 0 && raw.Kind() != 'n' }

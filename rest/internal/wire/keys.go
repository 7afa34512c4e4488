package wire

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
)

// SpanTokenAnswer is the answer of [SpanTokenOf]. Token is empty if the server requires none.
type SpanTokenAnswer struct {
	Token string `json:"token"`
}

// NewKey is the body that posts to [Keys].
type NewKey struct {
	Name          string   `json:"name"`
	Scopes        []string `json:"scopes"`
	ExpireSeconds float64  `json:"expire_seconds,omitzero"` // 0 is for ever
	RolloutID     string   `json:"rollout_id,omitzero"`
	AttemptID     string   `json:"attempt_id,omitzero"`

	access.Rules
	Limits access.Limits `json:"limits,omitzero"`
}

// RevokeAttempt is the body that posts to [RevokedAttempts].
type RevokeAttempt struct {
	RolloutID string `json:"rollout_id"`
	AttemptID string `json:"attempt_id,omitzero"` // "" is every attempt of the rollout
}

// UnmarshalJSONFrom rejects unknown members: a misspelt attempt_id would revoke the keys of the whole rollout.
func (r *RevokeAttempt) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain RevokeAttempt
	return strict(dec, (*plain)(r), "rollout_id and attempt_id")
}

// RevokedAttemptsAnswer is the answer of [RevokedAttempts].
type RevokedAttemptsAnswer struct {
	Items []access.RevokedAttempt `json:"items"`
}

// KeysAnswer is the answer of [Keys].
type KeysAnswer struct {
	Items []access.Key `json:"items"`
	// Project is the budget that all callers share; it is left out if they have none.
	Project access.Budget `json:"project,omitzero"`
}

// maxExpire is a hundred years, in seconds.
const maxExpire = 100 * 365 * 24 * 3600

// AppendJSON implements [rawjson.Appender].
func (k *NewKey) AppendJSON(dst []byte) []byte { return appendValue(dst, k) }

// UnmarshalJSONFrom rejects unknown members: a misspelt expiry would create a key that never expires.
func (k *NewKey) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain NewKey
	if err := strict(dec, (*plain)(k), "name, scopes, expire_seconds, rollout_id, attempt_id, models, calls_per_minute and limits (max_tokens, max_usd, max_rollouts, max_bytes, max_calls)"); err != nil {
		return err
	}
	if !(k.ExpireSeconds >= 0 && k.ExpireSeconds <= maxExpire) {
		return agl.Errorf(agl.CodeInvalid, "expire_seconds: got %v, must be between 0 (for ever) and %d", k.ExpireSeconds, int64(maxExpire))
	}
	return nil
}

// Expire returns how long the key is valid.
func (k *NewKey) Expire() time.Duration { return time.Duration(k.ExpireSeconds * float64(time.Second)) }

var _ rawjson.Appender = (*NewKey)(nil)

// Charge is the body that posts to [KeyUsage].
type Charge struct{ access.Charge }

// UnmarshalJSONFrom rejects unknown members.
func (c *Charge) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if err := json.UnmarshalDecode(dec, &c.Charge, json.RejectUnknownMembers(true)); err != nil {
		return agl.Errorf(agl.CodeInvalid, "body: %w", rawjson.Mistake(err))
	}
	return nil
}

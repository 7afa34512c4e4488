package server

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/rest/internal/wire"
)

// Placeholder of routes.
const keyID = "key_id"

// chargeRoute is the path at which proxies charge keys.
var chargeRoute = wire.Prefix + wire.KeyUsage("{"+keyID+"}")

// spanTokenLife is how long an attempt's span token is valid.
const spanTokenLife = 24 * time.Hour

// keys manages the keys of the server.
type keys struct {
	keys  *access.Keys
	spans string // the secret of span tokens
}

// missing is the error of a server without keys, and nil otherwise.
func (s keys) missing() error {
	return unimplementedUnless(s.keys != nil, "this server keeps no keys besides its token")
}

func (s keys) whoAmI(x *exchange) error { return x.answerJSON(http.StatusOK, x.caller.Identity(), nil) }

// whose tells another server whose key its caller has sent, with null for an unknown key. That server has a key
// itself, so the guesses of its callers do not count against it.
func (s keys) whose(x *exchange, body *wire.GivenKey) error {
	caller, err := s.keys.Check(x.context(), body.Key)
	if agl.ErrorCode(err) == agl.CodeUnauthorized {
		return x.answerJSON(http.StatusOK, nil, nil)
	}
	return x.answerJSON(http.StatusOK, caller.Identity(), err)
}

// spanToken answers with the token with which the agent of an attempt may send its spans, for a runner that does not
// have the secret.
func (s keys) spanToken(x *exchange) error {
	var answer wire.SpanTokenAnswer
	if s.spans != "" {
		answer.Token = wire.SpanToken(s.spans, x.request.PathValue(rolloutID), x.request.PathValue(attemptID), time.Now().Add(spanTokenLife))
	}
	return x.answerJSON(http.StatusOK, &answer, nil)
}

func (s keys) create(x *exchange, body *wire.NewKey) error {
	scopes, err := access.ParseScopes(body.Scopes)
	if err != nil {
		return err
	}
	p := access.NewKey{Name: body.Name, Scopes: scopes, Expire: body.Expire(), Rules: body.Rules, Limits: body.Limits, By: x.caller.By()}
	if body.RolloutID != "" || body.AttemptID != "" {
		p.Attempt = agl.Some(agl.Claim{RolloutID: body.RolloutID, AttemptID: body.AttemptID})
	}
	created, err := s.keys.Create(x.context(), p)
	if err == nil {
		x.log.Info("key created", "key", created.ID, "name", created.Name, "scopes", created.Scopes, "by", created.CreatedBy, "from", access.From(x.request))
	}
	return x.answerJSON(http.StatusCreated, &created, err)
}

func (s keys) list(x *exchange) error {
	found, err := s.keys.List(x.context())
	if err != nil {
		return err
	}
	project, err := s.keys.ProjectBudget(x.context())
	return x.answerJSON(http.StatusOK, &wire.KeysAnswer{Items: found, Project: project}, err)
}

func (s keys) revoke(x *exchange) error {
	key, err := s.keys.Revoke(x.context(), x.request.PathValue(keyID), x.caller.By())
	if err == nil {
		x.log.Info("key revoked", "key", key.ID, "name", key.Name, "by", key.RevokedBy, "from", access.From(x.request))
	}
	return x.answerJSON(http.StatusOK, &key, err)
}

// revokeAttempt revokes the keys of an attempt that were derived from a secret.
func (s keys) revokeAttempt(x *exchange, body *wire.RevokeAttempt) error {
	revoked, err := s.keys.RevokeAttempt(x.context(), agl.Claim{RolloutID: body.RolloutID, AttemptID: body.AttemptID}, x.caller.By())
	if err == nil {
		x.log.Info("keys of an attempt revoked", "rollout", revoked.RolloutID, "attempt", revoked.AttemptID, "by", revoked.RevokedBy, "from", access.From(x.request))
	}
	return x.answerJSON(http.StatusCreated, &revoked, err)
}

// revokedAttempts answers with the revoked attempts, which proxies poll.
func (s keys) revokedAttempts(x *exchange) error {
	found, err := s.keys.RevokedAttempts(x.context())
	return x.answerJSON(http.StatusOK, &wire.RevokedAttemptsAnswer{Items: found}, err)
}

// charge reserves and spends a key's budget on behalf of a proxy.
func (s keys) charge(x *exchange, body *wire.Charge) error {
	body.KeyID = x.request.PathValue(keyID)
	answer, err := s.keys.Charge(x.context(), body.Charge)
	return x.answerJSON(http.StatusOK, &answer, err)
}

// reserve reserves what the request uses of its caller's budget.
func (x *exchange) reserve(amounts access.Amounts) error {
	return x.lease.Reserve(x.context(), amounts)
}

// settle spends what the request has reserved, or returns it if the request failed.
func (x *exchange) settle() {
	if err := x.lease.End(context.WithoutCancel(x.context()), x.status < http.StatusBadRequest); err != nil {
		x.log.Warn("a budget was not settled, so its reservation counts as spent", "key", x.caller.KeyID, "error", err)
	}
}

// answerJSON sends a document that caches must not store, or returns err if it is not nil.
func (x *exchange) answerJSON(status int, v any, err error) error {
	if err != nil {
		return err
	}
	doc, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return err
	}
	x.Header()["Cache-Control"] = []string{"no-store"}
	return x.send(status, doc)
}

package proxy

import (
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/proxy/openai"
)

// defaultKeyTTL is how long virtual keys are good for.
const defaultKeyTTL = 7 * 24 * time.Hour

// attemptJSON is the body of the admin requests about one attempt.
type attemptJSON struct {
	RolloutID string  `json:"rollout_id"`
	AttemptID string  `json:"attempt_id"`
	Seconds   float64 `json:"seconds,omitzero"` // how long a key is good for
}

// AttemptKey returns the virtual key of an attempt, for agents that are not
// handed a resource of this proxy: with Config.KeySecret set, it is what their
// calls need. It is good for ttl, or a week if that is 0, and for this attempt
// only.
func (p *Proxy) AttemptKey(rolloutID, attemptID string, ttl time.Duration) (string, error) {
	run, err := p.runKey(ttl)
	if err != nil {
		return "", err
	}
	key, _ := runkey.ForAttempt(run, rolloutID, attemptID)
	return key, nil
}

// runKey returns a key from which those of attempts are made.
func (p *Proxy) runKey(ttl time.Duration) (string, error) {
	if p.cfg.KeySecret == "" {
		return "", agl.Errorf(agl.CodeInvalid, "KeySecret: empty, must be set for the proxy to give keys")
	}
	secret, err := p.cfg.secret(p.cfg.KeySecret)
	if err != nil {
		return "", err
	}
	orDefault(&ttl, defaultKeyTTL)
	return runkey.New(secret, time.Now().Add(ttl)), nil
}

// adminAttempt answers the admin requests about one attempt.
func (p *Proxy) adminAttempt(w http.ResponseWriter, r *http.Request, path string) {
	var body attemptJSON
	f := readAdmin(w, r, &body)
	if f == nil && (body.RolloutID == "" || body.AttemptID == "") {
		f = fail(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", "rollout_id and attempt_id must both be given")
	}
	if f != nil {
		p.refuse(w, r, f)
		return
	}
	switch path {
	case "/admin/attempts/flush":
		p.answerFlush(w, r, scope{[]string{body.RolloutID}, body.AttemptID})
	case "/admin/attempts/cancel":
		p.answerJSON(w, struct {
			Running int `json:"running"`
		}{p.CancelAttempt(body.RolloutID, body.AttemptID)})
	default:
		key, err := p.AttemptKey(body.RolloutID, body.AttemptID, time.Duration(body.Seconds*float64(time.Second)))
		if err != nil {
			p.refuse(w, r, fail(http.StatusBadRequest, openai.InvalidRequestError, "no_keys", err.Error()))
			return
		}
		p.answerJSON(w, struct {
			Key string `json:"key"`
		}{key})
	}
}

// serveFlush answers a flush under an attempt's own URL.
func (p *Proxy) serveFlush(w http.ResponseWriter, r *http.Request, rt route) {
	if f := p.authorize(r, rt); f != nil {
		p.refuse(w, r, f)
		return
	}
	p.answerFlush(w, r, scope{[]string{rt.rolloutID}, rt.attemptID})
}

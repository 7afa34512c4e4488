package proxy

import (
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/proxy/openai"
)

// CaptureMode says what becomes of a call of an attempt whose record might not
// be kept.
type CaptureMode string

// The capture modes.
const (
	// CaptureRequire, the default, refuses new calls while there is no room for
	// their records, with 503 after Config.QueueTimeout, and reports records that
	// are lost nevertheless in every Flush of their attempt. It is what training
	// needs.
	CaptureRequire CaptureMode = "require"
	// CaptureBestEffort never refuses a call for its record and never fails a
	// Flush: what there is no room for is not recorded, which is logged.
	CaptureBestEffort CaptureMode = "best-effort"
	// CaptureOff records nothing.
	CaptureOff CaptureMode = "off"
)

func (m CaptureMode) check() error {
	switch m {
	case "", CaptureRequire, CaptureBestEffort, CaptureOff:
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "Capture: got %q, must be %s, %s or %s", m, CaptureRequire, CaptureBestEffort, CaptureOff)
}

// authorize checks who may make a call, and takes the virtual key out of the
// request, so that it gets no further.
func (p *Proxy) authorize(r *http.Request, rt route) *failure {
	key := takeKey(r.Header, p.cfg.KeySecret != "" && rt.rolloutID != "")
	switch {
	case p.cfg.KeySecret == "":
		return nil
	case rt.rolloutID == "":
		if p.cfg.Token != "" && subtle.ConstantTimeCompare([]byte(bearer(r.Header)), []byte(p.cfg.Token)) == 1 {
			r.Header.Del("Authorization")
			return nil
		}
		return fail(http.StatusUnauthorized, openai.AuthenticationError, "invalid_api_key",
			"calls outside of an attempt need the proxy's token, since the proxy asks for keys; inside one they need the key that the attempt was given")
	}
	secret, err := p.cfg.secret(p.cfg.KeySecret)
	if err != nil {
		return fail(http.StatusInternalServerError, openai.APIError, "no_key_secret", err.Error())
	}
	if runkey.Check(secret, key, rt.rolloutID, rt.attemptID, time.Now()) {
		return nil
	}
	message := "the API key is missing, expired or not that of this attempt; use the one of the resource that the attempt was given"
	if _, run := runkey.ForAttempt(key, rt.rolloutID, rt.attemptID); run {
		message = "the API key is the run's, which opens no attempt; runners of the Python package hand it on as it is: get the attempt's with POST /admin/attempts/key"
	}
	return fail(http.StatusUnauthorized, openai.AuthenticationError, "invalid_api_key", message)
}

// takeKey returns the API key of a request and removes it, wherever clients put
// keys, if it is a virtual one or all are to go.
func takeKey(h http.Header, all bool) (key string) {
	for _, name := range [...]string{"Authorization", "X-Api-Key", "Api-Key"} {
		values := h[name]
		if len(values) == 0 {
			continue
		}
		value := strings.TrimPrefix(values[0], "Bearer ")
		virtual := runkey.IsVirtual(value)
		if key == "" || virtual {
			key = value
		}
		if virtual || all {
			delete(h, name)
		}
	}
	return key
}

func bearer(h http.Header) string {
	token, _ := strings.CutPrefix(h.Get("Authorization"), "Bearer ")
	return token
}

// screen decides whether a call may go on and whether it is recorded.
func (p *Proxy) screen(r *http.Request, c *call, record bool) (bool, *failure) {
	if f := p.authorize(r, c.route); f != nil {
		return false, f
	}
	if c.rolloutID == "" {
		return false, nil
	}
	if p.recorder.ledger.isCancelled(c.rolloutID, c.attemptID) {
		return false, fail(http.StatusGone, openai.InvalidRequestError, "attempt_cancelled", errCancelled.Error())
	}
	switch {
	case !record || p.cfg.Capture == CaptureOff:
		return false, nil
	case p.cfg.Capture == CaptureBestEffort && p.budget.full(callOverhead):
		p.cfg.Logger.Warn("call not recorded, the memory for records is full", "rollout", c.rolloutID, "attempt", c.attemptID)
		return false, nil
	}
	return true, nil
}

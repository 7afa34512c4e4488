package proxy

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/rewardjson"
	"github.com/agl-go/agl/proxy/admin"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/session"
)

// The headers with which a live program describes a call. HeaderRollout is in the reply.
const (
	HeaderSession = "X-Agl-Session" // the session, by any name that the program chooses
	HeaderUser    = "X-Agl-User"    // the user of the session
	HeaderDone    = "X-Agl-Done"    // true if this is the session's last call
	// HeaderConsent says, in the program's words, whether the user has agreed that the session is
	// used for training.
	HeaderConsent = "X-Agl-Consent"
	// HeaderTurn is the turn of the conversation, by any name, and HeaderTurnType is main or side.
	// They are recorded with every recorded call, also of an attempt.
	HeaderTurn     = "X-Agl-Turn"
	HeaderTurnType = "X-Agl-Turn-Type"
	HeaderRollout  = "Agl-Rollout" // the rollout of the call's session

	// Names that other proxies give HeaderUser and HeaderDone.
	headerSessionUser = "X-Agl-Session-User"
	headerSessionDone = "X-Agl-Session-Done"
)

// newSessions returns the manager of sessions, or nil if none are recorded.
func (p *Proxy) newSessions() (*session.Manager, error) {
	c := &p.cfg.Sessions
	if c.IdleTimeout == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	if c.Store == nil || p.cfg.Spans == nil {
		return nil, agl.Errorf(agl.CodeInvalid, "Sessions: got an IdleTimeout of %s, needs Sessions.Store and Spans", c.IdleTimeout)
	}
	config := session.Config{
		Store: c.Store, Flush: p.FlushAttempt, IdleTimeout: c.IdleTimeout, RewardWindow: c.RewardWindow, StoreTimeout: p.cfg.StoreTimeout, Logger: p.cfg.Logger,
		Assign: p.releases.assignments, Ready: c.Ready,
	}
	if c.Judge != nil || c.Program != nil {
		config.Reward = p.rewardEnd
	}
	return session.New(config), nil
}

// sessionRoute serves a request about a session. s is the session whose key the caller has, or
// nil if the caller has another key.
type sessionRoute func(p *Proxy, r *http.Request, rt route, s *session.Session) (status int, answer any, err error)

// refuseSession refuses requests about sessions where none are recorded. A call that names a
// session is served all the same, because a program must not fail for lack of recording; the
// first one is logged.
func (p *Proxy) refuseSession(w http.ResponseWriter, r *http.Request, to endpoint) bool {
	const how = "set --session-idle, or sessions.idle_timeout in its file"
	if to.about != nil {
		p.refuse(w, r, openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "no_sessions", "this proxy records no sessions; "+how))
		return true
	}
	if r.Header.Get(HeaderSession) != "" {
		p.ignored.Do(func() {
			p.cfg.Logger.Warn("a call names a session, but this proxy records none; "+how, "session", r.Header.Get(HeaderSession))
		})
	}
	return false
}

// sessionPath reads /agl/sessions/{id}/{what}.
func sessionPath(path string) (id, what string) {
	rest, ok := strings.CutPrefix(path, "/agl/sessions/")
	if !ok {
		return "", ""
	}
	id, what, _ = strings.Cut(rest, "/")
	return id, what
}

// serveSession serves a request if it belongs to a session or is about one. Otherwise it reports
// false.
func (p *Proxy) serveSession(w http.ResponseWriter, r *http.Request, rt route, to endpoint) bool {
	s, found, err := p.sessions.ByKey(r.Context(), p.keys.given(r.Header))
	ended := found && errors.Is(err, agl.ErrIllegalState) && s != nil
	late := ended && to.about != nil && to.scope&access.Ingest != 0 // rewards may arrive after the end
	switch {
	case err != nil && !late:
		p.refuse(w, r, sessionError(err))
		return true
	case found:
		p.keys.take(r.Header, true)
		if refused := cmp.Or(p.keys.errKeyInURL(r), p.keys.checkRevoked(r.Context(), s.RolloutID, s.AttemptID)); refused != nil {
			p.refuse(w, r, refused)
			return true
		}
	}
	if to.about != nil {
		p.serveAboutSession(w, r, rt, to, s)
		return true
	}
	if !exchange.Generates(rt.path) || r.Method != http.MethodPost {
		if found { // such as the list of models
			p.serveFound(w, r, rt, to, s)
		}
		return found
	}
	if !found && r.Header.Get(HeaderSession) == "" {
		return false
	}
	if found {
		rt.charge(&p.budgets, r, caller{gone: p.keys.goneAttempt(s.RolloutID, s.AttemptID)})
	} else {
		by, refused := p.keys.authorize(r, rt, to.scope)
		if refused != nil {
			p.refuse(w, r, refused)
			return true
		}
		rt.charge(&p.budgets, r, by)
	}
	p.serveSessionCall(w, r, rt, s)
	return true
}

// serveFound serves a request with a session's key that does not call a model.
func (p *Proxy) serveFound(w http.ResponseWriter, r *http.Request, rt route, to endpoint, s *session.Session) {
	by := access.Caller{Name: "a session", Scopes: access.Agent}
	if to.serve == nil {
		p.refuse(w, r, errUnknownURL(r))
		return
	}
	if err := by.Allow(to.scope); err != nil {
		p.refuse(w, r, admin.AccessError(err))
		return
	}
	rt.charge(&p.budgets, r, caller{})
	rt.subject = p.quota.Subject(s.RolloutID, s.AttemptID)
	to.serve(w, r, rt)
}

// maxUnready bounds how long a request waits for Config.Sessions.Ready. A run that is started again needs less, and its callers see no error.
const maxUnready = 2 * time.Second

// ready waits for Config.Sessions.Ready.
func (p *Proxy) ready(ctx context.Context) error {
	if p.cfg.Sessions.Ready == nil {
		return nil
	}
	select {
	case <-p.cfg.Sessions.Ready:
		return nil
	case <-time.After(maxUnready):
	case <-ctx.Done():
	}
	return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, "models_not_ready",
		"the models are not served yet: the run trains or loads their weights when it starts; try again later").After(time.Second)
}

// maxNaming bounds how long a call waits for the store to find or start its session. While the store hangs, only one call in namingPause
// waits so long, and the others for maxNamingHung.
const (
	maxNaming     = 2 * time.Second
	maxNamingHung = 100 * time.Millisecond
	namingPause   = 10 * time.Second
)

// named returns the session that the headers of a call name.
func (p *Proxy) named(r *http.Request) (*session.Session, error) {
	limit, begun := maxNaming, time.Now()
	last := p.hung.Load()
	if last != nil && (begun.Sub(*last) < namingPause || !p.hung.CompareAndSwap(last, &begun)) {
		limit = maxNamingHung
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	name, user := namedBy(r.Header)
	s, known, err := p.sessions.Named(ctx, name, user, r.Header.Get(HeaderConsent))
	switch {
	case known: // another call waits for the store
		p.hung.CompareAndSwap(&begun, last)
	case err == nil:
		p.hung.Store(nil)
	case limit == maxNaming && ctx.Err() != nil && r.Context().Err() == nil:
		now := time.Now()
		p.hung.Store(&now)
	}
	return s, err
}

// namedBy returns the name and the user of a session from headers.
func namedBy(h http.Header) (name, user string) {
	return h.Get(HeaderSession), cmp.Or(h.Get(HeaderUser), h.Get(headerSessionUser))
}

// serveSessionCall serves a call of the session s or, if that is nil, of the session that the
// headers name. If the store can neither find nor start that one, the call is served but not
// recorded: the users of a live program must not suffer from the recording.
func (p *Proxy) serveSessionCall(w http.ResponseWriter, r *http.Request, rt route, s *session.Session) {
	last, err := strconv.ParseBool(cmp.Or(r.Header.Get(HeaderDone), r.Header.Get(headerSessionDone)))
	last = last && err == nil
	if err := p.ready(r.Context()); err != nil {
		p.refuse(w, r, sessionError(err))
		return
	}
	named := s == nil
	for {
		if named {
			if s, err = p.named(r); err != nil {
				p.cfg.Logger.Log(r.Context(), p.unnamed.Level(), "a call of a session is not recorded", "session", r.Header.Get(HeaderSession), "error", err)
				rt.models = p.releases.stable()
				p.serveCall(w, r, rt)
				return
			}
		}
		leave, ok := p.sessions.Enter(s)
		if !ok && named { // it has just ended
			continue
		}
		if !ok {
			p.refuse(w, r, sessionError(agl.Errorf(agl.CodeIllegalState, "the session has ended")))
			return
		}
		defer leave(last)
		w.Header().Set(HeaderRollout, s.RolloutID)
		rt.rolloutID, rt.attemptID, rt.models = s.RolloutID, s.AttemptID, p.releases.ofSession(s)
		p.serveCall(w, r, rt)
		return
	}
}

func (p *Proxy) serveAboutSession(w http.ResponseWriter, r *http.Request, rt route, to endpoint, s *session.Session) {
	rt.key = p.keys.given(r.Header) // mayAskAboutSession removes it from the header
	if refused := p.mayAskAboutSession(r, rt, to.scope, s); refused != nil {
		p.refuse(w, r, refused)
		return
	}
	status, answer, err := to.about(p, r, rt, s)
	if err != nil {
		p.refuse(w, r, sessionError(err))
		return
	}
	p.answerJSON(w, status, answer)
}

// mayAskAboutSession checks the key of a request about a session. If s is not nil, it is the
// key of s.
func (p *Proxy) mayAskAboutSession(r *http.Request, rt route, scope access.Scope, s *session.Session) *openai.Error {
	id, _ := sessionPath(rt.path)
	switch {
	case s != nil && id != "" && id != s.RolloutID:
		return errKey("the API key is that of another session")
	case s != nil:
		by := access.Caller{Name: "a session", Scopes: access.Agent}
		return admin.AccessError(by.Allow(scope))
	case scope == access.Agent:
		return errKey("the key of a session is needed, which the start of the session returns")
	}
	by, refused := p.keys.authorize(r, rt, scope)
	if key := by.key; refused == nil && id == "" && rt.path != pathEvent && key != nil && (key.Limits != (access.Limits{}) || !key.Rules.None()) {
		return openai.NewError(http.StatusForbidden, openai.PermissionError, "key_has_limits",
			"the key "+key.KeyID+" has limits, a list of models or a rate, which the key of a session would not have; name sessions with the header "+HeaderSession+" instead")
	}
	return refused
}

// sessionError returns the answer to a request about a session that failed.
func sessionError(err error) *openai.Error {
	if own, ok := errors.AsType[*openai.Error](err); ok {
		return own
	}
	invalid := func(status int, code string) *openai.Error {
		return openai.NewError(status, openai.InvalidRequestError, code, err.Error())
	}
	switch agl.ErrorCode(err) {
	case agl.CodeUnauthorized:
		return errKey(err.Error())
	case agl.CodeIllegalState:
		return invalid(http.StatusGone, "session_ended")
	case agl.CodeConflict:
		return invalid(http.StatusConflict, "conflict")
	case agl.CodeInvalid:
		return invalid(http.StatusBadRequest, "invalid_body")
	case agl.CodeNotFound:
		return invalid(http.StatusNotFound, "not_found")
	case agl.CodeExhausted:
		return invalid(http.StatusTooManyRequests, "too_many_sessions")
	}
	return openai.NewError(http.StatusBadGateway, openai.APIError, "store_unavailable", "the store does not answer: "+err.Error()).After(time.Second)
}

// readSessionBody reads a body into v. An empty body leaves v as it is.
func (p *Proxy) readSessionBody(r *http.Request, v any) error {
	body, unreadable := p.readBody(r)
	if unreadable != nil {
		return unreadable
	}
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return agl.Errorf(agl.CodeInvalid, "body: %w", rawjson.Mistake(err))
	}
	return nil
}

// newSession is the body of POST /v1/agl/sessions.
type newSession struct {
	User        string                    `json:"user"`
	Resources   string                    `json:"resources"` // an id; empty is the latest
	Metadata    map[string]jsontext.Value `json:"metadata"`
	IdleTimeout float64                   `json:"idle_timeout"` // seconds; 0 is the proxy's
}

// startedSession is the answer.
type startedSession struct {
	SessionID string `json:"session_id"` // the id of its rollout
	Key       string `json:"key"`
	BaseURL   string `json:"base_url"`
	Version   string `json:"version,omitzero"` // of its resources
}

func (p *Proxy) startSession(r *http.Request, rt route, _ *session.Session) (int, any, error) {
	var body newSession
	if err := p.readSessionBody(r, &body); err != nil {
		return 0, nil, err
	}
	if !(body.IdleTimeout >= 0 && body.IdleTimeout <= 1e9) {
		return 0, nil, agl.Errorf(agl.CodeInvalid, "idle_timeout: got %v, must be a number of seconds, or 0 for the proxy's", body.IdleTimeout)
	}
	if err := p.ready(r.Context()); err != nil {
		return 0, nil, err
	}
	secret, once := "", r.Header.Get("Idempotency-Key")
	if once != "" { // only who has the caller's key can compute the session's; without keys, who knows the header can
		mac := hmac.New(sha256.New, []byte(rt.key))
		mac.Write([]byte(once)) // never fails
		secret = hex.EncodeToString(mac.Sum(nil))
	}
	s, key, err := p.sessions.Create(r.Context(), session.NewSession{
		Secret: secret, User: body.User, ResourcesID: body.Resources, Metadata: body.Metadata, IdleTimeout: time.Duration(body.IdleTimeout * float64(time.Second)),
	})
	if once != "" && agl.ErrorCode(err) == agl.CodeConflict {
		err = agl.Errorf(agl.CodeConflict, "header Idempotency-Key: got %.100q, which has started a session with another body or at a proxy of other settings; must be new", once)
	}
	if err != nil {
		return 0, nil, err
	}
	base := p.cfg.PublicURL
	if base == "" {
		base = "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
	}
	return http.StatusCreated, startedSession{s.RolloutID, key, strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1") + "/v1", s.ResourcesID}, nil
}

func (p *Proxy) endSession(r *http.Request, rt route, _ *session.Session) (int, any, error) {
	var body struct {
		Outcome agl.OutcomeKind `json:"outcome"`
	}
	if err := p.readSessionBody(r, &body); err != nil {
		return 0, nil, err
	}
	if body.Outcome != "" && body.Outcome != agl.OutcomeOK {
		return 0, nil, agl.Errorf(agl.CodeInvalid, "outcome: got %.100q, must be %q, which a session ends with in any case; a reward says how good it was", string(body.Outcome), agl.OutcomeOK)
	}
	id, _ := sessionPath(rt.path)
	s, _, err := p.sessions.ByID(r.Context(), id)
	if err == nil {
		err = p.sessions.End(r.Context(), s, session.EndCall)
	}
	return http.StatusOK, map[string]string{"session_id": id}, err
}

// The routes below are those of AReaL's online proxy, with its names and statuses.

func (p *Proxy) rlStart(r *http.Request, _ route, _ *session.Session) (int, any, error) {
	var body struct {
		TaskID string `json:"task_id"`
		APIKey string `json:"api_key"`
	}
	if err := p.readSessionBody(r, &body); err != nil {
		return 0, nil, err
	}
	if body.APIKey != "" && (len(body.APIKey) < 16 || body.APIKey == p.cfg.Token) {
		return 0, nil, agl.Errorf(agl.CodeInvalid, "api_key: must have at least 16 characters, and not be the proxy's token")
	}
	input, err := json.Marshal(map[string]string{"task_id": body.TaskID})
	if err != nil {
		return 0, nil, agl.Errorf(agl.CodeInvalid, "task_id: got %.100q, must be UTF-8", body.TaskID)
	}
	if err := p.ready(r.Context()); err != nil {
		return 0, nil, err
	}
	s, key, err := p.sessions.Create(r.Context(), session.NewSession{Input: input, Key: body.APIKey})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, map[string]string{"session_id": s.RolloutID, "api_key": key}, nil
}

func (p *Proxy) rlReward(r *http.Request, _ route, s *session.Session) (int, any, error) {
	var body struct {
		Reward        jsontext.Value `json:"reward"`
		InteractionID string         `json:"interaction_id"`
	}
	if err := p.readSessionBody(r, &body); err != nil {
		return 0, nil, err
	}
	value, err := rewardjson.Value("reward", body.Reward)
	if err != nil {
		return 0, nil, err
	}
	_, err = p.addReward(r.Context(), agl.AddRewardParams{RolloutID: s.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: value}}, Call: body.InteractionID})
	return http.StatusOK, map[string]string{"message": "success"}, err
}

func (p *Proxy) rlEnd(r *http.Request, _ route, s *session.Session) (int, any, error) {
	calls := p.sessions.Calls(s)
	err := p.sessions.End(r.Context(), s, session.EndCall)
	return http.StatusOK, map[string]any{"message": "success", "interaction_count": calls}, err
}

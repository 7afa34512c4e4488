package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/exchange"
	"github.com/agl-go/agl/proxy/extract"
	"github.com/agl-go/agl/proxy/session"
)

// sessionReward is the body of POST /v1/agl/sessions/{id}/reward.
type sessionReward struct {
	Value          jsontext.Value `json:"value"`
	Dimensions     jsontext.Value `json:"dimensions"`
	Call           string         `json:"call"`
	Turn           string         `json:"turn"`
	Source         string         `json:"source"`
	Message        string         `json:"message"`
	At             *agl.Timestamp `json:"at"`
	IdempotencyKey string         `json:"idempotency_key"`
}

// params returns the parameters of agl.AddReward for a rollout.
func (r *sessionReward) params(rolloutID string) (agl.AddRewardParams, error) {
	if (len(r.Value) > 0) == (len(r.Dimensions) > 0) {
		return agl.AddRewardParams{}, agl.Errorf(agl.CodeInvalid, "value and dimensions: got both or neither, must be one of them")
	}
	said := emission{Reward: r.Value, Rewards: r.Dimensions}
	rewards, err := said.rewards("value", "dimensions")
	if err != nil {
		return agl.AddRewardParams{}, err
	}
	p := agl.AddRewardParams{RolloutID: rolloutID, Rewards: rewards, Call: r.Call, Turn: r.Turn, Source: r.Source, Message: r.Message, IdempotencyKey: r.IdempotencyKey}
	if r.At != nil {
		p.Time = agl.Some(*r.At)
	}
	return p, nil
}

func (p *Proxy) rewardSession(r *http.Request, rt route, _ *session.Session) (int, any, error) {
	var body sessionReward
	if err := p.readSessionBody(r, &body); err != nil {
		return 0, nil, err
	}
	id, _ := sessionPath(rt.path)
	reward, err := body.params(id)
	if err != nil {
		return 0, nil, err
	}
	added, err := p.addReward(r.Context(), reward)
	return http.StatusOK, &added, err
}

// addReward adds a reward to a session, after the calls that have ended. One for a call that is running waits for it.
func (p *Proxy) addReward(ctx context.Context, reward agl.AddRewardParams) (agl.AddedReward, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*p.cfg.StoreTimeout)
	defer cancel()
	s, name, err := p.sessions.ByID(ctx, reward.RolloutID)
	switch {
	case err != nil && !errors.Is(err, agl.ErrIllegalState):
		return agl.AddedReward{}, err
	case name == "":
		return agl.AddedReward{}, agl.Errorf(agl.CodeNotFound, "rollout %q is not a session", reward.RolloutID)
	case err == nil:
		if err := p.recorder.FlushEnded(ctx, s.RolloutID, s.AttemptID); err != nil {
			return agl.AddedReward{}, err
		}
	}
	added, err := agl.AddReward(ctx, p.cfg.Sessions.Store, reward)
	if errors.Is(err, agl.ErrNotFound) {
		if err := p.FlushAttempt(ctx, s.RolloutID, s.AttemptID); agl.Transient(err) {
			return agl.AddedReward{}, err
		}
		added, err = agl.AddReward(ctx, p.cfg.Sessions.Store, reward)
	}
	if err == nil {
		p.metrics.rewards.WithLabelValues(sourceLabel(reward.Source)).Inc()
	}
	return added, err
}

// sourceLabel keeps made-up sources from creating an unlimited number of series.
func sourceLabel(source string) string {
	switch source {
	case agl.RewardFromUser, agl.RewardFromEvent, agl.RewardFromProgram, agl.RewardFromJudge:
		return source
	}
	return "other"
}

// sessionEvent is the body of POST /v1/agl/event and /v1/agl/sessions/{id}/event.
type sessionEvent struct {
	Event          string         `json:"event"`
	Call           string         `json:"call"`
	Turn           string         `json:"turn"`
	Message        string         `json:"message"`
	At             *agl.Timestamp `json:"at"`
	IdempotencyKey string         `json:"idempotency_key"`
}

// reportEvent adds the reward of an event that the application reports.
func (p *Proxy) reportEvent(r *http.Request, rt route, s *session.Session) (int, any, error) {
	var body sessionEvent
	if err := p.readSessionBody(r, &body); err != nil {
		return 0, nil, err
	}
	value, known := p.cfg.Sessions.Events[body.Event]
	if !known {
		allowed := "there are none, name them in sessions.rewards.events of the file"
		if names := slices.Sorted(maps.Keys(p.cfg.Sessions.Events)); len(names) > 0 {
			allowed = "allowed are " + strings.Join(names, ", ")
		}
		return 0, nil, agl.Errorf(agl.CodeInvalid, "event: got %.100q, %s", body.Event, allowed)
	}
	id, _ := sessionPath(rt.path)
	switch {
	case s != nil:
		id = s.RolloutID
	case id == "":
		name, user := namedBy(r.Header)
		if name == "" {
			return 0, nil, agl.Errorf(agl.CodeInvalid, "%s: missing, must name the session, or its key must be given", HeaderSession)
		}
		var err error
		if id, err = p.sessions.Find(r.Context(), name, user); err != nil {
			return 0, nil, err
		}
	}
	message := body.Event
	if body.Message != "" {
		message += ": " + body.Message
	}
	stands := sessionReward{
		Value: jsontext.Value(strconv.FormatFloat(value, 'g', -1, 64)), Call: body.Call, Turn: body.Turn,
		Source: agl.RewardFromEvent, Message: message, At: body.At, IdempotencyKey: body.IdempotencyKey,
	}
	reward, err := stands.params(id)
	if err != nil {
		return 0, nil, err
	}
	added, err := p.addReward(r.Context(), reward)
	return http.StatusOK, &added, err
}

// rewardEnd gives a session the rewards of the program and of the judge. A failure of one of them is logged, counted and added to
// the trace, and the session gets no reward from it. The error is a transient one of the store; calling rewardEnd again is safe,
// because it adds no reward twice.
func (p *Proxy) rewardEnd(ctx context.Context, rolloutID, attemptID string) error {
	c := &p.cfg.Sessions
	said, err := p.readSession(ctx, rolloutID, attemptID)
	for _, source := range [...]struct {
		name  string
		given bool
		by    func(context.Context, *extract.Session) error
	}{{agl.RewardFromProgram, c.Program != nil, p.rewardByProgram}, {agl.RewardFromJudge, c.Judge != nil, p.rewardByJudge}} {
		if !source.given || err == nil && len(said.Calls) == 0 {
			continue
		}
		failed := err
		if failed == nil {
			failed = source.by(ctx, &said)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if failed == nil {
			continue
		}
		if store, ok := errors.AsType[storeError](failed); ok && agl.Transient(store.error) {
			return store.error
		}
		p.metrics.rewardFailures.WithLabelValues(source.name).Inc()
		p.cfg.Logger.Warn("a session gets no reward", "source", source.name, "rollout_id", rolloutID, "error", failed)
		if failed := p.noteFailure(ctx, rolloutID, attemptID, source.name, failed); failed != nil {
			if agl.Transient(failed) {
				return failed
			}
			p.cfg.Logger.Warn("the failure of a reward could not be added to the trace", "rollout_id", rolloutID, "error", failed)
		}
	}
	return nil
}

// storeError marks an error of the store, in contrast to one of the program or the judge.
type storeError struct{ error }

// Unwrap returns the store's error.
func (e storeError) Unwrap() error { return e.error }

// noteFailure adds the failure of the program or the judge to the trace of a session.
func (p *Proxy) noteFailure(ctx context.Context, rolloutID, attemptID, source string, failed error) error {
	e := emission{Exception: &exception{Type: "reward_" + source, Message: strings.ToValidUTF8(failed.Error(), "\uFFFD")}}
	body, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	span, err := readEmission(body, "")
	if err != nil {
		return err
	}
	_, err = p.emit(ctx, span, route{rolloutID: rolloutID, attemptID: attemptID})
	return err
}

// readSession reads the conversation of a session from the store.
func (p *Proxy) readSession(ctx context.Context, rolloutID, attemptID string) (extract.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StoreTimeout)
	defer cancel()
	r, err := p.cfg.Sessions.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: rolloutID})
	if err != nil {
		return extract.Session{}, storeError{err}
	}
	page, err := p.cfg.Sessions.Store.QuerySpans(ctx, extract.Query(rolloutID, attemptID))
	if err != nil {
		return extract.Session{}, storeError{err}
	}
	return extract.Read(&r.Rollout, page.Items)
}

func (p *Proxy) rewardByProgram(ctx context.Context, said *extract.Session) error {
	values, err := p.cfg.Sessions.Program.Run(ctx, said)
	if err != nil {
		return err
	}
	rewards := make([]agl.AddRewardParams, len(values))
	for i, value := range values {
		var r sessionReward
		if value.Kind() == '0' {
			r.Value = value
		} else if err := json.Unmarshal(value, &r, json.RejectUnknownMembers(true)); err != nil {
			return fmt.Errorf("the program wrote %.200s, must be a number, or an object with value or dimensions, and with call, turn, message and at as needed: %w", value, rawjson.Mistake(err))
		}
		if rewards[i], err = r.params(said.ID); err != nil {
			return fmt.Errorf("the program wrote %.200s: %w", value, err)
		}
		rewards[i].Source = agl.RewardFromProgram
		// After further calls the program's reward is a new one.
		rewards[i].IdempotencyKey = fmt.Sprintf("program/%d/%d", said.Last, i)
	}
	var failed []error
	for i := range rewards {
		err := p.addExtracted(ctx, rewards[i])
		if agl.Transient(err) || ctx.Err() != nil {
			return err
		}
		failed = append(failed, err) // such as a reward for an unknown turn; the other rewards are added
	}
	return errors.Join(failed...)
}

func (p *Proxy) rewardByJudge(ctx context.Context, said *extract.Session) error {
	failed, err := p.cfg.Sessions.Judge.Judge(ctx, said, p.ask, func(judged extract.Judged) error {
		return p.addExtracted(ctx, agl.AddRewardParams{
			RolloutID: said.ID, Rewards: []agl.Reward{{Name: "primary", Value: judged.Value}}, Call: judged.Call,
			Source: agl.RewardFromJudge, Message: judged.Message, IdempotencyKey: "judge/" + judged.Call,
		})
	})
	if err != nil {
		return err
	}
	return errors.Join(failed...)
}

// addExtracted adds a reward of the program or the judge, unless an earlier try has added it.
func (p *Proxy) addExtracted(ctx context.Context, reward agl.AddRewardParams) error {
	_, err := p.addReward(ctx, reward)
	if err == nil || errors.Is(err, agl.ErrConflict) {
		return nil
	}
	return storeError{err}
}

// ask makes a call for the judge, which is not recorded.
func (p *Proxy) ask(ctx context.Context, body []byte) (reply []byte, err error) {
	defer func() { // the exchange panics so when a reply breaks off
		if cut := recover(); cut == http.ErrAbortHandler { //nolint:errorlint // it is the panic itself
			err = errors.New("the model's reply was cut off")
		} else if cut != nil {
			panic(cut)
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	const path = "/chat/completions"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	w := &replyBuffer{header: http.Header{}, status: http.StatusOK}
	p.exchange.Serve(ctx, w, r, exchange.Origin{Path: path, Cancel: cancel, Admit: p.rules.admit(route{path: path}), Allowance: p.budgets.of(ctx, nil)})
	if w.status != http.StatusOK {
		return nil, fmt.Errorf("the model's server answered %d: %.300s", w.status, w.body.Bytes())
	}
	return w.body.Bytes(), nil
}

// replyBuffer is an http.ResponseWriter that keeps the reply in memory.
type replyBuffer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (w *replyBuffer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *replyBuffer) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *replyBuffer) Write(p []byte) (int, error) { return w.body.Write(p) }

// FlushError does nothing. The exchange flushes what it writes.
func (*replyBuffer) FlushError() error { return nil }

package proxy

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/rewardjson"
	"github.com/agl-go/agl/proxy/openai"
)

// emission is the body of POST {attempt URL}/emit, which an agent sends about its attempt.
// It has exactly one of Reward, Rewards, Message, Object and Exception.
type emission struct {
	Reward    jsontext.Value `json:"reward,omitzero"`  // a number, true or false
	Rewards   jsontext.Value `json:"rewards,omitzero"` // an object of such values, the primary one first
	Message   *string        `json:"message"`
	Object    jsontext.Value `json:"object,omitzero"`
	Exception *exception     `json:"exception"`
	// SpanID is 16 hex digits, or empty for a random id. A repeated request with the same id
	// stores nothing more.
	SpanID string `json:"span_id,omitzero"`
}

type exception struct {
	Type       string `json:"type"`
	Message    string `json:"message"`
	Stacktrace string `json:"stacktrace,omitzero"`
}

// emitted is the answer.
type emitted struct {
	SpanID     string `json:"span_id"`
	SequenceID int64  `json:"sequence_id,omitzero"` // absent when the span was stored before
}

// serveEmit stores an emission as one span, and answers once that is done. The span is ordered
// after the calls that have begun and before the next one.
func (p *Proxy) serveEmit(w http.ResponseWriter, r *http.Request, rt route) {
	if p.cfg.Spans == nil {
		p.refuse(w, r, openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "not_recorded", "this proxy has no store, so it records nothing"))
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context())) // an agent that leaves has emitted it
	defer cancel(nil)
	call, refused := p.running.enter(attemptKey{rt.rolloutID, rt.attemptID}, make(chan struct{}), cancel)
	if refused != nil {
		p.refuse(w, r, refused)
		return
	}
	defer call.leave()
	body, refused := p.readBody(r)
	if refused != nil {
		p.refuse(w, r, refused)
		return
	}
	span, err := readEmission(body, r.Header.Get("Traceparent"))
	if err != nil {
		p.refuse(w, r, openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", err.Error()))
		return
	}
	answer, err := p.emit(ctx, span, rt)
	if err != nil {
		refused := emitError(ctx, err)
		if refused.Code == storeUnavailable {
			p.unstored.note(call.attempt, err)
		}
		p.refuse(w, r, refused)
		return
	}
	p.unstored.note(call.attempt, nil)
	line, err := json.Marshal(answer)
	if err != nil {
		p.cfg.Logger.Error("answer not written", "error", err)
		return
	}
	// A script's curl prints the answer. Without the newline, the result that the script prints next would be on the same line.
	p.answer(w, http.StatusOK, append(line, '\n'))
}

// readBody reads the body of a request that is not sent to a backend.
func (p *Proxy) readBody(r *http.Request) ([]byte, *openai.Error) {
	body, err := httpserver.ReadBody(nil, r, p.cfg.MaxRequestBytes)
	if err != nil {
		status, message := httpserver.BodyStatus(err)
		return nil, openai.NewError(status, openai.InvalidRequestError, "unreadable_body", message)
	}
	return body, nil
}

// emit stores a span of an attempt. It repeats a failing request until Config.StoreTimeout.
func (p *Proxy) emit(ctx context.Context, span agl.Span, rt route) (emitted, error) {
	span.RolloutID, span.AttemptID = rt.rolloutID, rt.attemptID
	var err error
	span.Resource.Attributes, err = agl.NewAttributes(
		agl.Attr{Key: agl.AttrRolloutID, Value: rt.rolloutID}, agl.Attr{Key: agl.AttrAttemptID, Value: rt.attemptID})
	if err != nil {
		return emitted{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.StoreTimeout)
	defer cancel()
	if err := p.recorder.AwaitSequences(ctx, rt.rolloutID, rt.attemptID); err != nil {
		return emitted{}, agl.Errorf(agl.CodeUnavailable, "the calls before it have no sequence ids yet: %w", err)
	}
	pace := backoff.Exponential{First: 20 * time.Millisecond, Max: time.Second, Jitter: 0.5}
	for failures := 0; ; failures++ {
		result, err := p.cfg.Spans.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true})
		if err != nil {
			if agl.Transient(err) && pace.Wait(ctx, failures) == nil {
				continue
			}
			return emitted{}, err
		}
		if slices.Contains(result.Cancelled, rt.attemptID) {
			p.cancelled(rt.rolloutID, rt.attemptID)
		}
		answer := emitted{SpanID: span.SpanID}
		if len(result.Stored) > 0 {
			answer.SequenceID = result.Stored[0].SequenceID
		}
		return answer, nil
	}
}

// unstored holds the attempts whose last emission the store did not take. If an agent fails because of that, it is not its own
// fault; if it goes on, its record lacks what it emitted.
type unstored struct {
	mu       sync.Mutex
	attempts map[attemptKey]*list.Element
	order    list.List // of unstoredEmission, the oldest in front
}

type unstoredEmission struct {
	attempt attemptKey
	cause   error
}

// maxUnstored is the number of such attempts that are remembered.
const maxUnstored = 1 << 16

// note notes why an emission was not stored; nil if it was.
func (u *unstored) note(attempt attemptKey, cause error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if before := u.attempts[attempt]; before != nil {
		u.order.Remove(before)
		delete(u.attempts, attempt)
	}
	if cause == nil {
		return
	}
	if u.attempts == nil {
		u.attempts = make(map[attemptKey]*list.Element)
	}
	u.attempts[attempt] = u.order.PushBack(unstoredEmission{attempt, cause})
	if u.order.Len() > maxUnstored {
		oldest, _ := u.order.Remove(u.order.Front()).(unstoredEmission)
		delete(u.attempts, oldest.attempt)
	}
}

// err returns an error if the last emission of an attempt was not stored.
func (u *unstored) err(attempt attemptKey) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := u.attempts[attempt]
	if last == nil {
		return nil
	}
	emission, _ := last.Value.(unstoredEmission)
	return agl.Errorf(agl.CodeIllegalState, "what the agent emitted last could not be stored: %v", emission.cause) // another flush does not help
}

const storeUnavailable = "store_unavailable"

// emitError returns the answer to an emission that was not stored.
func emitError(ctx context.Context, err error) *openai.Error {
	if own, ok := errors.AsType[*openai.Error](context.Cause(ctx)); ok {
		return own
	}
	switch agl.ErrorCode(err) {
	case agl.CodeNotFound:
		return openai.NewError(http.StatusGone, openai.InvalidRequestError, "attempt_unknown", err.Error())
	case agl.CodeInvalid:
		return openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", err.Error())
	}
	return openai.NewError(http.StatusServiceUnavailable, openai.OverloadedError, storeUnavailable, "the store did not take the span: "+err.Error()).After(time.Second)
}

// readEmission turns a body into a span, in the trace of traceparent (W3C Trace Context) or,
// if that is empty or malformed, in a trace of its own.
func readEmission(body []byte, traceparent string) (agl.Span, error) {
	var e emission
	if err := json.Unmarshal(body, &e, json.RejectUnknownMembers(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return agl.Span{}, fmt.Errorf("body: %w; allowed are reward, rewards, message, object, exception and span_id", rawjson.Mistake(err))
	}
	name, attrs, err := e.attributes()
	if err != nil {
		return agl.Span{}, err
	}
	attributes, err := agl.NewAttributes(attrs...)
	if err != nil {
		return agl.Span{}, err
	}
	now := agl.Some(agl.TimestampOf(time.Now()))
	span := agl.Span{
		Name: name, SpanID: e.SpanID, Attributes: attributes, StartTime: now, EndTime: now, Status: agl.SpanStatus{Code: agl.StatusOK},
	}
	if e.Exception != nil {
		span.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(e.Exception.Message)}
	}
	if !spanIDForm.MatchString(span.SpanID) {
		if span.SpanID != "" {
			return agl.Span{}, fmt.Errorf("span_id: got %q, must be 16 hex digits", span.SpanID)
		}
		span.SpanID = randomid.Hex(8)
	}
	if parent := traceparentForm.FindStringSubmatch(traceparent); parent != nil {
		span.TraceID, span.ParentID = parent[1], agl.Some(parent[2])
		span.Parent = &agl.SpanContext{TraceID: parent[1], SpanID: parent[2], IsRemote: true}
	} else {
		span.TraceID = randomid.Hex(16)
	}
	span.Context = &agl.SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
	return span, nil
}

var (
	traceparentForm = regexp.MustCompile(`^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$`)
	spanIDForm      = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

// attributes returns the name and the attributes of the span.
func (e *emission) attributes() (name string, attrs []agl.Attr, err error) {
	given := 0
	for _, is := range []bool{e.Reward != nil, e.Rewards != nil, e.Message != nil, e.Object != nil, e.Exception != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return "", nil, fmt.Errorf("body: has %d of reward, rewards, message, object and exception, must have one", given)
	}
	switch {
	case e.Message != nil:
		return agl.SpanMessage, []agl.Attr{{Key: agl.AttrMessageBody, Value: *e.Message}}, nil
	case e.Object != nil:
		return agl.SpanObject, objectAttributes(e.Object), nil
	case e.Exception != nil:
		if e.Exception.Type == "" {
			return "", nil, errors.New("exception.type: is empty, must name the kind of error")
		}
		attrs = []agl.Attr{
			{Key: agl.AttrExceptionType, Value: e.Exception.Type},
			{Key: agl.AttrExceptionMessage, Value: e.Exception.Message},
			{Key: agl.AttrExceptionEscaped, Value: false},
		}
		if e.Exception.Stacktrace != "" {
			attrs = append(attrs, agl.Attr{Key: agl.AttrExceptionStacktrace, Value: e.Exception.Stacktrace})
		}
		return agl.SpanException, attrs, nil
	}
	rewards, err := e.rewards("reward", "rewards")
	if err != nil {
		return "", nil, err
	}
	attrs, err = agl.RewardAttributes(rewards...)
	return agl.SpanAnnotation, attrs, err
}

// rewards returns the dimensions of the reward. Errors have the names of the member with the primary one, or with all of them.
func (e *emission) rewards(one, all string) ([]agl.Reward, error) {
	if e.Reward != nil {
		value, err := rewardjson.Value(one, e.Reward)
		return []agl.Reward{{Name: "primary", Value: value}}, err
	}
	return rewardjson.Dimensions(all, e.Rewards)
}

// objectAttributes describes a value as Agent-lightning's emit_object does: text, booleans
// and numbers by a literal, everything else by its JSON.
func objectAttributes(raw jsontext.Value) []agl.Attr {
	literal := string(raw)
	describe := func(kind, as, value string) []agl.Attr {
		return []agl.Attr{{Key: agl.AttrObjectType, Value: kind}, {Key: as, Value: value}}
	}
	switch raw.Kind() {
	case '"':
		return describe("str", agl.AttrObjectLiteral, rawjson.Unquote(raw))
	case 't', 'f':
		return describe("bool", agl.AttrObjectLiteral, literal)
	case '0':
		if strings.ContainsAny(literal, ".eE") {
			return describe("float", agl.AttrObjectLiteral, literal)
		}
		return describe("int", agl.AttrObjectLiteral, literal)
	case '{':
		return describe("dict", agl.AttrObjectJSON, literal)
	case '[':
		return describe("list", agl.AttrObjectJSON, literal)
	}
	return describe("NoneType", agl.AttrObjectJSON, literal)
}

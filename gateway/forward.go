package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/record"
)

// maxTries and retries are those of Agent-lightning v1.0: 0.5 s, doubled up to 8 s, times
// 0.75 to 1.25.
const maxTries = 6

var retries = backoff.Exponential{First: 625 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.4}

// calls are the model calls that run.
type calls struct {
	count atomic.Int64

	mu      sync.Mutex
	running map[string]map[*call]struct{} // by the store's id of their rollout
}

// call is a model call of a rollout.
type call struct{ deleted atomic.Bool }

func (c *calls) init() { c.running = map[string]map[*call]struct{}{} }

func (c *calls) inflight() int64 { return c.count.Load() }

// enter counts a call in; leave counts it out.
func (c *calls) enter(storeID string) (in *call, leave func()) {
	in = &call{}
	c.count.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running[storeID] == nil {
		c.running[storeID] = map[*call]struct{}{}
	}
	c.running[storeID][in] = struct{}{}
	return in, func() {
		c.count.Add(-1)
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.running[storeID], in); len(c.running[storeID]) == 0 {
			delete(c.running, storeID)
		}
	}
}

// deleted tells the calls of a rollout that it was deleted.
func (c *calls) deleted(storeID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for in := range c.running[storeID] {
		in.deleted.Store(true)
	}
}

// forward returns the handler of model calls in an API's form. It sends a call to a
// backend and records it before the agent gets the reply.
func (g *Gateway) forward(api string) handler {
	return func(w http.ResponseWriter, r *http.Request) error { return g.forwardCall(w, r, api) }
}

func (g *Gateway) forwardCall(w http.ResponseWriter, r *http.Request, api string) error {
	mode, path := r.PathValue("mode"), r.PathValue("path")
	if mode != "train" && mode != "val" {
		return errStatus(http.StatusNotFound, "Unsupported proxy mode: "+mode)
	}
	if !g.serves(api, path) {
		return errStatus(http.StatusNotFound, "Unsupported upstream path: "+path)
	}
	x := exchange{start: time.Now(), path: path, attemptID: attemptOf(r)}
	var err error
	if x.rollout, err = g.find(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	if x.rollout.Attempt == nil {
		return errNoAttempt(x.rollout.id())
	}
	body, err := g.callBody(w, r)
	if err != nil {
		return err
	}
	// Counted before the pause is read: once a pause is stored, the count has every call
	// that may still reach a backend.
	in, leave := g.calls.enter(x.rollout.storeID())
	defer leave()
	settings, err := g.settings.get(r.Context())
	if err != nil {
		return err
	}
	var ok bool
	if x.backend, ok = settings.backend(g.cfg.Model, x.rollout.id()); !ok {
		return errStatus(http.StatusServiceUnavailable, "No servers available for model '"+g.cfg.Model+"'")
	}
	if settings.Paused {
		return writePaused(w, &settings)
	}
	if asked, _ := rawjson.Get(body, "stream"); asked != nil && !falsy(asked) {
		if !g.cfg.Streams {
			return errStatus(http.StatusBadRequest, "Streaming responses are not supported")
		}
		x.wantsStream = true
	}
	if body, x.translator, err = g.translate(path, body, x.start); err != nil {
		return err
	}
	if x.translator != nil {
		x.path = chatCompletions
	}
	if x.wantsStream {
		x.stream = &stream{w: w, most: g.cfg.MaxBodyBytes, translator: x.translator}
	}
	body, settle, err := g.reserveCall(r, x.path, body)
	if err != nil {
		return err
	}
	x.request = g.rewrite(body, mode)
	err = g.answer(r.Context(), &x, in)
	settle(&x, err)
	if err != nil {
		if x.stream != nil && x.stream.begun {
			g.cfg.Logger.Warn("a stream ended early", "rollout", x.rollout.id(), "error", err)
			panic(http.ErrAbortHandler) // the only way to report it
		}
		return err
	}
	if x.stream != nil && x.stream.begun {
		return x.stream.finish()
	}
	return x.write(w)
}

// write answers the agent with a reply that came in one piece.
func (x *exchange) write(w http.ResponseWriter) error {
	answer := x.reply
	if x.translator != nil {
		var err error
		if answer, err = x.translated(); err != nil {
			return errStatus(http.StatusBadGateway, "The reply of the model server cannot be translated: "+err.Error())
		}
		if x.wantsStream && x.answered < http.StatusMultipleChoices {
			asStream(w.Header())
			w.WriteHeader(x.answered)
			_, err := w.Write(answer)
			return err
		}
	}
	writeJSON(w, x.answered, answer)
	return nil
}

// answer gets the reply to a call and records it. Of a stream the agent has received all
// but the end when it returns.
func (g *Gateway) answer(ctx context.Context, x *exchange, in *call) error {
	if err := g.send(ctx, x); err != nil {
		return err
	}
	if in.deleted.Load() {
		return errNoRollout(x.rollout.id())
	}
	e := x.event()
	// A call that has used a model is recorded even if its agent leaves now.
	return g.record(context.WithoutCancel(ctx), x.rollout, e, x.span(e))
}

func writePaused(w http.ResponseWriter, settings *settingsDoc) error {
	w.Header()["Retry-After"] = []string{strconv.FormatInt(settings.RetryAfter, 10)}
	w.Header()["X-Agl-Paused"] = []string{"true"}
	o := rawjson.NewObject(nil)
	o.String("error", "gateway paused")
	o.NullString("reason", settings.Reason.V, settings.Reason.Valid)
	writeJSON(w, http.StatusTooManyRequests, o.End())
	return nil
}

// callBody reads the body of a model call.
func (g *Gateway) callBody(w http.ResponseWriter, r *http.Request) (jsontext.Value, error) {
	raw, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return jsontext.Value("{}"), nil
	}
	body, ok := document(raw)
	switch {
	case !ok:
		return nil, errStatus(http.StatusBadRequest, "Invalid JSON in request body")
	case body.Kind() != '{':
		return nil, errStatus(http.StatusBadRequest, "Request body must be a JSON object")
	}
	return body, nil
}

// rewrite sets what the trainer decides instead of the agent.
func (g *Gateway) rewrite(body jsontext.Value, mode string) jsontext.Value {
	type member struct {
		name  string
		value []byte
	}
	temperature := g.cfg.TrainTemperature.V
	if mode == "val" {
		temperature = g.cfg.ValTemperature.V
	}
	set := make([]member, 0, 5)
	set = append(set, member{"model", rawjson.AppendString(nil, g.cfg.Model)},
		member{"temperature", rawjson.AppendFloat(nil, temperature)}, member{"return_token_ids", []byte("true")})
	if mode == "train" && !g.cfg.NoLogprobs {
		set = append(set, member{"logprobs", []byte("true")})
	}
	if mode == "train" && g.cfg.RoutedExperts {
		set = append(set, member{"return_routed_experts", []byte("true")})
	}
	o := rawjson.NewObject(make([]byte, 0, len(body)+128))
	done := 0
	for name, value := range rawjson.Members(body) {
		replaced := false
		for i := range set {
			if rawjson.NameIs(name, set[i].name) {
				if replaced = true; done&(1<<i) == 0 {
					o.Raw(set[i].name, set[i].value)
					done |= 1 << i
				}
			}
		}
		if !replaced {
			o.Member(name, value)
		}
	}
	for i := range set {
		if done&(1<<i) == 0 {
			o.Raw(set[i].name, set[i].value)
		}
	}
	return o.End()
}

// exchange is one model call and what has become of it.
type exchange struct {
	rollout   rollout
	attemptID string
	path      string
	backend   Model
	request   jsontext.Value

	wantsStream bool
	stream      *stream    // nil if the agent does not want one
	translator  translator // nil if the agent speaks the backend's form

	start, sent, end time.Time
	retries          int
	status           int            // of the backend
	answered         int            // that the agent gets
	reply            jsontext.Value // that the agent gets
	response         jsontext.Value // that is recorded
	experts          jsontext.Value // nil is none
}

var errTimedOut = errStatus(http.StatusGatewayTimeout, "Upstream model server timed out")

var errUpstreamTimeout = errors.New("the backend timed out")

// send sends the call until there is a reply that another try would not change. Its
// error is that of an agent that has left, or the answer to the agent.
func (g *Gateway) send(ctx context.Context, x *exchange) error {
	x.sent = time.Now()
	for ; ; x.retries++ {
		got, err := g.try(ctx, x)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		last := x.retries == maxTries-1
		switch {
		case errors.Is(err, errBroken):
			return err
		case err == nil && (last || !repeatable(got.status)):
			x.end = time.Now()
			x.take(&got)
			return nil
		case last && errors.Is(err, errUpstreamTimeout):
			return errTimedOut
		case last:
			return errStatus(http.StatusBadGateway, "Upstream model server request failed")
		}
		g.cfg.Logger.WarnContext(ctx, "trying again", "rollout", x.rollout.id(), "backend", x.backend.Endpoint, "tries", x.retries+1, "error", err)
		if err := retries.Wait(ctx, x.retries); err != nil {
			return err
		}
	}
}

func repeatable(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusConflict || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// reply is what a backend has answered.
type reply struct {
	status  int
	kind    string // the content type
	body    []byte
	tooLong bool
}

// try sends the call once.
func (g *Gateway) try(ctx context.Context, x *exchange) (got reply, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(g.cfg.Timeout, func() { cancel(errUpstreamTimeout) })
	defer timer.Stop()
	fault := func(err error) error {
		if errors.Is(context.Cause(ctx), errUpstreamTimeout) {
			return errUpstreamTimeout
		}
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(x.backend.Endpoint, "/")+"/"+x.path, bytes.NewReader(x.request))
	if err != nil {
		return got, err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	res, err := g.cfg.Transport.RoundTrip(req)
	if err != nil {
		return got, fault(err)
	}
	defer res.Body.Close()
	timer.Reset(g.cfg.Timeout)
	if got = (reply{status: res.StatusCode, kind: res.Header.Get("Content-Type")}); x.stream != nil && got.status == http.StatusOK && isStream(got.kind) {
		got.body, err = x.stream.relay(res, timer, g.cfg.Timeout)
		return got, err
	}
	buffer := bytes.NewBuffer(make([]byte, 0, max(res.ContentLength, 0)+bytes.MinRead))
	if _, err := buffer.ReadFrom(io.LimitReader(res.Body, g.cfg.MaxBodyBytes+1)); err != nil {
		return got, fault(err)
	}
	got.body = buffer.Bytes()
	got.tooLong = int64(len(got.body)) > g.cfg.MaxBodyBytes
	return got, nil
}

// take reads a backend's reply. A reply in another type than JSON is {}; JSON that is
// not an object is the backend's fault, and is told and recorded as such. Text that is
// not UTF-8 is repaired, or it could not be recorded.
func (x *exchange) take(got *reply) {
	x.status, x.answered = got.status, got.status
	x.reply = jsontext.Value("{}")
	if strings.HasPrefix(got.kind, "application/json") || x.stream != nil && x.stream.begun {
		doc := jsontext.Value(bytes.ToValidUTF8(bytes.TrimSpace(got.body), []byte("\ufffd")))
		switch {
		case got.tooLong:
			x.answered = http.StatusBadGateway
			x.reply = jsontext.Value(`{"error":{"message":"The reply of the model server is too long"}}`)
		case doc.Kind() == '{' && doc.IsValid(rawjson.Options()):
			x.reply = doc
		default:
			x.answered = http.StatusBadGateway
			x.reply = jsontext.Value(`{"error":{"message":"The reply of the model server is not a JSON object"}}`)
		}
	}
	x.popExperts()
	x.response = x.reply
}

// popExperts takes the routed experts out of the reply: they are for training only.
func (x *exchange) popExperts() {
	if !bytes.Contains(x.reply, []byte(`"routed_experts"`)) {
		return
	}
	choices, _ := rawjson.Get(x.reply, "choices")
	if choices.Kind() != '[' {
		return
	}
	var out [][]byte
	for choice := range rawjson.Elements(choices) {
		if experts, ok := rawjson.Get(choice, "routed_experts"); ok && x.experts == nil {
			if experts.Kind() != 'n' {
				x.experts = experts
			}
			choice = rawjson.Remove(choice, "routed_experts")
		}
		out = append(out, choice)
	}
	list := append(append(jsontext.Value{'['}, bytes.Join(out, []byte{','})...), ']')
	x.reply = rawjson.Set(x.reply, "choices", list)
}

// event is the event that records the call.
func (x *exchange) event() *event {
	e := &event{kind: eventModelRequest, attemptID: x.attemptID, timestamp: agl.TimestampOf(x.end)}
	o := rawjson.NewObject(make([]byte, 0, len(x.request)+len(x.response)+512))
	o.String("model", x.backend.Model)
	o.Int("model_version", x.backend.Version)
	o.Raw("request", x.request)
	o.Raw("response", x.response)
	server := rawjson.NewObject(nil)
	server.String("model", x.backend.Model)
	server.String("endpoint", x.backend.Endpoint)
	server.Int("version", x.backend.Version)
	o.Raw("server", server.End())
	o.Float("latency_ms", float64(x.end.Sub(x.sent).Microseconds())/1000)
	o.Int("http_status", int64(x.answered))
	state := "ok"
	if x.answered >= http.StatusBadRequest {
		state = "error"
	}
	o.String("status", state)
	o.Int("retry_count", int64(x.retries))
	if x.experts == nil {
		o.Raw("routed_experts", rawjson.Null())
	} else {
		o.Raw("routed_experts", x.experts)
	}
	usage, _ := rawjson.Get(x.response, "usage")
	if usage.Kind() != '{' {
		usage = rawjson.Null()
	}
	o.Raw("usage", usage)
	reason, _ := rawjson.Get(firstChoice(x.response), "finish_reason")
	if reason.Kind() != '"' || falsy(reason) {
		reason = rawjson.Null()
	}
	o.Raw("finish_reason", reason)
	e.data = o.End()
	return e
}

// span is the span in which the call is kept: that of a model call, as the proxy records
// it, with the event.
func (x *exchange) span(e *event) agl.Span {
	form := record.Chat
	if x.path == completions {
		form = record.Completion
	}
	version := strconv.FormatInt(cmp.Or(x.backend.Version, x.backend.Registration), 10)
	in := &record.Input{
		RolloutID: x.rollout.storeID(), AttemptID: x.rollout.Attempt.AttemptID, Method: http.MethodPost, Path: "/" + x.path, Model: x.backend.Model,
		Form: form, Request: x.request, Reply: x.response, Status: x.answered, Delivered: true, Tries: x.retries + 1,
		Backend: x.backend.Endpoint, Version: version, VersionEnd: version,
		Start: x.start, Sent: x.sent, LastByte: x.end, End: x.end,
	}
	s := e.span(&x.rollout)
	s.Name = agl.SpanLiteLLMRequest
	s.StartTime = agl.Some(agl.TimestampOf(x.sent))
	if x.answered >= http.StatusBadRequest {
		s.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some("the backend answered " + strconv.Itoa(x.status))}
		in.Fail(record.SourceProvider, s.Status.Description.V)
	}
	var b record.Builder
	s.Attributes = b.AppendAttributes(make([]byte, 0, len(x.request)+len(x.response)+512), in, &record.Position{Name: s.SpanID})
	return s
}

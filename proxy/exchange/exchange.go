// Package exchange serves one call, from the agent's request to the end of its reply.
// It reads the request, applies the control of the rollout, plans the request for the
// backend that [upstream.Pool.Send] chooses, relays the reply in the form of the
// agent's API, counts its tokens, and passes the input of the record to the recorder.
//
//	x := exchange.New(exchange.Config{Upstream: pool, Quota: quotas, Recorder: recorder, …})
//	x.Serve(ctx, w, r, exchange.Origin{RolloutID: "ro-1", AttemptID: "at-1", Path: "/chat/completions", Cancel: cancel})
//
// Bytes are forwarded unchanged, except for the members that package openai names. A
// call is never retried once a byte has reached the agent.
//
// The package must not know who may call, which routes there are, or where records
// are stored.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/modelerror"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/capture"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/quota"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/upstream"
)

// Upstream sends calls to backends. An *upstream.Pool is one.
type Upstream interface {
	// Find returns nil if the model exists, and otherwise the *openai.Error that answers
	// its calls.
	Find(model string) error
	Send(ctx context.Context, r *upstream.Request) (*upstream.Reply, error)
}

// Config configures an [Exchange]. All fields must be set.
type Config struct {
	Upstream        Upstream
	Quota           *quota.Quota
	Recorder        *capture.Recorder
	MaxRequestBytes int64
	MaxReplyBytes   int64 // limit of a reply that is recorded or translated
	// Ended is called at the end of each call, with the tokens that it used.
	Ended func(ctx context.Context, in *record.Input, used Usage)
}

// Exchange serves calls. Create it with [New]. It is safe for concurrent use.
type Exchange struct {
	cfg      Config
	buffers  bufferPool
	requests requestPool
	prompts  prompts
}

// New returns an exchange.
func New(cfg Config) *Exchange { return &Exchange{cfg: cfg} }

// Origin says to which attempt a call belongs.
type Origin struct {
	RolloutID, AttemptID string // both or neither
	Path                 string // without the prefix of the attempt and without /v1
	Turn, TurnType       string // of the conversation, as the agent's headers say; may be empty
	// Models maps the model that the agent asks for to the [upstream.Request.Model] that
	// answers. A model that is not in it is used under its own name.
	Models map[string]string
	// Cancel cancels the context of Serve, with a cause.
	Cancel context.CancelCauseFunc
	// Admit refuses a call of a model, begun at start, that its caller may not make. The error
	// is an *openai.Error.
	Admit func(model string, start time.Time) error
	// Allowance is the budget of the caller; nil is none.
	Allowance Allowance
}

// Serve answers a request. It panics with http.ErrAbortHandler when the agent has
// received part of a reply that cannot be completed: closing the connection is then the
// only way to report the failure.
func (x *Exchange) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, of Origin) {
	c := &call{w: w, cancel: of.Cancel, admit: of.Admit, allowance: of.Allowance, models: of.Models, buffers: &x.buffers, held: &held{pool: &x.requests}, maxReply: x.cfg.MaxReplyBytes, in: &record.Input{
		RolloutID: of.RolloutID, AttemptID: of.AttemptID, Method: r.Method, Path: of.Path, Form: formOf(of.Path), Start: time.Now(), Turn: of.Turn, TurnType: of.TurnType,
	}}
	c.recorded = of.RolloutID != "" && Generates(of.Path) && x.cfg.Recorder.Records(of.RolloutID, of.AttemptID)
	var err error
	if c.memory, err = x.cfg.Recorder.Reserve(ctx, firstBytes(r)); err != nil {
		if e := ending[*openai.Error](ctx, err); e != nil {
			_ = WriteError(w, e) // fails only if the agent has left
		}
		return
	}
	if c.recorded {
		c.entry = x.cfg.Recorder.Begin(of.RolloutID, of.AttemptID)
	}
	err = errPanicked // unless serve returns
	defer func() {
		if errors.Is(err, errPanicked) { // the panic goes on to the server; the call must not stay open, or flushes would wait for it
			x.end(ctx, c, err)
		}
	}()
	err = x.serve(ctx, c, r)
	x.end(ctx, c, err)
	if err != nil && c.in.Status != 0 {
		panic(http.ErrAbortHandler)
	}
}

var errPanicked = errors.New("the proxy panicked while it served the call")

// serve sends the request and relays the reply. It returns an error if the agent did not
// get the whole reply.
func (x *Exchange) serve(ctx context.Context, c *call, r *http.Request) error {
	plans, control, err := x.read(ctx, c, r)
	if err != nil {
		return c.refuse(ctx, err)
	}
	if control != nil {
		if c.account, err = x.cfg.Quota.Begin(control, c.in.RolloutID, c.in.AttemptID, c.in.Start); err != nil {
			return c.refuse(ctx, err)
		}
		if at, spent := c.account.Deadline(); spent != nil {
			timer := time.AfterFunc(time.Until(at), func() { c.cancel(spent) })
			defer timer.Stop()
		}
	}
	if c.allowance != nil {
		if c.reserved, err = c.allowance.Reserve(ctx, c.serving, c.most, x.exactly(c, r, plans)); err != nil {
			return c.refuse(ctx, err)
		}
	}
	reply, err := x.cfg.Upstream.Send(ctx, &upstream.Request{
		Model: c.serving, Affinity: c.affinity(r), Agent: r, Message: plans.message, Again: c.again, Buffer: c.recorded,
	})
	c.held.reply = reply
	defer func() {
		reply.Close(c.meter.count().Sum())
		c.in.LastByte, c.in.VersionEnd = reply.LastByte, reply.VersionEnd
	}()
	pl := plans.of(reply.Target)
	c.sent(reply, pl)
	c.lost, c.answered = reply.Lost, reply.Status != 0
	if err != nil {
		return c.refuse(ctx, err)
	}
	return deliver(ctx, &relay{call: c, reply: reply, plan: pl})
}

// deliver relays a reply to the agent.
func deliver(ctx context.Context, r *relay) error {
	h := r.w.Header()
	upstream.CopyHeader(h, r.reply.Header)
	r.setTries() // a backend that is a proxy has tries of its own
	if r.reply.Stream() {
		h.Set("X-Accel-Buffering", "no") // nginx in front must not hold the stream back
	}
	if r.reply.Status >= 300 {
		h.Set(HeaderSource, record.SourceProvider)
		r.in.Fail(record.SourceProvider, fmt.Sprintf("the backend answered %d", r.reply.Status))
	}
	r.meter.begin(r.reply.Status, r.reply.Stream(), r.account.LimitsTokens())
	encoding := r.reply.Encoding()
	if encoding != "" && (r.recorded || r.plan.Translated) {
		r.reply.WarnEncoded()
	}
	switch {
	case r.plan.Translated && encoding != "":
		return r.unusable("is encoded as " + encoding + ", which was not asked for")
	case r.reply.Buffered != nil:
		return r.whole(ctx)
	case !r.plan.Translated && (encoding != "" || !r.recorded && (!r.plan.hide.Usage || !r.reply.Stream())):
		return r.verbatim(encoding)
	case r.plan.Translated && !r.in.Stream:
		return r.unusable("is a stream, which was not asked for")
	default:
		return relayStream(ctx, r)
	}
}

// read reads the request and applies the control. Its error is an *openai.Error. The
// control is nil for a call outside an attempt.
func (x *Exchange) read(ctx context.Context, c *call, r *http.Request) (*planner, *quota.Control, error) {
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, nil, invalid(http.StatusUnsupportedMediaType, "unsupported_encoding", "Content-Encoding: got "+encoding+", must be absent: send the JSON as it is")
	}
	reserved := int(firstBytes(r))
	body, err := upstream.ReadUntrusted(r.Body, &x.requests, r.ContentLength, x.cfg.MaxRequestBytes, func(n int) error {
		if err := httpserver.HoldBody(r, int64(reserved+n)); err != nil {
			return err
		}
		err := x.cfg.Recorder.Extend(ctx, c.memory, int64(n))
		if err == nil {
			reserved += n
		}
		return err
	})
	c.held.request = body
	c.memory.Grow(len(body) - reserved)
	c.setRequest(body)
	switch {
	case ending[*openai.Error](ctx, err) != nil:
		return nil, nil, err
	case errors.Is(err, upstream.ErrTooLong):
		return nil, nil, invalid(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("the body must not be longer than %d bytes", x.cfg.MaxRequestBytes))
	case err != nil:
		status, message := httpserver.BodyStatus(err)
		return nil, nil, invalid(status, "unreadable_body", message)
	}
	var control *quota.Control
	if c.in.RolloutID != "" && Generates(c.in.Path) {
		control = x.cfg.Quota.Of(c.in.RolloutID)
		if body, err = control.Apply(body); err != nil {
			return nil, nil, err
		}
		c.memory.Grow(len(body) - len(c.in.Request))
		c.setRequest(body)
	}
	if c.measured() {
		if body, c.most, err = bounded(c.in.Path, body); err != nil {
			return nil, nil, err
		}
		c.bound = c.most.Prompt
		c.memory.Grow(len(body) - len(c.in.Request))
		c.setRequest(body)
	}
	request, err := openai.ParseRequest(body)
	if err != nil {
		e := invalid(http.StatusBadRequest, "invalid_body", err.Error())
		if errors.Is(err, openai.ErrNoModel) || errors.Is(err, openai.ErrTwoModels) {
			e.Param = "model"
		}
		return nil, nil, e
	}
	c.in.Model, c.in.Stream, c.serving = request.Model, request.Stream, request.Model
	if err := c.admit(c.in.Model, c.in.Start); err != nil {
		return nil, nil, err
	}
	if model, ok := c.models[request.Model]; ok {
		c.serving = model
	}
	if c.measured() {
		c.tools = hasTools(body)
		c.most.Prompt += x.prompts.beyond(c.serving, c.tools)
	}
	plans := &planner{path: c.in.Path, body: body, request: request, start: c.in.Start, recorded: c.recorded, measured: c.measured()}
	c.held.plans = plans
	return plans, control, x.cfg.Upstream.Find(c.serving)
}

// firstBytes returns how much memory is reserved for a request's body before any of it has
// arrived. It is small, so that a client that only announces a long body keeps no others out.
func firstBytes(r *http.Request) int64 {
	if r.ContentLength < 0 {
		return upstream.FirstRead
	}
	return min(r.ContentLength, upstream.FirstRead)
}

func invalid(status int, code, message string) *openai.Error {
	return openai.NewError(status, openai.InvalidRequestError, code, message)
}

func (c *call) setRequest(body []byte) { c.in.Request, c.meter.request = body, len(body) }

// sent records how far the call got. The plan is nil when no backend was chosen.
func (c *call) sent(reply *upstream.Reply, pl *plan) {
	in := c.in
	in.Backend, in.Tries, in.Cached, in.Sent, in.FirstByte = reply.Backend, reply.Tries, reply.Cached, reply.Sent, reply.FirstByte
	if reply.Target.Model != nil {
		in.Version = reply.Target.Version
	}
	if pl != nil {
		in.Form, in.BackendRequest, in.Checked = pl.form, pl.asked, pl.checked
	}
	in.Reply, in.Cut = reply.Buffered, reply.Buffered != nil // the relay clears Cut once it has the whole reply
	c.memory.Grow(len(in.BackendRequest) + len(in.Reply))
}

// refuse answers a call that got no reply with the proxy's error. It returns an error if
// the agent has left.
func (c *call) refuse(ctx context.Context, err error) error {
	c.setTries()
	if spent := ending[*quota.SpentError](ctx, err); spent != nil {
		return c.answerSpent(spent)
	}
	e := ending[*openai.Error](ctx, err)
	if e == nil {
		return err
	}
	c.in.Fail(record.SourceGateway, e.Message)
	c.in.Status = e.Status
	if e.Code == quota.ExceededCode {
		c.in.Outcome = agl.OutcomeBudget
		c.w.Header().Set(HeaderOutcome, string(agl.OutcomeBudget))
		if e.RetryAfter == 0 {
			c.w.Header().Set("X-Should-Retry", "false") // OpenAI's and Anthropic's clients obey it
		}
	}
	return WriteError(c.w, e)
}

// answerSpent answers a call that exceeds the budget of its attempt.
func (c *call) answerSpent(spent *quota.SpentError) error {
	c.w.Header().Set(HeaderOutcome, string(agl.OutcomeBudget))
	c.in.Outcome = agl.OutcomeBudget
	c.in.Fail(record.SourceGateway, spent.Error())
	if spent.Over != quota.OverLength {
		c.w.Header().Set("X-Should-Retry", "false") // OpenAI's and Anthropic's clients obey it
		e, _ := errors.AsType[*openai.Error](spent)
		c.in.Status = e.Status
		return WriteError(c.w, e)
	}
	reply := quota.NewEmptyReply(c.in.Path, c.in.Model, c.in.Stream, c.in.Start)
	c.in.Reply, c.in.Form, c.in.BackendRequest, c.in.Checked, c.in.Cut = reply.Body, formOf(c.in.Path), nil, nil, false
	c.w.Header().Set("Content-Type", reply.ContentType)
	c.begin(http.StatusOK)
	_, err := c.w.Write(reply.Sent)
	return err
}

// failedInStream notes the error that a backend sent in a stream, after its 200. The agent may have left because of it.
func (c *call) failedInStream() {
	if c.in.Streamed == nil {
		return
	}
	failure := c.in.Streamed.Failure()
	if !openai.Failed(failure) {
		return
	}
	status := http.StatusBadGateway
	var fault struct {
		Code jsontext.Value `json:"code"`
	}
	if rawjson.Unmarshal(failure, &fault) == nil { // the shape varies
		if code, err := strconv.Atoi(string(fault.Code)); err == nil && code >= http.StatusBadRequest && code <= maxStatus {
			status = code
		}
	}
	outcome := modelerror.Outcome(status, fmt.Appendf(nil, `{"error":%s}`, failure))
	c.in.Outcome = outcome.Kind
	c.in.Fail(record.SourceProvider, "the backend sent an error in its stream: "+outcome.Message)
}

// maxStatus is the highest status of HTTP.
const maxStatus = 599

// end completes the input of the record and passes it to the recorder.
func (x *Exchange) end(ctx context.Context, c *call, err error) {
	in := c.in
	in.End, in.Delivered = time.Now(), err == nil
	c.failedInStream()
	switch told := ending[*openai.Error](ctx, err); {
	case err == nil:
		if in.Outcome == "" {
			in.Outcome = modelerror.Outcome(in.Status, in.Reply).Kind
		}
	case ending[*quota.SpentError](ctx, err) != nil:
		in.Outcome = agl.OutcomeBudget
		in.Fail(record.SourceGateway, told.Error())
	case told != nil:
		in.Outcome = modelerror.Outcome(told.Status, nil).Kind
		in.Fail(record.SourceGateway, told.Error())
	case errors.Is(err, errPanicked):
		in.Outcome = agl.OutcomeModelError
		in.Fail(record.SourceGateway, err.Error())
	case ctx.Err() != nil || errors.Is(err, errAgentGone):
		if in.Outcome == "" { // the agent may have left because of the status, without reading the body
			in.Outcome = modelerror.Outcome(in.Status, in.Reply).Kind
		}
		in.Fail(record.SourceGateway, errAgentGone.Error())
	default:
		in.Outcome = agl.OutcomeModelError
		in.Fail(record.SourceProvider, err.Error())
	}
	used := c.meter.count()
	total := used.Sum()
	if !in.Delivered { // the backend may not have sent its usage
		total = max(total, c.account.Charged())
	}
	c.settle()
	x.learn(c)
	_ = c.account.Charge(total) // if the budget is spent now, the next call is refused
	x.cfg.Ended(ctx, in, used)
	if c.recorded {
		c.entry.End(in, c.memory, c.held.free)
		return
	}
	c.held.free()
	c.memory.Release()
}

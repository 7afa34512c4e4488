package proxy

import (
	"errors"
	"net/http"
	"strings"

	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
)

// plan is how a call is put to a backend, and how the backend's reply becomes
// what the agent is told.
type plan struct {
	form form   // of the request to the backend, and of its reply
	path string // at the backend
	body []byte
	// asked is the body in the backend's form as the record has it, nil where that
	// is the agent's.
	asked []byte
	// translate is nil where agent and backend speak the same form.
	translate translator
	// hide says what of a reply in the same form the agent did not ask for.
	hide openai.Hide
	// replay is set where the agent wants a stream and the backend is asked for
	// the reply in one piece; usage, where the agent wants it in that stream.
	replay, usage bool
}

// translator turns a backend's reply into the form of the agent. It is made for
// one reply.
type translator interface {
	// Reply appends a reply that came whole.
	Reply(dst, whole []byte) ([]byte, error)
	// Event appends what the agent is told of the data of one event of a stream,
	// and End what is missing behind the last one. Their errors say that the
	// backend's stream is none of its form, or not complete.
	Event(dst, data []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
	// Fail appends the event that tells the agent that the stream failed.
	Fail(dst []byte, e openai.Error) []byte
	// Done reports whether the last event has been appended.
	Done() bool
}

// wantsIDs says whether a backend is asked for token ids and log-probabilities.
func (c *call) wantsIDs(b *backend) bool {
	return c.recorded() && b.API == APIOpenAI && !b.TextOnly
}

// plan makes the plan of a call for a backend.
func (c *call) plan(request *openai.Request, b *backend) (*plan, *failure) {
	pl, err := c.planFor(request, b)
	var f *failure
	var field *openai.FieldError
	switch {
	case err == nil:
		return pl, nil
	case errors.As(err, &f):
		return nil, f
	case errors.As(err, &field):
		f = fail(http.StatusBadRequest, openai.InvalidRequestError, "unsupported_field", field.Error())
		f.body.Param = field.Field
	default:
		f = fail(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", err.Error())
	}
	return nil, f
}

func (c *call) planFor(request *openai.Request, b *backend) (*plan, error) {
	ids, agent := c.wantsIDs(b), formOf(c.path)
	pl := &plan{form: agent, path: c.path}
	switch {
	case c.path == countTokens && b.API != APIAnthropic:
		return c.countPlan(b)
	case !generates(c.path):
		if b.API == APIAnthropic && !strings.HasPrefix(c.path, "/messages/") {
			return nil, c.noSuchPath("Anthropic's API has nothing like it")
		}
		pl.body = c.request
		pl.rename(request, c, b)
		return pl, nil
	case agent == formCompletion && b.API == APIAnthropic:
		return nil, c.noSuchPath("Anthropic's API has no completions; use …/messages or …/chat/completions")
	case agent == formCompletion && c.recorded() && request.Prompts != 1:
		return nil, openai.Unsupported("prompt", "got %d prompts: inside an attempt a call has one, so that its record is one prompt and its replies", request.Prompts)
	case agent == formCompletion, agent == formChat && b.API != APIAnthropic:
		pl.replay = ids && c.replays(b) && request.Stream && agent == formChat
		pl.usage = !request.Hide.Usage
		pl.same(c, request, b, openai.Ask{TokenIDs: ids, Usage: c.recorded(), Whole: pl.replay, Salt: b.salt(), Completion: agent == formCompletion})
		return pl, nil
	case agent == formMessages && b.API == APIAnthropic:
		pl.rename(request, c, b)
		return pl, nil
	case agent == formResponses && b.API != APIAnthropic && !b.ChatOnly && !ids:
		pl.same(c, request, b, openai.Ask{Salt: b.salt()})
		return pl, nil
	default:
		return pl, pl.across(c, request, b, ids)
	}
}

// rename plans a call that goes to the backend as it is, but for the model's name.
func (pl *plan) rename(request *openai.Request, c *call, b *backend) {
	pl.same(c, request, b, openai.Ask{})
}

// same plans a call whose backend speaks the agent's form.
func (pl *plan) same(c *call, request *openai.Request, b *backend, ask openai.Ask) {
	pl.body = c.request
	if ask.TokenIDs || ask.Usage || ask.Salt != "" || b.BackendModel != request.Model {
		pl.body = request.AppendBody(make([]byte, 0, len(c.request)+len(b.BackendModel)+96), c.request, b.BackendModel, ask)
	}
	if ask.TokenIDs {
		pl.hide = request.Hide
	}
	pl.hide.Usage = ask.Usage && request.Hide.Usage
}

// across plans a call that is translated: what the agent says becomes a request
// for a chat completion, and for Anthropic that becomes one for a message.
func (pl *plan) across(c *call, request *openai.Request, b *backend, ids bool) error {
	hosted := b.TextOnly || b.API == APIAzure
	var near, far translator // of the agent's form and of the backend's
	var err error
	pl.asked = c.request
	switch pl.form {
	case formMessages:
		near = &anthropic.ChatReply{}
		pl.asked, err = anthropic.ToChat(pl.asked, anthropic.ChatOptions{Hosted: hosted})
	case formResponses:
		o := openai.ResponsesOptions{Hosted: hosted, Created: c.start.Unix(), ID: "resp_" + newSpanIDs().trace}
		near, pl.asked, err = responsesToChat(pl.asked, o)
	}
	if err != nil {
		return err
	}
	usage := pl.form != formChat || !request.Hide.Usage
	pl.form, pl.path = formChat, "/chat/completions"
	if b.API == APIAnthropic {
		if pl.asked, err = anthropic.FromChat(pl.asked); err != nil {
			return err
		}
		far = &anthropic.MessageReply{Created: c.start.Unix(), Usage: usage}
		pl.form, pl.path = formMessages, "/messages"
	}
	inner, err := openai.ParseRequest(pl.asked)
	if err != nil {
		return err
	}
	pl.replay, pl.usage = ids && c.replays(b) && request.Stream, true
	pl.body = inner.AppendBody(nil, pl.asked, b.BackendModel, openai.Ask{TokenIDs: ids, Whole: pl.replay, Salt: b.salt()})
	switch {
	case far == nil:
		pl.translate = near
	case near == nil:
		pl.translate = far
	default:
		pl.translate = &twoSteps{near: near, far: far}
	}
	return nil
}

func responsesToChat(body []byte, o openai.ResponsesOptions) (translator, []byte, error) {
	chat, reply, err := openai.ResponsesToChat(body, o)
	return reply, chat, err
}

// twoSteps translates by way of Chat Completions.
type twoSteps struct {
	near, far translator // of the agent's form, of the backend's
	events    openai.Events
}

func (t *twoSteps) Reply(dst, whole []byte) ([]byte, error) {
	chat, err := t.far.Reply(nil, whole)
	if err != nil {
		return dst, err
	}
	return t.near.Reply(dst, chat)
}

func (t *twoSteps) Event(dst, data []byte) ([]byte, error) {
	chat, err := t.far.Event(nil, data)
	if err != nil {
		return dst, err
	}
	return t.pass(dst, chat)
}

func (t *twoSteps) pass(dst, chat []byte) (_ []byte, err error) {
	t.events.Write(chat)
	for event := t.events.Next(); event != nil; event = t.events.Next() {
		if dst, err = t.near.Event(dst, openai.Data(event)); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (t *twoSteps) End(dst []byte) ([]byte, error) {
	chat, err := t.far.End(nil)
	if err != nil {
		return dst, err
	}
	if dst, err = t.pass(dst, chat); err != nil {
		return dst, err
	}
	return t.near.End(dst)
}

func (t *twoSteps) Fail(dst []byte, e openai.Error) []byte { return t.near.Fail(dst, e) }

func (t *twoSteps) Done() bool { return t.near.Done() }

func (c *call) noSuchPath(why string) *failure {
	return fail(http.StatusNotFound, openai.InvalidRequestError, "unknown_url", "POST "+c.path+" is not to be had for the model "+c.model+": "+why)
}

// countTokens is the path at which Anthropic's clients count a request's tokens.
const countTokens = "/messages/count_tokens"

// serverRoot, in front of a path, means that it is not beneath the /v1 of the
// base URL but beside it.
const serverRoot = "/.."

// countPlan plans the count of a request's tokens by an engine. vLLM has it at
// /tokenize, beside /v1.
func (c *call) countPlan(b *backend) (*plan, error) {
	if b.API != APIOpenAI || b.TextOnly {
		return nil, c.noSuchPath("its backend does not count the tokens of requests")
	}
	body, err := anthropic.ToTokenize(c.request)
	if err != nil {
		return nil, err
	}
	request, err := openai.ParseRequest(body)
	if err != nil {
		return nil, err
	}
	return &plan{
		form: formChat, path: serverRoot + "/tokenize", translate: &anthropic.TokenCount{},
		body: request.AppendBody(nil, body, b.BackendModel, openai.Ask{}),
	}, nil
}

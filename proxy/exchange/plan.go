package exchange

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/httpbody"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/proxy/upstream"
)

// plan is the request to a backend, and how the backend's reply is turned into the
// agent's reply.
type plan struct {
	upstream.Message

	form record.Form // of the message and its reply
	// asked is the body in the backend's form, for the record; nil where that is the
	// agent's form.
	asked   []byte
	checked *openai.Checked // of what is recorded as the request
	// translate is nil where agent and backend speak the same form.
	translate translator
	// hide says which members the agent did not ask for, in a reply of its own form.
	hide openai.Hide
	// replay is set if the agent wants a stream and the backend is asked for the whole
	// reply. usage is set if the agent wants usage in that stream.
	replay, usage bool
}

// planner makes the plans of one call, one for each backend that is tried. A backend
// that is tried again gets the same plan.
type planner struct {
	path     string
	body     []byte
	request  openai.Request
	start    time.Time
	recorded bool
	measured bool // the backend is asked for its usage, because a budget counts tokens

	targets []upstream.Target
	plans   []*plan
}

// of returns the plan for a backend that has been tried, nil for others.
func (p *planner) of(to upstream.Target) *plan {
	for i := range p.targets {
		if p.targets[i] == to {
			return p.plans[i]
		}
	}
	return nil
}

// message plans the call for a backend. Its error is an *openai.Error.
func (p *planner) message(to upstream.Target) (*upstream.Message, error) {
	if known := p.of(to); known != nil {
		return &known.Message, nil
	}
	pl, err := p.plan(to)
	if err != nil {
		return nil, planError(err)
	}
	pl.Streams = p.request.Stream && !pl.replay && Generates(p.path)
	pl.StreamsIDs = pl.Streams && p.wantsIDs(to) && p.path != "/completions"
	p.targets, p.plans = append(p.targets, to), append(p.plans, pl)
	return &pl.Message, nil
}

// free ends all reading of the request's body.
func (p *planner) free() {
	for _, pl := range p.plans {
		pl.Body.Free()
	}
}

// planError turns the error of a plan into the answer to the agent.
func planError(err error) *openai.Error {
	if e, ok := errors.AsType[*openai.Error](err); ok {
		return e
	}
	e := openai.NewError(http.StatusBadRequest, openai.InvalidRequestError, "invalid_body", err.Error())
	if field, ok := errors.AsType[*openai.FieldError](err); ok {
		e.Code, e.Param = "unsupported_field", field.Field
	}
	return e
}

// wantsIDs reports whether a backend is asked for token ids and log-probabilities.
func (p *planner) wantsIDs(to upstream.Target) bool {
	return p.recorded && to.API == upstream.APIOpenAI && !to.TextOnly
}

func (p *planner) plan(to upstream.Target) (*plan, error) {
	ids, agent := p.wantsIDs(to), formOf(p.path)
	pl := &plan{form: agent, checked: p.request.Checked, Message: upstream.Message{Path: p.path}}
	switch {
	case p.path == CountTokens && to.API != upstream.APIAnthropic:
		return p.countPlan(to)
	case !Generates(p.path):
		if to.API == upstream.APIAnthropic && !strings.HasPrefix(p.path, "/messages/") {
			return nil, p.noSuchPath("Anthropic's API does not have it")
		}
		p.planSame(pl, to, openai.Ask{})
		return pl, nil
	case agent == record.Completion && to.API == upstream.APIAnthropic:
		return nil, p.noSuchPath("Anthropic's API has no completions; use …/messages or …/chat/completions")
	case agent == record.Completion && p.recorded && p.request.Prompts != 1:
		return nil, openai.Unsupported("prompt", "got %d prompts: inside an attempt a call has one, so that its record is one prompt and its replies", p.request.Prompts)
	case agent == record.Completion, agent == record.Chat && to.API != upstream.APIAnthropic:
		pl.replay = ids && to.Unstreamed && p.request.Stream && agent == record.Chat
		pl.usage = !p.request.Hide.Usage
		p.planSame(pl, to, openai.Ask{TokenIDs: ids, Usage: p.recorded || p.measured, Unstreamed: pl.replay, Salt: to.Salt(), Completion: agent == record.Completion})
		return pl, nil
	case agent == record.Messages && to.API == upstream.APIAnthropic:
		p.planSame(pl, to, openai.Ask{})
		return pl, nil
	case agent == record.Responses && to.API != upstream.APIAnthropic && !to.ChatOnly && !ids:
		if p.background() {
			return nil, openai.Unsupported("background", "got true: the reply cannot be fetched through the proxy; leave it out, or ask for a stream")
		}
		p.planSame(pl, to, openai.Ask{Salt: to.Salt()})
		return pl, nil
	default:
		return pl, p.planTranslated(pl, to, ids)
	}
}

// background reports whether the backend would answer before it has a reply, and tell the reply only to those who ask for it later.
func (p *planner) background() bool {
	asked, _ := rawjson.Get(p.body, "background")
	return !p.request.Stream && string(asked) == "true"
}

// planSame plans a call whose backend speaks the agent's form. In its body only the model's
// name and the members of ask change.
func (p *planner) planSame(pl *plan, to upstream.Target, ask openai.Ask) {
	pl.Body = httpbody.New(p.request.Body(p.body, to.BackendModel, ask)...)
	if ask.TokenIDs {
		pl.hide = p.request.Hide
	}
	pl.hide.Usage = ask.Usage && p.request.Hide.Usage
}

// planTranslated plans a call that is translated: the agent's request becomes one for a chat
// completion, and for Anthropic that becomes one for a message.
func (p *planner) planTranslated(pl *plan, to upstream.Target, ids bool) error {
	hosted := to.TextOnly || to.API == upstream.APIAzure
	var near, far translator // of the agent's form and of the backend's
	var err error
	pl.asked = p.body
	switch pl.form {
	case record.Messages:
		near = &anthropic.ChatReply{}
		pl.asked, err = anthropic.ToChat(pl.asked, anthropic.ChatOptions{Hosted: hosted})
	case record.Responses:
		pl.asked, near, err = openai.ResponsesToChat(pl.asked, openai.ResponsesOptions{Hosted: hosted, Created: p.start.Unix(), ID: "resp_" + randomid.Hex(16)})
	case record.Chat, record.Completion:
	}
	if err != nil {
		return err
	}
	usage := pl.form != record.Chat || !p.request.Hide.Usage
	pl.form, pl.Path = record.Chat, "/chat/completions"
	if to.API == upstream.APIAnthropic {
		if pl.asked, err = anthropic.FromChat(pl.asked); err != nil {
			return err
		}
		far = &anthropic.MessageReply{Created: p.start.Unix(), Usage: usage}
		pl.form, pl.Path = record.Messages, "/messages"
	}
	inner, err := openai.ParseRequest(pl.asked)
	if err != nil {
		return err
	}
	pl.checked = inner.Checked
	pl.replay, pl.usage = ids && to.Unstreamed && p.request.Stream, true
	pl.Body = httpbody.New(inner.Body(pl.asked, to.BackendModel, openai.Ask{TokenIDs: ids, Unstreamed: pl.replay, Salt: to.Salt()})...)
	switch {
	case far == nil:
		pl.translate = near
	case near == nil:
		pl.translate = far
	default:
		pl.translate = &twoSteps{near: near, far: far}
	}
	pl.Translated = true
	return nil
}

// unknownURL is the code of the error for a path that the backend of a model does not have.
const unknownURL = "unknown_url"

func (p *planner) noSuchPath(why string) *openai.Error {
	return openai.NewError(http.StatusNotFound, openai.InvalidRequestError, unknownURL, "POST "+p.path+" is not available for the model "+p.request.Model+": "+why)
}

// CountTokens is the path at which Anthropic's clients count the tokens of a request.
const CountTokens = "/messages/count_tokens"

// countPlan plans Anthropic's request to count tokens, for the tokenizer of vLLM.
func (p *planner) countPlan(to upstream.Target) (*plan, error) {
	if to.API != upstream.APIOpenAI || to.TextOnly {
		return nil, p.noSuchPath("its backend does not count the tokens of requests")
	}
	body, err := anthropic.ToTokenize(p.body)
	if err != nil {
		return nil, err
	}
	request, err := openai.ParseRequest(body)
	if err != nil {
		return nil, err
	}
	return &plan{form: record.Chat, translate: &anthropic.TokenCount{}, Message: upstream.Message{
		Path: tokenizePath, Body: httpbody.New(request.Body(body, to.BackendModel, openai.Ask{})...), Translated: true,
	}}, nil
}

// formOf returns the wire form of calls to a path.
func formOf(path string) record.Form {
	switch path {
	case "/messages":
		return record.Messages
	case "/responses":
		return record.Responses
	case "/completions":
		return record.Completion
	default:
		return record.Chat
	}
}

// Generates reports whether calls to a path make a model generate a reply.
func Generates(path string) bool {
	return path == "/chat/completions" || path == "/completions" || path == "/responses" || path == "/messages"
}

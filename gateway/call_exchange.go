package gateway

import (
	"bytes"
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// write sends the agent a reply that arrived in one piece.
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

// exchange is one model call and its result.
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
	reserved         *reservedCall
	lost             bool           // the backend may have executed the last attempt, whose answer is lost
	status           int            // of the backend
	answered         int            // that the agent gets
	reply            jsontext.Value // that the agent gets
	response         jsontext.Value // that is recorded
	experts          jsontext.Value // nil if there are none
}

var errTimedOut = errStatus(http.StatusGatewayTimeout, "Upstream model server timed out")

var errUpstreamTimeout = errors.New("the backend timed out")

// reply is the answer of a backend.
type reply struct {
	status   int
	kind     string // the content type
	encoding string // empty is none
	body     []byte
	tooLong  bool
}

// take reads a backend's reply. A reply with a content type other than JSON becomes {}. JSON that is not an object,
// and a reply that is encoded, is an error of the backend, and is answered and recorded as one. Invalid UTF-8 is
// replaced, because it could not be recorded.
func (x *exchange) take(got *reply) {
	x.status, x.answered = got.status, got.status
	x.reply = jsontext.Value("{}")
	if got.encoding != "" {
		if got.status < http.StatusMultipleChoices {
			x.answered = http.StatusBadGateway
		}
		x.reply = openai.NewError(x.answered, openai.APIError, "backend_reply_unusable",
			"The reply of the model server is encoded as "+got.encoding+", which was not asked for: switch its compression off").AppendJSON(nil)
	} else if strings.HasPrefix(got.kind, "application/json") || x.stream != nil && x.stream.begun {
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

// popExperts moves the routed experts out of the reply: they are for training only.
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
	x.reply = rawjson.Set(x.reply, "choices", arrayOf(out))
}

// fault says what is wrong with the answer, "" if nothing is.
func (x *exchange) fault() string {
	switch {
	case x.answered != x.status:
		return openai.ErrorFrom(x.answered, x.response).Message
	case x.answered >= http.StatusMultipleChoices: // a redirect is no completion
		return "the backend answered " + strconv.Itoa(x.status)
	case x.stream != nil && x.stream.fault != "":
		return x.stream.fault
	}
	if failure, _ := rawjson.Get(x.response, "error"); openai.Failed(failure) && firstChoice(x.response) == nil {
		return "the backend answered " + strconv.Itoa(x.status) + " with an error"
	}
	return ""
}

// event returns the event that records the call.
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
	if x.fault() != "" {
		state = "error"
	}
	o.String("status", state)
	o.Int("retry_count", int64(x.retries))
	o.Raw("routed_experts", x.experts)
	usage, _ := rawjson.Get(x.response, "usage")
	if usage.Kind() != '{' {
		usage = nil
	}
	o.Raw("usage", usage)
	reason, _ := rawjson.Get(firstChoice(x.response), "finish_reason")
	if reason.Kind() != '"' || falsy(reason) {
		reason = nil
	}
	o.Raw("finish_reason", reason)
	e.data = o.End()
	return e
}

// span returns the span that stores the event: a model call as the proxy records it.
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
	if fault := x.fault(); fault != "" {
		s.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(fault)}
		in.Fail(record.SourceProvider, fault)
	}
	var b record.Builder
	s.Attributes = b.AppendAttributes(make([]byte, 0, len(x.request)+len(x.response)+512), in, &record.Position{Name: s.SpanID})
	return s
}

// translated returns the answer in the form of the agent's API.
func (x *exchange) translated() (answer jsontext.Value, err error) {
	if x.answered >= http.StatusMultipleChoices {
		return openai.ErrorFrom(x.answered, x.reply).AppendJSON(nil), nil
	}
	if !x.wantsStream {
		return x.translator.Reply(nil, x.reply)
	}
	// The backend has answered in one piece.
	events, ok := openai.Replay(nil, x.reply, true)
	if !ok {
		return nil, errNoCompletion
	}
	var split openai.Events
	split.Write(events)
	for event := split.Next(); event != nil; event = split.Next() {
		if answer, err = x.translator.Event(answer, openai.Data(event)); err != nil {
			return nil, err
		}
	}
	return x.translator.End(answer)
}

var errNoCompletion = errors.New("it is not a chat completion")

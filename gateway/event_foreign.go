package gateway

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/record"
)

// foreignEvent reads a span that did not arrive through this API as an event: a model call that the proxy recorded,
// or a reward. ok is false for other spans. Such spans belong to attempts of the store's runners; this API knows the
// latest attempt as "0".
func foreignEvent(payload jsontext.Value, attemptID string) (e event, ok bool) {
	attributes, _ := rawjson.Get(payload, "attributes")
	of, _ := rawjson.Get(payload, "attempt_id")
	if attributes.Kind() != '{' || rawjson.Unquote(of) != attemptID {
		return e, false
	}
	end, _ := rawjson.Get(payload, "end_time")
	seconds, _ := strconv.ParseFloat(string(end), 64) // null is 0
	e = event{attemptID: defaultAttempt, timestamp: agl.Timestamp(seconds)}
	name, _ := rawjson.Get(payload, "name")
	if rawjson.Unquote(name) == agl.SpanLiteLLMRequest {
		e.kind, e.data = eventModelRequest, foreignCall(payload, attributes)
		return e, true
	}
	value, ok := rawjson.Get(attributes, agl.AttrReward+".0.value")
	if !ok {
		return e, false
	}
	o := rawjson.NewObject(nil)
	o.Raw("value", value)
	e.kind, e.data = eventReward, o.End()
	return e, true
}

// foreignCall returns the data of a model call, from its span. A call whose stream broke off, or whose agent left, has failed whatever
// its HTTP status is.
func foreignCall(payload, attributes jsontext.Value) jsontext.Value {
	values := fieldsOf(attributes)
	or := func(name string, other jsontext.Value) jsontext.Value {
		if v := values[name]; v != nil {
			return v
		}
		return other
	}
	model, version := values[agl.AttrGenAIRequestModel], rawjson.Null()
	if n, err := strconv.ParseInt(rawjson.Unquote(values[agl.AttrModelVersion]), 10, 64); err == nil {
		version = rawjson.AppendInt(nil, n)
	}
	var messages [][]byte
	for {
		prefix := agl.AttrGenAIPrompt + "." + strconv.Itoa(len(messages)) + "."
		role := values[prefix+"role"]
		if role == nil {
			break
		}
		o := rawjson.NewObject(nil)
		o.Raw("role", role)
		o.Raw("content", values[prefix+"content"])
		messages = append(messages, o.End())
	}
	request := rawjson.NewObject(nil)
	request.Raw("model", model)
	request.Raw("messages", arrayOf(messages))
	choice := rawjson.NewObject(nil)
	choice.Raw("token_ids", or(agl.AttrResponseTokenIDs, noIDs))
	if raw := jsontext.Value(rawjson.Unquote(values[agl.AttrLogprobsContent])); raw.IsValid(rawjson.Options()) {
		logprobs := rawjson.NewObject(nil)
		logprobs.Raw("content", raw)
		choice.Raw("logprobs", logprobs.End())
	}
	reason := values[agl.AttrGenAICompletion+".0.finish_reason"]
	choice.Raw("finish_reason", reason)
	response := rawjson.NewObject(nil)
	response.Raw("prompt_token_ids", or(agl.AttrPromptTokenIDs, noIDs))
	response.Raw("choices", arrayOf([][]byte{choice.End()}))
	server := rawjson.NewObject(nil)
	server.Raw("model", model)
	server.Raw("endpoint", values[record.AttrBackend])
	server.Raw("version", version)
	status := or("http.response.status_code", jsontext.Value("200"))
	state := "ok"
	of, _ := rawjson.Get(payload, "status")
	code, _ := rawjson.Get(of, "status_code")
	failed := agl.StatusCode(rawjson.Unquote(code)) == agl.StatusError || string(values[record.AttrDelivered]) == "false"
	if n, err := strconv.Atoi(string(status)); failed || err == nil && n >= 400 {
		state = "error"
	}
	o := rawjson.NewObject(nil)
	o.Raw("model", model)
	o.Raw("model_version", version)
	o.Raw("request", request.End())
	o.Raw("response", response.End())
	o.Raw("server", server.End())
	o.Raw("http_status", status)
	o.String("status", state)
	o.Raw("finish_reason", reason)
	return o.End()
}

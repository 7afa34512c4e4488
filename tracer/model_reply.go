package tracer

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// modelReply is a reply, with its choices as those of a chat completion.
type modelReply struct {
	object  jsontext.Value
	choices []jsontext.Value
}

// parseReply reads the body of a reply. With an error it returns what could be read.
func parseReply(form record.Form, body []byte, streamed bool) (r modelReply, err error) {
	r.object = body
	if streamed {
		r.object, err = unstreamed(form, body)
	}
	if !isObject(r.object) {
		return modelReply{}, errors.New("the model's reply is not a JSON object")
	}
	if form == record.Chat {
		choices, _ := rawjson.Get(r.object, "choices")
		r.choices = jsonElements(choices)
	} else {
		for _, choice := range record.ChatChoices(form, r.object) {
			r.choices = append(r.choices, choice)
		}
	}
	if failure, _ := rawjson.Get(r.object, "error"); err == nil && openai.Failed(failure) {
		err = fmt.Errorf("the model failed: %s", failure)
	}
	if err == nil && len(r.choices) == 0 {
		err = errors.New("the model's reply has no choices")
	}
	return r, err
}

// attrs returns the gen_ai attributes of the reply, with the token ids and
// log-probabilities of its first choice.
func (r modelReply) attrs() []agl.Attr {
	var attrs []agl.Attr
	for name, value := range agl.Attributes(r.object).All() {
		switch name {
		case "usage", "prompt_token_ids", "response_token_ids", "token_ids", "choices", "output", "content":
		default:
			attrs = flattenJSON(attrs, agl.AttrGenAIResponse+"."+name, value)
		}
	}
	for i, choice := range r.choices {
		prefix := agl.AttrGenAICompletion + "." + strconv.Itoa(i)
		message, _ := rawjson.Get(choice, "message")
		attrs = appendMessage(attrs, prefix, message)
		if finish, _ := rawjson.Get(choice, "finish_reason"); finish.Kind() == '"' {
			attrs = append(attrs, agl.Attr{Key: prefix + ".finish_reason", Value: rawjson.Text(finish)})
		}
	}
	usage, _ := rawjson.Get(r.object, "usage")
	attrs = appendUsage(attrs, usage)
	prompt, ok := rawjson.Get(r.object, "prompt_token_ids")
	if !ok && len(r.choices) > 0 {
		prompt, _ = rawjson.Get(r.choices[0], "prompt_token_ids") // of Completions
	}
	if isIntegers(prompt) {
		attrs = append(attrs, agl.Attr{Key: agl.AttrPromptTokenIDs, Value: prompt})
	}
	if len(r.choices) == 0 {
		return attrs
	}
	if ids := r.responseIDs(); isIntegers(ids) {
		attrs = append(attrs, agl.Attr{Key: agl.AttrResponseTokenIDs, Value: ids})
	}
	logprobs, _ := rawjson.Get(r.choices[0], "logprobs")
	for _, list := range []struct{ name, key string }{{"content", agl.AttrLogprobsContent}, {"refusal", agl.AttrLogprobsRefusal}} {
		if tokens, _ := rawjson.Get(logprobs, list.name); tokens.Kind() == '[' {
			attrs = append(attrs, agl.Attr{Key: list.key, Value: string(tokens)})
		}
	}
	return attrs
}

// responseIDs finds the token ids of the first choice. Servers put them into the
// choice, into a member of it, or (older ones) beside the choices.
func (r modelReply) responseIDs() jsontext.Value {
	ids, ok := rawjson.Get(r.choices[0], "token_ids")
	if !ok {
		specific, _ := rawjson.Get(r.choices[0], "provider_specific_fields")
		ids, ok = rawjson.Get(specific, "token_ids")
	}
	if !ok {
		all, _ := rawjson.Get(r.object, "response_token_ids")
		if lists := jsonElements(all); len(lists) > 0 {
			return lists[0]
		}
	}
	return ids
}

// isIntegers reports whether a raw value is a list of integers with at least one
// element.
func isIntegers(raw jsontext.Value) bool {
	if raw.Kind() != '[' {
		return false
	}
	var list []int64
	return rawjson.Unmarshal(raw, &list) == nil && len(list) > 0
}

// appendUsage writes the token counts under both names that readers use.
func appendUsage(attrs []agl.Attr, usage jsontext.Value) []agl.Attr {
	for name, value := range agl.Attributes(usage).All() {
		switch name {
		case "prompt_tokens":
			attrs = append(attrs, agl.Attr{Key: agl.AttrGenAIInputTokens, Value: value})
		case "completion_tokens":
			attrs = append(attrs, agl.Attr{Key: agl.AttrGenAIOutputTokens, Value: value})
		}
		attrs = flattenJSON(attrs, "gen_ai.usage."+name, value)
	}
	return attrs
}

func (r modelReply) toolCalls() []toolCall {
	var calls []toolCall
	for _, choice := range r.choices {
		message, _ := rawjson.Get(choice, "message")
		list, _ := rawjson.Get(message, "tool_calls")
		calls = append(calls, toolCallsOf(list)...)
	}
	return calls
}

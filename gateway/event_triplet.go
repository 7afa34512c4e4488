package gateway

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// tripletOf returns the token ids of a recorded call. Malformed replies have none.
func tripletOf(data jsontext.Value) jsontext.Value {
	response, _ := rawjson.Get(data, "response")
	prompt, reply := tokensOf(response)
	o := rawjson.NewObject(nil)
	o.Raw("prompt_token_ids", prompt)
	o.Raw("response_token_ids", reply)
	o.Raw("response_log_probs", logprobsOf(firstChoice(response)))
	server, _ := rawjson.Get(data, "server")
	of := rawjson.NewObject(nil)
	for _, key := range []string{"model", "version"} {
		v, _ := rawjson.Get(server, key)
		of.Raw(key, v)
	}
	o.Raw("server", of.End())
	if experts, ok := rawjson.Get(data, "routed_experts"); ok && experts.Kind() != 'n' {
		o.Raw("routed_experts", experts)
	}
	for _, key := range []string{"http_status", "status"} {
		if v, ok := rawjson.Get(data, key); ok {
			o.Raw(key, v)
		}
	}
	if fault, ok := rawjson.Get(response, "error"); ok {
		o.Raw("error", fault)
	}
	return o.End()
}

var noIDs = jsontext.Value("[]")

// tokensOf returns the token ids of a prompt and its reply: those of the reply itself for chat completions, those of
// the first choice for completions, and those of all chunks if the reply is a list of the chunks of a stream.
func tokensOf(response jsontext.Value) (prompt, reply jsontext.Value) {
	prompt, reply = noIDs, noIDs
	switch response.Kind() {
	case '{':
		if ids, ok := rawjson.Get(response, "prompt_token_ids"); ok {
			prompt = ids
		}
		first := firstChoice(response)
		if first == nil {
			return prompt, reply
		}
		if falsy(prompt) {
			prompt = noIDs
			if ids, ok := rawjson.Get(first, "prompt_token_ids"); ok {
				prompt = ids
			}
		}
		if ids, ok := rawjson.Get(first, "token_ids"); ok {
			reply = ids
		}
	case '[':
		var joined [][]byte
		for piece := range rawjson.Elements(response) {
			if ids, ok := rawjson.Get(piece, "prompt_token_ids"); ok && falsy(prompt) && !falsy(ids) {
				prompt = ids
			}
			if ids, ok := rawjson.Get(firstChoice(piece), "token_ids"); ok && ids.Kind() == '[' {
				joined = slices.AppendSeq(joined, rawjson.Elements(ids))
			}
		}
		reply = arrayOf(joined)
	}
	return prompt, reply
}

// firstChoice returns the first choice of a reply, nil if there is none.
func firstChoice(response jsontext.Value) jsontext.Value {
	choices, _ := rawjson.Get(response, "choices")
	for choice := range rawjson.Elements(choices) {
		if jsontext.Value(choice).Kind() == '{' {
			return choice
		}
		break
	}
	return nil
}

// logprobsOf returns the log-probabilities of a choice, null if there is no choice, or if one is missing or not a finite
// number.
func logprobsOf(choice jsontext.Value) jsontext.Value {
	given, _ := rawjson.Get(choice, "logprobs")
	list, _ := rawjson.Get(given, "content")
	content := list.Kind() == '['
	if !content {
		if list, _ = rawjson.Get(given, "token_logprobs"); list.Kind() != '[' {
			return rawjson.Null()
		}
	}
	out := jsontext.Value{'['}
	for item := range rawjson.Elements(list) {
		v := jsontext.Value(item)
		if content {
			if v.Kind() != '{' {
				return rawjson.Null()
			}
			v, _ = rawjson.Get(v, "logprob")
		}
		f, ok := floatOf(v)
		if !ok {
			return rawjson.Null()
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		if v.Kind() == '0' {
			out = append(out, v...)
		} else {
			out = rawjson.AppendFloat(out, f)
		}
	}
	return append(out, ']')
}

// promptKey returns a key that is the same for equal prompts. ok is false for anything but a list of token ids.
func promptKey(ids jsontext.Value) (key string, ok bool) {
	if ids.Kind() != '[' {
		return "", false
	}
	out := make([]byte, 0, len(ids))
	for id := range rawjson.Elements(ids) {
		if jsontext.Value(id).Kind() != '0' || bytes.ContainsAny(id, ".eE") {
			return "", false
		}
		out = append(append(out, id...), ',')
	}
	return string(out), len(out) > 0
}

// lastOfEachPrompt removes calls that a later call with the same prompt replaces.
func lastOfEachPrompt(events []event) []event {
	last := map[string]int{}
	keys := make([]string, len(events))
	for i := range events {
		if events[i].kind != eventModelRequest {
			continue
		}
		ids, _ := rawjson.Get(events[i].data, "prompt_token_ids")
		if key, ok := promptKey(ids); ok {
			keys[i], last[key] = key, i
		}
	}
	kept := events[:0]
	for i := range events {
		if keys[i] == "" || last[keys[i]] == i {
			kept = append(kept, events[i])
		}
	}
	return kept
}

// dropSupersededExperts removes the routed experts of calls that the next call continues: the experts of its prompt
// include them.
func dropSupersededExperts(events []event) {
	previous := -1
	for i := range events {
		if events[i].kind != eventModelRequest {
			continue
		}
		if experts, ok := rawjson.Get(events[i].data, "routed_experts"); ok && experts.Kind() != 'n' && previous >= 0 && supersedes(events[i].data, events[previous].data) {
			events[previous].data = rawjson.Remove(events[previous].data, "routed_experts")
		}
		previous = i
	}
}

// supersedes reports whether the prompt of a call repeats or extends an earlier call.
func supersedes(data, earlier jsontext.Value) bool {
	list := func(data jsontext.Value) (prompt, reply [][]byte) {
		response, _ := rawjson.Get(data, "response")
		p, r := tokensOf(response)
		return slices.Collect(rawjson.Elements(p)), slices.Collect(rawjson.Elements(r))
	}
	prompt, _ := list(data)
	before, reply := list(earlier)
	same := slices.EqualFunc(prompt, before, bytes.Equal)
	before = append(before, reply...)
	return same || len(prompt) >= len(before) && slices.EqualFunc(prompt[:len(before)], before, bytes.Equal)
}

package record

import (
	"bytes"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// choice is one choice of a reply.
type choice struct {
	message  []byte          // a chat message, raw
	finish   []openai.Member // finish_reason in chat's terms, and the form's own member
	logprobs []byte          // raw list of {"token","logprob",…}
	refusal  []byte          // the same for a refusal
	versions []byte          // raw list, see AttrVersionSpans
}

// read reads a choice of a chat completion or a completion, and returns the token ids of its reply.
func (c *choice) read(members, logprobs []openai.Member, ids *tokenSources) (replyIDs []byte) {
	for _, m := range members {
		switch string(m.Name) {
		case "message":
			c.message = m.Value
		case "text":
			c.message = object(pair{"role", []byte(`"assistant"`)}, pair{"content", m.Value})
		case "finish_reason", "stop_reason":
			c.finish = append(c.finish, m)
		case "token_ids":
			replyIDs = m.Value
		case "prompt_token_ids":
			if ids.prompt == nil {
				ids.prompt = m.Value
			}
		case "meta_info":
			c.versions = listOf(member(m.Value, "weight_versions"))
			if replyIDs == nil {
				replyIDs = secondOfEach(member(m.Value, "output_token_logprobs"))
			}
		}
	}
	var texts, values []byte
	for _, m := range logprobs {
		switch string(m.Name) {
		case "content":
			c.logprobs = listOf(m.Value)
		case "refusal":
			c.refusal = listOf(m.Value)
		case "tokens":
			texts = m.Value
		case "token_logprobs":
			values = m.Value
		}
	}
	if c.logprobs == nil && texts != nil && values != nil {
		c.logprobs = zipLogprobs(texts, values)
	}
	return replyIDs
}

// zipLogprobs returns the log-probabilities of a completion in the form of a chat
// completion.
func zipLogprobs(texts, values []byte) []byte {
	var each [][]byte
	openai.Elements(values, func(value []byte) { each = append(each, value) })
	dst, i := []byte{'['}, 0
	openai.Elements(texts, func(text []byte) {
		if i < len(each) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(dst, `{"token":`...), text...)
			dst = append(append(dst, `,"logprob":`...), each[i]...)
			dst = append(dst, '}')
		}
		i++
	})
	return append(dst, ']')
}

// secondOfEach returns the list of the second elements of a list's lists.
func secondOfEach(lists []byte) []byte {
	if listOf(lists) == nil {
		return nil
	}
	dst := []byte{'['}
	openai.Elements(lists, func(one []byte) {
		i := 0
		openai.Elements(one, func(value []byte) {
			if i == 1 {
				if len(dst) > 1 {
					dst = append(dst, ',')
				}
				dst = append(dst, value...)
			}
			i++
		})
	})
	return append(dst, ']')
}

// member returns the value of a member of an object, or nil.
func member(object []byte, name string) (found []byte) {
	openai.Members(object, func(key, value []byte) {
		if string(key) == name {
			found = value
		}
	})
	return found
}

// listOf returns raw if it is a list, else nil.
func listOf(raw []byte) []byte {
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	return raw
}

// pair is a member of an object that is being written. A nil value is left out.
type pair struct {
	name  string // which needs no escapes
	value []byte
}

func object(pairs ...pair) []byte {
	o := rawjson.NewObject(nil)
	for _, p := range pairs {
		if p.value != nil {
			o.Raw(p.name, p.value)
		}
	}
	return o.End()
}

// array joins elements into a list; without elements it returns nil.
func array(elements [][]byte) []byte {
	if len(elements) == 0 {
		return nil
	}
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}

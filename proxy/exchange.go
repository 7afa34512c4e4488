package proxy

import (
	"bytes"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
)

// exchange is what a record needs of a request and its reply, the same for all
// wire forms. Its slices share the memory of the documents where they can.
type exchange struct {
	request, reply []byte          // JSON objects, or nil
	members        []openai.Member // of the reply
	choices        []choice
	replyText      []byte // a reply that is no JSON object
	responseID     string
	model          []byte // raw
	usage          []byte // raw
	message        string // of an error
	tokens         tokens
}

// choice is one of the alternatives that a reply offers.
type choice struct {
	message  []byte          // a chat message, raw
	finish   []openai.Member // finish_reason in the words of chat, and the form's own
	logprobs []byte          // raw list, {"token","logprob",…} each
	refusal  []byte          // the same of a refusal
	versions []byte          // raw list, see AttrVersionSpans
}

// read takes a call's bytes apart. Nothing but valid JSON gets further.
func (b *builder) read(c *call) exchange {
	var x exchange
	switch {
	case c.asked != nil:
		x.request = c.asked
	case openai.ValidObject(c.request):
		x.request = c.request
	}
	reply := c.reply
	if c.assembled != nil {
		b.reply = c.assembled.AppendJSON(b.reply[:0])
		reply = b.reply
		if c.assembled.Malformed() > 0 {
			c.fail(SourceProvider, strconv.Itoa(c.assembled.Malformed())+" events of the stream could not be read")
		}
	}
	if len(reply) == 0 {
		if c.status > 0 {
			c.fail(SourceProvider, "the reply is empty")
		}
		return x
	}
	if !openai.ValidObject(reply) {
		x.replyText = reply
		c.fail(SourceProvider, "the reply is not a JSON object")
		return x
	}
	x.reply = reply
	var ids tokenSources
	switch c.form {
	case formResponses, formMessages:
		openai.Members(reply, func(name, value []byte) {
			x.members = append(x.members, openai.Member{Name: name, Value: value})
		})
		x.readMembers(&ids)
		if c.form == formResponses {
			x.choices = responsesChoices(x.members)
		} else {
			x.choices = messagesChoices(x.members)
		}
		if len(x.choices) > 0 {
			ids.replies = append(ids.replies, ids.reply)
		}
	default:
		parts := openai.ParseReply(reply)
		x.members = parts.Members
		x.readMembers(&ids)
		x.choices = make([]choice, len(parts.Choices))
		for i := range parts.Choices {
			ids.replies = append(ids.replies, x.choices[i].read(parts.Choices[i].Members, parts.Choices[i].Logprobs, &ids))
		}
		if len(x.choices) > 0 && x.choices[0].versions == nil {
			x.choices[0].versions = ids.versions
		}
	}
	if !c.cut {
		x.tokens = ids.read()
	}
	x.tokens.order = c.order
	b.identify(c, &x)
	return x
}

// tokenSources are the raw lists of token ids that a reply holds, wherever the
// engine puts them. vLLM has the prompt's at the top for chat and in the choice
// for completions, and the reply's in the choice; before version 0.10.2 all
// replies' stood at the top. SGLang has the prompt's in the choice and the
// reply's in its meta_info, as [logprob, id, text].
type tokenSources struct {
	prompt   []byte
	reply    []byte   // of forms without choices
	replies  [][]byte // by choice
	all      []byte   // of all choices
	versions []byte   // of the weights, by token
}

// readMembers reads the members that all forms have alike.
func (x *exchange) readMembers(ids *tokenSources) {
	for _, m := range x.members {
		switch string(m.Name) {
		case "id":
			x.responseID = unquote(m.Value)
		case "model":
			x.model = m.Value
		case "usage":
			x.usage = m.Value
		case "prompt_token_ids":
			ids.prompt = m.Value
		case "token_ids":
			ids.reply = m.Value
		case "response_token_ids":
			ids.all = m.Value
		case "metadata":
			ids.versions = listOf(member(m.Value, "weight_versions"))
		case "error":
			x.message = errorMessage(m.Value)
		}
	}
}

// read reads a choice of a chat completion or a completion and returns its
// token ids.
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

// zipLogprobs gives the log-probabilities of a completion the form that those
// of a chat completion have.
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

// read reads the ids out of where they were found.
func (s *tokenSources) read() tokens {
	t := tokens{prompt: readIDs(s.prompt)}
	for _, ids := range s.replies {
		t.replies = append(t.replies, readIDs(ids))
	}
	i := 0
	openai.Elements(s.all, func(value []byte) {
		if i < len(t.replies) && len(t.replies[i]) == 0 {
			t.replies[i] = readIDs(value)
		}
		i++
	})
	return t
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
	name  string // without anything to escape
	value []byte
}

func object(pairs ...pair) []byte {
	dst := []byte{'{'}
	for _, p := range pairs {
		if p.value == nil {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(append(append(append(dst, '"'), p.name...), `":`...), p.value...)
	}
	return append(dst, '}')
}

// array joins elements to a list; no element is nil.
func array(elements [][]byte) []byte {
	if len(elements) == 0 {
		return nil
	}
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}

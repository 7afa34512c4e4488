package openai

import (
	"strconv"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

// Replay turns a chat completion into the equivalent stream, for backends that cannot
// stream some replies. Each choice has a chunk for its role, for each text of its message
// (reasoning first), for each tool call with its name, for that call's arguments, and
// for the finish reason. A text is never split. Log-probabilities and token ids are in the
// chunk of the choice's first text or call, or else in its last chunk. Other members are in
// the first chunk.
//
// It appends the events including [DONE], and before that, if usage is set, a chunk with
// the usage. ok is false, and nothing is appended, if the reply is not a JSON object with
// a list of choices.
func Replay(dst, reply []byte, usage bool) (_ []byte, ok bool) {
	// A line feed in white space would end a line of the event.
	compact := jsontext.Value(append([]byte(nil), reply...))
	if compact.Compact() != nil || compact.Kind() != '{' {
		return dst, false
	}
	doc := ParseReply(compact)
	r := replay{dst: dst, head: []byte{'{'}}
	listed := false
	for _, m := range doc.Members {
		switch string(m.Name) {
		case "choices":
			listed = m.Value[0] == '['
		case "usage":
			r.usage = m.Value
		case "object":
			r.head = appendMember(r.head, m.Name, []byte(`"chat.completion.chunk"`))
		case "id", "created", "model", "system_fingerprint", "service_tier":
			r.head = appendMember(r.head, m.Name, m.Value)
		default:
			r.first = append(r.first, m)
		}
	}
	if !listed {
		return dst, false
	}
	for i, c := range doc.Choices {
		r.choice(i, c)
	}
	if usage && len(r.usage) > 0 && !rawjson.IsNull(r.usage) {
		r.begin()
		r.dst = appendMember(append(r.dst, ']'), []byte("usage"), r.usage)
		r.dst = append(r.dst, "}\n\n"...)
	}
	return append(r.dst, "data: [DONE]\n\n"...), true
}

type replay struct {
	dst   []byte
	head  []byte   // the beginning of every chunk
	first []Member // further members of the first chunk
	usage []byte

	// These belong to the choice that is being replayed.
	index    []byte
	logprobs []byte // nil if it has none, null once they have been sent
	tokenIDs []byte // nil if it has none, and once they have been sent
}

// begin begins a chunk, up to its choices.
func (r *replay) begin() {
	r.dst = append(append(r.dst, "data: "...), r.head...)
	for _, m := range r.first {
		r.dst = appendMember(r.dst, m.Name, m.Value)
	}
	r.first = nil
	r.dst = append(appendName(r.dst, []byte("choices")), '[')
}

// chunk appends a chunk with one delta. With carry it also has the log-probabilities and token
// ids, unless they have been sent.
func (r *replay) chunk(delta []byte, carry bool, finish []Member) {
	r.begin()
	r.dst = append(append(r.dst, `{"index":`...), r.index...)
	r.dst = appendMember(r.dst, []byte("delta"), delta)
	if r.logprobs != nil {
		now := null
		if carry {
			now, r.logprobs = r.logprobs, null
		}
		r.dst = appendMember(r.dst, []byte("logprobs"), now)
	}
	if finish == nil {
		r.dst = appendMember(r.dst, []byte("finish_reason"), null)
	}
	for _, m := range finish {
		r.dst = appendMember(r.dst, m.Name, m.Value)
	}
	if carry && r.tokenIDs != nil {
		r.dst = appendMember(r.dst, []byte("token_ids"), r.tokenIDs)
		r.tokenIDs = nil
	}
	r.dst = append(r.dst, "}]}\n\n"...)
}

func (r *replay) choice(i int, c Choice) {
	r.index, r.logprobs, r.tokenIDs = strconv.AppendInt(nil, int64(i), 10), nil, nil
	var message []byte
	finish := make([]Member, 0, 4)
	for _, m := range c.Members {
		switch string(m.Name) {
		case "index":
			r.index = m.Value
		case "message":
			message = m.Value
		case "logprobs":
			r.logprobs = m.Value
		case "token_ids":
			r.tokenIDs = m.Value
		default:
			finish = append(finish, m)
		}
	}
	first, texts, calls := []byte{'{'}, [][]byte(nil), []byte(nil)
	Members(message, func(name, value []byte) {
		switch key := string(name); {
		case key == "tool_calls" && value[0] == '[':
			calls = value
		case value[0] != '"' || key == "role":
			if !rawjson.IsNull(value) || key == "content" {
				first = appendMember(first, name, value)
			}
		default:
			text := append(appendMember([]byte{'{'}, name, value), '}')
			if key == "content" {
				first = appendMember(first, name, []byte(`""`))
			}
			switch {
			case len(value) == len(`""`):
			case key == "reasoning" || key == "reasoning_content":
				texts = append([][]byte{text}, texts...)
			default:
				texts = append(texts, text)
			}
		}
	})
	r.chunk(append(first, '}'), false, nil)
	for _, text := range texts {
		r.chunk(text, true, nil)
	}
	n := 0
	Elements(calls, func(call []byte) {
		r.call(n, call)
		n++
	})
	r.chunk([]byte("{}"), true, finish)
}

// call replays a tool call: its id and name, then its arguments.
func (r *replay) call(i int, call []byte) {
	open := append([]byte(`{"tool_calls":[{"index":`), strconv.Itoa(i)...)
	announce, arguments := append([]byte(nil), open...), []byte(nil)
	Members(call, func(name, value []byte) {
		switch {
		case string(name) == "index":
		case string(name) != "function" || value[0] != '{':
			announce = appendMember(announce, name, value)
		default:
			announce = append(appendName(announce, name), '{')
			Members(value, func(name, value []byte) {
				if string(name) == "arguments" && value[0] == '"' {
					arguments, value = value, []byte(`""`)
				}
				announce = appendMember(announce, name, value)
			})
			announce = append(announce, '}')
		}
	})
	r.chunk(append(announce, "}]}"...), true, nil)
	if len(arguments) > len(`""`) {
		open = append(append(open, `,"function":{"arguments":`...), arguments...)
		r.chunk(append(open, "}}]}"...), false, nil)
	}
}

package anthropic_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
)

const messageStart = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":2,"output_tokens":1}}}`

const (
	toolsEnd = `{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}`
	textEnd  = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`
	theEnd   = `{"type":"message_stop"}`
)

func callStart(index, id string) string {
	return `{"type":"content_block_start",` + index + `"content_block":{"type":"tool_use","id":"` + id + `","name":"look","input":{}}}`
}

func callDelta(index, piece string) string {
	return `{"type":"content_block_delta",` + index + `"delta":{"type":"input_json_delta","partial_json":"` + piece + `"}}`
}

const textDelta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`

func blockStop(index string) string {
	return `{"type":"content_block_stop",` + strings.TrimSuffix(index, ",") + `}`
}

// What gateways make of a stream of Messages: the agent gets each text and each call whole, and the record has the same.
func TestSloppyStreams(t *testing.T) {
	t.Parallel()
	const at0, at1 = `"index":0,`, `"index":1,`
	for name, tt := range map[string]struct {
		datas        []string
		chat, record []string // in order, what the completion and the message have
	}{
		"calls in each other": {
			datas: []string{callStart(at0, "t1"), callStart(at1, "t2"), callDelta(at0, `{\"a\":`), callDelta(at1, `{\"b\":2}`), callDelta(at0, `1}`), blockStop(at0), blockStop(at1), toolsEnd, theEnd},
			chat:  []string{`"id":"t1"`, `"arguments":"{\"a\":1}"`, `"id":"t2"`, `"arguments":"{\"b\":2}"`, `"finish_reason":"tool_calls"`}, record: []string{`"id":"t1"`, `"input":{"a":1}`, `"id":"t2"`, `"input":{"b":2}`},
		},
		"one index for all": {
			datas: []string{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`, textDelta, blockStop(at0), callStart(at0, "t1"), callDelta(at0, `{\"a\":1}`), blockStop(at0), toolsEnd, theEnd},
			chat:  []string{`"content":"hi"`, `"arguments":"{\"a\":1}"`}, record: []string{`"input":{"a":1}`},
		},
		"no index": {
			datas: []string{callStart("", "t1"), callDelta("", `{\"a\":1}`), callStart("", "t2"), callDelta("", `{\"b\":2}`), toolsEnd, theEnd},
			chat:  []string{`"id":"t1"`, `"arguments":"{\"a\":1}"`, `"id":"t2"`, `"arguments":"{\"b\":2}"`}, record: []string{`"input":{"a":1}`, `"input":{"b":2}`},
		},
		"gaps": {
			datas: []string{callStart(`"index":3,`, "t1"), callDelta(`"index":3,`, `{\"a\":1}`), blockStop(`"index":3,`), callStart(at1, "t2"), callDelta(at1, `{\"b\":2}`), blockStop(at1), toolsEnd, theEnd},
			chat:  []string{`"id":"t1"`, `"arguments":"{\"a\":1}"`, `"id":"t2"`, `"arguments":"{\"b\":2}"`}, record: []string{`"input":{"a":1}`, `"input":{"b":2}`},
		},
		"blocks without an end": {
			datas: []string{
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`, callStart(at1, "t1"), toolsEnd, theEnd,
			},
			chat: []string{`"signature":"sig"`, `"reasoning_content":"hm"`, `"arguments":"{}"`}, record: []string{`"signature":"sig"`, `"input":{}`},
		},
		"a text without a beginning": {
			datas: []string{textDelta, textEnd, theEnd},
			chat:  []string{`"content":"hi"`}, record: []string{`"content":[{`, `"text":"hi"`},
		},
		"a tool that runs at the backend": {
			datas: []string{callStart(at0, "t1"), callDelta(at0, `{}`), blockStop(at0), strings.Replace(callStart(at1, "s1"), "tool_use", "server_tool_use", 1), callDelta(at1, `{\"q\":1}`), blockStop(at1), toolsEnd, theEnd},
			chat:  []string{`"id":"t1"`, `"arguments":"{}"`}, record: []string{`"server_tool_use"`, `"input":{"q":1}`},
		},
		"a usage after the reason": {
			datas: []string{callStart(at0, "t1"), toolsEnd, `{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":16}}`, theEnd},
			chat:  []string{`"completion_tokens":16`, `"finish_reason":"tool_calls"`}, record: []string{`"stop_reason":"tool_use"`, `"output_tokens":16`},
		},
		"calls without a reason": {
			datas: []string{callStart(at0, "t1"), theEnd},
			chat:  []string{`"finish_reason":"tool_calls"`}, record: []string{`"id":"t1"`},
		},
		"[DONE] in place of message_stop": {
			datas: []string{textDelta, textEnd, `[DONE]`},
			chat:  []string{`"content":"hi"`, `"finish_reason":"stop"`}, record: []string{`"text":"hi"`},
		},
		"a usage that is none": {
			datas: []string{textDelta, strings.Replace(textEnd, `15`, `"15"`, 1), theEnd},
			chat:  []string{`"prompt_tokens":0`, `"content":"hi"`}, record: []string{`"text":"hi"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			datas := append([]string{messageStart}, tt.datas...)
			var record anthropic.Accumulator
			for _, data := range datas {
				record.Add([]byte(data))
			}
			var chat openai.Accumulator
			for event := range bytes.SplitSeq(stream(t, &anthropic.MessageReply{Usage: true}, datas...), []byte("\n\n")) {
				chat.Add(openai.Data(event))
			}
			inOrder(t, chat.AppendJSON(nil), tt.chat)
			inOrder(t, record.AppendJSON(nil), tt.record)
			if !chat.Complete() || !record.Complete() || record.Malformed() > 0 {
				t.Errorf("complete: %v and %v, malformed: %d", chat.Complete(), record.Complete(), record.Malformed())
			}
		})
	}
}

func inOrder(t *testing.T, doc []byte, want []string) {
	t.Helper()
	rest := string(doc)
	for _, part := range want {
		_, after, ok := strings.Cut(rest, part)
		if !ok {
			t.Errorf("no %s, in this order, in %s", part, doc)
			return
		}
		rest = after
	}
}

// Some backends of Chat Completions send an empty error, and an empty finish reason, with each chunk.
func TestSloppyChunks(t *testing.T) {
	t.Parallel()
	var record anthropic.Accumulator
	for event := range bytes.SplitSeq(stream(
		t, &anthropic.ChatReply{},
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":""}]}`,
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`,
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{},"finish_reason":""}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		`[DONE]`,
	), []byte("\n\n")) {
		record.Add(openai.Data(event))
	}
	inOrder(t, record.AppendJSON(nil), []string{`"stop_reason":"max_tokens"`, `"text":"hi"`, `"output_tokens":2`})
}

// Some services send the content of a reply in parts, what the model thinks among them.
func TestRepliesInParts(t *testing.T) {
	t.Parallel()
	const parts = `[{"type":"thinking","thinking":[{"type":"text","text":"h"},{"type":"text","text":"m"}]},{"type":"text","text":"h"},{"type":"text","text":"i"}]`
	want := []string{`"type":"thinking"`, `"thinking":"hm"`, `"type":"text"`, `"text":"hi"`}
	whole, err := new(anthropic.ChatReply).Reply(nil, []byte(`{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":`+parts+`},"finish_reason":"stop"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, whole, want)
	var record anthropic.Accumulator
	for event := range bytes.SplitSeq(stream(
		t, &anthropic.ChatReply{}, `{"id":"c","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":`+parts+`},"finish_reason":"stop"}]}`, `[DONE]`,
	), []byte("\n\n")) {
		record.Add(openai.Data(event))
	}
	inOrder(t, record.AppendJSON(nil), want)
	_, reply, err := openai.ResponsesToChat([]byte(`{"model":"m","input":"hi"}`), openai.ResponsesOptions{ID: "resp_1"})
	if err != nil {
		t.Fatal(err)
	}
	response, err := reply.Reply(nil, []byte(`{"id":"c","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":`+parts+`},"finish_reason":"stop"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, response, []string{`"type":"reasoning"`, `"text":"hm"`, `"type":"output_text","text":"hi"`})
}

// An error in a stream is told whatever its shape.
func TestStreamErrors(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`: `"message":"busy"`,
		`{"error":{"message":"busy"}}`:                                          `"message":"busy"`,
		`{"type":"error"}`:                                                      `"type":"error"`,
	} {
		var record anthropic.Accumulator
		record.Add([]byte(messageStart))
		record.Add([]byte(data))
		if !strings.Contains(string(record.Failure()), want) || record.Malformed() > 0 {
			t.Errorf("%s: recorded as %s, %d malformed", data, record.Failure(), record.Malformed())
		}
		if out := stream(t, &anthropic.MessageReply{}, messageStart, data); !bytes.Contains(out, []byte(`"error":{"message":"`)) {
			t.Errorf("%s: told as %s", data, out)
		}
	}
}

// A usage that is no number of tokens costs nobody the reply; an error says what the backend says.
func TestSloppyReplies(t *testing.T) {
	t.Parallel()
	message := func(rest string) string {
		return `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"tool_use","id":"t1","name":"look","input":{}}],` + rest + `}`
	}
	for whole, want := range map[string]string{
		message(`"stop_reason":null,"usage":{"input_tokens":3,"output_tokens":4}`):                            `"finish_reason":"tool_calls"`,
		message(`"stop_reason":"tool_use","usage":{"input_tokens":"3","output_tokens":4}`):                    `"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0`,
		message(`"stop_reason":"tool_use","usage":{"input_tokens":-3,"output_tokens":4.5}`):                   `"prompt_tokens":0`,
		message(`"stop_reason":"tool_use","usage":{"input_tokens":9223372036854775807,"output_tokens":1}`):    `"prompt_tokens":0`,
		message(`"stop_reason":"tool_use","usage":"many"`):                                                    `"prompt_tokens":0`,
		message(`"stop_reason":"tool_use","usage":{"input_tokens":3,"cache_read_input_tokens":null}`):         `"prompt_tokens":3`,
		`{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`:                               `error: busy`,
		`{"choices":[{"message":{"content":"hi"}}]}`:                                                          `type: got "" from the backend, must be message`,
		message(`"error":{"message":"not one"},"stop_reason":"end_turn","usage":{"input_tokens":3}`):          `"finish_reason":"stop"`,
		message(`"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4},"container":{"id":1}`): `"total_tokens":7`,
	} {
		out, err := (&anthropic.MessageReply{}).Reply(nil, []byte(whole))
		if err != nil {
			out = []byte(err.Error())
		}
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s becomes %s, want %s", whole, out, want)
		}
	}
	const chat = `{"id":"c","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":-5,"completion_tokens":"1","prompt_tokens_details":7}}`
	out, err := (&anthropic.ChatReply{}).Reply(nil, []byte(chat))
	if err != nil || !bytes.Contains(out, []byte(`"input_tokens":0`)) {
		t.Errorf("%s becomes %s (%v)", chat, out, err)
	}
	if _, err := (&anthropic.ChatReply{}).Reply(nil, []byte(`{"error":{"message":"busy"}}`)); err == nil || err.Error() != "error: busy" {
		t.Errorf("got %v", err)
	}
}

// Some backends give all calls of a message the index 0.
func TestCallsOfOneIndex(t *testing.T) {
	t.Parallel()
	call := func(id, arguments string) string {
		return `{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"` + id + `","type":"function","function":{"name":"look","arguments":"` + arguments + `"}}]}}]}`
	}
	got := assembled(t, stream(t, &anthropic.ChatReply{}, call("t1", `{\"a\":1}`), call("t2", `{\"b\":2}`), `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"))
	for _, want := range []string{`"id":"t1"`, `"input":{"a":1}`, `"id":"t2"`, `"input":{"b":2}`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}

package anthropic_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with a file of testdata, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// indented is JSON for people.
func indented(t *testing.T, doc []byte) []byte {
	t.Helper()
	v := jsontext.Value(doc)
	if err := v.Indent(jsontext.WithIndent(" "), jsontext.AllowInvalidUTF8(true)); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return append(v, '\n')
}

const messagesRequest = `{"model":"claude","max_tokens":1024,"stream":true,"temperature":1.0,"top_p":0.9,"top_k":40,"seed":7,
"system":[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral"}},{"type":"text","text":"be kind"}],
"stop_sequences":["END"],"metadata":{"user_id":"u-1"},"service_tier":"auto","cache_control":{"type":"ephemeral"},
"thinking":{"type":"enabled","budget_tokens":8192},
"tools":[{"name":"look","description":"look at it","input_schema":{"type":"object","properties":{"at":{"type":"string"}}, "required":["at"]},"cache_control":{"type":"ephemeral"}},
 {"type":"custom","name":"wait","input_schema":{"type":"object"}}],
"tool_choice":{"type":"auto","disable_parallel_tool_use":true},
"messages":[
 {"role":"user","content":"hi \ud83d\ude00"},
 {"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}},{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]},
 {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"let me see"},{"type":"tool_use","id":"t1","name":"look","input":{"at": "sky"}},{"type":"tool_use","id":"t2","name":"wait","input":{}},{"type":"tool_use","id":"t3","name":"wait","input":{"INVALID_JSON":"{\"a\":"}}]},
 {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"blue"},{"type":"tool_result","tool_use_id":"t2","is_error":true,"content":[{"type":"text","text":"no time"},{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"BB=="}}]},{"type":"tool_result","tool_use_id":"t3"},{"type":"text","text":"and?"}]},
 {"role":"assistant","content":"prefilled"}]}`

const chatRequest = `{"model":"claude","stream":true,"stream_options":{"include_usage":true},"temperature":1.0,"top_p":0.9,"top_k":40,"n":1,"stop":"END","user":"u-1","seed":null,"frequency_penalty":0.0,"logprobs":false,"store":false,
"max_completion_tokens":30000,"reasoning_effort":"medium","parallel_tool_calls":false,
"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"},"strict":true}},
"tools":[{"type":"function","function":{"name":"look","description":"look at it","parameters":{"type":"object", "properties":{}}}},{"type":"function","function":{"name":"wait"}}],
"messages":[
 {"role":"system","content":"be brief"},{"role":"developer","content":[{"type":"text","text":"be kind"}]},
 {"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA==","detail":"low"}},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]},
 {"role":"assistant","content":null,"reasoning_content":"hm","thinking_blocks":[{"index":0,"type":"thinking","thinking":"hm","signature":"s"},{"type":"redacted_thinking","data":"zz"}],"tool_calls":[{"id":"t1","type":"function","function":{"name":"look","arguments":"{\"at\": \"sky\"}"}},{"id":"t2","type":"function","function":{"name":"wait","arguments":""}},{"id":"t3","type":"function","function":{"name":"wait","arguments":"{\"a\":"}}]},
 {"role":"tool","tool_call_id":"t1","content":"blue"},{"role":"tool","tool_call_id":"t2","content":[{"type":"text","text":"no time"}]},{"role":"tool","tool_call_id":"t3","content":""},
 {"role":"user","content":"and?"},
 {"role":"assistant","content":"pre","refusal":"filled"}]}`

func TestRequestsGolden(t *testing.T) {
	t.Parallel()
	for name, translate := range map[string]func() ([]byte, error){
		"messages-to-engine": func() ([]byte, error) { return anthropic.ToChat([]byte(messagesRequest), anthropic.ChatOptions{}) },
		"messages-to-hosted": func() ([]byte, error) {
			return anthropic.ToChat([]byte(messagesRequest), anthropic.ChatOptions{Hosted: true})
		},
		"chat-to-messages": func() ([]byte, error) { return anthropic.FromChat([]byte(chatRequest)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := translate()
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".golden.json", indented(t, out))
		})
	}
}

// What cannot be said to the other side is refused by its name.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	user := func(content string) string { return `{"messages":[{"role":"user","content":` + content + `}]}` }
	for body, want := range map[string]string{
		`{"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`: `tools[0].type: got "web_search_20250305"`,
		`{"messages":[],"tool_choice":{"type":"some"}}`:                                `tool_choice.type: got "some"`,
		`{"messages":[],"thinking":{"type":"much"}}`:                                   `thinking.type: got "much"`,
		`{"messages":[],"container":"c"}`:                                              `container: `,
		`{"messages":[],"mcp_servers":[{}]}`:                                           `mcp_servers: `,
		`{"messages":[],"output_config":{"format":{"type":"xml"}}}`:                    `output_config.format.type: got "xml"`,
		`{"messages":[],"system":[{"type":"image"}]}`:                                  `system[0].type: got "image"`,
		`{"messages":7}`:                              `messages: got a number, must be a list`,
		`{"messages":[{"role":7}]}`:                   `messages[0].role: got a number, must be a string`,
		`{"messages":[{"role":"tool","content":""}]}`: `messages[0].role: got "tool"`,
		`[]`:                          `body: got a list, must be an object`,
		user(`[{"type":"document"}]`): `messages[0].content[0].type: got "document"`,
		user(`[{"type":"text"}]`):     `messages[0].content[0].text: must be a string`,
		user(`[{"type":"tool_result","is_error":true,"content":[{"type":"text","text":7}]}]`): `messages[0].content[0].content[0].text: must be a string`,
		user(`7`):            `messages[0].content: got 7, must be a string or a list of content blocks`,
		user(`[7]`):          `messages[0].content[0]: got a number, must be an object`,
		user(`[{"type":7}]`): `messages[0].content[0].type: got a number, must be a string`,
		user(`[{"type":"image","source":{"type":"file"}}]`):                            `messages[0].content[0].source.type: `,
		user(`[{"type":"tool_result","content":[{"type":"search_result"}]}]`):          `messages[0].content[0].content[0].type: got "search_result"`,
		`{"messages":[{"role":"assistant","content":[{"type":"redacted_thinking"}]}]}`: `messages[0].content[0].type: got "redacted_thinking"`,
	} {
		_, err := anthropic.ToChat([]byte(body), anthropic.ChatOptions{})
		refused(t, body, err, want)
	}
	for body, want := range map[string]string{
		`{"messages":[],"n":2}`:                                                                    `n: got 2`,
		`{"messages":[],"logprobs":true}`:                                                          `logprobs: got true`,
		`{"messages":[],"seed":1}`:                                                                 `seed: got 1`,
		`{"messages":[],"frequency_penalty":0.5}`:                                                  `frequency_penalty: got 0.5`,
		`{"messages":[],"logit_bias":{"1":2}}`:                                                     `logit_bias: got {"1":2}`,
		`{"messages":[],"response_format":{"type":"json_object"}}`:                                 `response_format.type: got "json_object"`,
		`{"messages":[],"reasoning_effort":"huge"}`:                                                `reasoning_effort: got "huge"`,
		`{"messages":[],"reasoning_effort":"low","max_tokens":100}`:                                `max_tokens: got 100`,
		`{"messages":[],"tools":[{"type":"custom"}]}`:                                              `tools[0].type: got "custom"`,
		`{"messages":[],"tool_choice":"some"}`:                                                     `tool_choice: got "some"`,
		`{"messages":[],"tool_choice":{"type":"allowed_tools"}}`:                                   `tool_choice: got {"type":"allowed_tools"}`,
		`{"messages":[],"chat_template_kwargs":{"a":1}}`:                                           `chat_template_kwargs: `,
		`{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`:                        `messages[0].content[0].type: got "input_audio"`,
		`{"messages":[{"role":"user","content":"a"},{"role":"system","content":"b"}]}`:             `messages[1].role: got "system" after the start`,
		`{"messages":[{"role":"function","content":"a"}]}`:                                         `messages[0].role: got "function"`,
		`{"messages":[{"role":"tool","content":[{"type":"file"}]},{"role":"user","content":"a"}]}`: `messages[0].content[0].type: got "file"`,
	} {
		_, err := anthropic.FromChat([]byte(body))
		refused(t, body, err, want)
	}
}

// Null is an absent member for OpenAI, and a mistake for Anthropic.
func TestChatWithNulls(t *testing.T) {
	t.Parallel()
	got, err := anthropic.FromChat([]byte(`{"model":"m","messages":[{"role":"user","content":"a","name":null}],"max_tokens":null,"max_completion_tokens":null,"temperature":null,
		"top_p":null,"top_k":null,"stop":null,"stream":null,"user":null,"seed":null,"tool_choice":null,"tools":[{"type":"function","function":{"name":"f","description":null,"strict":null,"parameters":null}}]}`))
	want := `{"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":4096,"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}]}`
	if err != nil || string(got) != want {
		t.Errorf("got\n%s (%v), want\n%s", got, err, want)
	}
}

// A text of the assistant at the end is the beginning of the reply.
func TestPrefill(t *testing.T) {
	t.Parallel()
	const ask, begun = `{"role":"user","content":"a"}`, `{"role":"assistant","content":"{"}`
	call := `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]}`
	for _, tt := range []struct {
		messages, rest string
		hosted, want   bool
	}{
		{messages: ask + "," + begun, want: true},
		{messages: ask + "," + begun, hosted: true},
		{messages: ask + "," + begun, rest: `,"add_generation_prompt":true`},
		{messages: ask + "," + begun + "," + ask},
		{messages: ask + "," + call},
	} {
		got, err := anthropic.ToChat([]byte(`{"model":"m","messages":[`+tt.messages+`]`+tt.rest+`}`), anthropic.ChatOptions{Hosted: tt.hosted})
		if err != nil || strings.Contains(string(got), `"add_generation_prompt":false,"continue_final_message":true`) != tt.want {
			t.Errorf("%+v: got %s (%v)", tt, got, err)
		}
	}
}

func refused(t *testing.T, body string, err error, want string) {
	t.Helper()
	var field *openai.FieldError
	if !errors.As(err, &field) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%s: got %v, want %s", body, err, want)
	}
}

// translator is either direction of a reply.
type translator interface {
	Reply(dst, whole []byte) ([]byte, error)
	Event(dst, data []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
	Done() bool
}

func stream(t testing.TB, to translator, datas ...string) []byte {
	t.Helper()
	var out []byte
	var err error
	for _, data := range datas {
		if out, err = to.Event(out, []byte(data)); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	}
	if out, err = to.End(out); err != nil {
		t.Fatal(err)
	}
	if !to.Done() {
		t.Error("not done")
	}
	return out
}

func chunk(delta, rest string) string {
	return `{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + rest + `}]}`
}

const lastUsage = `{"id":"c-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":8}}}`

// chatStreams are streams of a chat backend.
var chatStreams = map[string][]string{
	"text": {
		chunk(`{"role":"assistant","content":""}`, `,"finish_reason":null`), chunk(`{"content":"one\n\n  "}`, `,"finish_reason":null`), chunk(`{"content":"\ud83d"}`, ``), chunk(`{"content":"\ude00"}`, ``),
		chunk(`{}`, `,"finish_reason":"stop","stop_reason":null`), lastUsage, `[DONE]`,
	},
	"reasoning, text, calls": {
		chunk(`{"role":"assistant","reasoning_content":"hm "}`, ``), chunk(`{"reasoning_content":"so"}`, ``), chunk(`{"content":"I'll look"}`, ``),
		chunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"look","arguments":""}}]}`, ``),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":"}}]}`, ``), chunk(`{"tool_calls":[{"index":0,"function":{"arguments":" \"sky\"}"}}]}`, ``),
		chunk(`{"tool_calls":[{"index":1,"id":"t2","type":"function","function":{"name":"wait","arguments":"{}"}}]}`, ``),
		chunk(`{}`, `,"finish_reason":"stop"`), lastUsage, `[DONE]`,
	},
	"calls in each other": {
		chunk(`{"role":"assistant","tool_calls":[{"index":0,"id":"t1","function":{"name":"look","arguments":"{\"at\":"}},{"index":1,"id":"t2","function":{"name":"wait","arguments":"{\"s\":"}}]}`, ``),
		chunk(`{"tool_calls":[{"index":1,"function":{"arguments":"1}"}}]}`, ``), chunk(`{"content":"ok"}`, ``),
		chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"2}"}}]}`, ``), chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"\n"}}]}`, ``),
		chunk(`{}`, `,"finish_reason":"tool_calls"`), `[DONE]`,
	},
	"stop sequence":   {chunk(`{"content":"a"}`, `,"finish_reason":"stop","stop_reason":"END"`), `[DONE]`},
	"cut by length":   {chunk(`{"tool_calls":[{"index":0,"id":"t1","function":{"name":"look","arguments":"{\"at\":"}}]}`, `,"finish_reason":"length"`), `[DONE]`},
	"refusal":         {chunk(`{"refusal":"no"}`, ``), chunk(`{}`, `,"finish_reason":"stop"`), `[DONE]`},
	"nothing":         {chunk(`{"role":"assistant","content":""}`, `,"finish_reason":"stop"`), `[DONE]`},
	"without [DONE]":  {chunk(`{"content":"a"}`, `,"finish_reason":"stop"`)},
	"error in stream": {chunk(`{"content":"a"}`, ``), `{"error":{"message":"out of memory","type":"server_error","code":500}}`},
}

// messageStreams are streams of a Messages backend.
var messageStreams = map[string][]string{
	"everything": {
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":2,"cache_creation_input_tokens":1,"cache_read_input_tokens":7,"output_tokens":1}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`, `{"type":"ping"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm "}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig=="}}`, `{"type":"content_block_stop","index":0}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"zz"}}`, `{"type":"content_block_stop","index":1}`,
		`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`, `{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"one\n\n  \ud83d"}}`, `{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"\ude00"}}`, `{"type":"content_block_stop","index":2}`,
		`{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"t1","name":"look","input":{}}}`, `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}`, `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"at\": \"s"}}`, `{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"ky\"}"}}`, `{"type":"content_block_stop","index":3}`,
		`{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t2","name":"wait","input":{}}}`, `{"type":"content_block_stop","index":4}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":15}}`, `{"type":"message_stop"}`,
	},
	"error": {
		`{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":2,"output_tokens":1}}}`,
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
	},
}

func TestStreamsGolden(t *testing.T) {
	t.Parallel()
	var out []byte
	for _, name := range []string{"text", "reasoning, text, calls", "calls in each other", "stop sequence", "cut by length", "refusal", "nothing", "without [DONE]", "error in stream"} {
		out = fmt.Appendf(out, "# %s\n\n%s", name, stream(t, &anthropic.ChatReply{}, chatStreams[name]...))
	}
	golden(t, "chat-to-messages.golden.sse", out)
	out = nil
	for _, name := range []string{"everything", "error"} {
		out = fmt.Appendf(out, "# %s\n\n%s", name, stream(t, &anthropic.MessageReply{Created: 1700000000, Usage: true}, messageStreams[name]...))
	}
	golden(t, "messages-to-chat.golden.sse", out)
}

// A stream says what the whole reply says: put together, the translated stream
// is the translated reply.
func TestStreamsAddUp(t *testing.T) {
	t.Parallel()
	for name, datas := range chatStreams {
		if name == "error in stream" || name == "calls in each other" { // whole replies have their text in front
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before openai.Accumulator
			for _, data := range datas {
				before.Add([]byte(data))
			}
			want, err := (&anthropic.ChatReply{}).Reply(nil, before.AppendJSON(nil))
			if err != nil {
				t.Fatal(err)
			}
			got := assembled(t, stream(t, &anthropic.ChatReply{}, datas...))
			if diff := cmp.Diff(values(t, want), values(t, got)); diff != "" {
				t.Errorf("-whole +streamed:\n%s", diff)
			}
		})
	}
	t.Run("messages", func(t *testing.T) {
		t.Parallel()
		var before anthropic.Accumulator
		for _, data := range messageStreams["everything"] {
			before.Add([]byte(data))
		}
		want, err := (&anthropic.MessageReply{Created: 5}).Reply(nil, before.AppendJSON(nil))
		if err != nil {
			t.Fatal(err)
		}
		var after openai.Accumulator
		for event := range bytes.SplitSeq(stream(t, &anthropic.MessageReply{Created: 5, Usage: true}, messageStreams["everything"]...), []byte("\n\n")) {
			after.Add(openai.Data(event))
		}
		got := after.AppendJSON(nil)
		for _, index := range []string{`"index":0,"type":"thinking"`, `"index":1,"type":"redacted`} { // which only streams have
			got = bytes.Replace(got, []byte(index), []byte(index[len(`"index":0,`):]), 1)
		}
		if diff := cmp.Diff(values(t, want), values(t, got)); diff != "" {
			t.Errorf("-whole +streamed:\n%s", diff)
		}
	})
}

// assembled puts a stream of a message together.
func assembled(t testing.TB, stream []byte) []byte {
	t.Helper()
	var a anthropic.Accumulator
	var events openai.Events
	events.Write(stream)
	for event := events.Next(); event != nil; event = events.Next() {
		a.Add(openai.Data(event))
	}
	if a.Malformed() > 0 || !a.Done() {
		t.Errorf("%d malformed, done %v: %s", a.Malformed(), a.Done(), stream)
	}
	return a.AppendJSON(nil)
}

// values is a document as values; null members count as absent ones.
func values(t testing.TB, doc []byte) any {
	t.Helper()
	v := jsontext.Value(bytes.ReplaceAll(doc, []byte(`\ud83d\ude00`), []byte("😀")))
	if err := v.Canonicalize(jsontext.AllowInvalidUTF8(true)); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return strings.NewReplacer(`,"stop_sequence":null`, ``, `"logprobs":null,`, ``).Replace(string(v))
}

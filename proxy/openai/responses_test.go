package openai_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

const responsesRequest = `{"model":"m","stream":true,"instructions":"be brief","temperature":0.50,"max_output_tokens":64,"parallel_tool_calls":true,"store":true,"user":"u","metadata":{"k":"v"},"min_p":0.1,
"reasoning":{"effort":"low","summary":"auto"},"include":["reasoning.encrypted_content","message.output_text.logprobs"],"truncation":"disabled","previous_response_id":null,
"text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"},"strict":true},"verbosity":"low"},
"tools":[{"type":"function","name":"look","description":"d","parameters":{"type":"object"},"strict":false}],"tool_choice":{"type":"function","name":"look"},
"input":[{"role":"user","content":"hi"},{"type":"message","role":"developer","content":[{"type":"input_text","text":"kindly"}]},
{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,AA==","detail":"low"}]},
{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}]},
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"looking","annotations":[]}]},
{"type":"function_call","call_id":"c1","name":"look","arguments":"{\"at\": 1}"},{"type":"function_call","call_id":"c2","name":"look","arguments":"{}"},
{"type":"function_call_output","call_id":"c1","output":"blue"},{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"red"}]},
{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]},{"type":"message","role":"assistant","content":"yes"}]}`

func options() openai.ResponsesOptions {
	return openai.ResponsesOptions{ID: "resp_1", Created: 1700000000}
}

func indented(t *testing.T, doc []byte) []byte {
	t.Helper()
	v := jsontext.Value(doc)
	if err := v.Indent(jsontext.WithIndent(" ")); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return append(v, '\n')
}

func TestResponsesRequestGolden(t *testing.T) {
	t.Parallel()
	chat, _, err := openai.ResponsesToChat([]byte(responsesRequest), options())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "responses-to-chat.golden.json", indented(t, chat))
	chat, _, err = openai.ResponsesToChat([]byte(`{"model":"m","input":"hi","max_output_tokens":5}`), openai.ResponsesOptions{Hosted: true})
	if want := `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_completion_tokens":5}`; err != nil || string(chat) != want {
		t.Errorf("got %s, %v, want %s", chat, err, want)
	}
}

// Namespaces and tools that take text become functions, also in what the model called before.
func TestResponsesTools(t *testing.T) {
	t.Parallel()
	const input = `[{"type":"custom_tool_call","call_id":"c1","name":"patch","input":"one\ntwo"},{"type":"function_call","call_id":"c2","namespace":"crm","name":"find","arguments":"{}"},
{"type":"custom_tool_call_output","call_id":"c1","output":"done"},{"type":"function_call_output","call_id":"c2","output":"Ann"}]`
	for choice, want := range map[string]string{
		`"auto"`:                           `"auto"`,
		`{"type":"custom","name":"patch"}`: `{"type":"function","function":{"name":"patch"}}`,
		`{"type":"function","name":"find","namespace":"crm"}`: `{"type":"function","function":{"name":"crm__find"}}`,
	} {
		chat, _, err := openai.ResponsesToChat(fmt.Appendf(nil, `{"model":"m","tools":[%s],"tool_choice":%s,"input":%s}`, responsesTools, choice, input), options())
		want = `{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[` +
			`{"id":"c1","type":"function","function":{"name":"patch","arguments":"{\"input\": \"one\\ntwo\"}"}},{"id":"c2","type":"function","function":{"name":"crm__find","arguments":"{}"}}]},` +
			`{"role":"tool","content":"done","tool_call_id":"c1"},{"role":"tool","content":"Ann","tool_call_id":"c2"}],"tools":[` +
			`{"type":"function","function":{"name":"look"}},` +
			`{"type":"function","function":{"name":"patch","description":"d","parameters":{"type":"object","properties":{"input":{"type":"string","description":"Text that follows this lark grammar:\nstart: \"a\""}},"required":["input"],"additionalProperties":false}}},` +
			`{"type":"function","function":{"name":"crm__find","description":"Customers.\n\nFinds one.","parameters":{"type":"object"}}},` +
			`{"type":"function","function":{"name":"crm__note","parameters":{"type":"object","properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}}],` +
			`"tool_choice":` + want + `}`
		if diff := cmp.Diff(want, string(chat)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", choice, err, diff)
		}
	}
}

// What services of the Responses API take without tools, servers of Chat Completions refuse.
func TestResponsesWithoutTools(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]string{`"auto"`: "", `"none"`: "", `"required"`: `,"tool_choice":"required"`} {
		chat, _, err := openai.ResponsesToChat([]byte(`{"model":"m","tools":[],"tool_choice":`+choice+`,"parallel_tool_calls":false,"input":"hi"}`), options())
		want = `{"model":"m","messages":[{"role":"user","content":"hi"}]` + want + `}`
		if diff := cmp.Diff(want, string(chat)); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", choice, err, diff)
		}
	}
}

// Some backends send an empty error, and an empty finish reason, with each chunk.
func TestResponsesOfSloppyChunks(t *testing.T) {
	t.Parallel()
	r := responseReply(t, "")
	var a openai.ResponsesAccumulator
	var events []byte
	for _, data := range []string{
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{"role":"assistant","content":"he"},"finish_reason":""}]}`,
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{"content":"llo"},"finish_reason":""}]}`,
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"id":"c","model":"m","error":{},"choices":[{"index":0,"delta":{},"finish_reason":""}],"usage":{"prompt_tokens":1,"completion_tokens":2}}`,
		"[DONE]",
	} {
		var err error
		if events, err = r.Event(events, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	for event := range bytes.SplitSeq(events, []byte("\n\n")) {
		a.Add(openai.Data(event))
	}
	got := string(a.AppendJSON(nil))
	if !a.Done() || a.Failure() != nil || strings.Count(got, `"type":"message"`) != 1 || !strings.Contains(got, `"text":"hello"`) || !strings.Contains(got, `"output_tokens":2`) {
		t.Errorf("got %s", got)
	}
}

func TestResponsesUnsupported(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"input":"a","previous_response_id":"resp_0"}`:                                           `previous_response_id: got "resp_0": not supported by this backend, send the whole input`,
		`{"input":"a","conversation":"c"}`:                                                        `conversation: got "c"`,
		`{"input":"a","background":true}`:                                                         `background: got true: not supported by this backend, leave it out`,
		`{"input":"a","truncation":"auto"}`:                                                       `truncation: got "auto"`,
		`{"input":"a","prompt":{"id":"p"}}`:                                                       `prompt: got {"id":"p"}`,
		`{"input":"a","tools":[{"type":"web_search"}]}`:                                           `tools[0].type: got "web_search"`,
		`{"input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"}]}]}`: `tools[0].tools[0].type: got "web_search"`,
		`{"input":"a","tools":[{"type":"namespace","tools":[]}]}`:                                 `tools[0].name: a namespace needs a name`,
		`{"input":"a","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"x"}]},{"type":"function","name":"n__x"}]}`: `tools[1].name: got "n__x": another tool has the same name`,
		`{"input":"a","tools":[{"type":"function","name":"x"},{"type":"custom","name":"x"}]}`:                                                `tools[1].name: got "x": another tool has the same name`,
		`{"input":"a","tool_choice":{"type":"mcp"}}`:                                                                                         `tool_choice: got {"type":"mcp"}`,
		`{"input":"a","include":["file_search_call.results"]}`:                                                                               `include[0]: got "file_search_call.results"`,
		`{"input":"a","text":{"format":{"type":"grammar"}}}`:                                                                                 `text.format.type: got "grammar"`,
		`{"input":[{"type":"item_reference","id":"x"}]}`:                                                                                     `input[0].type: got "item_reference"`,
		`{"input":[{"role":"tool","content":"a"}]}`:                                                                                          `input[0].role: got "tool"`,
		`{"input":[{"role":"user","content":[{"type":"input_file"}]}]}`:                                                                      `input[0].content[0].type: got "input_file"`,
		`{"input":7}`:              `input: got 7, must be a string or a list of items`,
		`{"input":[{"role":7}]}`:   `input[0].role: got a number, must be a string`,
		`{}`:                       `input: is missing, must be a string or a list of items`,
		`{"input":"a","tools":{}}`: `tools: got an object, must be a list`,
	} {
		_, _, err := openai.ResponsesToChat([]byte(body), options())
		var field *openai.FieldError
		if !errors.As(err, &field) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

func chatChunk(delta, rest string) string {
	return `{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":` + delta + rest + `}]}`
}

const responsesTools = `{"type":"function","name":"look"},{"type":"custom","name":"patch","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: \"a\""}},
{"type":"namespace","name":"crm","description":"Customers.","tools":[{"type":"function","name":"find","description":"Finds one.","parameters":{"type":"object"}},{"type":"custom","name":"note"}]}`

var responsesStreams = []struct {
	name  string
	datas []string
	tools string
}{
	{name: "text", datas: []string{
		chatChunk(`{"role":"assistant","content":""}`, ``), chatChunk(`{"content":"one\n\n  "}`, `,"logprobs":{"content":[{"token":"one","logprob":-0.5,"bytes":[111],"top_logprobs":[]}]}`), chatChunk(`{"content":"two"}`, ``),
		chatChunk(`{}`, `,"finish_reason":"stop"`), `{"id":"c-1","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":8},"completion_tokens_details":{"reasoning_tokens":1}}}`, `[DONE]`,
	}},
	{name: "reasoning, text, calls", datas: []string{
		chatChunk(`{"role":"assistant","reasoning_content":"hm"}`, ``), chatChunk(`{"content":"looking"}`, ``),
		chatChunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"look","arguments":""}},{"index":1,"id":"t2","type":"function","function":{"name":"wait","arguments":"{"}}]}`, ``),
		chatChunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":1}"}}]}`, ``), chatChunk(`{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}`, ``),
		chatChunk(`{}`, `,"finish_reason":"tool_calls"`), `[DONE]`,
	}},
	{name: "cut by length", datas: []string{chatChunk(`{"content":"a"}`, `,"finish_reason":"length"`), `[DONE]`}},
	{name: "refusal", datas: []string{chatChunk(`{"refusal":"no"}`, `,"finish_reason":"stop"`)}},
	{name: "error", datas: []string{chatChunk(`{"content":"a"}`, ``), `{"error":{"message":"out of memory","type":"server_error"}}`}},
	{name: "tools that chat completions lack", tools: responsesTools, datas: []string{
		chatChunk(`{"tool_calls":[{"index":0,"id":"t1","type":"function","function":{"name":"patch","arguments":"{\"input\": \"on"}},{"index":1,"id":"t2","type":"function","function":{"name":"crm__find","arguments":"{}"}}]}`, ``),
		chatChunk(`{"tool_calls":[{"index":0,"function":{"arguments":"e\\ntwo\"}"}},{"index":2,"id":"t3","function":{"name":"crm__note","arguments":"{\"cut"}}]}`, ``),
		chatChunk(`{}`, `,"finish_reason":"length"`), `[DONE]`,
	}},
}

func responseReply(t *testing.T, tools string) *openai.ResponseReply {
	t.Helper()
	_, r, err := openai.ResponsesToChat(fmt.Appendf(nil, `{"model":"m","input":"hi","tools":[%s]}`, tools), options())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestResponsesStreamsGolden(t *testing.T) {
	t.Parallel()
	var all []byte
	for _, s := range responsesStreams {
		r := responseReply(t, s.tools)
		var out []byte
		var err error
		var whole openai.Accumulator
		for _, data := range s.datas {
			whole.Add([]byte(data))
			if out, err = r.Event(out, []byte(data)); err != nil {
				t.Fatalf("%s: %s: %v", s.name, data, err)
			}
		}
		if out, err = r.End(out); err != nil || !r.Done() {
			t.Fatalf("%s: %v", s.name, err)
		}
		all = fmt.Appendf(all, "# %s\n\n%s", s.name, out)
		if s.name == "error" {
			continue
		}
		// Put together, the stream is what the whole reply becomes.
		var a openai.ResponsesAccumulator
		for _, event := range cutUp(out, func() int { return len(out) }) {
			a.Add(openai.Data(event))
		}
		want, err := responseReply(t, s.tools).Reply(nil, whole.AppendJSON(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(indented(t, want)), string(indented(t, a.AppendJSON(nil)))); diff != "" || !a.Done() || a.Malformed() > 0 {
			t.Errorf("%s (-whole +streamed):\n%s", s.name, diff)
		}
	}
	golden(t, "chat-to-responses.golden.sse", all)
}

// Some services leave the output out of the last event, and some report errors in a shape of their own.
func TestResponsesSloppyStreams(t *testing.T) {
	t.Parallel()
	const (
		created = `{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}`
		added   = `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","role":"assistant","content":[]}}`
		delta   = `{"type":"response.output_text.delta","output_index":0,"delta":"hi"}`
		refused = `{"type":"response.refusal.delta","output_index":0,"delta":"no"}`
		item    = `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}}`
	)
	for name, tt := range map[string]struct {
		datas []string
		want  string // in the response
	}{
		"empty output":                  {[]string{created, added, delta, item, `{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"usage":{"input_tokens":1,"output_tokens":2}}}`}, `"status":"completed","usage":{"input_tokens":1,"output_tokens":2},"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]`},
		"no output":                     {[]string{added, delta, `{"type":"response.completed","response":{"id":"r"}}`}, `"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]`},
		"null":                          {[]string{created, added, delta, `{"type":"response.completed","response":null}`}, `"id":"r"`},
		"cut refusal":                   {[]string{created, added, refused}, `"content":[{"type":"refusal","refusal":"no"}]`},
		"nested error":                  {[]string{created, `{"type":"error","error":{"message":"busy"}}`}, `"error":{"message":"busy"}`},
		"bare error":                    {[]string{created, `{"error":{"message":"busy"}}`}, `"error":{"message":"busy"}`},
		"an answer whose error is null": {[]string{created, `{"type":"response.completed","response":{"id":"r","output":[{"type":"message"}],"error":null},"error":null}`}, `"output":[{"type":"message"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var a openai.ResponsesAccumulator
			for _, data := range tt.datas {
				a.Add([]byte(data))
			}
			if got := string(a.AppendJSON(nil)); !strings.Contains(got, tt.want) || a.Malformed() > 0 {
				t.Errorf("got %s with %d malformed, want %s", got, a.Malformed(), tt.want)
			}
			if failed := strings.Contains(tt.want, `"error":`); failed != (a.Failure() != nil) {
				t.Errorf("failure %s", a.Failure())
			}
		})
	}
}

// A stream that breaks off leaves what had come.
func TestResponsesBrokenOff(t *testing.T) {
	t.Parallel()
	r := responseReply(t, "")
	var a openai.ResponsesAccumulator
	for _, data := range responsesStreams[1].datas[:4] {
		out, err := r.Event(nil, []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range cutUp(out, func() int { return len(out) }) {
			a.Add(openai.Data(event))
		}
	}
	got := string(a.AppendJSON(nil))
	for _, want := range []string{`"text":"hm"`, `"text":"looking"`, `"arguments":"{\"at\":1}"`, `"arguments":"{"`, `"status":"in_progress"`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if _, err := r.End(nil); err == nil {
		t.Error("a broken stream counts as complete")
	}
	a.Add([]byte(`{"type":"error","code":"server_error","message":"gone"}`))
	a.Add([]byte(`nonsense`))
	if got := string(a.AppendJSON(nil)); !strings.Contains(got, `"error":{"type":"error","code":"server_error","message":"gone"}`) || a.Malformed() != 1 || a.Done() {
		t.Errorf("got %s", got)
	}
}

// Some backends give all calls of a message the index 0.
func TestResponsesCallsOfOneIndex(t *testing.T) {
	t.Parallel()
	_, r, err := openai.ResponsesToChat([]byte(responsesRequest), options())
	if err != nil {
		t.Fatal(err)
	}
	call := func(id, arguments string) string {
		return `{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"` + id + `","type":"function","function":{"name":"look","arguments":"` + arguments + `"}}]}}]}`
	}
	var out []byte
	for _, data := range []string{call("t1", `{\"a\":1}`), call("t2", `{\"b\":2}`), `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, "[DONE]"} {
		if out, err = r.Event(out, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err = r.End(out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"call_id":"t1"`, `"arguments":"{\"a\":1}"`, `"call_id":"t2"`, `"arguments":"{\"b\":2}"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got %s, want %s in it", out, want)
		}
	}
}

// FuzzResponses: whatever comes, nothing panics, and what comes out is JSON.
func FuzzResponses(f *testing.F) {
	f.Add([]byte(responsesRequest), []byte(responsesStreams[1].datas[2]))
	f.Add([]byte(`{"input":[]}`), []byte(`{"type":"response.created","response":{}}`))
	f.Fuzz(func(t *testing.T, request, data []byte) {
		chat, r, err := openai.ResponsesToChat(request, options())
		if err == nil && !jsontext.Value(chat).IsValid(rawjson.Options()) {
			t.Fatalf("%s became %s", request, chat)
		}
		if r == nil {
			r = &openai.ResponseReply{}
		}
		if err == nil {
			out, err := r.Event(nil, data)
			if err == nil {
				out, _ = r.End(out)
			}
			for _, event := range cutUp(out, func() int { return len(out) }) {
				if !jsontext.Value(openai.Data(event)).IsValid(rawjson.Options()) {
					t.Fatalf("%s became %s", data, out)
				}
			}
		}
		var a openai.ResponsesAccumulator
		a.Add(data)
		a.Add(data)
		if out := a.AppendJSON(nil); jsontext.Value(data).IsValid(rawjson.Options()) && !jsontext.Value(out).IsValid(rawjson.Options()) {
			t.Fatalf("%s accumulated to %s", data, out)
		}
	})
}

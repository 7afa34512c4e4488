package record

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/proxy/openai"
)

func TestReadIDs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`[1]`:                      `[1]`,
		`[12,0,2147483647]`:        `[12,0,2147483647]`,
		"[ 1 ,\n\t-2\r, 30 ]":      `[1,-2,30]`,
		`[-0,1]`:                   `[0,1]`,
		`[ ]`:                      ``,
		`[]`:                       ``,
		`"12"`:                     ``,
		`[1,"2"]`:                  ``,
		`[1.5]`:                    ``,
		`[1e3]`:                    ``,
		`[1,null]`:                 ``,
		`[[1]]`:                    ``,
		`[2147483648]`:             ``,
		`[1,99999999999999999999]`: ``,
	} {
		for _, known := range []string{``, `[1]`, `[12,0]`, `[1,2]`, `[1,9]`, `[3]`, want} {
			if diff := cmp.Diff(want, string(readIDs([]byte(raw), IDs(known)))); diff != "" {
				t.Errorf("%s after %s (-want +got):\n%s", raw, known, diff)
			}
		}
	}
}

// TestDrift compares lists of ids as text with the same lists as numbers.
func TestDrift(t *testing.T) {
	t.Parallel()
	list := rapid.SliceOfN(rapid.SampledFrom([]int{1, 2, 12, 121, 1200}), 1, 6)
	text := func(ids []int) IDs { return IDs(strings.ReplaceAll(fmt.Sprint(ids), " ", ",")) }
	alike := func(a, b []int) (n int) {
		for n < min(len(a), len(b)) && a[n] == b[n] {
			n++
		}
		return n
	}
	rapid.Check(t, func(t *rapid.T) {
		before, reply, prompt := list.Draw(t, "before"), list.Draw(t, "reply"), list.Draw(t, "prompt")
		switch rapid.IntRange(0, 2).Draw(t, "continues") {
		case 1:
			prompt = append(slices.Clone(before), prompt...)
		case 2:
			prompt = slices.Concat(before, reply, prompt)
		}
		whole := slices.Concat(before, reply)
		want := alike(whole, prompt)
		if want == len(whole) {
			want = -1
		}
		previous := &Tokens{Prompt: text(before), Replies: []IDs{text(reply)}}
		if got := previous.drift(text(prompt)); got != want {
			t.Fatalf("%v after %v and %v drifts at %d, want %d", prompt, before, reply, got, want)
		}
		if got := readIDs(text(prompt), previous.Prompt); string(got) != string(text(prompt)) {
			t.Fatalf("%v is read as %s", prompt, got)
		}
	})
}

// A request that is not one JSON object is a text in the record, and none of its parts is an attribute.
func TestRequestThatIsNoObject(t *testing.T) {
	t.Parallel()
	const messages = `{"model":"m","messages":[{"role":"user","content":"first"},{"role":"user","content":"second"`
	for _, request := range []string{``, `[]`, `"m"`, messages, messages + `}]`, messages + `}]} x`, messages + `}],"n":01}`, messages + "\xff\"}]}", messages + `},]}`} {
		for _, form := range []Form{Chat, Messages, Responses, Completion} {
			var b Builder
			got := agl.Attributes(b.AppendAttributes(nil, &Input{Form: form, Request: []byte(request), Status: http.StatusOK}, &Position{Name: "1"}))
			if err := got.Validate(); err != nil {
				t.Errorf("%q: %v", request, err)
			}
			text, given := got.GetString(AttrRequestText)
			if want := strings.ToValidUTF8(request, "\ufffd"); text != want || given != (request != "") {
				t.Errorf("%q is recorded as %q", request, text)
			}
			for name := range got.All() {
				if strings.HasPrefix(name, agl.AttrGenAIPrompt+".") || strings.HasPrefix(name, agl.AttrGenAIRequest+".") {
					t.Errorf("%q: a part is recorded as %s", request, name)
				}
			}
		}
	}
}

// Half of a surrogate pair, as in texts that JavaScript or Python has cut, is U+FFFD in the record of a call that is as good as others.
func TestHalvesOfSurrogatePairs(t *testing.T) {
	t.Parallel()
	const text, recorded = `a\ud83d \\ud83d \ud83d\ude00 \ude00\ud83d\u0041\ud83d`, "a\ufffd \\ud83d \U0001f600 \ufffd\ufffdA\ufffd"
	for _, tt := range []struct {
		form           Form
		request, reply string
	}{
		{Chat, `{"messages":[{"role":"user","content":"%s"}]}`, `{"choices":[{"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}]}`},
		{Responses, `{"input":"%s"}`, `{"output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"%s"}]}]}`},
		{Messages, `{"messages":[{"role":"user","content":"%s"}]}`, `{"role":"assistant","content":[{"type":"text","text":"%s"}]}`},
	} {
		var b Builder
		_, made := b.Append(nil, &Input{
			Form: tt.form, Status: http.StatusOK, Request: fmt.Appendf(nil, tt.request, text), Reply: fmt.Appendf(nil, tt.reply, text),
		}, &Position{})
		var s agl.Span
		if err := spanjson.Parse(made.Spans[1], &s); err != nil {
			t.Fatal(err)
		}
		prompt, _ := s.Attributes.GetString("gen_ai.prompt.0.content")
		completion, _ := s.Attributes.GetString("gen_ai.completion.0.content")
		if s.Status.Code != agl.StatusOK || prompt != recorded || completion != recorded {
			t.Errorf("%s: %+v, prompt %q, completion %q, want %q", tt.form, s.Status, prompt, completion, recorded)
		}
	}
}

// What custom tools of the Responses API take and return is recorded as the calls of functions are.
func TestCustomToolCalls(t *testing.T) {
	t.Parallel()
	var b Builder
	got := agl.Attributes(b.AppendAttributes(nil, &Input{
		Form: Responses, Status: http.StatusOK,
		Request: []byte(`{"model":"m","input":[{"type":"custom_tool_call","call_id":"c0","name":"patch","input":"one"},{"type":"custom_tool_call_output","call_id":"c0","output":"done"}]}`),
		Reply:   []byte(`{"id":"resp_1","status":"completed","output":[{"type":"custom_tool_call","call_id":"c1","name":"patch","input":"two"}]}`),
	}, &Position{Name: "1"}))
	for name, want := range map[string]string{
		"gen_ai.prompt.0.tool_calls.0.name": "patch", "gen_ai.prompt.0.tool_calls.0.arguments": "one", "gen_ai.prompt.1.role": "tool", "gen_ai.prompt.1.content": "done",
		"gen_ai.completion.0.tool_calls.0.name": "patch", "gen_ai.completion.0.tool_calls.0.arguments": "two", "gen_ai.completion.0.finish_reason": "tool_calls",
	} {
		if text, _ := got.GetString(name); text != want {
			t.Errorf("%s is %q, want %q", name, text, want)
		}
	}
}

// A function without parameters is recorded as one that takes none: Python's TraceToMessages raises KeyError without the attribute.
func TestFunctionsWithoutParameters(t *testing.T) {
	t.Parallel()
	var b Builder
	for form, tools := range map[Form]string{
		Chat:      `{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b","parameters":null}},{"type":"function","function":{"name":"c","parameters":{"type":"object"}}}`,
		Responses: `{"type":"function","name":"a"},{"type":"custom","name":"b"},{"type":"function","name":"c","parameters":{"type":"object"}},{"type":"web_search","size":"low"}`,
		Messages:  `{"name":"a"},{"name":"b","input_schema":null},{"name":"c","input_schema":{"type":"object"}}`,
	} {
		got := agl.Attributes(b.AppendAttributes(nil, &Input{Form: form, Request: []byte(`{"model":"m","tools":[` + tools + `]}`)}, &Position{Name: "1"}))
		for i, want := range []string{"{}", "{}", `{"type":"object"}`, ""} {
			if text, _ := got.GetString("gen_ai.request.functions." + strconv.Itoa(i) + ".parameters"); text != want {
				t.Errorf("%s: parameters of function %d are %q, want %q", form, i, text, want)
			}
		}
	}
}

// A reply that is an error or no reply of its API is not recorded as one, whatever its status.
// Instructions are the first message, wherever a client writes them: Python's write them last.
func TestInstructionsComeFirst(t *testing.T) {
	t.Parallel()
	var b Builder
	for _, in := range []Input{
		{Form: Responses, Request: []byte(`{"input":[{"role":"user","content":"hi"}],"model":"m","instructions":"be brief"}`)},
		{Form: Responses, Request: []byte(`{"input":"hi","instructions":"be brief"}`)},
		{Form: Messages, Request: []byte(`{"max_tokens":9,"messages":[{"role":"user","content":"hi"}],"system":"be brief"}`)},
	} {
		got := agl.Attributes(b.AppendAttributes(nil, &in, &Position{Name: "1"}))
		for name, want := range map[string]string{
			"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "be brief",
			"gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "hi", "gen_ai.prompt.2.role": "",
		} {
			if text, _ := got.GetString(name); text != want {
				t.Errorf("%s: %s is %q, want %q", in.Request, name, text, want)
			}
		}
	}
}

func TestRepliesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		form    Form
		reply   string
		status  string // of the span; empty is OK
		outcome agl.OutcomeKind
	}{
		{Chat, `{"error":{"message":"busy"}}`, "the backend answered 200 with an error: busy", agl.OutcomeModelError},
		{Chat, `{"error":{"message":"more than the maximum context length"}}`, "the backend answered 200 with an error: more than the maximum context length", agl.OutcomeContextOverflow},
		{Chat, `{"error":"busy"}`, "the backend answered 200 with an error: busy", agl.OutcomeModelError},
		{Chat, `{"output":[]}`, "the reply has neither output nor an error", agl.OutcomeModelError},
		{Chat, `{"choices":[{"message":{"content":"hi"}}],"error":null}`, "", ""},
		{Chat, `{"choices":[{"message":{"content":"hi"}}],"error":{}}`, "", ""},
		{Messages, `{"type":"error","error":{"type":"overloaded_error","message":"busy"}}`, "the backend answered 200 with an error: busy", agl.OutcomeModelError},
		{Messages, `{"choices":[{"message":{"content":"hi"}}]}`, "the reply has neither output nor an error", agl.OutcomeModelError},
		{Responses, `{"status":"failed","output":[],"error":{"code":"server_error","message":"busy"}}`, "the backend answered 200 with an error: busy", agl.OutcomeModelError},
		{Responses, `{"choices":[]}`, "the reply has neither output nor an error", agl.OutcomeModelError},
	} {
		var b Builder
		_, made := b.Append(nil, &Input{Form: tt.form, Status: http.StatusOK, Reply: []byte(tt.reply)}, &Position{})
		var s agl.Span
		if err := spanjson.Parse(made.Spans[1], &s); err != nil {
			t.Fatal(err)
		}
		if outcome, _ := s.Attributes.GetString(AttrOutcome); s.Status.Description.V != tt.status || outcome != string(tt.outcome) {
			t.Errorf("%s %s: %+v with outcome %q", tt.form, tt.reply, s.Status, outcome)
		}
	}
}

// Refusals of the Responses API, and the texts of gateways that send no list of parts, are in the message.
func TestTextsOfReplies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		form             Form
		reply, key, want string
	}{
		{Responses, `{"output":[{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]}`, "refusal", "no"},
		{Responses, `{"output":[{"type":"message","content":"hi"}]}`, "content", "hi"},
		{Messages, `{"content":"hi"}`, "content", "hi"},
	} {
		var b Builder
		got := agl.Attributes(b.AppendAttributes(nil, &Input{Form: tt.form, Status: http.StatusOK, Reply: []byte(tt.reply)}, &Position{}))
		if text, _ := got.GetString(agl.AttrGenAICompletion + ".0." + tt.key); text != tt.want {
			t.Errorf("%s: %s is %q, want %q", tt.reply, tt.key, text, tt.want)
		}
	}
}

// BenchmarkRecord builds the record of one small call with token ids and log-probabilities.
func BenchmarkRecord(b *testing.B) {
	const token = `{"token":"a","logprob":-0.25,"bytes":[97],"top_logprobs":[]}`
	tokens := strings.TrimSuffix(strings.Repeat(token+",", 12), ",")
	reply := []byte(`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"policy","choices":[{"index":0,"message":{"role":"assistant","content":"call 12*7","refusal":null},` +
		`"logprobs":{"content":[` + tokens + `],"refusal":null},"finish_reason":"stop","token_ids":[11,24,29,0,2,11,24,29,0,2,7,47]}],"usage":{"prompt_tokens":12,"completion_tokens":12,"total_tokens":24},` +
		`"system_fingerprint":"v1","prompt_token_ids":[44,2,3,0,30,19,23,15,29,0,8,45]}`)
	now := time.Now()
	in := &Input{
		RolloutID: "r", AttemptID: "a", Path: "/chat/completions", Method: http.MethodPost, Model: "policy",
		Request: []byte(`{"model":"policy","messages":[{"role":"user","content":"12 times 7"}],"temperature":1,"max_tokens":16}`),
		Reply:   reply, Backend: "http://127.0.0.1:1/v1",
		Status: http.StatusOK, Delivered: true, Start: now, Sent: now, FirstByte: now, LastByte: now, End: now,
	}
	b.ReportAllocs()
	var builder Builder
	var record []byte
	for b.Loop() {
		var made Made
		if record, made = builder.Append(record[:0], in, &Position{SequenceID: 7, Name: "7"}); len(made.Spans) != SpansPerCall {
			b.Fatalf("%d spans", len(made.Spans))
		}
	}
}

// A call of Anthropic's counts the tokens of a prompt that a cache had apart; the
// record counts them with the prompt, whatever the form.
func TestUsageWithCache(t *testing.T) {
	t.Parallel()
	for form, reply := range map[Form]string{
		Messages: `{"type":"message","content":[],"usage":{"input_tokens":30,"cache_read_input_tokens":7,"cache_creation_input_tokens":3,"output_tokens":12}}`,
		Chat:     `{"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":12,"total_tokens":52,"prompt_tokens_details":{"cached_tokens":7}}}`,
	} {
		var b Builder
		_, made := b.Append(nil, &Input{Form: form, Status: http.StatusOK, Reply: []byte(reply)}, &Position{})
		var s agl.Span
		if err := spanjson.Parse(made.Spans[1], &s); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]int64{agl.AttrGenAIInputTokens: 40, agl.AttrGenAIOutputTokens: 12, agl.AttrGenAITotalTokens: 52} {
			if got, _ := s.Attributes.GetInt(key); got != want {
				t.Errorf("%s: %s is %d, want %d", form, key, got, want)
			}
		}
	}
}

// FuzzRecord: whatever an agent and a backend send, the record is three spans that
// can be read back.
func FuzzRecord(f *testing.F) {
	for _, in := range formInputs() {
		f.Add(string(in.Form), in.Request, in.Reply)
	}
	f.Add("chat", []byte(`{"messages":[1,null,{"tool_calls":[3,{"function":null}]}],"tools":[[],{"function":{}}]}`), []byte(`{"choices":[1,null,{"message":[],"logprobs":{"tokens":1,"token_logprobs":[]},"meta_info":[]}],"usage":[]}`))
	f.Add("messages", []byte(`{"messages":[{"content":[{"type":"image"},{"type":"tool_use"}]}]}`), []byte(`{"content":[{"type":"text"}],"stop_reason":{}}`))
	f.Add("responses", []byte(`{"input":[{"type":"reasoning","content":[7]},{}],"prompt":[]}`), []byte(`{"output":[{"type":"message","content":[{"text":1,"logprobs":[2]}]}],"incomplete_details":{"reason":3}}`))
	long := strings.Repeat(`a long text, \"\\`, 50)
	f.Add("chat", []byte(`{"messages":[{"role":"user","content":"`+long+`"},{"content":[{"text":"`+long+`"}],"tool_calls":[{"function":{"arguments":"`+long+`"}}]},"`+long+`"]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, form string, request, reply []byte) {
		in := &Input{RolloutID: "r", AttemptID: "a", Form: Form(form), Request: request, Reply: reply, Status: http.StatusOK}
		var b Builder
		_, made := b.Append(nil, in, &Position{Name: "1", Seen: func(string) bool { return true }})
		if len(made.Spans) != SpansPerCall {
			t.Fatalf("%d spans", len(made.Spans))
		}
		in.Checked = openai.Check(request)
		_, checked := b.Append(nil, in, &Position{Name: "1", Seen: func(string) bool { return true }})
		for i, doc := range made.Spans {
			var s agl.Span
			if err := rawjson.Unmarshal(doc, &s); err != nil {
				t.Fatalf("%v: %s", err, doc)
			}
			if !bytes.Equal(doc, checked.Spans[i]) {
				t.Fatalf("got %s of a request that was checked, want %s", checked.Spans[i], doc)
			}
		}
	})
}

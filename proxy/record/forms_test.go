package record

import (
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spanjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// formInputs are calls in the wire forms beside streamed and plain chat, which
// the spans of whole calls cover.
func formInputs() []*Input {
	return []*Input{
		{ // vLLM's completions: both lists of ids in the choice
			Form: Completion, Path: "/completions",
			Request: []byte(`{"model":"m","prompt":"1 2","max_tokens":2,"logprobs":1}`),
			Reply: []byte(`{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[{"index":0,"text":" 3 4","logprobs":{"text_offset":[0,2],"token_logprobs":[-0.5,-0.25],"tokens":[" 3"," 4"],"top_logprobs":[]},` +
				`"finish_reason":"length","stop_reason":null,"token_ids":[3,4],"prompt_token_ids":[1,2]}],"usage":{"prompt_tokens":2,"total_tokens":4,"completion_tokens":2}}`),
		},
		{ // several prompts
			Form: Completion, Path: "/completions",
			Request: []byte(`{"model":"m","prompt":[[1,2],"b"]}`),
			Reply:   []byte(`{"id":"cmpl-2","model":"m","choices":[{"index":0,"text":"x","finish_reason":"stop","token_ids":[5],"prompt_token_ids":[1,2]},{"index":1,"text":"y","finish_reason":"stop","token_ids":[6],"prompt_token_ids":[9]}]}`),
		},
		{ // SGLang's chat: ids in meta_info, weights that changed on the way
			Form: Chat, Path: "/chat/completions",
			Request: []byte(`{"model":"m","messages":[{"role":"user","content":"go"}]}`),
			Reply: []byte(`{"id":"c-3","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok!"},"logprobs":null,"finish_reason":"stop","prompt_token_ids":[1,2],` +
				`"meta_info":{"weight_version":"v2","weight_versions":[{"version":"v1","start":0,"end":1},{"version":"v2","start":1,"end":2}],"output_token_logprobs":[[-0.5,11,"ok"],[-1.5,12,"!"]]}}],` +
				`"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4},"metadata":{"weight_version":"v2"}}`),
		},
		{
			Form: Responses, Path: "/responses",
			Request: []byte(`{"model":"m","instructions":"be brief","input":[{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},` +
				`{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"hm"}]},{"type":"function_call","call_id":"c0","name":"look","arguments":"{\"at\":\"sky\"}"},{"type":"function_call_output","call_id":"c0","output":"blue"}],` +
				`"tools":[{"type":"function","name":"look","description":"look at it","parameters":{"type":"object"}}],"store":false}`),
			Reply: []byte(`{"id":"resp_1","object":"response","status":"completed","model":"m","output":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"so"}]},` +
				`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"it is ","annotations":[],"logprobs":[{"token":"it is ","logprob":-0.5,"bytes":[105],"top_logprobs":[]}]},{"type":"output_text","text":"blue"}]},` +
				`{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`),
		},
		{
			Form: Responses, Path: "/responses",
			Request: []byte(`{"model":"m","input":"say it"}`),
			Reply:   []byte(`{"id":"resp_2","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"model":"m","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"it"}]}],"usage":{"input_tokens":2,"output_tokens":1}}`),
		},
		{
			Form: Messages, Path: "/messages",
			Request: []byte(`{"model":"claude","max_tokens":64,"system":[{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},` +
				`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I look"},{"type":"tool_use","id":"tu_0","name":"look","input":{"at":"sky"}}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"tu_0","content":"blue"},{"type":"text","text":"well?"}]}],"tools":[{"name":"look","description":"look at it","input_schema":{"type":"object"}}]}`),
			Reply: []byte(`{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"so","signature":"s"},{"type":"text","text":"blue, \"very\""},{"type":"tool_use","id":"tu_1","name":"look","input":{"at":"sea"}}],` +
				`"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":30,"cache_read_input_tokens":7,"output_tokens":12}}`),
		},
		{ // Messages translated to chat: the backend's side is recorded
			Form: Chat, Path: "/messages",
			Request:        []byte(`{"model":"m","max_tokens":64,"system":"be brief","messages":[{"role":"user","content":"go on"}]}`),
			BackendRequest: []byte(`{"model":"m","max_tokens":64,"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"go on"}]}`),
			Reply:          []byte(`{"id":"c-7","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"on"},"finish_reason":"stop","token_ids":[31]}],"prompt_token_ids":[1,2,11,12,30]}`),
		},
	}
}

// formSpans builds the records of formInputs, with ids and times that do not change.
func formSpans(t *testing.T) []agl.Span {
	t.Helper()
	var b Builder
	var previous *Tokens
	now := time.Unix(1700000000, 0)
	var spans []agl.Span
	for i, in := range formInputs() {
		in.RolloutID, in.AttemptID, in.Method, in.Model = "r", "a", http.MethodPost, "m"
		in.Backend, in.Version = "http://backend/v1", "v1"
		in.Status, in.Delivered = http.StatusOK, true
		in.Start, in.Sent, in.FirstByte, in.LastByte, in.End = now, now, now, now.Add(time.Second), now.Add(time.Second)
		now = now.Add(time.Second)
		parent := agl.Null[string]{}
		_, made := b.Append(nil, in, &Position{SequenceID: int64(i + 1), Name: strconv.Itoa(i + 1), Previous: previous})
		if made.Tokens != nil {
			previous = previous.Copy(made.Tokens)
		}
		for j, doc := range made.Spans {
			var s agl.Span
			if err := spanjson.Parse(doc, &s); err != nil {
				t.Fatal(err)
			}
			s.TraceID, s.SpanID = "t", string(rune('a'+i))+string(rune('0'+j))
			s.ParentID, s.Parent, s.Context = parent, nil, nil
			parent = agl.Some(s.SpanID)
			spans = append(spans, s)
		}
	}
	return spans
}

// What every wire form becomes in the record; TestPythonAdaptersReadRecords
// hands the file to the Python adapters.
func TestFormsGolden(t *testing.T) {
	t.Parallel()
	var got []byte
	for _, s := range formSpans(t) {
		line := jsontext.Value(s.AppendJSON(nil))
		if err := line.Indent(jsontext.WithIndent(" ")); err != nil {
			t.Fatal(err)
		}
		got = append(append(got, line...), ",\n"...)
	}
	got = append(append([]byte("[\n"), got[:len(got)-2]...), "\n]\n"...)
	path := filepath.Join("..", "testdata", "forms.golden.json") // beside what the adapters of both languages make of it
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

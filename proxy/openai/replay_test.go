package openai_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json"
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

// whole is a reply with everything that a stream must not lose.
const whole = `{
  "id": "chatcmpl-7", "object": "chat.completion", "created": 1700000000, "model": "m", "metadata": {"weight_version": "default"},
  "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "one\n\n  two\t\ud83d\ude00  ", "reasoning_content": "hm,\n so ", "tool_calls": null},
     "logprobs": {"content": [{"token": "one", "logprob": -0.5, "bytes": [111], "top_logprobs": []}]}, "finish_reason": "stop", "matched_stop": 151645,
     "prompt_token_ids": [1, 2], "token_ids": [3]},
    {"index": 1, "message": {"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_a", "index": 0, "type": "function", "function": {"name": "look", "arguments": "{\"at\": \"sky\\n\"}"}},
      {"id": "call_b", "index": 1, "type": "function", "function": {"name": "wait", "arguments": ""}}]},
     "logprobs": null, "finish_reason": "tool_calls", "matched_stop": null, "token_ids": [4, 5]}
  ],
  "usage": {"prompt_tokens": 2, "total_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": null}
}`

func TestReplayGolden(t *testing.T) {
	t.Parallel()
	out, ok := openai.Replay(nil, []byte(whole), true)
	if !ok {
		t.Fatal("not replayed")
	}
	golden(t, "replay.golden.sse", out)
	hidden, ok := openai.Replay([]byte("x"), bytes.Join(openai.Hide{TokenIDs: true, Logprobs: true}.Visible([]byte(whole)), nil), false)
	if !ok || hidden[0] != 'x' || bytes.Contains(hidden, []byte("token_ids")) || bytes.Contains(hidden, []byte("usage")) || bytes.Contains(hidden, []byte(`"logprobs":{`)) {
		t.Errorf("shows what was not asked for: %s", hidden)
	}
	for _, bad := range []string{``, `[]`, `{}`, `{"choices":{}}`, `{"choices":[]`, `{"choices":[]}x`} {
		if out, ok := openai.Replay(nil, []byte(bad), true); ok || out != nil {
			t.Errorf("%q became %q", bad, out)
		}
	}
}

// accumulate puts a stream together again.
func accumulate(t testing.TB, stream []byte) []byte {
	t.Helper()
	var a openai.Accumulator
	for _, event := range cutUp(stream, func() int { return len(stream) }) {
		a.Add(openai.Data(event))
	}
	if a.Malformed() > 0 || !a.Done() {
		t.Fatalf("%d malformed events, done %v, in %s", a.Malformed(), a.Done(), stream)
	}
	return a.AppendJSON(nil)
}

// What is replayed adds up to the reply, but for what no stream says: members
// that are null, and the indexes of tool calls.
func TestReplayAddsUp(t *testing.T) {
	t.Parallel()
	out, _ := openai.Replay(nil, []byte(whole), true)
	want := strings.NewReplacer(`, "index": 0, "type"`, `, "type"`, `, "index": 1, "type"`, `, "type"`).Replace(whole)
	if diff := cmp.Diff(normal(t, []byte(want)), normal(t, accumulate(t, out))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// normal is a document as values, without members that are null or empty text.
func normal(t testing.TB, doc []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(doc, &v, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return withoutNulls(v)
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value == nil {
				delete(v, name)
				continue
			}
			v[name] = withoutNulls(value)
		}
	case []any:
		for i := range v {
			v[i] = withoutNulls(v[i])
		}
	}
	return v
}

// FuzzReplay: what is replayed is a stream of valid chunks, whatever the reply.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte(`{"choices":[{"message":{"tool_calls":[1,{"function":7}]}},3,{"index":"x"}],"usage":null}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if out, ok := openai.Replay(nil, doc, true); ok {
			accumulate(t, out)
		}
	})
}

// The same call streamed and whole is the same reply, for completions too.
func TestAccumulateCompletion(t *testing.T) {
	t.Parallel()
	var a openai.Accumulator
	for _, data := range []string{
		`{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"He","logprobs":{"text_offset":[0],"token_logprobs":[-0.5],"tokens":["He"],"top_logprobs":[null]},"finish_reason":null,"prompt_token_ids":[7],"token_ids":[1]}],"usage":null}`,
		`{"id":"cmpl-1","object":"text_completion","choices":[{"index":1,"text":"","logprobs":null,"finish_reason":null}]}`,
		`{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"y\n","logprobs":{"text_offset":[2],"token_logprobs":[-1],"tokens":["y\n"],"top_logprobs":[{}]},"finish_reason":"stop","stop_reason":null,"token_ids":[2]}]}`,
		`{"id":"cmpl-1","object":"text_completion","choices":[],"usage":{"total_tokens":3}}`,
		`[DONE]`,
	} {
		a.Add([]byte(data))
	}
	const want = `{"id":"cmpl-1","object":"text_completion","usage":{"total_tokens":3},"choices":[` +
		`{"index":0,"text":"Hey\n","logprobs":{"text_offset":[0,2],"token_logprobs":[-0.5,-1],"tokens":["He","y\n"],"top_logprobs":[null,{}]},"prompt_token_ids":[7],"finish_reason":"stop","token_ids":[1,2]},` +
		`{"index":1,"text":""}]}`
	if diff := cmp.Diff(want, string(a.AppendJSON(nil))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestAsk(t *testing.T) {
	t.Parallel()
	all := openai.Ask{TokenIDs: true, Usage: true}
	for _, tt := range []struct {
		name, in string
		ask      openai.Ask
		want     string
	}{
		{"stream", `{"model":"m","stream":true}`, all, `{"return_token_ids":true,"logprobs":true,"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{"options without usage", `{"model":"m","stream":true,"stream_options":{ "x":1}}`, openai.Ask{Usage: true}, `{"model":"m","stream":true,"stream_options":{"include_usage":true, "x":1}}`},
		{"empty options", `{"model":"m","stream":true,"stream_options":{ }}`, openai.Ask{Usage: true}, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"null options", `{"model":"m","stream":true,"stream_options":null}`, openai.Ask{Usage: true}, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`},
		{"usage refused", `{"stream_options":{"include_usage" : false},"model":"m","stream":true}`, openai.Ask{Usage: true}, `{"stream_options":{"include_usage" : true},"model":"m","stream":true}`},
		{"usage asked", `{"stream_options":{"include_usage":true},"model":"m","stream":true}`, openai.Ask{Usage: true}, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{"no stream", `{"model":"m"}`, openai.Ask{Usage: true, Unstreamed: true}, `{"model":"m"}`},
		{"whole", `{"model":"m","stream_options":{"include_usage":true},"stream":true}`, openai.Ask{TokenIDs: true, Usage: true, Unstreamed: true}, `{"return_token_ids":true,"logprobs":true,"model":"m","stream_options":null,"stream":false}`},
		{"salt", `{"model":"m"}`, openai.Ask{Salt: `step "1"`}, `{"cache_salt":"step \"1\"","model":"m"}`},
		{"no salt", `{"cache_salt":null,"model":"m"}`, openai.Ask{Salt: "1"}, `{"cache_salt":"1","model":"m"}`},
		{"salt of its own", `{"model":"m","cache_salt":"s"}`, openai.Ask{Salt: "1"}, `{"model":"m","cache_salt":"s"}`},
		{"completion", `{"model":"m","logprobs":null}`, openai.Ask{TokenIDs: true, Completion: true}, `{"return_token_ids":true,"model":"m","logprobs":1}`},
		{"completion, asked", `{"model":"m","logprobs":3}`, openai.Ask{TokenIDs: true, Completion: true}, `{"return_token_ids":true,"model":"m","logprobs":3}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := openai.ParseRequest([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(bytes.Join(r.Body([]byte(tt.in), r.Model, tt.ask), nil)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	for prompt, want := range map[string]int{`"a"`: 1, `[1,2]`: 1, `["a"]`: 1, `["a","b"]`: 2, `[[1],[2],[3]]`: 3, `[]`: 0} {
		if r, err := openai.ParseRequest([]byte(`{"model":"m","prompt":` + prompt + `}`)); err != nil || r.Prompts != want {
			t.Errorf("%s: %d prompts, want %d (%v)", prompt, r.Prompts, want, err)
		}
	}
}

// Usage that the agent did not ask for does not reach it, neither in the chunk
// that carries nothing else nor as null in the others.
func TestHiddenUsage(t *testing.T) {
	t.Parallel()
	hide := openai.Hide{Usage: true}
	for in, want := range map[string]string{
		"data: {\"choices\":[{\"index\":0}],\"usage\":null}\n\n":         "data: {\"choices\":[{\"index\":0}]}\n\n",
		"data: {\"choices\":[],\"usage\":{\"total_tokens\":1}}\n\n":      "",
		"data: {\"choices\":[ ],\"usage\":{\"total_tokens\":1}}\r\n\r\n": "",
		"data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n":        "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
		"data: {\"usage\":{},\"error\":{}}\n\n":                          "data: {\"error\":{}}\n\n",
	} {
		var a openai.Accumulator
		if got := string(hide.AppendVisibleEvent(nil, []byte(in), &a)); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		if a.Malformed() != 0 {
			t.Errorf("%q counts as malformed", in)
		}
	}
	const doc = `{"choices":[],"usage":{}}`
	if got := string(bytes.Join(hide.Visible([]byte(doc)), nil)); got != doc {
		t.Errorf("a whole reply became %s", got)
	}
}

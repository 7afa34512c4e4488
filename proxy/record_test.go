package proxy_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/runkey"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
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

// exchanges are the calls of the recorded attempt: what the agent asks and what
// the backend says.
var exchanges = []struct {
	request string
	reply   proxytest.Reply
}{
	{ // tools, an image, unknown members on both sides
		request: `{"model":"m","temperature":1.0,"chat_template_kwargs":{"enable_thinking":false},"messages":[` +
			`{"role":"system","content":"be brief"},` +
			`{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c0","type":"function","function":{"name":"look","arguments":"{\"at\":\"sky\"}"}}]},` +
			`{"role":"tool","tool_call_id":"c0","content":"blue"}],` +
			`"tools":[{"type":"function","function":{"name":"look","description":"look at it","parameters":{"type":"object","properties":{"at":{"type":"string"}}}}}]}`,
		reply: proxytest.Reply{Body: `{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"backend-m","service_tier":null,"new_field":{"deep":[true,false,null,1.5e3,"it's \"so\" \u00e9\/\ud83d\ude00"]},` +
			`"choices":[{"index":0,"message":{"role":"assistant","content":"it's \"blue\"\n\ud83d\ude00","refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{\"at\": \"sea\"}"}}]},` +
			`"logprobs":{"content":[{"token":"it","logprob":-0.25,"bytes":[105,116],"top_logprobs":[]},{"token":"'s","logprob":-1e-05,"bytes":null,"top_logprobs":[]}]},"finish_reason":"tool_calls","stop_reason":null,"token_ids":[21,22]}],` +
			`"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2},"prompt_token_ids":[11,12,13]}`},
	},
	{ // a stream of two choices, which extends the call before
		request: `{"model":"m","stream":true,"n":2,"messages":[{"role":"user","content":"go on"}]}`,
		reply: proxytest.Reply{ContentType: "text/event-stream", Pieces: []string{
			"data: " + `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1700000001,"model":"backend-m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":[11,12,13,21,22,14]}` + "\n\n",
			": still alive\n\n",
			"data: " + `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1700000001,"model":"backend-m","choices":[{"index":0,"delta":{"reasoning_content":"hm","content":"on "},"logprobs":{"content":[{"token":"on ","logprob":-0.5,"bytes":[111],"top_logprobs":[]}]},"finish_reason":null,"token_ids":[31]}]}` + "\n\n",
			"data: " + `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1700000001,"model":"backend-m","choices":[{"index":1,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"c2","type":"function","function":{"name":"look","arguments":""}}]},"logprobs":null,"finish_reason":null,"token_ids":[41]}]}` + "\n\n",
			"data: " + `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1700000001,"model":"backend-m","choices":[{"index":1,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"logprobs":null,"finish_reason":"tool_calls","token_ids":[42]}]}` + "\n\n",
			"data: " + `{"id":"chatcmpl-2","object":"chat.completion.chunk","created":1700000001,"model":"backend-m","choices":[{"index":0,"delta":{"content":"and"},"logprobs":{"content":[{"token":"and","logprob":-0.75,"bytes":[97],"top_logprobs":[]}]},"finish_reason":"stop","token_ids":[32]}]}` + "\n\n",
			"data: [DONE]\n\n",
		}},
	},
	{ // a repeated response id, the ids where older engines put them, and a drift
		request: `{"model":"m","messages":[{"role":"user","content":"again"}]}`,
		reply: proxytest.Reply{Body: `{"id":"chatcmpl-1","object":"chat.completion","created":1700000002,"model":"backend-m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],` +
			`"prompt_token_ids":[11,12,13,21,99],"response_token_ids":[[51,52]]}`},
	},
	{ // a backend without token ids
		request: `{"model":"m","messages":[{"role":"user","content":"text"}]}`,
		reply:   proxytest.Reply{Body: `{"id":"chatcmpl-4","object":"chat.completion","model":"backend-m","choices":[{"index":0,"message":{"role":"assistant","content":"plain"},"logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`},
	},
	{ // a backend's error
		request: `{"model":"m","messages":[],"seed":7}`,
		reply:   proxytest.Reply{Status: 400, Body: `{"error":{"message":"messages must not be empty","type":"BadRequestError","param":null,"code":400}}`},
	},
}

// recordCalls makes the calls, each followed by a reward, and returns the spans.
func recordCalls(t *testing.T) []agl.Span {
	t.Helper()
	turn := 0
	backend := serve(t, func(context.Context, proxytest.Request) proxytest.Reply { return exchanges[turn].reply })
	g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Models[0].BackendModel = "backend-m" })
	for i, x := range exchanges {
		turn = i
		post(t, g.URL+attemptPath, x.request)
		rewards, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: float64(i) + 0.5})
		if err != nil {
			t.Fatal(err)
		}
		attributes, err := agl.NewAttributes(rewards...)
		if err != nil {
			t.Fatal(err)
		}
		id, err := g.spans.ReserveSequenceIDs(t.Context(), agl.ReserveSequenceIDsParams{RolloutID: "ro-1", AttemptID: "at-1"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.spans.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{{
			RolloutID: "ro-1", AttemptID: "at-1", SequenceID: id, TraceID: "t", SpanID: fmt.Sprint("reward-", i), Name: agl.SpanAnnotation, Attributes: attributes,
			StartTime: agl.Some(agl.Timestamp(1)), EndTime: agl.Some(agl.Timestamp(1)),
		}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	flush(t, g, "ro-1")
	recorded := slices.Clone(g.spans.stored)
	slices.SortStableFunc(recorded, func(a, b agl.Span) int { return int(a.SequenceID - b.SequenceID) })
	return recorded
}

// steady replaces what differs from run to run.
func steady(t *testing.T, recorded []agl.Span, backend string) []byte {
	t.Helper()
	names := make(map[string]string)
	rename := func(id *string, kind string) {
		if _, known := names[*id]; !known {
			names[*id] = fmt.Sprintf("%s-%d", kind, len(names))
		}
		*id = names[*id]
	}
	var lines []byte
	for i := range recorded {
		s := &recorded[i]
		rename(&s.TraceID, "trace")
		rename(&s.SpanID, "span")
		if s.ParentID.Valid {
			rename(&s.ParentID.V, "span")
			rename(&s.Parent.SpanID, "span")
			rename(&s.Parent.TraceID, "trace")
		}
		if s.Context != nil {
			rename(&s.Context.SpanID, "span")
			rename(&s.Context.TraceID, "trace")
		}
		if !s.StartTime.Valid || !s.EndTime.Valid || s.EndTime.V < s.StartTime.V {
			t.Errorf("%s: start %v, end %v", s.Name, s.StartTime, s.EndTime)
		}
		s.StartTime, s.EndTime = agl.Some(agl.Timestamp(100+i)), agl.Some(agl.Timestamp(101+i))
		for key, value := range map[string]any{
			record.AttrQueueSeconds: 0.5, record.AttrFirstByteSeconds: 0.25, record.AttrTotalSeconds: 0.75, record.AttrBackend: backend,
		} {
			if _, ok := s.Attributes.Get(key); ok {
				var err error
				if s.Attributes, err = s.Attributes.With(agl.Attr{Key: key, Value: value}); err != nil {
					t.Fatal(err)
				}
			}
		}
		line := jsontext.Value(s.AppendJSON(nil))
		if err := line.Indent(jsontext.WithIndent(" ")); err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), ",\n"...)
	}
	return append(append([]byte("[\n"), bytes.TrimSuffix(lines, []byte(",\n"))...), "\n]\n"...)
}

func TestRecordGolden(t *testing.T) {
	t.Parallel()
	golden(t, "spans.golden.json", steady(t, recordCalls(t), "http://backend/v1"))
}

// The adapters of the Python package must get each call once, with its reward,
// and the same triplets as ours. It takes half a minute to import them, so the
// compatibility suite asks for it.
func TestPythonAdaptersReadRecords(t *testing.T) {
	t.Parallel()
	venv := os.Getenv("AGL_COMPAT_VENV")
	if venv == "" {
		t.Skip("AGL_COMPAT_VENV does not name an environment with the Python package; test/compat/venv.sh makes one")
	}
	for name, want := range map[string][]string{
		"spans": {"[11 12 13] [21 22]", "[11 12 13 21 22 14] [31 32]", "[11 12 13 21 99] [51 52]"},
		// The native Responses and Messages calls among these have no token ids.
		"forms": {"[1 2] [3 4]", "[1 2] [5]", "[1 2] [11 12]", "[1 2 11 12 30] [31]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := filepath.Join("testdata", name+".golden.json")
			cmd := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), filepath.Join("testdata", "adapt.py"), spans)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, stderr.String())
			}
			golden(t, "triplets-"+name+".golden.json", out)
			var python struct {
				Proxy []triplet `json:"proxy"`
			}
			if err := json.Unmarshal(out, &python); err != nil {
				t.Fatal(err)
			}
			var calls []string
			for _, p := range python.Proxy {
				calls = append(calls, fmt.Sprint(p.Prompt.TokenIDs, p.Response.TokenIDs))
			}
			if diff := cmp.Diff(want, calls); diff != "" {
				t.Errorf("calls that Python reads (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(ourTriplets(t, spans), python.Proxy); diff != "" {
				t.Errorf("triplets of Python (-ours +theirs):\n%s", diff)
			}
		})
	}
}

// triplet is what both adapters say of a call.
type triplet struct {
	Prompt struct {
		TokenIDs []int32 `json:"token_ids"`
	} `json:"prompt"`
	Response struct {
		TokenIDs []int32 `json:"token_ids"`
	} `json:"response"`
	Reward   agl.Null[float64] `json:"reward"`
	Metadata struct {
		ResponseID string `json:"response_id"`
	} `json:"metadata"`
}

// ourTriplets are what the Go adapter makes of the spans in a file.
func ourTriplets(t *testing.T, path string) []triplet {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var documents []jsontext.Value
	if err := json.Unmarshal(raw, &documents); err != nil {
		t.Fatal(err)
	}
	spans := make([]agl.Span, len(documents))
	for i, d := range documents {
		if err := rawjson.Unmarshal(d, &spans[i]); err != nil {
			t.Fatal(err)
		}
	}
	adapted, err := adapter.ProxyTriplets{}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	ours := make([]triplet, len(adapted))
	for i, a := range adapted {
		ours[i].Prompt.TokenIDs, ours[i].Response.TokenIDs, ours[i].Reward = a.Prompt.TokenIDs, a.Response.TokenIDs, a.Reward
		ours[i].Metadata.ResponseID = a.Metadata.ResponseID.V
	}
	return ours
}

// The Python of docs/proxy.md makes the key that the proxy takes.
func TestPythonAttemptKey(t *testing.T) {
	t.Parallel()
	venv := os.Getenv("AGL_COMPAT_VENV")
	if venv == "" {
		t.Skip("AGL_COMPAT_VENV does not name an environment with the Python package; test/compat/venv.sh makes one")
	}
	docs, err := os.ReadFile("../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	const head, indent = "    def attempt_key(", "    "
	_, rest, found := strings.Cut(string(docs), head)
	if !found {
		t.Fatal("docs/proxy.md has no attempt_key")
	}
	program := "import base64, hashlib, hmac, sys\n"
	for line := range strings.Lines(head + rest) {
		code, ok := strings.CutPrefix(line, indent)
		if !ok {
			break
		}
		program += code
	}
	program += "print(attempt_key(*sys.argv[1:]))\n"
	run := runkey.New("secret", time.Unix(2_000_000_000, 0))
	for _, ids := range [][2]string{{"ro-1", "at-1"}, {"ro-é/1", "at-2"}} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(venv, "bin", "python"), "-c", program, run, ids[0], ids[1]).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if want, _ := runkey.ForAttempt(run, ids[0], ids[1]); strings.TrimSpace(string(out)) != want {
			t.Errorf("%v: got %s, want %s", ids, out, want)
		}
	}
}

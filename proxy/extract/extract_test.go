package extract_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/extract"
	"github.com/agl-go/agl/proxy/record"
)

// said records calls as the proxy does: each is a request and its reply, a message or the text of one.
func said(t *testing.T, calls ...[2]string) extract.Session {
	t.Helper()
	var b record.Builder
	var spans []agl.Span
	for i, call := range calls {
		turn, kind := fmt.Sprint(i), ""
		if strings.Contains(call[0], "title") {
			kind = "side"
		}
		message := call[1]
		if !strings.HasPrefix(message, "{") {
			message = `{"role":"assistant","content":"` + message + `"}`
		}
		in := record.Input{
			RolloutID: "ro-1", AttemptID: "at-1", Model: "m", Request: []byte(`{"model":"m","messages":[` + call[0] + `]}`), Status: 200,
			Reply: []byte(`{"id":"reply-` + turn + `","choices":[{"index":0,"finish_reason":"stop","message":` + message + `}]}`),
			Turn:  turn, TurnType: kind,
		}
		if call[1] == "" {
			in.Reply, in.Status, in.Fault = nil, 502, "no answer"
		}
		id := fmt.Sprintf("%016x", i+1)
		_, made := b.Append(nil, &in, &record.Position{SequenceID: int64(i + 1), IDs: record.SpanIDs{Trace: strings.Repeat("1", 32), Spans: [3]string{id + "a", id + "b", id + "c"}}})
		for _, doc := range made.Spans {
			var span agl.Span
			if err := json.Unmarshal(doc, &span); err != nil {
				t.Fatal(err)
			}
			spans = append([]agl.Span{span}, spans...) // in any order
		}
	}
	s, err := extract.Read(&agl.Rollout{RolloutID: "ro-1", Metadata: []byte(`{"agl.user":"ada"}`)}, spans)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	hi    = `{"role":"user","content":"hi"}`
	hello = `{"role":"assistant","content":"hello"}`
)

// shop is a session of three turns: the second reply comes again with the history cut, and the last has nothing after it.
func shop(t *testing.T) extract.Session {
	t.Helper()
	return said(t,
		[2]string{hi, "hello"},
		[2]string{`{"role":"user","content":"make up a title"}`, "Greetings"},
		[2]string{hi + `,` + hello + `,{"role":"user","content":"where is my order?"}`, "gone"},
		[2]string{hi + `,` + hello + `,{"role":"user","content":"where is my order?"}`, ""},
		[2]string{`{"role":"system","content":"be brief"},{"role":"assistant","content":"gone"},{"role":"user","content":"that is wrong"}`, "sorry"},
	)
}

// A judge reads each reply with the message that came after it.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := shop(t)
	j := extract.Judge{Model: "judge", Prompt: "[{conversation}|{reply}|{next}]", Votes: 4, MaxTokens: 9}
	var asked []string
	answers := map[string][]string{"where": {"it helped: 1", "**+1**", "I give it 0.", "I cannot say"}, "wrong": {"\u22121", "-1", "-1.0", "-1 "}}
	ask := func(_ context.Context, request []byte) ([]byte, error) {
		var body struct {
			Model     string              `json:"model"`
			MaxTokens int                 `json:"max_tokens"`
			Messages  []map[string]string `json:"messages"`
		}
		if err := json.Unmarshal(request, &body); err != nil || body.Model != "judge" || body.MaxTokens != 9 {
			t.Errorf("asked %s, %v", request, err)
		}
		question := body.Messages[0]["content"]
		asked = append(asked, question)
		for about, list := range answers {
			if strings.Contains(question[strings.LastIndex(question, "|"):], about) {
				answers[about] = list[1:]
				return []byte(`{"choices":[{"message":{"role":"assistant","content":"` + list[0] + `"}}]}`), nil
			}
		}
		return nil, errors.New("asked about something else")
	}
	var got []extract.Judged
	failed, err := j.Judge(t.Context(), &s, ask, func(r extract.Judged) error { got = append(got, r); return nil })
	if err != nil || len(failed) > 0 {
		t.Fatal(failed, err)
	}
	want := []extract.Judged{{Call: "reply-0", Value: 2. / 3, Message: "votes: 1, 1, 0; 1 more failed"}, {Call: "reply-2", Value: -1, Message: "votes: -1, -1, -1, -1"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(asked) != 8 || asked[0] != "[user: hi|hello|user: where is my order?]" {
		t.Errorf("asked %q", asked)
	}
}

// Whatever the model said is in a reply: a program that looks for personal data reads what would be learned from. A judge
// reads the result of a tool after the reply that calls it.
func TestAllOfAReply(t *testing.T) {
	t.Parallel()
	const (
		calls = `"tool_calls":[{"id":"t1","type":"function","function":{"name":"mail","arguments":"{\"to\":\"ada@example.org\"}"}}]`
		ask   = `{"role":"user","content":"write to Ada"}`
		sent  = ask + `,{"role":"assistant","content":"I do",` + calls + `},{"role":"tool","tool_call_id":"t1","content":"sent"}`
	)
	s := said(t,
		[2]string{ask, `{"role":"assistant","content":"I do","reasoning_content":"where is she?",` + calls + `}`},
		[2]string{sent, `{"role":"assistant","content":null,"refusal":"I will not","reasoning":"hm"}`},
		[2]string{ask, `{` + calls + `}`},                              // an engine that sends no role
		[2]string{ask, `{"role":"model","content":"done"}`},            // or one of its own
		[2]string{ask, `{"role":"assistant","tool_calls":[{}]}`},       // a call of nothing
		[2]string{ask, `{"role":"assistant","tool_calls":"a\u0000b"}`}, // no list
	)
	var replies []string
	for _, c := range s.Calls {
		reply, err := json.Marshal(c.Reply)
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, c.ID+" "+c.Reasoning+" "+c.Refusal+" "+string(reply))
	}
	want := []string{
		`reply-0 where is she?  {"role":"assistant","content":"I do",` + calls + `}`,
		`reply-1 hm I will not {"role":"assistant","content":null}`,
		`reply-2   {"role":"assistant","content":null,` + calls + `}`,
		`reply-3   {"role":"assistant","content":"done"}`,
		`reply-4   {"role":"assistant","content":null}`,
		`reply-5   {"role":"assistant","content":null}`,
	}
	if diff := cmp.Diff(want, replies); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var questions []string
	j := extract.Judge{Model: "judge", Prompt: "[{conversation}|{reply}|{next}]", MaxTokens: 9}
	_, err := j.Judge(t.Context(), &s, func(_ context.Context, request []byte) ([]byte, error) {
		questions = append(questions, string(request))
		return []byte(`{"choices":[{"message":{"role":"assistant","content":"1"}}]}`), nil
	}, func(extract.Judged) error { return nil })
	if err != nil || len(questions) == 0 || !strings.Contains(questions[0], "ada@example.org") || !strings.Contains(questions[0], "]|tool: sent]") {
		t.Errorf("asked %q, %v", questions, err)
	}
}

// What is no vote is an error that says what the model said; other replies are judged nevertheless.
// A call that the engine has refused, and one that lacks what other engines do without, hide no other call.
func TestReadsWhatWasSent(t *testing.T) {
	t.Parallel()
	const bare = `{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"now"}}]}`
	s := said(
		t,
		[2]string{`{"content":"hi"},{"role":"tool","content":42}`, ""},
		[2]string{`{"role":"user","content":"what time is it?"}`, bare},
		[2]string{`{"role":"user","content":"what time is it?"},` + bare + `,{"role":"tool","content":"noon"}`, "noon"},
	)
	if len(s.Calls) != 2 || s.Calls[1].Reply.Text() != "noon" || len(s.Calls[1].Messages) != 3 {
		t.Fatalf("got %+v", s)
	}
	if calls := s.Calls[1].Messages[1].ToolCalls; len(calls) != 1 || calls[0] != s.Calls[0].Reply.ToolCalls[0] || calls[0].Function.Name != "now" {
		t.Errorf("got the calls %+v of %+v", calls, s.Calls[0].Reply)
	}
}

func TestJudgeFails(t *testing.T) {
	t.Parallel()
	s := shop(t)
	j := extract.Judge{Model: "judge", Timeout: time.Minute}
	calls := 0
	ask := func(context.Context, []byte) ([]byte, error) {
		if calls++; calls == 1 {
			return []byte(`{"choices":[{"message":{"content":"10"}}]}`), nil
		}
		return []byte(`{"choices":[{"message":{"content":"1"}}]}`), nil
	}
	var got []extract.Judged
	failed, err := j.Judge(t.Context(), &s, ask, func(r extract.Judged) error { got = append(got, r); return nil })
	if err != nil || len(failed) != 1 || !strings.Contains(failed[0].Error(), `reply reply-0: the model judge answered "10", must end with 1, 0 or -1`) || len(got) != 1 || got[0].Call != "reply-2" {
		t.Errorf("got %+v, %v, %v", got, failed, err)
	}
	for _, bad := range []extract.Judge{{}, {Model: "m", Prompt: "say 1"}, {Model: "m", Prompt: "{next} {last}"}} {
		if err := bad.Check(); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: got %v, want invalid", bad, err)
		}
	}
}

// script writes a shell script and returns the program that runs it.
func script(t *testing.T, text string) *extract.Program {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "check.sh"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return &extract.Program{Command: []string{"/bin/sh", "check.sh"}, Dir: dir, Timeout: time.Minute}
}

// A program reads the session, and its output is what it wrote; whatever else it does is an error that says so.
func TestProgram(t *testing.T) {
	t.Parallel()
	s := shop(t)
	p := script(t, `cat > input.json; echo '[0.5, {"value": 1, "call": "reply-0"}]'`)
	got, err := p.Run(t.Context(), &s)
	if err != nil || len(got) != 2 || string(got[0]) != "0.5" || string(got[1]) != `{"value": 1, "call": "reply-0"}` {
		t.Errorf("got %s, %v", got, err)
	}
	input, err := os.ReadFile(filepath.Join(p.Dir, "input.json"))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"session_id":"ro-1","metadata":{"agl.user":"ada"},"calls":[` +
		`{"id":"reply-0","turn":"0","model":"m","messages":[{"role":"user","content":"hi"}],"reply":{"role":"assistant","content":"hello"}},{"id":"reply-2",`
	if !strings.HasPrefix(string(input), want) || strings.Contains(string(input), "title") || strings.Count(string(input), `"reply":`) != 3 {
		t.Errorf("it read %s\nwant %s…", input, want)
	}
	for text, want := range map[string]string{
		"true":                              "",
		"echo null":                         "",
		"echo 1; exec 1>&-; exec 2>&-":      "",
		"echo good":                         `wrote "good", must be JSON`,
		"echo no database >&2; exit 3":      "ended with exit status 3: no database",
		"head -c 2000000 /dev/zero":         "wrote more than 1048576 bytes",
		"kill -9 $$":                        "signal: killed",
		"sleep 3600 & sleep 3600":           "longer than its 100ms",
		"trap '' TERM; while :; do :; done": "longer than its 100ms",
	} {
		p := script(t, text)
		if strings.Contains(want, "100ms") {
			p.Timeout = 100 * time.Millisecond
		}
		_, err := p.Run(t.Context(), &s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if _, err := (&extract.Program{Command: []string{"./nothing"}}).Run(t.Context(), &s); err == nil || !strings.Contains(err.Error(), "start the program") {
		t.Errorf("a program that is not there: got %v", err)
	}
}

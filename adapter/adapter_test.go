package adapter

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
)

func goldenSpans(t testing.TB, name string) []agl.Span {
	t.Helper()
	data, err := os.ReadFile("testdata/golden/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Spans []agl.Span `json:"spans"`
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	return golden.Spans
}

func attributesOf(t testing.TB, attrs ...agl.Attr) agl.Attributes {
	t.Helper()
	raw, err := agl.NewAttributes(attrs...)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func rewardAttributes(t testing.TB, value any) agl.Attributes {
	t.Helper()
	return attributesOf(t, agl.Attr{Key: "agentlightning.reward.0.name", Value: "primary"}, agl.Attr{Key: "agentlightning.reward.0.value", Value: value})
}

func at(seconds float64) agl.Null[agl.Timestamp] { return agl.Some(agl.Timestamp(seconds)) }

func TestMissingTimes(t *testing.T) {
	t.Parallel()
	callSpan := func(id string, start, end agl.Null[agl.Timestamp]) agl.Span {
		return agl.Span{SpanID: id, ParentID: agl.Some("root"), Name: agl.SpanChatCompletion, StartTime: start, EndTime: end}
	}
	var never agl.Null[agl.Timestamp]
	spans := []agl.Span{
		{SpanID: "root", Name: "run", StartTime: at(0)},
		{SpanID: "agent", ParentID: agl.Some("root"), StartTime: at(1), EndTime: at(9), Attributes: attributesOf(t, agl.Attr{Key: "agent.name", Value: "writer"})},
		callSpan("open", at(2), never),
		callSpan("start unknown", never, at(3)),
		callSpan("no times", never, never),
		{SpanID: "reward", ParentID: agl.Some("root"), Name: agl.SpanAnnotation, StartTime: at(20), Attributes: rewardAttributes(t, 1.0)},
	}
	triplets, err := TracerTriplets{}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, triplet := range triplets {
		got[triplet.Call.SpanID] = fmt.Sprint(triplet.Metadata.AgentName.V, " ", triplet.Reward.Valid)
	}
	want := map[string]string{"open": "writer false", "start unknown": "writer true", "no times": "* false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("agent and reward: (-want +got)\n%s", diff)
	}
}

func TestRepeatedSpansCountOnce(t *testing.T) {
	t.Parallel()
	spans := goldenSpans(t, "nested_agents")
	once, err := TracerTriplets{}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := TracerTriplets{}.Adapt(append(spans, spans...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Errorf("(-once +twice)\n%s", diff)
	}
	proxied := goldenSpans(t, "proxy_litellm")
	once, err = ProxyTriplets{}.Adapt(proxied)
	if err != nil {
		t.Fatal(err)
	}
	twice, err = ProxyTriplets{}.Adapt(append(proxied, proxied...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Errorf("proxy: (-once +twice)\n%s", diff)
	}
}

func TestRewards(t *testing.T) {
	t.Parallel()
	dimension := func(i int, name, value any) []agl.Attr {
		prefix := fmt.Sprint("agentlightning.reward.", i)
		return []agl.Attr{{Key: prefix + ".name", Value: name}, {Key: prefix + ".value", Value: value}}
	}
	for _, c := range []struct {
		name  string
		attrs []agl.Attr
		want  []agl.Reward
		err   string
	}{
		{name: "none"},
		{name: "dimensions", attrs: append(dimension(0, "a", 1.5), dimension(1, "b", "2")...), want: []agl.Reward{{Name: "a", Value: 1.5}, {Name: "b", Value: 2}}},
		{name: "second not finite", attrs: append(dimension(0, "a", 1.5), dimension(1, "b", "Infinity")...), want: []agl.Reward{{Name: "a", Value: 1.5}}},
		{name: "primary absurd", attrs: append(dimension(0, "a", -1e16), dimension(1, "b", 1)...)},
		{name: "primary not finite", attrs: append(dimension(0, "a", "NaN"), dimension(1, "b", 1)...)},
		{name: "too large", attrs: dimension(0, "a", jsontext.Value("1e999"))},
		{name: "another attribute", attrs: []agl.Attr{{Key: "agentlightning.reward_model", Value: "x"}}},
		{name: "name is no string", attrs: dimension(0, 1, 1), err: "agentlightning.reward.0.name"},
		{name: "value is no number", attrs: dimension(0, "a", "high"), err: `agentlightning.reward.0.value: got "high"`},
		{name: "legacy is no number", attrs: []agl.Attr{{Key: "reward", Value: "high"}}, err: `reward: got "high"`},
		{name: "legacy NaN", attrs: []agl.Attr{{Key: "reward", Value: "NaN"}}},
		{name: "legacy boolean", attrs: []agl.Attr{{Key: "reward", Value: true}}, want: []agl.Reward{{Name: "primary", Value: 1}}},
		{name: "AgentOps NaN", attrs: []agl.Attr{{Key: "agentops.task.output", Value: `{"type": "reward", "value": NaN}`}}},
		{name: "AgentOps list", attrs: []agl.Attr{{Key: "agentops.task.output", Value: `[1]`}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			span := agl.Span{SpanID: "s1", RolloutID: "ro-1", Name: agl.SpanAnnotation, Attributes: attributesOf(t, c.attrs...)}
			got, err := Rewards(&span)
			if c.err != "" {
				if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), "s1") {
					t.Fatalf("got %v, want an invalid value that names s1 and %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestTracerRejects(t *testing.T) {
	t.Parallel()
	_, err := TracerTriplets{RewardMatch: "best"}.Adapt(goldenSpans(t, "single_call"))
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), `"best"`) || !strings.Contains(err.Error(), "first_sibling") {
		t.Errorf("got %v, want an error that names what was given and what is allowed", err)
	}
	deep := agl.Span{SpanID: "s1", Name: agl.SpanChatCompletion, Attributes: attributesOf(t,
		agl.Attr{Key: "gen_ai.request" + strings.Repeat(".a", 100_000), Value: 1})}
	if _, err := (TracerTriplets{}).Adapt([]agl.Span{deep}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("deep attribute: got %v, want an error", err)
	}
	if _, err := (Messages{}).Adapt([]agl.Span{deep}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("deep attribute: got %v, want an error", err)
	}
}

func TestTracerCallDetails(t *testing.T) {
	t.Parallel()
	span := agl.Span{
		SpanID: "s1", SequenceID: 7, Name: "chat", Status: agl.SpanStatus{Code: agl.StatusError},
		Attributes: attributesOf(t,
			agl.Attr{Key: agl.AttrPromptTokenIDs, Value: []int{1}},
			agl.Attr{Key: agl.AttrResponseTokenIDs, Value: []int{2, 3}},
			agl.Attr{Key: agl.AttrLogprobsContent, Value: `[{"logprob":-1},{"logprob":-2}]`},
			agl.Attr{Key: agl.AttrModelVersion, Value: "v1"},
			agl.Attr{Key: agl.AttrModelVersionEnd, Value: "v2"},
			agl.Attr{Key: "gen_ai.completion.0.finish_reason", Value: "length"},
		),
	}
	triplets, err := TracerTriplets{CallMatch: regexp.MustCompile("^chat$")}.Adapt([]agl.Span{span})
	if err != nil {
		t.Fatal(err)
	}
	want := Call{
		SpanID: "s1", SequenceID: 7, Logprobs: []float32{-1, -2}, Version: "v1", VersionEnd: "v2",
		FinishReason: "length", Failed: true,
	}
	if diff := cmp.Diff(want, triplets[0].Call); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestProxyKeepsCallsWithoutTokens(t *testing.T) {
	t.Parallel()
	spans := append(goldenSpans(t, "proxy_litellm"), goldenSpans(t, "proxy_no_ids")...)
	for i := range spans[len(spans)-4:] { // other ids than the first trace has
		span := &spans[len(spans)-4+i]
		span.SpanID, span.SequenceID = "x"+span.SpanID, span.SequenceID+100
		span.Attributes = agl.Attributes(strings.ReplaceAll(string(span.Attributes), "chatcmpl-a", "chatcmpl-x"))
	}
	strict, err := ProxyTriplets{}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ProxyTriplets{KeepWithoutTokens: true}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(strict)+1 {
		t.Fatalf("got %d triplets and %d with tokens, want one more", len(all), len(strict))
	}
	if diff := cmp.Diff(strict, all[:len(strict)]); diff != "" {
		t.Errorf("calls with tokens: (-default +ours)\n%s", diff)
	}
	last := all[len(strict)]
	if last.Metadata.ResponseID != agl.Some("chatcmpl-x") || len(last.Prompt.TokenIDs) != 0 || last.Reward.Valid || last.Call.SequenceID != 101 {
		t.Errorf("call without tokens: got %+v", last)
	}
	merged, err := Trajectories{}.Adapt(spans)
	if err != nil || len(merged.Report.WithoutTokens) != 1 || merged.Report.Calls != 4 {
		t.Errorf("report: got %+v, %v", merged.Report, err)
	}
}

func TestProxyCallDetails(t *testing.T) {
	t.Parallel()
	request := func(name, id string, attrs ...agl.Attr) agl.Span {
		attrs = append(attrs, agl.Attr{Key: agl.AttrGenAIResponseID, Value: "r1"})
		return agl.Span{SpanID: id, SequenceID: 3, Name: name, Attributes: attributesOf(t, attrs...)}
	}
	ids := []agl.Attr{{Key: attrVLLMPromptTokenIDs, Value: "[1]"}, {Key: attrVLLMResponseTokenIDs, Value: "[[2, 3]]"}}
	want := Call{SpanID: "raw", SequenceID: 3, Logprobs: []float32{-1, -2}}
	for _, c := range []struct {
		name string
		raw  agl.Attr
		lite agl.Attr
		edit func(*Call)
	}{
		{
			name: "chat choices",
			raw:  agl.Attr{Key: attrVLLMChoices, Value: `[{'finish_reason': 'stop', 'logprobs': {'content': [{'logprob': -1.0}, {'logprob': -2.0}]}}]`},
			edit: func(c *Call) { c.FinishReason = "stop" },
		},
		{
			name: "choices of the Completions API, as JSON",
			raw:  agl.Attr{Key: attrVLLMChoices, Value: `[{"finish_reason":"length","logprobs":{"token_logprobs":[-1,-2]}}]`},
			edit: func(c *Call) { c.FinishReason = "length" },
		},
		{name: "on the other span", lite: agl.Attr{Key: agl.AttrLogprobsContent, Value: `[{"logprob":-1},{"logprob":-2}]`}},
		{
			name: "one missing",
			raw:  agl.Attr{Key: attrVLLMChoices, Value: `[{'logprobs': {'content': [{'logprob': -1.0}, {'logprob': None}]}}]`},
			edit: func(c *Call) { c.Logprobs = nil },
		},
		{
			name: "too few, and not delivered",
			raw:  agl.Attr{Key: attrVLLMChoices, Value: `[{'logprobs': {'token_logprobs': [-1.0]}}]`},
			lite: agl.Attr{Key: attrDelivered, Value: false},
			edit: func(c *Call) { c.Logprobs, c.Undelivered = nil, true },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := want
			if c.edit != nil {
				c.edit(&want)
			}
			raw, lite := ids, []agl.Attr{}
			if c.raw.Key != "" {
				raw = slices.Concat(ids, []agl.Attr{c.raw})
			}
			if c.lite.Key != "" {
				lite = append(lite, c.lite)
			}
			triplets, err := ProxyTriplets{}.Adapt([]agl.Span{
				request(agl.SpanLiteLLMRequest, "lite", lite...), request(agl.SpanRawRequest, "raw", raw...),
			})
			if err != nil || len(triplets) != 1 {
				t.Fatalf("got %+v, %v", triplets, err)
			}
			if diff := cmp.Diff(want, triplets[0].Call); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// What the last call came to counts, whatever came before it or stands behind it.
func TestCallOutcome(t *testing.T) {
	t.Parallel()
	call := func(sequence int64, outcome string) agl.Span {
		list := []agl.Attr{{Key: attrDelivered, Value: true}}
		if outcome != "" {
			list = append(list, agl.Attr{Key: attrOutcome, Value: outcome})
		}
		return agl.Span{SequenceID: sequence, Attributes: attributesOf(t, list...)}
	}
	other := agl.Span{SequenceID: 9, Attributes: attributesOf(t, agl.Attr{Key: "x", Value: 1})}
	for want, spans := range map[agl.OutcomeKind][]agl.Span{
		"":                         {call(2, ""), call(1, "model_error"), other},
		agl.OutcomeModelError:      {call(2, "model_error"), call(1, ""), other},
		agl.OutcomeContextOverflow: {call(1, "model_error"), call(3, "context_overflow")},
	} {
		if got := CallOutcome(spans); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := CallOutcome(nil); got != "" {
		t.Errorf("got %q of nothing", got)
	}
}

func TestMessagesInParts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		attrs []agl.Attr
		want  string
	}{
		{"parts and calls", []agl.Attr{
			{Key: "gen_ai.prompt.0.role", Value: "user"},
			{Key: "gen_ai.prompt.0.content.0.type", Value: "text"},
			{Key: "gen_ai.prompt.0.content.0.text", Value: "look"},
			{Key: "gen_ai.prompt.1.role", Value: "assistant"},
			{Key: "gen_ai.prompt.1.tool_calls.0.id", Value: "c1"},
			{Key: "gen_ai.prompt.1.tool_calls.0.name", Value: "f"},
			{Key: "gen_ai.prompt.1.tool_calls.0.arguments.x", Value: 1},
		}, `[{"messages":[{"role":"user","content":[{"type":"text","text":"look"}]},` +
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]}],"tools":null}]`},
		{"what other engines take besides OpenAI's messages", []agl.Attr{
			{Key: "gen_ai.prompt.0.role", Value: "tool"},
			{Key: "gen_ai.prompt.0.content", Value: "84"},
			{Key: "gen_ai.prompt.1.role", Value: "observation"},
			{Key: "gen_ai.prompt.1.content", Value: "a door"},
		}, `[{"messages":[{"role":"tool","content":"84"},{"role":"observation","content":"a door"}],"tools":null}]`},
		{"a reply of an engine that sends no role, one of another role, and one without content", []agl.Attr{
			{Key: "gen_ai.prompt.0.role", Value: "user"},
			{Key: "gen_ai.prompt.0.content", Value: "look"},
			{Key: "gen_ai.completion.0.content", Value: "a door"},
			{Key: "gen_ai.completion.1.role", Value: "system"},
			{Key: "gen_ai.completion.1.content", Value: "b"},
			{Key: "gen_ai.completion.2.finish_reason", Value: "stop"},
		}, `[{"messages":[{"role":"user","content":"look"},{"role":"assistant","content":"a door"}],"tools":null}]`},
		{"a function without parameters, and a tool of the provider", []agl.Attr{
			{Key: "gen_ai.prompt.0.role", Value: "user"},
			{Key: "gen_ai.prompt.0.content", Value: "look"},
			{Key: "gen_ai.request.functions.0.search_context_size", Value: "low"},
			{Key: "gen_ai.request.functions.2.name", Value: "now"},
		}, `[{"messages":[{"role":"user","content":"look"}],"tools":[{"type":"function","function":{"name":"now","description":"","parameters":{}}}]}]`},
	} {
		conversations, err := Messages{}.Adapt([]agl.Span{{SpanID: "s1", Attributes: attributesOf(t, tc.attrs...)}})
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		got, err := json.Marshal(conversations)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != tc.want {
			t.Errorf("%s: got  %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestLiteralRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"r'raw'", "b'bytes'", "'a' 'b'", "'''a'''", "0x1F", "1_000", "+5", ".5", "1.", "(1)", "{'a'}", "{None: 1}",
		"1j", "...", "# comment\n1", strings.Repeat("[", 100_000), strings.Repeat("{'a':", 100_000),
	} {
		if value, err := readLiteral(text); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%.40q: got %s, %v, want an error", text, value, err)
		}
	}
}

func TestLiteralReadsWhatJSONCannotSay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"[nan, inf, -inf, NaN, Infinity, -Infinity]": "[null,null,null,null,null,null]",
		`{"a": true, 'b': None}`:                     `{"a":true,"b":null}`,
		`["\/", "\ud83d\ude00"]`:                     `["\/", "\ud83d\ude00"]`, // JSON stays as it is
		"{1: 'x', -2.5: ()}":                         `{"1":"x","-2.5":[]}`,
	} {
		got, err := readLiteral(text)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
}

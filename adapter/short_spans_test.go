package adapter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// shortAgent makes the calls of an attempt, with random edits of the histories of its branches.
type shortAgent struct {
	*rapid.T

	attempt  *agl.Attempt
	branches [][]string // the token ids of prompts, as they are spelled
	messages [][]string
	calls    int
	spans    []agl.Span
}

func (a *shortAgent) ids(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint((a.calls*7919 + i*i + n) % 15_000)
	}
	return ids
}

// one is true once in so many times. Rapid prefers small numbers, so they are mixed.
func (a *shortAgent) one(what string, of uint64) bool {
	return rapid.Uint64().Draw(a.T, what)*0x9E3779B97F4A7C15>>32%of == 1
}

// spell writes token ids as a list, with what is unusual at times.
func (a *shortAgent) spell(ids []string, quote bool) string {
	list := "[" + strings.Join(ids, ",") + "]"
	if a.one("unusual", 20) {
		list = rapid.SampledFrom([]string{
			"[]", "[" + strings.Join(ids, ", ") + "]", "[" + strings.Join(ids, ",") + ",]", "[1.5,2]", "[true,false]", list + " ", "(1, 2)", "-",
			strings.Replace(list, "]", ",99999999999]", 1), strings.Replace(list, "[", "[-5,", 1), "[" + list + "]",
		}).Draw(a.T, "spelling")
	} else if !quote {
		return list
	}
	if a.one("escaped", 20) {
		return strings.Replace(`"`+list+`"`, "1", `\u0031`, 1)
	}
	return `"` + list + `"`
}

func (a *shortAgent) add(name string, sequence int64, attributes string) {
	a.spans = append(a.spans, agl.Span{
		RolloutID: a.attempt.RolloutID, AttemptID: a.attempt.AttemptID, SequenceID: sequence, TraceID: "t", SpanID: fmt.Sprintf("s%d", len(a.spans)), Name: name,
		Status:     agl.SpanStatus{Code: rapid.SampledFrom([]agl.StatusCode{agl.StatusOK, agl.StatusOK, agl.StatusOK, agl.StatusError}).Draw(a.T, "status")},
		Attributes: agl.Attributes(attributes), Resource: agl.SpanResource{Attributes: agl.Attributes("{}")},
	})
}

func (a *shortAgent) call() {
	a.calls++
	i := rapid.IntRange(0, len(a.branches)-1).Draw(a.T, "branch")
	ids, messages := slices.Clone(a.branches[i]), slices.Clone(a.messages[i])
	switch n := len(ids); {
	case n > 0 && a.one("edited", 15):
		ids[rapid.IntRange(0, n-1).Draw(a.T, "at")] = "7"
	case n > 0 && a.one("compacted", 15):
		ids, messages = append(a.ids(5), ids[n/2:]...), append([]string{"summary"}, messages[len(messages)/2:]...)
	case n > 0 && a.one("the last id is longer", 15):
		ids[n-1] += "3"
	case n > 0 && a.one("another branch", 15):
		ids = ids[:n/2]
	case a.one("again", 8): // the same prompt
	default:
		ids = append(ids, a.ids(rapid.IntRange(20, 120).Draw(a.T, "tokens"))...)
		messages = append(messages, strings.Repeat(fmt.Sprintf("said in call %d ", a.calls), 80))
	}
	reply := a.ids(rapid.IntRange(0, 20).Draw(a.T, "reply"))
	var b strings.Builder
	b.WriteString(`{"gen_ai.system":"openai"`)
	for j, m := range messages {
		fmt.Fprintf(&b, `,"gen_ai.prompt.%d.content":%q`, j, m)
	}
	id := rapid.SampledFrom([]string{fmt.Sprintf("chat-%d", a.calls), fmt.Sprintf("chat-%d", a.calls), "chat-0", ""}).Draw(a.T, "id")
	fmt.Fprintf(&b, `,"gen_ai.request.model":"m","gen_ai.request.temperature":%d,"gen_ai.response.id":%q,"gen_ai.completion.0.finish_reason":"stop"`, a.calls%2, id)
	if !a.one("without logprobs", 4) {
		logprobs := make([]string, len(reply))
		for j := range reply {
			logprobs[j] = fmt.Sprintf(`{\"token\":\"%s\",\"logprob\":-0.%d}`, reply[j], j+1)
		}
		fmt.Fprintf(&b, `,"logprobs.content":"[%s]"`, strings.Join(logprobs, ","))
	}
	if !a.one("without tokens", 8) {
		fmt.Fprintf(&b, `,"prompt_token_ids":%s,"response_token_ids":%s`, a.spell(ids, a.one("text", 6)), a.spell(reply, false))
	}
	fmt.Fprintf(&b, `,"agentlightning.model.version":"%d","agentlightning.proxy.delivered":%t}`, a.calls/5, !a.one("undelivered", 8))
	raw := fmt.Sprintf(`{"llm.hosted_vllm.id":%q,"llm.hosted_vllm.choices":"[{'token_ids': [%s]}]","llm.hosted_vllm.prompt_token_ids":%s,"llm.hosted_vllm.response_token_ids":"[[%s]]","padding":"%s"}`,
		id, strings.Join(reply, ","), a.spell(ids, true), strings.Join(reply, ","), strings.Repeat("x", 2000))
	sequence := int64(a.calls)
	spans := []struct{ name, attributes string }{{agl.SpanLiteLLMRequest, b.String()}, {agl.SpanRawRequest, raw}}
	if a.one("raw first", 3) {
		slices.Reverse(spans)
	}
	for _, s := range spans[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(a.T, "spans"):] {
		a.add(s.name, sequence, s.attributes)
	}
	if a.one("reward", 4) {
		a.add(agl.SpanAnnotation, sequence, fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.%d}`, a.calls))
	}
	if a.one("posted", 6) {
		a.add(agl.SpanAnnotation, sequence, fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":%d,%q:1,%q:%q}`,
			a.calls, agl.AttrRewardPriority, agl.AttrRewardCall, fmt.Sprintf("chat-%d", rapid.IntRange(0, a.calls).Draw(a.T, "of"))))
	}
	// Prompts mostly go on with the reply.
	if a.one("forgotten", 6) {
		reply = nil
	}
	a.branches[i], a.messages[i] = append(ids, reply...), messages
}

// TestShortSpansGiveTheSame adapts random histories in short form and whole: linear, branched, edited and compacted.
func TestShortSpansGiveTheSame(t *testing.T) {
	t.Parallel()
	s := openStore(t, "memory:")
	continued, values := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			rt.Fatal(err)
		}
		a := &shortAgent{T: rt, attempt: r.Attempt, branches: make([][]string, 2), messages: make([][]string, 2)}
		for range rapid.IntRange(1, 30).Draw(rt, "calls") {
			a.call()
		}
		for spans := range slices.Chunk(a.spans, rapid.IntRange(1, 9).Draw(rt, "together")) {
			if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: spans}); err != nil {
				rt.Fatal(err)
			}
		}
		query := agl.QuerySpansParams{RolloutID: r.RolloutID, Paging: rapid.SampledFrom([]agl.Paging{
			{}, {}, {}, {Order: agl.Descending, SortBy: "sequence_id"}, {Offset: 3}, {SortBy: "span_id"},
		}).Draw(rt, "paging")}
		page, err := s.QuerySpans(t.Context(), query)
		if err != nil {
			rt.Fatal(err)
		}
		n, m := sameOfBoth(rt, s, query, page.Items, adapter.Trajectories{})
		continued, values = continued+n, values+m
		sameOfBoth(rt, s, query, page.Items, adapter.ProxyTriplets{})
		sameOfBoth(rt, s, query, page.Items, adapter.ProxyTriplets{KeepWithoutTokens: true})
		sameOfBoth(rt, s, query, page.Items, adapter.Trajectories{Source: adapter.TracerTriplets{}, Keep: func(c adapter.Call) bool { return c.Version != "1" }})
	})
	// A third of the values continue an earlier one on the average of many histories. Of the 20 of a short test, one run in 800 has fewer than an eighth.
	if !testing.Short() && continued < values/8 {
		t.Errorf("%d of %d values continue an earlier one: the test tests little", continued, values)
	}
}

// sameOfBoth compares what an adapter makes of whole spans and of the same ones in short form. It returns how many values
// continue another, and how many there are.
func sameOfBoth[T any](t *rapid.T, s agl.Store, query agl.QuerySpansParams, whole []agl.Span, a agl.Adapter[T]) (continued, values int) {
	t.Helper()
	spans, err := agl.QuerySpansFor(t.Context(), s, query, a)
	if err != nil {
		t.Fatal(err)
	}
	want, wantErr := a.Adapt(whole)
	got, err := agl.AdaptSpans(a, spans)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%T: error %v, want %v", a, err, wantErr)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%T (-whole +short):\n%s", a, diff)
	}
	for _, v := range spans.Values {
		if v.Base >= 0 {
			continued++
		}
	}
	return continued, len(spans.Values)
}

// TestShortSpansOfOtherStores: adapters get whole spans from a store without the capability, and so do adapters without it.
func TestShortSpansOfOtherStores(t *testing.T) {
	t.Parallel()
	s := openStore(t, "memory:")
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	talk := newConversation(&r)
	for range 3 {
		if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: talk.call(t)}); err != nil {
			t.Fatal(err)
		}
	}
	query := agl.QuerySpansParams{RolloutID: r.RolloutID}
	count := func(spans []agl.Span) (n int, err error) {
		for i := range spans {
			if _, has := spans[i].Attributes.Get("gen_ai.prompt.0.content"); has {
				n++
			}
		}
		return n, nil
	}
	for name, tc := range map[string]struct {
		store  agl.Store
		merged bool
	}{"an adapter of one's own": {s, false}, "a store without": {wholeOnly{s}, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spans agl.ShortSpans
			var err error
			if tc.merged {
				spans, err = agl.QuerySpansFor(t.Context(), tc.store, query, adapter.Trajectories{})
			} else {
				spans, err = agl.QuerySpansFor(t.Context(), tc.store, query, agl.AdapterFunc[int](count))
			}
			if err != nil || len(spans.Values) > 0 {
				t.Fatalf("%d values, error %v", len(spans.Values), err)
			}
			n, err := agl.AdaptSpans(agl.AdapterFunc[int](count), spans)
			if err != nil || n != 3 {
				t.Errorf("%d spans with messages, error %v; want 3", n, err)
			}
			merged, err := agl.AdaptSpans(adapter.Trajectories{}, spans)
			if err != nil || len(merged.Trajectories) != 1 || merged.Report.Continued != 2 {
				t.Errorf("%d trajectories, %d calls continued, error %v", len(merged.Trajectories), merged.Report.Continued, err)
			}
		})
	}
}

// wholeOnly is a store without short spans.
type wholeOnly struct{ agl.Store }

func (wholeOnly) Capabilities() agl.Capabilities { return agl.Capabilities{} }

// TestShortPromptsShareMemory reads each token of a conversation once.
func TestShortPromptsShareMemory(t *testing.T) {
	t.Parallel()
	const turns = 40
	s := openStore(t, "memory:")
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	talk := newConversation(&r)
	for range turns {
		if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: talk.call(t)}); err != nil {
			t.Fatal(err)
		}
	}
	a := adapter.ProxyTriplets{}
	spans, err := agl.QuerySpansFor(t.Context(), s, agl.QuerySpansParams{RolloutID: r.RolloutID}, a)
	if err != nil {
		t.Fatal(err)
	}
	short := 0
	for i := range spans.Spans {
		short += len(jsontext.Value(spans.Spans[i].Attributes))
	}
	for _, v := range spans.Values {
		short += len(v.Rest)
	}
	if limit := 2 * turns * 25_000; short > limit {
		t.Errorf("short spans have %d bytes, want at most %d", short, limit)
	}
	triplets, err := agl.AdaptSpans(a, spans)
	if err != nil || len(triplets) != turns {
		t.Fatalf("%d triplets, error %v", len(triplets), err)
	}
	apart := 1
	for i := range triplets[1:] {
		if &triplets[i].Prompt.TokenIDs[0] != &triplets[i+1].Prompt.TokenIDs[0] {
			apart++
		}
	}
	if limit := 8; apart > limit { // growing slices are copied now and then
		t.Errorf("%d prompts of %d have memory of their own, want at most %d", apart, turns, limit)
	}
}

// TestShortValuesCutAnywhere reads prompts whose bytes are shared up to any place.
func TestShortValuesCutAnywhere(t *testing.T) {
	t.Parallel()
	for _, lists := range [][]string{
		{"[12,345]", "[12,345,6]", "[12,345,6,789]"},
		{"[12,345]", "[12,345]", "[12,3456,7]", "[12]", "[12,34]"},
		{"[12, 345 ]", "[12, 345 ,6]", "[12,x]", "[12,345,7]"},
	} {
		for _, quoted := range []bool{false, true} {
			var values []string
			for _, list := range lists {
				if quoted {
					list = `"` + list + `"`
				}
				values = append(values, list)
			}
			for cut := range len(values[0]) + 3 {
				short, whole := cutValues(values, cut)
				want, err := adapter.ProxyTriplets{KeepWithoutTokens: true}.Adapt(whole)
				if err != nil {
					t.Fatal(err)
				}
				got, err := adapter.ProxyTriplets{KeepWithoutTokens: true}.AdaptShort(short)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("%q, at most %d bytes shared: error %v (-whole +short):\n%s", values, cut, err, diff)
				}
			}
		}
	}
}

// cutValues makes calls whose prompts share at most so many bytes with the prompt before.
func cutValues(values []string, most int) (short agl.ShortSpans, whole []agl.Span) {
	for i, value := range values {
		s := agl.Span{SpanID: fmt.Sprint(i), SequenceID: int64(i), Name: agl.SpanLiteLLMRequest, Attributes: agl.Attributes(`{"response_token_ids":[1]}`)}
		short.Spans = append(short.Spans, s)
		s.Attributes = agl.Attributes(`{"response_token_ids":[1],"prompt_token_ids":` + value + `}`)
		whole = append(whole, s)
		v := agl.SpanValue{Span: i, Name: "prompt_token_ids", Base: -1}
		if i > 0 && most > 0 {
			before := values[i-1]
			v.Base = i - 1
			for v.Shared < min(most, len(before), len(value)) && before[v.Shared] == value[v.Shared] {
				v.Shared++
			}
		}
		v.Rest = jsontext.Value(value[v.Shared:])
		short.Values = append(short.Values, v)
	}
	return short, whole
}

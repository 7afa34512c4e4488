package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
)

func conversationTests(a *area) {
	a.test("any history comes back byte for byte", testConversationHistories)
	a.test("parts of a conversation", testConversationParts)
	a.test("a conversation goes on after a restart", testConversationRestart)
	a.test("the same span ids in two attempts", testConversationAttempts)
	a.test("spans with the attributes that are named", testConversationAttributes)
}

// history makes the spans of an attempt's calls: each has the whole prompt so far.
type history struct {
	source   *rand.Rand
	attempt  *agl.Attempt
	messages []string // JSON strings
	ids      []string // of the prompt's tokens
	tools    string
	space    string // between some members; spans of this code base have none
	calls    int
}

func newHistory(seed uint64, attempt *agl.Attempt) *history {
	return &history{source: rand.New(rand.NewPCG(seed, 1)), attempt: attempt, tools: `"[]"`, space: strings.Repeat(" ", int(seed%2))}
}

func (h *history) text() string {
	words := make([]string, 20+h.source.IntN(60))
	for i := range words {
		words[i] = fmt.Sprintf("w%d", h.source.IntN(5000))
	}
	return `"` + strings.Join(words, ` \"`) + `\n"`
}

// turn adds a message of the user or the model.
func (h *history) turn() {
	h.messages = append(h.messages, h.text())
	for range 50 {
		h.ids = append(h.ids, fmt.Sprint(h.source.IntN(150_000)))
	}
}

// edit changes the history as agents do.
func (h *history) edit() {
	n := len(h.messages)
	switch at := h.source.IntN(max(n, 1)); h.source.IntN(12) {
	case 0: // an edited message
		if n > 0 {
			h.messages[at] = h.text()
			h.ids = h.ids[:len(h.ids)/2]
		}
	case 1: // a compacted history
		h.messages = append([]string{h.text()}, h.messages[at:]...)
		h.ids = slices.Clone(h.ids[len(h.ids)/2:])
	case 2: // a removed message
		if n > 0 {
			h.messages = slices.Delete(slices.Clone(h.messages), at, at+1)
		}
	case 3: // another branch
		h.messages = slices.Clone(h.messages[:at])
	case 4: // other tools
		h.tools = h.text()
	case 5: // an image
		h.messages = append(h.messages, fmt.Sprintf("\"[{\\\"image_url\\\":\\\"data:image/png;base64,%x\\\"}]\"", h.text()))
	default:
		h.turn()
	}
}

// call returns the spans of the next call.
func (h *history) call() []agl.Span {
	h.calls++
	n := h.calls
	var b strings.Builder
	b.WriteString(`{"gen_ai.system":"openai"`)
	for i, m := range h.messages {
		fmt.Fprintf(&b, `,"gen_ai.prompt.%d.role":"user",%s"gen_ai.prompt.%d.content":%s`, i, h.space, i, m)
	}
	fmt.Fprintf(&b, `,"gen_ai.request.tools":%s,"gen_ai.completion.0.content":%s`, h.tools, h.text())
	model := b.String() + fmt.Sprintf(`,"prompt_token_ids":[%s],"seconds":%d.50}`, strings.Join(h.ids, ","), n)
	raw := fmt.Sprintf(`{"llm.hosted_vllm.prompt_token_ids":"[%s]","llm.hosted_vllm.choices":%s}`, strings.Join(h.ids, ","), h.text())
	var spans []agl.Span
	for i, attributes := range []string{`{}`, model, raw} {
		s := span(h.attempt.RolloutID, h.attempt.AttemptID, fmt.Sprintf("%08x%08x", n, i), int64(n))
		s.Name, s.TraceID = []string{"proxy", "litellm_request", "raw_gen_ai_request"}[i], fmt.Sprintf("%032x", h.source.Uint64())
		s.Attributes = agl.Attributes(attributes)
		s.StartTime, s.EndTime = agl.Some(agl.Timestamp(1000-n)), agl.Some(agl.Timestamp(1000+n))
		if i > 0 {
			s.ParentID = agl.Some(spans[i-1].SpanID)
		}
		spans = append(spans, s)
	}
	return spans
}

// wantDocuments checks that a query returns these spans, byte for byte.
func (h *harness) wantDocuments(what string, p agl.QuerySpansParams, want []agl.Span) {
	h.Helper()
	got := h.spans(p)
	if len(got.Items) != len(want) {
		h.Fatalf("%s: %d spans, want %d", what, len(got.Items), len(want))
	}
	for i := range want {
		if is, should := string(got.Items[i].AppendJSON(nil)), string(want[i].AppendJSON(nil)); is != should {
			h.Fatalf("%s: span %d is\n%.300s, want\n%.300s", what, i, is, should)
		}
	}
	h.wantShort(what, p, want)
}

// wantShort checks that the short form of a query's spans has the same content, and returns its size in bytes.
func (h *harness) wantShort(what string, p agl.QuerySpansParams, want []agl.Span) (size int) {
	h.Helper()
	if !h.Store.Capabilities().QueryShortSpans {
		return 0
	}
	p.AttributeNames = []string{"gen_ai.system", "gen_ai.request.*", "gen_ai.completion*", "llm.hosted_vllm.choices"}
	asked := func(name string) bool { return !strings.HasPrefix(name, "gen_ai.prompt.") && name != "seconds" }
	values := []string{"prompt_token_ids", "llm.hosted_vllm.prompt_token_ids"}
	short, err := h.Store.QueryShortSpans(h.ctx, agl.QueryShortSpansParams{QuerySpansParams: p, Values: values})
	h.ok(err)
	equal(h, what+": short spans", len(short.Spans), len(want))
	got := make([]map[string]string, len(want))
	for i := range short.Spans {
		got[i] = attributesOf(short.Spans[i].Attributes)
		size += len(short.Spans[i].Attributes)
	}
	for i, v := range short.Values {
		if _, twice := got[v.Span][v.Name]; twice || !slices.Contains(values, v.Name) || v.Base >= i {
			h.Fatalf("%s: value %d is %s of span %d with base %d", what, i, v.Name, v.Span, v.Base)
		}
		got[v.Span][v.Name] = string(short.AppendValue(nil, i))
		size += len(v.Rest)
	}
	for i := range want {
		should := attributesOf(want[i].Attributes)
		maps.DeleteFunc(should, func(name, _ string) bool { return !asked(name) })
		maps.DeleteFunc(got[i], func(name, _ string) bool { _, asked := should[name]; return !asked })
		if diff := cmp.Diff(should, got[i]); diff != "" {
			h.Fatalf("%s: attributes of short span %d (-want +got):\n%.2000s", what, i, diff)
		}
		is, other := short.Spans[i], want[i]
		is.Attributes, other.Attributes = nil, nil
		equal(h, what+": short span", string(is.AppendJSON(nil)), string(other.AppendJSON(nil)))
	}
	return size
}

func attributesOf(attributes agl.Attributes) map[string]string {
	all := map[string]string{}
	for name, value := range attributes.All() {
		all[name] = string(value)
	}
	return all
}

func testConversationHistories(h *harness) {
	for seed := range uint64(6) {
		r := h.start(config(agl.RolloutConfig{}), "")
		one := newHistory(seed, r.Attempt)
		var sent, batch []agl.Span
		for range 25 {
			one.edit()
			batch = append(batch, one.call()...)
			if one.source.IntN(3) > 0 {
				h.addSpans(batch...)
				sent, batch = append(sent, batch...), nil
			}
		}
		h.addSpans(batch...)
		h.wantDocuments(fmt.Sprintf("history %d", seed), agl.QuerySpansParams{RolloutID: r.RolloutID}, append(sent, batch...))
	}
}

// conversation stores a conversation of some calls.
func (h *harness) conversation(attempt *agl.Attempt, calls int) (*history, []agl.Span) {
	h.Helper()
	one := newHistory(98, attempt)
	return one, h.goOn(one, calls)
}

func (h *harness) goOn(one *history, calls int) (sent []agl.Span) {
	h.Helper()
	for range calls {
		one.turn()
		spans := one.call()
		h.addSpans(spans...)
		sent = append(sent, spans...)
	}
	return sent
}

func testConversationParts(h *harness) {
	const calls = 20
	r := h.start(config(agl.RolloutConfig{}), "")
	_, sent := h.conversation(r.Attempt, calls)
	at := func(call, span int) agl.Span { return sent[3*call+span] }
	one := agl.QuerySpansParams{RolloutID: r.RolloutID}
	p := one
	p.SpanID = at(17, 1).SpanID
	h.wantDocuments("one span", p, []agl.Span{at(17, 1)})
	p = one
	p.TraceID = at(9, 2).TraceID
	h.wantDocuments("one trace", p, []agl.Span{at(9, 2)})
	p = one
	p.Paging = agl.Paging{Limit: 4, Offset: 31}
	h.wantDocuments("a page", p, sent[31:35])
	p.Paging = agl.Paging{Limit: 2, SortBy: "start_time"}
	h.wantDocuments("the last ones first, by time", p, []agl.Span{at(19, 0), at(19, 1)})
	p.Paging = agl.Paging{Limit: 3, Offset: 3, SortBy: "end_time", Order: agl.Descending}
	h.wantDocuments("descending", p, []agl.Span{at(18, 0), at(18, 1), at(18, 2)})
	p = one
	p.Name, p.Paging = "raw_gen_ai_request", agl.Paging{Limit: 1, Offset: calls - 1}
	h.wantDocuments("the last of a name", p, []agl.Span{at(19, 2)})
	whole := 0
	for i := range sent {
		whole += len(sent[i].Attributes)
	}
	if size := h.wantShort("all", one, sent); size > whole/5 {
		h.Errorf("short spans have %d bytes, whole ones %d; want at most a fifth", size, whole)
	}
}

func testConversationRestart(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	one, sent := h.conversation(r.Attempt, 6)
	h.restart()
	sent = append(sent, h.goOn(one, 6)...)
	h.restart()
	h.wantDocuments("all", agl.QuerySpansParams{RolloutID: r.RolloutID}, sent)
	equal(h, "stored again", len(h.addSpans(sent...).Stored), 0)
	h.wantDocuments("after a repetition", agl.QuerySpansParams{RolloutID: r.RolloutID}, sent)
}

func testConversationAttempts(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	_, first := h.conversation(r.Attempt, 5)
	again := h.startAttempt(r.RolloutID, "")
	_, second := h.conversation(again.Attempt, 7)
	h.wantDocuments("the first attempt", agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}, first)
	h.wantDocuments("the latest attempt", agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: agl.LatestAttempt}, second)
	last := []agl.Span{first[13], second[13]}
	h.wantDocuments("one id in both", agl.QuerySpansParams{RolloutID: r.RolloutID, SpanID: first[13].SpanID, Paging: agl.Paging{SortBy: "attempt_id"}}, byAttempt(last))
}

func byAttempt(spans []agl.Span) []agl.Span {
	slices.SortFunc(spans, func(a, b agl.Span) int { return strings.Compare(a.AttemptID, b.AttemptID) })
	return spans
}

func testConversationAttributes(h *harness) {
	r := h.start(config(agl.RolloutConfig{}), "")
	one := newHistory(0, r.Attempt)
	var sent []agl.Span
	for range 30 {
		one.turn()
		sent = append(sent, one.call()...)
	}
	h.addSpans(sent...)
	read := func(p agl.QuerySpansParams) (got []agl.Span, bytes int) {
		p.RolloutID, p.AttributeNames = r.RolloutID, []string{"gen_ai.completion.*", "seconds", "unknown"}
		got = h.spans(p).Items
		for i := range got {
			bytes += len(got[i].Attributes)
		}
		return got, bytes
	}
	got, bytes := read(agl.QuerySpansParams{})
	equal(h, "spans", len(got), len(sent))
	for i := range sent {
		have := attributesOf(got[i].Attributes)
		for _, name := range []string{"gen_ai.completion.0.content", "seconds"} {
			equal(h, fmt.Sprintf("%s of span %d", name, i), have[name], attributesOf(sent[i].Attributes)[name])
		}
		got[i].Attributes = sent[i].Attributes
		equal(h, "span", string(got[i].AppendJSON(nil)), string(sent[i].AppendJSON(nil)))
	}
	if want := 1000 * one.calls; bytes > want {
		h.Errorf("%d calls have %d bytes of attributes, want at most %d: neither prompts nor their tokens", one.calls, bytes, want)
	}
	last, _ := read(agl.QuerySpansParams{Name: "litellm_request", Paging: agl.Paging{Limit: 1, SortBy: "sequence_id", Order: agl.Descending}})
	equal(h, "the last call", attributesOf(last[0].Attributes)["seconds"], "30.50")
	_, err := h.Store.QuerySpans(h.ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttributeNames: slices.Repeat([]string{"a"}, 101)})
	equal(h, "the error of 101 names", agl.ErrorCode(err), agl.CodeInvalid)
}

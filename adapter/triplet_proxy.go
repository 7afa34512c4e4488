package adapter

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// ProxyTriplets makes triplets from the spans of an LLM proxy, this project's or LiteLLM's, ordered by sequence id.
// Rewards are read from any span; in the order of sequence ids, each goes to the last call with a smaller id that
// does not have a reward yet. Times are never compared, because the spans may come from several machines. Calls with
// the turn type agl.TurnSide are left out.
//
// Triplets have token ids, a response id and a reward. The zero value does what
// LlmProxyTraceToTriplet of the Python package does.
type ProxyTriplets struct {
	// KeepWithoutTokens keeps calls that lack token ids of the prompt or of the response. They get no token ids, and a reward
	// only if it was posted for them, or for a rollout none of whose calls has token ids. By default they are left out.
	KeepWithoutTokens bool
}

// proxyCall is a call that a proxy recorded.
type proxyCall struct {
	triplet  Triplet
	sequence int64
	// details of the call, which its other spans may add to
	*callDetails
}

// callDetails is what the spans of a call record besides its token ids.
type callDetails struct {
	Call

	id      agl.Null[string]
	hasIDs  bool
	side    bool           // the call is beside the conversation
	choices jsontext.Value // the attribute, nil when missing
	content jsontext.Value // logprobs.content, nil when missing
}

// Adapt makes the triplets. Spans may come in any order. Errors have code agl.CodeInvalid.
func (a ProxyTriplets) Adapt(spans []agl.Span) ([]Triplet, error) {
	return a.AdaptShort(agl.ShortSpans{Spans: spans})
}

// ShortForm implements [agl.ShortAdapter].
func (ProxyTriplets) ShortForm() (form agl.ShortForm, ok bool) {
	return agl.ShortForm{Attributes: callAttributes(), Values: []string{agl.AttrPromptTokenIDs, attrVLLMPromptTokenIDs}}, true
}

// AdaptShort implements [agl.ShortAdapter].
func (a ProxyTriplets) AdaptShort(short agl.ShortSpans) ([]Triplet, error) {
	spans := short.Spans
	reader := proxyReader{seen: map[string]bool{}, details: map[detailsKey]*callDetails{}, values: newPromptValues(&short)}
	var rewards []sequencedReward
	attrs := parseCallAttributes(nil)
	for _, span := range inSequence(spans) {
		attrs = attrs.parseCall(span.Attributes)
		if span.Name == agl.SpanRawRequest || span.Name == agl.SpanLiteLLMRequest {
			reader.read(span, attrs)
		}
		found, err := readRewards(span.Name, attrs)
		if err != nil {
			return nil, spanError(span, err)
		}
		if reward := primary(found); reward.Valid && !IsPosted(span) {
			rewards = append(rewards, sequencedReward{span.SequenceID, reward.V})
		}
	}
	reader.calls = slices.DeleteFunc(reader.calls, func(c *proxyCall) bool { return c.side })
	rewardBySequence(reader.calls, rewards)
	if a.KeepWithoutTokens {
		reader.addWithoutTokens()
	}
	triplets := make([]Triplet, len(reader.calls))
	for i, call := range reader.calls {
		triplets[i] = call.finish()
	}
	late, err := postedRewards(spans)
	creditPosted(triplets, late, spans)
	return triplets, err
}

// inSequence returns the spans by sequence id, then by start, without those that repeat an id.
func inSequence(spans []agl.Span) []*agl.Span {
	list := make([]*agl.Span, 0, len(spans))
	known := make(map[string]bool, len(spans))
	for i := range spans {
		if !known[spans[i].SpanID] {
			known[spans[i].SpanID] = true
			list = append(list, &spans[i])
		}
	}
	start := func(s *agl.Span) float64 {
		if !s.StartTime.Valid {
			return math.Inf(-1)
		}
		return float64(s.StartTime.V)
	}
	slices.SortStableFunc(list, func(a, b *agl.Span) int {
		return cmp.Or(cmp.Compare(a.SequenceID, b.SequenceID), cmp.Compare(start(a), start(b)))
	})
	return list
}

// detailsKey identifies a call: by response id, or by sequence id if its reply has none.
type detailsKey struct {
	response string
	sequence int64
}

type proxyReader struct {
	calls   []*proxyCall
	seen    map[string]bool
	details map[detailsKey]*callDetails
	order   []*callDetails
	prompts promptReader
	values  promptValues
}

// read reads one span of a call. Spans come in the order of sequence ids.
func (r *proxyReader) read(span *agl.Span, attrs attributes) {
	id := proxyResponseID(attrs)
	key := detailsKey{response: id.V}
	if !id.Valid {
		key.sequence = span.SequenceID
	}
	details, ok := r.details[key]
	if !ok {
		details = &callDetails{Call: Call{SpanID: span.SpanID, SequenceID: span.SequenceID}, id: id}
		r.details[key] = details
		r.order = append(r.order, details)
	}
	details.add(span, attrs)

	if r.seen[id.V] { // its token ids are known, and reading those of a long prompt is what takes time
		return
	}
	var prompt, response []int32
	if span.Name == agl.SpanRawRequest {
		prompt, response = r.prompt(span, attrs, attrVLLMPromptTokenIDs), rawResponse(attrs)
	} else {
		prompt = r.prompt(span, attrs, agl.AttrPromptTokenIDs)
		response = attrs.literalTokenIDs(agl.AttrResponseTokenIDs, tokenIDs)
	}
	if len(prompt) == 0 || len(response) == 0 {
		return
	}
	call := &proxyCall{sequence: span.SequenceID, callDetails: details}
	if details.hasIDs { // a second reply without an id at one sequence id
		call.callDetails = &callDetails{Call: Call{SequenceID: span.SequenceID}}
		call.add(span, attrs)
	}
	call.hasIDs, call.SpanID = true, span.SpanID
	call.triplet.Prompt.TokenIDs, call.triplet.Response.TokenIDs = prompt, response
	call.triplet.Metadata.ResponseID = id
	if id.Valid {
		r.seen[id.V] = true
	}
	r.calls = append(r.calls, call)
}

// prompt reads the token ids of a prompt.
func (r *proxyReader) prompt(span *agl.Span, attrs attributes, key string) []int32 {
	if i, found := r.values.find(span, key); found {
		return r.values.tokenIDs(&r.prompts, i)
	}
	return attrs.literalTokenIDs(key, r.prompts.tokenIDs)
}

// addWithoutTokens adds the calls without token ids in any span. A span without a response id belongs to the call
// with a response id at the same sequence id.
func (r *proxyReader) addWithoutTokens() {
	named := map[int64]bool{}
	for _, details := range r.order {
		if details.id.Valid {
			named[details.SequenceID] = true
		}
	}
	for _, details := range r.order {
		if details.hasIDs || details.side || !details.id.Valid && named[details.SequenceID] {
			continue
		}
		call := &proxyCall{sequence: details.SequenceID, callDetails: details}
		call.triplet.Prompt.TokenIDs, call.triplet.Response.TokenIDs = []int32{}, []int32{}
		call.triplet.Metadata.ResponseID = details.id
		r.calls = append(r.calls, call)
	}
	slices.SortStableFunc(r.calls, func(a, b *proxyCall) int { return cmp.Compare(a.sequence, b.sequence) })
}

// add adds what a span of the call records.
func (d *callDetails) add(span *agl.Span, attrs attributes) {
	if d.choices == nil {
		d.choices, _ = attrs.get(attrVLLMChoices)
	}
	if raw, ok := attrs.get(agl.AttrLogprobsContent); ok && d.content == nil {
		d.content, _ = textValue(raw)
	}
	if reason, ok := attrs.str(agl.AttrGenAICompletion + ".0.finish_reason"); ok {
		d.FinishReason = reason
	}
	if kind, ok := attrs.str(agl.AttrTurnType); ok && strings.EqualFold(kind, agl.TurnSide) {
		d.side = true
	}
	d.describe(span, attrs)
}

// finish completes the triplet after all spans of the call were read.
func (c *proxyCall) finish() Triplet {
	n := len(c.triplet.Response.TokenIDs)
	c.Logprobs = contentLogprobs(c.content, n)
	if c.Logprobs == nil || c.FinishReason == "" {
		c.readChoice(n)
	}
	c.triplet.Call = c.Call
	return c.triplet
}

// readChoice reads the finish reason and the n log-probabilities of the first choice.
func (c *proxyCall) readChoice(n int) {
	choice := firstChoice(c.choices)
	if reason, ok := stringMember(choice, "finish_reason"); ok {
		c.FinishReason = reason
	}
	if c.Logprobs != nil {
		return
	}
	logprobs, _ := rawjson.Get(choice, "logprobs")
	content, _ := rawjson.Get(logprobs, "content")
	if c.Logprobs = contentLogprobs(content, n); c.Logprobs == nil {
		list, _ := rawjson.Get(logprobs, "token_logprobs") // as the Completions API has it
		c.Logprobs = listLogprobs(list, n)
	}
}

// firstChoice returns the first of the choices in an attribute, nil when there is none.
func firstChoice(choices jsontext.Value) jsontext.Value {
	value, err := literalValue(choices)
	if err != nil {
		return nil // text that is not a list
	}
	if list := elements(value); len(list) > 0 && list[0].Kind() == '{' {
		return list[0]
	}
	return nil
}

// proxyResponseID returns the reply's id, or null. The id is never empty.
func proxyResponseID(attrs attributes) agl.Null[string] {
	for _, key := range []string{agl.AttrGenAIResponseID, attrVLLMID} {
		raw, ok := attrs.get(key)
		if !ok {
			continue
		}
		if id, isString := stringValue(raw); !isString || id != "" {
			return agl.Null[string]{V: id, Valid: isString}
		}
	}
	return agl.Null[string]{}
}

// rawResponse reads the token ids of the reply of a raw_gen_ai_request span.
func rawResponse(attrs attributes) (response []int32) {
	if raw, ok := attrs.get(attrVLLMResponseTokenIDs); ok {
		response = firstTokenIDs(raw)
	}
	if raw, ok := attrs.get(attrVLLMChoices); ok && len(response) == 0 {
		ids, _ := rawjson.Get(firstChoice(raw), "token_ids")
		response, _ = tokenIDs(ids)
	}
	return response
}

type sequencedReward struct {
	sequence int64
	value    float64
}

// rewardBySequence gives each reward to the last call with a smaller sequence id that does not have a reward yet.
// Calls and rewards are ordered by sequence id.
func rewardBySequence(calls []*proxyCall, rewards []sequencedReward) {
	var open []*proxyCall
	next := 0
	for _, reward := range rewards {
		for next < len(calls) && calls[next].sequence < reward.sequence {
			open = append(open, calls[next])
			next++
		}
		if len(open) > 0 {
			open[len(open)-1].triplet.Reward = agl.Some(reward.value)
			open = open[:len(open)-1]
		}
	}
}

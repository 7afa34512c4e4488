package adapter

import (
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Triplet is one model call as a learner sees it: prompt, response and reward.
// Its JSON form is that of Agent-lightning's Triplet.
type Triplet struct {
	Prompt   Prompt            `json:"prompt"`
	Response Response          `json:"response"`
	Reward   agl.Null[float64] `json:"reward"` // null when no reward was matched to the call
	Metadata Metadata          `json:"metadata"`
	// Call says where the triplet comes from and how its tokens were sampled.
	Call Call `json:"-"`
}

// Prompt is what the model was given.
type Prompt struct {
	// TokenIDs is empty when none were recorded.
	TokenIDs []int32 `json:"token_ids"`
	// RawContent are the messages, put together from attributes, null when there
	// are none. Nil in triplets of a proxy.
	RawContent jsontext.Value `json:"raw_content,omitzero"`
	// ImageURLs are the addresses of the pictures in the messages, in order. Nil in
	// triplets of a proxy.
	ImageURLs []string `json:"image_urls,omitzero"`
}

// Response is what the model answered.
type Response struct {
	// TokenIDs is empty when none were recorded.
	TokenIDs []int32 `json:"token_ids"`
	// RawContent are the choices, put together from attributes, null when there
	// are none. Nil in triplets of a proxy.
	RawContent jsontext.Value `json:"raw_content,omitzero"`
	// Logprobs is what the attribute logprobs.content holds, a list of objects with
	// a token and a logprob each; nil when it is not there.
	Logprobs jsontext.Value `json:"logprobs,omitzero"`
}

// Metadata describes a call.
type Metadata struct {
	// Request and Response are the other attributes of the request and the
	// response, null when there are none. Nil in triplets of a proxy.
	Request  jsontext.Value `json:"request,omitzero"`
	Response jsontext.Value `json:"response,omitzero"`
	// ResponseID is the reply's id, null when none was recorded.
	ResponseID agl.Null[string] `json:"response_id"`
	// AgentName is the agent that called, "*" when none has a name. Null in
	// triplets of a proxy.
	AgentName agl.Null[string] `json:"agent_name,omitzero"`
}

// Call is where a triplet comes from.
type Call struct {
	SpanID     string
	SequenceID int64
	// Logprobs are the log-probabilities of the response's tokens under the model
	// that sampled them, one each; nil when they were not recorded for every token.
	Logprobs []float32
	// Version and VersionEnd are the versions of the model when the call began and
	// when it ended, "" when not recorded.
	Version, VersionEnd string
	// FinishReason is why the model stopped, "" when not recorded.
	FinishReason string
	// Failed is whether a span of the call has the status ERROR.
	Failed bool
	// Undelivered is whether the agent left before it had the whole reply.
	Undelivered bool
}

// defaultCallMatch is the name of the spans that instrumentations of the OpenAI
// SDK write.
const defaultCallMatch = `openai\.chat\.completion`

// TracerTriplets makes triplets from the spans that a tracer recorded inside an
// agent, in preorder of their tree. The zero value does what the reference's
// TracerTraceToTriplet does by default.
type TracerTriplets struct {
	// KeepHierarchy leaves the tree as it was recorded. By default spans directly
	// under the root move under the span in whose time they ran.
	KeepHierarchy bool
	// CallMatch picks the spans that are model calls, by name. Nil is
	// openai\.chat\.completion.
	CallMatch *regexp.Regexp
	// AgentMatch picks the agents whose calls count, by name. Nil is every agent,
	// and calls outside any agent too.
	AgentMatch *regexp.Regexp
	// IncludeRewardCalls counts calls below a reward span too, which are a judge's
	// and not the agent's.
	IncludeRewardCalls bool
	// RewardMatch says which call a reward belongs to. "" is FirstOccurrence.
	RewardMatch RewardMatch
	// SkipWithoutTokens leaves out calls that lack token ids of the prompt or of
	// the response.
	SkipWithoutTokens bool
}

// Adapt makes the triplets. Spans may come in any order; children of a span are
// taken in the order given. Errors have code agl.CodeInvalid.
func (a TracerTriplets) Adapt(spans []agl.Span) ([]Triplet, error) {
	if a.CallMatch == nil {
		a.CallMatch = regexp.MustCompile(defaultCallMatch)
	}
	if a.RewardMatch == "" {
		a.RewardMatch = FirstOccurrence
	}
	if !slices.Contains(rewardMatches(), a.RewardMatch) {
		return nil, agl.Errorf(agl.CodeInvalid, "RewardMatch: got %q, allowed are %q", a.RewardMatch, rewardMatches())
	}
	root, err := buildTree(spans)
	if err != nil {
		return nil, err
	}
	if !a.KeepHierarchy {
		repair(root)
	}
	nodes := root.preorder()
	all, err := readFacts(nodes)
	if err != nil {
		return nil, err
	}
	triplets := []Triplet{}
	var calls []call
	for _, one := range findCalls(root, all, a.CallMatch, a.AgentMatch, a.IncludeRewardCalls) {
		triplet, err := tracerTriplet(one)
		if err != nil {
			return nil, spanError(one.node.span, err)
		}
		if a.SkipWithoutTokens && (len(triplet.Prompt.TokenIDs) == 0 || len(triplet.Response.TokenIDs) == 0) {
			continue
		}
		triplets = append(triplets, triplet)
		calls = append(calls, one)
	}
	if a.RewardMatch == LastCall {
		return rewardLast(triplets, spans)
	}
	rewards := matchRewards(a.RewardMatch, nodes, all, calls)
	for i, one := range calls {
		if reward, ok := rewards[one.node]; ok {
			triplets[i].Reward = agl.Some(reward)
		}
	}
	return triplets, nil
}

func rewardLast(triplets []Triplet, spans []agl.Span) ([]Triplet, error) {
	reward, err := FinalReward(spans)
	if err == nil && len(triplets) > 0 {
		triplets[len(triplets)-1].Reward = reward
	}
	return triplets, err
}

// tracerTriplet reads the triplet of a call, without its reward.
func tracerTriplet(one call) (Triplet, error) {
	const input, output = agl.AttrOperationInput, agl.AttrOperationOutput
	attrs := one.attributes
	sources := [...][]string{
		{agl.AttrGenAIRequest, input},
		{agl.AttrGenAIResponse, output},
		{agl.AttrGenAIPrompt, input + ".messages"},
		{agl.AttrGenAICompletion, output + ".choices"},
	}
	var parts [len(sources)]*nested
	for i, prefixes := range sources {
		var err error
		if parts[i], err = attrs.firstUnflattened(prefixes...); err != nil {
			return Triplet{}, err
		}
	}
	request, response, prompt, completion := parts[0], parts[1], parts[2], parts[3]
	if request.isObject() {
		request.remove("messages")
	}
	if response.isObject() {
		response.remove("choices", agl.AttrPromptTokenIDs, agl.AttrResponseTokenIDs)
	}
	t := Triplet{
		Prompt: Prompt{
			TokenIDs:   attrs.firstTokenIDs(agl.AttrPromptTokenIDs, output+".prompt_token_ids"),
			RawContent: prompt.json(),
			ImageURLs:  imageURLs(prompt),
		},
		Response: Response{
			TokenIDs: attrs.firstTokenIDs(agl.AttrResponseTokenIDs, output+".response_token_ids.0",
				output+".choices.0.token_ids", output+".choices.0.provider_specific_fields.token_ids"),
			RawContent: completion.json(),
		},
		Metadata: Metadata{
			Request: request.json(), Response: response.json(), AgentName: agl.Some(one.agent),
		},
		Call: Call{SpanID: one.node.id, SequenceID: one.node.span.SequenceID},
	}
	if id, ok := responseID(attrs); ok {
		t.Metadata.ResponseID = agl.Some(id)
	}
	if text, ok := attrs.str(agl.AttrLogprobsContent); ok {
		t.Response.Logprobs = jsontext.Value(text)
		if !t.Response.Logprobs.IsValid(jsontext.AllowDuplicateNames(true)) {
			return Triplet{}, agl.Errorf(agl.CodeInvalid, "attribute %s: got %.100q, must be JSON", agl.AttrLogprobsContent, text)
		}
	}
	t.Call.Logprobs = contentLogprobs(t.Response.Logprobs, len(t.Response.TokenIDs))
	t.Call.describe(one.node.span, attrs)
	t.Call.FinishReason, _ = attrs.firstString(agl.AttrGenAICompletion+".0.finish_reason", output+".choices.0.finish_reason")
	return t, nil
}

// describe takes in what a span knows of how its call went.
func (c *Call) describe(span *agl.Span, attrs attributes) {
	if version, ok := attrs.str(agl.AttrModelVersion); ok {
		c.Version = version
	}
	if version, ok := attrs.str(agl.AttrModelVersionEnd); ok {
		c.VersionEnd = version
	}
	if delivered, ok := attrs.get(attrDelivered); ok && delivered.Kind() == 'f' {
		c.Undelivered = true
	}
	c.Failed = c.Failed || span.Status.Code == agl.StatusError
}

// firstTokenIDs returns the value of the first of the keys that is a list of
// token ids, empty when none is.
func (a attributes) firstTokenIDs(keys ...string) []int32 {
	for _, key := range keys {
		raw, ok := a.get(key)
		if !ok {
			continue
		}
		if ids, ok := tokenIDs(raw); ok {
			return ids
		}
	}
	return []int32{}
}

// imageURLs returns the addresses of the pictures in a prompt: a list of
// messages, an object of messages by number, or one message.
func imageURLs(prompt *nested) []string {
	urls := []string{}
	for _, message := range promptMessages(prompt) {
		content := message.get("content")
		if content == nil {
			continue
		}
		raw := content.json()
		if text, ok := content.str(); ok {
			raw = jsontext.Value(text)
		}
		urls = append(urls, contentImages(raw)...)
	}
	return urls
}

func promptMessages(prompt *nested) []*nested {
	switch {
	case prompt == nil:
		return nil
	case prompt.isList:
		return prompt.list
	}
	var numbers []string
	for _, key := range prompt.keys {
		if isDigits(key) {
			numbers = append(numbers, key)
		}
	}
	if len(numbers) == 0 {
		return []*nested{prompt}
	}
	slices.SortStableFunc(numbers, func(a, b string) int { return compareDigits(trimZeros(a), trimZeros(b)) })
	messages := make([]*nested, len(numbers))
	for i, key := range numbers {
		messages[i] = prompt.members[key]
	}
	return messages
}

// contentImages returns the addresses in a message's content, a list of parts.
// Content of any other kind has none.
func contentImages(raw jsontext.Value) []string {
	if raw.Kind() != '[' || !raw.IsValid(jsontext.AllowDuplicateNames(true)) {
		return nil
	}
	var urls []string
	for _, part := range elements(raw) {
		if kind, _ := stringMember(part, "type"); kind != "image_url" {
			continue
		}
		image, _ := rawjson.Get(part, "image_url")
		if url, ok := stringMember(image, "url"); ok {
			urls = append(urls, url)
		}
	}
	return urls
}

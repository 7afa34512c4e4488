package adapter

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// defaultCallMatch matches the spans of instrumentations of the OpenAI SDK.
const defaultCallMatch = `openai\.chat\.completion`

// TracerTriplets makes triplets from the spans that a tracer recorded inside an agent, in preorder of their tree. The zero
// value does what TracerTraceToTriplet of the Python package does by default.
type TracerTriplets struct {
	// KeepHierarchy leaves the tree as it was recorded. By default, spans directly under the root move under the span
	// during which they ran.
	KeepHierarchy bool
	// CallMatch selects the spans that are model calls, by name. Nil is openai\.chat\.completion.
	CallMatch *regexp.Regexp
	// AgentMatch selects, by name, the agents whose calls count. Nil selects every agent, and calls outside of any
	// agent.
	AgentMatch *regexp.Regexp
	// IncludeRewardCalls also counts calls below a reward span. A judge makes them, not the agent.
	IncludeRewardCalls bool
	// RewardMatch says which call a reward belongs to. "" is FirstOccurrence.
	RewardMatch RewardMatch
	// SkipWithoutTokens leaves out calls that lack token ids of the prompt or of the response.
	SkipWithoutTokens bool
}

// Adapt makes the triplets. Spans may come in any order; children of a span are
// taken in the order given. Errors have code agl.CodeInvalid.
func (a TracerTriplets) Adapt(spans []agl.Span) ([]Triplet, error) {
	if a.CallMatch == nil {
		a.CallMatch = regexp.MustCompile(defaultCallMatch)
	}
	a.RewardMatch = cmp.Or(a.RewardMatch, FirstOccurrence)
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
	for _, c := range findCalls(root, all, a.CallMatch, a.AgentMatch, a.IncludeRewardCalls) {
		triplet, err := tracerTriplet(c)
		if err != nil {
			return nil, spanError(c.node.span, err)
		}
		if a.SkipWithoutTokens && (len(triplet.Prompt.TokenIDs) == 0 || len(triplet.Response.TokenIDs) == 0) {
			continue
		}
		triplets = append(triplets, triplet)
		calls = append(calls, c)
	}
	if a.RewardMatch == LastCall {
		return rewardLast(triplets, spans)
	}
	rewards := matchRewards(a.RewardMatch, nodes, all, calls)
	for i, c := range calls {
		if reward, ok := rewards[c.node]; ok {
			triplets[i].Reward = agl.Some(reward)
		}
	}
	late, err := postedRewards(spans)
	creditPosted(triplets, late, spans)
	return triplets, err
}

func rewardLast(triplets []Triplet, spans []agl.Span) ([]Triplet, error) {
	reward, err := FinalReward(spans)
	if err == nil && len(triplets) > 0 {
		triplets[len(triplets)-1].Reward = reward
	}
	return triplets, err
}

// tracerTriplet reads the triplet of a call, without its reward.
func tracerTriplet(c call) (Triplet, error) {
	const input, output = agl.AttrOperationInput, agl.AttrOperationOutput
	attrs := c.attributes
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
			Request: request.json(), Response: response.json(), AgentName: agl.Some(c.agent),
		},
		Call: Call{SpanID: c.node.id, SequenceID: c.node.span.SequenceID},
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
	t.Call.describe(c.node.span, attrs)
	t.Call.FinishReason, _ = attrs.firstString(agl.AttrGenAICompletion+".0.finish_reason", output+".choices.0.finish_reason")
	return t, nil
}

// imageURLs returns the addresses of the images in a prompt, which is a list of
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

// contentImages returns the addresses in a message's content if that is a list of parts.
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

package adapter

import (
	"bytes"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Attributes of the spans of calls through the LLM proxy. attrDelivered is false when the agent disconnected before it had
// the whole reply; attrOutcome is set when the call failed for a reason that is not the agent's.
const (
	attrDelivered = "agentlightning.proxy.delivered"
	attrOutcome   = "agentlightning.proxy.outcome"
)

// Attributes of raw_gen_ai_request spans, which hold the reply of a vLLM server. Lists are written as text.
const (
	attrVLLMID               = "llm.hosted_vllm.id"
	attrVLLMPromptTokenIDs   = "llm.hosted_vllm.prompt_token_ids"
	attrVLLMResponseTokenIDs = "llm.hosted_vllm.response_token_ids"
	attrVLLMChoices          = "llm.hosted_vllm.choices"
)

// Attributes that carry a reward in the second and third form of [Rewards].
const (
	attrTaskOutput      = "agentops.task.output"
	attrEntityOutput    = "agentops.entity.output"
	attrAnnotatedReward = "reward"
)

// parseCallAttributes is parseAttributes limited to what [ProxyTriplets] and rewards read. It leaves out messages,
// which are most of the record of a call.
func parseCallAttributes(raw agl.Attributes) attributes {
	return make(attributes, 0, 16).parseCall(raw)
}

// parseCall is parseCallAttributes, reusing the memory of a.
func (a attributes) parseCall(raw agl.Attributes) attributes {
	a = a[:0]
	for name, value := range rawjson.Members(raw) {
		if isCallAttribute(name) {
			a = append(a, attribute{rawjson.UnquoteName(name), value})
		}
	}
	return a
}

// isCallAttribute reports whether [ProxyTriplets] or rewards read the attribute with this name. The name may contain
// JSON escapes.
func isCallAttribute(name []byte) bool {
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(rawjson.UnquoteName(name))
	}
	return callNames[string(name)] || bytes.HasPrefix(name, []byte(agl.AttrReward))
}

// callNames has the names for which isCallAttribute is true, besides the prefix of rewards.
var callNames = func() map[string]bool {
	names := map[string]bool{agl.AttrPromptTokenIDs: true, attrVLLMPromptTokenIDs: true}
	for _, name := range callAttributes() {
		names[name] = true
	}
	return names
}()

// callAttributes returns the names for which isCallAttribute is true, without those of the values of the short form, for
// [agl.ShortForm].
func callAttributes() []string {
	names := append(RewardAttributes(),
		agl.AttrGenAIResponseID, agl.AttrOperationOutput+".id", attrVLLMID,
		agl.AttrResponseTokenIDs, agl.AttrLogprobsContent, agl.AttrGenAICompletion+".0.finish_reason",
		attrVLLMResponseTokenIDs, attrVLLMChoices,
		agl.AttrModelVersion, agl.AttrModelVersionEnd, agl.AttrGenAIRequestModel,
		attrDelivered, attrOutcome, agl.AttrTurn, agl.AttrTurnType)
	for _, parameter := range []string{"temperature", "top_p", "repetition_penalty", "top_k", "min_p", "presence_penalty", "frequency_penalty"} {
		names = append(names, agl.AttrGenAIRequest+"."+parameter)
	}
	return names
}

// neutralSampling reports whether name is a sampling parameter that can change the distribution of samples, and whether this
// value leaves the distribution as it is. Servers take a top_k of 0 or less as no limit.
func neutralSampling(name string, value float64) (known, neutral bool) {
	switch name {
	case "temperature", "top_p", "repetition_penalty":
		return true, value == 1
	case "top_k", "min_p":
		return true, value <= 0
	case "presence_penalty", "frequency_penalty":
		return true, value == 0
	}
	return false, true
}

func responseID(attrs attributes) (string, bool) {
	return attrs.firstString(agl.AttrGenAIResponseID, agl.AttrOperationOutput+".id")
}

package adapter

import (
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

// TestCallAttributes: what a store is asked for in short form is what the adapter reads of whole spans.
func TestCallAttributes(t *testing.T) {
	t.Parallel()
	form, _ := ProxyTriplets{}.ShortForm()
	asked := slices.Concat(form.Attributes, form.Values)
	for _, name := range asked {
		if !isCallAttribute([]byte(strings.TrimSuffix(name, "*"))) {
			t.Errorf("%s is asked for and not read", name)
		}
	}
	for _, name := range []string{
		"gen_ai.response.id", agl.AttrOperationOutput + ".id", "llm.hosted_vllm.id", "prompt_token_ids", "response_token_ids", "logprobs.content",
		"gen_ai.completion.0.finish_reason", "llm.hosted_vllm.prompt_token_ids", "llm.hosted_vllm.response_token_ids", "llm.hosted_vllm.choices",
		agl.AttrModelVersion, agl.AttrModelVersionEnd, "gen_ai.request.model", "agentlightning.proxy.delivered", "agentlightning.proxy.outcome",
		agl.AttrTurn, agl.AttrTurnType, "agentops.task.output", "agentops.entity.output", "reward",
		"agentlightning.reward.0.value", "agentlightning.reward_priority", "gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.request.top_k",
		"gen_ai.request.min_p", "gen_ai.request.repetition_penalty", "gen_ai.request.presence_penalty", "gen_ai.request.frequency_penalty",
		"gen_ai.prompt.0.content", "gen_ai.request.seed", "gen_ai.usage.input_tokens",
	} {
		isAsked := slices.ContainsFunc(asked, func(wanted string) bool {
			prefix, many := strings.CutSuffix(wanted, "*")
			return name == wanted || many && strings.HasPrefix(name, prefix)
		})
		if read := isCallAttribute([]byte(name)); read != isAsked {
			t.Errorf("%s: read %t, asked for %t", name, read, isAsked)
		}
	}
}

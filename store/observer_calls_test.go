package store

import (
	"testing"

	"github.com/agl-go/agl"
)

func TestObservedCall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		attributes      string
		version         string
		prompt, replies int64
	}{
		"nothing":                   {`{}`, "", 0, 0},
		"a version":                 {`{"gen_ai.request.model":"asked","gen_ai.response.model":"m","agentlightning.model.version":"m@3"}`, "m@3", 0, 0},
		"a model":                   {`{"gen_ai.request.model":"asked","gen_ai.response.model":"m\u00e9","agentlightning.model.version":""}`, "mé", 0, 0},
		"a model that is no text":   {`{"gen_ai.request.model":"asked","gen_ai.response.model":7}`, "asked", 0, 0},
		"tokens":                    {`{"gen_ai.usage.completion_tokens":5,"gen_ai.usage.prompt_tokens":7}`, "", 7, 5},
		"tokens by the other names": {`{"gen_ai.usage.output_tokens":5,"gen_ai.usage.input_tokens":7.0}`, "", 7, 5},
		"both names":                {`{"gen_ai.usage.input_tokens":1,"gen_ai.usage.output_tokens":2,"gen_ai.usage.prompt_tokens":7,"gen_ai.usage.completion_tokens":5}`, "", 7, 5},
		"no counts":                 {`{"gen_ai.usage.prompt_tokens":-1,"gen_ai.usage.completion_tokens":1e300}`, "", 0, 0},
		"names in a text":           {`{"gen_ai.prompt.0.content":"\"gen_ai.usage.prompt_tokens\":9,\"agentlightning.model.version\":\"x\""}`, "", 0, 0},
	} {
		version, prompt, replies := observedCall(agl.Attributes(tt.attributes))
		if version != tt.version || prompt != tt.prompt || replies != tt.replies {
			t.Errorf("%s: %q, %d, %d, want %q, %d, %d", name, version, prompt, replies, tt.version, tt.prompt, tt.replies)
		}
	}
}

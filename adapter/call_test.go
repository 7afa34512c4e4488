package adapter

import (
	"testing"

	"github.com/agl-go/agl"
)

// A call tells its model and what makes its samples other than the model's own.
func TestCallSampling(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attrs []agl.Attr
		want  string
	}{
		"nothing":      {nil, ""},
		"neutral":      {[]agl.Attr{{Key: "gen_ai.request.temperature", Value: 1.0}, {Key: "gen_ai.request.top_p", Value: 1}, {Key: "gen_ai.request.top_k", Value: -1}, {Key: "gen_ai.request.min_p", Value: 0}, {Key: "gen_ai.request.presence_penalty", Value: 0}}, ""},
		"no parameter": {[]agl.Attr{{Key: "gen_ai.request.max_tokens", Value: 7}, {Key: "gen_ai.request.seed", Value: 3}}, ""},
		"greedy":       {[]agl.Attr{{Key: "gen_ai.request.temperature", Value: 0}}, "temperature=0"},
		"several": {[]agl.Attr{{Key: "gen_ai.request.top_p", Value: 0.9}, {Key: "gen_ai.request.temperature", Value: 0.7}, {Key: "gen_ai.request.top_k", Value: 20}},
			"temperature=0.7 top_k=20 top_p=0.9"},
		"penalties": {[]agl.Attr{{Key: "gen_ai.request.repetition_penalty", Value: 1.1}, {Key: "gen_ai.request.frequency_penalty", Value: -0.5}},
			"frequency_penalty=-0.5 repetition_penalty=1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attributes, err := agl.NewAttributes(append([]agl.Attr{{Key: agl.AttrGenAIRequestModel, Value: "m"}}, test.attrs...)...)
			if err != nil {
				t.Fatal(err)
			}
			triplets, err := ProxyTriplets{KeepWithoutTokens: true}.Adapt([]agl.Span{{SpanID: "a", Name: agl.SpanLiteLLMRequest, SequenceID: 1, Attributes: attributes}})
			if err != nil || len(triplets) != 1 {
				t.Fatalf("%d triplets (%v), want 1", len(triplets), err)
			}
			if call := triplets[0].Call; call.Model != "m" || call.Sampling != test.want {
				t.Errorf("model %q, sampling %q; want m, %q", call.Model, call.Sampling, test.want)
			}
		})
	}
}

//go:build page

package page

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
)

// canary proposes a release and gives both arms sessions, of which the candidate's earn more.
func canary(t *testing.T, store *client.Client) (id string) {
	t.Helper()
	r, err := store.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{Model: "support-v2"}, Model: "support", Share: 0.5, Suite: &release.Suite{
		Tasks: 60, Stable: 0.5, Candidate: 0.625, Baseline: [2]float64{0.4375, 0.5625}, Difference: [2]float64{-0.03125, 0.28125},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		arm := release.Arm(i % 2)
		session, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
			Input:    jsontext.Value(`"a session"`),
			Metadata: jsontext.Value(fmt.Sprintf(`{%q:%q,%q:%q,%q:0.5}`, release.MetadataRelease, r.ID, release.MetadataArm, arm, release.MetadataShare)),
		}})
		if err != nil {
			t.Fatal(err)
		}
		spans := []agl.Span{
			span(agl.SpanLiteLLMRequest, began, fmt.Sprintf(`{"gen_ai.completion.0.finish_reason":"stop","gen_ai.usage.output_tokens":%d}`, 90+i)),
			span("agentlightning.annotation", began+1, fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":%g}`, 0.4+0.3*float64(arm)+0.05*float64(i%5))),
		}
		for n := range spans {
			s := &spans[n]
			s.RolloutID, s.AttemptID, s.SequenceID = session.RolloutID, session.Attempt.AttemptID, int64(n+1)
			s.TraceID, s.SpanID = fmt.Sprintf("%032x", i+1), fmt.Sprintf("%016x", n+1)
		}
		if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: spans}); err != nil {
			t.Fatal(err)
		}
		end(t, store, session, agl.AttemptSucceeded, nil)
	}
	return r.ID
}

package adapter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

// rolloutSpans makes a rollout of n spans of about 1.5 KB: agents whose calls
// hang under the root, as mixed tracing systems leave them, and every tenth a
// reward. The calls of an agent continue one another.
func rolloutSpans(b *testing.B, n int) []agl.Span {
	b.Helper()
	spans := []agl.Span{{SpanID: "root", Name: "run", StartTime: at(0), EndTime: at(float64(n) + 1)}}
	var prompt []int
	for i := 1; i < n; i++ {
		span := agl.Span{
			SpanID: fmt.Sprint(i), ParentID: agl.Some("root"), SequenceID: int64(i),
			StartTime: at(float64(i)), EndTime: at(float64(i) + 0.5),
		}
		switch i % 10 {
		case 0:
			span.Name, span.EndTime = "agent", at(float64(i)+9.8)
			span.Attributes = attributesOf(b, agl.Attr{Key: "agent.name", Value: fmt.Sprint("agent-", i)})
			prompt = []int{i, 1, 2, 3}
		case 9:
			span.Name, span.Attributes = agl.SpanAnnotation, rewardAttributes(b, float64(i))
		default:
			reply := []int{i, i + 1, i + 2}
			span.Name = agl.SpanChatCompletion
			span.Attributes = attributesOf(b,
				agl.Attr{Key: agl.AttrGenAIResponseID, Value: fmt.Sprint("chatcmpl-", i)},
				agl.Attr{Key: "gen_ai.prompt.0.role", Value: "user"},
				agl.Attr{Key: "gen_ai.prompt.0.content", Value: strings.Repeat("text ", 200)},
				agl.Attr{Key: "gen_ai.completion.0.role", Value: "assistant"},
				agl.Attr{Key: "gen_ai.completion.0.content", Value: "answer"},
				agl.Attr{Key: agl.AttrPromptTokenIDs, Value: prompt},
				agl.Attr{Key: agl.AttrResponseTokenIDs, Value: reply},
				agl.Attr{Key: attrVLLMPromptTokenIDs, Value: strings.ReplaceAll(fmt.Sprint(prompt), " ", ", ")},
				agl.Attr{Key: attrVLLMChoices, Value: "[{'index': 0, 'token_ids': " + strings.ReplaceAll(fmt.Sprint(reply), " ", ", ") + ", 'logprobs': None}]"},
			)
			prompt = slices.Concat(prompt, reply, []int{7})
		}
		spans = append(spans, span)
	}
	return spans
}

// BenchmarkAdapt adapts rollouts of 1,000 and of 10,000 spans; without a
// quadratic step the second takes about ten times the first.
func BenchmarkAdapt(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		traced := rolloutSpans(b, n)
		proxied := rolloutSpans(b, n)
		for i := range proxied {
			if proxied[i].Name == agl.SpanChatCompletion {
				proxied[i].Name = agl.SpanRawRequest
			}
		}
		for _, c := range []struct {
			name  string
			adapt func() (int, error)
		}{
			{"tracer", func() (int, error) { t, err := TracerTriplets{}.Adapt(traced); return len(t), err }},
			{"proxy", func() (int, error) { t, err := ProxyTriplets{}.Adapt(proxied); return len(t), err }},
			{"messages", func() (int, error) { m, err := Messages{}.Adapt(traced); return len(m), err }},
			{"trajectories", func() (int, error) { m, err := Trajectories{}.Adapt(proxied); return m.Report.Calls, err }},
		} {
			b.Run(fmt.Sprint(c.name, "/", n), func(b *testing.B) {
				for b.Loop() {
					if calls, err := c.adapt(); err != nil || calls < n*7/10 {
						b.Fatalf("%d calls, %v", calls, err)
					}
				}
			})
		}
	}
}

package trainer

import (
	"context"
	"sync/atomic"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
)

// Usage is what the recorded model calls of a run have used.
type Usage struct {
	Calls            int64 `json:"calls"`
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// Plus adds up.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Calls + v.Calls, u.PromptTokens + v.PromptTokens, u.CompletionTokens + v.CompletionTokens}
}

// Tokens is the sum of both kinds.
func (u Usage) Tokens() int64 { return u.PromptTokens + u.CompletionTokens }

// meter counts the calls whose spans it passes on.
type meter struct {
	calls, prompt, completion atomic.Int64
}

func (m *meter) read() Usage {
	return Usage{m.calls.Load(), m.prompt.Load(), m.completion.Load()}
}

// reserver is what a proxy uses of its spans where it is there.
type reserver interface {
	ReserveSequenceIDsOf(ctx context.Context, attempts []agl.ReserveSequenceIDsParams) (first []int64, err error)
}

// over puts the meter before a store's spans.
func (m *meter) over(spans proxy.Spans) proxy.Spans {
	if many, ok := spans.(reserver); ok {
		return struct {
			metered
			reserver
		}{metered{spans, m}, many}
	}
	return metered{spans, m}
}

// metered are a store's spans behind a meter.
type metered struct {
	proxy.Spans
	*meter
}

// AddSpans counts what is stored.
func (s metered) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	result, err := s.Spans.AddSpans(ctx, p)
	if err != nil {
		return result, err
	}
	for i := range result.Stored {
		attributes := result.Stored[i].Attributes
		prompt, counted := attributes.GetInt(agl.AttrGenAIInputTokens)
		completion, replied := attributes.GetInt(agl.AttrGenAIOutputTokens)
		if counted || replied {
			s.calls.Add(1)
			s.prompt.Add(prompt)
			s.completion.Add(completion)
		}
	}
	return result, nil
}

package trainer

import (
	"bytes"
	"context"
	"strconv"
	"sync/atomic"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
)

// Usage is the usage of the recorded model calls of a run.
type Usage struct {
	Calls            int64 `json:"calls"`
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// Plus returns the sum of two usages.
func (u Usage) Plus(v Usage) Usage {
	return Usage{u.Calls + v.Calls, u.PromptTokens + v.PromptTokens, u.CompletionTokens + v.CompletionTokens}
}

// meter counts the calls whose spans it passes on.
type meter struct {
	calls, prompt, completion atomic.Int64
}

func (m *meter) read() Usage {
	return Usage{m.calls.Load(), m.prompt.Load(), m.completion.Load()}
}

// over returns a store of spans whose calls the meter counts.
func (m *meter) over(spans proxy.Spans) proxy.Spans { return metered{spans, m} }

// metered counts the calls of the spans that it adds to a store.
type metered struct {
	proxy.Spans
	*meter
}

func (s metered) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	result, err := s.Spans.AddSpans(ctx, p)
	if err != nil {
		return result, err
	}
	for i := range result.Stored {
		attributes := result.Stored[i].Attributes
		prompt, counted := attributes.GetInt(agl.AttrGenAIInputTokens)
		completion, replied := attributes.GetInt(agl.AttrGenAIOutputTokens)
		s.count(prompt, completion, counted || replied)
	}
	return result, nil
}

func (s metered) AddSpansJSON(ctx context.Context, p agl.AddSpansJSONParams) (agl.AddSpansResult, error) {
	result, err := s.Spans.AddSpansJSON(ctx, p)
	if err != nil {
		return result, err
	}
	for _, span := range p.Spans {
		prompt, counted := member(span, agl.AttrGenAIInputTokens)
		completion, replied := member(span, agl.AttrGenAIOutputTokens)
		s.count(prompt, completion, counted || replied)
	}
	return result, nil
}

func (m *meter) count(prompt, completion int64, counted bool) {
	if counted {
		m.calls.Add(1)
		m.prompt.Add(prompt)
		m.completion.Add(completion)
	}
}

// member finds a number among the attributes of a span in the form in which the proxy writes it. Quotes within strings are
// escaped, so the name in quotes is always the name of a member.
func member(span []byte, name string) (n int64, found bool) {
	_, value, found := bytes.Cut(span, []byte(`"`+name+`":`))
	if !found {
		return 0, false
	}
	end := bytes.IndexAny(value, ",}")
	if end < 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value[:end]), 10, 64)
	return n, err == nil
}

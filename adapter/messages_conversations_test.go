package adapter_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/adapter/rows"
)

// A reply that calls tools is read with its calls, and what follows it is the same conversation.
func TestConversationsWithCalls(t *testing.T) {
	t.Parallel()
	const (
		asked = `"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"write to Ada",`
		calls = `.role":"assistant","$.content":"I do","$.tool_calls.0.id":"t1","$.tool_calls.0.type":"function","$.tool_calls.0.name":"mail","$.tool_calls.0.arguments":"{}"`
	)
	spans := []agl.Span{
		{Name: agl.SpanLiteLLMRequest, SpanID: "a", SequenceID: 1, Attributes: agl.Attributes(`{` + asked + at("gen_ai.completion.0", calls) + `}`)},
		{Name: agl.SpanLiteLLMRequest, SpanID: "b", SequenceID: 2, Attributes: agl.Attributes(`{` + asked + at("gen_ai.prompt.1", calls) +
			`,"gen_ai.prompt.2.role":"tool","gen_ai.prompt.2.content":"sent","gen_ai.prompt.2.tool_call_id":"t1","gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"done"}`)},
	}
	text := func(c adapter.Conversation) (lines []string) {
		for _, m := range c.Messages {
			line := m.Role + ": " + m.Text()
			for _, call := range m.ToolCalls {
				line += " " + call.Function.Name + call.Function.Arguments
			}
			lines = append(lines, line)
		}
		return lines
	}
	want := []string{"user: write to Ada", "assistant: I do mail{}", "tool: sent", "assistant: done"}
	read, err := adapter.Conversations(spans)
	if err != nil || len(read) != 1 {
		t.Fatalf("%d conversations, want 1 (%v)", len(read), err)
	}
	if diff := cmp.Diff(want, text(read[0])); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	made, err := rows.Conversations(rows.Origin{}, spans)
	if err != nil || len(made) != 2 {
		t.Fatalf("%d rows, want 2 (%v)", len(made), err)
	}
	for i, of := range []struct{ row, message int }{{0, 1}, {1, 1}} {
		m := made[of.row].Messages[of.message]
		if string(m.Content) != `"I do"` || !strings.Contains(string(m.ToolCalls), `"mail"`) {
			t.Errorf("%d: the row has %s with the calls %s", i, m.Content, m.ToolCalls)
		}
	}
}

// at returns attributes below a prefix, which stands for $ in them.
func at(prefix, attributes string) string {
	return `"` + prefix + strings.ReplaceAll(attributes, "$", prefix)
}

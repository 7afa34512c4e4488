package adapter_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
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

// Without Strict what was sent is read, whatever it is; the reference refuses it.
func TestMessagesAsSent(t *testing.T) {
	t.Parallel()
	for attributes, want := range map[string]string{
		`{"gen_ai.prompt.0.content":"hi"}`:                                                                  `{"role":"","content":"hi"}`,
		`{"gen_ai.prompt.0.role":7,"gen_ai.prompt.0.content":42}`:                                           `{"role":"7","content":"42"}`,
		`{"gen_ai.prompt.0.role":"assistant","gen_ai.prompt.0.tool_calls":"f"}`:                             `{"role":"assistant","content":""}`,
		`{"gen_ai.prompt.0.role":"assistant","gen_ai.prompt.0.tool_calls.0.name":"f"}`:                      `{"role":"assistant","content":null,"tool_calls":[{"id":"","type":"function","function":{"name":"f","arguments":""}}]}`,
		`{"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"x","gen_ai.request.functions":"f"}`:      `{"role":"user","content":"x"}`,
		`{"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"x","gen_ai.request.functions.0.name":7}`: `{"role":"user","content":"x"}`,
		`{"gen_ai.prompt.0.role":"tool","gen_ai.prompt.0.content":"x","gen_ai.prompt.0.tool_call_id":7}`:    `{"role":"tool","content":"x","tool_call_id":"7"}`,
	} {
		spans := []agl.Span{{SpanID: "s", Name: agl.SpanLiteLLMRequest, Attributes: agl.Attributes(attributes)}}
		got, err := adapter.Messages{OwnCalls: true}.Adapt(spans)
		if err != nil || len(got) != 1 || len(got[0].Messages) != 1 {
			t.Errorf("%s: got %+v, %v", attributes, got, err)
			continue
		}
		if text, err := json.Marshal(got[0].Messages[0]); err != nil || string(text) != want {
			t.Errorf("%s: got %s, %v, want %s", attributes, text, err, want)
		}
		if _, err := (adapter.Messages{Strict: true}).Adapt(spans); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: strict got %v", attributes, err)
		}
	}
}

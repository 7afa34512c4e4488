package pretrained

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// The texts that a probe looks for in what it has rendered.
const (
	probeUser  = "agl probe asks"
	probeReply = "agl probe answers"
	probeName  = "agl_probe_call"
	probeArg   = `"agl_probe_argument": 17`
)

// probe renders small conversations and finds out what ends a reply, and which form the template needs.
func (m *Model) probe() error {
	user := chat.Message{Role: "user", Content: probeUser}
	reply := chat.Message{Role: "assistant", Content: probeReply}
	text, err := m.renderAll(false, user, reply)
	if err != nil {
		return err
	}
	at := strings.LastIndex(text, probeReply)
	if at < 0 || !strings.Contains(text, probeUser) {
		return agl.Errorf(agl.CodeInvalid, "chat template: it omits messages of a plain conversation")
	}
	tail := m.tok.Append(nil, strings.TrimLeft(text[at+len(probeReply):], "\n"), tokenizer.Options{Added: true})
	if len(tail) > 0 && m.tok.Added(tail[0]) {
		m.stops[tail[0]] = true
	}
	asking, err := m.renderAll(true, user)
	if err != nil {
		return err
	}
	m.opensReasoning = opens(asking)
	m.thinks = m.thinks || m.opensReasoning

	parts := chat.Message{Raw: jsontext.Value(`{"role":"user","content":[{"type":"text","text":"` + probeUser + `"}]}`)}
	text, err = m.renderAll(false, parts)
	m.form.partsAsText = err != nil || !strings.Contains(text, probeUser) || strings.Contains(text, "'type'") || strings.Contains(text, `"type"`)
	if m.style != StyleNone {
		return m.probeCalls(user)
	}
	return nil
}

// probeCalls finds the form in which the template renders a tool call.
func (m *Model) probeCalls(user chat.Message) error {
	call := chat.Message{Role: "assistant", ToolCalls: []chat.ToolCall{{
		ID: "call_probe1", Type: "function",
		Function: chat.FunctionCall{Name: probeName, Arguments: "{" + probeArg + "}"},
	}}}
	result := chat.Message{Role: "tool", Content: "done", ToolCallID: "call_probe1"}
	for _, f := range []form{{}, {nullContent: true}, {argumentsAsObject: true}, {argumentsAsObject: true, nullContent: true}} {
		f.partsAsText = m.form.partsAsText
		m.form = f
		text, err := m.renderAll(true, user, call, result)
		if err == nil && strings.Contains(text, probeName) && strings.Contains(text, probeArg) {
			return nil
		}
	}
	return agl.Errorf(agl.CodeInvalid, "chat template: it looks like %s, but renders a tool call in no known form; set the style to none to use the model without tools", m.style)
}

// renderAll renders messages, with the start of a reply if ask is set.
func (m *Model) renderAll(ask bool, messages ...chat.Message) (string, error) {
	return m.render(messages, TextParams{AddGenerationPrompt: ask})
}

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/runner/process"
)

// writeConversations writes what the agent and its models said: each conversation
// once, at its longest, and then the output of the program.
func writeConversations(w io.Writer, spans []agl.Span) error {
	found, err := adapter.Messages{}.Adapt(adapter.OncePerCall(spans))
	if err != nil {
		// The tree above shows the spans.
		_, err = fmt.Fprintln(w, console.Bad.Render("the conversations cannot be read: "+console.Printable(err.Error())))
		return err
	}
	found = slices.DeleteFunc(found, func(c adapter.Conversation) bool { return len(c.Messages) == 0 })
	var b strings.Builder
	number := 0
	for i := range found {
		continued := slices.ContainsFunc(found[i+1:], func(c adapter.Conversation) bool { return continues(c, found[i]) })
		if continued {
			continue
		}
		number++
		fmt.Fprintf(&b, "\n%s\n", console.Strong.Render(fmt.Sprintf("conversation %d", number)))
		for j := range found[i].Messages {
			writeMessage(&b, &found[i].Messages[j])
		}
	}
	for i := range spans {
		stream, ok := spans[i].Attributes.GetString(process.AttrStream)
		if !ok {
			continue
		}
		body, _ := spans[i].Attributes.GetString(agl.AttrMessageBody)
		fmt.Fprintf(&b, "\n%s\n", console.Strong.Render(console.Printable(stream)))
		console.Block(&b, "  ", "  ", body)
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// continues reports whether a conversation begins with all messages of another one.
func continues(c, earlier adapter.Conversation) bool {
	if len(c.Messages) <= len(earlier.Messages) {
		return false
	}
	for i := range earlier.Messages {
		a, b := &c.Messages[i], &earlier.Messages[i]
		if a.Role != b.Role || len(a.ToolCalls) != len(b.ToolCalls) || messageText(a.Content) != messageText(b.Content) {
			return false
		}
	}
	return true
}

func writeMessage(b *strings.Builder, m *adapter.Message) {
	head := console.Faint.Render(fmt.Sprintf("  %-9s ", console.Printable(m.Role)))
	below := strings.Repeat(" ", 12)
	if text := messageText(m.Content); text != "" || len(m.ToolCalls) == 0 {
		console.Block(b, head, below, text)
		head = below
	}
	for _, call := range m.ToolCalls {
		console.Block(b, head, below, "→ "+call.Function.Name+"("+call.Function.Arguments+")")
		head = below
	}
}

// messageText is the text of a message's content; that of parts is JSON.
func messageText(content jsontext.Value) string {
	switch content.Kind() {
	case '"':
		if text, err := jsontext.AppendUnquote(nil, content); err == nil {
			return string(text)
		}
	case 'n':
		return ""
	}
	return string(content)
}

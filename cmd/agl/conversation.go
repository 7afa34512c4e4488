package main

import (
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/runner/process"
)

// writeConversations writes what the agent and its models said: each conversation
// once, at its longest, and then the output of the program. said are the spans with their messages; nil
// if spans have them.
func writeConversations(w io.Writer, spans []agl.Span, said iter.Seq2[*agl.Span, error]) error {
	found, err := adapter.ReadConversations(spans, said)
	if err != nil && agl.ErrorCode(err) != agl.CodeInvalid { // of the store
		return err
	}
	if err != nil {
		// The tree above shows the spans.
		_, err = fmt.Fprintln(w, console.Bad.Render("the conversations cannot be read: "+console.Printable(err.Error())))
		return err
	}
	var b strings.Builder
	for i := range found {
		fmt.Fprintf(&b, "\n%s\n", console.Strong.Render(fmt.Sprintf("conversation %d", i+1)))
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

func writeMessage(b *strings.Builder, m *adapter.Message) {
	head := console.Faint.Render(fmt.Sprintf("  %-9s ", console.Printable(m.Role)))
	below := strings.Repeat(" ", 12)
	if text := m.Text(); text != "" || len(m.ToolCalls) == 0 {
		console.Block(b, head, below, text)
		head = below
	}
	for _, call := range m.ToolCalls {
		console.Block(b, head, below, "→ "+call.Function.Name+"("+call.Function.Arguments+")")
		head = below
	}
}

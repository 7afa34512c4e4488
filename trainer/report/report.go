// Package report writes what a run did as one page that needs no other file: no scripts, no fonts, no pictures from elsewhere.
//
// It must not know how a run is made; it reads stores.
package report

import (
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/runner/process"
)

// frame has no scripts and no fonts, and is readable on light and dark.
const frame = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:"><meta name="viewport" content="width=device-width,initial-scale=1"><title>%s</title><style>
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;overflow-wrap:anywhere}
table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid var(--line);padding:.3em .8em .3em 0;text-align:left;vertical-align:top}
pre,code{font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}pre{background:var(--soft);padding:.8em;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}
svg{max-width:100%%;height:auto;margin:.4em 0}.pair{display:grid;grid-template-columns:1fr 1fr;gap:1em}@media(max-width:700px){.pair{grid-template-columns:1fr}}
.said{unicode-bidi:isolate;border-left:3px solid var(--line);padding-left:.8em;margin:.4em 0;white-space:pre-wrap;overflow-wrap:anywhere}.role{opacity:.65;font-size:13px}.task{margin-top:1.8em}
.tree{border-left:2px solid var(--line);margin-left:.4em;padding-left:1em}summary{cursor:pointer}
</style></head><body>
%s</body></html>
`

// direction matches the characters that turn the direction of text, so that it passes for another one.
var direction = regexp.MustCompile(`[\x{061c}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

// Page returns a document with a title, which is text, and a body, which is HTML. Characters that turn the direction of text are
// shown by their numbers, as on the page of a store.
func Page(title, body string) []byte {
	return direction.ReplaceAllFunc(fmt.Appendf(nil, frame, html.EscapeString(title), body), func(c []byte) []byte {
		return fmt.Appendf(nil, "⟨%04X⟩", []rune(string(c))[0])
	})
}

// Rollout is a rollout with what it said.
type Rollout struct {
	agl.AttemptedRollout

	Reward agl.Null[float64] // null if none counts
	Said   []adapter.Conversation
	Output []Output
}

// Output is what the program of a rollout wrote to a stream.
type Output struct{ Stream, Text string }

// ReadRollout reads what a rollout said; nil if its spans are gone or cannot be read.
func ReadRollout(ctx context.Context, s agl.Store, r *agl.AttemptedRollout) (*Rollout, error) {
	e, err := algorithm.Read(ctx, s, *r)
	if err != nil {
		return nil, err
	}
	out := &Rollout{AttemptedRollout: *r}
	if reward, mask := e.Score(); mask == "" {
		out.Reward = agl.Some(reward)
	}
	if out.Said, err = adapter.Conversations(e.Spans); err != nil {
		return nil, nil //nolint:nilerr,nilnil // spans of another program, which are not conversations
	}
	for i := range e.Spans {
		if stream, _ := e.Spans[i].Attributes.GetString(process.AttrStream); stream != "" {
			text, _ := e.Spans[i].Attributes.GetString(agl.AttrMessageBody)
			out.Output = append(out.Output, Output{stream, text})
		}
	}
	return out, nil
}

// WriteTask shows the task of a rollout.
func WriteTask(b *strings.Builder, r *Rollout) {
	fmt.Fprintf(b, "<div class=\"said task\"><span class=\"role\">task</span> %s</div>\n", clipped(strings.TrimSpace(rawjson.Readable(r.Input))))
}

// WriteRollout shows a rollout; title is HTML.
func WriteRollout(b *strings.Builder, title string, r *Rollout) {
	reward := "no reward"
	if r.Reward.Valid {
		reward = fmt.Sprintf("reward %.3g", r.Reward.V)
	}
	if title != "" {
		title = "<b>" + title + "</b> "
	}
	fmt.Fprintf(b, "<p>%s<code>%s</code> %s</p>\n", title, r.RolloutID, reward)
	for _, c := range r.Said {
		for i := range c.Messages {
			m := &c.Messages[i]
			lines := []string{m.Text()}
			for _, call := range m.ToolCalls {
				lines = append(lines, "→ "+call.Function.Name+"("+call.Function.Arguments+")")
			}
			said(b, m.Role, strings.Join(lines, "\n"))
		}
	}
	for _, o := range r.Output {
		said(b, o.Stream, o.Text)
	}
}

// said writes a text of bounded length, with the role of its speaker.
func said(b *strings.Builder, role, text string) {
	fmt.Fprintf(b, "<div class=\"said\"><span class=\"role\">%s</span> %s</div>\n", html.EscapeString(role), clipped(strings.TrimSpace(text)))
}

// clipped is a text of bounded length as HTML.
func clipped(text string) string {
	const longest = 4000
	return clippedTo(text, longest)
}

func clippedTo(text string, longest int) string {
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + " …"
	}
	return html.EscapeString(text)
}

package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer/markdown"
)

// htmlFile is the report as one page that needs no other file.
const htmlFile = "report.html"

// page is the frame of the report: no scripts, no fonts, readable on light and dark.
const page = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1"><title>%s</title><style>
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:15px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}td,th{border-bottom:1px solid var(--line);padding:.3em .8em .3em 0;text-align:left;vertical-align:top}
pre,code{font:13px/1.45 ui-monospace,Menlo,Consolas,monospace}pre{background:var(--soft);padding:.8em;border-radius:6px;white-space:pre-wrap;overflow-wrap:anywhere}
svg{max-width:100%%;height:auto;margin:.4em 0}.pair{display:grid;grid-template-columns:1fr 1fr;gap:1em}@media(max-width:700px){.pair{grid-template-columns:1fr}}
.said{border-left:3px solid var(--line);padding-left:.8em;margin:.4em 0;white-space:pre-wrap;overflow-wrap:anywhere}.role{opacity:.65;font-size:13px}
.tree{border-left:2px solid var(--line);margin-left:.4em;padding-left:1em}summary{cursor:pointer}
</style></head><body>
%s</body></html>
`

// writeHTML writes the report as a page: what report.md says, with its curves, and
// what the rollouts of the run have said.
func (r *run) writeHTML(ctx context.Context, result *Result, text string, pictures map[string][]byte) error {
	var b bytes.Buffer
	b.WriteString(markdown.HTML(text, func(title, path string) string {
		if svg := pictures[path]; svg != nil {
			return "<figure>" + string(svg) + "</figure>\n"
		}
		return html.EscapeString(title)
	}))
	b.WriteString(result.HTML)
	said, err := r.rollouts(ctx)
	if err != nil {
		fmt.Fprintf(&b, "<p>The rollouts cannot be shown: %s</p>\n", html.EscapeString(err.Error()))
	}
	b.WriteString(said)
	if settings := strings.TrimSpace(string(r.cfg.Source.Text)); settings != "" {
		fmt.Fprintf(&b, "<h2>Settings</h2>\n<details><summary>the run file</summary><pre>%s</pre></details>\n", html.EscapeString(settings))
	}
	name := html.EscapeString(r.folder.Record.Algorithm + " in " + r.folder.Path)
	return algorithm.WriteFileAtomic(r.folder.File(htmlFile), fmt.Appendf(nil, page, name, b.String()))
}

// The numbers of rollouts that the page looks at and shows.
const (
	lookedAt   = 400 // at the beginning, and at the end of the run
	scoredEach = 100 // of the rollouts at the end, and pairs
	shownEach  = 4   // in a section
	showTime   = 20 * time.Second
)

// shown is a rollout with what it said.
type shown struct {
	agl.AttemptedRollout

	reward agl.Null[float64]
	said   []adapter.Conversation
}

// rollouts shows the same tasks before and after training, and the worst tasks of the
// end. A store elsewhere, or in memory, is left alone.
func (r *run) rollouts(ctx context.Context) (_ string, err error) {
	if r.cfg.File.Store.URL != "" || !strings.HasPrefix(r.cfg.database(r.folder.Path), string(store.SQLite)) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), showTime)
	defer cancel()
	opened, err := store.Open(ctx, r.cfg.database(r.folder.Path), store.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = cmp.Or(err, opened.Close(ctx)) }()
	first, err := someRollouts(ctx, opened, agl.Ascending)
	if err != nil {
		return "", err
	}
	last, err := someRollouts(ctx, opened, agl.Descending)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if r.cfg.File.Algorithm.Needs().Losses != nil || r.cfg.File.Algorithm.Needs().Prompts {
		if err := writePairs(ctx, &b, opened, first, last); err != nil {
			return "", err
		}
	}
	err = writeWorst(ctx, &b, opened, last)
	return b.String(), err
}

// someRollouts returns the first or the last rollouts that have ended: those of
// validation, if there are any.
func someRollouts(ctx context.Context, s agl.Store, order agl.SortOrder) ([]agl.AttemptedRollout, error) {
	page, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed}, Paging: agl.Paging{Limit: lookedAt, SortBy: "start_time", Order: order},
	})
	if err != nil {
		return nil, err
	}
	val := slices.DeleteFunc(slices.Clone(page.Items), func(r agl.AttemptedRollout) bool { return r.Mode != agl.ModeVal })
	if len(val) > 0 {
		return val, nil
	}
	return page.Items, nil
}

// readRollout reads what a rollout said; nil if its spans are gone or cannot be read.
func readRollout(ctx context.Context, s agl.Store, r *agl.AttemptedRollout) (*shown, error) {
	e, err := algorithm.Read(ctx, s, *r)
	if err != nil {
		return nil, err
	}
	out := &shown{AttemptedRollout: *r}
	if reward, mask := e.Score(); mask == "" {
		out.reward = agl.Some(reward)
	}
	if out.said, err = adapter.Conversations(e.Spans); err != nil {
		return nil, nil //nolint:nilerr,nilnil // spans of another program, which are not conversations
	}
	return out, nil
}

// writePairs shows the tasks of which a rollout before and one after training is there,
// those that gained most first.
func writePairs(ctx context.Context, b *strings.Builder, s agl.Store, first, last []agl.AttemptedRollout) error {
	after := map[string]*agl.AttemptedRollout{}
	for i := range last {
		if input := string(last[i].Input); after[input] == nil {
			after[input] = &last[i]
		}
	}
	type pair struct {
		before, after *shown
		gain          float64
	}
	var pairs []pair
	for i := range first {
		then := after[string(first[i].Input)]
		if then == nil || then.RolloutID == first[i].RolloutID || then.ResourcesID == first[i].ResourcesID || len(pairs) == scoredEach {
			continue
		}
		delete(after, string(first[i].Input))
		x, err := readRollout(ctx, s, &first[i])
		if err != nil {
			return err
		}
		y, err := readRollout(ctx, s, then)
		if err != nil {
			return err
		}
		if x != nil && y != nil && len(x.said)+len(y.said) > 0 {
			pairs = append(pairs, pair{x, y, y.reward.V - x.reward.V})
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.gain, a.gain) })
	b.WriteString("<h2>Conversations before and after</h2>\n<p>The same tasks at the beginning and at the end of the run, those that gained most first.</p>\n")
	for _, p := range pairs[:min(shownEach, len(pairs))] {
		b.WriteString("<div class=\"pair\"><div>")
		writeShown(b, "before", p.before)
		b.WriteString("</div><div>")
		writeShown(b, "after", p.after)
		b.WriteString("</div></div>\n")
	}
	return nil
}

// writeWorst shows the rollouts at the end that earned least.
func writeWorst(ctx context.Context, b *strings.Builder, s agl.Store, last []agl.AttemptedRollout) error {
	var list []*shown
	for i := range last[:min(scoredEach, len(last))] {
		one, err := readRollout(ctx, s, &last[i])
		if err != nil {
			return err
		}
		if one != nil && one.reward.Valid {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b *shown) int { return cmp.Compare(a.reward.V, b.reward.V) })
	fmt.Fprintf(b, "<h2>Worst tasks</h2>\n<p>Of the last %d rollouts, those that earned least.</p>\n", len(list))
	for _, one := range list[:min(shownEach, len(list))] {
		writeShown(b, "", one)
	}
	return nil
}

// writeShown shows a rollout.
func writeShown(b *strings.Builder, title string, r *shown) {
	reward := "no reward"
	if r.reward.Valid {
		reward = fmt.Sprintf("reward %.3g", r.reward.V)
	}
	fmt.Fprintf(b, "<p><b>%s</b> <code>%s</code> %s</p>\n", title, r.RolloutID, reward)
	if len(r.said) == 0 {
		fmt.Fprintf(b, "<div class=\"said\">%s</div>\n", clipped(string(r.Input)))
	}
	for _, c := range r.said {
		for i := range c.Messages {
			m := &c.Messages[i]
			said := []string{m.Text()}
			for _, call := range m.ToolCalls {
				said = append(said, "→ "+call.Function.Name+"("+call.Function.Arguments+")")
			}
			fmt.Fprintf(b, "<div class=\"said\"><span class=\"role\">%s</span> %s</div>\n", html.EscapeString(m.Role), clipped(strings.TrimSpace(strings.Join(said, "\n"))))
		}
	}
}

// clipped is a text of bounded length as HTML.
func clipped(text string) string {
	const longest = 4000
	if runes := []rune(text); len(runes) > longest {
		text = string(runes[:longest]) + " …"
	}
	return html.EscapeString(text)
}

package job

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer/markdown"
	"github.com/agl-go/agl/trainer/report"
)

// writeHTML writes the report as a page: what report.md says, with its curves, and
// what the rollouts of the run have said.
func (c Config) writeHTML(ctx context.Context, result *Result, text string, pictures map[string][]byte) error {
	var b bytes.Buffer
	b.WriteString(markdown.HTML(text, func(title, path string) string {
		if svg := pictures[path]; svg != nil {
			return "<figure>" + string(svg) + "</figure>\n"
		}
		return html.EscapeString(title)
	}))
	b.WriteString(result.HTML)
	said, err := c.shownRollouts(ctx, result)
	if err != nil {
		fmt.Fprintf(&b, "<p>The rollouts cannot be shown: %s</p>\n", html.EscapeString(err.Error()))
	}
	b.WriteString(said)
	if settings := strings.TrimSpace(string(c.Source.Text)); settings != "" {
		fmt.Fprintf(&b, "<h2>Settings</h2>\n<details><summary>the run file</summary><pre>%s</pre></details>\n", html.EscapeString(settings))
	}
	return durable.WriteFile(filepath.Join(result.Output, htmlFile), report.Page(result.Algorithm+" in "+result.Output, b.String()))
}

// The numbers of rollouts that the page looks at and shows.
const (
	lookedAt   = 400 // at the beginning, and at the end of the run
	scoredEach = 100 // of the rollouts at the end, and pairs
	shownEach  = 4   // in a section
	showTime   = 20 * time.Second
)

// shownRollouts shows the same tasks before and after training, and the worst tasks of the end; with
// compared resources, only rollouts of those. A store elsewhere, or in memory, is left alone.
func (c Config) shownRollouts(ctx context.Context, result *Result) (_ string, err error) {
	if c.File.Store.URL != "" || !strings.HasPrefix(c.database(result.Output), string(store.SQLite)) {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), showTime)
	defer cancel()
	opened, err := store.Open(ctx, c.database(result.Output), store.Options{})
	if err != nil {
		return "", err
	}
	defer func() { err = cmp.Or(err, opened.Close(ctx)) }()
	first, err := someRollouts(ctx, opened, agl.Ascending, result.Compared[0])
	if err != nil {
		return "", err
	}
	last, err := someRollouts(ctx, opened, agl.Descending, result.Compared[1])
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if c.File.Algorithm.Needs().Losses != nil || c.File.Algorithm.Needs().Prompts {
		if err := writePairs(ctx, &b, opened, first, last); err != nil {
			return "", err
		}
	}
	err = writeWorst(ctx, &b, opened, last)
	return b.String(), err
}

// someRollouts returns the first or the last rollouts that have ended: those of
// validation, if there are any, with the resources, if they are given.
func someRollouts(ctx context.Context, s agl.Store, order agl.SortOrder, resources string) ([]agl.AttemptedRollout, error) {
	page, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed}, Paging: agl.Paging{Limit: lookedAt, SortBy: "start_time", Order: order},
	})
	if err != nil {
		return nil, err
	}
	if resources != "" {
		page.Items = slices.DeleteFunc(page.Items, func(r agl.AttemptedRollout) bool { return r.ResourcesID.V != resources })
	}
	val := slices.DeleteFunc(slices.Clone(page.Items), func(r agl.AttemptedRollout) bool { return r.Mode != agl.ModeVal })
	if len(val) > 0 {
		return val, nil
	}
	return page.Items, nil
}

// writePairs shows the tasks that have a rollout before and one after training, those that gained
// most first.
func writePairs(ctx context.Context, b *strings.Builder, s agl.Store, first, last []agl.AttemptedRollout) error {
	after := map[string]*agl.AttemptedRollout{}
	for i := range last {
		if input := string(last[i].Input); after[input] == nil {
			after[input] = &last[i]
		}
	}
	type pair struct {
		before, after *report.Rollout
		gain          float64
	}
	var pairs []pair
	for i := range first {
		then := after[string(first[i].Input)]
		if then == nil || then.RolloutID == first[i].RolloutID || then.ResourcesID == first[i].ResourcesID || len(pairs) == scoredEach {
			continue
		}
		delete(after, string(first[i].Input))
		x, err := report.ReadRollout(ctx, s, &first[i])
		if err != nil {
			return err
		}
		y, err := report.ReadRollout(ctx, s, then)
		if err != nil {
			return err
		}
		if x != nil && y != nil && len(x.Said)+len(y.Said)+len(x.Output)+len(y.Output) > 0 {
			pairs = append(pairs, pair{x, y, y.Reward.V - x.Reward.V})
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.gain, a.gain) })
	b.WriteString("<h2>Conversations before and after</h2>\n<p>The same tasks at the beginning and at the end of the run, those that gained most first.</p>\n")
	for _, p := range pairs[:min(shownEach, len(pairs))] {
		report.WriteTask(b, p.after)
		b.WriteString("<div class=\"pair\"><div>")
		report.WriteRollout(b, "before", p.before)
		b.WriteString("</div><div>")
		report.WriteRollout(b, "after", p.after)
		b.WriteString("</div></div>\n")
	}
	return nil
}

// writeWorst shows the rollouts at the end that earned least.
func writeWorst(ctx context.Context, b *strings.Builder, s agl.Store, last []agl.AttemptedRollout) error {
	var list []*report.Rollout
	for i := range last[:min(scoredEach, len(last))] {
		one, err := report.ReadRollout(ctx, s, &last[i])
		if err != nil {
			return err
		}
		if one != nil && one.Reward.Valid {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b *report.Rollout) int { return cmp.Compare(a.Reward.V, b.Reward.V) })
	fmt.Fprintf(b, "<h2>Worst tasks</h2>\n<p>Of the last %d rollouts, those that earned least.</p>\n", len(list))
	for _, one := range list[:min(shownEach, len(list))] {
		report.WriteTask(b, one)
		report.WriteRollout(b, "", one)
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/agl-go/agl"
)

type traceCommand struct {
	storeFlags
	Rollout string `arg:"" help:"Id of the rollout."`
	Attempt string `placeholder:"ID" help:"Only this attempt: its id, or latest. Default: all of them."`
	JSON    bool   `help:"Print the spans as JSON, one a line."`
}

// Help is shown below the flags.
func (traceCommand) Help() string {
	return "Each line is a span: when it began after its attempt, how long it took, its name, then prompt and reply tokens, " +
		"rewards and errors where it has them.\n\nExample:\n  agl trace ro-b66f639043f4 --attempt latest"
}

func (c *traceCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	rollout, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: c.Rollout})
	if err != nil {
		return c.errStore(err)
	}
	spans, err := c.spans(ctx, store)
	if err != nil {
		return c.errStore(err)
	}
	if c.JSON {
		for i := range spans {
			if err := m.printJSON(spans[i].AppendJSON(nil)); err != nil {
				return err
			}
		}
		return nil
	}
	attempts, err := c.attempts(ctx, store)
	if err != nil {
		return err
	}
	return c.show(m, &rollout, attempts, spans)
}

func (c *traceCommand) spans(ctx context.Context, store agl.Store) ([]agl.Span, error) {
	var spans []agl.Span
	err := allPages(ctx, 0, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
		return store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: c.Rollout, AttemptID: c.Attempt, Paging: p})
	}, func(s *agl.Span) error {
		spans = append(spans, *s)
		return nil
	})
	return spans, err
}

// attempts returns those that were asked for, in order.
func (c *traceCommand) attempts(ctx context.Context, store agl.Store) ([]agl.Attempt, error) {
	if c.Attempt == agl.LatestAttempt {
		attempt, err := store.GetLatestAttempt(ctx, agl.GetLatestAttemptParams{RolloutID: c.Rollout})
		return []agl.Attempt{attempt}, c.errStore(err)
	}
	page, err := store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: c.Rollout})
	if err != nil || c.Attempt == "" {
		return page.Items, c.errStore(err)
	}
	i := slices.IndexFunc(page.Items, func(a agl.Attempt) bool { return a.AttemptID == c.Attempt })
	if i < 0 {
		return nil, agl.Errorf(agl.CodeNotFound, "--attempt=%s: rollout %s has no such attempt", c.Attempt, c.Rollout)
	}
	return page.Items[i : i+1], nil
}

func (c *traceCommand) show(m *Main, rollout *agl.AttemptedRollout, attempts []agl.Attempt, spans []agl.Span) error {
	out, flush := m.styled()
	if _, err := fmt.Fprintf(out, "%s\n%s%s\n", rolloutLine(rollout), faint.Render("input "), inputText(rollout)); err != nil {
		return errOutput(err)
	}
	byAttempt := map[string][]agl.Span{}
	for _, s := range spans {
		byAttempt[s.AttemptID] = append(byAttempt[s.AttemptID], s)
	}
	for i := range attempts {
		a := &attempts[i]
		if _, err := fmt.Fprintln(out, attemptLine(a)); err != nil {
			return errOutput(err)
		}
		printer := treePrinter{w: out, start: a.StartTime}
		if err := printer.print(spanForest(byAttempt[a.AttemptID])); err != nil {
			return err
		}
	}
	return flush()
}

func rolloutLine(r *agl.AttemptedRollout) string {
	line := fmt.Sprintf("%s  %s  %s", strong.Render(r.RolloutID), statusText(string(r.Status)), lifetime(r.StartTime, r.EndTime))
	if r.Mode != agl.ModeNone {
		line += "  mode " + string(r.Mode)
	}
	if r.ResourcesID.Valid {
		line += "  resources " + printable(r.ResourcesID.V)
	}
	return line
}

func attemptLine(a *agl.Attempt) string {
	line := fmt.Sprintf("attempt %d  %s  %s  %s", a.SequenceID, a.AttemptID, statusText(string(a.Status)), lifetime(a.StartTime, a.EndTime))
	if a.WorkerID.V != "" {
		line += "  worker " + printable(a.WorkerID.V)
	}
	if outcome, ok := a.Outcome(); ok && outcome.Kind != agl.OutcomeOK {
		line += "  " + bad.Render(string(outcome.Kind))
		if outcome.Message != "" {
			line += bad.Render(": " + printable(outcome.Message))
		}
	}
	return line
}

func lifetime(start agl.Timestamp, end agl.Null[agl.Timestamp]) string {
	if !end.Valid {
		return "not ended"
	}
	return seconds(end.V.Sub(start))
}

func statusText(status string) string {
	switch status {
	case string(agl.RolloutSucceeded):
		return good.Render(status)
	case string(agl.RolloutFailed), string(agl.RolloutCancelled), string(agl.AttemptTimeout), string(agl.AttemptUnresponsive):
		return bad.Render(status)
	default:
		return status
	}
}

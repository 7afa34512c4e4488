package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer"
)

// wholeSpans is how many spans are read at once with their messages: a call of a long conversation may have megabytes.
const wholeSpans = 50

type traceCommand struct {
	rolloutArg
	flags.StoreOrRun `set:"order= It may come first."`

	Attempt string `placeholder:"ID" help:"Only this attempt: its id, or latest. Default: all of them."`
	JSON    bool   `help:"Print the spans as JSON, one a line."`
}

// Validate puts the arguments in order.
func (c *traceCommand) Validate() error { return c.Order(&c.Rollout, "latest", "rollout") }

func (c *traceCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	rollout, err := findRollout(ctx, store, c.Rollout)
	if err != nil {
		return c.Wrap(err)
	}
	c.Rollout = rollout.RolloutID
	if err := checkAttempt(ctx, store, c.Rollout, c.Attempt); err != nil {
		return c.Wrap(err)
	}
	query := agl.QuerySpansParams{RolloutID: c.Rollout, AttemptID: c.Attempt}
	if c.JSON {
		for span, err := range pagesOfSpans(ctx, store, query, wholeSpans) {
			if err != nil {
				return c.Wrap(err)
			}
			if err := out.JSON(span); err != nil {
				return err
			}
		}
		return nil
	}
	query.AttributeNames = append(adapter.RewardAttributes(), agl.AttrGenAIResponseID, console.TokenAttributes,
		agl.AttrGenAIRequestModel, "tool*", process.AttrStream, agl.AttrMessageBody)
	spans, err := attemptSpans(ctx, store, query, pageSize)
	if err != nil {
		return c.Wrap(err)
	}
	attempts, err := c.attempts(ctx, store)
	if err != nil {
		return err
	}
	said := func(attempt string) iter.Seq2[*agl.Span, error] {
		return pagesOfSpans(ctx, store, agl.QuerySpansParams{
			RolloutID: c.Rollout, AttemptID: attempt, AttributeNames: adapter.Messages{}.Attributes(),
		}, wholeSpans)
	}
	if err := printTrace(out, &rollout, attempts, spans, said); err != nil {
		return c.Wrap(err)
	}
	facts, err := factsOf(ctx, store, &rollout)
	if err != nil || facts.rewardText() == "" {
		return c.Wrap(err)
	}
	return out.Styled(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "\n%s %s\n", console.Strong.Render("reward"), facts.rewardText())
		return err
	})
}

// attempts returns the attempts to show, in order.
func (c *traceCommand) attempts(ctx context.Context, store agl.Store) ([]agl.Attempt, error) {
	if c.Attempt == agl.LatestAttempt {
		attempt, err := store.GetLatestAttempt(ctx, agl.GetLatestAttemptParams{RolloutID: c.Rollout})
		return []agl.Attempt{attempt}, c.Wrap(err)
	}
	page, err := store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: c.Rollout})
	if err != nil || c.Attempt == "" {
		return page.Items, c.Wrap(err)
	}
	return slices.DeleteFunc(page.Items, func(a agl.Attempt) bool { return a.AttemptID != c.Attempt }), nil
}

// printTrace prints the rollout and, for each attempt, its spans as a tree, its
// conversations, the output of its program, and the stack traces of exceptions. said reads the messages of an attempt's spans;
// nil means that spans have them.
func printTrace(
	out *console.Console, rollout *agl.AttemptedRollout, attempts []agl.Attempt, spans []agl.Span, said func(attempt string) iter.Seq2[*agl.Span, error],
) error {
	byAttempt := map[string][]agl.Span{}
	for _, s := range spans {
		byAttempt[s.AttemptID] = append(byAttempt[s.AttemptID], s)
	}
	return out.Styled(func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "%s\n%s%s\n", rolloutLine(rollout), console.Faint.Render("input "), inputText(rollout)); err != nil {
			return err
		}
		for i := range attempts {
			a := &attempts[i]
			if _, err := fmt.Fprintln(w, attemptLine(a)); err != nil {
				return err
			}
			if err := console.SpanTree(w, a.StartTime, byAttempt[a.AttemptID]); err != nil {
				return err
			}
			var messages iter.Seq2[*agl.Span, error]
			if said != nil {
				messages = said(a.AttemptID)
			}
			if err := writeConversations(w, byAttempt[a.AttemptID], messages); err != nil {
				return err
			}
			if err := console.Stacks(w, byAttempt[a.AttemptID]); err != nil {
				return err
			}
		}
		return nil
	})
}

func rolloutLine(r *agl.AttemptedRollout) string {
	line := fmt.Sprintf("%s  %s  %s", console.Strong.Render(console.Dash(r.RolloutID)), console.Status(string(r.Status)), console.Took(agl.Some(r.StartTime), r.EndTime, "not ended"))
	if r.Mode != agl.ModeNone {
		line += "  mode " + string(r.Mode)
	}
	if r.ResourcesID.Valid {
		line += "  resources " + console.Printable(r.ResourcesID.V)
	}
	return line
}

func attemptLine(a *agl.Attempt) string {
	line := fmt.Sprintf("attempt %d  %s  %s  %s", a.SequenceID, a.AttemptID, console.Status(string(a.Status)),
		console.Took(agl.Some(a.StartTime), a.EndTime, "not ended"))
	if a.WorkerID.V != "" {
		line += "  worker " + console.Printable(a.WorkerID.V)
	}
	if outcome, ok := a.Outcome(); ok && outcome.Kind != agl.OutcomeOK {
		line += "  " + console.Bad.Render(string(outcome.Kind))
		if outcome.Message != "" {
			line += console.Bad.Render(": " + console.Printable(trainer.ReasonLine(outcome.Message)))
		}
	}
	return line
}

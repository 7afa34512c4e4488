package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/trainer/job"
)

// try does one rollout and shows what became of it.
func (c *trainCommand) try(ctx context.Context, m *Main, cfg job.Config) error {
	trial, err := job.Try(ctx, cfg)
	if err != nil {
		return err
	}
	if err := (&traceCommand{}).show(m, &trial.Rollout, trial.Attempts, trial.Spans); err != nil {
		return err
	}
	out, flush := m.styled()
	if err := showTriplets(out, trial); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "\n%s %s\n%s %s\n", strong.Render("reward"), rewardText(trial), strong.Render("cost  "), costText(trial)); err != nil {
		return errOutput(err)
	}
	if trial.Untrained {
		if _, err := fmt.Fprintln(out, faint.Render("The model of this trial had not learned anything: no warm start was made.")); err != nil {
			return errOutput(err)
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return failure(trial)
}

// failure is why the agent did not do its task.
func failure(trial *job.Trial) error {
	if trial.Outcome.Kind == agl.OutcomeOK {
		return nil
	}
	text := fmt.Sprintf("the agent did not do its task: %s", trial.Outcome.Kind)
	if trial.Outcome.Message != "" {
		text += ": " + trial.Outcome.Message
	}
	if end := lastLines(trial.Stderr); end != "" && !strings.Contains(trial.Outcome.Message, end) {
		text += "\nits standard error ends with:\n" + end
	}
	return fmt.Errorf("%s", text)
}

// lastLines is the end of an output.
func lastLines(text string) string {
	const lines = 20
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// showTriplets lists the model calls as an algorithm sees them.
func showTriplets(out io.Writer, trial *job.Trial) error {
	if trial.TripletsError != nil {
		_, err := fmt.Fprintf(out, "\n%s\n", bad.Render("the spans cannot be read as model calls: "+trial.TripletsError.Error()))
		return errOutput(err)
	}
	if len(trial.Triplets) == 0 {
		_, err := fmt.Fprintf(out, "\n%s none: no model call was recorded\n", strong.Render("triplets"))
		return errOutput(err)
	}
	for i := range trial.Triplets {
		t := &trial.Triplets[i]
		reward := "no reward"
		if t.Reward.Valid {
			reward = fmt.Sprintf("reward %g", t.Reward.V)
		}
		_, err := fmt.Fprintf(out, "\n%s  %s, %s\n", strong.Render(fmt.Sprintf("triplet %d", i+1)), tokenCounts(t), good.Render(reward))
		if err != nil {
			return errOutput(err)
		}
		for _, line := range said(trial.Spans, t.Call.SpanID) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return errOutput(err)
			}
		}
	}
	return nil
}

// tokenCounts says whether a call can be trained on.
func tokenCounts(t *adapter.Triplet) string {
	if len(t.Prompt.TokenIDs) == 0 && len(t.Response.TokenIDs) == 0 {
		return "no token ids"
	}
	text := fmt.Sprintf("%d prompt and %d response token ids", len(t.Prompt.TokenIDs), len(t.Response.TokenIDs))
	if len(t.Call.Logprobs) == 0 {
		text += " without log-probabilities"
	}
	return text
}

// said is the conversation of a model call, a message a line.
func said(spans []agl.Span, spanID string) []string {
	var lines []string
	for i := range spans {
		if spans[i].SpanID != spanID {
			continue
		}
		for _, prefix := range []string{agl.AttrGenAIPrompt, agl.AttrGenAICompletion} {
			for n := range math.MaxInt {
				role, ok := spans[i].Attributes.GetString(fmt.Sprintf("%s.%d.role", prefix, n))
				if !ok {
					break
				}
				content, _ := spans[i].Attributes.GetString(fmt.Sprintf("%s.%d.content", prefix, n))
				lines = append(lines, faint.Render(fmt.Sprintf("  %-9s ", printable(role)))+printable(content))
			}
		}
	}
	return lines
}

func rewardText(trial *job.Trial) string {
	switch {
	case trial.Reward.Valid:
		return fmt.Sprintf("%g", trial.Reward.V)
	case trial.Mask != "":
		return fmt.Sprintf("none (%s)", trial.Mask)
	default:
		return "none"
	}
}

func costText(trial *job.Trial) string {
	text := trial.Took.Round(time.Millisecond).String()
	if u := trial.Usage; u.Calls > 0 {
		text += fmt.Sprintf(", %d model calls, %d prompt and %d completion tokens", u.Calls, u.PromptTokens, u.CompletionTokens)
	}
	return text
}

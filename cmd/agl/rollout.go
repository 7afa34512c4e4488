package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/trainer"
)

// rolloutArg is the argument of a command about one rollout.
type rolloutArg struct {
	Rollout string `arg:"" optional:"" default:"latest" help:"Id of the rollout or its beginning, or latest, worst or best. Default: ${default}."`
}

// rolloutFacts is what the spans of a rollout's latest attempt say.
type rolloutFacts struct {
	reward             agl.Null[float64]
	prompt, completion int64
	failure            string // the line of its error that says what happened; empty for none
}

// factsOf reads the latest attempt of a rollout.
func factsOf(ctx context.Context, store agl.Store, r *agl.AttemptedRollout) (f rolloutFacts, err error) {
	if r.Attempt == nil {
		return f, nil
	}
	if outcome, ok := r.Attempt.Outcome(); ok && outcome.Kind != agl.OutcomeOK {
		f.failure = cmp.Or(trainer.ReasonLine(outcome.Message), string(outcome.Kind))
	}
	f.reward = agl.Null[float64]{V: r.Attempt.Reward.V.Value, Valid: r.Attempt.Reward.Valid}
	spans, err := attemptSpans(ctx, store, agl.QuerySpansParams{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID,
		AttributeNames: append(adapter.RewardAttributes(), agl.AttrGenAIResponseID, console.TokenAttributes),
	}, pageSize)
	if errors.Is(err, agl.ErrEvicted) {
		return f, nil
	}
	if err != nil {
		return f, err
	}
	for _, s := range adapter.OncePerCall(spans) {
		prompt, completion, _ := console.TokenCounts(s.Attributes)
		f.prompt += prompt
		f.completion += completion
	}
	if _, err := adapter.FinalReward(spans); err != nil { // a malformed one
		f.failure = cmp.Or(f.failure, err.Error())
	}
	return f, nil
}

func (f rolloutFacts) tokens() string {
	if f.prompt+f.completion == 0 {
		return ""
	}
	return fmt.Sprintf("%d+%d", f.prompt, f.completion)
}

func (f rolloutFacts) rewardText() string {
	if !f.reward.Valid {
		return ""
	}
	return fmt.Sprintf("%.4g", f.reward.V)
}

// pagesOfSpans yields the spans of a query, which it reads in pages of some size.
func pagesOfSpans(ctx context.Context, store agl.Store, query agl.QuerySpansParams, size int) iter.Seq2[*agl.Span, error] {
	return agl.Pages(ctx, agl.Paging{}, size, func(ctx context.Context, p agl.Paging) (agl.Page[agl.Span], error) {
		query.Paging = p
		return store.QuerySpans(ctx, query)
	})
}

// checkAttempt refuses the id of an attempt that the rollout does not have: a query for its spans returns none.
func checkAttempt(ctx context.Context, store agl.Store, rollout, attempt string) error {
	if attempt == "" || attempt == agl.LatestAttempt {
		return nil
	}
	page, err := store.QueryAttempts(ctx, agl.QueryAttemptsParams{RolloutID: rollout})
	if err != nil {
		return err
	}
	var ids []string
	for i := range page.Items {
		ids = append(ids, page.Items[i].AttemptID)
	}
	if slices.Contains(ids, attempt) {
		return nil
	}
	return agl.Errorf(agl.CodeNotFound, "--attempt=%s: must be latest or an attempt of rollout %s, which has %s",
		attempt, rollout, cmp.Or(strings.Join(ids, ", "), "none"))
}

// attemptSpans returns all spans of a query, which it reads in pages of some size.
func attemptSpans(ctx context.Context, store agl.Store, query agl.QuerySpansParams, size int) (spans []agl.Span, err error) {
	for s, err := range pagesOfSpans(ctx, store, query, size) {
		if err != nil {
			return nil, err
		}
		spans = append(spans, *s)
	}
	return spans, nil
}

// inputText is a rollout's input without the keys in it.
func inputText(r *agl.AttemptedRollout) string {
	input, err := console.RedactJSON(r.Input)
	if err != nil {
		return console.Redacted // it may contain a key
	}
	return console.Printable(rawjson.Readable(input))
}

// findRollout finds a rollout by its id, the beginning of its id, or one of the words
// latest, worst and best.
func findRollout(ctx context.Context, store agl.Store, name string) (agl.AttemptedRollout, error) {
	query := func(contains string, limit int) ([]agl.AttemptedRollout, int, error) {
		page, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{
			RolloutIDContains: contains, Paging: agl.Paging{Limit: limit, SortBy: "start_time", Order: agl.Descending},
		})
		return page.Items, page.Total, err
	}
	switch name {
	case "latest":
		found, _, err := query("", 1)
		if err == nil && len(found) == 0 {
			err = agl.Errorf(agl.CodeNotFound, "there are no rollouts")
		}
		if err != nil {
			return agl.AttemptedRollout{}, err
		}
		return found[0], nil
	case "worst", "best":
		return extreme(ctx, store, name == "best")
	}
	r, failure := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: name})
	if !errors.Is(failure, agl.ErrNotFound) {
		return r, failure
	}
	const most = 5
	found, total, err := query(name, pageSize)
	if err != nil {
		return r, err
	}
	found = slices.DeleteFunc(found, func(r agl.AttemptedRollout) bool {
		return !strings.HasPrefix(r.RolloutID, name) && !strings.HasPrefix(strings.TrimPrefix(r.RolloutID, "ro-"), name)
	})
	switch {
	case len(found) == 1 && total <= pageSize:
		return found[0], nil
	case len(found) == 0:
		return r, failure
	}
	var ids []string
	for i := range found[:min(most, len(found))] {
		ids = append(ids, found[i].RolloutID)
	}
	count := strconv.Itoa(len(found))
	if total > pageSize { // the others were not looked at
		count = "at least " + count
	}
	return r, agl.Errorf(agl.CodeInvalid, "%s rollouts begin with %q (%s, …); give more of the id", count, name, strings.Join(ids, ", "))
}

// extreme finds the rollout with the highest or the lowest reward, the newest of several.
func extreme(ctx context.Context, store agl.Store, highest bool) (agl.AttemptedRollout, error) {
	query := agl.QueryRolloutsParams{Paging: agl.Paging{Limit: 1, SortBy: "reward", Order: agl.Ascending}}
	if highest {
		query.Order = agl.Descending
	}
	page, err := store.QueryRollouts(ctx, query)
	if err != nil {
		return agl.AttemptedRollout{}, err
	}
	if len(page.Items) == 0 || page.Items[0].Attempt == nil || !page.Items[0].Attempt.Reward.Valid {
		return agl.AttemptedRollout{}, agl.Errorf(agl.CodeNotFound, "no rollout has a reward")
	}
	reward := agl.Some(page.Items[0].Attempt.Reward.V.Value)
	same, err := store.QueryRollouts(ctx, agl.QueryRolloutsParams{
		RewardMin: reward, RewardMax: reward, Paging: agl.Paging{Limit: 1, SortBy: "start_time", Order: agl.Descending},
	})
	if err != nil || len(same.Items) == 0 { // it has changed since
		return page.Items[0], err
	}
	return same.Items[0], nil
}

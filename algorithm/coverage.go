package algorithm

import (
	"context"
	"log/slog"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Lack is what keeps calls of a rollout from being trained on.
type Lack struct {
	RolloutID string
	Calls     int          // whose reply the agent had
	Lacking   int          // of them, recorded without What
	What      string       // "token ids" or "log-probabilities"
	First     adapter.Call // of the lacking ones
}

// LackOf finds the calls that were recorded as text alone, or have no reply, and
// with logprobs those that lack log-probabilities.
func LackOf(rolloutID string, report adapter.Report, logprobs bool) Lack {
	calls := report.WithoutTokens
	if logprobs {
		calls = slices.Concat(calls, report.WithoutLogprobs)
	}
	l := Lack{RolloutID: rolloutID, Calls: report.Calls - len(report.Lost), Lacking: len(calls)}
	if l.Lacking == 0 {
		return l
	}
	l.What, l.First = "log-probabilities", calls[0]
	if len(report.WithoutTokens) > 0 {
		l.What = "token ids"
	}
	return l
}

// Trainable refuses a batch of rollouts, which period names ("step", "round"), of
// which no call can be trained on, as agl.ErrIllegalState: the next one will be
// like it. Where only some cannot, it names their rollouts, which the caller masks.
func Trainable(ctx context.Context, period string, lacks []Lack, logger *slog.Logger) error {
	calls, total := 0, 0
	var lacking []Lack
	for _, l := range lacks {
		calls += l.Calls
		total += l.Lacking
		if l.Lacking > 0 {
			lacking = append(lacking, l)
		}
	}
	if total > 0 && total == calls {
		return agl.Errorf(agl.CodeIllegalState, "all %d model calls of the %s were recorded without %s (the first is span %s of rollout %s); training needs a backend that returns token ids and log-probabilities, and agents that call it through the proxy",
			calls, period, lacking[0].What, lacking[0].First.SpanID, lacking[0].RolloutID)
	}
	for _, l := range lacking {
		logger.WarnContext(ctx, "model calls cannot be trained on; the rollout is masked",
			"rollout_id", l.RolloutID, "calls", l.Calls, "lacking", l.Lacking, "what", l.What, "span_id", l.First.SpanID)
	}
	return nil
}

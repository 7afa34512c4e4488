package algorithm

import (
	"context"
	"log/slog"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Coverage says how many model calls of a rollout were recorded with what training needs.
type Coverage struct {
	RolloutID string
	Calls     int          // whose reply the agent got
	Missing   int          // of these, the calls recorded without What
	What      string       // "token ids" or "log-probabilities"
	First     adapter.Call // of the missing ones
}

// CoverageOf finds the calls that were recorded without token ids and, with logprobs, those without log-probabilities.
func CoverageOf(rolloutID string, report adapter.Report, logprobs bool) Coverage {
	calls := report.WithoutTokens
	if logprobs {
		calls = slices.Concat(calls, report.WithoutLogprobs)
	}
	c := Coverage{RolloutID: rolloutID, Calls: report.Calls - len(report.Lost), Missing: len(calls)}
	if c.Missing == 0 {
		return c
	}
	c.What, c.First = "log-probabilities", calls[0]
	if len(report.WithoutTokens) > 0 {
		c.What = "token ids"
	}
	return c
}

// CheckCoverage returns agl.ErrIllegalState if no call of a period ("step", "round") can be trained on: the next period
// would be the same. If only some cannot, it logs their rollouts, which the caller masks.
func CheckCoverage(ctx context.Context, period string, list []Coverage, logger *slog.Logger) error {
	calls, missing := 0, 0
	var incomplete []Coverage
	for _, c := range list {
		calls += c.Calls
		missing += c.Missing
		if c.Missing > 0 {
			incomplete = append(incomplete, c)
		}
	}
	if missing > 0 && missing == calls {
		return agl.Errorf(agl.CodeIllegalState, "all %d model calls of the %s were recorded without %s (the first is span %q of rollout %q); training needs a backend that returns token ids and log-probabilities, and agents that call it through the proxy",
			calls, period, incomplete[0].What, incomplete[0].First.SpanID, incomplete[0].RolloutID)
	}
	for _, c := range incomplete {
		logger.WarnContext(ctx, "model calls cannot be trained on; the rollout is masked",
			"rollout_id", c.RolloutID, "calls", c.Calls, "missing", c.Missing, "what", c.What, "span_id", c.First.SpanID)
	}
	return nil
}

package algorithm

import (
	"context"
	"fmt"
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
	What      string       // such as "token ids" or "log-probabilities"
	First     adapter.Call // of the missing ones
}

// leastLogprob is a log-probability that no sampled token has: its probability would be 2e-22. Some engines write -9999 for one that they do
// not know. The ratio to it is so large that it would decide a whole step, or overflow.
const leastLogprob = -50

// CoverageOf finds the calls that were recorded without token ids and, with logprobs, those without log-probabilities that samples can have.
func CoverageOf(rolloutID string, merged adapter.Merged, logprobs bool) Coverage {
	report := merged.Report
	calls, what := report.WithoutTokens, "token ids"
	if logprobs {
		unknown, least := unknownLogprobs(merged.Trajectories)
		if calls = slices.Concat(calls, report.WithoutLogprobs, unknown); len(report.WithoutTokens) == 0 {
			what = "log-probabilities"
			if len(report.WithoutLogprobs) == 0 {
				what = fmt.Sprintf("usable log-probabilities: the least is %g, must be at least %d", least, leastLogprob)
			}
		}
	}
	c := Coverage{RolloutID: rolloutID, Calls: report.Calls - len(report.Lost), Missing: len(calls)}
	if c.Missing > 0 {
		c.What, c.First = what, calls[0]
	}
	return c
}

// unknownLogprobs returns the calls with a log-probability that no sample has, and the least of these.
func unknownLogprobs(trajectories []adapter.Trajectory) (calls []adapter.Call, least float32) {
	for _, t := range trajectories {
		for _, reply := range t.Replies {
			if len(reply.Logprobs) == 0 || !reply.HasLogprobs() { // the report has it
				continue
			}
			if p := slices.Min(reply.Logprobs); p < leastLogprob {
				calls, least = append(calls, reply.Call), min(least, p)
			}
		}
	}
	return calls, least
}

// CheckCoverage returns agl.ErrIllegalState if no call of a period ("step", "round") can be trained on: the next period
// would be the same. If only some cannot, it logs their rollouts, which the caller masks.
func CheckCoverage(ctx context.Context, period string, list []Coverage, logger *slog.Logger) error {
	calls, missing := 0, 0
	for _, c := range list {
		calls += c.Calls
		missing += c.Missing
	}
	if missing > 0 && missing == calls {
		first := list[slices.IndexFunc(list, func(c Coverage) bool { return c.Missing > 0 })]
		return agl.Errorf(agl.CodeIllegalState, "all %d model calls of the %s were recorded without %s (the first is span %q of rollout %q); training needs a backend that returns token ids and log-probabilities, and agents that call it through the proxy",
			calls, period, first.What, first.First.SpanID, first.RolloutID)
	}
	LogCoverage(ctx, list, logger)
	return nil
}

// LogCoverage logs the rollouts with calls that cannot be trained on, which the caller masks.
func LogCoverage(ctx context.Context, list []Coverage, logger *slog.Logger) {
	for _, c := range list {
		if c.Missing > 0 {
			logger.WarnContext(ctx, "model calls cannot be trained on; the rollout is masked",
				"rollout_id", c.RolloutID, "calls", c.Calls, "missing", c.Missing, "what", c.What, "span_id", c.First.SpanID)
		}
	}
}

package baseline

import (
	"context"
	"log/slog"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// see counts and logs a finished rollout.
func (r *run) see(ctx context.Context, mode agl.Mode, e *algorithm.Episode, attempts []agl.Attempt) {
	log := r.cfg.Logger.With("rollout_id", e.Rollout.RolloutID, "mode", string(mode))
	triplets, err := r.cfg.Adapter.Adapt(e.Spans)
	if err != nil {
		// A trace without a single span has no tree; there is nothing to see then.
		if len(e.Spans) > 0 {
			log.WarnContext(ctx, "the trace cannot be adapted", "error", err)
		}
		triplets = nil
	}
	reward, mask := e.Score()
	r.count(mode, e, len(attempts), len(triplets), reward, mask)

	fields := []any{"status", string(e.Rollout.Status), "outcome", string(e.Outcome.Kind), "spans", len(e.Spans)}
	if mask == "" {
		fields = append(fields, "reward", reward)
	} else {
		fields = append(fields, "no_reward", string(mask))
	}
	if e.Outcome.Message != "" {
		fields = append(fields, "message", e.Outcome.Message)
	}
	log.InfoContext(ctx, "rollout finished", fields...)
	for i := range attempts {
		logAttempt(ctx, log, &attempts[i])
	}
	for i := range e.Spans {
		r.logSpan(ctx, log, &e.Spans[i])
	}
	for i := range triplets {
		logTriplet(ctx, log, i, &triplets[i])
	}
}

func (r *run) count(mode agl.Mode, e *algorithm.Episode, attempts, triplets int, reward float64, mask algorithm.Mask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.report.Train
	if mode == agl.ModeVal {
		c = &r.report.Val
	}
	c.Rollouts++
	c.Attempts += attempts
	c.Outcomes[e.Outcome.Kind]++
	c.Spans += len(e.Spans)
	c.Triplets += triplets
	if mask == "" {
		c.Rewarded++
		c.RewardMean += reward // a sum until Run is over
	}
}

func logAttempt(ctx context.Context, log *slog.Logger, a *agl.Attempt) {
	fields := []any{"attempt_id", a.AttemptID, "number", a.SequenceID, "status", string(a.Status)}
	if a.WorkerID.Valid {
		fields = append(fields, "worker_id", a.WorkerID.V)
	}
	if a.EndTime.Valid {
		fields = append(fields, "duration", a.EndTime.V.Sub(a.StartTime))
	}
	log.InfoContext(ctx, "attempt", fields...)
}

func (r *run) logSpan(ctx context.Context, log *slog.Logger, s *agl.Span) {
	fields := []any{"name", s.Name, "sequence_id", s.SequenceID}
	switch r.cfg.SpanVerbosity {
	case SpanNone:
		return
	case SpanKeys:
		var keys []string
		for key := range s.Attributes.All() {
			keys = append(keys, key)
		}
		fields = append(fields, "attributes", strings.Join(keys, " "))
	case SpanKeyValues:
		fields = append(fields, "attributes", string(s.Attributes))
	}
	log.InfoContext(ctx, "span", fields...)
}

func logTriplet(ctx context.Context, log *slog.Logger, i int, t *adapter.Triplet) {
	fields := []any{"number", i + 1, "prompt_tokens", len(t.Prompt.TokenIDs), "response_tokens", len(t.Response.TokenIDs)}
	if t.Reward.Valid {
		fields = append(fields, "reward", t.Reward.V)
	}
	log.InfoContext(ctx, "triplet", fields...)
}

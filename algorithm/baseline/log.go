package baseline

import (
	"context"
	"log/slog"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// Verbosity is how much of a span is logged.
type Verbosity string

// The verbosities.
const (
	SpanKeys      Verbosity = "keys"       // name and attribute names
	SpanKeyValues Verbosity = "key_values" // name and attributes
	SpanNone      Verbosity = "none"       // nothing
)

// logRollout logs a finished rollout with its attempts, spans and triplets.
func logRollout(ctx context.Context, log *slog.Logger, verbosity Verbosity, e *algorithm.Episode, f *Finished, attempts []agl.Attempt, triplets []adapter.Triplet) {
	fields := []any{"status", string(e.Rollout.Status), "outcome", string(f.Outcome), "spans", f.Spans}
	if f.Reward.Valid {
		fields = append(fields, "reward", f.Reward.V)
	} else {
		fields = append(fields, "no_reward", string(f.Mask))
	}
	if e.Outcome.Message != "" {
		fields = append(fields, "message", e.Outcome.Message)
	}
	log.InfoContext(ctx, "rollout finished", fields...)
	for i := range attempts {
		logAttempt(ctx, log, &attempts[i])
	}
	for i := range e.Spans {
		logSpan(ctx, log, verbosity, &e.Spans[i])
	}
	for i := range triplets {
		logTriplet(ctx, log, i, &triplets[i])
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

func logSpan(ctx context.Context, log *slog.Logger, verbosity Verbosity, s *agl.Span) {
	fields := []any{"name", s.Name, "sequence_id", s.SequenceID}
	switch verbosity {
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

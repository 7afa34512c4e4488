package baseline

import (
	"context"
	"log/slog"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// see counts, writes down and logs a finished rollout.
func (r *run) see(ctx context.Context, at place, e *algorithm.Episode, attempts []agl.Attempt) error {
	log := r.cfg.Logger.With("rollout_id", e.Rollout.RolloutID, "mode", string(at.mode))
	triplets, err := r.cfg.Adapter.Adapt(e.Spans)
	if err != nil {
		// A trace without a single span has no tree; there is nothing to see then.
		if len(e.Spans) > 0 {
			log.WarnContext(ctx, "the trace cannot be adapted", "error", err)
		}
		triplets = nil
	}
	reward, mask := e.Score()
	one := Finished{
		Epoch: at.epoch, Mode: at.mode, Index: at.index, Task: taskHash(e.Rollout.Input), RolloutID: e.Rollout.RolloutID,
		Attempts: len(attempts), Outcome: e.Outcome.Kind, Mask: mask, Spans: len(e.Spans), Triplets: len(triplets),
	}
	if mask == "" {
		one.Reward = agl.Some(reward)
	}
	if err := r.journal.write(&one); err != nil {
		return err
	}
	r.count(&one)

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
	return nil
}

// count adds a task to the report and tells of it, unless it was done before.
func (r *run) count(f *Finished) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.report.Train
	if f.Mode == agl.ModeVal {
		c = &r.report.Val
	}
	c.Rollouts++
	c.Attempts += f.Attempts
	c.Outcomes[f.Outcome]++
	c.Spans += f.Spans
	c.Triplets += f.Triplets
	r.now.Done++
	if f.Outcome != agl.OutcomeOK {
		r.now.Failed++
	}
	if f.Reward.Valid {
		c.Rewarded++
		c.RewardMean += f.Reward.V // a sum until Run is over
		r.now.Rewarded++
		r.now.RewardMean += (f.Reward.V - r.now.RewardMean) / float64(r.now.Rewarded)
	}
	if _, before := r.earlier[f.place()]; before {
		return
	}
	one := *f
	one.Done, one.Total, one.Earlier = r.now.Done, r.now.Total, r.now.Earlier
	one.Failed, one.Rewarded, one.RewardMean = r.now.Failed, r.now.Rewarded, r.now.RewardMean
	r.cfg.Progress(one)
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

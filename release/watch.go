package release

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/internal/backoff"
)

// Spans is the part of a store that a watcher reads.
type Spans interface {
	QuerySpans(ctx context.Context, p agl.QuerySpansParams) (agl.Page[agl.Span], error)
}

// Watcher counts the sessions of the release that has a canary, and lets its gates decide. One goroutine calls Run.
type Watcher struct {
	Releases  *Releases
	Collector agl.Collector
	Spans     Spans
	// KL measures MetricKL of a session; ok is false if the session's calls lack what that takes. Nil measures nothing.
	KL     func(ctx context.Context, r *Release, spans []agl.Span) (kl float64, ok bool, err error)
	Logger *slog.Logger // nil discards

	unmeasured string // the release for which a warning was logged that KL cannot be measured
}

// pace bounds how late a watcher notices a new release or a session that is ready.
const pace = 250 * time.Millisecond

// slowest bounds how late it notices that what has failed works again.
const slowest = 30 * time.Second

// Run watches until ctx ends. It repeats what fails.
func (w *Watcher) Run(ctx context.Context) {
	log := cmp.Or(w.Logger, slog.New(slog.DiscardHandler))
	for failures := 0; ; {
		busy, err := w.step(ctx, log)
		if ctx.Err() != nil {
			return
		}
		wait := pace
		if err != nil {
			wait = backoff.Exponential{First: pace, Max: slowest}.Delay(failures)
			failures++
			log.Warn("watching a release failed; trying again", "error", err, "after", wait)
		} else {
			failures = 0
		}
		if err != nil || !busy {
			_ = backoff.Sleep(ctx, wait) // the end of ctx is handled above
		}
	}
}

// maxBatch is the largest number of sessions that one commit counts.
const maxBatch = 100

// step counts the sessions of the current canary that are ready, and waits a while for them. It reports whether there
// is a canary.
func (w *Watcher) step(ctx context.Context, log *slog.Logger) (busy bool, err error) {
	current, err := w.Releases.CurrentRelease(ctx)
	if err != nil || current.Release == "" {
		return false, err
	}
	release, err := w.Releases.Get(ctx, current.Release)
	if err != nil || release.State != StateCanary {
		return false, err
	}
	batch, err := w.Collector.Collect(ctx, agl.CollectParams{
		Since: release.Cursor, Max: maxBatch, MaxWait: pace, Filter: agl.CollectFilter{Metadata: map[string]string{MetadataRelease: release.ID}},
	})
	if err != nil || batch.Next == release.Cursor {
		return true, err
	}
	sessions := make([]Observation, 0, len(batch.Rollouts))
	for i := range batch.Rollouts {
		o, err := w.observe(ctx, log, &release, &batch.Rollouts[i])
		if errors.Is(err, agl.ErrInvalid) {
			log.Warn("a session of the release does not count", "release", release.ID, "rollout_id", batch.Rollouts[i].Rollout.RolloutID, "error", err)
			continue
		}
		if err != nil {
			return true, err
		}
		sessions = append(sessions, o)
	}
	after, err := w.Releases.Observe(ctx, release.ID, release.Cursor, batch.Next, sessions)
	if err == nil && after.State != StateCanary {
		last := after.Decisions[len(after.Decisions)-1]
		log.Info("a release has ended", "release", after.ID, "state", after.State, "by", last.By, "reason", last.Reason)
	}
	return true, err
}

// observe returns the observation of a session. A session that cannot count is ErrInvalid.
func (w *Watcher) observe(ctx context.Context, log *slog.Logger, r *Release, c *agl.CollectedRollout) (Observation, error) {
	metadata := agl.Attributes(c.Rollout.Metadata)
	share, ok := metadata.GetFloat(MetadataShare)
	if !ok || !(share >= minShare && share <= 1-minShare) {
		return Observation{}, agl.Errorf(agl.CodeInvalid, "metadata: %s is missing, or not between %f and 1", MetadataShare, minShare)
	}
	text, _ := metadata.GetString(MetadataArm)
	arm, err := parseArm(text)
	if err != nil {
		return Observation{}, agl.Errorf(agl.CodeInvalid, "metadata: %s: %w", MetadataArm, err)
	}
	o := Observation{Arm: arm, Share: share}
	if c.Reward.Valid {
		o.Reward = &c.Reward.V
	}
	query := agl.QuerySpansParams{RolloutID: c.Rollout.RolloutID}
	withKL := slices.ContainsFunc(r.Gates.Guards, func(g Guard) bool { return g.Metric == MetricKL })
	if !withKL { // which reads the tokens
		query.AttributeNames = measured()
	}
	page, err := w.Spans.QuerySpans(ctx, query)
	if errors.Is(err, agl.ErrEvicted) {
		return o, nil // its reward still counts
	}
	if err != nil {
		return Observation{}, err
	}
	if o.Metrics, err = measure(page.Items); err == nil && withKL {
		err = w.measureKL(ctx, log, r, &o, page.Items)
	}
	for name, value := range o.Metrics { // their squares are summed
		if err == nil && !(math.Abs(value) <= agl.MaxReward) {
			err = agl.Errorf(agl.CodeInvalid, "metric %q: got %v, must be between -1e15 and 1e15", name, value)
		}
	}
	return o, err
}

// measureKL measures MetricKL of a session. If the engine cannot, that is logged once, and the guard does not count.
func (w *Watcher) measureKL(ctx context.Context, log *slog.Logger, r *Release, o *Observation, spans []agl.Span) error {
	kl, ok, err := 0.0, false, agl.Errorf(agl.CodeUnimplemented, "this store has no engine that could measure it")
	if w.KL != nil {
		kl, ok, err = w.KL(ctx, r, spans)
	}
	if code := agl.ErrorCode(err); code == agl.CodeUnimplemented || code == agl.CodeNotFound || code == agl.CodeInvalid {
		if w.unmeasured != r.ID {
			w.unmeasured = r.ID
			log.Warn("the guard kl of a release does not count", "release", r.ID, "error", err)
		}
		ok, err = false, nil
	}
	if ok && err == nil {
		o.Metrics[MetricKL] = kl
	}
	return err
}

// measured returns the names of the attributes that measure reads.
func measured() []string {
	return append(adapter.RewardAttributes(), agl.AttrGenAIOperation, agl.AttrGenAICompletion+".0.finish_reason", agl.AttrGenAIOutputTokens, agl.AttrGenAICompletionTokens)
}

// measure returns the metrics of a session's spans: those of its model calls and tool calls, if it has any, and its
// rewards other than the primary one, by name.
func measure(spans []agl.Span) (map[string]float64, error) {
	metrics := map[string]float64{}
	var calls, failed, tools, failedTools, refused, tokens, slowest float64
	for i := range spans {
		s := &spans[i]
		wrong := 0.0
		if s.Status.Code == agl.StatusError {
			wrong = 1
		}
		operation, _ := s.Attributes.GetString(agl.AttrGenAIOperation)
		switch {
		case s.Name == agl.SpanLiteLLMRequest || s.Name == agl.SpanChatCompletion:
			calls++
			failed += wrong
			if reason, _ := s.Attributes.GetString(agl.AttrGenAICompletion + ".0.finish_reason"); reason == "content_filter" {
				refused = 1
			}
			n, ok := s.Attributes.GetFloat(agl.AttrGenAIOutputTokens)
			if !ok {
				n, _ = s.Attributes.GetFloat(agl.AttrGenAICompletionTokens)
			}
			tokens += n
			if s.StartTime.Valid && s.EndTime.Valid {
				slowest = max(slowest, float64(s.EndTime.V-s.StartTime.V))
			}
		case operation == "execute_tool":
			tools++
			failedTools += wrong
		}
		rewards, err := adapter.Rewards(s)
		if err != nil {
			return nil, err
		}
		for n, reward := range rewards {
			if n > 0 && !math.IsNaN(reward.Value) && !math.IsInf(reward.Value, 0) {
				metrics[reward.Name] = reward.Value
			}
		}
	}
	if calls > 0 {
		metrics[MetricErrors], metrics[MetricRefusals], metrics[MetricTokens], metrics[MetricLatency] = failed/calls, refused, tokens, slowest
	}
	if tools > 0 {
		metrics[MetricFailedTools] = failedTools / tools
	}
	return metrics, nil
}

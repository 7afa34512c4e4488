package grpo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/rawjson"
)

// MetadataDropped is the member of a rollout's metadata that says why the run does not train on it: no_variance, failed or stale,
// the reasons of its group, or its own: oversampled, truncated, or its [algorithm.Mask]. In a [Live] run it may also be withheld,
// because Live.Allow rejected the rollout, or crowded, because its user already had Live.PerUser in the step.
const MetadataDropped = "dropped"

// The reasons of single rollouts that are no mask: the group did not need it, and Config.MaskTruncated, with which its reward
// still counts in the group.
const (
	oversampled admission.Reason = "oversampled"
	truncated   admission.Reason = "truncated"
)

// The reasons of a live run that are no mask.
const (
	withheld admission.Reason = "withheld"
	crowded  admission.Reason = "crowded"
)

// noteTimeout bounds a note.
const noteTimeout = 10 * time.Second

// passedOver are the ids of rollouts that are not learned from, by the reason.
type passedOver map[admission.Reason][]string

func (p passedOver) add(reason admission.Reason, id string) { p[reason] = append(p[reason], id) }

// noteAll calls note for each reason.
func (c *collector) noteAll(ctx context.Context, left passedOver) {
	for reason, ids := range left {
		c.note(ctx, ids, reason)
	}
}

// note writes into the metadata of rollouts why they are dropped, for people who look at them. A failure is only
// logged.
func (c *collector) note(ctx context.Context, ids []string, reason admission.Reason) {
	store := c.session.Store()
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout) // also those of the last step
	defer done()
	value := rawjson.AppendString(nil, string(reason))
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			r, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})
			if err == nil {
				_, err = store.UpdateRollout(ctx, agl.UpdateRolloutParams{RolloutID: id, Metadata: rawjson.Set(r.Metadata, MetadataDropped, value)})
			}
			if !errors.Is(err, agl.ErrNotFound) { // deleted: nobody can look at it
				errs[i] = err
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.cfg.Logger.WarnContext(ctx, "the reason why rollouts are dropped is not kept with them", "reason", string(reason), "error", err)
	}
}

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
// the reasons of its group, or oversampled. In a [Live] run it is withheld, if Live.Allow has not let it pass, crowded, if
// Live.PerUser were there before it, or its [algorithm.Mask].
const MetadataDropped = "dropped"

// oversampled is the reason of rollouts that a group did not need.
const oversampled admission.Reason = "oversampled"

// The reasons of a live run that are no mask.
const (
	withheld admission.Reason = "withheld"
	crowded  admission.Reason = "crowded"
)

// noteTimeout bounds a note.
const noteTimeout = 10 * time.Second

// note writes into rollouts why they are dropped. It is for people who look at them: a run goes on without.
func (c *collector) note(ctx context.Context, ids []string, reason admission.Reason) {
	store := c.session.Store()
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout) // the last ones, too
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
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.cfg.Logger.WarnContext(ctx, "the reason why rollouts are dropped is not kept with them", "reason", string(reason), "error", err)
	}
}

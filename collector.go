package agl

import (
	"context"
	"slices"
	"time"

	"github.com/agl-go/agl/internal/rawjson"
)

// Collector hands out finished rollouts to an algorithm that learns from rollouts that it did not start: each rollout
// once, in the same order for every consumer.
//
// A rollout is ready when it has finished and has a reward, or when its reward window is over. The store keeps a log
// of the rollouts that became ready. A consumer reads the log from a cursor, and saves the cursor of the last batch
// together with what it learned from it, so that every batch counts once, even if the consumer is killed.
type Collector interface {
	// Collect waits until at least Min rollouts are ready after the cursor or MaxWait is over, and returns those that
	// are ready. The same cursor and filter give the same rollouts again. A cursor of another store is ErrInvalid.
	Collect(ctx context.Context, p CollectParams) (Collection, error)
}

// CollectParams are the arguments of Collector.Collect.
type CollectParams struct {
	Since   string        // Collection.Next of the last batch; empty begins with the oldest
	Min     int           // how many rollouts to wait for; 0 is 1
	Max     int           // how many rollouts to return at most; 0 is 1000
	MaxWait time.Duration // 0 does not wait
	Filter  CollectFilter
}

// CollectFilter selects rollouts. A nil list is no filter.
type CollectFilter struct {
	StatusIn      []RolloutStatus
	ModeIn        []string // "" is a rollout without a mode
	ResourcesIDIn []string
	Metadata      map[string]string // members that the metadata must have, with these strings
}

// Collection is a batch of rollouts.
type Collection struct {
	Rollouts []CollectedRollout `json:"rollouts"`
	// Corrections are of rollouts that were ready before, in this batch or an earlier one.
	Corrections []RewardCorrection `json:"corrections"`
	Next        string             `json:"next"`    // the cursor after this batch
	Pending     int                `json:"pending"` // finished rollouts that wait for their reward, whatever the filter
}

// CollectedRollout is a rollout that is ready.
type CollectedRollout struct {
	Rollout AttemptedRollout `json:"rollout"` // as it is now
	// Reward is the reward of the latest attempt when the rollout became ready; null if its window was over before a
	// reward came.
	Reward  Null[float64] `json:"reward"`
	Rewards int           `json:"rewards"` // how many spans with a reward the attempt had then
}

// RewardCorrection says that rewards arrived after a rollout had become ready.
type RewardCorrection struct {
	Rollout  AttemptedRollout `json:"rollout"` // as it is now
	Reward   Null[float64]    `json:"reward"`  // the reward that counts, with the late ones
	Previous Null[float64]    `json:"previous"`
	Rewards  int              `json:"rewards"` // how many arrived since the previous one
}

// AppendJSON appends the wire form.
func (c *Collection) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Key("rollouts")
	o = rawjson.AppendList(o, c.Rollouts)
	o.Key("corrections")
	o = rawjson.AppendList(o, c.Corrections)
	o.String("next", c.Next)
	o.Int("pending", int64(c.Pending))
	return o.End()
}

// AppendJSON appends the wire form.
func (r *CollectedRollout) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Key("rollout")
	o = r.Rollout.AppendJSON(o)
	o.NullFloat("reward", r.Reward.V, r.Reward.Valid)
	o.Int("rewards", int64(r.Rewards))
	return o.End()
}

// AppendJSON appends the wire form.
func (r *RewardCorrection) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Key("rollout")
	o = r.Rollout.AppendJSON(o)
	o.NullFloat("reward", r.Reward.V, r.Reward.Valid)
	o.NullFloat("previous", r.Previous.V, r.Previous.Valid)
	o.Int("rewards", int64(r.Rewards))
	return o.End()
}

// MetadataRewardWindow is the key of a rollout's metadata with its reward window: the seconds after its end for which
// the rollout waits for a reward before it is ready without one.
const MetadataRewardWindow = "agl.reward_window"

// Matches reports whether the filter selects a rollout.
func (f *CollectFilter) Matches(r *Rollout) bool {
	if !inList(f.StatusIn, r.Status) || !inList(f.ModeIn, string(r.Mode)) || !inList(f.ResourcesIDIn, r.ResourcesID.V) {
		return false
	}
	for key, want := range f.Metadata {
		if got, ok := Attributes(r.Metadata).GetString(key); !ok || got != want {
			return false
		}
	}
	return true
}

func inList[T comparable](list []T, v T) bool { return list == nil || slices.Contains(list, v) }

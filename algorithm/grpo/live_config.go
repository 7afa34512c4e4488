package grpo

import (
	"cmp"
	"context"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Live makes a run learn from rollouts that others start, such as the sessions of a service,
// instead of starting any. A step takes the rollouts that became ready since the step before; a
// checkpoint holds how far it has read, so that no rollout is learned from twice.
//
// Rollouts with the same member MetadataGroup in their metadata are one group, as they
// would be of a training step. Any other is compared with what rollouts of its kind have
// earned before it (the member MetadataKind; none is a kind, too): its advantage is
//
//	Â = (R − m)/(√v + 1e-4),   then  m ← m + α·(R − m),   v ← (1 − α)·(v + α·(R − m)²)
//
// or R − m with Config.PlainAdvantage or LeaveOneOut, which is REINFORCE with a baseline (Williams 1992, Machine Learning 8, §4; Sutton and
// Barto 2018, §13.4): m does not depend on what the rollout did, so the gradient is unbiased. Mean and variance are
// exponentially weighted (West 1979, CACM 22:9; Finch 2009, "Incremental calculation of weighted mean and variance", §9), so
// that they follow users whose taste drifts. A kind with fewer than Warm rollouts so far uses the baseline of all kinds.
// While that has fewer, too, rollouts only update the baselines.
type Live struct {
	// Collector hands out the rollouts. Required.
	Collector agl.Collector
	// Filter selects them.
	Filter agl.CollectFilter
	// Rollouts is how many a step learns from; zero means 64.
	Rollouts int
	// MaxWait is how long a step waits for them; then it takes fewer, but not fewer than
	// Least. Zero means 10 min.
	MaxWait time.Duration
	// Least is the fewest rollouts of a step; zero means a quarter of Rollouts.
	Least int
	// Rate is α, in (0, 1); zero means 0.02: half of the weight is on the last 34 rollouts.
	Rate float64
	// Warm is how many rollouts a baseline needs; zero means 8.
	Warm int
	// MaxStaleness is how many versions old the weights that answered a call may be. Rollouts with
	// an older call are left out. Zero means 8. See also Config.Correction.
	MaxStaleness int
	// PerUser is how many rollouts of one user, the member MetadataUser, a step learns from; further ones are skipped, so
	// that no single user decides what the model becomes. Zero is no limit.
	PerUser int
	// Releaser tries new weights on a share of the users, and decides whether all get them; nil gives them to all after each step.
	// While a candidate is tried, learning goes on until the weights are MaxStaleness versions ahead of those that are stable, and
	// then waits. After a rollback, learning begins again from the stable weights, without the sessions of the candidate that was
	// rolled back.
	Releaser algorithm.Releaser
	// ReleaseEvery is how many steps make a candidate, at most MaxStaleness; zero means 4, or MaxStaleness if that is less.
	ReleaseEvery int
	// Replay learns from rollouts more than once.
	Replay Replay
	// Allow, if not nil, says whether a rollout may be learned from, for example after a program has looked for personal data in
	// it. A rollout for which it returns an error is not learned from. It is called for several rollouts at once.
	Allow func(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (bool, error)
}

// Members of the metadata of rollouts that a [Live] run reads. All are strings.
const (
	// MetadataGroup names the rollouts that are compared with each other.
	MetadataGroup = "agl.group"
	// MetadataKind names the rollouts that are compared with the same baseline.
	MetadataKind = "agl.kind"
	// MetadataUser names the user of a session.
	MetadataUser = "agl.user"
)

// release returns how the session releases its weights; nil gives them to all users.
func (l *Live) release() *algorithm.ReleaseParams {
	if l == nil || l.Releaser == nil {
		return nil
	}
	return &algorithm.ReleaseParams{Releaser: l.Releaser, Every: l.ReleaseEvery, Ahead: l.MaxStaleness}
}

// Replay makes a live run learn again from rollouts that it has learned from before, newest first, within Live.MaxStaleness. Their
// tokens are weighed by how likely they are by now (Config.Correction, by default TokenTIS), and their advantage is over what was
// expected when they came. A checkpoint holds how often each was replayed, so that a restart changes no count. Rollouts with a
// MetadataGroup are not replayed: they are compared with others of one step.
type Replay struct {
	// Times is how often each rollout is replayed at most; zero turns replay off.
	Times int
	// Rollouts is how many a step replays at most, beside those of Live.Rollouts; zero means half as many.
	Rollouts int
}

func (l *Live) withDefaults() *Live {
	if l == nil {
		return nil
	}
	d := *l
	d.Rollouts = cmp.Or(d.Rollouts, 64)
	d.Least = cmp.Or(d.Least, (d.Rollouts+3)/4)
	d.MaxWait = cmp.Or(d.MaxWait, 10*time.Minute)
	d.Rate, d.Warm = cmp.Or(d.Rate, 0.02), cmp.Or(d.Warm, 8)
	d.MaxStaleness = cmp.Or(d.MaxStaleness, 8)
	if d.Replay.Times > 0 {
		d.Replay.Rollouts = cmp.Or(d.Replay.Rollouts, (d.Rollouts+1)/2)
	}
	d.ReleaseEvery = cmp.Or(d.ReleaseEvery, min(4, d.MaxStaleness))
	return &d
}

func (l *Live) validate() error {
	if l == nil {
		return nil
	}
	if err := cmp.Or(algorithm.AtMost(algorithm.MaxRollouts, algorithm.Factor{Field: "Live.Rollouts", Value: l.Rollouts}), algorithm.AtLeast(
		algorithm.Minimum{Field: "Live.Rollouts", Value: l.Rollouts, Least: 1},
		algorithm.Minimum{Field: "Live.Least", Value: l.Least, Least: 1},
		algorithm.Minimum{Field: "Live.Warm", Value: l.Warm, Least: 1},
		algorithm.Minimum{Field: "Live.MaxStaleness", Value: l.MaxStaleness, Least: 1},
		algorithm.Minimum{Field: "Live.PerUser", Value: l.PerUser},
		algorithm.Minimum{Field: "Live.Replay.Times", Value: l.Replay.Times},
		algorithm.Minimum{Field: "Live.Replay.Rollouts", Value: l.Replay.Rollouts},
		algorithm.Minimum{Field: "Live.ReleaseEvery", Value: l.ReleaseEvery, Least: 1},
	)); err != nil {
		return err
	}
	switch {
	case l.Collector == nil:
		return agl.Errorf(agl.CodeInvalid, "Live.Collector is nil; it hands out the rollouts")
	case l.Least > l.Rollouts:
		return agl.Errorf(agl.CodeInvalid, "Live.Least is %d, must be at most Live.Rollouts (%d)", l.Least, l.Rollouts)
	case l.Replay.Times == 0 && l.Replay.Rollouts > 0:
		return agl.Errorf(agl.CodeInvalid, "Live.Replay.Rollouts is %d without Times", l.Replay.Rollouts)
	case l.ReleaseEvery > l.MaxStaleness:
		return agl.Errorf(agl.CodeInvalid, "Live.ReleaseEvery is %d, must be at most Live.MaxStaleness (%d): sessions of older weights are not learned from", l.ReleaseEvery, l.MaxStaleness)
	case l.MaxWait < 0:
		return agl.Errorf(agl.CodeInvalid, "Live.MaxWait is %v, must not be negative", l.MaxWait)
	case !(l.Rate > 0 && l.Rate < 1):
		return agl.Errorf(agl.CodeInvalid, "Live.Rate is %v, must be above 0 and below 1", l.Rate)
	}
	return nil
}

package grpo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/rawjson"
)

// Live makes a run learn from rollouts that others start, such as the sessions of a
// service, instead of starting any. A step takes what has become ready since the step
// before; a checkpoint holds how far it has read, so that no rollout is learned from twice.
//
// Rollouts with the same member MetadataGroup in their metadata are one group, as they
// would be of a training step. Any other is compared with what rollouts of its kind have
// earned before it (the member MetadataKind; none is a kind, too): its advantage is
//
//	Â = (R − m)/(√v + 1e-4),   then  m ← m + α·(R − m),   v ← (1 − α)·(v + α·(R − m)²)
//
// or R − m with Config.PlainAdvantage, which is REINFORCE with a baseline (Williams 1992, Machine Learning 8, §4; Sutton and
// Barto 2018, §13.4): m does not depend on what the rollout did, so the gradient is
// unbiased. Mean and variance are exponentially weighted (West 1979, CACM 22:9; Finch 2009,
// "Incremental calculation of weighted mean and variance", §9), so that they follow users
// whose taste drifts. A kind of which fewer than Warm rollouts were seen uses the baseline of
// all kinds; while that has seen fewer, too, rollouts only teach the baselines.
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
	// MaxStaleness leaves out rollouts with a call that weights of more versions ago have
	// answered; zero means 8. See also Config.Correction.
	MaxStaleness int
	// PerUser is how many rollouts of one user, the member MetadataUser, a step learns from; further ones are passed over, so
	// that nobody decides alone what the model becomes. Zero is no limit.
	PerUser int
	// Releaser tries what was learned on a share of the users, and decides whether all get it; nil gives it to all after each step.
	// While a candidate is tried, learning goes on until the weights are MaxStaleness versions ahead of those that are stable,
	// and then waits. After a rollback it begins again from the stable weights, without the sessions of what was rolled back.
	Releaser algorithm.Releaser
	// ReleaseEvery is how many steps make a candidate, at most MaxStaleness; zero means 4, or MaxStaleness if that is less.
	ReleaseEvery int
	// Replay learns from rollouts more than once.
	Replay Replay
	// Allow, if not nil, says whether a rollout may be learned from, as a program that looks for personal data does. One for which
	// it fails may not. It is called for several rollouts at once.
	Allow func(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (bool, error)
}

// Members of the metadata of rollouts that a [Live] run reads, both strings.
const (
	// MetadataGroup names the rollouts that are compared with each other.
	MetadataGroup = "agl.group"
	// MetadataKind names the rollouts that are compared with the same baseline.
	MetadataKind = "agl.kind"
	// MetadataUser names the user of a session.
	MetadataUser = "agl.user"
)

// release returns how the session releases its weights; nil gives them to everybody.
func (l *Live) release() *algorithm.ReleaseParams {
	if l == nil || l.Releaser == nil {
		return nil
	}
	return &algorithm.ReleaseParams{Releaser: l.Releaser, Every: l.ReleaseEvery, Ahead: l.MaxStaleness}
}

// endless is the number of steps of a live run without an end, which is reported as 0.
const endless = math.MaxInt32

// reported is the number of steps in reports.
func (c Config) reported() int {
	if c.Live != nil && c.Steps == endless {
		return 0
	}
	return c.Steps
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

func (l *Live) validate(c Config) error {
	if l == nil {
		return nil
	}
	if err := algorithm.AtLeast(
		algorithm.Minimum{Field: "Live.Rollouts", Value: l.Rollouts, Least: 1},
		algorithm.Minimum{Field: "Live.Least", Value: l.Least, Least: 1},
		algorithm.Minimum{Field: "Live.Warm", Value: l.Warm, Least: 1},
		algorithm.Minimum{Field: "Live.MaxStaleness", Value: l.MaxStaleness, Least: 1},
		algorithm.Minimum{Field: "Live.PerUser", Value: l.PerUser},
		algorithm.Minimum{Field: "Live.Replay.Times", Value: l.Replay.Times},
		algorithm.Minimum{Field: "Live.Replay.Rollouts", Value: l.Replay.Rollouts},
		algorithm.Minimum{Field: "Live.ReleaseEvery", Value: l.ReleaseEvery, Least: 1},
	); err != nil {
		return invalid("%w", err)
	}
	switch {
	case l.Collector == nil:
		return invalid("Live.Collector is nil; it hands out the rollouts")
	case l.Least > l.Rollouts:
		return invalid("Live.Least is %d, must be at most Live.Rollouts (%d)", l.Least, l.Rollouts)
	case l.Replay.Times == 0 && l.Replay.Rollouts > 0:
		return invalid("Live.Replay.Rollouts is %d without Times", l.Replay.Rollouts)
	case l.ReleaseEvery > l.MaxStaleness:
		return invalid("Live.ReleaseEvery is %d, must be at most Live.MaxStaleness (%d): sessions of older weights are not learned from", l.ReleaseEvery, l.MaxStaleness)
	case l.Releaser != nil && c.Publisher == nil:
		return invalid("Live.Releaser is given without a Publisher, which serves the weights that the run begins with")
	case l.MaxWait < 0:
		return invalid("Live.MaxWait is %v, must not be negative", l.MaxWait)
	case !(l.Rate > 0 && l.Rate < 1):
		return invalid("Live.Rate is %v, must be above 0 and below 1", l.Rate)
	case len(c.Roles) > 0:
		return invalid("Live and Roles are both given; a live run trains one model")
	case c.Source != nil:
		return invalid("Live and Source are both given; a live run starts no rollouts")
	case c.Credit != CreditTrajectory:
		return invalid("Credit is %q, must be %q in a live run", c.Credit, CreditTrajectory)
	case c.Async != (Async{OnStale: c.Async.OnStale, Pin: PinCall}) || c.DynamicSampling || c.MaxGroupSize > c.GroupSize:
		return invalid("Async, DynamicSampling or MaxGroupSize is given, which a live run does not have")
	}
	return nil
}

// expectation is what a kind of rollouts has earned: a baseline.
type expectation struct {
	N        int     `json:"n"`
	Mean     float64 `json:"mean"`
	Variance float64 `json:"variance"`
}

// add takes a reward in. While fewer than 1/rate rewards are there, all weigh the same.
func (e *expectation) add(reward, rate float64) {
	e.N++
	rate = max(rate, 1/float64(e.N))
	d := reward - e.Mean
	e.Mean += rate * d
	e.Variance = (1 - rate) * (e.Variance + rate*d*d)
}

// advantage is over the mean; plain leaves out the division.
func (e *expectation) advantage(reward float64, plain bool) float64 {
	if plain {
		return reward - e.Mean
	}
	return (reward - e.Mean) / (math.Sqrt(e.Variance) + advantageEpsilon)
}

// livePosition is the position of a live run, in checkpoints.
type livePosition struct {
	Since string `json:"since"`
	// Kinds are the baselines, by kind; All is that of all kinds.
	Kinds map[string]*expectation `json:"kinds"`
	All   expectation             `json:"all"`
	// Versions are those that may have answered rollouts to come, with their generations.
	Versions map[string]int `json:"versions"`
	// Replay are the rollouts that may be learned from again, the newest last.
	Replay []replayed `json:"replay,omitzero"`
}

// maxKinds bounds the baselines: further kinds have that of all kinds.
const maxKinds = 10_000

// live is the feeder of a live run.
type live struct {
	cfg       Config
	collector collector
	position  livePosition
	next      livePosition // behind the batch that is being trained on
}

func newLive(c collector, position jsontext.Value) (*live, error) {
	l := &live{cfg: c.cfg, collector: c}
	if position != nil {
		if err := json.Unmarshal(position, &l.position); err != nil {
			return nil, fmt.Errorf("position in the rollouts: %w", err)
		}
	}
	for version, generation := range l.position.Versions {
		c.session.Calls.Published(version, generation)
	}
	l.next = l.position
	return l, nil
}

func (*live) start(context.Context) {}
func (*live) close(context.Context) {}

// collect waits for the rollouts of a step. Those that are too old it passes over.
func (l *live) collect(ctx context.Context, step int) (b batch, err error) {
	began, settings := time.Now(), l.cfg.Live
	l.next = l.position.clone()
	siblings := map[string]int{} // place of a group in b.groups
	users := map[string]int{}    // rollouts of each
	rollouts := 0
	for rollouts < settings.Least {
		room := settings.Rollouts - rollouts
		ready, err := settings.Collector.Collect(ctx, agl.CollectParams{Since: l.next.Since, Min: room, Max: room, MaxWait: settings.MaxWait, Filter: settings.Filter})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return batch{}, fmt.Errorf("wait for rollouts: %w", err)
		}
		if len(ready.Rollouts) < settings.Least-rollouts && len(ready.Rollouts) < room {
			continue // MaxWait is over, and there are too few: the same again, and more
		}
		l.next.Since = ready.Next
		for i := range ready.Corrections {
			if !ready.Corrections[i].Previous.Valid {
				b.late++
			}
		}
		live := slices.DeleteFunc(ready.Rollouts, func(r agl.CollectedRollout) bool {
			return r.Rollout.Mode == agl.ModeVal // the tasks of a validation teach nothing
		})
		left := passedOver{}
		may, err := l.allow(ctx, live, &b, left)
		if err != nil {
			return batch{}, err
		}
		allowed := slices.DeleteFunc(may, func(r agl.CollectedRollout) bool {
			user := labelsOf(&r.Rollout.Rollout).User
			if user == "" || settings.PerUser == 0 {
				return false
			}
			if users[user]++; users[user] <= settings.PerUser {
				return false
			}
			b.crowded++
			left.add(crowded, r.Rollout.RolloutID)
			return true
		})
		samples, err := l.read(ctx, allowed, &b)
		if err != nil {
			return batch{}, err
		}
		for i, s := range samples {
			if s.mask != "" {
				left.add(admission.Reason(s.mask), s.id)
			}
			if s.mask == algorithm.MaskStale {
				b.unused += s.sampled()
				continue
			}
			rollouts++
			b.add(s, labelsOf(&allowed[i].Rollout.Rollout).Group, siblings)
		}
		for reason, ids := range left {
			l.collector.note(ctx, ids, reason)
		}
	}
	fresh := b.groups
	if err := l.replay(ctx, &b, users); err != nil {
		return batch{}, err
	}
	l.remember(fresh)
	l.cfg.Progress.OnRollouts(algorithm.PhaseTrain, step, rollouts, settings.Rollouts)
	b.waited = time.Since(began)
	b.sampled, b.last = b.waited, true
	return b, nil
}

// passedOver are the ids of rollouts that are not learned from, by the reason.
type passedOver map[admission.Reason][]string

func (p passedOver) add(reason admission.Reason, id string) { p[reason] = append(p[reason], id) }

// allowing is how many rollouts Live.Allow looks at together.
const allowing = 8

// allow returns the rollouts that Live.Allow lets pass.
func (l *live) allow(ctx context.Context, ready []agl.CollectedRollout, b *batch, left passedOver) ([]agl.CollectedRollout, error) {
	if l.cfg.Live.Allow == nil {
		return ready, nil
	}
	may := make([]bool, len(ready))
	var group errgroup.Group
	group.SetLimit(allowing)
	for i := range ready {
		group.Go(func() error {
			r := ready[i].Rollout
			ok, err := l.cfg.Live.Allow(ctx, l.collector.session.Store(), r)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				l.cfg.Logger.WarnContext(ctx, "a rollout is not learned from, since it is not known whether it may be", "rollout_id", r.RolloutID, "error", err)
			}
			may[i] = ok && err == nil
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var allowed []agl.CollectedRollout
	for i := range ready {
		if may[i] {
			allowed = append(allowed, ready[i])
		} else {
			left.add(withheld, ready[i].Rollout.RolloutID)
		}
	}
	b.withheld += len(ready) - len(allowed)
	return allowed, nil
}

// add adds a sample to its group, or as one of its own.
func (b *batch) add(s sample, group string, siblings map[string]int) {
	if s.mask == "" {
		b.learned = append(b.learned, s.id)
	}
	at, known := siblings[group]
	if group == "" || !known {
		at = len(b.groups)
		b.groups = append(b.groups, nil)
		siblings[group] = at
	}
	b.groups[at] = append(b.groups[at], s)
}

// labels are what a live run reads of a rollout's metadata.
type labels struct {
	Group string `json:"agl.group"`
	Kind  string `json:"agl.kind"`
	User  string `json:"agl.user"`
}

func labelsOf(r *agl.Rollout) (l labels) {
	_ = rawjson.Unmarshal(r.Metadata, &l) // other metadata has no labels
	return l
}

// read reads rollouts, and says what each is compared with.
func (l *live) read(ctx context.Context, rollouts []agl.CollectedRollout, b *batch) ([]sample, error) {
	ids := make([]string, len(rollouts))
	for i, r := range rollouts {
		ids[i] = r.Rollout.RolloutID
	}
	if l.cfg.Flusher != nil { // what a rollout has lost is seen as a call without tokens
		if err := l.cfg.Flusher.Flush(ctx, ids); err != nil {
			l.cfg.Logger.WarnContext(ctx, "calls of finished rollouts are not recorded", "error", err)
		}
	}
	samples := make([]sample, len(rollouts))
	var coverage []algorithm.Coverage
	for i, r := range rollouts {
		e, err := algorithm.ReadFor(l.cfg.Adapter)(ctx, l.collector.session.Store(), r.Rollout)
		if err != nil {
			return nil, err
		}
		s := l.collector.read(ctx, r.Rollout.Input, &e)
		s.id, s.grouped = r.Rollout.RolloutID, labelsOf(&r.Rollout.Rollout).Group != ""
		coverage = append(coverage, s.coverage)
		if s.mask == "" {
			s.expected = l.expect(labelsOf(&r.Rollout.Rollout).Kind, s.score())
		}
		if s.mask == algorithm.MaskVersion || s.mask == "" && l.age(s) > l.cfg.Live.MaxStaleness {
			s.mask = algorithm.MaskStale // versions of long ago are not even known
			b.stale++
		}
		samples[i] = s
	}
	return samples, algorithm.CheckCoverage(ctx, "step", coverage, l.cfg.Logger)
}

// expect returns the baseline of a rollout, nil if too few came before, and takes its reward in.
func (l *live) expect(kind string, reward float64) *expectation {
	own := l.next.Kinds[kind]
	if own == nil && len(l.next.Kinds) < maxKinds {
		own = &expectation{}
		l.next.Kinds[kind] = own
	}
	var before *expectation
	switch warm := l.cfg.Live.Warm; {
	case own != nil && own.N >= warm:
		e := *own
		before = &e
	case l.next.All.N >= warm:
		e := l.next.All
		before = &e
	}
	if own != nil {
		own.add(reward, l.cfg.Live.Rate)
	}
	l.next.All.add(reward, l.cfg.Live.Rate)
	return before
}

// age is by how many versions the oldest weights that answered a call are behind.
func (l *live) age(s sample) int {
	return stalenessOf(l.collector.roles[0], l.collector.session.Generation(), []taskGroup{{s}}).Max
}

// trained moves the position behind the batch.
func (l *live) trained(context.Context) { l.position = l.next }

// save returns the position.
func (l *live) save() (jsontext.Value, *savedPump, error) {
	p := l.position.clone()
	p.Versions = l.collector.session.Calls.Latest(l.cfg.Live.MaxStaleness + 1)
	raw, err := json.Marshal(p, json.Deterministic(true))
	return raw, nil, err
}

func (p livePosition) clone() livePosition {
	c := livePosition{Since: p.Since, All: p.All, Kinds: make(map[string]*expectation, len(p.Kinds)), Versions: maps.Clone(p.Versions), Replay: slices.Clone(p.Replay)}
	for kind, e := range p.Kinds {
		copied := *e
		c.Kinds[kind] = &copied
	}
	return c
}

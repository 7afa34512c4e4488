package grpo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/internal/panics"
	"github.com/agl-go/agl/internal/rawjson"
)

// livePosition is the position of a live run, in checkpoints.
type livePosition struct {
	Since string `json:"since"`
	// Kinds maps each kind to its baseline; All is the baseline of all kinds.
	Kinds map[string]*expectation `json:"kinds"`
	All   expectation             `json:"all"`
	// Versions are the versions, with their generations, that may have answered calls of rollouts
	// still to be read.
	Versions map[string]int `json:"versions"`
	// Replay are the rollouts that may be learned from again, the newest last.
	Replay []replayed `json:"replay,omitzero"`
}

// maxKinds bounds the baselines: further kinds use that of all kinds.
const maxKinds = 10_000

// liveFeeder is the feeder of a live run.
type liveFeeder struct {
	cfg       Config
	collector collector
	position  livePosition
	next      livePosition         // after the batch that is being trained on
	bare      []algorithm.Coverage // of the latest rollouts, as long as none of them can be trained on
}

func newLive(c collector, position jsontext.Value) (*liveFeeder, error) {
	l := &liveFeeder{cfg: c.cfg, collector: c}
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

func (*liveFeeder) start(context.Context) {}
func (*liveFeeder) close(context.Context) {}

// collect waits for the rollouts of a step. It skips those that are too old.
func (l *liveFeeder) collect(ctx context.Context, step int) (b stepBatch, err error) {
	began, settings := time.Now(), l.cfg.Live
	l.next = l.position.clone()
	siblings := map[string]int{} // place of a group in b.groups
	users := map[string]int{}    // rollouts of each
	rollouts, told := 0, began
	for rollouts < settings.Least {
		room := settings.Rollouts - rollouts
		ready, err := settings.Collector.Collect(ctx, agl.CollectParams{Since: l.next.Since, Min: room, Max: room, MaxWait: settings.MaxWait, Filter: settings.Filter})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return stepBatch{}, fmt.Errorf("wait for rollouts: %w", err)
		}
		if len(ready.Rollouts) < settings.Least-rollouts && len(ready.Rollouts) < room {
			continue // too few within MaxWait: read them again, together with newer ones
		}
		l.next.Since = ready.Next
		for i := range ready.Corrections {
			if !ready.Corrections[i].Previous.Valid {
				b.late++
			}
		}
		live := slices.DeleteFunc(ready.Rollouts, func(r agl.CollectedRollout) bool {
			return r.Rollout.Mode == agl.ModeVal // validation tasks are not learned from
		})
		left := passedOver{}
		may, err := l.allow(ctx, live, &b, left)
		if err != nil {
			return stepBatch{}, err
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
			return stepBatch{}, err
		}
		for i, s := range samples {
			if s.mask != "" {
				left.add(admission.Reason(s.mask), s.id)
			} else if s.truncated && l.cfg.MaskTruncated {
				left.add(truncated, s.id)
			}
			if s.mask == algorithm.MaskStale {
				b.unused += s.sampled()
				continue
			}
			rollouts++
			b.add(s, labelsOf(&allowed[i].Rollout.Rollout).Group, siblings)
		}
		l.collector.noteAll(ctx, left)
		if rollouts == 0 && len(left) > 0 && time.Since(told) >= settings.MaxWait {
			told = time.Now()
			l.cfg.Logger.WarnContext(ctx, "rollouts become ready, but nothing is learned from any of them, so the step waits for others",
				"step", step, "waiting", time.Since(began).Round(time.Second), "stale", b.stale, "withheld", b.withheld, "crowded", b.crowded)
		}
	}
	fresh := b.groups
	if err := l.replay(ctx, &b, users); err != nil {
		return stepBatch{}, err
	}
	l.remember(fresh)
	l.cfg.Progress.OnRollouts(algorithm.PhaseTrain, step, rollouts, settings.Rollouts)
	b.waited = time.Since(began)
	b.sampled, b.last = b.waited, true
	return b, nil
}

// allowing is the number of concurrent calls of Live.Allow.
const allowing = 8

// allow returns the rollouts that Live.Allow accepts.
func (l *liveFeeder) allow(ctx context.Context, ready []agl.CollectedRollout, b *stepBatch, left passedOver) ([]agl.CollectedRollout, error) {
	if l.cfg.Live.Allow == nil {
		return ready, nil
	}
	may := make([]bool, len(ready))
	var group errgroup.Group
	group.SetLimit(allowing)
	for i := range ready {
		group.Go(func() error {
			r := ready[i].Rollout
			var ok bool
			err := panics.Located(panics.Catch(func() (err error) {
				ok, err = l.cfg.Live.Allow(ctx, l.collector.session.Store(), r)
				return err
			}))
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

// labels are the members of a rollout's metadata that a live run reads.
type labels struct {
	Group string `json:"agl.group"`
	Kind  string `json:"agl.kind"`
	User  string `json:"agl.user"`
}

func labelsOf(r *agl.Rollout) (l labels) {
	_ = rawjson.Unmarshal(r.Metadata, &l) // other metadata has no labels
	return l
}

// read converts rollouts to samples, with the baseline that each is compared with.
func (l *liveFeeder) read(ctx context.Context, rollouts []agl.CollectedRollout, b *stepBatch) ([]sample, error) {
	ids := make([]string, len(rollouts))
	for i, r := range rollouts {
		ids[i] = r.Rollout.RolloutID
	}
	if l.cfg.Flusher != nil { // a call that could not be recorded shows as a call without tokens
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
		s.grouped = labelsOf(&r.Rollout.Rollout).Group != ""
		coverage = append(coverage, s.coverage)
		if s.mask == "" && len(s.sequences) == 0 { // nothing is learned from it, so it must not move the baseline
			s.mask = algorithm.MaskNoTokens
		}
		if s.mask == algorithm.MaskVersion || s.mask == "" && l.age(s) > l.cfg.Live.MaxStaleness {
			s.mask = algorithm.MaskStale // a version that is not known is older than any that is kept
			b.stale++
		}
		if s.mask == "" {
			s.expected = l.expect(labelsOf(&r.Rollout.Rollout).Kind, s.score())
		}
		samples[i] = s
	}
	return samples, l.check(ctx, coverage)
}

// check returns an error if no call can be trained on in as many rollouts as a step has. A batch may have one rollout only, which is no
// reason to end a run.
func (l *liveFeeder) check(ctx context.Context, coverage []algorithm.Coverage) error {
	for _, c := range coverage {
		switch {
		case c.Missing < c.Calls:
			l.bare = nil
		case c.Calls > 0:
			l.bare = append(l.bare, c)
		}
	}
	if len(l.bare) >= l.cfg.Live.Rollouts {
		return algorithm.CheckCoverage(ctx, "step", l.bare, l.cfg.Logger)
	}
	algorithm.LogCoverage(ctx, coverage, l.cfg.Logger)
	return nil
}

// expect returns the baseline of a rollout, or nil if too few rollouts came before it, and then
// adds the reward to the baseline.
func (l *liveFeeder) expect(kind string, reward float64) *expectation {
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

// age returns by how many versions the oldest weights that answered a call are behind the newest.
func (l *liveFeeder) age(s sample) int {
	return stalenessOf(l.collector.roles[0], l.collector.session.Generation(), []taskGroup{{s}}).Max
}

// trained moves the position past the batch.
func (l *liveFeeder) trained(context.Context) { l.position = l.next }

// save returns the position.
func (l *liveFeeder) save() (jsontext.Value, *savedPump, error) {
	p := l.position.clone()
	p.Versions = l.collector.session.Calls.Latest(l.cfg.Live.MaxStaleness)
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

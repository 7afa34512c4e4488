package apo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/backoff"
)

// Live makes a run tune prompts from rollouts that others start, such as the sessions of a service, and lets a release decide instead
// of validation tasks.
//
// A round waits for sessions of the prompts that are stable, shows some of them to the models, which criticise and edit one template,
// and proposes the result as a release. When the release is decided, the next round begins with new sessions, and with the new
// prompts if they were promoted. The journal stores the collector's cursor together with the sessions of a round, so no session is
// shown in two rounds, even if the process is killed.
//
// Neither a failing model nor a spent budget ends a live run. A model that fails is asked again later. With a spent budget, users
// keep the prompts that they have. The fields of Config for the beam, for validation batches and for the final comparison are not
// used.
type Live struct {
	// Releaser tries prompts on a share of the users, and decides. Required.
	Releaser Releaser
	// Filter selects the rollouts that may be learned from.
	Filter agl.CollectFilter
	// Sessions is how many sessions with a reward a round waits for; zero means 16, and at least Config.GradientBatch. If more are
	// ready, it takes the newest. Config.GradientBatch of them, from the worst to the best, are shown to the models.
	Sessions int
	// PerUser is how many of these may come from one user; zero is no limit.
	PerUser int
	// Allow, if not nil, says whether a rollout may be shown to the models. A rollout for which it returns an error is
	// not shown.
	Allow func(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (bool, error)
	// OnRound is called with each new line of metrics.jsonl (see [LiveRound]), not with those that a resumed run restores; nil does nothing.
	OnRound func(LiveRound)
}

// Releaser gives prompts to a share of the users first, and reports what became of them. Versions are ids of resources in the
// store.
type Releaser interface {
	// Propose begins a release of a version, with its rewards on the validation dataset. If a release of the version has begun
	// already, it does nothing. While another release has a canary, it returns agl.ErrIllegalState.
	Propose(ctx context.Context, version string, offline algorithm.Offline) error
	// Standing returns the stable version, which is empty for the latest resources, and the state of a candidate's release. An empty
	// candidate asks for the stable version only.
	Standing(ctx context.Context, candidate string) (algorithm.Standing, error)
}

// LiveRound is the report of a round of a live run. metrics.jsonl has a line when the round has made its candidate, and another one,
// without Learned, when the candidate is decided.
type LiveRound struct {
	// Step is the number of the round, from 1.
	Step int `json:"step"`
	// Parent is the ResourcesID of the prompts that were stable.
	Parent string `json:"parent"`
	// RewardMean is over the Sessions of the round.
	RewardMean float64 `json:"reward_mean"`
	Sessions   int     `json:"sessions"`
	// Learned are the rollouts that were shown to the models, by id.
	Learned []string `json:"learned,omitempty"`
	// Passed counts the sessions with a reward that were skipped since the previous round because there were newer ones, Crowded
	// those of users who already had Live.PerUser, and Withheld those that Live.Allow rejected.
	Passed   int `json:"passed,omitzero"`
	Crowded  int `json:"crowded,omitzero"`
	Withheld int `json:"withheld,omitzero"`
	// Candidate is the ResourcesID of the edit; empty if there is none. Edited is the template that differs from the parent's.
	Candidate string `json:"candidate,omitzero"`
	Edited    string `json:"edited,omitzero"`
	// State is what became of the candidate; empty while it is tried. Reason is why it was dropped.
	State  RoundState `json:"state,omitzero"`
	Reason string     `json:"reason,omitzero"`
	// Spent since the beginning.
	Spent Spent `json:"spent"`
}

// RoundState says how a round of a live run ended.
type RoundState string

// The states.
const (
	RoundPromoted   RoundState = "promoted"
	RoundRolledBack RoundState = "rolled_back"
	RoundDropped    RoundState = "dropped" // without a release
)

const (
	// liveEndless is the number of rounds of a live run without an end.
	liveEndless = math.MaxInt32
	// livePage is how many sessions are read at once, and liveWait how long a round waits for them before it checks again which
	// version is stable.
	livePage = 1000
	liveWait = 5 * time.Second
	// livePace is the interval at which the state of a candidate is polled.
	livePace = time.Second
	// liveRetry is the time after which a model that has failed is asked again.
	liveRetry = time.Minute
	// liveSpare bounds the ready sessions that a round keeps, in multiples of Sessions. It is above 1 because some of them may
	// not be learned from.
	liveSpare = 4
)

func (l *Live) withDefaults(gradientBatch int) *Live {
	if l == nil {
		return nil
	}
	d := *l
	d.Sessions = max(cmp.Or(d.Sessions, 16), gradientBatch)
	if d.OnRound == nil {
		d.OnRound = func(LiveRound) {}
	}
	return &d
}

func (l *Live) validate() error {
	if l == nil {
		return nil
	}
	return algorithm.AtLeast(
		algorithm.Minimum{Field: "Live.Sessions", Value: l.Sessions, Least: 1},
		algorithm.Minimum{Field: "Live.PerUser", Value: l.PerUser},
	)
}

// check refuses a live run without a releaser or a collector.
func (l *Live) check(in agl.AlgorithmInput) error {
	switch {
	case l.Releaser == nil:
		return agl.Errorf(agl.CodeInvalid, "Live.Releaser is nil; it decides which prompts users get")
	case in.Collector == nil:
		return agl.Errorf(agl.CodeUnimplemented, "the store hands out no finished rollouts")
	}
	return nil
}

// decided says how a round ended. It is an entry of the journal.
type decided struct {
	State  RoundState `json:"state"`
	Reason string     `json:"reason,omitzero"`
}

// live runs rounds until ctx ends, or Config.Rounds are done.
func (s *search) live(ctx context.Context) error {
	// Without a release, sessions get the latest resources.
	if _, err := s.in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: s.seed.ResourcesID, Resources: s.seed.Resources}); err != nil {
		return fmt.Errorf("store resources %s: %w", s.seed.ResourcesID, err)
	}
	if err := s.refresh(ctx); err != nil {
		return err
	}
	s.publish(ctx)
	since := ""
	for round := 1; round <= s.cfg.Rounds; round++ {
		next, err := s.liveRound(ctx, round, since)
		if errors.Is(err, errBudget) {
			s.report.OutOfBudget = true
			s.cfg.Logger.WarnContext(ctx, "the budget is spent: users keep the prompts that they have, and no new ones are tried", "round", round)
			if err := s.writeReport(); err != nil || s.cfg.Rounds < liveEndless {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		since = next
	}
	s.report.Finished = true
	s.publish(ctx)
	return s.writeReport()
}

// liveRound makes a candidate from the sessions after a cursor, and waits until it is decided. Steps that are in the journal are
// not repeated.
func (s *search) liveRound(ctx context.Context, number int, since string) (next string, err error) {
	key := fmt.Sprintf("round-%d/", number)
	g := s.journal.get(key + "sessions").Sessions
	if g == nil {
		if g, err = s.gather(ctx, since); err != nil {
			return "", err
		}
		if err := s.journal.put(entry{Key: key + "sessions", Sessions: g}); err != nil {
			return "", err
		}
	}
	// An earlier process has told of the round, and gone on. A run of many rounds would take longer and longer to resume if it told of all again.
	told := s.journal.get(fmt.Sprintf("round-%d/sessions", number+1)).Sessions != nil
	round := LiveRound{
		Step: number, Parent: g.Parent, RewardMean: g.Mean, Sessions: g.Sessions, Learned: g.Shown, Passed: g.Passed, Crowded: g.Crowded, Withheld: g.Withheld,
	}
	parent, err := s.version(ctx, g.Parent)
	if errors.Is(err, agl.ErrNotFound) {
		return g.Next, s.orphan(ctx, key, round, told)
	}
	if err != nil {
		return "", err
	}
	s.best, s.beam = parent, []*Candidate{parent}
	if !told { // of the rounds before it, which an earlier process has told of
		s.report.Improved = parent.ResourcesID != s.seed.ResourcesID
		s.publish(ctx)
	}
	candidate, err := s.edit(ctx, number, parent, g.Shown)
	if err != nil {
		return "", err
	}
	round.Spent = s.journal.spent(number)
	end := s.journal.get(key + "decision").Decision
	switch {
	case candidate == nil:
		end = &decided{State: RoundDropped, Reason: "the models have returned no usable edit"}
	case s.tried(parent, candidate):
		end = &decided{State: RoundDropped, Reason: "the edit is one that was tried before"}
	default:
		round.Candidate, round.Edited = candidate.ResourcesID, candidate.Edited
		if err := s.store(ctx, candidate); err != nil {
			return "", err
		}
		s.candidates = append(s.candidates, candidate)
	}
	s.report.Live = append(s.report.Live, round)
	if err := s.tell(ctx, round, told); err != nil {
		return "", err
	}
	if end == nil {
		if end, err = s.follow(ctx, parent, candidate); err != nil {
			return "", err
		}
		if err := s.journal.put(entry{Key: key + "decision", Decision: end}); err != nil {
			return "", err
		}
	}
	if round.State, round.Reason = end.State, end.Reason; end.State == RoundPromoted {
		s.best, s.beam = candidate, []*Candidate{candidate}
	}
	s.report.Improved = s.best.ResourcesID != s.seed.ResourcesID
	s.report.Live[len(s.report.Live)-1] = round
	round.Learned = nil
	return g.Next, s.tell(ctx, round, told)
}

// orphan ends a round whose prompts were deleted, unless the journal says that it ended before.
func (s *search) orphan(ctx context.Context, key string, round LiveRound, told bool) error {
	end := s.journal.get(key + "decision").Decision
	if end == nil {
		end = &decided{State: RoundDropped, Reason: "the prompts that were stable have been deleted"}
		if err := s.journal.put(entry{Key: key + "decision", Decision: end}); err != nil {
			return err
		}
	}
	round.State, round.Reason, round.Spent = end.State, end.Reason, s.journal.spent(round.Step)
	s.report.Live = append(s.report.Live, round)
	return s.tell(ctx, round, told)
}

// tell reports a round. If an earlier process has reported it, tell only restores its line: metrics.jsonl was truncated when the run resumed.
func (s *search) tell(ctx context.Context, r LiveRound, told bool) error {
	if told {
		return s.session.RestoreMetrics(r)
	}
	if err := errors.Join(s.writeReport(), s.session.AppendMetrics(ctx, r)); err != nil {
		return err
	}
	s.publish(ctx)
	s.cfg.Live.OnRound(r)
	return nil
}

// tried reports whether a candidate has the prompts of its parent, or of an earlier edit of the parent.
func (s *search) tried(parent, candidate *Candidate) bool {
	return slices.ContainsFunc(s.candidates, func(c *Candidate) bool {
		return (c.Parent == parent.ResourcesID || c.ResourcesID == parent.ResourcesID) && slices.Equal(c.Prompts, candidate.Prompts)
	}) || slices.Equal(parent.Prompts, candidate.Prompts)
}

// version returns the prompts of a version, which is one of this run or one that somebody else has
// released.
func (s *search) version(ctx context.Context, id string) (*Candidate, error) {
	i := slices.IndexFunc(s.candidates, func(c *Candidate) bool { return c.ResourcesID == id })
	if i >= 0 {
		return s.candidates[i], nil
	}
	stored, err := s.in.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: id})
	if err != nil {
		return nil, fmt.Errorf("read the prompts that are stable: %w", err)
	}
	c := &Candidate{ResourcesID: id, Resources: slices.Clone(stored.Resources), Prompts: promptsOf(stored.Resources)}
	if c.Prompts == nil {
		return nil, agl.Errorf(agl.CodeInvalid, "the resources %s, which are stable, have no prompt_template; there is nothing to tune", id)
	}
	s.candidates = append(s.candidates, c) // of another run, or of a person
	return c, nil
}

// stable returns the version that users get outside of a canary.
func (s *search) stable(ctx context.Context) (string, error) {
	var standing algorithm.Standing
	err := s.untilAvailable(ctx, func() (err error) {
		standing, err = s.cfg.Live.Releaser.Standing(ctx, "")
		return err
	})
	return cmp.Or(standing.Stable, s.seed.ResourcesID), err
}

// tunable waits until the stable version has prompts, and returns it. Somebody may have released resources without any; then there is
// nothing to tune.
func (s *search) tunable(ctx context.Context) (string, error) {
	for warned := ""; ; {
		id, err := s.stable(ctx)
		if err != nil {
			return "", err
		}
		_, err = s.version(ctx, id)
		if code := agl.ErrorCode(err); code != agl.CodeInvalid && code != agl.CodeNotFound && code != agl.CodeUnavailable {
			return id, err
		}
		if warned != id {
			s.cfg.Logger.WarnContext(ctx, "no prompts are tuned until others are stable", "resources", id, "error", err)
		}
		warned = id
		if err := backoff.Sleep(ctx, liveWait); err != nil {
			return "", err
		}
	}
}

// untilAvailable repeats a call until the store is available.
func (s *search) untilAvailable(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil || ctx.Err() != nil || agl.ErrorCode(err) != agl.CodeUnavailable {
			return err
		}
		s.cfg.Logger.WarnContext(ctx, "the store does not answer; it will be asked again", "error", err)
		if err := backoff.Sleep(ctx, livePace); err != nil {
			return err
		}
	}
}

// edit makes the candidate of a round; nil if the models have returned nothing usable. A model that fails is asked again.
func (s *search) edit(ctx context.Context, round int, parent *Candidate, shown []string) (*Candidate, error) {
	for {
		p := s.editor.draw([]*Candidate{parent}, round, 0)
		p.sessions = shown
		candidate, err := p.make(ctx)
		if failed, ok := errors.AsType[*modelError](err); ok && ctx.Err() == nil {
			s.cfg.Logger.WarnContext(ctx, "a model that makes prompts fails; it will be asked again", "round", round, "error", failed, "after", liveRetry)
			if err := backoff.Sleep(ctx, liveRetry); err != nil {
				return nil, err
			}
			continue
		}
		s.report.Refused += p.refused
		if err != nil || candidate == nil {
			if err == nil {
				s.report.Abandoned++
			}
			return nil, err
		}
		candidate.Resources = s.own(candidate.Resources)
		return candidate, nil
	}
}

// own replaces the resources that are not prompts by those of this process, such as the address of
// its proxy.
func (s *search) own(resources agl.Resources) agl.Resources {
	out := slices.Clone(resources)
	for i, r := range out {
		if _, prompt := r.Resource.(agl.PromptTemplate); prompt {
			continue
		}
		if now, ok := s.in.InitialResources.Get(r.Name); ok {
			out[i].Resource = now
		}
	}
	return out
}

// experimentsOf reads the sessions that a critique is shown. It leaves out sessions that were deleted meanwhile or have no
// score.
func (p *proposal) experimentsOf(ctx context.Context, sessions []string, data CritiqueData) (CritiqueData, error) {
	store := p.session.Store()
	for _, id := range sessions {
		r, err := store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id})
		if errors.Is(err, agl.ErrNotFound) {
			continue
		}
		if err != nil {
			return data, fmt.Errorf("read session %q: %w", id, err)
		}
		episode, err := algorithm.Read(ctx, store, r)
		if err != nil {
			return data, err
		}
		if reward, mask := episode.Score(); mask == "" {
			data.Experiments = append(data.Experiments, experiment(&episode, len(data.Experiments)+1, reward, p.cfg.ExperimentBytes))
		}
	}
	return data, nil
}

// follow proposes a candidate and waits until its release is decided.
func (s *search) follow(ctx context.Context, parent, candidate *Candidate) (*decided, error) {
	logged := false
	for {
		var standing algorithm.Standing
		err := s.untilAvailable(ctx, func() (err error) {
			standing, err = s.cfg.Live.Releaser.Standing(ctx, candidate.ResourcesID)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("follow the release of %s: %w", candidate.ResourcesID, err)
		}
		switch standing.State {
		case algorithm.CandidatePromoted:
			return &decided{State: RoundPromoted}, nil
		case algorithm.CandidateRejected:
			return &decided{State: RoundRolledBack}, nil
		case algorithm.CandidateTried:
		default:
			if cmp.Or(standing.Stable, s.seed.ResourcesID) != parent.ResourcesID {
				return &decided{State: RoundDropped, Reason: "other prompts have become stable before it was tried"}, nil
			}
			err := s.offer(ctx, parent, candidate)
			if code := agl.ErrorCode(err); code == agl.CodeIllegalState || code == agl.CodeUnavailable {
				if !logged {
					s.cfg.Logger.InfoContext(ctx, "the candidate cannot be proposed yet", "resources", candidate.ResourcesID, "error", err)
				}
				logged = true
			} else if err != nil {
				return nil, fmt.Errorf("propose %s: %w", candidate.ResourcesID, err)
			} else {
				continue // its rewards on the validation dataset may have decided it already
			}
		}
		if err := backoff.Sleep(ctx, livePace); err != nil {
			return nil, err
		}
	}
}

// offer begins the release of a candidate, after the validation dataset if there is one.
func (s *search) offer(ctx context.Context, parent, candidate *Candidate) error {
	var offline algorithm.Offline
	if s.in.Val != nil {
		before, err := s.validate(ctx, parent)
		if err != nil {
			return err
		}
		after, err := s.validate(ctx, candidate)
		if err != nil {
			return err
		}
		for i := range before {
			if before[i].Valid && after[i].Valid {
				offline.Stable, offline.Candidate = append(offline.Stable, before[i].V), append(offline.Candidate, after[i].V)
			}
		}
	}
	return s.cfg.Live.Releaser.Propose(ctx, candidate.ResourcesID, offline)
}

// refresh updates the stable bundle, if it is one of this run, with the resources of this process.
func (s *search) refresh(ctx context.Context) error {
	stable, err := s.stable(ctx)
	if err != nil || stable == s.seed.ResourcesID || !strings.HasPrefix(stable, "apo-"+s.editor.runID()+"-") {
		return err
	}
	stored, err := s.in.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: stable})
	if err != nil {
		return fmt.Errorf("read the prompts that are stable: %w", err)
	}
	now := s.own(stored.Resources)
	if bytes.Equal(now.AppendJSON(nil), stored.Resources.AppendJSON(nil)) {
		return nil
	}
	_, err = s.in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: stable, Resources: now, KeepLatest: true})
	return err
}

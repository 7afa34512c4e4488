package apo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// shop is a service whose users have sessions, and who decides by what prompts are worth.
type shop struct {
	world apotest.World
	store agl.Store

	mu        sync.Mutex
	stable    string // empty is the latest resources
	proposed  []string
	decisions map[string]algorithm.CandidateState
}

func (s *shop) worth(ctx context.Context, id string) (float64, error) {
	var err error
	var bundle agl.ResourcesUpdate
	if id == "" {
		bundle, err = s.store.GetLatestResources(ctx)
	} else {
		bundle, err = s.store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: id})
	}
	prompts := apotest.Prompts{}
	for _, r := range bundle.Resources {
		if p, ok := r.Resource.(agl.PromptTemplate); ok {
			prompts[r.Name] = p.Template
		}
	}
	return s.world.Worth(prompts), err
}

func (s *shop) Propose(ctx context.Context, version string, _ algorithm.Offline) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.decisions[version] != "" {
		return nil
	}
	before, err := s.worth(ctx, s.stable)
	if err != nil {
		return err
	}
	after, err := s.worth(ctx, version)
	s.proposed, s.decisions[version] = append(s.proposed, version), algorithm.CandidateRejected
	if after > before {
		s.decisions[version], s.stable = algorithm.CandidatePromoted, version
	}
	return err
}

func (s *shop) Standing(_ context.Context, candidate string) (algorithm.Standing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return algorithm.Standing{Stable: s.stable, State: s.decisions[candidate]}, nil
}

// open has sessions until ctx ends.
func (s *shop) open(ctx context.Context) {
	pace := time.NewTicker(time.Millisecond) // users are slower than the store
	defer pace.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		<-pace.C
		latest, err := s.store.GetLatestResources(ctx)
		if err != nil {
			continue // the run has not begun
		}
		s.mu.Lock()
		id := s.stable
		s.mu.Unlock()
		if id == "" {
			id = latest.ResourcesID
		}
		worth, err := s.worth(ctx, id)
		if err != nil {
			return
		}
		r, err := s.store.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
			Input: []byte(`{}`), ResourcesID: agl.Some(id), Metadata: fmt.Appendf(nil, `{"agl.user":"u%d","consent":%q}`, n%2*(n%5), []string{"yes", "no"}[n%7/6]),
		}})
		if err != nil {
			return
		}
		if _, err := agl.AddReward(ctx, s.store, agl.AddRewardParams{RolloutID: r.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: worth + rand.Float64()/5}}}); err != nil {
			return
		}
		status := agl.AttemptSucceeded
		if _, err := s.store.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}); err != nil {
			return
		}
	}
}

// liveRounds reads metrics.jsonl.
func liveRounds(t *testing.T, dir string) []apo.LiveRound {
	t.Helper()
	rounds, err := algorithm.ReadLines[apo.LiveRound](filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

// TestLive: prompts get better on what live sessions show, by releases alone, also when the run is stopped again and again. Each session is
// shown once, users and consent are respected, no answer of a model is asked for twice, and a process tells only of the last round before it.
func TestLive(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	st := memorytest.Open(t)
	collector, err := collect.New(collect.Config{Store: st})
	if err != nil {
		t.Fatal(err)
	}
	service := &shop{world: w, store: st, decisions: map[string]algorithm.CandidateState{}}
	open, closing := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer closing()
	users.Go(func() { service.open(open) })

	const rounds = 30
	dir := t.TempDir()
	answered := map[uint64]int{}
	asked := map[string]int{}
	var report apo.Report
	stops, told := 0, 0
	for process := 0; ; process++ {
		ctx, kill := context.WithCancel(t.Context())
		cfg := config(5)
		calls := 0
		cfg.Rounds, cfg.OutDir, cfg.GradientBatch = rounds, dir, 3
		cfg.GradientModel = apo.ModelFunc(func(ctx context.Context, r apo.Request) (apo.Reply, error) {
			if calls++; calls > 7+process%2 {
				kill()
				return apo.Reply{}, ctx.Err()
			}
			answered[r.Seed]++
			return writer(ctx, r)
		})
		cfg.Live = &apo.Live{
			Releaser: service, Sessions: 8, PerUser: 3, Filter: agl.CollectFilter{Metadata: map[string]string{"consent": "yes"}},
			Allow: func(_ context.Context, _ agl.Store, r agl.AttemptedRollout) (bool, error) {
				asked[r.RolloutID]++
				if asked[r.RolloutID] == 1 && len(asked)%11 == 0 {
					return false, errors.New("the program has failed")
				}
				return true, nil
			},
			OnRound: func(apo.LiveRound) { told++ },
		}
		a := newAPO(t, cfg)
		err := a.Run(ctx, agl.AlgorithmInput{Store: st, Collector: collector, InitialResources: w.Resources()})
		kill()
		if report = a.Report(); err == nil {
			break
		}
		if stops++; !errors.Is(err, context.Canceled) || stops > rounds {
			t.Fatal(err)
		}
	}
	seed, best := w.Worth(apotest.PromptsOf(report.Seed.Prompts)), w.Worth(apotest.PromptsOf(report.Best.Prompts))
	if !report.Finished || !report.Improved || best < seed+0.3 || len(report.Live) != rounds || stops < 3 {
		t.Errorf("after %d stops, finished %t: from %v to %v in %d rounds", stops, report.Finished, seed, best, len(report.Live))
	}
	if most := 2 * (rounds + stops); told < 2*rounds || told > most {
		t.Errorf("%d reports of %d rounds in %d processes, want 2 of each, and at most 2 more of a process", told, rounds, stops+1)
	}
	for seed, n := range answered {
		if n != 1 {
			t.Errorf("the call with the seed %d was answered %d times", seed, n)
		}
	}
	if len(service.proposed) == 0 {
		t.Error("nothing was proposed")
	}
	learned, withheld, crowded := map[string]int{}, 0, 0
	lines := liveRounds(t, dir)
	if len(lines) != 2*rounds {
		t.Errorf("%d lines", len(lines))
	}
	for i, r := range lines {
		if r.Step != i/2+1 || (len(r.Learned) == 3) != (i%2 == 0) || (r.State == "") != (i%2 == 0) {
			t.Errorf("line %d: %+v", i, r)
		}
		for _, id := range r.Learned {
			learned[id]++
		}
		if i%2 == 0 {
			withheld, crowded = withheld+r.Withheld, crowded+r.Crowded
		}
	}
	for id, n := range learned {
		r, err := st.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: id})
		consent, _ := agl.Attributes(r.Metadata).GetString("consent")
		if n != 1 || err != nil || consent != "yes" {
			t.Errorf("session %s, with consent %q, was shown %d times, %v", id, consent, n, err)
		}
	}
	if len(learned) != 3*rounds || withheld == 0 || crowded == 0 {
		t.Errorf("%d sessions were shown, %d were withheld, %d were too many of a user", len(learned), withheld, crowded)
	}
}

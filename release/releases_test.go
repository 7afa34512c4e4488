package release_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func propose(t *testing.T, r *release.Releases, p release.Proposal) release.Release {
	t.Helper()
	made, err := r.ProposeRelease(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func current(t *testing.T, r *release.Releases) release.Current {
	t.Helper()
	c, err := r.CurrentRelease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What was promoted is rolled back after all that came after it, and the error says so.
func TestRollbackInOrder(t *testing.T) {
	t.Parallel()
	r := release.New(memorytest.Open(t))
	do := func(id string, act release.Act, want string) {
		t.Helper()
		if _, err := r.Do(t.Context(), id, act, "ada", ""); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", act, err, want)
		}
	}
	first := propose(t, r, release.Proposal{Candidate: release.Version{Model: "v2"}, Model: "v1"}).ID
	do(first, release.ActPromote, "")
	second := propose(t, r, release.Proposal{Candidate: release.Version{Model: "v3"}, Model: "v1"}).ID
	do(first, release.ActRollback, "it is promoted, and "+second+" came after it; roll that back first")
	do(second, release.ActPromote, "")
	do(first, release.ActRollback, "another release was promoted after it; roll that back first")
	do(second, release.ActRollback, "")
	do(first, release.ActRollback, "")
}

// TestLife: what is current after each act, and which acts are refused.
func TestLife(t *testing.T) {
	t.Parallel()
	r := release.New(memorytest.Open(t))
	if c := current(t, r); !c.Equal(release.Current{}) {
		t.Errorf("without a release, %+v is current", c)
	}
	first := propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}, By: "ada"})
	if c := current(t, r); c.Release != first.ID || c.Share != release.DefaultShare || c.Candidate.ResourcesID != "rs-1" || c.Stable != (release.Version{}) {
		t.Errorf("with a canary, %+v is current", c)
	}
	if _, err := r.ProposeRelease(t.Context(), release.Proposal{Candidate: release.Version{ResourcesID: "rs-2"}}); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("a second canary: got %v", err)
	}
	do := func(id string, act release.Act, want error) {
		t.Helper()
		if _, err := r.Do(t.Context(), id, act, "ada", "because"); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", act, err, want)
		}
	}
	do(first.ID, release.ActFreeze, nil)
	do(first.ID, release.ActFreeze, nil) // again
	do(first.ID, release.ActResume, nil)
	do(first.ID, release.ActPromote, nil)
	do(first.ID, release.ActPromote, nil) // again
	do(first.ID, release.ActFreeze, agl.ErrIllegalState)
	do("re-unknown", release.ActPromote, agl.ErrNotFound)
	do(first.ID, "delete", agl.ErrInvalid)
	second := propose(t, r, release.Proposal{Candidate: release.Version{Model: "v2"}, Model: "v1", Share: 0.5, By: "bob"})
	if second.Stable != (release.Version{ResourcesID: "rs-1"}) {
		t.Errorf("the second release begins on %+v", second.Stable)
	}
	do(first.ID, release.ActRollback, agl.ErrIllegalState) // another one came after it
	do(second.ID, release.ActPromote, nil)
	if c := current(t, r); !c.Equal(release.Current{Stable: release.Version{ResourcesID: "rs-1", Model: "v2"}, Model: "v1"}) {
		t.Errorf("after the second promotion, %+v is current", c)
	}
	for _, same := range []release.Proposal{{Candidate: release.Version{Model: "v2"}, Model: "v1"}, {Candidate: release.Version{Model: "v3"}, Model: "v3"}, {Candidate: release.Version{ResourcesID: "rs-1"}}} {
		if _, err := r.ProposeRelease(t.Context(), same); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("a candidate that is stable, %+v: got %v", same, err)
		}
	}
	do(second.ID, release.ActRollback, nil)
	do(second.ID, release.ActPromote, agl.ErrIllegalState)
	if c := current(t, r); c.Stable != (release.Version{ResourcesID: "rs-1"}) || c.Release != "" {
		t.Errorf("after the rollback, %+v is current", c)
	}
	got, err := r.Get(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	var acts []string
	for _, d := range got.Decisions {
		acts = append(acts, d.Action+" by "+d.By)
	}
	if want := []string{"propose by ada", "freeze by ada", "resume by ada", "promote by ada"}; !slices.Equal(acts, want) {
		t.Errorf("decisions %q, want %q", acts, want)
	}
	list, err := r.ListReleases(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("%d releases are listed, %v", len(list), err)
	}
}

// TestSeparate: a release of prompts leaves the models that others have promoted, and one of a model leaves the prompts and the
// models of other names.
func TestSeparate(t *testing.T) {
	t.Parallel()
	r := release.New(memorytest.Open(t))
	serves := func(when string, arm release.Arm, resources string, models ...string) {
		t.Helper()
		c := current(t, r)
		want := map[string]string{}
		for i := 0; i < len(models); i += 2 {
			want[models[i]] = models[i+1]
		}
		if got := c.Models(arm); c.Version(arm).ResourcesID != resources || !maps.Equal(got, want) {
			t.Errorf("%s: sessions of the %s version get %q and the models %v, want %q and %v", when, arm, c.Version(arm).ResourcesID, got, resources, want)
		}
	}
	do := func(made release.Release, act release.Act) {
		t.Helper()
		if _, err := r.Do(t.Context(), made.ID, act, "ada", ""); err != nil {
			t.Fatal(err)
		}
	}
	model := func(asked, answers string) release.Release {
		return propose(t, r, release.Proposal{Candidate: release.Version{Model: answers}, Model: asked})
	}
	prompts := func(id string) release.Release {
		return propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: id}})
	}
	support := model("support", "support-v2")
	do(support, release.ActPromote)
	first := prompts("rs-1")
	for _, arm := range []release.Arm{release.Stable, release.Candidate} {
		serves("prompts are tried", arm, map[release.Arm]string{release.Candidate: "rs-1"}[arm], "support", "support-v2")
	}
	do(first, release.ActRollback)
	serves("prompts are rolled back", release.Stable, "", "support", "support-v2")
	second := prompts("rs-2")
	do(second, release.ActPromote)
	serves("prompts are promoted", release.Stable, "rs-2", "support", "support-v2")
	search := model("search", "search-v2")
	serves("another model is tried", release.Stable, "rs-2", "support", "support-v2")
	serves("another model is tried", release.Candidate, "rs-2", "support", "support-v2", "search", "search-v2")
	do(search, release.ActPromote)
	serves("another model is promoted", release.Stable, "rs-2", "support", "support-v2", "search", "search-v2")
	third := model("support", "support-v3")
	if third.Stable != (release.Version{ResourcesID: "rs-2", Model: "support-v2"}) {
		t.Errorf("the next release of the first model begins on %+v", third.Stable)
	}
	serves("the first model again", release.Stable, "rs-2", "support", "support-v2", "search", "search-v2")
	do(third, release.ActRollback)
	do(second, release.ActRollback) // also after what others have promoted since
	do(search, release.ActRollback)
	serves("prompts and a model are rolled back", release.Stable, "", "support", "support-v2")
	do(support, release.ActRollback)
	serves("all is rolled back", release.Stable, "")
}

func TestBadProposals(t *testing.T) {
	t.Parallel()
	r := release.New(memorytest.Open(t))
	ok := release.Version{ResourcesID: "rs-1"}
	for name, p := range map[string]release.Proposal{
		"nothing":           {},
		"a model for whom":  {Candidate: release.Version{Model: "m"}},
		"whose model":       {Candidate: ok, Model: "m"},
		"share":             {Candidate: ok, Share: 0.6},
		"negative share":    {Candidate: ok, Share: -1},
		"nobody's share":    {Candidate: ok, Share: 1e-300},
		"alpha":             {Candidate: ok, Gates: release.Gates{Alpha: 0.7}},
		"gain":              {Candidate: ok, Gates: release.Gates{MinGain: -0.1}},
		"min sessions":      {Candidate: ok, Gates: release.Gates{MinSessions: math.MaxInt, MaxSessions: math.MaxInt}},
		"max sessions":      {Candidate: ok, Gates: release.Gates{MaxSessions: 60}},
		"guard of nothing":  {Candidate: ok, Gates: release.Gates{Guards: []release.Guard{{Tolerance: 1}}}},
		"guard twice":       {Candidate: ok, Gates: release.Gates{Guards: []release.Guard{{Metric: "x"}, {Metric: "x"}}}},
		"negative guard":    {Candidate: ok, Gates: release.Gates{Guards: []release.Guard{{Metric: "x", Tolerance: -1}}}},
		"too few to decide": {Candidate: ok, Gates: release.Gates{MinSessions: 1}},
	} {
		if _, err := r.ProposeRelease(t.Context(), p); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
}

// TestFrozen: a frozen release is not promoted by its gates, but is rolled back by them.
func TestFrozen(t *testing.T) {
	t.Parallel()
	for gain, want := range map[float64]release.State{5: release.StateCanary, -5: release.StateRolledBack} {
		r := release.New(memorytest.Open(t))
		made := propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}, Share: 0.5})
		if _, err := r.Do(t.Context(), made.ID, release.ActFreeze, "ada", ""); err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 1))
		var sessions []release.Observation
		for n := range 400 {
			arm := release.Arm(n % 2)
			reward := gain*float64(arm) + random.NormFloat64()
			sessions = append(sessions, release.Observation{Arm: arm, Share: 0.5, Reward: &reward})
		}
		after, err := r.Observe(t.Context(), made.ID, "", "1", sessions)
		if err != nil || after.State != want {
			t.Errorf("with the gain %v the frozen release is %s, %v; want %s", gain, after.State, err, want)
		}
		if want != release.StateCanary {
			continue
		}
		if _, err = r.Do(t.Context(), made.ID, release.ActResume, "ada", ""); err != nil {
			t.Fatal(err)
		}
		if after, err = r.Observe(t.Context(), made.ID, "1", "2", sessions[:2]); err != nil || after.State != release.StatePromoted {
			t.Errorf("after resume it is %s, %v", after.State, err)
		}
	}
}

// endSession makes a live session that has ended, as a proxy records it.
func endSession(ctx context.Context, s agl.Store, id string, arm release.Arm, reward float64) error {
	metadata, err := json.Marshal(map[string]any{release.MetadataRelease: id, release.MetadataArm: arm.String(), release.MetadataShare: 0.5})
	if err != nil {
		return err
	}
	made, err := s.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: metadata}})
	if err != nil {
		return err
	}
	if _, err = agl.AddReward(ctx, s, agl.AddRewardParams{RolloutID: made.RolloutID, Rewards: []agl.Reward{{Name: "primary", Value: reward}, {Name: "refunds", Value: 0.5}}}); err != nil {
		return err
	}
	status := agl.AttemptSucceeded
	_, err = s.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: made.RolloutID, AttemptID: agl.LatestAttempt, Status: &status})
	return err
}

// TestWatcherCountsOnce: several watchers at once, whose store is closed and opened again in the middle,
// count each session once.
func TestWatcherCountsOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	const rounds, perRound, watchers = 5, 40, 3
	id := ""
	for round := range rounds {
		func() {
			engine, err := store.Open(t.Context(), "sqlite:"+path, store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := engine.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			r := release.New(engine)
			if id == "" {
				id = propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}, Share: 0.5, Gates: release.Gates{Guards: []release.Guard{{Metric: "refunds", Tolerance: 1}}}}).ID
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			for range watchers {
				collector, err := collect.New(collect.Config{Store: engine})
				if err != nil {
					t.Fatal(err)
				}
				w := release.Watcher{Releases: r, Collector: collector, Spans: engine}
				running.Go(func() { w.Run(ctx) })
			}
			for n := range perRound {
				if err := endSession(t.Context(), engine, id, release.Arm(n%2), float64(n%5)); err != nil {
					t.Fatal(err)
				}
			}
			if round == rounds-1 { // else they are stopped in the middle
				for looks := time.NewTicker(10 * time.Millisecond); ; <-looks.C { // counting makes no events
					got, err := r.Get(t.Context(), id)
					if err != nil {
						t.Fatal(err)
					}
					if got.Evidence.Sessions[0]+got.Evidence.Sessions[1] >= rounds*perRound {
						looks.Stop()
						break
					}
				}
			}
			stop()
			running.Wait()
			got, err := r.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if round == rounds-1 {
				const each = rounds * perRound / 2
				if got.Evidence.Sessions != [2]int64{each, each} || got.Evidence.Reward.Arms[1].N != each || got.Evidence.Guards["refunds"].Arms[0].N != each {
					t.Errorf("%+v were counted, want %d of each arm", got.Evidence, each)
				}
			}
		}()
	}
}

// TestAbsurdSessions: numbers of which no statistics can be made do not stop a release: their sessions do not count, or have no
// reward.
func TestAbsurdSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		r := release.New(engine)
		collector, err := collect.New(collect.Config{Store: engine})
		if err != nil {
			t.Fatal(err)
		}
		made := propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}, Share: 0.5})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { (&release.Watcher{Releases: r, Collector: collector, Spans: engine}).Run(ctx) })
		defer func() { stop(); running.Wait() }()
		session := func(share float64, name, attributes string) {
			metadata := fmt.Appendf(nil, `{%q:%q,%q:"candidate",%q:%v}`, release.MetadataRelease, made.ID, release.MetadataArm, release.MetadataShare, share)
			s, err := engine.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: metadata}})
			if err != nil {
				t.Fatal(err)
			}
			span := agl.Span{RolloutID: s.RolloutID, AttemptID: s.Attempt.AttemptID, TraceID: strings.Repeat("1", 32), SpanID: strings.Repeat("1", 16), Name: name, Attributes: agl.Attributes(attributes)}
			if _, err := engine.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true}); err != nil {
				t.Fatal(err)
			}
			status := agl.AttemptSucceeded
			if _, err := engine.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: s.RolloutID, AttemptID: agl.LatestAttempt, Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
		session(0.5, agl.SpanAnnotation, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1e200}`)
		session(0.5, agl.SpanLiteLLMRequest, `{"gen_ai.usage.output_tokens":1e200}`)
		session(1e-300, agl.SpanAnnotation, `{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":1}`)
		for n := range 10 {
			if err := endSession(t.Context(), engine, made.ID, release.Arm(n%2), 1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err := r.Get(t.Context(), made.ID)
		if err != nil || got.Evidence.Sessions != [2]int64{5, 6} || got.Evidence.Reward.Arms[release.Candidate].N != 5 {
			t.Errorf("the evidence is %+v, %v", got.Evidence, err)
		}
	})
}

// TestAutomatic: a better candidate is promoted and a worse one rolled back by the sessions alone.
func TestAutomatic(t *testing.T) {
	t.Parallel()
	for gain, want := range map[float64]release.State{4: release.StatePromoted, -4: release.StateRolledBack} {
		t.Run(fmt.Sprint(gain), func(t *testing.T) {
			t.Parallel()
			engine := memorytest.Open(t)
			r := release.New(engine)
			collector, err := collect.New(collect.Config{Store: engine})
			if err != nil {
				t.Fatal(err)
			}
			made := propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}, Share: 0.5, Gates: release.Gates{MinSessions: 20, Guards: []release.Guard{}}})
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { (&release.Watcher{Releases: r, Collector: collector, Spans: engine}).Run(ctx) })
			defer func() { stop(); running.Wait() }()
			random := rand.New(rand.NewPCG(3, 3))
			for n := range 200 {
				if err := endSession(t.Context(), engine, made.ID, release.Arm(n%2), gain*float64(n%2)+random.NormFloat64()); err != nil {
					t.Fatal(err)
				}
			}
			for _, err := range engine.Events(t.Context(), agl.EventsParams{Since: "none"}) {
				if err != nil {
					t.Fatal(err)
				}
				if current(t, r).Release == "" {
					break
				}
			}
			got, err := r.Get(t.Context(), made.ID)
			if err != nil || got.State != want {
				t.Fatalf("it is %s, %v; want %s", got.State, err, want)
			}
			last := got.Decisions[len(got.Decisions)-1]
			if last.By != release.ByGates || last.Evidence.Sessions[release.Candidate] == 0 || last.Reason == "" {
				t.Errorf("the decision is %+v", last)
			}
		})
	}
}

// TestKL: a candidate whose replies are far from those of the stable version is rolled back although it earns more. An engine that
// cannot measure it does not stop a release.
func TestKL(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		far  float64
		err  error
		want release.State
	}{
		"far":     {0.5, nil, release.StateRolledBack},
		"near":    {0.01, nil, release.StatePromoted},
		"unknown": {0, agl.ErrUnimplemented, release.StatePromoted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := memorytest.Open(t)
			r := release.New(engine)
			collector, err := collect.New(collect.Config{Store: engine})
			if err != nil {
				t.Fatal(err)
			}
			made := propose(t, r, release.Proposal{
				Candidate: release.Version{ResourcesID: "rs-1"}, Share: 0.5,
				Gates: release.Gates{MinSessions: 30, Guards: []release.Guard{{Metric: release.MetricKL, Tolerance: 0.2}}},
			})
			random := rand.New(rand.NewPCG(3, 3))
			for n := range 300 {
				if err := endSession(t.Context(), engine, made.ID, release.Arm(n%2), 4*float64(n%2)+random.NormFloat64()); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			calls := 1 // the sessions of the candidate are the odd ones
			watcher := release.Watcher{Releases: r, Collector: collector, Spans: engine, KL: func(_ context.Context, of *release.Release, spans []agl.Span) (float64, bool, error) {
				if of.ID != made.ID || len(spans) == 0 {
					t.Errorf("asked for %s with %d spans", of.ID, len(spans))
				}
				calls++
				return tc.far*float64(calls%2) + 0.05*random.NormFloat64(), true, tc.err
			}}
			running.Go(func() { watcher.Run(ctx) })
			defer func() { stop(); running.Wait() }()
			for _, err := range engine.Events(t.Context(), agl.EventsParams{Since: "none"}) {
				if err != nil {
					t.Fatal(err)
				}
				if current(t, r).Release == "" {
					break
				}
			}
			got, err := r.Get(t.Context(), made.ID)
			if err != nil || got.State != tc.want {
				t.Fatalf("it is %s, %v; want %s", got.State, err, tc.want)
			}
			if last := got.Decisions[len(got.Decisions)-1]; tc.want == release.StateRolledBack && !strings.HasPrefix(last.Reason, "kl:") {
				t.Errorf("it was rolled back because of %s", last.Reason)
			}
		})
	}
}

// TestFrozenByHand: what is frozen is promoted and rolled back by a person as any other, and is not called frozen any more.
func TestFrozenByHand(t *testing.T) {
	t.Parallel()
	r := release.New(memorytest.Open(t))
	made := propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}})
	for _, step := range []struct {
		act    release.Act
		state  release.State
		frozen bool
		stable string
	}{
		{release.ActFreeze, release.StateCanary, true, ""},
		{release.ActPromote, release.StatePromoted, false, "rs-1"},
		{release.ActRollback, release.StateRolledBack, false, ""},
	} {
		after, err := r.Do(t.Context(), made.ID, step.act, "ada", "")
		if c := current(t, r); err != nil || after.State != step.state || after.Frozen != step.frozen || c.Stable.ResourcesID != step.stable {
			t.Errorf("after %s it is %s, frozen %t, and %+v is current; %v", step.act, after.State, after.Frozen, c, err)
		}
	}
}

// TestStoreAway: while the store fails, a watcher asks it less and less often.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		engine := memorytest.Open(t)
		collector, err := collect.New(collect.Config{Store: engine})
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		(&release.Watcher{Releases: release.New(engine), Collector: collector, Spans: engine, Logger: slog.New(slog.NewTextHandler(&log, nil))}).Run(ctx)
		const most = 3600/30 + 10
		if n := strings.Count(log.String(), "failed; trying again"); n < most/2 || n > most {
			t.Errorf("%d lines in an hour, want at most %d", n, most)
		}
	})
}

package apo_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/runner/runnertest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The requests that tests read.
const (
	critiqueRequest = "CRITIQUE {{len .Experiments}}\n{{.Prompt}}"
	editRequest     = "EDIT {{.Critique}}\n{{.Refused}}\n{{.Prompt}}"
)

// writer is both models of worlds that have the phrases of the slope.
func writer(ctx context.Context, r apo.Request) (apo.Reply, error) {
	if strings.HasPrefix(r.Messages[0].Content, "CRITIQUE") {
		return apotest.Slope().Criticise(ctx, r)
	}
	return apotest.Edit(ctx, r)
}

func config(seed uint64) apo.Config {
	cfg := apotest.Slope().Config(seed)
	cfg.GradientModel, cfg.EditModel = apo.ModelFunc(writer), nil
	cfg.CritiquePrompts, cfg.EditPrompts = []string{critiqueRequest}, []string{editRequest}
	return cfg
}

// serve runs agents until the test is over.
func serve(t *testing.T, st agl.Store, agent agl.AgentFunc) {
	t.Helper()
	runnertest.Serve(t, runner.Config{Store: st, Agent: agent, Workers: 8, HeartbeatInterval: -1, GracePeriod: 5 * time.Second})
}

func newAPO(t *testing.T, cfg apo.Config) *apo.APO {
	t.Helper()
	a, err := apo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// search runs a search in a new store.
func search(t *testing.T, w apotest.World, cfg apo.Config) apo.Report {
	t.Helper()
	st := memorytest.Open(t)
	serve(t, st, w.Agent)
	a := newAPO(t, cfg)
	if err := a.Run(t.Context(), w.Input(st)); err != nil {
		t.Fatal(err)
	}
	return a.Report()
}

// TestOptima finds known optima, and nothing where nothing helps; `make apo` does
// it with many more seeds.
func TestOptima(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many searches of what other tests do once")
	}
	for _, w := range apotest.Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			const seeds = 2
			for seed := range uint64(seeds) {
				r := search(t, w, w.Config(seed))
				if !w.Optimal(r.Best.Prompts) || r.Improved != w.Improvable() {
					t.Errorf("seed %d: best is %v, improved %t, gain %+v", seed, r.Best.Prompts, r.Improved, r.Gain)
				}
				if gain := w.Gain(r.Best.Prompts); r.Improved && (gain < r.Gain.Low || gain > r.Gain.High) {
					t.Errorf("seed %d: the gain is %v, reported is %+v", seed, gain, r.Gain)
				}
			}
		})
	}
}

// TestGreedy: without a beam, the local optimum is not left, so it is one.
func TestGreedy(t *testing.T) {
	t.Parallel()
	w := apotest.LocalOptimum()
	const seeds, atMost = 5, 1
	found := 0
	for seed := range uint64(seeds) {
		cfg := w.Config(seed)
		cfg.BeamWidth, cfg.BranchFactor = 1, 9 // as many edits
		if w.Optimal(search(t, w, cfg).Best.Prompts) {
			found++
		}
	}
	if found > atMost {
		t.Errorf("a beam of 1 found the optimum in %d of %d seeds, want at most %d", found, seeds, atMost)
	}
}

// TestTies: of prompts that earn the same, the shortest is the best.
func TestTies(t *testing.T) {
	t.Parallel()
	const phrase, enough = "Think carefully.", 3
	worth := func(text string) float64 { return min(float64(strings.Count(text, phrase)), enough) }
	st := memorytest.Open(t)
	serve(t, st, func(_ context.Context, task agl.Task) (agl.Result, error) {
		prompt, err := task.Resources.PromptTemplate()
		return agl.RewardResult(worth(prompt.Template)), err
	})
	// The first edit says it too often; one that says it less often comes later.
	var edits atomic.Int64
	cfg := config(1)
	cfg.BeamWidth, cfg.BranchFactor, cfg.Rounds = 2, 1, 4
	cfg.GradientModel = apo.ModelFunc(func(_ context.Context, r apo.Request) (apo.Reply, error) {
		text := r.Messages[0].Content
		if strings.HasPrefix(text, "CRITIQUE") {
			return apo.Reply{Text: "too long, or too short"}, nil
		}
		prompt := text[strings.LastIndex(text, "\n")+1:]
		if edits.Add(1) <= 2 {
			return apo.Reply{Text: apotest.Text(phrase, phrase, phrase, phrase, phrase)}, nil
		}
		return apo.Reply{Text: strings.Replace(prompt, phrase+" ", "", 1)}, nil
	})
	a := newAPO(t, cfg)
	if err := a.Run(t.Context(), apotest.Slope().Input(st)); err != nil {
		t.Fatal(err)
	}
	r := a.Report()
	if got, want := r.Best.Prompts[0].Prompt, apotest.Text(phrase, phrase, phrase); got != want || !r.Improved {
		t.Errorf("best is %q, improved %t; want %q", got, r.Improved, want)
	}
	// Without noise every edit's gain over its parent is that on each task.
	if c := r.Candidates[1]; c.Gain != (apo.Difference{Mean: 2, Low: 2, High: 2, Level: 0.95, Pairs: cfg.ValBatch}) {
		t.Errorf("the first edit gains %+v over the seed, want 2", c.Gain)
	}
	if first := r.Rounds[0]; len(r.Rounds) != 4 || first.Best == r.Best.ResourcesID {
		t.Errorf("%s was the best after the first of %d rounds; want a longer one", first.Best, len(r.Rounds))
	}
}

var errInfrastructure = &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: errors.New("the model was away")}

// TestMasked: what failed for reasons around the agent counts in no score.
func TestMasked(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	st := memorytest.Open(t)
	var n atomic.Int64
	serve(t, st, func(ctx context.Context, task agl.Task) (agl.Result, error) {
		if n.Add(1)%5 == 0 {
			return agl.Result{}, errInfrastructure
		}
		return w.Agent(ctx, task)
	})
	a := newAPO(t, config(1))
	if err := a.Run(t.Context(), w.Input(st)); err != nil {
		t.Fatal(err)
	}
	r := a.Report()
	masked := r.Masked[algorithm.Mask(agl.OutcomeModelError)]
	if masked != int(n.Load())/5 || int64(r.Rollouts) != n.Load() || !r.Improved || r.Best.Validation.V < 0.6 {
		t.Errorf("%d of %d rollouts masked (of %d run), improved %t to %v; want a fifth masked and none counted as 0",
			masked, r.Rollouts, n.Load(), r.Improved, r.Best.Validation.V)
	}
	latest, err := st.GetLatestResources(t.Context())
	if err != nil || latest.ResourcesID != r.Best.ResourcesID {
		t.Errorf("the latest resources are %s, %v; want the best, %s", latest.ResourcesID, err, r.Best.ResourcesID)
	}
	for _, c := range r.Candidates {
		if _, err := st.GetResources(t.Context(), agl.GetResourcesParams{ResourcesID: c.ResourcesID}); err != nil {
			t.Errorf("the history lacks %s: %v", c.ResourcesID, err)
		}
	}
}

package apo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a task whose best prompts are known: the expected reward is a function
// of how often each template of the bundle says its word.
type world struct {
	seed    map[string]int // how often the seed says it, by template
	optimum map[string]int
	expect  func(count map[string]int) float64
}

const word = " carefully"

func dist(a, b int) float64 { return float64(max(a-b, b-a)) }

// worlds have the optimum several edits away, beyond a valley, in two templates,
// and at the seed.
func worlds() map[string]world {
	local := []float64{0.35, 0.5, 0.4, 0.45, 0.7, 0.95, 0.6, 0.3, 0.2, 0.1}
	return map[string]world{
		"slope": {
			seed: map[string]int{"main": 1}, optimum: map[string]int{"main": 4},
			expect: func(n map[string]int) float64 { return 1 - 0.2*dist(n["main"], 4) },
		},
		"local optimum": {
			seed: map[string]int{"main": 1}, optimum: map[string]int{"main": 5},
			expect: func(n map[string]int) float64 { return local[min(n["main"], len(local)-1)] },
		},
		"two templates": {
			seed: map[string]int{"main": 1, "style": 2}, optimum: map[string]int{"main": 3, "style": 0},
			expect: func(n map[string]int) float64 { return 0.9 - 0.2*dist(n["main"], 3) - 0.2*dist(n["style"], 0) },
		},
		"nothing helps": {
			seed: map[string]int{"main": 2}, optimum: map[string]int{"main": 2},
			expect: func(n map[string]int) float64 { return 0.6 - 0.02*dist(n["main"], 2) },
		},
	}
}

func (w world) resources() agl.Resources {
	out := agl.Resources{{Name: "model", Resource: agl.LLM{Endpoint: "http://localhost/v1", Model: "m"}}}
	for _, name := range []string{"main", "style"} {
		if n, ok := w.seed[name]; ok {
			out = append(out, agl.NamedResource{Name: name, Resource: agl.PromptTemplate{
				Template: "Answer {question}" + strings.Repeat(word, n), Engine: agl.PromptFString,
			}})
		}
	}
	return out
}

func count(prompts []apo.NamedPrompt) map[string]int {
	out := map[string]int{}
	for _, p := range prompts {
		out[p.Name] = strings.Count(p.Prompt, word)
	}
	return out
}

// agent earns what its prompts are worth, and a noise that its seed decides.
func (w world) agent(_ context.Context, t agl.Task) (agl.Result, error) {
	var prompts []apo.NamedPrompt
	for _, r := range t.Resources {
		if p, ok := r.Resource.(agl.PromptTemplate); ok {
			prompts = append(prompts, apo.NamedPrompt{Name: r.Name, Prompt: p.Template})
		}
	}
	var meta struct {
		Seed uint64 `json:"seed"`
	}
	if err := agl.DecodeJSON(t.Rollout.Metadata, &meta); err != nil {
		return agl.Result{}, err
	}
	n := count(prompts)
	r := rand.New(rand.NewPCG(meta.Seed, uint64(n["main"]*100+n["style"])))
	const noise = 0.4
	return agl.RewardResult(w.expect(n) + noise*(r.Float64()-0.5)), nil
}

// The requests that the scripted model reads.
const (
	critiqueRequest = "CRITIQUE {{len .Experiments}}\n{{.Prompt}}"
	editRequest     = "EDIT {{.Critique}}\n{{.Refused}}\n{{.Prompt}}"
)

// editor is a scripted model: it says to add or to cut a word, as its seed decides,
// and does what it is told.
func editor(_ context.Context, r apo.Request) (apo.Reply, error) {
	usage := apo.Usage{PromptTokens: 100, CompletionTokens: 10}
	text := r.Messages[0].Content
	if strings.HasPrefix(text, "CRITIQUE") {
		return apo.Reply{Text: []string{"more", "less"}[rand.New(rand.NewPCG(r.Seed, 1)).IntN(2)], Usage: usage}, nil
	}
	lines := strings.SplitN(text, "\n", 3)
	prompt := lines[2]
	if lines[0] == "EDIT more" {
		return apo.Reply{Text: prompt + word, Usage: usage}, nil
	}
	return apo.Reply{Text: strings.Replace(prompt, word, "", 1), Usage: usage}, nil
}

func config(seed uint64) apo.Config {
	return apo.Config{
		GradientModel: apo.ModelFunc(editor), CritiquePrompts: []string{critiqueRequest}, EditPrompts: []string{editRequest},
		BeamWidth: 3, BranchFactor: 3, Rounds: 7, GradientBatch: 1, ValBatch: 10, Seed: seed,
	}
}

func tasks(n int) agl.Tasks {
	var out agl.Tasks
	for i := range n {
		out = append(out, jsontext.Value(fmt.Sprint(i)))
	}
	return out
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	driver, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.New(t.Context(), store.Config{Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return st
}

// serve runs agents until the test is over.
func serve(t *testing.T, st agl.Store, agent agl.AgentFunc) {
	t.Helper()
	workers, err := runner.New(runner.Config{Store: st, Agent: agent, Workers: 8, HeartbeatInterval: -1, GracePeriod: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := workers.Run(ctx); err != nil {
			t.Errorf("runner: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
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
func search(t *testing.T, w world, cfg apo.Config) apo.Report {
	t.Helper()
	st := newStore(t)
	serve(t, st, w.agent)
	a := newAPO(t, cfg)
	if err := a.Run(t.Context(), input(st, w)); err != nil {
		t.Fatal(err)
	}
	return a.Report()
}

func input(st agl.Store, w world) agl.AlgorithmInput {
	return agl.AlgorithmInput{Store: st, Train: tasks(12), Val: tasks(24), InitialResources: w.resources()}
}

// TestOptima: known optima are found in at least 9 of 10 seeds, and where nothing
// helps, nothing is reported to.
func TestOptima(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many seeds of what other tests do once")
	}
	for name, w := range worlds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds, atLeast = 10, 9
			found := 0
			for seed := range uint64(seeds) {
				r := search(t, w, config(seed))
				got := count(r.Best.Prompts)
				same := fmt.Sprint(got) == fmt.Sprint(w.optimum)
				atSeed := fmt.Sprint(w.seed) == fmt.Sprint(w.optimum)
				if same && r.Improved != atSeed {
					found++
					continue
				}
				t.Logf("seed %d: best is %v, want %v; improved %t, gain %+v", seed, got, w.optimum, r.Improved, r.Gain)
			}
			if found < atLeast {
				t.Errorf("the optimum was found in %d of %d seeds, want at least %d", found, seeds, atLeast)
			}
		})
	}
}

// TestGreedy: without a beam, the local optimum is not left, so it is one.
func TestGreedy(t *testing.T) {
	t.Parallel()
	w := worlds()["local optimum"]
	const seeds, atMost = 5, 1
	found := 0
	for seed := range uint64(seeds) {
		cfg := config(seed)
		cfg.BeamWidth, cfg.BranchFactor = 1, 9 // as many edits
		if fmt.Sprint(count(search(t, w, cfg).Best.Prompts)) == fmt.Sprint(w.optimum) {
			found++
		}
	}
	if found > atMost {
		t.Errorf("a beam of 1 found the optimum in %d of %d seeds, want at most %d", found, seeds, atMost)
	}
}

// TestCoverage: the interval reported covers the true gain of the candidate that
// it is about, whether or not it is reported to help.
func TestCoverage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many seeds of what other tests do once")
	}
	for name, w := range map[string]world{"slope": worlds()["slope"], "nothing helps": worlds()["nothing helps"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds, atLeast = 100, 90
			var covered, compared, claimed atomic.Int64
			var wg sync.WaitGroup
			for part := range uint64(4) {
				wg.Go(func() {
					for seed := part; seed < seeds; seed += 4 {
						cfg := config(seed)
						cfg.Rounds, cfg.BeamWidth, cfg.BranchFactor, cfg.ValBatch = 2, 2, 2, 6
						// Without it, a leader that only seems better gets as far as the
						// final comparison.
						cfg.SkipInitialValidation = true
						r := search(t, w, cfg)
						if r.Compared == "" {
							covered.Add(1) // it says that there is no gain, and the best is the seed
							continue
						}
						compared.Add(1)
						for _, c := range r.Candidates {
							if c.ResourcesID != r.Compared {
								continue
							}
							truth := w.expect(count(c.Prompts)) - w.expect(w.seed)
							if r.Gain.Low <= truth && truth <= r.Gain.High {
								covered.Add(1)
							}
							if r.Improved && truth <= 0 {
								claimed.Add(1)
							}
						}
					}
				})
			}
			wg.Wait()
			t.Logf("%d of %d intervals cover the true gain, %d are of a comparison, %d false claims", covered.Load(), seeds, compared.Load(), claimed.Load())
			if covered.Load() < atLeast || compared.Load() < seeds/2 || claimed.Load() > 5 {
				t.Errorf("%d of %d intervals cover the true gain (want %d); %d comparisons; %d false claims", covered.Load(), seeds, atLeast, compared.Load(), claimed.Load())
			}
		})
	}
}

var errInfrastructure = &agl.OutcomeError{Kind: agl.OutcomeModelError, Err: errors.New("the model was away")}

// TestMasked: what failed for reasons around the agent counts in no score.
func TestMasked(t *testing.T) {
	t.Parallel()
	w := worlds()["slope"]
	st := newStore(t)
	var n atomic.Int64
	serve(t, st, func(ctx context.Context, task agl.Task) (agl.Result, error) {
		if n.Add(1)%5 == 0 {
			return agl.Result{}, errInfrastructure
		}
		return w.agent(ctx, task)
	})
	a := newAPO(t, config(1))
	if err := a.Run(t.Context(), input(st, w)); err != nil {
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

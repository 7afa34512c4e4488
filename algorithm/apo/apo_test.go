package apo_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/store/storetest"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	price := apo.Price{Prompt: 1, Completion: 10} // a call is 100 + 10 tokens, $0.0002
	for name, tt := range map[string]struct {
		budget apo.Budget
		calls  int
	}{"tokens": {apo.Budget{Tokens: 110 * 21}, 21}, "dollars": {apo.Budget{Dollars: 0.0002 * 20.5}, 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(2)
			cfg.Budget, cfg.GradientPrice, cfg.Concurrency = tt.budget, price, 2
			r := search(t, w, cfg)
			if !r.OutOfBudget || !r.Finished || r.Spent.Calls != tt.calls || len(r.Rounds) != 2 {
				t.Errorf("out of budget %t, finished %t after %d calls and %d rounds; want the end after %d calls, in the second round",
					r.OutOfBudget, r.Finished, r.Spent.Calls, len(r.Rounds), tt.calls)
			}
			if want := 0.0002 * float64(r.Spent.Calls); r.Spent.Dollars < want*0.999 || r.Spent.Dollars > want*1.001 {
				t.Errorf("%d calls cost %v, want %v", r.Spent.Calls, r.Spent.Dollars, want)
			}
			if !r.Improved {
				t.Errorf("what was best when the budget was spent is not reported: %+v", r.Gain)
			}
		})
	}
}

// TestBudgetOfConcurrentCalls: calls that are made at the same time do not exceed the budget together.
func TestBudgetOfConcurrentCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 5
		cfg := config(2)
		cfg.Concurrency, cfg.Budget.Tokens = 8, calls*110+50
		inFlight, most := 0, 0
		var mu sync.Mutex
		cfg.GradientModel = apo.ModelFunc(func(ctx context.Context, r apo.Request) (apo.Reply, error) {
			mu.Lock()
			inFlight++
			most = max(most, inFlight)
			mu.Unlock()
			time.Sleep(time.Second) // all that may begin have begun
			mu.Lock()
			inFlight--
			mu.Unlock()
			return writer(ctx, r)
		})
		r := search(t, apotest.Slope(), cfg)
		if r.Spent.Calls != calls || !r.OutOfBudget {
			t.Errorf("%d calls of %d tokens for a budget of %d, out of budget %t; want %d calls", r.Spent.Calls, r.Spent.PromptTokens+r.Spent.CompletionTokens, cfg.Budget.Tokens, r.OutOfBudget, calls)
		}
		if most != calls-1 { // the first tells what the others will cost
			t.Errorf("%d calls at the same time, want %d", most, calls-1)
		}
	})
}

// TestRefusals: an edit that cannot be used is asked for again with the reason,
// and given up in the end.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	var refused, asked atomic.Int64
	stubborn := func(ctx context.Context, r apo.Request) (apo.Reply, error) {
		text := r.Messages[0].Content
		if !strings.HasPrefix(text, "EDIT") {
			return writer(ctx, r)
		}
		asked.Add(1)
		switch {
		case strings.Contains(text, "\nit lost {question}\n"):
			refused.Add(1)
			return writer(ctx, r)
		case strings.Contains(text, "\n\n"):
			return apo.Reply{Text: "Answer {} carefully"}, nil
		}
		return apo.Reply{}, nil
	}
	cfg := config(1)
	cfg.GradientModel = apo.ModelFunc(stubborn)
	r := search(t, w, cfg)
	if !r.Improved || r.Refused == 0 || int64(r.Refused) != refused.Load() || asked.Load() != 2*refused.Load() || r.Abandoned != 0 {
		t.Errorf("improved %t; %d refused, %d of %d edits were told why, %d abandoned; want each edit refused once",
			r.Improved, r.Refused, refused.Load(), asked.Load(), r.Abandoned)
	}
	for _, c := range r.Candidates {
		for _, p := range c.Prompts {
			if !strings.Contains(p.Prompt, "{question}") {
				t.Errorf("candidate %s is %q", c.ResourcesID, p.Prompt)
			}
		}
	}
}

// TestModelPanics: a model that panics fails the search, and not the process.
func TestModelPanics(t *testing.T) {
	t.Parallel()
	w, st, cfg := apotest.Slope(), memorytest.Open(t), config(1)
	cfg.GradientModel = apo.ModelFunc(func(context.Context, apo.Request) (apo.Reply, error) { panic(fs.ErrInvalid) })
	serve(t, st, w.Agent)
	err := newAPO(t, cfg).Run(t.Context(), w.Input(st))
	if !errors.Is(err, fs.ErrInvalid) || !strings.Contains(err.Error(), "apo_test.go:") {
		t.Errorf("got %v, want the panic and where it was", err)
	}
}

// TestUselessModels: replies without use leave the seed as it is, and end.
func TestUselessModels(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	for name, tt := range map[string]struct {
		critique, edit string
		calls, refused int // of each edit
		cutOff         bool
	}{
		"no critique":    {" \n", "never asked", 3, 0, false},
		"empty edit":     {"bad", "```\n\n```", 4, 3, false},
		"lost":           {"bad", "Here you are: think!", 4, 3, false},
		"unknown field":  {"bad", "{question} {answer}", 4, 3, false},
		"a lonely brace": {"bad", "{question} {", 4, 3, false},
		"cut off":        {"bad", "```\n" + apotest.Slope().Seed[0].Prompt + " Thi", 4, 3, true},
		"the same":       {"bad", "```text\n" + apotest.Slope().Seed[0].Prompt + "\n```", 2, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(1)
			cfg.Rounds = 1
			cfg.GradientModel = apo.ModelFunc(func(_ context.Context, r apo.Request) (apo.Reply, error) {
				if strings.HasPrefix(r.Messages[0].Content, "CRITIQUE") {
					return apo.Reply{Text: tt.critique}, nil
				}
				return apo.Reply{Text: tt.edit, CutOff: tt.cutOff}, nil
			})
			r := search(t, w, cfg)
			edits := cfg.BeamWidth * cfg.BranchFactor
			abandoned := edits
			if name == "the same" {
				abandoned = 0
			}
			if r.Improved || r.Best.ResourcesID != r.Seed.ResourcesID || len(r.Candidates) != 1 || r.Compared != "" ||
				r.Spent.Calls != tt.calls*edits || r.Refused != tt.refused*edits || r.Abandoned != abandoned {
				t.Errorf("improved %t, %d candidates, %d calls, %d refused, %d abandoned; want the seed after %d calls",
					r.Improved, len(r.Candidates), r.Spent.Calls, r.Refused, r.Abandoned, tt.calls*edits)
			}
		})
	}
}

// TestBatchTimeout: rollouts that nobody takes are cancelled, masked, and no
// reason to ask a model anything.
func TestBatchTimeout(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(agl.Store) agl.Store{
		"whole store": func(s agl.Store) agl.Store { return s }, "abstract methods only": storetest.Abstract,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := memorytest.Open(t)
				cfg := config(1)
				cfg.Rounds, cfg.BatchTimeout = 1, time.Minute
				a := newAPO(t, cfg)
				if err := a.Run(t.Context(), apotest.Slope().Input(wrap(st))); err != nil {
					t.Fatal(err)
				}
				r := a.Report()
				if r.Improved || r.Spent.Calls != 0 || r.Rollouts != 24+9 || r.Masked["timeout"] != r.Rollouts || r.Seed.Validation.Valid {
					t.Errorf("improved %t, %d calls, %d rollouts, masked %v; want 33 timeouts", r.Improved, r.Spent.Calls, r.Rollouts, r.Masked)
				}
				page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutCancelled}})
				if err != nil || page.Total != r.Rollouts {
					t.Errorf("%d rollouts are cancelled, %v; want all %d", page.Total, err, r.Rollouts)
				}
			})
		})
	}
}

// A store with the abstract methods only finds what a whole one finds.
func TestStoreOfAbstractMethods(t *testing.T) {
	t.Parallel()
	w := apotest.TwoTemplates()
	cfg := config(3)
	st := memorytest.Open(t)
	serve(t, storetest.Abstract(st), w.Agent)
	a := newAPO(t, cfg)
	if err := a.Run(t.Context(), w.Input(storetest.Abstract(st))); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(anonymous(t, search(t, w, cfg)), anonymous(t, a.Report())); diff != "" {
		t.Errorf("report (-whole store +abstract methods only):\n%s", diff)
	}
}

func TestRejects(t *testing.T) {
	t.Parallel()
	model := apo.ModelFunc(writer)
	for want, cfg := range map[string]apo.Config{
		"apo: GradientModel is nil; a model is required":                                                               {},
		"apo: BeamWidth is -1, must be at least 1":                                                                     {GradientModel: model, BeamWidth: -1},
		"apo: Resamples is 10, must be at least 100":                                                                   {GradientModel: model, Resamples: 10},
		"apo: Resamples is 1000000000, must be at most 10000000":                                                       {GradientModel: model, Resamples: 1_000_000_000},
		"apo: FinalSamples is 1000000000, must be at most 10000000":                                                    {GradientModel: model, FinalSamples: 1_000_000_000},
		"apo: BeamWidth (4) times BranchFactor (9223372036854775807) is 36893488147419103232, must be at most 1000000": {GradientModel: model, BranchFactor: math.MaxInt},
		"apo: EditPrompts is 0, must be at least 1":                                                                    {GradientModel: model, EditPrompts: []string{}},
		"apo: Level is 95, must be between 0 and 1":                                                                    {GradientModel: model, Level: 95},
		"apo: Budget.Tokens is -1, must be a finite number ≥ 0":                                                        {GradientModel: model, Budget: apo.Budget{Tokens: -1}},
		"apo: Budget.Dollars is 5, but both prices are 0, so it would never be spent":                                  {GradientModel: model, Budget: apo.Budget{Dollars: 5}},
		"apo: Rollout: config.max_attempts: got -1, must be at least 1":                                                {GradientModel: model, RunConfig: algorithm.RunConfig{Rollout: agl.RolloutConfig{MaxAttempts: -1}}},
		"apo: BatchTimeout is -1ns, must not be negative":                                                              {GradientModel: model, BatchTimeout: -1},
		"apo: Temperature is -1, must be a finite number ≥ 0":                                                          {GradientModel: model, Temperature: agl.Some(-1.0)},
		"apo: EditPrompts: template: EditPrompts[0]:1: unclosed action":                                                {GradientModel: model, EditPrompts: []string{"{{"}},
		"apo: CritiquePrompts: template: CritiquePrompts[0]:1:2: executing \"CritiquePrompts[0]\" at <.Nothing>: can't evaluate field Nothing in type apo.CritiqueData": {GradientModel: model, CritiquePrompts: []string{"{{.Nothing}}"}},
	} {
		if _, err := apo.New(cfg); !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	prompts := apotest.Slope().Resources()
	st := agl.UnimplementedStore{}
	for want, in := range map[string]agl.AlgorithmInput{
		"apo: the input has no store":                                                  {},
		"apo: the training dataset is empty; critiques need tasks":                     {Store: st, Val: apotest.Tasks(1), InitialResources: prompts},
		"apo: the validation dataset is empty; candidates are compared on it":          {Store: st, Train: apotest.Tasks(1), InitialResources: prompts},
		"apo: the initial resources have no prompt_template; there is nothing to tune": {Store: st, Train: apotest.Tasks(1), Val: apotest.Tasks(1), InitialResources: prompts[:1]},
	} {
		if err := newAPO(t, apo.Config{GradientModel: model}).Run(t.Context(), in); !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

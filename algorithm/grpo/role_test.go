package grpo_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
)

// couple is a world in which two models are shown the same digit: the one called up is to name the next, the one called down the
// one before. Each has a dimension of the reward; the primary one is the mean.
type couple struct {
	*world
	served sync.Map // served by each role: by name
	fault  string
}

type served struct {
	model   tinker.SamplingClient
	version string
}

// spouse publishes the weights of one role.
type spouse struct {
	c    *couple
	name string
}

func (s spouse) Publish(ctx context.Context, p algorithm.Publication) error {
	model, err := s.c.service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: p.Snapshot})
	if err != nil {
		return err
	}
	s.c.served.Store(s.name, served{model, p.Version})
	return nil
}

func newCouple(t *testing.T, dir string, st *store.Store) *couple {
	t.Helper()
	c := &couple{world: newWorld(t, dir, st)}
	c.do = c.agent
	return c
}

func (c *couple) config(out string) grpo.Config {
	cfg := c.world.config(out)
	cfg.Model, cfg.Publisher, cfg.ModelName = tinker.CreateModelParams{}, nil, ""
	for i, name := range []string{"up", "down"} {
		cfg.Roles = append(cfg.Roles, algorithm.Role{
			Name: name, ModelName: "model-" + name, Model: tinker.CreateModelParams{Seed: uint64(i + 1)}, Publisher: spouse{c, name}, Reward: name,
		})
	}
	return cfg
}

func (c *couple) agent(ctx context.Context, t agl.Task) (agl.Result, error) {
	var in task
	var place struct {
		Sample int    `json:"sample"`
		Seed   uint64 `json:"seed"`
	}
	if err := errors.Join(t.DecodeInput(&in), rawjson.Unmarshal(t.Rollout.Metadata, &place)); err != nil {
		return agl.Result{}, err
	}
	faulty := t.Rollout.Mode == agl.ModeTrain && place.Sample == 3
	var result agl.Result
	rewards := []agl.Reward{{Name: "both"}}
	for turn, name := range []string{"up", "down"} {
		now, _ := c.served.Load(name)
		s := now.(served)
		prompt, seed := []int32{in.Digit}, place.Seed+uint64(turn)
		res, err := s.model.Sample(ctx, tinker.SampleParams{Prompt: prompt, MaxTokens: 1, Temperature: 1, Seed: &seed})
		if err != nil {
			return agl.Result{}, err
		}
		version := s.version
		if faulty && c.fault == "swapped" && name == "down" { // the other role's weights answer
			other, _ := c.served.Load("up")
			version = other.(served).version
		}
		span, err := callSpan(t, version, turn, prompt, res.Sequences[0], "")
		if err != nil {
			return agl.Result{}, err
		}
		if span.Attributes, err = span.Attributes.With(agl.Attr{Key: agl.AttrGenAIRequestModel, Value: "model-" + name}); err != nil {
			return agl.Result{}, err
		}
		if c.fault != "lonely" || name != "down" { // else nobody calls it
			result.Spans = append(result.Spans, span)
		}
		value := 0.0
		if res.Sequences[0].Tokens[0] == (in.Digit+[]int32{1, digits - 1}[turn])%digits {
			value = 1
		}
		rewards[0].Value += value / 2
		if !faulty || c.fault != "unrewarded" || name != "down" {
			rewards = append(rewards, agl.Reward{Name: name, Value: value})
		}
	}
	attrs, err := agl.RewardAttributes(rewards...)
	result.Spans = append(result.Spans, newSpan(t, 2, agl.SpanAnnotation, attrs))
	return result, err
}

// TestRoles: two roles learn opposite things from the same rollouts, each from its own calls and its own dimension of the reward.
func TestRoles(t *testing.T) {
	t.Parallel()
	c := newCouple(t, "", nil)
	cfg := c.config("")
	cfg.Steps, cfg.PromptsPerStep, cfg.GroupSize = 60, 6, 8
	var r recorder
	r.attach(&cfg)
	if err := c.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]func(grpo.StepReport) grpo.StepReport{
		"up":   func(s grpo.StepReport) grpo.StepReport { return s },
		"down": func(s grpo.StepReport) grpo.StepReport { return s.Roles["down"] },
	} {
		first, last := 0.0, 0.0
		for i := range 5 {
			first += of(r.steps[i]).RewardMean / 5
			last += of(r.steps[len(r.steps)-1-i]).RewardMean / 5
		}
		if first > 0.5 || last < 0.8 {
			t.Errorf("%s: the mean reward went from %.2f to %.2f, want from at most 0.5 to at least 0.8", name, first, last)
		}
		if one := of(r.steps[0]); one.Calls != 48 || one.OtherCalls != 48 || one.ResponseTokens != 48 || one.LogprobGap.Max > 1e-3 {
			t.Errorf("%s: got %d calls, %d of others, %d tokens, gap %v; want 48 each, and the sampler's probabilities", name, one.Calls, one.OtherCalls, one.ResponseTokens, one.LogprobGap)
		}
	}
}

// TestRoleMasks: what makes a rollout useless to one role leaves it to the other.
func TestRoleMasks(t *testing.T) {
	t.Parallel()
	for fault, mask := range map[string]algorithm.Mask{"swapped": algorithm.MaskVersion, "unrewarded": algorithm.MaskMissingReward} {
		c := newCouple(t, "", nil)
		c.fault = fault
		cfg := c.config("")
		cfg.Steps = 1
		var r recorder
		r.attach(&cfg)
		if err := c.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)}); err != nil {
			t.Fatal(err)
		}
		up, down := r.steps[0], r.steps[0].Roles["down"]
		if len(up.Masked) > 0 || down.Masked[mask] != 4 || len(down.Masked) != 1 {
			t.Errorf("%s: masked are %v and %v, want none and 4 %s", fault, up.Masked, down.Masked, mask)
		}
	}
}

// TestRoleOfUnknownReward: a dimension that no reward has ends the run, instead of steps in which a role learns nothing.
func TestRoleOfUnknownReward(t *testing.T) {
	t.Parallel()
	c := newCouple(t, "", nil)
	cfg := c.config("")
	cfg.Roles[1].Reward = "dwon"
	err := c.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)})
	want := `role down: no reward of the step has the dimension "dwon", from which the role learns; the agent's rewards have ["both" "down" "up"]`
	if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want %s", err, want)
	}
}

// TestRolesResume: a run that is interrupted ends with the metrics and weights of one that is not.
func TestRolesResume(t *testing.T) {
	t.Parallel()
	in := agl.AlgorithmInput{Train: tasks(t)}
	whole, wholeOut := newCouple(t, "", nil), t.TempDir()
	uninterrupted := newGRPO(t, whole.config(wholeOut))
	if err := whole.run(t.Context(), t, uninterrupted, in); err != nil {
		t.Fatal(err)
	}

	st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
	first := newCouple(t, weights, st)
	ctx, kill := context.WithCancel(t.Context())
	cfg := first.config(out)
	cfg.Progress.OnRollouts = func(_ algorithm.Phase, step, _, _ int) {
		if step == 5 {
			kill()
		}
	}
	if err := first.run(ctx, t, newGRPO(t, cfg), in); !errors.Is(err, context.Canceled) {
		t.Fatalf("the interrupted run gave %v, want context.Canceled", err)
	}
	other := first.config(out)
	other.Roles[1].Reward = "up"
	if err := first.run(t.Context(), t, newGRPO(t, other), in); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("a run with another reward of a role: error is %v, want agl.ErrConflict", err)
	}
	second := newCouple(t, weights, st)
	resumed := newGRPO(t, second.config(out))
	if err := second.run(t.Context(), t, resumed, in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(metricsLines(t, wholeOut), metricsLines(t, out), cmp.Transformer("text", func(v jsontext.Value) string { return string(v) })); diff != "" {
		t.Errorf("metrics (-uninterrupted +resumed):\n%s", diff)
	}
	want := probe(t, whole.service, uninterrupted.Summary().Roles["down"])
	if diff := cmp.Diff(want, probe(t, second.service, resumed.Summary().Roles["down"])); diff != "" {
		t.Errorf("weights of the second role (-uninterrupted +resumed):\n%s", diff)
	}
	s := resumed.Summary()
	if !s.Resumed || s.Weights == "" || s.Roles["down"] == "" || s.Weights == s.Roles["down"] {
		t.Errorf("resumed %t, weights %q and %q; want those of two models", s.Resumed, s.Weights, s.Roles["down"])
	}
}

// TestRoleRates: a role has its own learning rate or that of the algorithm, and a run whose rates depend on the number of steps keeps that.
func TestRoleRates(t *testing.T) {
	t.Parallel()
	const up, down, all = 0.0625, 0.125, 0.25
	for name, tc := range map[string]struct {
		roles [2]algorithm.Schedule
		want  [2]float64 // of the first step
		keeps bool       // the number of steps
	}{
		"both":    {[2]algorithm.Schedule{{Peak: up, Floor: up}, {Peak: down, Floor: down}}, [2]float64{up, down}, false},
		"first":   {[2]algorithm.Schedule{{Peak: up, Floor: up}}, [2]float64{up, all}, false},
		"second":  {[2]algorithm.Schedule{1: {Peak: down, Floor: down}}, [2]float64{all, down}, false},
		"neither": {[2]algorithm.Schedule{}, [2]float64{all, all}, false},
		"falls":   {[2]algorithm.Schedule{1: {Peak: down}}, [2]float64{all, down}, true},
	} {
		out, weights := t.TempDir(), t.TempDir()
		run := func(steps int) ([]grpo.StepReport, error) {
			c := newCouple(t, weights, nil)
			cfg := c.config(out)
			cfg.Steps, cfg.Schedule = steps, algorithm.Schedule{Peak: all, Floor: all}
			for i := range cfg.Roles {
				cfg.Roles[i].Schedule = tc.roles[i]
			}
			var r recorder
			r.attach(&cfg)
			err := c.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)})
			return r.steps, err
		}
		steps, err := run(2)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]float64{steps[0].LearningRate, steps[0].Roles["down"].LearningRate}; got != tc.want {
			t.Errorf("%s: the rates are %v, want %v", name, got, tc.want)
		}
		if _, err := run(3); errors.Is(err, agl.ErrConflict) != tc.keeps || err != nil && !tc.keeps {
			t.Errorf("%s: a resumption with more steps: %v, want agl.ErrConflict: %t", name, err, tc.keeps)
		}
	}
}

type collector struct{ agl.Collector }

func TestRolesRefused(t *testing.T) {
	t.Parallel()
	c := newCouple(t, "", nil)
	for want, edit := range map[string]func(*grpo.Config){
		`Roles[1].Name is "up", the name of another role`:        func(c *grpo.Config) { c.Roles[1].Name = "up" },
		`Roles[0].Name is "a b", must be letters`:                func(c *grpo.Config) { c.Roles[0].Name = "a b" },
		`Roles[1].ModelName is empty`:                            func(c *grpo.Config) { c.Roles[1].ModelName = "" },
		`Roles[1].ModelName is "model-up", the model of another`: func(c *grpo.Config) { c.Roles[1].ModelName = "model-up" },
		`Roles[1].Publisher is nil`:                              func(c *grpo.Config) { c.Roles[1].Publisher = nil },
		`KL.Reference is "tinker://m/weights/a" with 2 Roles`:    func(c *grpo.Config) { c.KL = grpo.KL{Coefficient: 1, Reference: "tinker://m/weights/a"} },
		"Live and Roles are both given":                          func(c *grpo.Config) { c.Live = &grpo.Live{Collector: collector{}} },
	} {
		cfg := c.config("")
		edit(&cfg)
		_, err := grpo.New(cfg)
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

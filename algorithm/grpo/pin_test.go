package grpo_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/engine"
)

// straddling is a run whose first rollouts call once before the weights of later steps are published, and once after.
type straddling struct {
	*engine.Publisher

	service tinker.Service

	mu        sync.Mutex
	published int
	paths     map[string]string // snapshots by resources
	lost      []error           // of pinned snapshots
	several   int               // the most versions that rollouts were pinned to
	later     chan struct{}     // closed when enough are published
}

// laterVersions is how many publications the first rollouts wait for.
const laterVersions = 4

func (s *straddling) Publish(ctx context.Context, p algorithm.Publication) error {
	if err := s.Publisher.Publish(ctx, p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, again := s.paths[p.ResourcesID]
	s.paths[p.ResourcesID] = p.Snapshot
	s.several = max(s.several, len(p.Pinned))
	for _, resources := range p.Pinned {
		if path, ok := s.paths[resources]; ok {
			_, err := s.service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
			s.lost = append(s.lost, err)
		}
	}
	if !again {
		if s.published++; s.published == laterVersions {
			close(s.later)
		}
	}
	return nil
}

// agent calls twice. The rollouts of the first groups call the second time when later versions are published.
func (s *straddling) agent(ctx context.Context, task agl.Task) (agl.Result, error) {
	var tag algorithm.Tag
	if err := rawjson.Unmarshal(task.Rollout.Metadata, &tag); err != nil {
		return agl.Result{}, err
	}
	if _, err := ask(ctx, task); err != nil {
		return agl.Result{}, err
	}
	if tag.Step == 1 && tag.Group == 0 {
		select {
		case <-s.later:
		case <-ctx.Done():
			return agl.Result{}, ctx.Err()
		}
	}
	_, err := ask(ctx, task)
	return agl.RewardResult(float64(tag.Sample % 2)), err // each step has something to learn, and publishes
}

// TestPin runs agents over an engine and a proxy. With pin: rollout all calls of a rollout have the version with which it was enqueued, also when
// newer ones were published meanwhile; with pin: call those after a publication have the newer one.
func TestPin(t *testing.T) {
	t.Parallel()
	for _, pin := range grpo.Pins() {
		t.Run(string(pin), func(t *testing.T) {
			t.Parallel()
			testPin(t, pin)
		})
	}
}

// run trains a small policy with an agent behind a proxy for 8 steps of 2 groups of 4.
func (s *straddling) run(t *testing.T, st *store.Store, agent agl.AgentFunc, val agl.Dataset, edit func(*grpo.Config)) (steps []grpo.StepReport, summary algorithm.Summary) {
	t.Helper()
	model, err := engine.NewPolicy(engine.PolicyConfig{Policy: policy.Config{Context: 32, Layers: 1, Dim: 16, Heads: 1, FF: 16, Dir: t.TempDir()}, Characters: "abcdefgsy "})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := model.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	llm := trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Models: []proxy.Model{model.Model()}, Transport: model.Transport(nil)}})
	s.Publisher, s.service, s.paths, s.later = model.Publisher(llm), model.Service, map[string]string{}, make(chan struct{})
	config := grpo.Config{Steps: 8, PromptsPerStep: 2, GroupSize: 4, Async: grpo.Async{MaxStaleness: 2, OnStale: admission.Train}}
	config.Seed, config.Flusher, config.OutDir = 1, llm, t.TempDir()
	config.Service, config.Publisher, config.ModelName = model.Service, s, engine.DefaultName
	config.Schedule = algorithm.Schedule{Peak: 0.02, Floor: 0.02}
	config.OnStep = func(r grpo.StepReport) { steps = append(steps, r) }
	edit(&config)
	learn := newGRPO(t, config)
	run, err := trainer.New(trainer.Config{Agent: agent, Algorithm: learn, Store: st, Proxy: llm, Train: tasks(t), Val: val, Runners: 16})
	if err == nil {
		err = run.Fit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return steps, learn.Summary()
}

func testPin(t *testing.T, pin grpo.Pin) {
	t.Helper()
	st, s := memorytest.Open(t), &straddling{}
	steps, _ := s.run(t, st, s.agent, nil, func(c *grpo.Config) { c.Async.Pin = pin })
	for _, r := range steps {
		if len(r.Masked) != 0 || r.Rollouts != 8 {
			t.Errorf("step %d: %d rollouts, masked %v", r.Step, r.Rollouts, r.Masked)
		}
	}
	mixed := 0
	page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range page.Items {
		versions := versionsOf(t, st, r.RolloutID)
		if len(versions) == 2 && versions[0] != versions[1] {
			mixed++
		}
		if pin == grpo.PinRollout && slices.ContainsFunc(versions, func(v string) bool { return v != r.ResourcesID.V }) {
			t.Errorf("rollout %s of %s was answered by %q", r.RolloutID, r.ResourcesID.V, versions)
		}
	}
	if err := errors.Join(s.lost...); err != nil {
		t.Errorf("a snapshot that rollouts are pinned to: %v", err)
	}
	switch pin {
	case grpo.PinCall:
		if mixed < 4 || s.several != 0 {
			t.Errorf("%d rollouts have calls of two versions, want those of the first groups; %d versions were pinned", mixed, s.several)
		}
	case grpo.PinRollout:
		if mixed != 0 || s.several < 3 {
			t.Errorf("%d rollouts have calls of two versions; at most %d versions were served, want 3", mixed, s.several)
		}
	}
	if left := len(s.paths) - gone(t, s); left != 2 {
		t.Errorf("%d snapshots are left, want 2", left)
	}
}

// gone counts the snapshots that were deleted.
func gone(t *testing.T, s *straddling) (n int) {
	t.Helper()
	for _, path := range s.paths {
		if _, err := s.service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path}); errors.Is(err, agl.ErrNotFound) {
			n++
		} else if err != nil {
			t.Error(err)
		}
	}
	return n
}

// versionsOf are the versions that answered the calls of a rollout, in order.
func versionsOf(t *testing.T, st agl.Store, rollout string) (versions []string) {
	t.Helper()
	spans, err := st.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: rollout, Name: agl.SpanLiteLLMRequest})
	if err != nil {
		t.Fatal(err)
	}
	for _, span := range spans.Items {
		version, _ := span.Attributes.GetString(agl.AttrModelVersion)
		versions = append(versions, version)
	}
	return versions
}

// TestValidationBeside: a validation runs beside training on the weights of its step, also when newer ones are published meanwhile. If training
// waited for it, the rollouts of that of step 2 would wait for ever.
func TestValidationBeside(t *testing.T) {
	t.Parallel()
	for _, pin := range grpo.Pins() {
		for _, sampling := range []string{"", `{"top_p":0.9}`} {
			st, s := memorytest.Open(t), &straddling{}
			agent := func(ctx context.Context, task agl.Task) (agl.Result, error) {
				var tag algorithm.Tag
				if err := rawjson.Unmarshal(task.Rollout.Metadata, &tag); err != nil {
					return agl.Result{}, err
				}
				if task.Rollout.Mode == agl.ModeVal && tag.Step == 2 {
					select {
					case <-s.later:
					case <-ctx.Done():
						return agl.Result{}, ctx.Err()
					}
				}
				_, err := ask(ctx, task)
				return agl.RewardResult(float64(tag.Sample % 2)), err // each step has something to learn, and publishes
			}
			steps, summary := s.run(t, st, agent, tasks(t), func(c *grpo.Config) {
				c.Async.Pin, c.ValidateEvery, c.CheckpointEvery = pin, 2, 5
				if sampling != "" {
					c.Validation.Sampling = jsontext.Value(sampling)
				}
			})
			validated := map[int]int{} // by step, the line of its result
			for _, r := range steps {
				if r.Beside != nil {
					validated[r.Beside.Step] = r.Step
				}
				if r.Validation != nil {
					validated[r.Step] = r.Step
				}
			}
			if len(validated) != 4 || validated[2] < 3 || validated[4] > 5 || validated[6] <= 6 || validated[8] != 8 {
				t.Errorf("pin %s: the validations of steps are in the lines %v", pin, validated)
			}
			if want := 8*8 + 5*digits; summary.Totals.Rollouts != want || len(summary.Totals.Masked) != 0 {
				t.Errorf("pin %s: %+v, want %d rollouts", pin, summary.Totals, want)
			}
			page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{ModeIn: []agl.Mode{agl.ModeVal}})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range page.Items {
				var tag algorithm.Tag
				if err := rawjson.Unmarshal(r.Metadata, &tag); err != nil {
					t.Fatal(err)
				}
				want := summary.ResourcesID
				if tag.Step < 8 {
					want = steps[tag.Step].ResourcesID // with which the next step began
				}
				if got := versionsOf(t, st, r.RolloutID); !slices.Equal(got, []string{want}) {
					t.Errorf("pin %s: the weights of step %d are %s; in their validation answered %s", pin, tag.Step, want, got)
				}
			}
			if left := len(s.paths) - gone(t, s); left != 2 {
				t.Errorf("pin %s: %d snapshots are left, want 2", pin, left)
			}
			if err := errors.Join(s.lost...); err != nil {
				t.Errorf("pin %s: a snapshot that rollouts are pinned to: %v", pin, err)
			}
		}
	}
}

// TestUnaskedVersion: a call that another version answered than the one that was asked for is caught, and never trained on.
func TestUnaskedVersion(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pin    grpo.Pin
		oldest bool // the weights that were published first answer all calls, and say so
		masks  bool
	}{
		"newest for call":    {grpo.PinCall, false, false},
		"oldest for call":    {grpo.PinCall, true, true},
		"newest for rollout": {grpo.PinRollout, false, true}, // as a proxy does that pins nothing
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "", nil)
			cfg := w.config("")
			cfg.Steps, cfg.Async = 8, grpo.Async{MaxStaleness: 2, OnStale: admission.Wait, Pin: tc.pin}
			cfg.Publisher = selective{w, tc.oldest}
			var rec recorder
			rec.attach(&cfg)
			err := w.run(t.Context(), t, newGRPO(t, cfg), agl.AlgorithmInput{Train: tasks(t)})
			masked := 0
			for _, s := range rec.steps {
				masked += s.Masked[algorithm.MaskVersion]
			}
			caught := masked > 0 || errors.Is(err, agl.ErrIllegalState) && strings.Contains(err.Error(), "wrong_version")
			if caught != tc.masks || err != nil && !caught {
				t.Errorf("%s: %d rollouts are masked, error %v; want some: %t", name, masked, err, tc.masks)
			}
		})
	}
}

// selective publishes only the first weights, if it is to.
type selective struct {
	*world

	first bool
}

func (s selective) Publish(ctx context.Context, p algorithm.Publication) error {
	s.mu.Lock()
	skip := s.first && s.model != nil
	s.mu.Unlock()
	if skip {
		return nil
	}
	return s.world.Publish(ctx, p)
}

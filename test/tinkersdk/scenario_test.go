//go:build tinkersdk

package tinkersdk

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/test/process"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// transcript has the answers of an engine, in order.
type transcript []entry

type entry struct {
	Call   string
	Answer any
}

// recorder makes calls and notes their answers.
type recorder struct {
	t   *testing.T
	log transcript
}

func (r *recorder) note(call string, answer any, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", call, err)
	}
	r.log = append(r.log, entry{call, answer})
}

// step makes a forward_backward and an optim_step.
func (r *recorder) step(call string, m tinker.TrainingClient, p tinker.ForwardParams, rate float64) {
	r.t.Helper()
	res, err := m.ForwardBackward(r.t.Context(), p)
	r.note(call, res, err)
	step, err := m.OptimStep(r.t.Context(), tinker.AdamParams{LearningRate: rate, GradClipNorm: 1})
	r.note(call+": optim_step", step, err)
}

// demonstrations returns batch number i of questions with answers.
func demonstrations(t *testing.T, i int) tinker.ForwardParams {
	t.Helper()
	tokenizer, err := chat.NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	format := chat.NewRoleMarks(tokenizer)
	p := tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.CrossEntropy}}
	for k := range 6 {
		a, b := (7*i+3*k)%50, (5*i+11*k)%50
		d, err := format.Demonstration([]chat.Message{
			{Role: "user", Content: fmt.Sprintf("add %d and %d", a, b)}, {Role: "assistant", Content: fmt.Sprint("ans ", a+b)},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.Data = append(p.Data, d)
	}
	return p
}

func question(t *testing.T) (prompt, stop []int32) {
	t.Helper()
	tokenizer, err := chat.NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	format := chat.NewRoleMarks(tokenizer)
	prompt, err = format.Prompt(chat.PromptParams{Messages: []chat.Message{{Role: "user", Content: "add 3 and 4"}}})
	if err != nil {
		t.Fatal(err)
	}
	return prompt, format.Stop()
}

// rollouts returns data for a loss of reinforcement learning. Digits are rewarded.
func rollouts(prompt []int32, sampled tinker.SampleResult) (data []tinker.Datum) {
	for k, s := range sampled.Sequences {
		ids := append(append([]int32(nil), prompt...), s.Tokens...)
		n := len(ids) - 1
		d := tinker.Datum{
			Input: ids[:n], Targets: ids[1:],
			Weights: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n),
		}
		for i, lp := range s.Logprobs {
			at := len(prompt) - 1 + i
			d.Weights[at], d.Logprobs[at], d.Advantages[at] = 1, lp, float32(k)/3-0.7
		}
		data = append(data, d)
	}
	return data
}

// engine is an engine with the operations that the SDK combines from several calls.
type engine interface {
	tinker.Service
	// createFromState makes a model of a checkpoint.
	createFromState(ctx context.Context, path string, withOptimizer bool) (tinker.TrainingClient, error)
	// publish saves weights without a name and opens them.
	publish(ctx context.Context, m tinker.TrainingClient) (tinker.SamplingClient, error)
}

// tune trains and samples a model through its whole life, and returns the answers of the engine.
func tune(t *testing.T, engine engine) transcript {
	t.Helper()
	ctx := t.Context()
	r := &recorder{t: t}
	can, err := engine.Capabilities(ctx)
	r.note("capabilities", len(can.Models), err)
	m, err := engine.CreateModel(ctx, tinker.CreateModelParams{BaseModel: can.Models[0].Name, Seed: 7})
	r.note("create", nil, err)
	info, err := m.Info(ctx)
	r.note("info", info.Spec.Name, err)
	for i := range 50 {
		r.step(fmt.Sprint("cross_entropy ", i), m, demonstrations(t, i), 3e-3)
	}
	res, err := m.Forward(ctx, demonstrations(t, 99))
	r.note("forward", res, err)

	path, err := m.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "warm"})
	r.note("save for sampler", nil, err)
	sampler, err := engine.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
	r.note("sampling client", nil, err)
	prompt, stop := question(t)
	draw := tinker.SampleParams{Prompt: prompt, NumSamples: 6, MaxTokens: 10, Temperature: 1, Stop: stop, Seed: new(uint64(11))}
	sampled, err := sampler.Sample(ctx, draw)
	r.note("sample", sampled, err)
	for i := range 4 {
		r.step(fmt.Sprint("importance_sampling ", i), m, tinker.ForwardParams{
			Loss: tinker.Loss{Name: tinker.ImportanceSampling}, Data: rollouts(prompt, sampled),
		}, 1e-3)
		r.step(fmt.Sprint("ppo ", i), m, tinker.ForwardParams{
			Loss: tinker.Loss{Name: tinker.PPO, ClipLow: 0.9, ClipHigh: 1.25}, Data: rollouts(prompt, sampled),
		}, 1e-3)
		r.step(fmt.Sprint("cispo ", i), m, tinker.ForwardParams{
			Loss: tinker.Loss{Name: tinker.CISPO, ClipLow: 0.8, ClipHigh: 1.2}, Data: rollouts(prompt, sampled),
		}, 1e-3)
	}

	state, err := m.SaveWeights(ctx, tinker.SaveWeightsParams{Name: "state"})
	r.note("save", nil, err)
	for i := range 3 {
		r.step(fmt.Sprint("after saving ", i), m, demonstrations(t, 50+i), 3e-3)
	}
	for _, withOptimizer := range []bool{true, false} {
		err = m.LoadWeights(ctx, tinker.LoadWeightsParams{Path: state, WithOptimizer: withOptimizer})
		r.note(fmt.Sprint("load ", withOptimizer), nil, err)
		other, err := engine.createFromState(ctx, state, withOptimizer)
		r.note(fmt.Sprint("create from state ", withOptimizer), nil, err)
		for i := range 3 {
			r.step(fmt.Sprintf("after load %v %d", withOptimizer, i), m, demonstrations(t, 50+i), 3e-3)
			r.step(fmt.Sprintf("after create %v %d", withOptimizer, i), other, demonstrations(t, 50+i), 3e-3)
		}
	}
	draw.PromptLogprobs = true
	fresh, err := engine.publish(ctx, m)
	r.note("publish", nil, err)
	last, err := fresh.Sample(ctx, draw)
	r.note("sample the newest snapshot", last, err)
	base, err := engine.NewSamplingClient(ctx, tinker.NewSamplingClientParams{BaseModel: can.Models[0].Name})
	r.note("open the base model", nil, err)
	first, err := base.Sample(ctx, draw)
	r.note("sample the base model", first, err)
	draw.PromptLogprobs = false
	again, err := sampler.Sample(ctx, draw)
	r.note("sample the old snapshot", again, err)
	if diff := cmp.Diff(sampled, again); diff != "" {
		t.Errorf("the snapshot changed:\n%s", diff)
	}
	return r.log
}

// local is the same engine in this process.
type local struct{ tinker.Service }

func (l local) createFromState(ctx context.Context, path string, withOptimizer bool) (tinker.TrainingClient, error) {
	m, err := l.CreateModel(ctx, tinker.CreateModelParams{})
	if err != nil {
		return nil, err
	}
	return m, m.LoadWeights(ctx, tinker.LoadWeightsParams{Path: path, WithOptimizer: withOptimizer})
}

func (l local) publish(ctx context.Context, m tinker.TrainingClient) (tinker.SamplingClient, error) {
	path, err := m.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "unnamed"})
	if err != nil {
		return nil, err
	}
	return l.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
}

func inProcess(t *testing.T) local {
	t.Helper()
	tokenizer, err := chat.NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	engine, err := policy.NewService(policy.Config{Vocab: tokenizer.Vocab()})
	if err != nil {
		t.Fatal(err)
	}
	return local{engine}
}

// The SDKs must get from the server what the same calls give in this process, although both use
// it at once. Both encodings carry every bit of a float32.
func TestTraining(t *testing.T) {
	t.Parallel()
	want := tune(t, inProcess(t))
	dir := process.Dir(t)
	url := serve(t, "--dir="+dir).url
	t.Cleanup(func() {
		kept, err := filepath.Glob(filepath.Join(dir, "*", "sampler_weights", "*"))
		if err != nil || len(kept) != len(sdks) {
			t.Errorf("%q, %v: each SDK saved one snapshot with a name", kept, err)
		}
	})
	for name := range sdks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSDK(t, name, url)
			got := tune(t, s)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("in process and by the SDK (-want +got):\n%s", diff)
			}
		})
	}
	first, last := loss(want, "cross_entropy 0"), loss(want, "cross_entropy 49")
	t.Logf("loss %.4f → %.4f in 50 steps", first, last)
	if last > first/2 {
		t.Errorf("the loss went from %v to %v: nothing was learned", first, last)
	}
}

func loss(log transcript, call string) float64 {
	for _, e := range log {
		if res, ok := e.Answer.(tinker.ForwardResult); ok && e.Call == call {
			return res.Loss
		}
	}
	return 0
}

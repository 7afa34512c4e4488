package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

const vocab = 8

// tiny is the smallest policy, with checkpoints in dir.
func tiny(dir string) policy.Config {
	return policy.Config{Vocab: vocab, Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16, Workers: 1, Dir: dir}
}

// world is a fake server and a client of it, without a socket between them. Checkpoints survive restarts.
type world struct {
	engine *policy.Service
	fake   *tinkertest.Server
	client *client.Client
}

func newWorld(t *testing.T, dir string, cc client.Config, sc server.Config, fault func(tinkertest.Call) tinkertest.Fault) *world {
	t.Helper()
	return newWorldOn(t, dir, cc, tinkertest.Config{Server: sc, Fault: fault})
}

func newWorldOn(t *testing.T, dir string, cc client.Config, fc tinkertest.Config) *world {
	t.Helper()
	engine, err := policy.NewService(tiny(dir))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{engine: engine}
	fc.NewService = func() (tinker.Service, error) { return engine, nil }
	w.fake, w.client = connect(t, cc, fc)
	return w
}

// connect makes a fake server and a client of it.
func connect(t *testing.T, cc client.Config, fc tinkertest.Config) (*tinkertest.Server, *client.Client) {
	t.Helper()
	fake, err := tinkertest.New(fc)
	if err != nil {
		t.Fatal(err)
	}
	cc.URL, cc.Transport = "http://tinker.invalid", chat.Transport{Handler: fake}
	c, err := client.New(cc)
	if err != nil {
		t.Fatal(err)
	}
	return fake, c
}

func (w *world) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(w.client.Close(), w.fake.Close()); err != nil {
		t.Error(err)
	}
}

// data is the batch of a step.
func data(step int) tinker.ForwardParams {
	p := tinker.ForwardParams{Loss: tinker.Loss{Name: []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling, tinker.PPO}[step%3]}}
	for k := range 5 {
		n := 3 + (step+k)%4
		d := tinker.Datum{Weights: make([]float32, n), Logprobs: make([]float32, n), Advantages: make([]float32, n)}
		for i := range n {
			d.Input = append(d.Input, int32((i+k+step)%vocab))
			d.Targets = append(d.Targets, int32((i+k+step+1)%vocab))
			d.Weights[i] = float32(i%2) * 0.7
			d.Logprobs[i] = -2 - float32(k)/7
			d.Advantages[i] = float32(k) - 1.3
		}
		d.Weights[0] = 1
		p.Data = append(p.Data, d)
	}
	return p
}

var adam = tinker.AdamParams{LearningRate: 0.01, GradClipNorm: 1}

// trace is everything that a run returned.
type trace struct {
	Forward []tinker.ForwardResult
	Steps   []tinker.OptimStepResult
	Info    tinker.Info
	Samples tinker.SampleResult
}

const runSteps = 2

// straight makes a run in which nothing goes wrong.
func straight(t *testing.T, s tinker.Service) (out trace, checkpoint tinker.Path) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	m, err := s.CreateModel(ctx, tinker.CreateModelParams{Seed: 5})
	must(err)
	for step := range runSteps {
		f, err := m.ForwardBackward(ctx, data(step))
		must(err)
		o, err := m.OptimStep(ctx, adam)
		must(err)
		only, err := m.Forward(ctx, data(step))
		must(err)
		out.Forward, out.Steps = append(out.Forward, f, only), append(out.Steps, o)
	}
	out.Info, err = m.Info(ctx)
	must(err)
	path, err := m.SaveWeights(ctx, tinker.SaveWeightsParams{Name: "end"})
	must(err)
	snapshot, err := m.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "end"})
	must(err)
	c, err := s.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: snapshot})
	must(err)
	out.Samples, err = c.Sample(ctx, tinker.SampleParams{Prompt: []int32{1, 2}, NumSamples: 3, MaxTokens: 6, Temperature: 1, Stop: []int32{3}, Seed: new(uint64(9))})
	must(err)
	if _, err := s.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: "tinker://nobody/sampler_weights/x"}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("an unknown snapshot: %v", err)
	}
	must(m.LoadWeights(ctx, tinker.LoadWeightsParams{Path: path}))
	must(s.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: snapshot}))
	if err := s.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: snapshot}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	must(m.Unload(ctx))
	if _, err := m.Info(ctx); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("unloaded: %v", err)
	}
	checkpoint, err = tinker.ParsePath(path)
	must(err)
	return out, checkpoint
}

// weights returns the bytes of a checkpoint: weights and the optimizer's state.
func weights(t *testing.T, dir string, p tinker.Path) []byte {
	t.Helper()
	matches, err := filepath.Glob(filepath.Join(dir, p.Model, "*", p.Name+"*"))
	if err != nil || len(matches) != 1 {
		all, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		t.Fatalf("%v is %v (%v) of %v", p, matches, err, all)
	}
	b, err := os.ReadFile(matches[0])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// driven makes a run as an algorithm does: it saves a checkpoint at each step and, when something fails, continues from the
// last one, which it returns.
type driven struct {
	service tinker.Service
	model   tinker.TrainingClient
	names   int
	last    string // checkpoint
	step    int
	errors  []error
	queued  bool // the calls of a step are queued together
}

func (d *driven) run(ctx context.Context) (string, error) {
	for len(d.errors) < 8 {
		err := d.attempt(ctx)
		if err == nil {
			return d.last, nil
		}
		d.errors = append(d.errors, err)
		switch {
		case errors.Is(err, client.ErrInDoubt) && d.last != "":
			err = d.model.LoadWeights(ctx, tinker.LoadWeightsParams{Path: d.last, WithOptimizer: true})
			if err == nil {
				continue
			}
			fallthrough
		default:
			d.model = nil // begin anew
		}
	}
	return "", errors.Join(d.errors...)
}

func (d *driven) attempt(ctx context.Context) (err error) {
	if d.model == nil {
		if d.model, err = d.service.CreateModel(ctx, tinker.CreateModelParams{Seed: 5}); err != nil {
			return err
		}
		if d.last == "" {
			d.step = 0
		} else if err := d.model.LoadWeights(ctx, tinker.LoadWeightsParams{Path: d.last, WithOptimizer: true}); err != nil {
			return err
		}
	}
	for d.step < runSteps {
		if d.queued {
			_, _, err = tinker.Step(ctx, d.model, data(d.step), adam)
		} else if _, err = d.model.ForwardBackward(ctx, data(d.step)); err == nil {
			_, err = d.model.OptimStep(ctx, adam)
		}
		if err != nil {
			return err
		}
		d.names++
		path, err := d.model.SaveWeights(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("step-%d-%d", d.step, d.names)})
		if err != nil {
			return err
		}
		d.last, d.step = path, d.step+1
	}
	return nil
}

// A run over client and server equals, bit for bit, a run on the engine itself, in either encoding.
func TestRunIsThatOfTheEngine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	engine, err := policy.NewService(tiny(dir))
	if err != nil {
		t.Fatal(err)
	}
	want, path := straight(t, engine)
	wantWeights := weights(t, dir, path)
	for _, c := range []struct {
		name   string
		client client.Config
		server server.Config
	}{
		{"json", client.Config{Encoding: engines.JSON}, server.Config{}},
		{"json only", client.Config{}, server.Config{Encoding: engines.JSON, Order: engines.Strict}},
		{"protobuf", client.Config{Encoding: engines.Protobuf}, server.Config{Compress: true, Order: engines.Strict}},
		{"protobuf only", client.Config{APIKey: "k"}, server.Config{Encoding: engines.Protobuf, HideEngine: true, APIKey: "k"}},
		{"JSON only, repeats run twice", client.Config{Engine: &engines.Engine{Normalization: engines.Sum}}, server.Config{Encoding: engines.JSON, HideEngine: true, Order: engines.Ignored}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := newWorld(t, dir, c.client, c.server, nil)
			defer w.close(t)
			got, path := straight(t, w.client)
			for i := range got.Steps {
				got.Steps[i].Metrics = nil
			}
			for i := range got.Forward {
				got.Forward[i].Metrics = nil
			}
			if c.server.HideEngine {
				got.Info.Spec = want.Info.Spec
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if !bytes.Equal(weights(t, dir, path), wantWeights) {
				t.Error("other weights")
			}
		})
	}
}

// A run on an imitation of any engine in the table, with the capabilities of the table, has the results of a run in process.
func TestEveryEngine(t *testing.T) {
	t.Parallel()
	plain, err := policy.NewService(tiny(""))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := straight(t, plain)
	for _, e := range engines.All() {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			sc, ec := tinkertest.Imitate(e)
			service, err := policy.NewService(tiny(""))
			if err != nil {
				t.Fatal(err)
			}
			ec.Service = service
			limited, err := tinkertest.NewEngine(ec)
			if err != nil {
				t.Fatal(err)
			}
			e.Vocab, e.Context = vocab, 16
			fake, c := connect(t, client.Config{Engine: &e}, tinkertest.Config{Server: sc, NewService: func() (tinker.Service, error) { return limited, nil }})
			defer fake.Close()
			defer c.Close()
			can, err := c.Capabilities(t.Context())
			if err != nil || can.SummedLoss != (e.Normalization != "") || can.ImmutableSnapshots != e.ImmutableSnapshots {
				t.Errorf("%+v, %v", can, err)
			}
			got, _ := straight(t, c)
			for i := range got.Forward {
				got.Forward[i].Metrics = nil
			}
			if diff := cmp.Diff(want.Forward, got.Forward, cmpopts.EquateApprox(1e-3, 1e-3)); diff != "" {
				t.Error(diff)
			}
			if v := limited.Violations(); len(v) > 0 || limited.Twice() > 0 {
				t.Errorf("%q, %d gradients twice", v, limited.Twice())
			}
		})
	}
}

// The losses that are computed from log-probabilities are those of the engine.
func TestElementwise(t *testing.T) {
	t.Parallel()
	s, err := policy.NewService(tiny(""))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	for step, loss := range tinker.LossNames() {
		p := data(step)
		p.Loss.Name = loss
		res, err := m.Forward(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for k := range p.Data {
			for i, got := range p.Loss.Elementwise(&p.Data[k], res.Logprobs[k]) {
				if want := res.Losses[k][i]; math.Abs(float64(got-want)) > 1e-5*math.Abs(float64(want)) {
					t.Errorf("%s: datum %d, position %d: %v, want %v", p.Loss.Name, k, i, got, want)
				}
			}
		}
	}
}

// The embedded policy says of itself what the table says of it.
func TestPolicyDescribesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", client.Config{}, server.Config{}, nil)
	defer w.close(t)
	said, err := w.client.Capabilities(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known, err := engines.Find(engines.Policy)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(known.Capabilities(said.Models), said); diff != "" {
		t.Errorf("(-table +server):\n%s", diff)
	}
}

// watched is an engine that shows the batches that it is given.
type watched struct {
	tinker.Service

	show func(tinker.ForwardParams)
}

func (w watched) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	m, err := w.Service.CreateModel(ctx, p)
	return watchedModel{m, w.show}, err
}

type watchedModel struct {
	tinker.TrainingClient

	show func(tinker.ForwardParams)
}

func (m watchedModel) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	m.show(p)
	return m.TrainingClient.ForwardBackward(ctx, p)
}

// An engine whose losses of policies take no weights is sent none, and makes the same step.
func TestAdvantagesOnly(t *testing.T) {
	t.Parallel()
	after := func(only bool) (logprobs [][]float32, weighted int) {
		engine, err := policy.NewService(tiny(""))
		if err != nil {
			t.Fatal(err)
		}
		show := func(p tinker.ForwardParams) {
			for i := range p.Data {
				if p.Data[i].Weights != nil {
					weighted++
				}
			}
		}
		w := &world{engine: engine}
		cc := client.Config{Engine: &engines.Engine{Normalization: engines.Sum, ImmutableSnapshots: true, AdvantagesOnly: only}}
		w.fake, w.client = connect(t, cc, tinkertest.Config{NewService: func() (tinker.Service, error) { return watched{engine, show}, nil }})
		defer w.close(t)
		m, err := w.client.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.ForwardBackward(t.Context(), data(1)); err != nil { // importance_sampling
			t.Fatal(err)
		}
		if _, err := m.OptimStep(t.Context(), adam); err != nil {
			t.Fatal(err)
		}
		res, err := m.Forward(t.Context(), data(0))
		if err != nil {
			t.Fatal(err)
		}
		return res.Logprobs, weighted
	}
	want, all := after(false)
	got, none := after(true)
	if all != len(data(1).Data) || none != 0 {
		t.Errorf("%d and %d data have weights, want %d and 0", all, none, len(data(1).Data))
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-4)); diff != "" {
		t.Errorf("log-probabilities (-weights +advantages):\n%s", diff)
	}
}

package policy

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

var update = flag.Bool("update", false, "write the golden files")

func newModel(t *testing.T, cfg Config, seed uint64) (*Service, tinker.TrainingClient) {
	t.Helper()
	s, err := NewService(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.CreateModel(t.Context(), tinker.CreateModelParams{Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

// train takes steps first to last−1 of a fixed run that uses every loss, and returns a line per step.
func train(t *testing.T, m tinker.TrainingClient, cfg Config, first, last int) []string {
	t.Helper()
	var lines []string
	for step := first; step < last; step++ {
		r := rand.New(rand.NewPCG(uint64(step), 11))
		name := []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling, tinker.PPO}[step%3]
		res, err := m.ForwardBackward(t.Context(), tinker.ForwardParams{Data: randomBatch(r, cfg.withDefaults(), 7), Loss: tinker.Loss{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		o, err := m.OptimStep(t.Context(), tinker.AdamParams{LearningRate: 3e-3, Eps: 1e-8, WeightDecay: 0.01, GradClipNorm: 1})
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%d %s loss %x norm %x", o.Step, name, res.Loss, o.GradNorm))
	}
	return lines
}

// The training curve equals the golden file to the last bit, for every number of workers, with and without assembly.
func TestGoldenCurve(t *testing.T) {
	t.Parallel()
	const path = "testdata/curve.txt"
	base := Config{Vocab: 37, Context: 33, Dim: 48, Heads: 3, FF: 80}
	variants := map[string]Config{}
	for _, workers := range []int{1, 2, 4} {
		c := base
		c.Workers = workers
		variants[fmt.Sprintf("workers=%d", workers)] = c
	}
	if !testing.Short() { // it is slow, and its goroutines are those of the others
		c := base
		c.portable = true
		variants["portable"] = c
	}
	if *update {
		_, m := newModel(t, base, 5)
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Join(train(t, m, base, 0, 9), "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range variants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, m := newModel(t, cfg, 5)
			got := strings.Join(train(t, m, cfg, 0, 9), "\n") + "\n"
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("curve (-golden +got):\n%s", diff)
			}
		})
	}
}

// Against Adam as in the paper, in float64.
func TestAdam(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	l := newLayout(cfg.shape())
	r := rand.New(rand.NewPCG(7, 7))
	tr := newTrainer(cfg, l, randomModel(r, l))
	w := widen(tr.w.flat)
	m, v := make([]float64, l.size), make([]float64, l.size)
	for step := 1; step <= 3; step++ {
		var norm float64
		for i := range tr.grad {
			tr.grad[i] = r.Float32() - 0.5
			norm += float64(tr.grad[i]) * float64(tr.grad[i])
		}
		norm = math.Sqrt(norm)
		p := tinker.AdamParams{LearningRate: 0.01, Beta1: 0.8, Beta2: 0.9, Eps: 1e-6, WeightDecay: 0.1, GradClipNorm: 2}
		for i := range w {
			g := float64(tr.grad[i]) * 2 / norm
			m[i] = p.Beta1*m[i] + (1-p.Beta1)*g
			v[i] = p.Beta2*v[i] + (1-p.Beta2)*g*g
			mh, vh := m[i]/(1-math.Pow(p.Beta1, float64(step))), v[i]/(1-math.Pow(p.Beta2, float64(step)))
			w[i] -= p.LearningRate * (mh/(math.Sqrt(vh)+p.Eps) + p.WeightDecay*w[i])
		}
		got, err := tr.adam(p)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-norm) > 1e-6*norm {
			t.Errorf("norm %v, want %v", got, norm)
		}
	}
	for i := range w {
		if math.Abs(float64(tr.w.flat[i])-w[i]) > 1e-5 {
			t.Fatalf("weight %d is %v, want %v", i, tr.w.flat[i], w[i])
		}
	}
	if gradNorm(tr.grad) != 0 {
		t.Error("the gradient is not cleared")
	}
}

func TestGradientAccumulates(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	l := newLayout(cfg.shape())
	r := rand.New(rand.NewPCG(8, 8))
	flat := randomModel(r, l)
	data := randomBatch(r, cfg, 4)
	once, twice := newTrainer(cfg, l, slices.Clone(flat)), newTrainer(cfg, l, slices.Clone(flat))
	loss := tinker.Loss{Name: tinker.CrossEntropy}
	for _, call := range []struct {
		tr   *trainer
		data []tinker.Datum
	}{{once, data}, {twice, data[:2]}, {twice, data[2:]}} {
		if _, err := call.tr.forward(t.Context(), call.data, loss, true); err != nil {
			t.Fatal(err)
		}
	}
	for i := range once.grad {
		if math.Abs(float64(once.grad[i]-twice.grad[i])) > 1e-4 {
			t.Fatalf("gradient %d is %v in one call, %v in two", i, once.grad[i], twice.grad[i])
		}
	}
}

func TestNonFiniteGradientIsDropped(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	l := newLayout(cfg.shape())
	tr := newTrainer(cfg, l, l.initialize(1))
	before := slices.Clone(tr.w.flat)
	tr.grad[3] = float32(math.Inf(1))
	if _, err := tr.adam(tinker.AdamParams{LearningRate: 1}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("error %v, want invalid", err)
	}
	if !slices.Equal(before, tr.w.flat) || tr.step != 0 || gradNorm(tr.grad) != 0 {
		t.Error("the step left a trace")
	}
}

// countdown is a context that is cancelled after a number of calls of Err.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	c.left--
	if c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestCancelledForwardLeavesNoGradient(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Workers = 1
	l := newLayout(cfg.shape())
	r := rand.New(rand.NewPCG(9, 9))
	tr := newTrainer(cfg, l, l.initialize(1))
	data := randomBatch(r, cfg, 100)
	looks := 0
	for ; ; looks++ {
		_, err := tr.forward(&countdown{t.Context(), looks}, data, tinker.Loss{Name: tinker.CrossEntropy}, true)
		if err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("error %v, want a cancelled context", err)
		}
		if gradNorm(tr.grad) != 0 {
			t.Fatalf("cancelled at look %d, the call left a gradient", looks)
		}
	}
	if looks < 2*shardCount {
		t.Errorf("the context was looked at %d times only", looks)
	}
	if gradNorm(tr.grad) == 0 {
		t.Error("the finished call left no gradient")
	}
}

func TestResumeIsExact(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		cfg := testConfig()
		cfg.Dir = dir
		service, m := newModel(t, cfg, 3)
		train(t, m, cfg, 0, 4)
		path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "half"})
		if err != nil {
			t.Fatal(err)
		}
		want := train(t, m, cfg, 4, 8)

		// With a directory, a second service stands for a second process.
		if dir != "" {
			service, m = newModel(t, cfg, 99)
		} else if m, err = service.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 99}); err != nil {
			t.Fatal(err)
		}
		// An unstepped gradient must not survive the load.
		if _, err := m.ForwardBackward(t.Context(), tinker.ForwardParams{Data: randomBatch(rand.New(rand.NewPCG(1, 1)), cfg, 2), Loss: tinker.Loss{Name: tinker.CrossEntropy}}); err != nil {
			t.Fatal(err)
		}
		if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, train(t, m, cfg, 4, 8)); diff != "" {
			t.Errorf("dir %q: the resumed run differs (-want +got):\n%s", dir, diff)
		}
		if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path}); err != nil {
			t.Fatal(err)
		}
		if info, err := m.Info(t.Context()); err != nil || info.Step != 0 {
			t.Errorf("after a load without the optimizer: %+v, %v", info, err)
		}
		if err := service.DeleteWeights(t.Context(), tinker.DeleteWeightsParams{Path: path}); err != nil {
			t.Error(err)
		}
		if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path}); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("load of a deleted checkpoint: %v, want not found", err)
		}
	}
}

func TestDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	_, m := newModel(t, cfg, 3)
	path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cfg.Dir, "agl-policy-1", "weights", "a.ckpt")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, %v; want the checkpoint only", entries, err)
	}
	flipped := slices.Clone(good)
	flipped[len(good)/2] ^= 1
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"flipped bit": {flipped, "damaged: its checksum"},
		"cut":         {good[:len(good)-1], "damaged: its checksum"},
		"empty":       {nil, "not a policy checkpoint"},
		"other file":  {append([]byte("PK"), good...), "not a policy checkpoint"},
	} {
		if err := os.WriteFile(file, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		before := train(t, m, cfg, 0, 1)
		err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true})
		if !errors.Is(err, agl.ErrInvalid) || !errors.Is(err, tinker.ErrDamaged) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want %q and the path", name, err, c.want)
		}
		if len(before) != 1 {
			t.Errorf("%s: the model does not train on", name)
		}
	}
	if err := os.WriteFile(file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.FF = 64
	_, m2 := newModel(t, other, 1)
	if err := m2.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path}); !errors.Is(err, agl.ErrInvalid) || errors.Is(err, tinker.ErrDamaged) || !strings.Contains(err.Error(), "ff=48") {
		t.Errorf("other shape: error %v, want both shapes named", err)
	}
}

func FuzzDecodeCheckpoint(f *testing.F) {
	cfg := Config{Vocab: 5, Context: 4, Layers: 1, Dim: 16, Heads: 1, FF: 16, Workers: 1}.withDefaults()
	l := newLayout(cfg.shape())
	data := newTrainer(cfg, l, l.initialize(1)).encode()
	f.Add(data)
	f.Add(data[:40])
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeCheckpoint("x", data, cfg.shape())
		if err == nil && len(c.flat) != l.size {
			t.Errorf("accepted %d weights", len(c.flat))
		}
		if err != nil && !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("error %v, want invalid", err)
		}
	})
}

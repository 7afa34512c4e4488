package policy

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

func publish(t *testing.T, s *Service, m tinker.TrainingClient, name string) tinker.SamplingClient {
	t.Helper()
	path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func sample(t *testing.T, c tinker.SamplingClient, p tinker.SampleParams) []tinker.Sequence {
	t.Helper()
	res, err := c.Sample(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return res.Sequences
}

// Off-policy corrections depend on this invariant: the log-probabilities of sampler and trainer are equal bit for bit,
// for every length of the prompt, every batch and all kernels.
func TestSamplerAndTrainerAgreeExactly(t *testing.T) {
	t.Parallel()
	for _, portable := range []bool{false, true} {
		cfg := Config{Vocab: 45, portable: portable}
		if portable {
			cfg.Dim, cfg.Heads, cfg.FF = 32, 2, 48 // it is slow
		}
		s, m := newModel(t, cfg, 1)
		train(t, m, cfg, 0, 3)
		c := publish(t, s, m, "a")
		r := rand.New(rand.NewPCG(4, 4))
		var data []tinker.Datum
		var want [][]float32
		var prompts []int
		for range 8 {
			prompt := make([]int32, 1+r.IntN(46))
			for i := range prompt {
				prompt[i] = r.Int32N(45)
			}
			for _, seq := range sample(t, c, tinker.SampleParams{Prompt: prompt, NumSamples: 2, MaxTokens: 48, Temperature: 0.5 + r.Float64(), TopP: 0.9}) {
				ids := slices.Concat(prompt, seq.Tokens)
				data = append(data, tinker.Datum{Input: ids[:len(ids)-1], Targets: ids[1:]})
				want = append(want, seq.Logprobs)
				prompts = append(prompts, len(prompt))
			}
		}
		res, err := m.Forward(t.Context(), tinker.ForwardParams{Data: data, Loss: tinker.Loss{Name: tinker.CrossEntropy}})
		if err != nil {
			t.Fatal(err)
		}
		for k := range data {
			if got := res.Logprobs[k][prompts[k]-1:]; !slices.Equal(got, want[k]) {
				t.Fatalf("portable=%v, datum %d: trainer %v, sampler %v", portable, k, got, want[k])
			}
		}
	}
}

func TestSampleIsAFunctionOfSeedAndIndex(t *testing.T) {
	t.Parallel()
	s, m := newModel(t, Config{Vocab: 40}, 1)
	c := publish(t, s, m, "a")
	p := tinker.SampleParams{Prompt: []int32{1, 2, 3}, NumSamples: 4, MaxTokens: 9, Temperature: 1, Seed: new(uint64(5))}
	all := sample(t, c, p)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			again, err := c.Sample(context.WithoutCancel(t.Context()), p)
			if err != nil {
				t.Error(err)
			} else if diff := cmp.Diff(all, again.Sequences); diff != "" {
				t.Errorf("the same call gives other samples:\n%s", diff)
			}
		})
	}
	wg.Wait()
	p.NumSamples = 2
	if diff := cmp.Diff(all[:2], sample(t, c, p)); diff != "" {
		t.Errorf("fewer samples are not the first ones:\n%s", diff)
	}
	if slices.Equal(all[0].Tokens, all[1].Tokens) {
		t.Error("two samples of one request are equal")
	}
	p.Seed = new(uint64(6))
	if slices.Equal(all[0].Tokens, sample(t, c, p)[0].Tokens) {
		t.Error("two seeds give equal samples")
	}
}

// The frequencies of the first token follow softmax(logits/temperature), truncated.
func TestSamplingDistribution(t *testing.T) {
	t.Parallel()
	const vocab, n = 7, 10000
	s, m := newModel(t, Config{Vocab: vocab, Dim: 16, Heads: 1, FF: 16, Layers: 1, Context: 8}, 2)
	c := publish(t, s, m, "a")
	prompt := []int32{3, 1}
	raw := make([]float64, vocab)
	for i := range raw {
		d := tinker.Datum{Input: prompt, Targets: []int32{1, int32(i)}}
		res, err := m.Forward(t.Context(), tinker.ForwardParams{Data: []tinker.Datum{d}, Loss: tinker.Loss{Name: tinker.CrossEntropy}})
		if err != nil {
			t.Fatal(err)
		}
		raw[i] = float64(res.Logprobs[0][1])
	}
	order := []int{0, 1, 2, 3, 4, 5, 6}
	slices.SortFunc(order, func(a, b int) int {
		if raw[a] > raw[b] {
			return -1
		}
		return 1
	})
	for _, c2 := range []struct {
		name string
		p    tinker.SampleParams
		keep func(mass float64, rank int) bool // is the token of this rank, with mass before it, kept
	}{
		{"plain", tinker.SampleParams{Temperature: 1}, func(float64, int) bool { return true }},
		{"temperature", tinker.SampleParams{Temperature: 0.5}, func(float64, int) bool { return true }},
		{"top k", tinker.SampleParams{Temperature: 1.5, TopK: 3}, func(_ float64, rank int) bool { return rank < 3 }},
		{"top p", tinker.SampleParams{Temperature: 1, TopP: 0.6}, func(mass float64, _ int) bool { return mass < 0.6 }},
		{"greedy", tinker.SampleParams{}, func(_ float64, rank int) bool { return rank == 0 }},
	} {
		want := make([]float64, vocab)
		var all, kept, mass float64
		temperature := c2.p.Temperature
		if temperature == 0 {
			temperature = 1
		}
		for _, v := range raw {
			all += math.Exp(v / temperature)
		}
		for rank, i := range order {
			q := math.Exp(raw[i]/temperature) / all
			if c2.keep(mass, rank) {
				want[i] = q
				kept += q
			}
			mass += q
		}
		c2.p.Prompt, c2.p.MaxTokens, c2.p.NumSamples, c2.p.Seed = prompt, 1, n, new(uint64(1))
		got := make([]float64, vocab)
		for _, seq := range sample(t, c, c2.p) {
			got[seq.Tokens[0]] += 1.0 / n
			if lp := float64(seq.Logprobs[0]); math.Abs(lp-raw[seq.Tokens[0]]) > 1e-6 {
				t.Fatalf("%s: log-probability %v, want the raw %v", c2.name, lp, raw[seq.Tokens[0]])
			}
		}
		for i := range want {
			want[i] /= kept
			// Five standard deviations.
			if math.Abs(got[i]-want[i]) > 5*math.Sqrt(want[i]*(1-want[i])/n)+1e-9 {
				t.Errorf("%s: token %d has frequency %.4f, want %.4f", c2.name, i, got[i], want[i])
			}
		}
	}
}

func TestStopAndLength(t *testing.T) {
	t.Parallel()
	s, m := newModel(t, Config{Vocab: 5, Context: 16}, 1)
	c := publish(t, s, m, "a")
	p := tinker.SampleParams{Prompt: []int32{1, 2, 3}, MaxTokens: 100, NumSamples: 50, Temperature: 1, Seed: new(uint64(1))}
	for _, seq := range sample(t, c, p) {
		if len(seq.Tokens) != 13 || seq.StopReason != tinker.StopLength || len(seq.Logprobs) != 13 {
			t.Fatalf("%d tokens, %s; want the context filled", len(seq.Tokens), seq.StopReason)
		}
	}
	p.Stop, p.MaxTokens = []int32{4, 2}, 6
	stops := 0
	for _, seq := range sample(t, c, p) {
		last := seq.Tokens[len(seq.Tokens)-1]
		early := slices.IndexFunc(seq.Tokens, func(id int32) bool { return id == 4 || id == 2 })
		switch seq.StopReason {
		case tinker.StopToken:
			stops++
			if early != len(seq.Tokens)-1 {
				t.Errorf("stopped with %v", seq.Tokens)
			}
		case tinker.StopLength:
			if early >= 0 || len(seq.Tokens) != 6 {
				t.Errorf("ended with %v", seq.Tokens)
			}
		default:
			t.Errorf("stop reason %q after %d", seq.StopReason, last)
		}
	}
	if stops == 0 {
		t.Error("no sample stopped")
	}
}

func TestSnapshotsAreImmutable(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	s, m := newModel(t, cfg, 1)
	old := publish(t, s, m, "old")
	p := tinker.SampleParams{Prompt: []int32{1, 2}, MaxTokens: 10, Temperature: 1, Seed: new(uint64(3))}
	before := sample(t, old, p)
	path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "old"})
	if err != nil {
		t.Fatal(err)
	}
	train(t, m, cfg, 0, 2)
	if cmp.Equal(before, sample(t, publish(t, s, m, "new"), p)) {
		t.Error("training changed nothing")
	}
	fromCheckpoint, err := s.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteWeights(t.Context(), tinker.DeleteWeightsParams{Path: "tinker://agl-policy-1/sampler_weights/old"}); err != nil {
		t.Fatal(err)
	}
	if err := m.Unload(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]tinker.SamplingClient{"snapshot": old, "checkpoint": fromCheckpoint} {
		if diff := cmp.Diff(before, sample(t, c, p)); diff != "" {
			t.Errorf("%s: samples changed:\n%s", name, diff)
		}
	}
}

func TestSampleHonoursContext(t *testing.T) {
	t.Parallel()
	s, m := newModel(t, testConfig(), 1)
	c := publish(t, s, m, "a")
	for looks := range 5 {
		_, err := c.Sample(&countdown{t.Context(), looks}, tinker.SampleParams{Prompt: []int32{1}, MaxTokens: 10})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d looks: error %v, want a cancelled context", looks, err)
		}
	}
}

func TestServiceErrors(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg := testConfig()
	s, m := newModel(t, cfg, 1)
	c := publish(t, s, m, "taken")
	if _, err := m.SaveWeights(ctx, tinker.SaveWeightsParams{Name: "taken"}); err != nil {
		t.Fatal(err)
	}
	ce := tinker.Loss{Name: tinker.CrossEntropy}
	forward := func(loss tinker.Loss, data ...tinker.Datum) error {
		_, err := m.ForwardBackward(ctx, tinker.ForwardParams{Data: data, Loss: loss})
		return err
	}
	sampled := func(p tinker.SampleParams) error {
		_, err := c.Sample(ctx, p)
		return err
	}
	save := func(name string) error {
		_, err := m.SaveWeights(ctx, tinker.SaveWeightsParams{Name: name})
		return err
	}
	saveSampler := func(name string) error {
		_, err := m.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: name})
		return err
	}
	load := func(path string) error { return m.LoadWeights(ctx, tinker.LoadWeightsParams{Path: path}) }
	open := func(path string) error {
		_, err := s.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
		return err
	}
	remove := func(path string) error { return s.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: path}) }
	_, unknownModel := s.CreateModel(ctx, tinker.CreateModelParams{BaseModel: "llama"})
	_, badStep := m.OptimStep(ctx, tinker.AdamParams{LearningRate: -1})
	config := func(c Config) error {
		_, err := NewService(c)
		return err
	}
	one := []int32{1}
	long := make([]int32, cfg.Context+1)
	for _, c := range []struct {
		err  error
		code agl.Code
		want string
	}{
		{forward(ce), agl.CodeInvalid, "at least 1 datum"},
		{forward(tinker.Loss{}, tinker.Datum{Input: one, Targets: one}), agl.CodeInvalid, `"cross_entropy"`},
		{forward(ce, tinker.Datum{Input: one, Targets: one}, tinker.Datum{Input: []int32{1, 21}, Targets: []int32{1, 1}}), agl.CodeInvalid, "data[1]: input[1]: token id 21 is outside the vocabulary [0, 21)"},
		{forward(ce, tinker.Datum{Input: long, Targets: long}), agl.CodeInvalid, "data[0]: input: 21 tokens; the context has 20"},
		{sampled(tinker.SampleParams{Prompt: long[:20], MaxTokens: 1}), agl.CodeInvalid, "leave no room"},
		{sampled(tinker.SampleParams{Prompt: one}), agl.CodeInvalid, "max_tokens"},
		{save("taken"), agl.CodeConflict, "tinker://agl-policy-1/weights/taken"},
		{save("a/b"), agl.CodeInvalid, "[A-Za-z0-9_-]+"},
		{saveSampler("taken"), agl.CodeConflict, "tinker://agl-policy-1/sampler_weights/taken"},
		{saveSampler(""), agl.CodeInvalid, "[A-Za-z0-9_-]+"},
		{load("tinker://agl-policy-1/weights/none"), agl.CodeNotFound, "none"},
		{load("tinker://agl-policy-1/sampler_weights/taken"), agl.CodeInvalid, "sampler snapshot"},
		{load("file:///etc/passwd"), agl.CodeInvalid, "tinker://"},
		{open("tinker://agl-policy-1/sampler_weights/none"), agl.CodeNotFound, "none"},
		{open("tinker://agl-policy-1/weights/none"), agl.CodeNotFound, "none"},
		{remove("tinker://agl-policy-1/weights/none"), agl.CodeNotFound, "none"},
		{remove("tinker://agl-policy-1/sampler_weights/none"), agl.CodeNotFound, "none"},
		{unknownModel, agl.CodeNotFound, `"agl-policy"`},
		{badStep, agl.CodeInvalid, "learning_rate"},
		{config(Config{}), agl.CodeInvalid, "Vocab is 0"},
		{config(Config{Vocab: 9, Dim: 48}), agl.CodeInvalid, "multiple of 16·Heads = 64"},
		{config(Config{Vocab: 9, FF: 40}), agl.CodeInvalid, "FF is 40"},
		{config(Config{Vocab: 9, Workers: -1}), agl.CodeInvalid, "Workers is -1"},
		{config(Config{Vocab: 9, Name: "a/b"}), agl.CodeInvalid, "[A-Za-z0-9_-]+"},
	} {
		if agl.ErrorCode(c.err) != c.code || c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v (%s), want %s with %q", c.err, agl.ErrorCode(c.err), c.code, c.want)
		}
	}
	if err := m.Unload(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Info(ctx); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("after Unload: %v, want not found", err)
	}
}

func TestCallsTakeTurns(t *testing.T) {
	t.Parallel()
	s, err := NewService(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.CreateModel(t.Context(), tinker.CreateModelParams{})
	if err != nil {
		t.Fatal(err)
	}
	m, ok := c.(*trainingClient)
	if !ok {
		t.Fatalf("CreateModel gives a %T", c)
	}
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- m.run(context.WithoutCancel(t.Context()), func(*trainer) error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := m.Info(ctx)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("a waiting call ended with %v, want a cancelled context", err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := m.Info(t.Context()); err != nil {
		t.Error(err)
	}
}

// saveCheckpoint saves weights and fails the test on an error.
func saveCheckpoint(t *testing.T, m tinker.TrainingClient, name string) string {
	t.Helper()
	path, err := m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A model that saves nothing has no directory. Temporary files of a killed process are removed; those of a running
// process are not.
func TestDirectoryHoldsCheckpointsOnly(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Dir = filepath.Join(t.TempDir(), "models[1")
	list := func() (files []string) {
		t.Helper()
		err := fs.WalkDir(os.DirFS(cfg.Dir), ".", func(path string, d fs.DirEntry, err error) error {
			if !d.IsDir() || strings.HasPrefix(d.Name(), "agl-policy") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	_, m := newModel(t, cfg, 1)
	newModel(t, cfg, 2)
	if got := list(); got != nil {
		t.Errorf("models that saved nothing left %q", got)
	}
	saveCheckpoint(t, m, "a")
	stale := filepath.Join(cfg.Dir, "agl-policy-1", "weights", "b.tmp-123")
	young := filepath.Join(cfg.Dir, "agl-policy-1", "weights", "c.tmp-456")
	for _, file := range []string{stale, young} {
		if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if old := time.Now().Add(-2 * staleAfter); os.Chtimes(stale, old, old) != nil {
		t.Fatal("cannot age a file")
	}
	_, m = newModel(t, cfg, 1)
	saveCheckpoint(t, m, "a")
	want := []string{
		"agl-policy-1", "agl-policy-1/weights/a.ckpt", "agl-policy-1/weights/c.tmp-456",
		"agl-policy-2", "agl-policy-2/weights/a.ckpt",
	}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

// Weights saved with Overwrite replace the old ones, and open sampling clients keep theirs.
func TestOverwrite(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"memory", "files"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			cfg := testConfig()
			if where == "files" {
				cfg.Dir, cfg.SaveSnapshots = t.TempDir(), true
			}
			s, m := newModel(t, cfg, 1)
			p := tinker.SampleParams{Prompt: []int32{1, 2}, MaxTokens: 10, Temperature: 1, Seed: new(uint64(3)), PromptLogprobs: true}
			for kind, save := range map[string]func(context.Context, tinker.SaveWeightsParams) (string, error){
				"checkpoint": m.SaveWeights, "snapshot": m.SaveWeightsForSampler,
			} {
				path, err := save(t.Context(), tinker.SaveWeightsParams{Name: "a", Overwrite: true})
				if err != nil {
					t.Fatal(err)
				}
				old := reopen(t, s, path)
				want := sample(t, old, p)
				train(t, m, cfg, 0, 3)
				if _, err := save(t.Context(), tinker.SaveWeightsParams{Name: "a"}); !errors.Is(err, agl.ErrConflict) {
					t.Errorf("%s: taken and not overwritten: %v", kind, err)
				}
				if again, err := save(t.Context(), tinker.SaveWeightsParams{Name: "a", Overwrite: true}); err != nil || again != path {
					t.Errorf("%s: %s, %v", kind, again, err)
				}
				if diff := cmp.Diff(want, sample(t, old, p)); diff != "" {
					t.Errorf("%s: a client of before (-want +got):\n%s", kind, diff)
				}
				want = sample(t, publish(t, s, m, kind), p)
				if diff := cmp.Diff(want, sample(t, reopen(t, s, path), p)); diff != "" {
					t.Errorf("%s: a client of now (-want +got):\n%s", kind, diff)
				}
			}
		})
	}
}

// Two processes that reserve the same id before either saves keep their checkpoints apart.
func TestProcessesShareDirectory(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Dir = t.TempDir()
	_, first := newModel(t, cfg, 1)
	_, second := newModel(t, cfg, 2)
	paths := []string{saveCheckpoint(t, first, "a"), saveCheckpoint(t, second, "a"), saveCheckpoint(t, second, "b"), saveCheckpoint(t, first, "b")}
	want := []string{
		"tinker://agl-policy-1/weights/a", "tinker://agl-policy-2/weights/a",
		"tinker://agl-policy-2/weights/b", "tinker://agl-policy-1/weights/b",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Fatalf("paths (-want +got):\n%s", diff)
	}
	for _, path := range paths {
		if err := first.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
			t.Errorf("load %s: %v", path, err)
		}
	}
}

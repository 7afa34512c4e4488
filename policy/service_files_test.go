package policy

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Every model starts from the base model, for any seed, and does not change it.
func TestBase(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	file := filepath.Join(t.TempDir(), "base.ckpt")
	n, err := Create(cfg, 9, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(cfg, 9, file); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	p := tinker.SampleParams{Prompt: []int32{1, 2}, MaxTokens: 10, Temperature: 1, Seed: new(uint64(3)), PromptLogprobs: true}
	service, seeded := newModel(t, cfg, 9)
	want := sample(t, publish(t, service, seeded, "seeded"), p)
	info, err := seeded.Info(t.Context())
	if err != nil || info.Parameters != n {
		t.Errorf("%+v, %v: %d parameters", info, err, n)
	}

	cfg.Base = file
	service, m := newModel(t, cfg, 1)
	if diff := cmp.Diff(want, sample(t, publish(t, service, m, "a"), p)); diff != "" {
		t.Errorf("a model (-want +got):\n%s", diff)
	}
	train(t, m, cfg, 0, 2)
	base, err := service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{BaseModel: "agl-policy"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, sample(t, base, p)); diff != "" {
		t.Errorf("the base model (-want +got):\n%s", diff)
	}
	if _, err := service.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{BaseModel: "llama"}); !errors.Is(err, agl.ErrNotFound) {
		t.Error(err)
	}
	other := cfg
	other.FF = 64
	if _, err := NewService(other); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "ff=64") {
		t.Errorf("another shape: %v", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := NewService(cfg); !errors.Is(err, tinker.ErrDamaged) {
		t.Errorf("a damaged base: %v", err)
	}
	cfg.Base += "x"
	if _, err := NewService(cfg); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("no base: %v", err)
	}
	for _, bad := range []Config{{Vocab: 8, Instance: "a/b"}, {Vocab: 8, SaveSnapshots: true}} {
		if _, err := NewService(bad); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// Snapshots in files outlive the process, do not change while the model trains, and are never mistaken for those of
// another process.
func TestSnapshotsInFiles(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Dir, cfg.SaveSnapshots, cfg.Instance = t.TempDir(), true, "one"
	p := tinker.SampleParams{Prompt: []int32{1, 2}, MaxTokens: 10, Temperature: 1, Seed: new(uint64(3))}
	s, m := newModel(t, cfg, 1)
	var paths []string
	var want [][]tinker.Sequence
	for i := range keepOpened + 2 {
		path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: string(rune('a' + i))})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
		want = append(want, sample(t, reopen(t, s, path), p))
		train(t, m, cfg, i, i+1)
	}
	if paths[0] != "tinker://agl-policy-one-1/sampler_weights/a" || cmp.Equal(want[0], want[len(want)-1]) {
		t.Errorf("%s: %v", paths[0], want[0])
	}
	if _, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: "a"}); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("a name twice: %v", err)
	}
	held := reopen(t, s, paths[1])
	cfg.Instance = "two"
	later, other := newModel(t, cfg, 2)
	for _, service := range []*Service{s, later} {
		for i, path := range paths {
			if diff := cmp.Diff(want[i], sample(t, reopen(t, service, path), p)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		}
	}
	if path := publishPath(t, other, "a"); path != "tinker://agl-policy-two-1/sampler_weights/a" {
		t.Error(path)
	}
	if err := other.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: paths[0]}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("a snapshot was loaded for training: %v", err)
	}
	if err := s.DeleteWeights(t.Context(), tinker.DeleteWeightsParams{Path: paths[1]}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: paths[1]}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("a snapshot that was deleted: %v", err)
	}
	if diff := cmp.Diff(want[1], sample(t, held, p)); diff != "" {
		t.Errorf("a client of deleted weights (-want +got):\n%s", diff)
	}
}

// A transient snapshot is never a file.
func TestTransientSnapshots(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.Dir, cfg.SaveSnapshots = t.TempDir(), true
	p := tinker.SampleParams{Prompt: []int32{1, 2}, MaxTokens: 10, Temperature: 1, Seed: new(uint64(3))}
	s, m := newModel(t, cfg, 1)
	want := sample(t, publish(t, s, m, "named"), p)
	path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: "session", Transient: true})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(cfg.Dir, "*", "*", "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "named.ckpt" {
		t.Errorf("%q, %v: want the named one alone", files, err)
	}
	if diff := cmp.Diff(want, sample(t, reopen(t, s, path), p)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: "session", Transient: true}); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("a name twice: %v", err)
	}
	for _, want := range []error{nil, agl.ErrNotFound} {
		if err := s.DeleteWeights(t.Context(), tinker.DeleteWeightsParams{Path: path}); !errors.Is(err, want) {
			t.Errorf("delete: %v, want %v", err, want)
		}
	}
	if _, err := s.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

func reopen(t *testing.T, s *Service, path string) tinker.SamplingClient {
	t.Helper()
	c, err := s.NewSamplingClient(t.Context(), tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func publishPath(t *testing.T, m tinker.TrainingClient, name string) string {
	t.Helper()
	path, err := m.SaveWeightsForSampler(t.Context(), tinker.SaveWeightsParams{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/policydir"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
)

// A model that was trained by one server goes on in the next one, from the same directory.
func TestPolicyServe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	batch := tinker.ForwardParams{
		Loss: tinker.Loss{Name: tinker.CrossEntropy},
		Data: []tinker.Datum{{Input: []int32{1, 2, 3}, Targets: []int32{2, 3, 4}}},
	}
	path := ""
	var before tinker.ForwardResult
	for _, first := range []bool{true, false} {
		url, stop, err := startServer("policy", "serve", "--port=0", "--dir="+dir, "--api-key=k", "--vocab=8", "--layers=1", "--dim=16", "--heads=1", "--ff=16")
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{URL: url, APIKey: "k"})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.CreateModel(t.Context(), tinker.CreateModelParams{Seed: 3})
		if err != nil {
			t.Fatal(err)
		}
		if first {
			if _, err := m.ForwardBackward(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			if _, err := m.OptimStep(t.Context(), tinker.AdamParams{LearningRate: 0.01}); err != nil {
				t.Fatal(err)
			}
			if path, err = m.SaveWeights(t.Context(), tinker.SaveWeightsParams{Name: "a"}); err != nil {
				t.Fatal(err)
			}
		} else if err := m.LoadWeights(t.Context(), tinker.LoadWeightsParams{Path: path, WithOptimizer: true}); err != nil {
			t.Fatal(err)
		}
		after, err := m.Forward(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); !first && diff != "" {
			t.Error(diff)
		}
		before = after
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		stop()
	}
}

// A create that was cut short can be made again, wherever it was cut; one that ended is not touched.
func TestPolicyCreateAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "lm")
	create := func(seed string) error {
		m := &Main{Stdout: io.Discard, Stderr: io.Discard}
		if err := m.ParseFlags([]string{"policy", "create", dir, "--bytes", "--layers=1", "--dim=16", "--heads=1", "--ff=16", "--seed=" + seed}); err != nil {
			t.Fatal(err)
		}
		return m.Run(t.Context())
	}
	read := func() (base, model string) {
		t.Helper()
		b, err := os.ReadFile(policydir.WeightsFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		j, err := os.ReadFile(policydir.ModelFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		return string(b), string(j)
	}
	if err := create("5"); err != nil {
		t.Fatal(err)
	}
	base, model := read()
	if err := create("6"); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	if b, j := read(); b != base || j != model {
		t.Error("a model that was there is another")
	}
	for name, cut := range map[string]func() error{
		"before model.json": func() error { return os.Remove(policydir.ModelFile(dir)) },
		"within it": func() error {
			return errors.Join(os.Rename(policydir.ModelFile(dir), policydir.ModelFile(dir)+".tmp"), os.Truncate(policydir.ModelFile(dir)+".tmp", 5))
		},
		"within the weights": func() error {
			return errors.Join(os.Remove(policydir.ModelFile(dir)), os.Rename(policydir.WeightsFile(dir), filepath.Join(dir, "base.tmp-1")))
		},
	} {
		if err := cut(); err != nil {
			t.Fatal(err)
		}
		if err := create("5"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if b, j := read(); b != base || j != model {
			t.Errorf("%s: another model", name)
		}
	}
}

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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

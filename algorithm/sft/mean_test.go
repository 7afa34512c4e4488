package sft_test

import (
	"errors"
	"math"
	"testing"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// uneven are demonstrations of different lengths and weights, which a mean over each weighs otherwise than a sum.
func uneven() []tinker.Datum {
	data := counting()
	for i := range data {
		n := 2 + i%5
		data[i].Input, data[i].Targets = data[i].Input[:n], data[i].Targets[:n]
		data[i].Weights = make([]float32, n)
		for j := range n {
			data[i].Weights[j] = float32((i+j)%3) + 0.5
		}
	}
	return data
}

// trainOn trains on an engine over HTTP and returns the weights' log-probabilities and the losses on the way.
func trainOn(t *testing.T, engine tinkertest.EngineConfig, cc client.Config) (logprobs [][]float32, losses []float64) {
	t.Helper()
	inner := newService(t, "")
	engine.Service = inner
	limited, err := tinkertest.NewEngine(engine)
	if err != nil {
		t.Fatal(err)
	}
	fake, err := tinkertest.New(tinkertest.Config{
		NewService: func() (tinker.Service, error) { return limited, nil }, Server: server.Config{HideEngine: true, Order: engines.Ignored},
	})
	if err != nil {
		t.Fatal(err)
	}
	cc.URL, cc.Transport = "http://tinker.invalid", chat.Transport{Handler: fake}
	remote, err := client.New(cc)
	if err != nil {
		t.Fatal(err)
	}
	source, err := sft.NewShuffled(uneven(), 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	result, err := sft.Train(t.Context(), sft.TrainConfig{
		Service: remote, Model: tinker.CreateModelParams{Seed: 3}, Source: source, Steps: 40,
		Schedule: algorithm.Schedule{Peak: 1e-2, Warmup: 5},
		OnStep:   func(r sft.StepReport) { losses = append(losses, r.Loss) },
	})
	if err := errors.Join(err, remote.Close(), fake.Close()); err != nil {
		t.Fatal(err)
	}
	return probe(t, inner, result.Weights), losses
}

// On an engine that takes means as SkyRL does, the same data and learning rate give the same weights, to rounding, and
// the same losses as on one that sums.
func TestTrainOnMeanEngine(t *testing.T) {
	t.Parallel()
	want, losses := trainOn(t, tinkertest.EngineConfig{}, client.Config{Engine: &engines.Engine{Normalization: engines.Sum}})
	got, same := trainOn(t, tinkertest.EngineConfig{DatumMean: true}, client.Config{Engine: &engines.Engine{Normalization: engines.DatumMean}})
	if d := farthest(want, got); d > 1e-4 || d == 0 {
		t.Errorf("log-probabilities differ by %v, want rounding", d)
	}
	for i := range losses {
		if math.Abs(losses[i]-same[i]) > 1e-4 {
			t.Fatalf("loss of step %d: %v, want %v", i+1, same[i], losses[i])
		}
	}
	other, _ := trainOn(t, tinkertest.EngineConfig{DatumMean: true}, client.Config{Engine: &engines.Engine{Normalization: engines.Sum}})
	if d := farthest(want, other); d < 1e-2 {
		t.Errorf("without a correction log-probabilities differ by %v only", d)
	}
}

func farthest(a, b [][]float32) float64 {
	most := 0.0
	for k := range a {
		for i := range a[k] {
			most = max(most, math.Abs(float64(a[k][i]-b[k][i])))
		}
	}
	return most
}

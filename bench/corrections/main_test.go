package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/tinker"
)

func TestFigures(t *testing.T) {
	t.Parallel()
	const folder = "../../docs/images"
	for name, chart := range charts() {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(chart.SVG()), string(got)); diff != "" {
			t.Errorf("%s (-want +got): go run ./bench/corrections writes it\n%s", name, diff)
		}
	}
}

// TestGradient compares the exact gradient with finite differences of the pass rate.
func TestGradient(t *testing.T) {
	t.Parallel()
	const h = 1e-5
	b := bandit{pulls: 5}
	passRate := func(theta vector) (sum float64) {
		b.each(logSoftmax(theta), func(counts [arms]int, probability float64) { sum += probability * b.reward(counts) })
		return sum
	}
	for a, got := range b.gradient(policy()) {
		above, below := policy(), policy()
		above[a] += h
		below[a] -= h
		if want := (passRate(above) - passRate(below)) / (2 * h); math.Abs(got-want) > 1e-8 {
			t.Errorf("arm %d: %v, want %v", a, got, want)
		}
	}
}

// TestUnbiased: an estimator that rejects and truncates nothing has no bias where theory says so.
func TestUnbiased(t *testing.T) {
	t.Parallel()
	b := bandit{pulls: 4}
	plain := tinker.Loss{Name: tinker.ImportanceSampling}
	wide := func(kind grpo.CorrectionKind) grpo.Correction { return grpo.Correction{Kind: kind, High: 1e6} }
	for _, tc := range []struct {
		name       string
		correction grpo.Correction
		sampler    vector
	}{
		{"on-policy", grpo.Correction{}, policy()},
		{"whole sequences", wide(grpo.SequenceTIS), b.older(8)},
		{"whole sequences, disagreement", wide(grpo.SequenceMIS), b.disagreeing(2)},
	} {
		if q := b.quality(estimator{loss: plain, correction: tc.correction}, tc.sampler); q.bias > 1e-5 || q.deviation < 0.05 {
			t.Errorf("%s: bias %v, deviation %v", tc.name, q.bias, q.deviation)
		}
	}
	if q := b.quality(estimator{loss: plain}, b.older(8)); q.bias < 0.1 {
		t.Errorf("single tokens: bias %v, which is none", q.bias)
	}
}

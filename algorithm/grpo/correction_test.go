package grpo

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// goldenCorrection is one sequence with the factors of testdata/corrections.py.
type goldenCorrection struct {
	Sampler    []float32                    `json:"sampler"`
	Proximal   []float32                    `json:"proximal"`
	Advantages []float32                    `json:"advantages"`
	Factors    map[CorrectionKind][]float64 `json:"factors"`
	KL         float64                      `json:"kl"`
	Entropy    float64                      `json:"entropy"`
	Clipped    float64                      `json:"clipped"`
	Median     float64                      `json:"median"`
}

// sampled is the datum of a golden sequence, after a prompt of one token.
func (g goldenCorrection) sampled() (d tinker.Datum, proximal []float32) {
	n := len(g.Sampler)
	for i := range n + 1 {
		d.Input, d.Targets = append(d.Input, int32(i)), append(d.Targets, int32(i+1))
	}
	d.Weights, d.Logprobs, d.Advantages = make([]float32, 1, n+1), make([]float32, 1, n+1), make([]float32, 1, n+1)
	for range n {
		d.Weights = append(d.Weights, 0.25)
	}
	d.Logprobs, d.Advantages = append(d.Logprobs, g.Sampler...), append(d.Advantages, g.Advantages...)
	return d, append([]float32{-9}, g.Proximal...)
}

func goldenCorrections(t *testing.T) (list []goldenCorrection) {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("testdata", "corrections.json"))
	if err == nil {
		err = json.Unmarshal(doc, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The slope of the loss at the weights where a step begins is −weight·A·w·ratio, with the w of the golden table: the ratio of those that
// weigh is 1, that of those that reject is ρ.
func TestCorrections(t *testing.T) {
	t.Parallel()
	for _, kind := range CorrectionKinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			total := 0
			for at, g := range goldenCorrections(t) {
				d, proximal := g.sampled()
				before := append([]float32(nil), d.Advantages...)
				c := Correction{Kind: kind}
				kept, rejected := c.Apply([]tinker.Datum{d}, [][]float32{proximal})
				if diff := cmp.Diff(before, d.Advantages); diff != "" {
					t.Errorf("the caller's advantages changed: %s", diff)
				}
				want := 0
				for i, w := range g.Factors[kind] {
					if w == 0 {
						want++
						continue
					}
					if !c.rule().weighs {
						w *= math.Exp(float64(g.Proximal[i]) - float64(g.Sampler[i]))
					}
					loss := tinker.Loss{Name: tinker.ImportanceSampling}.WithDefaults()
					_, slope := loss.At(&kept[0], i+1, g.Proximal[i], func(x float32) float32 { return float32(math.Exp(float64(x))) })
					if exact := -0.25 * float64(g.Advantages[i]) * w; math.Abs(float64(slope)-exact) > 1e-5*(1+math.Abs(exact)) {
						t.Errorf("sequence %d, token %d: slope %v, want %v", at, i, slope, exact)
					}
				}
				total += want
				if rejected != want || (len(kept) == 0) != (want == len(g.Sampler)) {
					t.Errorf("sequence %d: %d tokens are rejected and %d data kept, want %d of %d", at, rejected, len(kept), want, len(g.Sampler))
				}
				if len(kept) > 0 {
					if err := kept[0].Validate(tinker.ImportanceSampling, 0); err != nil {
						t.Error(err)
					}
				}
			}
			if rejects := kind != TokenTIS && kind != SequenceTIS; rejects != (total > 0) {
				t.Errorf("%d tokens of the table are rejected", total)
			}
		})
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	for at, g := range goldenCorrections(t) {
		d, proximal := g.sampled()
		got := driftOf([]tinker.Datum{d}, [][]float32{proximal}, tinker.Loss{Name: tinker.PPO})
		for name, pair := range map[string][2]float64{"KL": {got.KL, g.KL}, "entropy": {got.Entropy, g.Entropy}, "clipped": {got.Clipped, g.Clipped}, "median": {got.Ratio[2], g.Median}} {
			if math.Abs(pair[0]-pair[1]) > 1e-9*(1+math.Abs(pair[1])) {
				t.Errorf("sequence %d: %s is %v, want %v", at, name, pair[0], pair[1])
			}
		}
	}
	far := tinker.Datum{Weights: []float32{1}, Logprobs: []float32{-9999}}
	if got := driftOf([]tinker.Datum{far}, [][]float32{{-1}}, tinker.Loss{}); !(got.KL > 1e30) || math.IsInf(got.KL, 0) || math.IsInf(got.Ratio[4], 0) {
		t.Errorf("far apart: %+v, want large finite numbers", got)
	}
	if got := driftOf(nil, nil, tinker.Loss{}); got != (Drift{}) {
		t.Errorf("no data: %+v", got)
	}
}

func TestCorrectionRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []Correction{
		{High: 2}, {Kind: "tis"}, {Kind: TokenTIS, High: -1}, {Kind: TokenTIS, Low: 0.5}, {Kind: IcePop, Low: 2}, {Kind: Geometric, High: 0.5}, {Kind: DPPO, High: math.Inf(1)},
	} {
		if err := c.validate(); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: error %v, want ErrInvalid", c, err)
		}
	}
	for _, kind := range append(CorrectionKinds(), "") {
		if err := (Correction{Kind: kind}).validate(); err != nil {
			t.Error(err)
		}
	}
}

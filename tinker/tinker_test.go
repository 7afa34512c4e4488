package tinker

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

func nan() float32 { return float32(math.NaN()) }

func TestDatumValidate(t *testing.T) {
	t.Parallel()
	two := []int32{1, 2}
	zeros := []float32{0, 0}
	for _, c := range []struct {
		name  string
		datum Datum
		loss  LossName
		vocab int
		want  string // empty: valid
	}{
		{"supervised", Datum{Input: two, Targets: two}, CrossEntropy, 3, ""},
		{"weighted", Datum{Input: two, Targets: two, Weights: zeros}, CrossEntropy, 0, ""},
		{"reinforced", Datum{Input: two, Targets: two, Logprobs: zeros, Advantages: zeros}, PPO, 3, ""},
		{"foreign fields are ignored by length only", Datum{Input: two, Targets: two, Logprobs: zeros[:1]}, CrossEntropy, 3, "logprobs: 1 values for 2 input tokens"},
		{"empty", Datum{}, CrossEntropy, 3, "input: no tokens"},
		{"short targets", Datum{Input: two, Targets: two[:1]}, CrossEntropy, 3, "targets: 1 values for 2 input tokens"},
		{"big token", Datum{Input: []int32{0, 3}, Targets: two}, CrossEntropy, 3, "input[1]: token id 3 is outside the vocabulary [0, 3)"},
		{"negative token", Datum{Input: two, Targets: []int32{-1, 0}}, CrossEntropy, 0, "targets[0]: token id -1 is negative"},
		{"short weights", Datum{Input: two, Targets: two, Weights: zeros[:1]}, CrossEntropy, 3, "weights: 1 values for 2"},
		{"weights not finite", Datum{Input: two, Targets: two, Weights: []float32{0, nan()}}, CrossEntropy, 3, "weights[1]: NaN is not finite"},
		{"no logprobs", Datum{Input: two, Targets: two, Advantages: zeros}, ImportanceSampling, 3, "logprobs: 0 values for 2 input tokens; loss importance_sampling"},
		{"no advantages", Datum{Input: two, Targets: two, Logprobs: zeros}, PPO, 3, "advantages: 0 values"},
		{"advantage not finite", Datum{Input: two, Targets: two, Logprobs: zeros, Advantages: []float32{float32(math.Inf(1)), 0}}, PPO, 3, "advantages[0]: +Inf is not finite"},
		{"positive logprob", Datum{Input: two, Targets: two, Logprobs: []float32{0, 0.5}, Advantages: zeros}, PPO, 3, "logprobs[1]: 0.5 is above 0"},
		{"masked positive logprob", Datum{Input: two, Targets: two, Logprobs: []float32{0, 0.5}, Advantages: zeros, Weights: zeros}, PPO, 3, ""},
	} {
		err := c.datum.Validate(c.loss, c.vocab)
		check(t, c.name, err, c.want)
	}
}

// check wants an invalid-argument error that contains want, or none if want is empty.
func check(t *testing.T, name string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (!errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: error %v, want invalid with %q", name, err, want)
	}
}

func TestLossValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		loss Loss
		want string
	}{
		{Loss{Name: CrossEntropy}, ""},
		{Loss{Name: PPO, ClipLow: 0.5, ClipHigh: 1}, ""},
		{Loss{}, `"" is unknown; allowed are ["cross_entropy"`},
		{Loss{Name: CISPO}, ""},
		{Loss{Name: DRO, Beta: -1}, "beta -1 is not"},
		{Loss{Name: PPO, ClipLow: 1.1}, "clip_low_threshold 1.1"},
		{Loss{Name: PPO, ClipLow: nan()}, "clip_low_threshold NaN"},
		{Loss{Name: PPO, ClipHigh: 0.9}, "clip_high_threshold 0.9"},
		{Loss{Name: PPO, ClipHigh: float32(math.Inf(1))}, "clip_high_threshold +Inf"},
	} {
		check(t, string(c.loss.Name), c.loss.Validate(), c.want)
	}
	if got := (Loss{Name: PPO}).WithDefaults(); got != (Loss{Name: PPO, ClipLow: 0.8, ClipHigh: 1.2, Beta: 0.05}) {
		t.Errorf("defaults are %+v", got)
	}
}

func TestAdamValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		p    AdamParams
		want string
	}{
		{AdamParams{}, ""},
		{AdamParams{LearningRate: 1e-3, GradClipNorm: 1, WeightDecay: 0.1}, ""},
		{AdamParams{LearningRate: -1}, "learning_rate: -1"},
		{AdamParams{LearningRate: math.NaN()}, "learning_rate: NaN"},
		{AdamParams{Beta1: 1}, "beta1: 1 is not below 1"},
		{AdamParams{Beta2: -0.5}, "beta2: -0.5"},
		{AdamParams{Eps: math.Inf(1)}, "eps: +Inf"},
		{AdamParams{GradClipNorm: -1}, "grad_clip_norm: -1"},
	} {
		check(t, c.want, c.p.Validate(), c.want)
	}
	if got := (AdamParams{}).WithDefaults(); got != (AdamParams{Beta1: 0.9, Beta2: 0.95, Eps: 1e-12}) {
		t.Errorf("defaults are %+v", got)
	}
}

func TestSampleValidate(t *testing.T) {
	t.Parallel()
	spec := ModelSpec{Vocab: 5, Context: 3}
	one := []int32{1}
	for _, c := range []struct {
		p    SampleParams
		want string
	}{
		{SampleParams{Prompt: one, MaxTokens: 1}, ""},
		{SampleParams{Prompt: one, MaxTokens: 100, TopP: 1, TopK: -1, Stop: []int32{4}}, ""},
		{SampleParams{MaxTokens: 1}, "prompt: no tokens"},
		{SampleParams{Prompt: one}, "max_tokens: 0"},
		{SampleParams{Prompt: one, MaxTokens: 1, NumSamples: -1}, "num_samples: -1"},
		{SampleParams{Prompt: one, MaxTokens: 1, Temperature: -1}, "temperature: -1"},
		{SampleParams{Prompt: one, MaxTokens: 1, TopP: 1.5}, "top_p: 1.5"},
		{SampleParams{Prompt: one, MaxTokens: 1, TopP: math.NaN()}, "top_p: NaN"},
		{SampleParams{Prompt: []int32{1, 1, 1}, MaxTokens: 1}, "prompt: 3 tokens leave no room"},
		{SampleParams{Prompt: []int32{5}, MaxTokens: 1}, "prompt[0]: token id 5"},
		{SampleParams{Prompt: one, MaxTokens: 1, Stop: []int32{5}}, "stop[0]: token id 5"},
	} {
		check(t, c.want, c.p.Validate(spec), c.want)
	}
}

func TestPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		path Path
		want string // of the error
	}{
		{"tinker://m-1/weights/a_b", Path{"m-1", KindCheckpoint, "a_b"}, ""},
		{"tinker://m/sampler_weights/7", Path{"m", KindSampler, "7"}, ""},
		{"tinker://m/7", Path{"m", KindSampler, "7"}, ""},
		{"http://m/weights/a", Path{}, "does not begin with tinker://"},
		{"tinker://m", Path{}, "is not tinker://<model>/<kind>/<name>"},
		{"tinker://m/weights/a/b", Path{}, "is not tinker://<model>/<kind>/<name>"},
		{"tinker://m/optimizer/a", Path{}, `kind "optimizer"`},
		{"tinker://../weights/a", Path{}, "[A-Za-z0-9_-]+"},
		{"tinker://m/weights/", Path{}, "[A-Za-z0-9_-]+"},
	} {
		p, err := ParsePath(c.text)
		check(t, c.text, err, c.want)
		if p != c.path {
			t.Errorf("%s: %+v, want %+v", c.text, p, c.path)
		}
	}
}

func TestValidateName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{"step-1_a": true, "": false, "a/b": false, "é": false, strings.Repeat("x", maxName): true, strings.Repeat("x", maxName+1): false} {
		if err := ValidateName(name); (err == nil) != valid || err != nil && !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%q: %v, want it to be valid: %t", name, err, valid)
		}
	}
}

func FuzzParsePath(f *testing.F) {
	f.Add("tinker://m/weights/a")
	f.Add("tinker://m/a")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePath(s)
		if err != nil {
			return
		}
		if again, err := ParsePath(p.String()); err != nil || again != p {
			t.Errorf("%q is %+v, whose text is %+v, %v", s, p, again, err)
		}
	})
}

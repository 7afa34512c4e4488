package algorithm_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// TestWilson compares with the roots of the quadratic that the interval solves,
// (p̂ − p)² = z²·p(1 − p)/n, found by bisection.
func TestWilson(t *testing.T) {
	t.Parallel()
	const z = 1.959963984540054
	bisect := func(lo, hi float64, inside func(float64) bool) float64 {
		for range 200 {
			if mid := (lo + hi) / 2; inside(mid) {
				hi = mid
			} else {
				lo = mid
			}
		}
		return (lo + hi) / 2
	}
	for _, tc := range []struct{ passed, n int }{{0, 1}, {1, 1}, {0, 256}, {256, 256}, {77, 256}, {243, 256}, {1, 3}} {
		phat := float64(tc.passed) / float64(tc.n)
		inside := func(p float64) bool { return (phat-p)*(phat-p) <= z*z*p*(1-p)/float64(tc.n) }
		wantLo := bisect(0, phat, inside)
		wantHi := 1 - bisect(0, 1-phat, func(q float64) bool { return inside(1 - q) })
		lo, hi := algorithm.Wilson(tc.passed, tc.n)
		if math.Abs(lo-wantLo) > 1e-9 || math.Abs(hi-wantHi) > 1e-9 {
			t.Errorf("Wilson(%d, %d) = [%v, %v], want [%v, %v]", tc.passed, tc.n, lo, hi, wantLo, wantHi)
		}
	}
	if lo, hi := algorithm.Wilson(0, 0); lo != 0 || hi != 1 {
		t.Errorf("Wilson(0, 0) = [%v, %v], want [0, 1]", lo, hi)
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	var tally algorithm.Tally
	if tally.Forms() != nil || tally.Total().N != 0 {
		t.Error("an empty tally is not empty")
	}
	tally.Add("a", true)
	tally.Add("a", false)
	tally.Add("b", true)
	tally.Add("", true)
	if got := tally.Total(); got.Passed != 3 || got.N != 4 || got.PassRate != 0.75 {
		t.Errorf("total %+v, want 3 of 4", got)
	}
	if diff := cmp.Diff(map[string]algorithm.Rate{"a": algorithm.NewRate(1, 2), "b": algorithm.NewRate(1, 1)}, tally.Forms()); diff != "" {
		t.Errorf("forms (-want +got):\n%s", diff)
	}
}

func TestRateJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(algorithm.Rate{Passed: 1, N: 2, PassRate: 0.5, CI95: [2]float64{0.25, 0.75}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"passed":1,"n":2,"pass_rate":0.5,"ci95":[0.25,0.75]}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestShuffle(t *testing.T) {
	t.Parallel()
	const n = 10
	s, again := algorithm.NewShuffle(n, 7), algorithm.NewShuffle(n, 7)
	var epochs [3][]int
	for k := range 3 * n {
		epochs[k/n] = append(epochs[k/n], s.At(k))
	}
	for e, epoch := range epochs {
		sorted := slices.Sorted(slices.Values(epoch))
		if !slices.Equal(sorted, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("epoch %d is no permutation: %v", e, epoch)
		}
	}
	if slices.Equal(epochs[0], epochs[1]) {
		t.Error("two epochs have the same order")
	}
	for _, k := range []int{29, 3, 15, 0} { // any position, in any order
		if got, want := again.At(k), epochs[k/n][k%n]; got != want {
			t.Errorf("position %d: %d, want %d", k, got, want)
		}
	}
	if other := algorithm.NewShuffle(n, 8); other.At(0) == epochs[0][0] && other.At(1) == epochs[0][1] && other.At(2) == epochs[0][2] {
		t.Error("another seed begins in the same order")
	}
}

func TestDeriveSeed(t *testing.T) {
	t.Parallel()
	seen := map[uint64]string{}
	note := func(what string, v uint64) {
		if v >= 1<<53 {
			t.Errorf("%s: %d does not fit in a float64", what, v)
		}
		if other, taken := seen[v]; taken {
			t.Errorf("%s and %s have the seed %d", what, other, v)
		}
		seen[v] = what
	}
	note("base", algorithm.DeriveSeed(1, "train", 1, 2))
	note("seed", algorithm.DeriveSeed(2, "train", 1, 2))
	note("purpose", algorithm.DeriveSeed(1, "val", 1, 2))
	note("swapped", algorithm.DeriveSeed(1, "train", 2, 1))
	note("shorter", algorithm.DeriveSeed(1, "train", 1))
	for i := range 1000 {
		note("sample", algorithm.DeriveSeed(1, "train", 3, i))
	}
}

func TestWithSampling(t *testing.T) {
	t.Parallel()
	before := agl.Resources{
		{Name: "p", Resource: agl.PromptTemplate{Template: "x", Engine: agl.PromptFString}},
		{Name: "m", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: "e", Model: "m", SamplingParameters: jsontext.Value(`{"temperature":1.0,"seed":3}`)}}},
		{Name: "n", Resource: agl.LLM{Endpoint: "e", Model: "n"}},
	}
	after, err := algorithm.WithSampling(before, jsontext.Value(`{"top_p":0.9,"temperature":0}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"p":{"resource_type":"prompt_template","template":"x","engine":"f-string"},` +
		`"m":{"resource_type":"proxy_llm","endpoint":"e","model":"m","api_key":null,"sampling_parameters":{"temperature":0,"seed":3,"top_p":0.9}},` +
		`"n":{"resource_type":"llm","endpoint":"e","model":"n","api_key":null,"sampling_parameters":{"temperature":0,"top_p":0.9}}}`
	if got := string(after.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(before[1].Resource.AppendJSON(nil)); !strings.Contains(got, `{"temperature":1.0,"seed":3}`) {
		t.Errorf("the bundle given was changed: %s", got)
	}
	if _, err := algorithm.WithSampling(before, jsontext.Value(`[1]`)); agl.ErrorCode(err) != agl.CodeInvalid {
		t.Errorf("a list: got %v, want an invalid argument", err)
	}
}

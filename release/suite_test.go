package release_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestSuite: a candidate that is worse on the offline suite is rolled back before a session has it; one that is as good is tried, but for
// one in twenty.
func TestSuite(t *testing.T) {
	t.Parallel()
	stopped := map[float64]int{}
	const runs, tasks = 200, 50
	for _, gain := range []float64{-0.5, 0, 0.5} {
		for seed := range uint64(runs) {
			r := rand.New(rand.NewPCG(seed, 5))
			stable, candidate := make([]float64, tasks), make([]float64, tasks)
			for i := range stable {
				hard := 5 * r.NormFloat64() // tasks differ more than versions
				stable[i], candidate[i] = hard+0.5*r.NormFloat64(), hard+gain+0.5*r.NormFloat64()
			}
			s, err := release.Compare(stable, candidate)
			if err != nil {
				t.Fatal(err)
			}
			if s.Decide().Action == release.Rollback {
				stopped[gain]++
			}
		}
	}
	t.Logf("of %d each, rolled back by the gain: %v", runs, stopped)
	if stopped[-0.5] < runs*95/100 || stopped[0] > runs*5/100 || stopped[0.5] > 0 {
		t.Errorf("of %d each, rolled back by the gain: %v", runs, stopped)
	}
	for name, pair := range map[string][2][]float64{
		"one task":      {{1}, {1}},
		"others":        {{1, 2}, {1, 2, 3}},
		"not a number":  {{1, math.NaN()}, {1, 2}},
		"without limit": {{1, 2}, {1, math.Inf(1)}},
	} {
		if _, err := release.Compare(pair[0], pair[1]); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
	worse := release.Suite{Tasks: 9, Stable: 1, Candidate: 0.5, Baseline: [2]float64{0.9, 1.1}, Difference: [2]float64{-0.6, -0.4}}
	r := release.New(memorytest.Open(t))
	made := propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-1"}, Suite: &worse})
	if c := current(t, r); !c.Equal(release.Current{}) {
		t.Errorf("after the suite %+v is current", c)
	}
	last := made.Decisions[len(made.Decisions)-1]
	if made.State != release.StateRolledBack || last.By != release.ByGates || !strings.Contains(last.Reason, "suite") || len(made.Decisions) != 2 {
		t.Errorf("the release is %s by %s: %s", made.State, last.By, last.Reason)
	}
	better := release.Suite{Tasks: 9, Stable: 1, Candidate: 1.5, Baseline: [2]float64{0.9, 1.1}, Difference: [2]float64{0.4, 0.6}}
	if made = propose(t, r, release.Proposal{Candidate: release.Version{ResourcesID: "rs-2"}, Suite: &better}); made.State != release.StateCanary || made.Suite == nil {
		t.Errorf("a better candidate is %s, suite %v", made.State, made.Suite)
	}
	got, err := r.Get(t.Context(), made.ID)
	if err != nil || got.Suite == nil || *got.Suite != better {
		t.Errorf("the suite is kept as %v, %v", got.Suite, err)
	}
}

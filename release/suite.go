package release

import (
	"fmt"
	"math"

	"github.com/agl-go/agl"
)

// Suite is an offline evaluation: what the stable version and a candidate earned on the same tasks before any user
// met the candidate. Intervals are 95 % by the normal approximation. Those of the difference are paired by task, so
// that tasks of different difficulty do not widen them.
type Suite struct {
	Tasks      int        `json:"tasks"` // with rewards of both versions
	Stable     float64    `json:"stable"`
	Candidate  float64    `json:"candidate"`
	Baseline   [2]float64 `json:"baseline"`   // of the stable version's mean
	Difference [2]float64 `json:"difference"` // of the candidate's mean minus the stable one's
}

// normal95 is the 97.5 % quantile of the normal distribution.
const normal95 = 1.959964

// Compare sums up the rewards of the same tasks, in the same order. Fewer than two tasks, lists of different lengths,
// or rewards that are not finite are CodeInvalid.
func Compare(stable, candidate []float64) (Suite, error) {
	if len(stable) != len(candidate) || len(stable) < 2 {
		return Suite{}, agl.Errorf(agl.CodeInvalid, "suite: got %d rewards of the stable version and %d of the candidate, must be as many, of the same tasks, and at least two", len(stable), len(candidate))
	}
	var baseline, other, difference Mean
	for i := range stable {
		baseline.Add(stable[i])
		other.Add(candidate[i])
		difference.Add(candidate[i] - stable[i])
	}
	s := Suite{Tasks: len(stable), Stable: baseline.Mean, Candidate: other.Mean, Baseline: baseline.interval(), Difference: difference.interval()}
	return s, s.check()
}

func (m *Mean) interval() [2]float64 {
	width := normal95 * m.Deviation() / math.Sqrt(float64(m.N))
	return [2]float64{m.Mean - width, m.Mean + width}
}

func (s *Suite) check() error {
	for _, x := range []float64{s.Stable, s.Candidate, s.Baseline[0], s.Baseline[1], s.Difference[0], s.Difference[1]} {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return agl.Errorf(agl.CodeInvalid, "suite: got %v, must be finite", x)
		}
	}
	return nil
}

// Decide rolls back a candidate that is worse with evidence; any other may be tried on users.
func (s *Suite) Decide() Verdict {
	text := fmt.Sprintf("the candidate earns %s and the stable version %s (%s to %s) on %d tasks; the difference is between %s and %s",
		number(s.Candidate), number(s.Stable), number(s.Baseline[0]), number(s.Baseline[1]), s.Tasks, number(s.Difference[0]), number(s.Difference[1]))
	if s.Difference[1] < 0 {
		return Verdict{Rollback, "the offline suite is worse: " + text}
	}
	return Verdict{Wait, "offline suite: " + text}
}

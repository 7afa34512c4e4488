package release

import "math"

// Arm says which version served a session.
type Arm int

// The arms of a release.
const (
	Stable Arm = iota
	Candidate
)

func (a Arm) String() string {
	if a == Candidate {
		return "candidate"
	}
	return "stable"
}

// Sequence estimates how much greater the mean outcome of the candidate is than that of the stable version, with an
// interval that holds at all times at once: a confidence sequence. So it may be inspected after every session, and a
// decision that waits for a bound is wrong with probability at most alpha, however long it waits.
//
// Sessions are assigned at random, with a probability that may change between them. Each outcome y of an arm that had
// the probability p gives the pseudo-outcome
//
//	m₁ − m₀ ± (y − m)/p
//
// with the arms' means m before it; its expectation is the difference (augmented inverse propensity weighting). After
// t pseudo-outcomes with mean μ and deviation σ the interval is
//
//	μ ± σ √( 2(tρ²+1)/(t²ρ²) · log(√(tρ²+1)/α) )
//
// Source: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic
// confidence sequences", arXiv:2103.06476, theorems 2.2 and 3.2. The interval is asymptotic: it guarantees nothing
// for few sessions, so [Gates] wait for a minimum.
//
// σ is bounded from below by what it would be if both arms varied like the more variable one: √(mean of 1/p +
// 1/(1−p)) times that arm's deviation. A candidate with few sessions may not have shown its rare outcomes yet: 50
// rewards of 1 have the deviation 0, and are what every third candidate shows that earns 0 in one session of 50.
type Sequence struct {
	Arms [2]Mean `json:"arms"` // the outcomes: stable, candidate
	// Difference is the mean of the pseudo-outcomes. The very first session gives none, because there is nothing to
	// compare it with.
	Difference Mean `json:"difference"`
	// Weights is the mean of 1/p + 1/(1−p), the expectation of the squared weights.
	Weights Mean `json:"weights"`
}

// Mean is a mean with the sum of squared deviations from it (Welford 1962).
type Mean struct {
	N    int64   `json:"n"`
	Mean float64 `json:"mean"`
	M2   float64 `json:"m2"`
}

// Add counts a value.
func (m *Mean) Add(x float64) {
	m.N++
	delta := x - m.Mean
	m.Mean += delta / float64(m.N)
	m.M2 += delta * (x - m.Mean)
}

// Deviation returns the standard deviation of the values, +Inf for fewer than two.
func (m *Mean) Deviation() float64 {
	if m.N < 2 {
		return math.Inf(1)
	}
	return math.Sqrt(m.M2 / float64(m.N-1))
}

// Add counts the outcome of a session. share is the probability, in (0, 1), that the
// candidate had when the session began.
func (s *Sequence) Add(arm Arm, share, outcome float64) {
	if all := s.Arms[Stable].N + s.Arms[Candidate].N; all > 0 {
		pooled := (s.Arms[Stable].Mean*float64(s.Arms[Stable].N) + s.Arms[Candidate].Mean*float64(s.Arms[Candidate].N)) / float64(all)
		means := [2]float64{pooled, pooled}
		for i := range means {
			if s.Arms[i].N > 0 {
				means[i] = s.Arms[i].Mean
			}
		}
		pseudo := means[Candidate] - means[Stable]
		if arm == Candidate {
			pseudo += (outcome - means[Candidate]) / share
		} else {
			pseudo -= (outcome - means[Stable]) / (1 - share)
		}
		s.Difference.Add(pseudo)
		s.Weights.Add(1/share + 1/(1-share))
	}
	s.Arms[arm].Add(outcome)
}

// Interval returns the bounds of the difference for the probability alpha of ever being wrong. It is tightest after
// about tightest sessions. Without at least two sessions of each arm it is infinite.
func (s *Sequence) Interval(alpha, tightest float64) (low, high float64) {
	t := float64(s.Difference.N)
	if s.Arms[Stable].N < 2 || s.Arms[Candidate].N < 2 {
		return math.Inf(-1), math.Inf(1)
	}
	log := -2 * math.Log(alpha)
	rho2 := (log + math.Log(log+1)) / tightest
	deviation := max(s.Difference.Deviation(), math.Sqrt(s.Weights.Mean)*max(s.Arms[Stable].Deviation(), s.Arms[Candidate].Deviation()))
	width := deviation * math.Sqrt(2*(t*rho2+1)/(t*t*rho2)*math.Log(math.Sqrt(t*rho2+1)/alpha))
	return s.Difference.Mean - width, s.Difference.Mean + width
}

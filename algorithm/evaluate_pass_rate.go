package algorithm

import "math"

// z95 is the 97.5 % quantile of the standard normal distribution.
const z95 = 1.959963984540054

// Wilson returns the 95 % score interval of a proportion, given that passed of n
// trials succeeded (Wilson 1927, J. Am. Stat. Assoc. 22:209–212):
//
//	(p + z²/2n ± z·√(p(1−p)/n + z²/4n²)) / (1 + z²/n)   with p = passed/n, z = 1.96
//
// It stays within [0, 1] and has a width above 0 at p = 0 and p = 1. For n = 0 it is [0, 1].
func Wilson(passed, n int) (lo, hi float64) {
	if n <= 0 {
		return 0, 1
	}
	p, m := float64(passed)/float64(n), float64(n)
	z2 := z95 * z95
	center := p + z2/(2*m)
	half := z95 * math.Sqrt(p*(1-p)/m+z2/(4*m*m))
	scale := 1 + z2/m
	lo, hi = (center-half)/scale, (center+half)/scale
	// At the ends the bound is exact; rounding must not leave it off by 1e-17.
	if passed <= 0 {
		lo = 0
	}
	if passed >= n {
		hi = 1
	}
	return lo, hi
}

// Rate is a proportion with its 95 % Wilson interval.
type Rate struct {
	Passed   int        `json:"passed"`
	N        int        `json:"n"`
	PassRate float64    `json:"pass_rate"`
	CI95     [2]float64 `json:"ci95"`
}

// NewRate makes a Rate; for n = 0 the pass rate is 0 and the interval [0, 1].
func NewRate(passed, n int) Rate {
	lo, hi := Wilson(passed, n)
	r := Rate{Passed: passed, N: n, CI95: [2]float64{lo, hi}}
	if n > 0 {
		r.PassRate = float64(passed) / float64(n)
	}
	return r
}

// Tally counts passed trials, in total and by form. Its zero value is empty.
type Tally struct {
	passed, n int
	forms     map[string]*[2]int
}

// Add counts one trial; an empty form counts in the total only.
func (t *Tally) Add(form string, passed bool) {
	one := 0
	if passed {
		one = 1
	}
	t.passed += one
	t.n++
	if form == "" {
		return
	}
	if t.forms == nil {
		t.forms = map[string]*[2]int{}
	}
	if t.forms[form] == nil {
		t.forms[form] = new([2]int)
	}
	t.forms[form][0] += one
	t.forms[form][1]++
}

// Total returns the rate of all trials.
func (t *Tally) Total() Rate { return NewRate(t.passed, t.n) }

// Forms returns the rate of each form; nil if no trial had one.
func (t *Tally) Forms() map[string]Rate {
	if t.forms == nil {
		return nil
	}
	rates := make(map[string]Rate, len(t.forms))
	for form, c := range t.forms {
		rates[form] = NewRate(c[0], c[1])
	}
	return rates
}

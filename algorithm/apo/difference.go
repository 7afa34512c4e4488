package apo

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/agl-go/agl"
)

// Difference is the mean difference of two candidates' rewards on the same tasks, with a bootstrap interval.
type Difference struct {
	Mean float64 `json:"mean"`
	// Low and High bound the interval; both are the mean if there are too few pairs for an interval.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// Level is the nominal coverage of the interval.
	Level float64 `json:"level"`
	// Pairs is the number of tasks on which both candidates have a score.
	Pairs int `json:"pairs"`
}

// fewestPairs is the least number of pairs that can show a difference: with five, even
// differences that all have the same sign have p = 2·2⁻⁵ > 5 % in a two-sided sign test.
const fewestPairs = 6

// Tie reports whether the interval contains 0, or there are too few pairs.
func (d Difference) Tie() bool { return d.Pairs < fewestPairs || (d.Low <= 0 && d.High >= 0) }

// Positive reports whether the interval lies above 0.
func (d Difference) Positive() bool { return !d.Tie() && d.Low > 0 }

// pairedDifference resamples the differences b−a with replacement and takes percentiles of their means (Efron & Tibshirani
// 1993, An Introduction to the Bootstrap, §13.3). For few pairs that interval is too narrow, for two reasons (Hesterberg
// 2015, The American Statistician 69:4): resampling n values gives means whose variance is too small by (n−1)/n, and the
// error of the mean, in estimated standard errors, has Student's distribution. So the interval is widened around the mean by
// √(n/(n−1)) and by the ratio of Student's quantile to the normal one: Hesterberg's expanded percentile interval. Tasks
// without a score on either side are left out.
func pairedDifference(a, b []agl.Null[float64], level float64, resamples int, seed uint64) Difference {
	var diffs []float64
	for i := range a {
		if a[i].Valid && b[i].Valid {
			diffs = append(diffs, b[i].V-a[i].V)
		}
	}
	mean := meanOf(diffs)
	g := Difference{Mean: mean, Low: mean, High: mean, Level: level, Pairs: len(diffs)}
	if len(diffs) < fewestPairs {
		return g
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(diffs))))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range diffs {
			sum += diffs[r.IntN(len(diffs))]
		}
		means[i] = sum / float64(len(diffs))
	}
	slices.Sort(means)
	tail := (1 - level) / 2
	n := float64(len(diffs))
	wider := math.Sqrt(n/(n-1)) * studentRatio(1-tail, n-1)
	g.Low, g.High = mean+wider*(percentile(means, tail)-mean), mean+wider*(percentile(means, 1-tail)-mean)
	return g
}

// studentRatio is the quantile p of Student's distribution divided by that of the normal one, by the expansion in 1/freedom
// (Abramowitz & Stegun 1964, 26.7.5). For p = 0.975 and 5 or more degrees of freedom it is within 0.2 %.
func studentRatio(p, freedom float64) float64 {
	z := math.Sqrt2 * math.Erfinv(2*p-1)
	z2 := z * z
	g1 := (z2 + 1) / 4
	g2 := ((5*z2+16)*z2 + 3) / 96
	g3 := (((3*z2+19)*z2+17)*z2 - 15) / 384
	return 1 + (g1+(g2+g3/freedom)/freedom)/freedom
}

// percentile interpolates between the two nearest of sorted values.
func percentile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func meanOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// relativeScores compares candidates that ran the same tasks. The score of a candidate is the mean, over the tasks on which
// it has a reward, of its distance from the mean of all candidates on that task. If every task has a reward, the order is
// that of the mean rewards; a candidate whose hard tasks were masked does not profit from it. A candidate without any reward
// has no score.
func relativeScores(scores [][]agl.Null[float64]) []agl.Null[float64] {
	if len(scores) == 0 {
		return nil
	}
	above := make([][]float64, len(scores))
	for task := range scores[0] {
		var here []float64
		for c := range scores {
			if scores[c][task].Valid {
				here = append(here, scores[c][task].V)
			}
		}
		level := meanOf(here)
		for c := range scores {
			if scores[c][task].Valid {
				above[c] = append(above[c], scores[c][task].V-level)
			}
		}
	}
	out := make([]agl.Null[float64], len(scores))
	for c := range above {
		if len(above[c]) > 0 {
			out[c] = agl.Some(meanOf(above[c]))
		}
	}
	return out
}

// meanScore is the mean of the scores that are not null; null if all are.
func meanScore(scores []agl.Null[float64]) agl.Null[float64] {
	var values []float64
	for _, s := range scores {
		if s.Valid {
			values = append(values, s.V)
		}
	}
	if values == nil {
		return agl.Null[float64]{}
	}
	return agl.Some(meanOf(values))
}

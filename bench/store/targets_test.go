package main

import (
	"math"
	"testing"
)

// Twice as many and half as many are even. The standard deviation of their logarithms is √2·ln 2, that of the mean ln 2.
func TestMeanOf(t *testing.T) {
	t.Parallel()
	mean, spread := meanOf([]float64{2, 0.5})
	if math.Abs(mean-1) > 1e-12 || math.Abs(spread-math.Ln2) > 1e-12 {
		t.Errorf("%v ± %v, want 1 ± %v", mean, spread, math.Ln2)
	}
}

package bench_test

import (
	"testing"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{8, 1, 2, 4}, 3}} {
		if got := bench.Median(test.values); got != test.want {
			t.Errorf("the median of %v is %v, want %v", test.values, got, test.want)
		}
	}
	if got := bench.Median([]time.Duration{time.Second, 2 * time.Second}); got != 1500*time.Millisecond {
		t.Errorf("the median of 1 s and 2 s is %s", got)
	}
}

package algorithm_test

import (
	"math"
	"testing"

	"github.com/agl-go/agl/algorithm"
)

func TestSchedule(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		schedule algorithm.Schedule
		step     int
		want     float64
	}{
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2}, 0, 0.25},
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2}, 3, 1},
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2}, 4, 1},
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2}, 9, 0.6},
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2}, 14, 0.2},
		{algorithm.Schedule{Peak: 1, Warmup: 2, Hold: 2, Floor: 0}, 4, 1},
		{algorithm.Schedule{Peak: 1, Warmup: 2, Hold: 2, Floor: 0}, 9, 0.5},
		{algorithm.Schedule{Peak: 0.3, Floor: 0.3}, 0, 0.3},
		{algorithm.Schedule{Peak: 0.3, Floor: 0.3}, 13, 0.3},
	} {
		if got := tc.schedule.Rate(tc.step, 14); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%+v: rate at step %d is %v, want %v", tc.schedule, tc.step, got, tc.want)
		}
	}
}

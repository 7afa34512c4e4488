package algorithm_test

import (
	"errors"
	"math"
	"testing"

	"github.com/agl-go/agl"
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
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2, Decay: algorithm.Linear}, 4, 1},
		{algorithm.Schedule{Peak: 1, Warmup: 4, Floor: 0.2, Decay: algorithm.Linear}, 9, 0.6},
		{algorithm.Schedule{Peak: 1, Hold: 4, Decay: algorithm.Linear}, 13, 0.1},
		{algorithm.Schedule{Peak: 1, Floor: 0.2, Decay: algorithm.Linear}, 14, 0.2},
		{algorithm.Schedule{Peak: 1, Floor: 0.2, Decay: algorithm.Linear}, 20, 0.2}, // beyond the last
		{algorithm.Schedule{Peak: 1, Warmup: 1, Hold: math.MaxInt}, 13, 1},          // no sum that overflows
		{algorithm.Schedule{Peak: 0.3, Floor: 0.3}, 0, 0.3},
		{algorithm.Schedule{Peak: 0.3, Floor: 0.3}, 13, 0.3},
	} {
		if got := tc.schedule.Rate(tc.step, 14); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%+v: rate at step %d is %v, want %v", tc.schedule, tc.step, got, tc.want)
		}
	}
}

// The text of a schedule is in checkpoints: that of one without a form of decay must stay.
func TestScheduleString(t *testing.T) {
	t.Parallel()
	s := algorithm.Schedule{Peak: 3e-3, Warmup: 5, Hold: 10, Floor: 1e-4}
	const want = "{Peak:0.003 Warmup:5 Hold:10 Floor:0.0001"
	if got := s.String(); got != want+"}" {
		t.Errorf("%s, want %s}", got, want)
	}
	s.Decay = algorithm.Cosine
	if got := s.String(); got != want+"}" {
		t.Errorf("%s, want %s}", got, want)
	}
	s.Decay = algorithm.Linear
	if got := s.String(); got != want+" Decay:linear}" {
		t.Errorf("%s, want …Decay:linear}", got)
	}
	s.Decay = "stairs"
	if err := s.Validate(); !errors.Is(err, agl.ErrInvalid) || err.Error() != `Schedule.Decay is "stairs"; allowed are ["cosine" "linear"]` {
		t.Errorf("error %v", err)
	}
}

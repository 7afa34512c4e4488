package admin

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for seconds, want := range map[float64]time.Duration{0: 0, 1e-10: 1, 1.5: 1500 * time.Millisecond, 1e9: 1e9 * time.Second} {
		if got, err := duration("seconds", seconds); err != nil || got != want {
			t.Errorf("%v seconds are %d ns (%v), want %d", seconds, got, err, want)
		}
	}
}

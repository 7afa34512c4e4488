package main

import (
	"testing"
	"time"

	"github.com/agl-go/agl"
)

// A run whose process was killed stays running, and says for how long nothing was heard.
func TestRunStatus(t *testing.T) {
	t.Parallel()
	now := time.Unix(2_000_000, 0)
	for _, tc := range []struct {
		status agl.RunStatus
		silent time.Duration
		want   string
	}{
		{agl.RunRunning, 9 * time.Minute, "running"},
		{agl.RunRunning, 10 * time.Minute, "running, not heard from for 10 min"},
		{agl.RunRunning, 3*time.Hour + 59*time.Minute, "running, not heard from for 3 h"},
		{agl.RunRunning, 50 * time.Hour, "running, not heard from for 2 d"},
		{agl.RunRunning, -time.Hour, "running"}, // another machine's clock
		{agl.RunFinished, 50 * time.Hour, "finished"},
	} {
		run := agl.Run{Status: tc.status, UpdateTime: agl.TimestampOf(now.Add(-tc.silent))}
		if got := runStatus(&run, now); got != tc.want {
			t.Errorf("%s after %v: %q, want %q", tc.status, tc.silent, got, tc.want)
		}
	}
}

package store

import (
	"math"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// TestSpanStored goes through rollout status × attempt status × latest or not.
func TestSpanStored(t *testing.T) {
	t.Parallel()
	for _, status := range agl.RolloutStatuses() {
		for _, attempt := range agl.AttemptStatuses() {
			for _, latest := range []bool{true, false} {
				a := agl.Attempt{Status: attempt, EndTime: agl.Some(agl.Timestamp(1))}
				r, got := spanStored(agl.Rollout{Status: status}, a, latest, 9)

				wantAttempt := attempt
				if status != agl.RolloutCancelled && (attempt == agl.AttemptPreparing || attempt == agl.AttemptUnresponsive) {
					wantAttempt = agl.AttemptRunning
				}
				wantRollout := status
				open := status == agl.RolloutQueuing || status == agl.RolloutPreparing || status == agl.RolloutRequeuing
				if latest && open && wantAttempt == agl.AttemptRunning {
					wantRollout = agl.RolloutRunning
				}
				if r.Status != wantRollout || got.Status != wantAttempt {
					t.Errorf("%s with %s attempt (latest %v) became %s with %s, want %s with %s",
						status, attempt, latest, r.Status, got.Status, wantRollout, wantAttempt)
				}
				if got.LastHeartbeatTime != agl.Some(agl.Timestamp(9)) {
					t.Errorf("%s with %s attempt: heartbeat %v, want 9", status, attempt, got.LastHeartbeatTime)
				}
				if got.EndTime.Valid != (wantAttempt == attempt) {
					t.Errorf("%s with %s attempt: end time %v after revival", status, attempt, got.EndTime)
				}
			}
		}
	}
}

// TestFollow goes through the effects of a report on a rollout.
func TestFollow(t *testing.T) {
	t.Parallel()
	config := agl.RolloutConfig{MaxAttempts: 2, RetryCondition: []agl.AttemptStatus{agl.AttemptFailed, agl.AttemptTimeout}}
	const same = agl.RolloutStatus("")
	for _, tc := range []struct {
		attempt               agl.AttemptStatus
		n                     int
		open, done, cancelled agl.RolloutStatus // from running, from succeeded, from cancelled
	}{
		{agl.AttemptPreparing, 1, agl.RolloutPreparing, same, same},
		{agl.AttemptRunning, 1, agl.RolloutRunning, same, same},
		{agl.AttemptSucceeded, 1, agl.RolloutSucceeded, agl.RolloutSucceeded, same},
		{agl.AttemptFailed, 1, agl.RolloutRequeuing, agl.RolloutFailed, same},
		{agl.AttemptFailed, 2, agl.RolloutFailed, agl.RolloutFailed, same},
		{agl.AttemptTimeout, 1, agl.RolloutRequeuing, same, same},
		{agl.AttemptTimeout, 2, agl.RolloutFailed, same, same},
		{agl.AttemptUnresponsive, 1, agl.RolloutFailed, same, same},
	} {
		for from, want := range map[agl.RolloutStatus]agl.RolloutStatus{
			agl.RolloutRunning: tc.open, agl.RolloutSucceeded: tc.done, agl.RolloutCancelled: tc.cancelled,
		} {
			if want == same {
				want = from
			}
			r := agl.Rollout{Status: from, Config: config}
			if from.Finished() {
				r.EndTime = agl.Some(agl.Timestamp(1))
			}
			got := follow(r, &agl.Attempt{Status: tc.attempt, SequenceID: tc.n}, 9)
			if got.Status != want {
				t.Errorf("%s with attempt %d %s became %s, want %s", from, tc.n, tc.attempt, got.Status, want)
			}
			if got.EndTime.Valid != want.Finished() || want == from && got.EndTime != r.EndTime {
				t.Errorf("%s → %s: end time %v, was %v", from, want, got.EndTime, r.EndTime)
			}
		}
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	config := func(timeout, unresponsive float64) agl.RolloutConfig {
		return agl.RolloutConfig{TimeoutSeconds: agl.Some(timeout), UnresponsiveSeconds: agl.Some(unresponsive)}
	}
	for _, tc := range []struct {
		name   string
		config agl.RolloutConfig
		beat   agl.Timestamp // 0 is none
		now    agl.Timestamp
		want   agl.AttemptStatus
	}{
		{"no limits", agl.RolloutConfig{}, 0, 1e9, agl.AttemptRunning},
		{"in time", config(10, 10), 0, 109, agl.AttemptRunning},
		{"just in time", config(10, 10), 0, 110, agl.AttemptRunning},
		{"both over", config(10, 5), 0, 111, agl.AttemptTimeout},
		{"no heartbeat since the start", config(100, 5), 0, 106, agl.AttemptUnresponsive},
		{"no heartbeat since the last", config(100, 5), 103, 109, agl.AttemptUnresponsive},
		{"a heartbeat in time", config(100, 5), 103, 107, agl.AttemptRunning},
		{"heartbeats do not extend the timeout", config(10, 50), 109, 111, agl.AttemptTimeout},
		{"negative limits are over at once", config(-1, -1), 0, 100, agl.AttemptTimeout},
	} {
		a := agl.Attempt{Status: agl.AttemptRunning, SequenceID: 1, StartTime: 100, Metadata: jsontext.Value(`{"k":1}`)}
		if tc.beat > 0 {
			a.LastHeartbeatTime = agl.Some(tc.beat)
		}
		_, got, fired := deadlinePassed(agl.Rollout{Status: agl.RolloutRunning, Config: tc.config}, a, limits{}, tc.now)
		if got.Status != tc.want || fired != (tc.want != agl.AttemptRunning) {
			t.Errorf("%s: attempt is %s, fired %v, want %s", tc.name, got.Status, fired, tc.want)
		}
		if raw, _ := rawjson.Get(got.Metadata, "k"); string(raw) != "1" {
			t.Errorf("%s: metadata is %s, want the old members kept", tc.name, got.Metadata)
		}
	}
}

// TestFarDeadline sets deadlines that no clock reaches. One that overflowed would always be due.
func TestFarDeadline(t *testing.T) {
	t.Parallel()
	for _, seconds := range []float64{1e10, 1e300, math.Inf(1)} {
		var d deadlines
		d.init(limits{})
		now := agl.Timestamp(1_760_000_000)
		r := agl.Rollout{RolloutID: "r", Status: agl.RolloutRunning, Config: agl.RolloutConfig{TimeoutSeconds: agl.Some(seconds)}}
		d.set(&r, &agl.Attempt{Status: agl.AttemptRunning, StartTime: now})
		if at, found := d.next(); found {
			t.Errorf("a timeout of %g seconds ends at %v, want never", seconds, at)
		}
		r.Config.TimeoutSeconds = agl.Some(1e9)
		d.set(&r, &agl.Attempt{Status: agl.AttemptRunning, StartTime: now})
		if at, found := d.next(); !found || at.Sub(now.Time()) != 1e9*time.Second {
			t.Errorf("a timeout of 1e9 seconds ends at %v, want in 1e9 seconds", at)
		}
	}
}

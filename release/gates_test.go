package release_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/release"
)

// outcome is the reward and the metrics of a session.
type outcome func(r *rand.Rand, arm release.Arm) (reward float64, metrics map[string]float64)

// simulate runs a release until it is decided, and returns how, with its evidence.
func simulate(gates release.Gates, share float64, seed uint64, draw outcome) (release.Verdict, release.Evidence) {
	r := rand.New(rand.NewPCG(seed, 7))
	var e release.Evidence
	for {
		arm := release.Stable
		if r.Float64() < share {
			arm = release.Candidate
		}
		reward, metrics := draw(r, arm)
		e.Add(gates, release.Observation{Arm: arm, Share: share, Reward: &reward, Metrics: metrics})
		if v := gates.Decide(&e); v.Action != release.Wait {
			return v, e
		}
	}
}

// gauss has rewards with the deviation 1, and guarded metrics that are the same in both arms.
func gauss(gain float64) outcome {
	return func(r *rand.Rand, arm release.Arm) (float64, map[string]float64) {
		failed := 0.0
		if r.Float64() < 0.02 {
			failed = 1
		}
		return gain*float64(arm) + r.NormFloat64(), map[string]float64{
			release.MetricErrors: failed, release.MetricTokens: 100 + 30*r.NormFloat64(), release.MetricLatency: math.Exp(0.5 * r.NormFloat64()),
		}
	}
}

// share has rewards of 0 and 1, the latter with the probability of the arm.
func share(probabilities ...float64) outcome {
	return func(r *rand.Rand, arm release.Arm) (float64, map[string]float64) {
		reward := 0.0
		if r.Float64() < probabilities[arm] {
			reward = 1
		}
		return reward, map[string]float64{release.MetricLatency: math.Exp(0.5 * r.NormFloat64())}
	}
}

// TestGates: of 200 releases each, at most 5 % of the candidates that are as good are promoted, and
// at least 90 % of those that are better by half a deviation.
func TestGates(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("no goroutines, and many sessions")
	}
	const releases = 200
	for _, tc := range []struct {
		name     string
		share    float64
		draw     outcome
		worse    bool
		min, max int // promoted
	}{
		{"equal", 0.1, gauss(0), false, 0, releases * 5 / 100},
		{"better", 0.1, gauss(0.5), false, releases * 90 / 100, releases},
		{"worse", 0.1, gauss(-0.5), true, 0, 0},
		// The first sessions of a candidate may all have the same reward.
		{"equal, seldom 0", 0.05, share(0.98, 0.98), false, 0, releases * 5 / 100},
		{"equal, seldom 1", 0.05, share(0.02, 0.02), false, 0, releases * 5 / 100},
		{"better, never 0", 0.05, share(0.9, 1), false, releases * 90 / 100, releases},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			gates := release.Defaults()
			gates.MaxSessions = 5000
			promoted, early := 0, 0
			var sessions []int64
			for seed := range uint64(releases) {
				v, e := simulate(gates, tc.share, seed, tc.draw)
				if v.Action == release.Promote {
					promoted++
				}
				n := e.Sessions[0] + e.Sessions[1]
				sessions = append(sessions, n)
				if v.Action == release.Rollback && n < int64(gates.MaxSessions) {
					early++
				}
			}
			slices.Sort(sessions)
			t.Logf("%d of %d promoted, %d rolled back before the end, %d sessions in the median", promoted, releases, early, sessions[releases/2])
			if promoted < tc.min || promoted > tc.max {
				t.Errorf("%d promoted, want %d to %d", promoted, tc.min, tc.max)
			}
			if !tc.worse && early > releases*10/100 { // Alpha for the reward, and for the guards
				t.Errorf("%d candidates that are not worse were rolled back by a test", early)
			}
		})
	}
}

// TestRewardHack: a candidate that earns more by breaking tool calls is rolled back before it
// has had a twentieth of the sessions of the simulation.
func TestRewardHack(t *testing.T) {
	t.Parallel()
	const traffic = 2000
	gates := release.Defaults()
	for seed := range uint64(10) {
		v, e := simulate(gates, 0.05, seed, func(r *rand.Rand, arm release.Arm) (float64, map[string]float64) {
			failed := 0.0
			if rate := []float64{0.02, 0.6}[arm]; r.Float64() < rate {
				failed = 1
			}
			return float64(arm) + r.NormFloat64(), map[string]float64{release.MetricFailedTools: failed}
		})
		if v.Action != release.Rollback || e.Sessions[release.Candidate]*20 > traffic {
			t.Errorf("seed %d: %s after %d sessions of the hack", seed, v.Action, e.Sessions[release.Candidate])
		}
		t.Logf("seed %d: after %d sessions of the candidate and %d others: %s", seed, e.Sessions[release.Candidate], e.Sessions[release.Stable], v.Reason)
	}
}

// TestInterval: from the default minimum of sessions on, the interval covers the difference at all times at once, as often as it says,
// also where the share changes.
func TestInterval(t *testing.T) {
	t.Parallel()
	const runs, sessions, difference = 300, 3000, 0.3
	missed := 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 11))
		var s release.Sequence
		for n := range sessions {
			share := 0.05
			if n > 500 {
				share = 0.5
			}
			arm := release.Stable
			if r.Float64() < share {
				arm = release.Candidate
			}
			s.Add(arm, share, difference*float64(arm)+r.ExpFloat64())
			if low, high := s.Interval(0.05, 1000); s.Arms[release.Candidate].N >= 50 && (low > difference || high < difference) {
				missed++
				break
			}
		}
	}
	t.Logf("the difference was outside at some time in %d of %d runs", missed, runs)
	if missed > runs*7/100 { // 5 % and two of its standard errors
		t.Errorf("missed in %d of %d runs", missed, runs)
	}
}

// What is not known yet is said in words: an interval without bounds tells nobody what is missing.
func TestVerdictWithoutRewards(t *testing.T) {
	t.Parallel()
	gates := release.Defaults()
	if got, want := gates.Decide(&release.Evidence{}).Reason, "0 sessions of the candidate; the difference of the reward is unknown, as both versions need rewards of two sessions at least"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A proposal that says nothing about guards gets the default ones, also when it was sent as JSON; one that says there are none gets
// none.
func TestGuardsInJSON(t *testing.T) {
	t.Parallel()
	for name, guards := range map[string][]release.Guard{"nil": nil, "none": {}, "one": {{Metric: "refunds", Tolerance: 0.1}}} {
		sent, err := json.Marshal(release.Gates{Guards: guards})
		if err != nil {
			t.Fatal(err)
		}
		var got release.Gates
		if err := json.Unmarshal(sent, &got); err != nil || !reflect.DeepEqual(got.Guards, guards) {
			t.Errorf("%s: %#v became %#v, by %s (%v)", name, guards, got.Guards, sent, err)
		}
	}
}

package job

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// TestWatchRunners has rollouts wait without a runner, then with one, then without one again.
func TestWatchRunners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memorytest.Open(t)
		notices := make(chan string, 9)
		w := runnerWatch{store: s, url: "http://trainer:4747", notice: func(text string) { notices <- text }}
		defer background.Start(t.Context(), w.missing)()
		wait := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if len(notices) != want {
				t.Errorf("%d notices, want %d", len(notices), want)
			}
		}
		wait(time.Minute, 0) // nothing to do
		if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: slices.Repeat([]agl.EnqueueRollout{{Mode: agl.ModeTrain}}, 3)}); err != nil {
			t.Fatal(err)
		}
		wait(29*time.Second, 0)
		wait(time.Minute, 1)
		result, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{WorkerID: agl.Some("w"), Limit: 1})
		claimed := result.Rollouts
		if err != nil || len(claimed) != 1 {
			t.Fatal(claimed, err)
		}
		wait(time.Minute, 1) // an agent takes its time
		status := agl.AttemptSucceeded
		if _, err := s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: claimed[0].RolloutID, AttemptID: claimed[0].Attempt.AttemptID, Status: &status}); err != nil {
			t.Fatal(err)
		}
		wait(29*time.Second, 1)
		wait(time.Minute, 2)
		<-notices
		if want := "warning: 2 rollouts wait, and no runner has taken one for 30s: start runners that use the store http://trainer:4747 (agl train FILE --role runner, or agl runner)"; <-notices != want {
			t.Errorf("the second notice is not %q", want)
		}
	})
}

// TestSilentRunner: one of two runners dies. The run says so once, when the other one has nothing left to do, and what becomes of its rollout.
func TestSilentRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memorytest.Open(t)
		notices := make(chan string, 9)
		w := runnerWatch{store: s, unresponsive: 10 * time.Minute, notice: func(text string) { notices <- text }}
		defer background.Start(t.Context(), w.silent)()
		config := &agl.RolloutConfig{UnresponsiveSeconds: agl.Some(300.0)}
		if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: slices.Repeat([]agl.EnqueueRollout{{Mode: agl.ModeTrain, Config: config}}, 3)}); err != nil {
			t.Fatal(err)
		}
		claim := func(worker string) agl.AttemptedRollout {
			t.Helper()
			result, err := s.DequeueRollouts(t.Context(), agl.DequeueRolloutsParams{WorkerID: agl.Some(worker), Limit: 1})
			if err != nil || len(result.Rollouts) != 1 {
				t.Fatal(result, err)
			}
			return result.Rollouts[0]
		}
		for _, worker := range []string{"dead", "alive"} {
			if _, err := s.UpdateWorker(t.Context(), agl.UpdateWorkerParams{WorkerID: worker}); err != nil { // a heartbeat
				t.Fatal(err)
			}
		}
		dead, alive := claim("dead"), claim("alive")
		claim("a program that sends no heartbeats")
		if _, err := s.StartRollout(t.Context(), agl.StartRolloutParams{}); err != nil { // as a session begins, which has no runner
			t.Fatal(err)
		}
		for range 12 { // two minutes
			time.Sleep(10 * time.Second)
			running, now := agl.AttemptRunning, agl.TimestampOf(time.Now())
			if _, err := s.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: alive.RolloutID, AttemptID: alive.Attempt.AttemptID, Status: &running, LastHeartbeatTime: &now}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		want := "warning: runners of 1 rollout were not heard from for 30s, such as dead of " + dead.RolloutID + "; if they have died, the store ends their attempts after 5m0s (agent.unresponsive)"
		if len(notices) != 1 {
			t.Fatalf("%d notices, want one", len(notices))
		}
		if got := <-notices; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// A run says what ends a rollout whose runner has died: the shortest limit, or nothing.
func TestFateOfASilentRollout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		config agl.RolloutConfig
		store  time.Duration
		want   string
	}{
		{agl.RolloutConfig{UnresponsiveSeconds: agl.Some(60.0)}, time.Hour, "after 1m0s (agent.unresponsive)"},
		{agl.RolloutConfig{UnresponsiveSeconds: agl.Some(60.0), TimeoutSeconds: agl.Some(30.0)}, time.Hour, "after 30s (agent.timeout)"},
		{agl.RolloutConfig{TimeoutSeconds: agl.Some(30.0)}, 0, "after 30s (agent.timeout)"},
		{agl.RolloutConfig{}, time.Hour, "after 1h0m0s (store.unresponsive)"},
		{agl.RolloutConfig{}, 0, "agl cancel ro-1 ends this one"},
	} {
		w := runnerWatch{unresponsive: test.store}
		if got := w.fate(&agl.Rollout{RolloutID: "ro-1", Config: test.config}); !strings.HasSuffix(got, test.want) {
			t.Errorf("%+v: %s, want …%s", test, got, test.want)
		}
	}
}

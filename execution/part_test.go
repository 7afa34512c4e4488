package execution

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestStop stops a scripted part that stands for a child process.
func TestStop(t *testing.T) {
	t.Parallel()
	const s = time.Second
	tests := map[string]struct {
		endsAt  map[string]time.Duration // after which step the child ends, and how long after it
		fails   string                   // the step that cannot be done
		forceAt time.Duration            // 0 is never
		runs    bool                     // it is a function, which cannot be killed
		want    []string                 // steps and when
		late    string                   // in the error
	}{
		"hears the queue":         {endsAt: map[string]time.Duration{"queue": s}, want: []string{"queue 0s"}},
		"needs an interrupt":      {endsAt: map[string]time.Duration{"interrupt": s}, want: []string{"queue 0s", "interrupt 10s"}},
		"needs to be terminated":  {endsAt: map[string]time.Duration{"terminate": 0}, want: []string{"queue 0s", "interrupt 10s", "terminate 15s"}},
		"needs to be killed":      {endsAt: map[string]time.Duration{"kill": 0}, want: []string{"queue 0s", "interrupt 10s", "terminate 15s", "kill 25s"}},
		"cannot even be killed":   {want: []string{"queue 0s", "interrupt 10s", "terminate 15s", "kill 25s"}, late: "child did not stop within 30s"},
		"the queue cannot close":  {fails: "queue", endsAt: map[string]time.Duration{"interrupt": s}, want: []string{"queue 0s", "interrupt 0s"}},
		"the user insists":        {forceAt: 2 * s, endsAt: map[string]time.Duration{"kill": 0}, want: []string{"queue 0s", "kill 2s"}},
		"the user insists later":  {forceAt: 12 * s, endsAt: map[string]time.Duration{"kill": 0}, want: []string{"queue 0s", "interrupt 10s", "kill 12s"}},
		"insisting is not enough": {forceAt: 2 * s, want: []string{"queue 0s", "kill 2s"}, late: "left running"},
		"a function has a moment": {runs: true, forceAt: 2 * s, endsAt: map[string]time.Duration{"kill": s / 2}, want: []string{"queue 0s", "kill 2s"}},
		"a function does not end": {runs: true, forceAt: 2 * s, endsAt: map[string]time.Duration{"kill": 2 * s}, want: []string{"queue 0s", "kill 2s"}, late: "left running"},
		"at its last step":        {runs: true, forceAt: 26 * s, endsAt: map[string]time.Duration{"kill": s + s/2}, want: []string{"queue 0s", "interrupt 10s", "terminate 15s", "kill 25s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var taken []string
				child := &part{name: "child", done: make(chan struct{}), killable: !test.runs}
				step := func(name string, wait time.Duration) {
					child.steps = append(child.steps, stopStep{name: name, wait: wait, do: func() error {
						taken = append(taken, name+" "+time.Since(start).String())
						if name == test.fails {
							return errors.New("no")
						}
						if after, ok := test.endsAt[name]; ok {
							time.AfterFunc(after, func() { close(child.done) })
						}
						return nil
					}})
				}
				step("queue", 10*s)
				step("interrupt", 5*s)
				step("terminate", 10*s)
				step("kill", 5*s)
				force, insist := context.WithCancel(t.Context())
				defer insist()
				if test.forceAt > 0 {
					time.AfterFunc(test.forceAt, insist)
				}
				err := child.stop(slog.New(slog.DiscardHandler), true, force.Done())
				if diff := cmp.Diff(test.want, taken); diff != "" {
					t.Errorf("steps (-want +got):\n%s", diff)
				}
				switch {
				case test.late == "" && err != nil:
					t.Error(err)
				case test.late != "" && (err == nil || !strings.Contains(err.Error(), test.late)):
					t.Errorf("error %v, want one with %q", err, test.late)
				}
			})
		})
	}
}

func TestCleanupContextEndsWhenTheUserInsists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		force, insist := context.WithCancel(t.Context())
		defer insist()
		parent, cancel := context.WithCancel(context.WithValue(t.Context(), forceKey{}, force))
		cancel()
		ctx, done := CleanupContext(parent, time.Minute)
		defer done()
		if ctx.Err() != nil {
			t.Fatal("ended with its parent")
		}
		insist()
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("goes on although the user insists")
		}
	})
}

// There can be as many late parts as runners: they share a line.
func TestLatePartsShareALine(t *testing.T) {
	t.Parallel()
	var late []error
	for i := range 1000 {
		late = append(late, &lateError{fmt.Sprintf("runner %d", i), "did not stop within 21s"})
	}
	late = append(late, errors.New("proxy: full disk"), &lateError{"algorithm", "did not stop within 2s"})
	const want = "proxy: full disk\nrunner 0, runner 1, runner 2 and 997 others did not stop within 21s\nalgorithm did not stop within 2s"
	if got := errors.Join(merged(late)...).Error(); got != want {
		t.Errorf("got %s", got)
	}
}

// Runners that all fail for one reason, such as a key without the scope, say it once.
func TestOneReasonIsSaidOnce(t *testing.T) {
	t.Parallel()
	denied := errors.New("the key has the scopes (train)")
	var logs bytes.Buffer
	ended := make(chan *part, 3)
	failing := func(i int, err error) *part {
		stopped := make(chan struct{})
		return start(fmt.Sprintf("runner %d", i), ended, func() error { <-stopped; return err },
			stopStep{name: "cancel", do: func() error { close(stopped); return nil }, wait: time.Minute})
	}
	s := &supervisor{log: slog.New(slog.NewTextHandler(&logs, nil)), ended: ended, runners: []*part{
		failing(1, errors.Join(fmt.Errorf("worker 1: %w", denied))), failing(2, fmt.Errorf("worker 2: %w", fmt.Errorf("read: %w", denied))),
		start("runner 0", ended, func() error { return fmt.Errorf("worker 0: %w", denied) }),
	}}
	if err := s.supervise(t.Context()); !errors.Is(err, denied) || err.Error() != "runner 0: worker 0: "+denied.Error() {
		t.Errorf("error %v", err)
	}
	if text := logs.String(); strings.Contains(text, "worker 1") || !strings.Contains(text, `msg="while stopping" error="runner 2: worker 2: read: `) {
		t.Errorf("logs:\n%s\nwant what worker 2 read and nothing of worker 1", text)
	}
}

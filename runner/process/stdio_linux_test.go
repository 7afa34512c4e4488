package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner/process"
)

// betweenTasks, when set, makes the test binary a kept agent, and says what that does when its second task is in its input.
const betweenTasks = "AGL_TEST_BETWEEN_TASKS"

func TestBetweenTasksAgent(*testing.T) {
	then := os.Getenv(betweenTasks)
	if then == "" {
		return
	}
	input := bufio.NewReader(os.Stdin)
	for {
		if _, err := input.ReadString('\n'); err != nil {
			os.Exit(0)
		}
		fmt.Fprintln(os.Stdout, `{"reward": 1}`)
		if then == "reply at once" {
			fmt.Fprintln(os.Stdout, `{"reward": 2}`)
			continue
		}
		next := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
		for _, err := unix.Poll(next, -1); errors.Is(err, unix.EINTR); {
			_, err = unix.Poll(next, -1)
		}
		if then == "end" {
			os.Exit(3)
		}
		fmt.Fprintln(os.Stdout, `{"reward": 2}`)
		select {} // the task stays unread
	}
}

// A kept process may do a number of tasks and end. If it replies more than once to a task, no other task gets the reward.
func TestKeepaliveBetweenTasks(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const (
		good   = "ok [{primary 1}]"
		failed = "agent_error []"
		again  = "the agent replied more than once"
	)
	for then, test := range map[string]struct {
		want []string
		log  string
	}{
		"end":           {[]string{good, good, good}, ""},
		"reply later":   {[]string{good, failed, good}, again},
		"reply at once": {[]string{good}, again}, // the rest depends on who reads first
	} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var log strings.Builder
			cfg := shell("")
			cfg.Command = []string{self, "-test.run=^TestBetweenTasksAgent$"}
			cfg.Env, cfg.Keepalive = []string{betweenTasks + "=" + then}, process.KeepaliveStdio
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			agent := w.agent(cfg)
			for _, want := range test.want {
				got := w.step(agent, agl.EnqueueRollout{})
				if text := fmt.Sprint(got.kind, " ", got.rewards); text != want || want == failed && !strings.Contains(got.message, again) {
					t.Errorf("got %s (%s), want %s", text, got.message, want)
				}
			}
			agent.Close() // which has read all that the processes have written
			if got := log.String(); !strings.Contains(got, test.log) || test.log == "" && got != "" {
				t.Errorf("logged %q, want %q", got, test.log)
			}
		})
	}
}

// A program that looks for its task elsewhere than in its standard input fails with a word of where that is.
func TestKeepaliveUnreadTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const hint = "exit status 1 before it had read its task, which is a line of its standard input with keepalive: no task"
	for script, hinted := range map[string]bool{"echo no task >&2; exit 1": true, "read line; echo no task >&2; exit 1": false} {
		cfg := shell(script)
		cfg.Keepalive = process.KeepaliveStdio
		if got := w.step(w.agent(cfg), agl.EnqueueRollout{}); got.kind != agl.OutcomeAgentError || strings.Contains(got.message, hint) != hinted {
			t.Errorf("%s: got %+v, want the hint: %t", script, got, hinted)
		}
	}
}

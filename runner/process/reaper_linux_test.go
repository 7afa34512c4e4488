package process_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner/process"
)

// reaperScript, when set, makes the test binary a program with a reaper, which
// must be the only one to start processes.
const (
	reaperScript = "AGL_TEST_REAPER_SCRIPT"
	reaperLimit  = "AGL_TEST_REAPER_LIMIT"
)

// underReaper runs the script as an agent many times, as a program with a reaper
// would, and prints how each run ended and what was left behind.
func underReaper() error {
	limit, err := time.ParseDuration(os.Getenv(reaperLimit))
	if err != nil {
		return err
	}
	reaper, err := process.NewReaper()
	if err != nil {
		return err
	}
	agent, err := process.New(process.Config{
		Command: []string{"/bin/sh", "-c", os.Getenv(reaperScript)}, Environ: os.Environ(),
		Timeout: limit, GracePeriod: 20 * time.Millisecond, Reaper: reaper,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	fmt.Fprintln(os.Stdout, "started")
	const runs = 16
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			task := agl.Task{Attempt: agl.Attempt{AttemptID: fmt.Sprintf("at-%d", i)}}
			_, err := agent.Run(ctx, task)
			fmt.Fprintln(os.Stdout, "run:", agl.OutcomeOf(err).Kind)
		})
	}
	wg.Wait()
	agent.Close()
	children, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "children: %q\n", children)
	return reaper.Close()
}

func reaperCommand(t *testing.T, script, limit string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), reaperScript+"="+script, reaperLimit+"="+limit, "TMPDIR="+t.TempDir())
	return cmd
}

func TestReaper(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script, limit string // %s is the mark of what must not survive
		kind          agl.OutcomeKind
	}{
		"a session of its own":    {`setsid sleep %s & exit 0`, "1m", agl.OutcomeOK},
		"no environment":          {`env -i setsid sleep %s & exit 0`, "1m", agl.OutcomeOK},
		"a tree":                  {`setsid sh -c 'sleep %[1]s & sleep %[1]s & env -i setsid sh -c "sleep %[1]s & sleep %[1]s" & wait' & exit 0`, "1m", agl.OutcomeOK},
		"of a killed agent":       {`trap "" TERM; setsid sleep %s & sleep 60`, "100ms", agl.OutcomeTimeout},
		"dead ones of the living": {`for i in 1 2 3; do sh -c 'setsid sleep 0.01 &'; done; sleep 0.05`, "1m", agl.OutcomeOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mark := unique(t)
			script := test.script
			if strings.Contains(script, "%") {
				script = fmt.Sprintf(script, mark)
			}
			out, err := reaperCommand(t, script, test.limit).CombinedOutput()
			if err != nil || strings.Count(string(out), "run: "+string(test.kind)+"\n") != 16 || !strings.Contains(string(out), `children: ""`) {
				t.Errorf("error %v, output:\n%s", err, out)
			}
			if left := survivors(t, "sleep\x00"+mark); len(left) > 0 {
				t.Errorf("%v survived", left)
			}
		})
	}
}

func TestAgentsDieWithTheirRunner(t *testing.T) {
	t.Parallel()
	mark := unique(t)
	cmd := reaperCommand(t, "exec sleep "+mark, "1m")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("got %q, error %v", line, err)
	}
	until(t, "16 agents run", func() bool { return len(survivors(t, "sleep\x00"+mark)) == 16 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	until(t, "no agent is left", func() bool { return len(survivors(t, "sleep\x00"+mark)) == 0 })
}

// until polls, since other processes tell nobody when they are ready.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(what + ": not yet at the end of the test")
		}
	}
}

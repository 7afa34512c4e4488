//go:build unix

package e2e

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
)

// The strategies of the table.
const (
	sharedMemory = "shared memory"
	managed      = "managed store"
	external     = "external store"
	foreground   = "runners in the foreground" // and the algorithm in a child process
)

func everywhere() []string { return []string{sharedMemory, managed, external, foreground} }

// Exit codes. If a signal ended the process, the code is minus the signal's number.
const (
	killed     = -int(syscall.SIGKILL)
	ctrlC      = 130
	terminated = 143
)

// death is a row of the table: which process dies first, and the required consequences. In
// every row no process may remain, and no rollout that an agent has finished may be lost.
type death struct {
	name       string
	strategies []string
	args       []string
	// happen causes the death; nil if the program does so itself.
	happen func(t *testing.T, p *started, server *started)
	exit   int
	stderr string // a part of the program's standard error
	// unreported is how many runners may have been killed between the end of
	// their agent's work and their report.
	unreported int
	// storeDies says that the store ends, too, so that nothing can be read from it.
	storeDies bool
}

const (
	briefly = "--patience=400ms" // a process that does not answer is soon killed
	forever = "--patience=1h"    // no process is killed before the test has failed
	four    = "--rollouts=4"
	// outage of the store is longer than any of its answers takes on a busy machine.
	outage = "--store-outage=3s"
)

func deaths() []death {
	processes := []string{managed, external}
	press := func(signals ...syscall.Signal) func(*testing.T, *started, *started) {
		return func(_ *testing.T, p, _ *started) {
			p.await(saidReturned, 6)
			p.signalGroup(signals[0])
		}
	}
	return []death{
		{name: "nobody", strategies: everywhere(), args: []string{"--rollouts=8"}},
		// Its runner gives it up, and is not killed, however long that takes.
		{name: "the algorithm, well, an agent is deaf", strategies: everywhere(), args: []string{four, "--stuck=1", "--agent=deaf", "--first=100ms"}},
		{
			name: "the algorithm, well, a runner process is frozen", strategies: processes,
			args: []string{four, "--stuck=1", "--agent=freezes", briefly}, exit: 1, stderr: "signal: killed",
		},
		{name: "the algorithm, by an error", strategies: everywhere(), args: []string{four, "--algorithm=fails"}, exit: 1, stderr: "program: "},
		{
			name: "the algorithm's process, killed", strategies: []string{sharedMemory, managed, foreground}, args: []string{briefly},
			happen: killMain, exit: killed, storeDies: true,
		},
		{name: "the algorithm's process, killed", strategies: []string{external}, happen: killMain, exit: killed},
		{
			name: "the algorithm's process, killed, a runner is deaf", strategies: processes, args: []string{four, "--stuck=1", "--agent=deaf", "--algorithm=waits", briefly},
			happen: func(t *testing.T, p, _ *started) {
				p.await(saidStuck, 1)
				signal(t, p.cmd.Process.Pid, syscall.SIGKILL)
			}, exit: killed, storeDies: true,
		},
		{
			name: "the algorithm's child process, killed", strategies: []string{foreground},
			happen: func(t *testing.T, p, _ *started) {
				p.await(saidReturned, 6)
				signal(t, p.pids(saidAlgorithm, 1)[0], syscall.SIGKILL)
			},
			exit: 1, stderr: "signal: killed",
		},
		{
			name: "all runners, well", strategies: everywhere(), args: []string{four, "--max-rollouts=2", "--algorithm=lingers"},
			happen: func(t *testing.T, p, _ *started) {
				p.awaitStderr("all runners have ended")
				signal(t, p.pids(saidAlgorithm, 1)[0], syscall.SIGUSR1)
			},
		},
		{name: "a runner, by an error", strategies: everywhere(), args: []string{"--max-rollouts=2", "--runner-fails"}, exit: 1, stderr: "program: "},
		{
			name: "a runner, its agent exits", strategies: processes, args: []string{four, "--stuck=1", "--agent=exits", "--algorithm=waits"},
			exit: 1, stderr: "exit status 7",
		},
		{
			name: "a runner, killed", strategies: processes, exit: 1, stderr: "signal: killed", unreported: 1,
			happen: func(t *testing.T, p, _ *started) {
				p.await(saidReturned, 6)
				signal(t, p.pids(saidRunner, 2)[0], syscall.SIGKILL)
			},
		},
		{
			name: "a runner, killed, the algorithm is deaf", strategies: processes,
			args: []string{four, "--algorithm=deaf", briefly}, exit: 1, stderr: "signal: killed", unreported: 1,
			happen: func(t *testing.T, p, _ *started) {
				p.await(saidProcessed, 1)
				signal(t, p.pids(saidRunner, 2)[0], syscall.SIGKILL)
			},
		},
		{
			name: "the server, killed", strategies: []string{external}, args: []string{outage, briefly}, exit: 1, storeDies: true,
			happen: func(t *testing.T, p, server *started) {
				p.await(saidReturned, 6)
				signal(t, server.cmd.Process.Pid, syscall.SIGKILL)
			},
		},
		{name: "the terminal, by Ctrl-C", strategies: everywhere(), happen: press(syscall.SIGINT), exit: ctrlC},
		{name: "the terminal, by SIGTERM", strategies: everywhere(), happen: press(syscall.SIGTERM), exit: terminated},
		{
			name: "the terminal, by Ctrl-C, an agent is deaf", strategies: everywhere(),
			args:   []string{four, "--stuck=1", "--agent=deaf", "--algorithm=deaf", briefly},
			happen: func(_ *testing.T, p, _ *started) { p.await(saidProcessed, 1); p.signalGroup(syscall.SIGINT) }, exit: ctrlC,
		},
		{
			name: "the terminal, by Ctrl-C, a runner process is frozen", strategies: processes,
			args:   []string{four, "--stuck=1", "--agent=freezes", "--algorithm=waits", briefly},
			happen: func(_ *testing.T, p, _ *started) { p.await(saidProcessed, 1); p.signalGroup(syscall.SIGINT) }, exit: ctrlC,
		},
		{
			name: "the terminal, by Ctrl-C twice", strategies: everywhere(),
			args: []string{four, "--stuck=1", "--agent=deaf", "--algorithm=deaf", forever}, exit: ctrlC,
			happen: func(_ *testing.T, p, _ *started) {
				p.await(saidProcessed, 1)
				p.await(saidStuck, 1)
				p.signalGroup(syscall.SIGINT)
				p.awaitStderr("interrupted, stopping")
				p.signalGroup(syscall.SIGINT)
			},
		},
	}
}

func killMain(t *testing.T, p, _ *started) {
	t.Helper()
	p.await(saidReturned, 6)
	signal(t, p.cmd.Process.Pid, syscall.SIGKILL)
}

func TestWhoDiesFirst(t *testing.T) {
	t.Parallel()
	for _, row := range deaths() {
		for _, strategy := range row.strategies {
			t.Run(row.name+"/"+strategy, func(t *testing.T) {
				t.Parallel()
				row.check(t, strategy)
			})
		}
	}
}

func (d death) check(t *testing.T, strategy string) {
	t.Helper()
	args, env := slices.Clone(d.args), []string{execution.EnvServerPort + "=0"}
	var server *started
	var url string
	switch strategy {
	case sharedMemory:
		args = append(args, "--strategy=shared-memory")
	case managed:
		args = append(args, "--strategy=client-server")
	case foreground:
		args = append(args, "--strategy=client-server", "--main=runner")
	case external:
		server, url = startStore(t)
		args = append(args, "--strategy=client-server")
		env = append(env, execution.EnvStoreURL+"="+url)
	}
	p := startProgram(t, env, args...)
	if d.happen != nil {
		d.happen(t, p, server)
	}
	if exit := p.end(); exit != d.exit {
		t.Errorf("exit code %d, want %d", exit, d.exit)
	}
	if d.stderr != "" && !strings.Contains(p.stderr.String(), d.stderr) {
		t.Errorf("standard error does not mention %q", d.stderr)
	}
	if d.storeDies {
		return
	}
	there := map[string]agl.RolloutStatus{}
	if server != nil {
		there = statuses(t, connect(t, url))
	}
	for _, id := range p.seen[saidStored] {
		there[id] = agl.RolloutSucceeded
	}
	checkKept(t, p.seen[saidReturned], there, d.unreported)
}

// pids returns the ids of the processes that have printed such a line.
func (s *started) pids(as string, n int) []int {
	s.t.Helper()
	var pids []int
	for _, line := range s.await(as, n) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			s.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// awaitStderr waits until standard error contains a text.
func (s *started) awaitStderr(text string) {
	s.t.Helper()
	deadline := time.After(longest)
	for !strings.Contains(s.stderr.String(), text) {
		select {
		case <-s.stderr.news:
		case <-deadline:
			s.t.Fatalf("waited %s for %q on standard error", longest, text)
		}
	}
}

//go:build unix

package e2e

import (
	"slices"
	"syscall"
	"testing"

	"github.com/agl-go/agl/execution"
)

// startAlgorithm runs the algorithm with a managed store and no runners.
func startAlgorithm(t *testing.T, args ...string) (p *started, url string) {
	t.Helper()
	p = startProgram(t, []string{execution.EnvRole + "=algorithm", execution.EnvServerPort + "=0"},
		append([]string{"--strategy=client-server"}, args...)...)
	return p, p.await(saidListening, 1)[0]
}

// startRunner runs a runner as on another machine, not as a child of the algorithm.
func startRunner(t *testing.T, url string, args ...string) *started {
	t.Helper()
	return startProgram(t, []string{execution.EnvRole + "=runner", execution.EnvStoreURL + "=" + url},
		append([]string{"--strategy=client-server"}, args...)...)
}

func checkExit(t *testing.T, who string, p *started, want int) {
	t.Helper()
	if exit := p.end(); exit != want {
		t.Errorf("%s: exit code %d, want %d; its standard error:\n%s", who, exit, want, p.stderr)
	}
}

func TestRemoteRunnersHearThatTrainingHasEnded(t *testing.T) {
	t.Parallel()
	algorithm, url := startAlgorithm(t, "--rollouts=8", "--algorithm=lingers")
	one, two := startRunner(t, url), startRunner(t, url, "--runners=3")
	const all = 5
	awaitWorkers(t, connect(t, url), all)
	signal(t, algorithm.cmd.Process.Pid, syscall.SIGUSR1)
	checkExit(t, "the algorithm", algorithm, 0)
	checkExit(t, "a runner", one, 0)
	checkExit(t, "another runner", two, 0)
}

func TestReportOfARemoteRunnerLandsAfterTrainingHasEnded(t *testing.T) {
	t.Parallel()
	algorithm, url := startAlgorithm(t, "--stuck=1", four)
	runner := startRunner(t, url, "--runners=1", "--agent=lingers")
	late := runner.await(saidStuck, 1)[0]
	algorithm.awaitStderr("training has ended")
	signal(t, runner.cmd.Process.Pid, syscall.SIGUSR1)
	checkExit(t, "the runner", runner, 0)
	checkExit(t, "the algorithm", algorithm, 0)
	if !slices.Contains(algorithm.seen[saidStored], late) {
		t.Errorf("the store has %v, without %s, which was finished after training had ended", algorithm.seen[saidStored], late)
	}
}

func TestRemoteRunnerDies(t *testing.T) {
	t.Parallel()
	t.Run("killed, another takes over", func(t *testing.T) {
		t.Parallel()
		algorithm, url := startAlgorithm(t, "--rollouts=100", "--unresponsive=1s")
		first := startRunner(t, url)
		first.await(saidReturned, 6)
		signal(t, first.cmd.Process.Pid, syscall.SIGKILL)
		checkExit(t, "the first runner", first, killed)
		second := startRunner(t, url)
		checkExit(t, "the second runner", second, 0)
		checkExit(t, "the algorithm", algorithm, 0)
		const all = 100
		if stored := len(algorithm.seen[saidStored]); stored != all {
			t.Errorf("%d rollouts have succeeded, want %d", stored, all)
		}
	})
	t.Run("by Ctrl-C, another takes over", func(t *testing.T) {
		t.Parallel()
		// A claim that was on its way when the runner left has nobody to do it, and
		// is given to another as one of a killed runner is.
		algorithm, url := startAlgorithm(t, "--rollouts=100", "--unresponsive=1s")
		first := startRunner(t, url)
		first.await(saidReturned, 6)
		first.signalGroup(syscall.SIGINT)
		checkExit(t, "the first runner", first, ctrlC)
		second := startRunner(t, url)
		checkExit(t, "the second runner", second, 0)
		checkExit(t, "the algorithm", algorithm, 0)
	})
}

func TestRemoteRunnerOutlivesTheAlgorithm(t *testing.T) {
	t.Parallel()
	t.Run("its store is away, too", func(t *testing.T) {
		t.Parallel()
		algorithm, url := startAlgorithm(t)
		runner := startRunner(t, url, briefly, outage)
		runner.await(saidReturned, 6)
		signal(t, algorithm.cmd.Process.Pid, syscall.SIGKILL)
		checkExit(t, "the algorithm", algorithm, killed)
		checkExit(t, "the runner", runner, 1)
	})
	t.Run("and serves the next one", func(t *testing.T) {
		t.Parallel()
		_, url := startStore(t)
		env := []string{execution.EnvRole + "=algorithm", execution.EnvStoreURL + "=" + url}
		first := startProgram(t, env, "--strategy=client-server")
		runner := startRunner(t, url)
		runner.await(saidReturned, 6)
		signal(t, first.cmd.Process.Pid, syscall.SIGKILL)
		checkExit(t, "the first algorithm", first, killed)
		second := startProgram(t, env, "--strategy=client-server", "--rollouts=8")
		checkExit(t, "the second algorithm", second, 0)
		checkExit(t, "the runner", runner, 0)
		checkKept(t, runner.seen[saidReturned], statuses(t, connect(t, url)), 0)
	})
}

//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/test/process"
	"github.com/go-json-experiment/json"
)

// envAgent makes the test binary an agent for many tasks. Its value is the kind of agent.
const envAgent = "AGL_E2E_AGENT"

// The kinds of agents.
const (
	agentCounts = "counts" // rewards the number of the task
	agentAsks   = "asks"   // asks the model, and rewards certain replies
	agentHangs  = "hangs"  // has a child in a session of its own, and never ends
)

// middleFile names the metrics of a run and a number of their lines: while its folder has this file, a run that has got so far
// stays there, to be killed there.
const middleFile = "middle"

// stdioTask is the line that a kept process gets.
type stdioTask struct {
	AttemptID string `json:"attempt_id"`
	Task      struct {
		N int `json:"n"`
	} `json:"task"`
	Env map[string]string `json:"env"`
}

// agent serves tasks until its input ends.
func agent(kind string) error {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		var t stdioTask
		if err := json.Unmarshal(scanner.Bytes(), &t); err != nil {
			return err
		}
		reward, err := work(kind, t)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stdout, `{"attempt_id":%q,"reward":%v}`+"\n", t.AttemptID, reward)
	}
	return scanner.Err()
}

func work(kind string, t stdioTask) (reward float64, err error) {
	if err := whileInMiddle(filepath.Join(os.Getenv("PIDS"), middleFile)); err != nil {
		return 0, err
	}
	switch kind {
	case agentAsks:
		reply, err := ask(t)
		return float64(strings.Count(reply, "7")+strings.Count(reply, "a")) / 4, err
	case agentHangs:
		child := exec.Command("sleep", "3600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			return 0, err
		}
		name := filepath.Join(os.Getenv("PIDS"), strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(child.Process.Pid))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return 0, err
		}
		never := make(chan os.Signal, 1)
		ossignal.Notify(never, syscall.SIGUSR1) // select {} alone ends as a deadlock
		<-never
		return 0, nil
	default:
		return float64(t.Task.N%5) / 4, nil
	}
}

// whileInMiddle returns when there is no such middleFile, or the metrics have fewer lines than it says. It polls, because the
// test is another process.
func whileInMiddle(path string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		file, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		var lines int
		var metrics string
		if _, err := fmt.Sscan(string(file), &lines, &metrics); err != nil {
			return err
		}
		if got, err := os.ReadFile(metrics); bytes.Count(got, []byte("\n")) < lines {
			return nil
		} else if err != nil {
			return err
		}
		<-tick.C
	}
}

// stayAt writes the middleFile of a run that is to be started. leave removes it.
func stayAt(t *testing.T, runFile, metrics string, lines int) (leave func()) {
	t.Helper()
	path := filepath.Join(filepath.Dir(runFile), middleFile)
	if err := os.WriteFile(path, fmt.Appendln(nil, lines, metrics), 0o600); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// ask asks the model with the rollout's seed, so that the run can be repeated.
func ask(t stdioTask) (string, error) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":6,"seed":%s,"messages":[{"role":"user","content":"say %d"}]}`, t.Env["OPENAI_MODEL"], t.Env["AGL_SEED"], t.Task.N)
	resp, err := http.Post(t.Env["OPENAI_BASE_URL"]+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var completion struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if err := json.UnmarshalRead(resp.Body, &completion); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK || len(completion.Choices) == 0 {
		return "", fmt.Errorf("the model's server answered %s", resp.Status)
	}
	return completion.Choices[0].Message.Content, nil
}

// runFile writes a run file for an agent of the kind, and its tasks.
func runFile(t *testing.T, kind string, tasks int, rest string) (path string) {
	t.Helper()
	dir := process.Dir(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for n := range tasks {
		fmt.Fprintf(&lines, `{"n":%d}`+"\n", n)
	}
	text := fmt.Sprintf(`agent:
  command: [%s]
  env: {%s: %s, PIDS: %s}
  keepalive: stdio
  concurrency: 4
  grace: 200ms
data: {train: tasks.jsonl}
seed: 5
%s
`, self, envAgent, kind, dir, rest)
	path = filepath.Join(dir, "agl.yaml")
	for name, content := range map[string]string{"tasks.jsonl": lines.String(), "agl.yaml": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// train is agl train; what it writes is in a file.
type train struct {
	cmd *exec.Cmd
	log string
}

func startTrain(t *testing.T, args ...string) *train {
	t.Helper()
	return startTrainAs(t, token, args...)
}

// startTrainAs is startTrain with a key, or the token.
func startTrainAs(t *testing.T, key string, args ...string) *train {
	t.Helper()
	run := &train{cmd: exec.CommandContext(t.Context(), aglBinary, append([]string{"train"}, args...)...), log: filepath.Join(process.Dir(t), "log")}
	log, err := os.Create(run.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the program has it, too
	run.cmd.Stdout, run.cmd.Stderr = log, log
	run.cmd.Env = append(os.Environ(), "TMPDIR="+process.Dir(t), "AGL_TOKEN="+key)
	if err := run.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return run
}

// said returns what the program has written so far.
func (r *train) said(t *testing.T) string {
	t.Helper()
	return strings.Join(readLines(t, r.log), "")
}

// end waits for the program and checks its exit code; -1 is a signal.
func (r *train) end(t *testing.T, want int) {
	t.Helper()
	err := r.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := r.cmd.ProcessState.ExitCode(); got != want {
		t.Fatalf("exit code %d, want %d\n%s", got, want, r.said(t))
	}
}

// killWhen kills the program with SIGKILL once its metrics have this number of lines.
func (r *train) killWhen(t *testing.T, metrics string, count int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the program has said:\n%s", r.said(t))
		}
	}()
	eventually(t, "metrics", func() bool { return len(readLines(t, metrics)) >= count })
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end(t, -1)
}

// eventually waits for a condition. It polls, because the condition depends on another
// process.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(longest); !is(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(data)))
}

// facts returns the lines of a metrics file without the values that differ between equal runs:
// ids and durations.
func facts(t *testing.T, path string) []string {
	t.Helper()
	varying := regexp.MustCompile(`"(rollout_id|resources_id)":"[^"]*",?|"seconds":\{[^}]*\},?|"tokens_per_second":[^,}]*,?`)
	var all []string
	for _, line := range readLines(t, path) {
		all = append(all, varying.ReplaceAllString(line, ""))
	}
	slices.Sort(all) // tasks of the baseline end in any order
	return all
}

// A run that is killed with SIGKILL and resumes must end with the same facts as an undisturbed
// one: for the baseline those of each task, and where a model is trained those of each step, to
// the last digit of the loss.
func TestKilledTrainGoesOn(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind, rest  string
		tasks, kill int // after so many lines of metrics
	}{
		"baseline": {kind: agentCounts, rest: "algorithm: {baseline: {}}", tasks: 120, kill: 30},
		"grpo": {kind: agentAsks, tasks: 8, kill: 5, rest: `engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16}}
algorithm: {grpo: {steps: 9, prompts_per_step: 3, group_size: 4, checkpoint_every: 2}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := runFile(t, test.kind, test.tasks, test.rest)
			whole, killed := filepath.Join(process.Dir(t), "whole"), filepath.Join(process.Dir(t), "killed")
			startTrain(t, file, "--output", whole).end(t, 0)

			metrics := filepath.Join(killed, "metrics.jsonl")
			leave := stayAt(t, file, metrics, test.kill)
			first := startTrain(t, file, "--output", killed)
			first.killWhen(t, metrics, test.kill)
			leave()
			second := startTrain(t, file, "--output", killed)
			second.end(t, 1)
			if said := second.said(t); !strings.Contains(said, "not finished; resume it with --resume") {
				t.Errorf("a new run over the killed one: %s", said)
			}
			startTrain(t, "--resume", killed).end(t, 0)

			want, got := facts(t, filepath.Join(whole, "metrics.jsonl")), facts(t, metrics)
			if !slices.Equal(want, got) {
				t.Errorf("a run left alone:\n%s\nkilled and resumed:\n%s", strings.Join(want, ""), strings.Join(got, ""))
			}
			report, err := os.ReadFile(filepath.Join(killed, "report.md"))
			if err != nil || !strings.Contains(string(report), "resumed once") {
				t.Errorf("the report: %v\n%s", err, report)
			}
		})
	}
}

// Runners elsewhere work with keys of their own, which the proxy of the run takes as well as the store. One that finds a closed
// queue says why it ends.
func TestTrainWithKeyedRunners(t *testing.T) {
	t.Parallel()
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		_, url := startStore(t)
		trainWithKeyedRunners(t, url)
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		certs := process.Dir(t)
		if made, err := exec.CommandContext(t.Context(), aglBinary, "cert", certs).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, made)
		}
		_, url := startStoreOn(t, "memory:", "--tls-cert", filepath.Join(certs, "server.pem"), "--tls-key", filepath.Join(certs, "server.key"))
		trainWithKeyedRunners(t, url, "--ca", filepath.Join(certs, "ca.pem"))
	})
}

func trainWithKeyedRunners(t *testing.T, url string, trust ...string) {
	t.Helper()
	file := runFile(t, agentAsks, 4, `engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16}}
algorithm: {grpo: {steps: 2, prompts_per_step: 2, group_size: 4}}`)
	at := append([]string{"--store", url}, trust...)
	created, err := exec.CommandContext(t.Context(), aglBinary, append([]string{"key", "create", "fleet", "--scope", "runner"}, at...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(created))
	key := lines[len(lines)-1]
	runner := startTrainAs(t, key, append([]string{file, "--role", "runner"}, at...)...)
	startTrain(t, append([]string{file, "--role", "algorithm"}, at...)...).end(t, 0)
	runner.end(t, 0)
	if said := runner.said(t); !strings.Contains(said, "the run has ended: this runner has made ") {
		t.Errorf("the runner said:\n%s", said)
	}
	list := exec.CommandContext(t.Context(), aglBinary, append([]string{"rollouts", "--json"}, at...)...)
	said, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for line := range strings.Lines(string(said)) {
		var r agl.Rollout
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if all++; r.Status != agl.RolloutSucceeded {
			t.Errorf("rollout %s is %s", r.RolloutID, r.Status)
		}
	}
	if all < 16 {
		t.Errorf("%d rollouts, want those of two steps", all)
	}
	late := startTrainAs(t, key, append([]string{file, "--role", "runner"}, at...)...)
	late.end(t, 0)
	if said := late.said(t); !strings.Contains(said, "no work: the store's queue is closed") {
		t.Errorf("the late runner said:\n%s", said)
	}
}

// A person's AGL_TOKEN may be the key of another store: a run with a store of its own takes it as that store's token.
func TestTrainWithForeignKey(t *testing.T) {
	t.Parallel()
	const key = "agl_0123456789ab_of-another-store"
	file := runFile(t, agentAsks, 4, `engine: {policy: {layers: 1, dim: 16, heads: 1, ff: 16}}
algorithm: {grpo: {steps: 1, prompts_per_step: 2, group_size: 2}}`)
	startTrainAs(t, key, file).end(t, 0)
}

// The first signal must end a run even if its agents do not end, and leave no process behind,
// not even a child in another session. The second must end it at once.
func TestTrainLeavesNobodyBehind(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string][]os.Signal{
		"interrupt":       {os.Interrupt},
		"terminate":       {syscall.SIGTERM},
		"hangup":          {syscall.SIGHUP},
		"a second signal": {os.Interrupt, os.Interrupt},
		"kill":            {os.Kill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := runFile(t, agentHangs, 8, "algorithm: {baseline: {}}")
			run := startTrain(t, file)
			const agents = 4
			var pids []int
			eventually(t, "agents", func() bool {
				names, err := filepath.Glob(filepath.Join(filepath.Dir(file), "[0-9]*-[0-9]*"))
				if err != nil || len(names) < agents {
					return false
				}
				for _, name := range names {
					for part := range strings.SplitSeq(filepath.Base(name), "-") {
						pid, err := strconv.Atoi(part)
						if err != nil {
							t.Fatal(err)
						}
						pids = append(pids, pid)
					}
				}
				return true
			})
			for i, signal := range signals {
				if i > 0 {
					eventually(t, "a word", func() bool { return strings.Contains(run.said(t), "a second signal ends them sooner") })
				}
				if err := run.cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
			}
			want := -1
			if number, ok := signals[0].(syscall.Signal); ok && number != syscall.SIGKILL {
				want = 128 + int(number)
			}
			run.end(t, want)
			if want < 0 {
				// The children of killed agents are only found by a run that lives on.
				pids = slices.DeleteFunc(pids, func(pid int) bool { return isSleep(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil })
			}
			eventually(t, "the end of all agents", func() bool {
				return !slices.ContainsFunc(pids, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
			})
			if want > 0 && !strings.Contains(run.said(t), " train --resume "+filepath.Join(filepath.Dir(file), "runs", "agl")) {
				t.Errorf("it does not say how to go on:\n%s", run.said(t))
			}
		})
	}
}

func isSleep(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.TrimSpace(string(name)) == "sleep"
}

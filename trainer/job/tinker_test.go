package job

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
	"github.com/agl-go/agl/tinker/wire"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// envAgent makes the test binary an agent that asks the model.
const envAgent = "AGL_JOB_TEST_AGENT"

// envModels names further models that it asks.
const envModels = "AGL_JOB_TEST_MODELS"

// serveTasks is that agent: it does a task a line, and likes some letters.
func serveTasks(in io.Reader, out io.Writer) error {
	scanner := bufio.NewScanner(in)
	for scanner.Scan() {
		var task struct {
			AttemptID string            `json:"attempt_id"`
			Env       map[string]string `json:"env"`
		}
		if err := json.Unmarshal(scanner.Bytes(), &task); err != nil {
			return err
		}
		reply, err := ask(task.Env)
		for model := range strings.FieldsSeq(os.Getenv(envModels)) {
			if err == nil {
				task.Env["OPENAI_MODEL"] = model
				_, err = ask(task.Env)
			}
		}
		if err != nil {
			return err
		}
		liked := len(regexp.MustCompile("[a-m]").FindAllString(reply, -1))
		if _, err := fmt.Fprintf(out, `{"attempt_id":%q,"reward":%v}`+"\n", task.AttemptID, float64(liked)/6); err != nil {
			return err
		}
	}
	return scanner.Err()
}

// ask asks the model with the rollout's seed; a trial has none.
func ask(env map[string]string) (string, error) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":6,"seed":%s,"messages":[{"role":"user","content":"say"}]}`, env["OPENAI_MODEL"], cmp.Or(env["AGL_SEED"], "1"))
	resp, err := http.Post(env["OPENAI_BASE_URL"]+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, reply)
	}
	var completion struct {
		Choices []struct {
			Message struct{ Content string } `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(reply, &completion, json.MatchCaseInsensitiveNames(true)); err != nil {
		return "", err
	}
	return completion.Choices[0].Message.Content, nil
}

// fake is an engine elsewhere that is strict, and may misbehave.
type fake struct {
	url string

	mu     sync.Mutex
	bodies map[string][]string // of the calls, by path
}

func startFake(t *testing.T, cfg server.Config, fault func(tinkertest.Call) tinkertest.Fault) *fake {
	t.Helper()
	sizes := tinySizes()
	characters, err := chat.NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	sizes.Vocab, sizes.Dir = characters.Vocab(), t.TempDir()
	inner, err := tinkertest.New(tinkertest.Config{
		NewService: func() (tinker.Service, error) { return policy.NewService(sizes) }, Server: cfg, Fault: fault,
	})
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{bodies: map[string][]string{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the client has left
		}
		f.mu.Lock()
		path := strings.TrimPrefix(r.URL.Path, wire.Prefix)
		f.bodies[path] = append(f.bodies[path], string(body))
		f.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		inner.ServeHTTP(w, r)
	}))
	f.url = web.URL
	t.Cleanup(func() {
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
		web.Close()
	})
	return f
}

// sent are the bodies of the calls of a path.
func (f *fake) sent(path string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bodies[path]
}

func tinySizes() policy.Config { return policy.Config{Layers: 1, Dim: 16, Heads: 1, FF: 16} }

// grpoJob is a run of the agent that asks, on an engine.
func grpoJob(t *testing.T, e runfile.Engine) Config {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := shellJob(t, "")
	p := &cfg.File.Agent.Process
	p.Command, p.Env, p.Keepalive, p.MaxIdle = []string{self}, []string{envAgent + "=1"}, process.KeepaliveStdio, 4
	cfg.File.Algorithm = &algorithms.GRPO{Config: grpo.Config{TrainingConfig: algorithm.TrainingConfig{CheckpointEvery: 1}, Steps: 4, PromptsPerStep: 2, GroupSize: 3}}
	cfg.File.Engine = &e
	cfg.Environ = os.Environ()
	cfg.LookupEnv = func(name string) (string, bool) { return "secret", name == "KEY" }
	return cfg
}

// remoteJob is one on an engine elsewhere.
func remoteJob(t *testing.T, tk runfile.Tinker) Config {
	t.Helper()
	return grpoJob(t, runfile.Engine{Tinker: &tk})
}

// learned is what a run has learned, step by step.
func learned(t *testing.T, cfg Config) []string {
	t.Helper()
	steps, err := algorithm.ReadLines[grpo.StepReport](filepath.Join(cfg.File.Output, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range steps {
		all = append(all, fmt.Sprintf("step %d: reward %v, loss %.12g, %d updates", s.Step, s.RewardMean, s.Loss, s.Updates))
	}
	return all
}

func runJob(t *testing.T, cfg Config) *Result {
	t.Helper()
	result, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// An engine elsewhere learns what one of this process learns, whatever it is like.
func TestTinkerEngine(t *testing.T) {
	t.Parallel()
	here := grpoJob(t, runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}})
	here.File.Trackers.TensorBoard = filepath.Join(t.TempDir(), "board")
	runJob(t, here)
	if events, err := filepath.Glob(filepath.Join(here.File.Trackers.TensorBoard, "out", "events.*")); err != nil || len(events) != 1 || !strings.Contains(read(t, events[0]), "drift/entropy") {
		t.Errorf("event files %v (%v), want one with the metrics of steps", events, err)
	}
	want := learned(t, here)
	for name, test := range map[string]struct {
		tinker runfile.Tinker
		server server.Config
	}{
		"like ours": {runfile.Tinker{Model: "agl-policy", LoRARank: 8}, server.Config{Order: engines.Strict}},
		"a key":     {runfile.Tinker{Client: client.Config{APIKey: "env:KEY"}}, server.Config{APIKey: "secret"}},
		"protobuf":  {runfile.Tinker{Client: client.Config{Encoding: engines.Protobuf}}, server.Config{Encoding: engines.Protobuf}},
		"says nothing, snapshots change": {
			runfile.Tinker{Client: client.Config{Encoding: engines.JSON, Engine: &engines.Engine{Normalization: engines.Sum, WideSeeds: true, Vocab: 48, Context: 48}}},
			server.Config{Encoding: engines.JSON, HideEngine: true, Order: engines.Ignored},
		},
		"one at a time": {runfile.Tinker{Client: client.Config{MaxSamples: 1, ChunkData: 2}}, server.Config{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, test.server, nil)
			test.tinker.Client.URL = f.url
			cfg := remoteJob(t, test.tinker)
			result := runJob(t, cfg)
			if diff := gocmp.Diff(want, learned(t, cfg)); diff != "" {
				t.Errorf("here (-) and elsewhere (+):\n%s", diff)
			}
			if made, unloaded := f.sent(wire.CreateModel), f.sent(wire.UnloadModel); len(made) != 1 || len(unloaded) != 1 {
				t.Errorf("%d models made, %d unloaded", len(made), len(unloaded))
			} else if rank := max(test.tinker.LoRARank, 32-24*min(test.tinker.LoRARank, 1)); !strings.Contains(made[0], fmt.Sprintf(`"rank":%d,"seed":7`, rank)) {
				t.Errorf("the model is made by %s", made[0])
			}
			var found best
			if err := json.Unmarshal([]byte(read(t, filepath.Join(result.Output, bestDir, "best.json"))), &found); err != nil {
				t.Fatal(err)
			}
			if found.Weights != result.Best.Weights || found.Engine != f.url || found.WeightsFile != "" {
				t.Errorf("best %+v, weights %s", found, result.Best.Weights)
			}
			if report := read(t, result.Report); !strings.Contains(report, "| engine | "+f.url+", ") {
				t.Errorf("the report does not name the engine:\n%s", report)
			}
		})
	}
}

// An engine that starts anew while agents ask it ends the run at once, with an
// error that says so, and the run goes on to what it would have been.
func TestTinkerEngineStartsAnew(t *testing.T) {
	t.Parallel()
	alone := startFake(t, server.Config{}, nil)
	whole := remoteJob(t, runfile.Tinker{Client: client.Config{URL: alone.url}})
	runJob(t, whole)

	samples := 0
	f := startFake(t, server.Config{}, func(c tinkertest.Call) tinkertest.Fault {
		if c.Path == wire.Sample {
			if samples++; samples == 15 {
				return tinkertest.Restart
			}
		}
		return tinkertest.None
	})
	cfg := remoteJob(t, runfile.Tinker{Client: client.Config{URL: f.url, RetryFor: time.Second}})
	result, err := Run(t.Context(), cfg)
	if !errors.Is(err, agl.ErrNotFound) || !strings.Contains(err.Error(), "engine.tinker: "+f.url) || result.State != output.StateFailed {
		t.Fatalf("state %s, %v", result.State, err)
	}
	cfg.Resume = true
	runJob(t, cfg)
	if diff := gocmp.Diff(learned(t, whole), learned(t, cfg)); diff != "" {
		t.Errorf("left alone (-) and resumed (+):\n%s", diff)
	}
}

// Where nothing trains, the engine serves the weights that the file names until
// the end of the run.
func TestTinkerEngineServes(t *testing.T) {
	t.Parallel()
	f := startFake(t, server.Config{}, nil)
	first := remoteJob(t, runfile.Tinker{Client: client.Config{URL: f.url}})
	weights := runJob(t, first).Best.Weights

	cfg := remoteJob(t, runfile.Tinker{Client: client.Config{URL: f.url}, Weights: weights})
	cfg.File.Algorithm = &algorithms.Baseline{}
	if result := runJob(t, cfg); baselineOf(t, result).Train.Rewarded != 4 {
		t.Errorf("result %+v", result.Summary)
	}
	if loaded := f.sent(wire.LoadWeights); len(loaded) != 1 || !strings.Contains(loaded[0], weights) || len(f.sent(wire.UnloadModel)) != 2 {
		t.Errorf("loaded %q, unloaded %d", loaded, len(f.sent(wire.UnloadModel)))
	}

	trial, err := DryRun(t.Context(), cfg)
	if err != nil || len(trial.Triplets) != 1 || trial.Untrained {
		t.Errorf("trial %+v, %v", trial, err)
	}
	cfg.File.Agent.Process.Env = append(cfg.File.Agent.Process.Env, envModels+"=typo")
	trial, err = DryRun(t.Context(), cfg)
	if err != nil || !strings.Contains(trial.Outcome.Message, `its last call of the model failed: the model "typo" does not exist`) {
		t.Errorf("a wrong name of the model: trial %+v, %v", trial, err)
	}
}

// What is wrong with an engine is said before anything is run.
func TestTinkerEngineRefused(t *testing.T) {
	t.Parallel()
	f := startFake(t, server.Config{APIKey: "secret"}, nil)
	key := client.Config{URL: f.url, APIKey: "env:KEY"}
	gone := filepath.Join(t.TempDir(), "gone")
	for want, tk := range map[string]runfile.Tinker{
		"engine.tinker.api_key: the environment variable NONE is not set":                    {Client: client.Config{URL: f.url, APIKey: "env:NONE"}},
		"engine.tinker: " + f.url + `: the engine has no model "Qwen", only ["agl-policy"]`:  {Client: key, Model: "Qwen"},
		"engine.tinker: " + f.url + `: the chat format has 6 tokens, but the engine's model`: {Client: key, Chat: runfile.Chat{Characters: "ab"}},
		"engine.tinker: " + f.url + ": client: /client/config: 401":                          {Client: client.Config{URL: f.url}},
		"engine.tinker: http://127.0.0.1:1: client: /client/config: ":                        {Client: client.Config{URL: "http://127.0.0.1:1", RetryFor: -1}},
		"engine.tinker: " + gone + ": model: open ":                                          {Client: key, Chat: runfile.Chat{Folder: gone}},
		"there are no weights tinker://none/weights/none":                                    {Client: key, Weights: "tinker://none/weights/none"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			cfg := remoteJob(t, tk)
			result, err := Run(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), want) || result != nil {
				t.Errorf("result %+v, error %v", result, err)
			}
		})
	}
}

// TestUselessWeights: a run ends when its weights answer with no numbers any more, and its first checkpoint is its only one.
func TestUselessWeights(t *testing.T) {
	t.Parallel()
	cfg := grpoJob(t, runfile.Engine{Policy: &runfile.Policy{Config: tinySizes()}})
	a := cfg.File.Algorithm.(*algorithms.GRPO)
	a.Schedule, a.CheckpointEvery = algorithm.Schedule{Peak: 1e38, Floor: 1e38}, 2
	result, err := Run(t.Context(), cfg)
	if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "engine.policy: the weights have become useless: ") || result == nil || result.State != output.StateFailed {
		t.Errorf("got %+v, %v", result, err)
	}
	kept, err := filepath.Glob(filepath.Join(cfg.File.Output, "checkpoints", "*.json"))
	if want := filepath.Join(cfg.File.Output, "checkpoints", "checkpoint-00000000.json"); err != nil || !slices.Equal(kept, []string{want}) {
		t.Errorf("got the checkpoints %q, %v, want %q", kept, err, want)
	}
	var shown strings.Builder
	if err := result.Print(&shown, false); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(result.Report)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []string{shown.String(), string(report)} {
		if strings.Contains(got, "esume with") || !strings.Contains(got, "esuming would take the same learning rate") {
			t.Errorf("the result says:\n%s", got)
		}
	}
}

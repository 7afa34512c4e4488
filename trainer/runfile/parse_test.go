package runfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/extract"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/runfile"
)

// testdata is the folder, absolute, as the paths that are read in it.
func testdata(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func compare(t *testing.T, name string, want *runfile.File) *runfile.File {
	t.Helper()
	got, err := runfile.Read(filepath.Join("testdata", name), runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(policy.Config{}), cmpopts.IgnoreFields(algorithm.TrainingConfig{}, "Form")); diff != "" {
		t.Error(diff)
	}
	return got
}

func TestGRPO(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	got := compare(t, "grpo.yaml", &runfile.File{
		Agent: runfile.Agent{
			Process: process.Config{
				Command: []string{"sh", "-c", "exit 0", "7"}, Env: []string{"PYTHONPATH=lib", "DEBUG=1"}, AllowEnv: []string{"MODEL_KEY"}, Keep: true, GracePeriod: 2 * time.Second,
				OutputBytes: 64 << 10, MemoryBytes: 2 << 30, Keepalive: process.KeepaliveStdio, MaxIdle: 4,
			},
			Concurrency: 8,
			Rollout: agl.RolloutConfig{
				TimeoutSeconds: agl.Some(90.0), UnresponsiveSeconds: agl.Some(60.0), MaxAttempts: 3,
				RetryCondition: []agl.AttemptStatus{agl.AttemptTimeout, agl.AttemptUnresponsive},
			},
		},
		Data: runfile.Data{
			Train: &runfile.Tasks{
				Path: filepath.Join(dir, "tasks.csv"), Limit: 10, Options: dataset.Options{
					Format: dataset.FormatCSV, Columns: []dataset.Column{{Name: "q", As: "question"}, {Name: "answer"}},
					Types: map[string]dataset.Type{"answer": dataset.TypeNumber},
				},
			},
			Val:     &runfile.Tasks{Path: filepath.Join(dir, "tasks.jsonl")},
			Shuffle: true, Seed: 7,
		},
		Proxy: &runfile.Proxy{
			TLS:    runfile.TLS{Cert: filepath.Join(dir, "certs/server.pem"), Key: filepath.Join(dir, "certs/server.key"), Insecure: true},
			Listen: "127.0.0.1:4748", Model: "trained", Sampling: jsontext.Value(`{"temperature":1.0}`), ValSampling: jsontext.Value(`{"temperature":0}`),
			Config: proxy.Config{
				Models:   []proxy.Model{{Name: "judge", BaseURL: "https://api.openai.com/v1", APIKey: "env:OPENAI_API_KEY", TextOnly: true}},
				Control:  proxy.Control{Force: jsontext.Value(`{"seed":1}`), Rules: access.Rules{Models: []string{"tiny"}, CallsPerMinute: 600}},
				SpoolDir: filepath.Join(dir, "spool"), LogCalls: true,
			},
		},
		Engine: &runfile.Engine{Policy: &runfile.Policy{
			Config: policy.Config{Context: 32, Layers: 1, Dim: 32, Heads: 2, FF: 64}, Characters: "abc",
			WarmStart: &engine.WarmStart{
				Path: filepath.Join(dir, "demos.jsonl"), Steps: 100, Batch: 16, Schedule: algorithm.Schedule{Peak: 0.002, Floor: 0.002},
			},
		}},
		Algorithm: &algorithms.GRPO{Config: grpo.Config{
			TrainingConfig: algorithm.TrainingConfig{
				Schedule:   algorithm.Schedule{Peak: 3e-3, Warmup: 5, Hold: 10, Floor: 1e-4, Decay: algorithm.Linear},
				Adam:       tinker.AdamParams{Beta1: 0.8, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.01, GradClipNorm: 2},
				PassReward: 0.5, Validation: algorithm.Validation{N: 50}, CheckpointEvery: 10,
				ProcessedLogprobs: true,
			},
			Steps: 40, PromptsPerStep: 4, GroupSize: 6, Loss: tinker.Loss{Name: tinker.PPO, ClipLow: 0.9, ClipHigh: 1.5, Beta: 0.2}, Minibatches: 2,
			Baseline: grpo.LeaveOneOut, MaskTruncated: true, DynamicSampling: true, MaxGroupSize: 6, Overlong: grpo.Overlong{Limit: 400, Margin: 100, Penalty: 0.5}, Curriculum: &grpo.Curriculum{Explore: 0.3}, Correction: grpo.Correction{Kind: grpo.IcePop, Low: 0.6, High: 4},
			Async: grpo.Async{MaxStaleness: 2, Pin: grpo.PinRollout, Concurrency: 6, OnStale: admission.Wait, MinViable: 3, GroupTimeout: 90 * time.Second, Oversample: 2, Minibatches: 4}, KL: grpo.KL{Coefficient: 0.05, Reference: "tinker://m/weights/start"},
			PlainAdvantage: true, Credit: grpo.CreditTurn, Discount: 0.9, LengthNormalization: true, ValidateEvery: 5,
		}},
		Store: runfile.Store{
			Database: "sqlite:" + filepath.Join(dir, "kept/run.db"), Token: "env:STORE_TOKEN", Listen: "0.0.0.0:4747",
			TLS: runfile.TLS{Cert: filepath.Join(dir, "certs/server.pem"), Key: filepath.Join(dir, "certs/server.key")}, Unresponsive: 2 * time.Minute,
		},
		Trackers: runfile.Trackers{
			TensorBoard: filepath.Join(dir, "board"),
			MLflow:      &runfile.MLflow{URL: "http://127.0.0.1:5000", Token: "env:MLFLOW_TOKEN", Experiment: "calculators", RunName: "first"},
		},
		Output: filepath.Join(dir, "results"), Seed: 42,
	})
	if secrets := got.Secrets(); !slices.Equal(secrets, []string{"STORE_TOKEN", "OPENAI_API_KEY", "MLFLOW_TOKEN"}) {
		t.Errorf("the secrets are %q", secrets)
	}
	form := got.Algorithm.(*algorithms.GRPO).Form
	for task, want := range map[string]string{`{"kind":"a\"b"}`: `a"b`, `{"kind":7}`: "7", `{}`: "", `7`: ""} {
		if got := form(jsontext.Value(task)); got != want {
			t.Errorf("form of %s: got %q, want %q", task, got, want)
		}
	}
}

func TestTinker(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	want := func(tinker runfile.Tinker) *runfile.File {
		return &runfile.File{
			Agent:     runfile.Agent{Process: process.Config{Command: []string{"sh", "-c", "exit 0"}, Dir: dir}},
			Data:      runfile.Data{Train: &runfile.Tasks{Path: filepath.Join(dir, "tasks.jsonl")}},
			Proxy:     &runfile.Proxy{},
			Engine:    &runfile.Engine{Tinker: &tinker},
			Algorithm: &algorithms.GRPO{Config: grpo.Config{Steps: 1}},
		}
	}
	all := want(runfile.Tinker{
		Client: client.Config{
			URL: "http://127.0.0.1:8000", APIKey: "env:TINKER_API_KEY", Encoding: engines.Protobuf, MaxSamples: 64, ChunkData: 32, ChunkBytes: 2 << 20,
			RequestTimeout: 30 * time.Second, RetryFor: 5 * time.Minute, CallTimeout: 20 * time.Minute,
			Engine: &engines.Engine{
				Losses: []tinker.LossName{tinker.ImportanceSampling, tinker.PPO}, Normalization: engines.DatumMean, ImmutableSnapshots: true,
				OptimizerOptional: true, Deterministic: true, Idempotent: true, LoadDiscardsGradient: true, WideSeeds: true, AdvantagesOnly: true, Vocab: 151936, Context: 4096,
			},
		},
		Model: "Qwen/Qwen3-0.6B", LoRARank: 16, Seed: agl.Some[uint64](3), Weights: "tinker://model-1/weights/step-00000010",
		Chat: runfile.Chat{Folder: filepath.Join(dir, "model"), Style: pretrained.StyleHermes, Stop: []string{"<|im_end|>"}, Turns: 4096, TurnBytes: 1 << 30},
	})
	all.Output = filepath.Join(dir, "runs/tinker")
	if got := compare(t, "tinker.yaml", all); got.ModelSeed() != 3 || got.Engine.WarmStart() != nil {
		t.Errorf("seed of the model %d, warm start %v", got.ModelSeed(), got.Engine.WarmStart())
	}
	known, err := engines.Find(engines.SkyRLJAX)
	if err != nil {
		t.Fatal(err)
	}
	known.Deterministic, known.Vocab = false, 8
	characters := want(runfile.Tinker{
		Client: client.Config{URL: "http://127.0.0.1:4749", Engine: &known}, Chat: runfile.Chat{Characters: "abc"},
		WarmStart: &engine.WarmStart{
			Path: filepath.Join(dir, "demos.jsonl"), Steps: 100, Batch: 16, Schedule: algorithm.Schedule{Peak: 0.002, Floor: 0.002},
		},
	})
	characters.Output, characters.Seed, characters.Data.Seed = filepath.Join(dir, "runs/characters"), 9, 9
	if got := compare(t, "characters.yaml", characters); got.ModelSeed() != 9 || got.Engine.WarmStart() != got.Engine.Tinker.WarmStart {
		t.Errorf("seed of the model %d, warm start %v", got.ModelSeed(), got.Engine.WarmStart())
	}
}

func TestAPO(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	compare(t, "apo.yaml", &runfile.File{
		Agent: runfile.Agent{Process: process.Config{Command: []string{filepath.Join(dir, "agent.sh")}, Dir: dir}},
		Data:  runfile.Data{Train: &runfile.Tasks{Path: filepath.Join(dir, "tasks.jsonl")}, ValShare: 0.5},
		Prompts: []agl.NamedResource{
			{Name: "system", Resource: agl.PromptTemplate{Template: "Answer {question}\n", Engine: agl.PromptFString}},
			{Name: "user", Resource: agl.PromptTemplate{Template: "Answer {{ question }}\n", Engine: agl.PromptJinja}},
			{Name: "short", Resource: agl.PromptTemplate{Template: "Be brief, {name}", Engine: agl.PromptFString}},
		},
		Proxy: &runfile.Proxy{Config: proxy.Config{Models: []proxy.Model{{Name: "tiny", BaseURL: "http://127.0.0.1:8000/v1"}}}},
		Algorithm: &algorithms.APO{
			Gradient: apo.EndpointConfig{
				BaseURL: "https://api.openai.com/v1", Model: "gpt", APIKey: "env:OPENAI_API_KEY", RequestsPerSecond: 2.5, Timeout: time.Minute, MaxAttempts: 2, SendSeed: true,
			},
			Edit: &apo.EndpointConfig{Model: "tiny"},
			Config: apo.Config{
				GradientPrice: apo.Price{Prompt: 2.5, Completion: 10}, Budget: apo.Budget{Tokens: 1e6, Dollars: 3.5}, Temperature: agl.Some(0.7),
				Attempts: 2, BeamWidth: 3, BranchFactor: 2, Rounds: 5, GradientBatch: 6, ValBatch: 20, SkipInitialValidation: true, FinalSamples: 3,
				Level: 0.9, Resamples: 500, CritiquePrompts: []string{"{{.Prompt}}\n"}, EditPrompts: []string{"{{.Prompt}} {{.Critique}}\n"},
				ExperimentBytes: 4 << 10, Concurrency: 2, BatchTimeout: 30 * time.Minute,
			},
		},
		Store:  runfile.Store{URL: "http://store:4747"},
		Output: filepath.Join(dir, "runs/apo"),
	})
}

// TestLivePrompts: a run that tunes prompts on live sessions needs neither tasks nor an agent.
func TestLivePrompts(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	compare(t, "apo-live.yaml", &runfile.File{
		Prompts: []agl.NamedResource{{Name: "system", Resource: agl.PromptTemplate{Template: "Answer {question}\n", Engine: agl.PromptFString}}},
		Proxy: &runfile.Proxy{Listen: "127.0.0.1:4748", Config: proxy.Config{
			Models:   []proxy.Model{{Name: "gpt", BaseURL: "https://api.example.com/v1", TextOnly: true}},
			Sessions: proxy.Sessions{IdleTimeout: 15 * time.Minute, RewardWindow: 24 * time.Hour},
		}},
		Algorithm: &algorithms.APO{
			Gradient: apo.EndpointConfig{Model: "gpt"},
			Config: apo.Config{GradientBatch: 6, Live: &apo.Live{
				Sessions: 24, PerUser: 2, Filter: agl.CollectFilter{Metadata: map[string]string{"consent": "yes"}},
			}},
			Release: release.Proposal{Share: 0.1, Gates: release.Gates{
				MinGain: 0.01, MinSessions: 100, MaxSessions: 5000, Guards: []release.Guard{{Metric: "errors", Tolerance: 0.02}},
			}},
			Redaction: &algorithms.Redaction{Program: extract.Program{Command: []string{"./agent.sh", "--names"}, Dir: dir, Timeout: 5 * time.Second}},
		},
		Output: filepath.Join(dir, "runs/apo-live"),
	})
	for text, want := range map[string]string{
		"live: {release: {guards: {kl: 0.1}}}": "algorithm.apo.live.release.guards: the guard kl compares weights",
		"beam_width: 2, live: {}":              "algorithm.apo.beam_width: given together with live",
	} {
		_, err := runfile.Parse("f", []byte("prompts: {s: {text: a}}\nproxy: {models: [{name: gpt, base_url: 'http://x/v1'}], sessions: {idle_timeout: 1m}}\nalgorithm: {apo: {gradient_model: gpt, "+text+"}}"), dir, runfile.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	_, err := runfile.Parse("f", []byte("prompts: {s: {text: a}}\nproxy: {models: [{name: gpt, base_url: 'http://x/v1'}]}\nalgorithm: {apo: {gradient_model: gpt, live: {}}}"), dir, runfile.Options{})
	if err == nil || !strings.Contains(err.Error(), "give proxy.sessions") {
		t.Errorf("without sessions: %v", err)
	}
}

// TestRewardWindow: a run that learns from sessions waits for their rewards unless the file says otherwise; any other leaves it to the store.
func TestRewardWindow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"proxy: {sessions: {idle_timeout: 1m}}\nalgorithm: {online: {}}":                                                           runfile.DefaultRewardWindow,
		"proxy: {sessions: {idle_timeout: 1m, reward_window: 2h}}\nalgorithm: {online: {}}":                                        2 * time.Hour,
		"proxy: {sessions: {idle_timeout: 1m, reward_window: 0s}}\nalgorithm: {online: {}}":                                        0,
		"proxy: {}\nalgorithm: {online: {}}":                                                                                       0,
		"proxy: {sessions: {idle_timeout: 1m}}\nagent: {command: [sh]}\ndata: {train: tasks.jsonl}\nalgorithm: {grpo: {steps: 1}}": 0,
	} {
		f, err := runfile.Parse("f", []byte("engine: {policy: {}}\n"+text), testdata(t), runfile.Options{})
		if err != nil || f.Proxy.Config.Sessions.RewardWindow != want {
			t.Errorf("%s: got %v, %v, want %s", text, f, err, want)
		}
	}
}

func TestBaseline(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	compare(t, "baseline.yaml", &runfile.File{
		Data:      runfile.Data{Train: &runfile.Tasks{Path: filepath.Join(dir, "tasks.jsonl")}},
		Algorithm: &algorithms.Baseline{Config: baseline.Config{Epochs: 2, MaxQueueLength: 16, SpanVerbosity: baseline.SpanNone}},
		Store:     runfile.Store{Listen: "0.0.0.0:4747", TLS: runfile.TLS{Insecure: true}},
		Output:    filepath.Join(dir, "runs/baseline"),
	})
}

func TestAgents(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	compare(t, "agents.yaml", &runfile.File{
		Data:   runfile.Data{Train: &runfile.Tasks{Path: filepath.Join(dir, "tasks.jsonl")}},
		Agent:  runfile.Agent{Process: process.Config{Command: []string{"sh", "-c", "exit 0"}, Dir: dir}},
		Engine: &runfile.Engine{Policy: &runfile.Policy{}},
		Proxy:  &runfile.Proxy{},
		Roles: []runfile.Role{
			{Role: algorithm.Role{Name: "solver", ModelName: "solver", Reward: "answer", Schedule: algorithm.Schedule{Peak: 0.01, Warmup: 2, Hold: 3, Floor: 0.001, Decay: algorithm.Linear}}},
			{Role: algorithm.Role{Name: "critic", ModelName: "small-critic", Reward: "verdict", Schedule: algorithm.Schedule{Peak: 0.002, Floor: 0.002}}},
			{Role: algorithm.Role{Name: "judge", ModelName: "judge"}, Frozen: true},
		},
		Algorithm: &algorithms.GRPO{Config: grpo.Config{Steps: 3}},
		Output:    filepath.Join(dir, "runs/agents"),
	})
}

func TestSFT(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	file := func(name string, want algorithms.SFT) *runfile.File {
		return &runfile.File{
			Data:      runfile.Data{Train: &runfile.Tasks{Path: filepath.Join(dir, "tasks.jsonl")}},
			Agent:     runfile.Agent{Process: process.Config{Command: []string{"sh"}, Dir: dir}},
			Engine:    &runfile.Engine{Policy: &runfile.Policy{}},
			Proxy:     &runfile.Proxy{},
			Algorithm: &want,
			Output:    filepath.Join(dir, "runs", name),
		}
	}
	stored := file("sft", algorithms.SFT{
		Config: sft.Config{
			TrainingConfig: algorithm.TrainingConfig{
				PassReward: 0.5, CheckpointEvery: 50, Validation: algorithm.Validation{N: 40},
				Schedule: algorithm.Schedule{Peak: 2e-3, Warmup: 20, Hold: 5, Floor: 1e-5, Decay: algorithm.Linear},
			},
			Filter: sft.Filter{MinReward: agl.Some(0.5), Best: 2}, Steps: 300, Batch: 16,
		},
		From: &keys.Source{Database: "sqlite:" + filepath.Join(dir, "kept/run.db")},
	})
	stored.Data.ValShare = 0.1
	compare(t, "sft.yaml", stored)
	compare(t, "rejection.yaml", file("rejection", algorithms.SFT{Config: sft.Config{
		TrainingConfig: algorithm.TrainingConfig{Schedule: algorithm.Schedule{Peak: 5e-4, Floor: 5e-4}},
		Filter:         sft.Filter{Best: 1}, Rounds: 3, Tasks: 64, Samples: 8, Steps: 50,
	}}))
	compare(t, "distil.yaml", file("distil", algorithms.SFT{
		Config: sft.Config{Steps: 10}, From: &keys.Source{URL: "http://teacher:4747", Token: "env:TEACHER_TOKEN"},
	}))
	const head = "agent: {command: [sh]}\ndata: {train: tasks.jsonl}\nengine: {policy: {}}\nalgorithm: {sft: "
	got, err := runfile.Parse("f", []byte(head+"{from: model, steps: 1}}"), dir, runfile.Options{})
	if err != nil || got.Algorithm.(*algorithms.SFT).From.Database != "sqlite:"+filepath.Join(dir, "model", "agl.db") {
		t.Errorf("the folder of a run: %+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"{from: gone, steps: 1}":                             "f:4: algorithm.sft.from: there is no folder " + filepath.Join(dir, "gone"),
		"{from: {}, steps: 1}":                               "f:4: algorithm.sft.from: neither db nor url is given, must be one of them",
		"{from: {db: a.db, url: 'http://a'}, steps: 1}":      "f:4: algorithm.sft.from.db: given together with url, must be one of them",
		"{from: model, steps: 1, samples: 2}":                "f:4: algorithm.sft.samples: given together with from, but then no rollouts are sampled",
		"{steps: 1}":                                         "f:4: algorithm.sft: neither min_reward nor best is given, but training on all of its own rollouts improves no model",
		"{best: 1, steps: 1}}\nproxy: {capture: {mode: off}": "f:5: proxy.capture.mode: got off, but sft learns from the calls that are recorded",
	} {
		_, err := runfile.Parse("f", []byte(head+text+"}"), dir, runfile.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// What the file leaves out follows from what it has.
func TestDefaults(t *testing.T) {
	t.Parallel()
	dir := testdata(t)
	f, err := runfile.Parse("first.yaml", []byte("agent: {command: [sh], attempts: 2}\ndata: {train: tasks.jsonl}\nengine: {policy: }\nalgorithm: {grpo: {steps: 1}}\nseed: 3"), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case f.Data.Seed != 3:
		t.Errorf("seed of the data: %d", f.Data.Seed)
	case f.Proxy == nil, f.Engine == nil, f.Engine.Policy == nil:
		t.Errorf("proxy %v, engine %v", f.Proxy, f.Engine)
	case f.Agent.Process.Dir != dir:
		t.Errorf("working directory %s", f.Agent.Process.Dir)
	case len(f.Agent.Rollout.RetryCondition) != 3:
		t.Errorf("retried on %v", f.Agent.Rollout.RetryCondition)
	case f.Output != filepath.Join(dir, "runs/first"):
		t.Errorf("output %s", f.Output)
	}
	f, err = runfile.Parse("b", []byte("agent: {command: [sh]}\ndata: {train: tasks.jsonl, seed: 0}\nalgorithm: {baseline: }\nseed: 3\nstore: {db: 'memory:'}"), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Algorithm.Name() != "baseline" || f.Data.Seed != 0 || f.Proxy != nil || f.Store.Database != "memory:" {
		t.Errorf("%+v", f)
	}
}

// Every mistake of a file is reported, with its line.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const file = `agent:
  command: python agent.py
  cuncurrency: 8
  timeout: soon
  retry_on: [failed, never]
  cwd: .
  workspace: true
data:
  train: nowhere.jsonl
  val: {file: tasks.jsonl, columns: [a, a]}
  val_share: 2
prompts: {llm: system.txt, a b: system.txt, x: {}}
proxy: {listen: 80, models: []}
engine: {}
algorithm:
  grpo: {steps: 0, learning_rate: -1, schedule: {peak: 1, floor: 2}, adam: {beta1: 2}}
  apo: {gradient_model: x}
store: {url: http://x, db: "mysql://", token: abc}
sed: 1
`
	want := []string{
		`f.yaml:2: agent.command: got a text, must be a list such as [python, agent.py]; where a shell is wanted, [sh, -c, "…"]`,
		`f.yaml:3: agent.cuncurrency: unknown, perhaps concurrency is meant; there are allow_env, attempts, command, concurrency, cwd, env, grace, keep, keepalive, max_idle, memory, output, retry_on, timeout, unresponsive, workspace`,
		`f.yaml:4: agent.timeout: got "soon", must be a time such as 100ms, 30s or 5m`,
		`f.yaml:5: agent.retry_on[1]: got "never", must be failed or timeout or unresponsive`,
		`f.yaml:5: agent.retry_on: given, but attempts is 1, must be at least 2`,
		`f.yaml:7: agent.workspace: given together with cwd, must be one of them`,
		`f.yaml:9: data.train: there is no file DIR/nowhere.jsonl`,
		`f.yaml:10: data.val: dataset: Columns[1].As: got "a" a second time`,
		`f.yaml:11: data.val_share: got the number 2, must be a number above 0 and below 1`,
		`f.yaml:11: data.val_share: given together with val, must be one of them`,
		`f.yaml:12: prompts: got "a b", must be the name of a prompt template, like ^[A-Za-z_][A-Za-z0-9_.-]*$`,
		`f.yaml:12: prompts.x: must have one of the keys file, text`,
		`f.yaml:12: prompts.llm: is the name of the model among the resources, must be another name`,
		`f.yaml:13: proxy.listen: got "80", must be HOST:PORT such as 127.0.0.1:4748`,
		`f.yaml:13: proxy.models: empty, there must be one at least`,
		`f.yaml:14: engine: empty, must have one of the keys policy, tinker, command`,
		`f.yaml:16: algorithm.grpo.steps: got the number 0, must be an integer of at least 1`,
		`f.yaml:16: algorithm.grpo.learning_rate: got the number -1, must be a number above 0`,
		`f.yaml:16: algorithm.grpo.schedule: Schedule.Floor is 2, must be between 0 and Peak (1)`,
		`f.yaml:16: algorithm.grpo.adam.beta1: got the number 2, must be a number above 0 and below 1`,
		`f.yaml:16: algorithm.grpo.schedule: given together with learning_rate, must be one of them`,
		`f.yaml:16: algorithm: got grpo and apo, must be one of them`,
		`f.yaml:18: store.db: got "mysql://", must be sqlite:PATH such as sqlite:agl.db, postgres://USER:PASSWORD@HOST/DATABASE, or memory: (which loses everything with its process)`,
		`f.yaml:18: store.token: must be env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file`,
		`f.yaml:18: store.db: given together with url, but the store at the url has its own`,
		`f.yaml:19: sed: unknown, perhaps seed is meant; there are agent, agents, algorithm, data, engine, output, prompts, proxy, seed, store, trackers`,
	}
	_, err := runfile.Parse("f.yaml", []byte(file), "testdata", runfile.Options{})
	if !errors.Is(err, agl.ErrInvalid) {
		t.Fatalf("error %v", err)
	}
	got := strings.Split(strings.ReplaceAll(err.Error(), testdata(t), "DIR"), "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Mistakes that only several parts of a file make together, and those that the
// parts find themselves.
func TestServer(t *testing.T) {
	t.Parallel()
	f, err := runfile.Read("testdata/server.yaml", runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir := testdata(t)
	want := runfile.Engine{Server: &runfile.Server{
		Config: inference.Config{
			Command: []string{filepath.Join(dir, "agent.sh"), "serve", "tiny"}, Dir: dir, BaseURL: "http://127.0.0.1:8000/v1", Ready: "/v1/models",
			StartTimeout: 20 * time.Minute, Restarts: -1, GracePeriod: 30 * time.Second,
		},
		Model: proxy.Model{BackendModel: "Qwen/Qwen3-0.6B", PauseURL: "/sleep?level=1", ResumeURL: "/wake_up", TextOnly: true},
	}}
	if diff := cmp.Diff(&want, f.Engine, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Lost" || p.Last().String() == ".Logger" }, cmp.Ignore())); diff != "" {
		t.Error(diff)
	}
}

func TestOneMistake(t *testing.T) {
	t.Parallel()
	const (
		agent = "agent: {command: [sh]}\n"
		data  = "data: {train: tasks.jsonl}\n"
		both  = "data: {train: tasks.jsonl, val_share: 0.5}\n"
		base  = "algorithm: {baseline: {}}\n"
		train = "algorithm: {grpo: {steps: 1}}\n"
		tune  = "algorithm: {apo: {gradient_model: {model: m, base_url: 'http://x'}}}\n"
		tiny  = "engine: {policy: {}}\n"
		ask   = "prompts: {p: system.txt}\n"
		at    = "base_url: 'http://x', "
		first = "chat: characters, "
		demos = "warm_start: {file: demos.jsonl}"
	)
	far := func(keys string) string { return agent + data + train + "engine: {tinker: {" + keys + "}}\n" }
	for file, want := range map[string]string{
		"":                          "f: the file is empty, it must at least have agent, data and algorithm",
		data + base:                 "f:1: agent: missing, the program that does the tasks; without it, give store.listen or store.url, so that runners elsewhere can join",
		agent + base:                "f:1: data: missing, the tasks to train with",
		agent + data:                "f:1: algorithm: missing, one of apo, baseline, command, grpo, online, sft",
		agent + "data: {}\n" + base: "f:2: data.train: missing, the file of the tasks to train with",
		agent + data + train:        `f:3: algorithm.grpo: there is no engine whose weights it could train: give one, such as "engine: {policy: {}}"`,
		agent + both + tune:         `f:3: algorithm.apo: there is nothing to tune: give prompts, such as "prompts: {system: system.txt}"`,
		agent + data + ask + tune:   "f:4: algorithm.apo: candidates are compared on validation tasks: give data.val, or data.val_share",
		agent + both + ask + "algorithm: {apo: {gradient_model: m}}":                                     "f:4: algorithm.apo.gradient_model: got the model m without a base_url, and the proxy has no model of that name",
		agent + both + ask + "algorithm: {apo: {gradient_model: ''}}":                                    "f:4: algorithm.apo.gradient_model: the name of the model is empty",
		agent + both + ask + tiny + "algorithm: {apo: {gradient_model: {model: m, api_key: env:X}}}":     "f:5: algorithm.apo.gradient_model.api_key: given without base_url, but the run's proxy needs none",
		agent + both + ask + tiny + "algorithm: {apo: {gradient_model: m, budget: {dollars: 1}}}":        "f:5: apo: Budget.Dollars is 1, but both prices are 0, so it would never be spent",
		agent + both + ask + tiny + "algorithm: {apo: {gradient_model: m, edit_prompts: [user.j2]}}":     `f:5: apo: EditPrompts: template: EditPrompts[0]:1: function "question" not defined`,
		agent + data + base + "proxy: {}\n":                                                              "f:4: proxy: there is no model: give models, or an engine that serves one",
		agent + data + base + "proxy: {model: x, models: [{name: y, base_url: 'http://x'}]}":             "f:4: proxy.model: got x, but models has none of that name",
		agent + data + train + tiny + "proxy: {model: y, models: [{name: y, base_url: 'http://x'}]}":     "f:5: proxy.model: got y, a name in models, but it is the name of the engine's model, must be another",
		agent + data + train + tiny + "proxy: {capture: {mode: 'off'}}":                                  "f:5: proxy.capture.mode: got off, but grpo learns from the calls that are recorded",
		agent + data + train + "engine: {policy: {dim: 100}}":                                            "f:4: policy: Dim is 100; it must be a multiple of 16·Heads = 64",
		agent + data + train + "engine: {policy: {characters: aa}}":                                      "f:4: engine.policy.characters: alphabet: 'a' occurs twice (or is one of the marks ▲▼◆■)",
		"agent: {command: [./gone.sh]}\n" + data + base:                                                  "f:1: agent.command: exec: \"DIR/gone.sh\": stat DIR/gone.sh: no such file or directory",
		"agent: {command: [agl-no-such-program]}\n" + data + base:                                        "f:1: agent.command: exec: \"agl-no-such-program\": executable file not found in $PATH",
		"agent: {command: [sh], cwd: gone}\n" + data + base:                                              "f:1: agent.cwd: there is no folder DIR/gone",
		agent + "data: {train: system.txt}\n" + base:                                                     "f:2: data.train: dataset: DIR/system.txt: the name does not tell the format, must end in .jsonl, .ndjson, .csv or .parquet",
		agent + data + base + "store: {db: 'postgres://me:hunter2@host/db'}":                             "f:4: store.db: it contains a password, which does not belong in this file; use PGPASSWORD or ~/.pgpass",
		agent + data + base + "store: {db: 'postgres://host/db?password=hunter2'}":                       "f:4: store.db: it contains a password, which does not belong in this file; use PGPASSWORD or ~/.pgpass",
		agent + data + base + "store: {url: 'http://x', listen: ':1'}":                                   "f:4: store.listen: given together with url, but the store at the url has its own",
		agent + data + train + "engine: {command: [sh], base_url: 'http://127.0.0.1:1/v1'}":              "f:3: algorithm.grpo: engine.command serves a model but does not train it: give an engine that does, policy or tinker",
		agent + data + base + "engine: {command: [sh]}":                                                  "f:4: engine.base_url: missing, where the server of command will listen, such as http://127.0.0.1:8000/v1",
		agent + data + base + "engine: {command: vllm, base_url: 'http://127.0.0.1:1/v1'}":               "f:4: engine.command: got a text, must be a list such as [vllm, serve, Qwen/Qwen3-0.6B]",
		agent + data + base + "engine: {command: [no-such-program], base_url: 'http://127.0.0.1:1/v1'}":  `f:4: exec: "no-such-program": executable file not found in $PATH`,
		agent + data + base + "engine: {command: [sh], policy: {}, base_url: 'http://127.0.0.1:1/v1'}":   "f:4: engine: got command and policy, must be one of them",
		agent + data + train + tiny[:len(tiny)-2] + ", ready: /health}\n":                                "f:4: engine.ready: given without command, to which it belongs",
		agent + data + base + "engine: {command: [sh], base_url: 'http://127.0.0.1:1/v1', restarts: -1}": "f:4: engine.restarts: got the number -1, must be an integer that is not negative",
		far("model: x"):        "f:4: engine.tinker.base_url: missing, the URL of the engine\nf:4: engine.tinker.chat: missing, the model's tokenizer and chat template, such as \"chat: {folder: models/qwen3}\"",
		far(at + "chat: Qwen"): `f:4: engine.tinker.chat: got "Qwen", must be characters`,
		far(at + "chat: {}"):   "f:4: engine.tinker.chat: must have one of folder and characters",
		far(at + "chat: {folder: model, characters: abc}"):                                                  "f:4: engine.tinker.chat: must have one of folder and characters",
		far(at + "chat: {folder: gone}"):                                                                    "f:4: engine.tinker.chat.folder: there is no folder DIR/gone",
		far(at + "chat: {folder: tasks.jsonl}"):                                                             "f:4: engine.tinker.chat.folder: there is no folder DIR/tasks.jsonl",
		far(at + "chat: {characters: aa}"):                                                                  "f:4: engine.tinker.chat.characters: alphabet: 'a' occurs twice (or is one of the marks ▲▼◆■)",
		far(at + "chat: {characters: ab, style: hermes}"):                                                   "f:4: engine.tinker.chat.style: given together with characters, but it belongs to the model in a folder",
		far(at + "chat: {characters: ab, stop: [x]}"):                                                       "f:4: engine.tinker.chat.stop: given together with characters, but it belongs to the model in a folder",
		far(at + "chat: {folder: model, style: gpt}"):                                                       `f:4: engine.tinker.chat.style: got "gpt", must be deepseek or hermes or llama3 or none`,
		far(at + "chat: {folder: model}, warm_start: {file: demos.jsonl}"):                                  "f:4: engine.tinker.warm_start: given together with chat.folder, but demonstrations need one token per character",
		far(at + first + "weights: 'tinker://m/weights/a', " + demos):                                       "f:4: engine.tinker.warm_start: given together with weights, must be one of them",
		far(at + first + "weights: 'tinker://m/sampler_weights/a'"):                                         `f:4: engine.tinker.weights: got "tinker://m/sampler_weights/a", a snapshot for sampling, must be a checkpoint, tinker://MODEL/weights/NAME`,
		far(at + first + "weights: runs/x"):                                                                 `f:4: engine.tinker.weights: path: "runs/x" does not begin with tinker://`,
		far(at + first + "api_key: tml-secret"):                                                             "f:4: engine.tinker.api_key: must be env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file",
		far("base_url: 'http://me:hunter2@h', chat: characters"):                                            "f:4: engine.tinker.base_url: it holds a user or a password, which have no place in this file; use api_key or token",
		far(at + first + "encoding: xml"):                                                                   `f:4: engine.tinker.encoding: got "xml", must be auto or json or protobuf`,
		far(at + first + "lora_rank: 0"):                                                                    "f:4: engine.tinker.lora_rank: got the number 0, must be an integer of at least 1",
		far(at + first + "max_samples: 0"):                                                                  "f:4: engine.tinker.max_samples: got the number 0, must be an integer of at least 1",
		far(at + first + "timeout: soon"):                                                                   `f:4: engine.tinker.timeout: got "soon", must be a time such as 100ms, 30s or 5m`,
		far(at + first + "capabilities: {normalization: mean}"):                                             `f:4: engine.tinker.capabilities.normalization: got "mean", must be datum_mean or sum`,
		far(at + first + "capabilities: {losses: []}"):                                                      "f:4: engine.tinker.capabilities.losses: empty, there must be one at least",
		agent + data + train + tiny + "agents: {a: {train: false}}":                                         "f:5: agents: none is trained, at least one must be",
		agent + data + train + tiny + "agents: {a: {}, b: {model: a}}":                                      "f:5: agents.b: its model is a, that of another agent, must be one of its own",
		agent + data + train + tiny + "agents: {a: {}, b: {train: false, reward: x}}":                       "f:5: agents.b: a reward or a learning rate is given with train: false, which uses neither",
		agent + data + train + tiny + "agents: {a b: {}}":                                                   `f:5: agents: got "a b", must be the name of an agent, like ^[A-Za-z0-9_-]+$`,
		agent + data + train + tiny + "proxy: {model: x}\nagents: {a: {}}":                                  "f:5: proxy.model: given together with agents, which name their models themselves",
		agent + data + train + tiny + "proxy: {models: [{name: a, base_url: 'http://x'}]}\nagents: {a: {}}": "f:6: agents.a: its model is a, a name in proxy.models, must be another",
		agent + data + base + tiny + "agents: {a: {}}":                                                      "f:5: agents: baseline does not train several agents, grpo does",
		agent + data + train + "engine: {policy: {}, tinker: {" + at + "chat: characters}}":                 "f:4: engine: got policy and tinker, must be one of them",
	} {
		_, err := runfile.Parse("f", []byte(file), "testdata", runfile.Options{})
		got := "nothing"
		if err != nil {
			got = strings.ReplaceAll(err.Error(), testdata(t), "DIR")
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", file, got, want)
		}
	}
}

// A process that plays one part needs nothing of the other.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	const file = "agent: {command: [./gone.sh]}\ndata: {train: gone.jsonl, val: {file: gone.csv, limit: 1}}\nprompts: {p: gone.txt}\n" +
		"engine: {policy: {warm_start: {file: gone.jsonl}}}\nalgorithm: {grpo: {steps: 1}}\n"
	for _, test := range []struct {
		elsewhere []runfile.Part
		mistakes  int
	}{
		{nil, 5},
		{[]runfile.Part{runfile.PartAgent}, 4},
		{[]runfile.Part{runfile.PartAlgorithm}, 1},
		{[]runfile.Part{runfile.PartAgent, runfile.PartAlgorithm}, 0},
	} {
		f, err := runfile.Parse("f", []byte(file), t.TempDir(), runfile.Options{Elsewhere: test.elsewhere})
		var wrong *runfile.Error
		switch {
		case test.mistakes == 0 && (err != nil || !strings.HasSuffix(f.Agent.Process.Command[0], "/gone.sh")):
			t.Errorf("%v: %v", test.elsewhere, err)
		case test.mistakes > 0 && (!errors.As(err, &wrong) || len(wrong.Mistakes) != test.mistakes):
			t.Errorf("%v: want %d mistakes, got %v", test.elsewhere, test.mistakes, err)
		}
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	if _, err := runfile.Read("testdata/gone.yaml", runfile.Options{}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// FuzzParse checks that no file brings the reader down, and that what is wrong
// has a place in the file.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"grpo.yaml", "apo.yaml", "apo-live.yaml", "online.yaml", "baseline.yaml", "tinker.yaml", "characters.yaml", "sft.yaml", "rejection.yaml", "distil.yaml", "agents.yaml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("algorithm: {grpo: , apo: null}\nengine: {policy: }\nprompts: {a: {text: ''}}\ndata: {train: {file: tasks.csv, types: {'': json}}}")
	f.Fuzz(func(t *testing.T, file string) {
		got, err := runfile.Parse("f", []byte(file), "testdata", runfile.Options{})
		var wrong *runfile.Error
		switch {
		case err == nil && got.Data.Train == nil && !got.Algorithm.Needs().NoTasks:
			t.Error("taken without tasks")
		case err != nil && (!errors.As(err, &wrong) || len(wrong.Mistakes) == 0):
			t.Errorf("%v", err)
		}
	})
}

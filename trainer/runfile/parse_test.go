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
	"github.com/agl-go/agl/trainer/tracker"
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
			Steps: 40, PromptsPerStep: 4, GroupSize: 6, Loss: tinker.Loss{Name: tinker.PPO, ClipLow: 0.9, ClipHigh: 1.5}, Minibatches: 2,
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
			MLflow:      &tracker.MLflowConfig{URL: "http://127.0.0.1:5000", Token: "env:MLFLOW_TOKEN", Experiment: "calculators", RunName: "first"},
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
		Chat: runfile.Chat{Folder: filepath.Join(dir, "model"), Config: pretrained.Config{Style: pretrained.StyleHermes, Stop: []string{"<|im_end|>"}, Turns: 4096, TurnBytes: 1 << 30}},
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
		Algorithm: &algorithms.GRPO{Config: grpo.Config{Steps: 3, Loss: tinker.Loss{Name: tinker.DRO, Beta: 0.2}, PlainAdvantage: true}},
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
		TrainingConfig: algorithm.TrainingConfig{Schedule: algorithm.Schedule{Peak: 5e-4, Floor: 5e-4}, CheckpointEvery: 20},
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
		"{best: 1, steps: 1, val_n: 5}":                      "f:4: algorithm.sft.val_n: there are no validation tasks: give data.val, or data.val_share",
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
	f, err = runfile.Parse("b", []byte("agent: {command: [sh], grace: 0s}\ndata: {train: tasks.jsonl, seed: 0}\nalgorithm: {baseline: }\nseed: 3\nstore: {db: 'memory:'}"), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Algorithm.Name() != "baseline" || f.Data.Seed != 0 || f.Proxy != nil || f.Store.Database != "memory:" {
		t.Errorf("%+v", f)
	}
	if got := f.Agent.Process.GracePeriod; got <= 0 || got > time.Millisecond { // 0 would be the default
		t.Errorf("no grace became %s", got)
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

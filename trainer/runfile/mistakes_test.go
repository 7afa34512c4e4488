package runfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/runfile"
)

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
		`f.yaml:4: agent.timeout: got "soon", must be a time above 0 such as 100ms, 30s or 5m`,
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

func TestOneMistake(t *testing.T) {
	t.Parallel()
	const (
		agent = "agent: {command: [sh]}\n"
		data  = "data: {train: tasks.jsonl}\n"
		both  = "data: {train: tasks.jsonl, val_share: 0.5}\n"
		base  = "algorithm: {baseline: {}}\n"
		train = "algorithm: {grpo: {steps: 1}}\n"
		tune  = "algorithm: {apo: {gradient_model: {model: m, base_url: 'http://x'}}}\n"
		live  = "prompts: {s: {text: a}}\nproxy: {models: [{name: gpt, base_url: 'http://x/v1'}], sessions: {idle_timeout: 1m}}\nalgorithm: {apo: {gradient_model: gpt, live: {"
		tiny  = "engine: {policy: {}}\n"
		ask   = "prompts: {p: system.txt}\n"
		at    = "base_url: 'http://x', "
		first = "chat: characters, "
		demos = "warm_start: {file: demos.jsonl}"
	)
	far := func(keys string) string { return agent + data + train + "engine: {tinker: {" + keys + "}}\n" }
	for file, want := range map[string]string{
		"":                                      "f: the file is empty, it must at least have agent, data and algorithm",
		data + base:                             "f:1: agent: missing, the program that does the tasks; without it, give store.listen or store.url, so that runners elsewhere can join",
		agent + base:                            "f:1: data: missing, the tasks to train with",
		agent + data:                            "f:1: algorithm: missing, one of apo, baseline, command, grpo, online, sft",
		agent + "data: {}\n" + base:             "f:2: data.train: missing, the file of the tasks to train with",
		agent + data + train:                    `f:3: algorithm.grpo: there is no engine whose weights it could train: give one, such as "engine: {policy: {}}"`,
		agent + both + tune:                     `f:3: algorithm.apo: there is nothing to tune: give prompts, such as "prompts: {system: system.txt}"`,
		agent + data + ask + tune:               "f:4: algorithm.apo: candidates are compared on validation tasks: give data.val, or data.val_share",
		live + "release: {max_sessions: 60}}}}": "f:3: algorithm.apo.live.release: gates.max_sessions: got 60, must be at least twice min_sessions, which is 50",
		live + "redaction: {command: [/nowhere/check]}}}}":                                                       "f:3: algorithm.apo.live.redaction: command: there is no program /nowhere/check",
		agent + data + tiny + "algorithm: {grpo: {steps: 1, validation: {every: 2}}}\n":                          "f:4: algorithm.grpo.validation: there are no validation tasks: give data.val, or data.val_share",
		agent + both + ask + "algorithm: {apo: {gradient_model: m}}":                                             "f:4: algorithm.apo.gradient_model: got the model m without a base_url, and the proxy has no model of that name",
		agent + both + ask + "algorithm: {apo: {gradient_model: ''}}":                                            "f:4: algorithm.apo.gradient_model: the name of the model is empty",
		agent + both + ask + tiny + "algorithm: {apo: {gradient_model: {model: m, api_key: env:X}}}":             "f:5: algorithm.apo.gradient_model.api_key: given without base_url, but the run's proxy needs none",
		agent + both + ask + tiny + "algorithm: {apo: {gradient_model: m, budget: {dollars: 1}}}":                "f:5: apo: Budget.Dollars is 1, but both prices are 0, so it would never be spent",
		agent + both + ask + tiny + "algorithm: {apo: {gradient_model: m, edit_prompts: [user.j2]}}":             `f:5: apo: EditPrompts: template: EditPrompts[0]:1: function "question" not defined`,
		agent + data + base + "engine: {model: }\n":                                                              "f:4: engine: empty, must have one of the keys policy, tinker, command",
		agent + data + base + "proxy: {}\n":                                                                      "f:4: proxy: there is no model: give models, or an engine that serves one",
		agent + data + base + "proxy: {model: x, models: [{name: y, base_url: 'http://x'}]}":                     "f:4: proxy.model: got x, but models has none of that name",
		agent + data + train + tiny + "proxy: {model: y, models: [{name: y, base_url: 'http://x'}]}":             "f:5: proxy.model: got y, a name in models, but it is the name of the engine's model, must be another",
		agent + data + train + tiny + "proxy: {capture: {mode: 'off'}}":                                          "f:5: proxy.capture.mode: got off, but grpo learns from the calls that are recorded",
		agent + data + train + "engine: {policy: {dim: 100}}":                                                    "f:4: policy: Dim is 100; it must be a multiple of 16·Heads = 64",
		agent + data + train + "engine: {policy: {characters: aa}}":                                              "f:4: engine.policy.characters: alphabet: 'a' occurs twice (or is one of the marks ▲▼◆■)",
		"agent: {command: [./gone.sh]}\n" + data + base:                                                          "f:1: agent.command: exec: \"DIR/gone.sh\": stat DIR/gone.sh: no such file or directory",
		"agent: {command: [agl-no-such-program]}\n" + data + base:                                                "f:1: agent.command: exec: \"agl-no-such-program\": executable file not found in $PATH",
		"agent: {command: [sh], concurrency: 1000000000}\n" + data + base:                                        "f:1: agent.concurrency: got the number 1000000000, must be an integer of at least 1 and of at most 100000",
		agent + data + train + "engine: {policy: {warm_start: {file: demos.jsonl, batch: 9223372036854775807}}}": "f:4: engine.policy.warm_start.batch: got the number 9223372036854775807, must be an integer of at least 1 and of at most 1000000",
		"agent: {command: [sh], cwd: gone}\n" + data + base:                                                      "f:1: agent.cwd: there is no folder DIR/gone",
		"agent: {command: [sh], timeout: 0s}\n" + data + base:                                                    `f:1: agent.timeout: got "0s", must be a time above 0 such as 100ms, 30s or 5m`,
		agent + data + base + "store: {unresponsive: 10s}":                                                       "f:4: store.unresponsive: got 10s, must be at least 20s, because runners send a heartbeat every 10s; agent.unresponsive may be shorter",
		"agent: {command: [sh], unresponsive: 0s}\n" + data + base:                                               `f:1: agent.unresponsive: got "0s", must be a time above 0 such as 100ms, 30s or 5m`,
		"agent: {command: [sh, \"a\\0b\"]}\n" + data + base:                                                      `f:1: agent.command: process: Command: got "a\x00b", must have no NUL`,
		"agent: {command: [sh], env: {A: \"a\\0b\"}}\n" + data + base:                                            `f:1: agent.command: process: Env: got "A=a\x00b", must have no NUL`,
		agent + "data: {train: system.txt}\n" + base:                                                             "f:2: data.train: dataset: DIR/system.txt: the name does not say the format, must end in .jsonl, .ndjson, .csv or .parquet",
		agent + data + base + "store: {db: 'postgres://me:hunter2@host/db'}":                                     "f:4: store.db: it contains a password, which does not belong in this file; use PGPASSWORD or ~/.pgpass",
		agent + data + base + "store: {db: 'postgres://host/db?password=hunter2'}":                               "f:4: store.db: it contains a password, which does not belong in this file; use PGPASSWORD or ~/.pgpass",
		agent + data + base + "store: {url: 'http://x', listen: ':1'}":                                           "f:4: store.listen: given together with url, but the store at the url has its own",
		agent + data + train + "engine: {command: [sh], base_url: 'http://127.0.0.1:1/v1'}":                      "f:3: algorithm.grpo: engine.command serves a model but does not train it: give an engine that does, policy or tinker",
		agent + data + base + "engine: {command: [sh]}":                                                          "f:4: engine.base_url: missing, where the server of command will listen, such as http://127.0.0.1:8000/v1",
		agent + data + base + "engine: {command: vllm, base_url: 'http://127.0.0.1:1/v1'}":                       "f:4: engine.command: got a text, must be a list such as [vllm, serve, Qwen/Qwen3-0.6B]",
		agent + data + base + "engine: {command: [no-such-program], base_url: 'http://127.0.0.1:1/v1'}":          `f:4: exec: "no-such-program": executable file not found in $PATH`,
		agent + data + base + "engine: {command: [sh], policy: {}, base_url: 'http://127.0.0.1:1/v1'}":           "f:4: engine: got command and policy, must be one of them",
		agent + data + train + tiny[:len(tiny)-2] + ", ready: /health}\n":                                        "f:4: engine.ready: given without command, to which it belongs",
		agent + data + base + "engine: {command: [sh], base_url: 'http://127.0.0.1:1/v1', restarts: -1}":         "f:4: engine.restarts: got the number -1, must be an integer that is not negative",
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
		far(at + first + "timeout: soon"):                                                                   `f:4: engine.tinker.timeout: got "soon", must be a time above 0 such as 100ms, 30s or 5m`,
		far(at + first + "capabilities: {normalization: mean}"):                                             `f:4: engine.tinker.capabilities.normalization: got "mean", must be datum_mean or sum`,
		far(at + first + "capabilities: {losses: []}"):                                                      "f:4: engine.tinker.capabilities.losses: empty, there must be one at least",
		agent + data + train + tiny + "agents: {a: {train: false}}":                                         "f:5: agents: none is trained, at least one must be",
		agent + data + train + tiny + "agents: {a: {}, b: {model: a}}":                                      "f:5: agents.b: its model is a, that of another agent, must be one of its own",
		agent + data + train + tiny + "agents: {a: {}, b: {train: false, reward: x}}":                       "f:5: agents.b: a reward or a learning rate is given with train: false, which uses neither",
		agent + data + train + tiny + "agents: {a b: {}}":                                                   `f:5: agents: got "a b", must be the name of an agent, like ^[A-Za-z0-9_-]+$`,
		agent + data + train + tiny + "proxy: {model: x}\nagents: {a: {}}":                                  "f:5: proxy.model: given together with agents, which name their models themselves",
		agent + data + train + tiny + "proxy: {models: [{name: a, base_url: 'http://x'}]}\nagents: {a: {}}": "f:6: agents.a: its model is a, a name in proxy.models, must be another",
		agent + data + base + tiny + "agents: {a: {}}":                                                      "f:5: agents: baseline does not train several agents, grpo does",
		tiny + "algorithm: {online: {}}\nproxy: {sessions: {idle_timeout: 1m}}\nagents: {a: {}}":            "f:4: agents: online does not train several agents, grpo does",
		agent + data + tiny + "algorithm: {grpo: {steps: 1, kl: {coefficient: 1, reference: 'tinker://a/weights/b'}}}\nagents: {a: {}, b: {}}": "f:4: algorithm.grpo.kl.reference: given together with several agents that are trained, must be left out: the reference of each is the weights that it begins with",
		agent + data + train + "engine: {policy: {}, tinker: {" + at + "chat: characters}}":                                                    "f:4: engine: got policy and tinker, must be one of them",
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

// Results need a folder; one that the caller names takes the place of that in the file.
func TestOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"runs", "tasks.jsonl"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{\"n\":1}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "agent: {command: [sh]}\ndata: {train: tasks.jsonl}\nalgorithm: {baseline: {}}\n"
	for _, tc := range []struct{ text, output, want, wrong string }{
		{"output: out", "", filepath.Join(dir, "out"), ""},
		{"output: runs", "", "", "f:4: output: got " + filepath.Join(dir, "runs") + ", which is a file or below one"},
		{"", "", "", "output: got " + filepath.Join(dir, "runs", "f") + ", which is a file or below one"},
		{"output: runs", filepath.Join(dir, "given"), filepath.Join(dir, "given"), ""},
		{"", filepath.Join(dir, "given"), filepath.Join(dir, "given"), ""},
	} {
		f, err := runfile.Parse("f", []byte(head+tc.text), dir, runfile.Options{Output: tc.output})
		switch {
		case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
			t.Errorf("%q, %q: got %v, want %s", tc.text, tc.output, err, tc.wrong)
		case tc.wrong == "" && (err != nil || f.Output != tc.want):
			t.Errorf("%q, %q: got %v, %v, want %s", tc.text, tc.output, f, err, tc.want)
		}
	}
}

func TestReadNothing(t *testing.T) {
	t.Parallel()
	if _, err := runfile.Read("testdata/gone.yaml", runfile.Options{}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

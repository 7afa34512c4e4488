package configfile_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/proxy/extract"
)

func TestParse(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := configfile.Parse("full.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	want := &configfile.File{
		Listen: "0.0.0.0:4748", Store: "http://store:4747", Token: "env:AGL_TOKEN",
		Proxy: proxy.Config{
			PublicURL: "http://gateway:4748/v1", KeySecret: "env:AGL_PROXY_KEY_SECRET",
			Capture: proxy.CaptureBestEffort, SpoolDir: "/var/lib/agl/spool", SpoolBytes: 2 << 30,
			Models: []proxy.Model{
				{
					Name: "qwen", BaseURL: "http://10.0.0.1:8000/v1", BackendModel: "Qwen/Qwen3-8B", Version: "step-0", Limits: proxy.Limits{InFlight: 64},
					HealthURL: "/health", PauseURL: "/pause?mode=keep", ResumeURL: "/resume",
				},
				{Name: "qwen", BaseURL: "http://10.0.0.2:30000/v1", Replay: true, CacheSalt: true},
				{
					Name: "judge", BaseURL: "https://name.openai.azure.com", BackendModel: "judge-deployment", API: proxy.APIAzure, APIVersion: "2024-10-21",
					APIKey: "env:AZURE_KEY", TextOnly: true, Limits: proxy.Limits{RequestsPerMinute: 600, TokensPerMinute: 120000},
				},
				{Name: "tiny", BaseURL: "http://127.0.0.1:4800/v1", ChatOnly: true},
			},
			Control: proxy.Control{
				Force:   []byte(`{"temperature":1.0,"seed":12345678901234567890}`),
				Default: []byte(`{"max_tokens":512,"stop":["\n",null],"logit_bias":{"50256":-100}}`),
				Forbid:  []string{"n", "top_k"},
				Rules:   access.Rules{Models: []string{"tiny"}, CallsPerMinute: 120},
				Budget:  proxy.Budget{Calls: 50, Tokens: 100000, Seconds: 600, Over: proxy.OverLength},
			},
			Retry:        proxy.Retry{Attempts: 4, Delay: 50 * time.Millisecond, MaxDelay: 2 * time.Second},
			Health:       proxy.Health{Failures: 3, Cooldown: 2 * time.Second, MaxCooldown: time.Minute, ProbeInterval: 10 * time.Second, ProbeTimeout: time.Second},
			PauseTimeout: 10 * time.Minute, PauseQueue: 500, CacheBytes: 64 << 20,
			CaptureBytes: 512 << 20, MaxReplyBytes: 16 << 20, StoreTimeout: 10 * time.Second, StoreRetry: 5 * time.Minute, WriteDelay: time.Millisecond,
			ForwardPaths:    []string{"/rerank", "/audio/speech"},
			MaxRequestBytes: 1 << 20, QueueTimeout: time.Minute, IdleTimeout: 2 * time.Minute, LogCalls: true,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Every mistake of a file is reported, with its line.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const file = `listen: 4748
store: localhost:4747
token: hunter2
frobnicate: 1
models:
  - name: a
    base_url: ftp://x
    api_key: sk-secret
    api: google
    limits: {in_flight: -1, per_day: 3}
    text_only: "yes"
  - base_url: http://user:hunter2@x/v1
    name: [b]
  - 7
  - {name: c, base_url: http://x, health_url: "http://%zz"}
  - {base_url: http://x}
control:
  force: [1]
  default: {seed: 0x10, a: 1, a: 2}
  forbid: [model]
  budget: {calls: many, time: 5, over: never}
retry: {attempts: 1.5, delay: soon}
retry: {attempts: 2}
cache: {size: 3 apples}
`
	want := []string{
		`f.yaml:1: listen: got "4748", must be HOST:PORT such as 127.0.0.1:4748`,
		`f.yaml:2: store: must be an http or https URL such as http://127.0.0.1:8000/v1`,
		`f.yaml:3: token: must be env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file`,
		`f.yaml:4: frobnicate: unknown; there are cache, capture, control, forward_paths, health, idle_timeout, key_secret, listen, log, models, pause, public_url, queue_timeout, request_size, retry, sessions, store, token`,
		`f.yaml:7: models[0].base_url: must be an http or https URL such as http://127.0.0.1:8000/v1`,
		`f.yaml:8: models[0].api_key: must be env:NAME, the name of the environment variable that holds it; the secret itself has no place in this file`,
		`f.yaml:9: models[0].api: got "google", must be anthropic or azure or openai`,
		`f.yaml:10: models[0].limits.in_flight: got the number -1, must be an integer that is not negative`,
		`f.yaml:10: models[0].limits.per_day: unknown; there are in_flight, requests_per_minute, tokens_per_minute`,
		`f.yaml:11: models[0].text_only: got a text, must be true or false`,
		`f.yaml:12: models[1].base_url: it holds a user or a password, which have no place in this file; use api_key or token`,
		`f.yaml:13: models[1].name: got a list, must be a text`,
		`f.yaml:14: models[2]: got the number 7, must be a mapping`,
		`f.yaml:15: model c: health_url: not a URL or a path such as /health: parse "http://%zz": invalid URL escape "%zz"`,
		`f.yaml:16: models[4].name: missing`,
		`f.yaml:18: control.force: got a list, must be a mapping`,
		`f.yaml:19: control.default.seed: got 0x10, must be spelled as JSON has numbers, such as 12 or 0.5`,
		`f.yaml:19: control.default.a: given twice`,
		`f.yaml:21: control.budget.calls: got a text, must be an integer that is not negative`,
		`f.yaml:21: control.budget.time: got the number 5, must be a time such as 100ms, 30s or 5m`,
		`f.yaml:21: control.budget.over: got "never", must be error or length`,
		`f.yaml:22: retry.attempts: got the number 1.5, must be an integer of at least 1`,
		`f.yaml:22: retry.delay: got "soon", must be a time above 0 such as 100ms, 30s or 5m`,
		`f.yaml:23: retry: given twice, first in line 22`,
		`f.yaml:24: cache.size: got "3 apples", must be a size such as 256MiB, in KiB, MiB, GiB or TiB, or a number of bytes`,
	}
	_, err := configfile.Parse("f.yaml", []byte(file))
	if !errors.Is(err, agl.ErrInvalid) {
		t.Fatalf("error %v", err)
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "sk-secret") {
		t.Error("a secret is in the message")
	}
}

func TestOneMistake(t *testing.T) {
	t.Parallel()
	const models = "models: [{name: a, base_url: 'http://x'}]\n"
	for file, want := range map[string]string{
		"":                          "f.yaml: the file is empty, it must at least have models",
		"a: [":                      "f.yaml:1: not YAML: did not find expected node content",
		"- 1":                       "f.yaml:1: the file: got a list, must be a mapping",
		"models: []":                "f.yaml:1: models: empty, there must be one at least",
		"log: {calls: true}":        "f.yaml:1: models: missing, there must be one at least",
		models + "---\nmodels: 1\n": "f.yaml:2: a second document; there must be one",
		models + "cache: &x {size: 1}\npause: *x":                                                         "f.yaml:3: *x: aliases are not supported, write the value out",
		models + "control: {forbid: [n, model]}":                                                          `f.yaml:2: control.forbid[1]: got "model", must be a sampling parameter`,
		"models: [{name: '', base_url: 'http://x'}]":                                                      "f.yaml:1: name: empty, must be the name that agents ask for",
		models + "forward_paths: [/rerank, embed]":                                                        `f.yaml:2: forward_paths[1]: got "embed", must be a plain path without /v1, such as /rerank`,
		models + "sessions: {reward_window: 1h}":                                                          "f.yaml:2: sessions.reward_window: needs sessions.idle_timeout, without which no session is recorded",
		"public_url: 'http://h/v1?a=b'\n" + models:                                                        `f.yaml:1: public_url: got a URL with '?', must end before it: agents append their paths to it`,
		models + "sessions:\n  idle_timeout: 1m\n  rewards:\n    judge: {model: a, prompt: why}":          "f.yaml:5: sessions.rewards.judge: prompt: has no {next}, must have it, and may have {conversation} and {reply}",
		models + "sessions:\n  idle_timeout: 1m\n  rewards:\n    program: {command: [/nowhere/check.py]}": "f.yaml:5: sessions.rewards.program: command: there is no program /nowhere/check.py",
		models + "sessions:\n  idle_timeout: 1m\n  rewards:\n    program: {command: ['']}":                "f.yaml:5: sessions.rewards.program: command: empty, must be a program with its arguments",
		models + "sessions: {rewards: {judge: a}}":                                                        "f.yaml:2: sessions.rewards: needs sessions.idle_timeout, without which no session is recorded",
	} {
		_, err := configfile.Parse("f.yaml", []byte(file))
		if err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", file, err, want)
		}
	}
}

// What a running proxy cannot change is named; models and control it can.
func TestFrozen(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(file string) *configfile.File {
		f, err := configfile.Parse("f", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	full := parse(string(data))
	small := parse("models: [{name: a, base_url: 'http://x'}]\nlog: {contents: true}")
	want := []string{
		"listen", "store", "token", "public_url", "key_secret", "retry", "health", "pause", "cache", "capture", "forward_paths", "request_size", "queue_timeout", "idle_timeout", "log",
	}
	if diff := cmp.Diff(want, full.Frozen(small)); diff != "" {
		t.Error(diff)
	}
	other := *full
	other.Proxy.Models, other.Proxy.Control = nil, proxy.Control{}
	if got := full.Frozen(&other); len(got) > 0 {
		t.Errorf("%v", got)
	}
}

// FuzzParse checks that no file brings the reader down, and that what it takes
// the proxy takes, too.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data))
	f.Add("models: [{name: a, base_url: 'http://x', limits: {in_flight: 1}}]\ncontrol: {force: {a: [1, {b: .5}]}}")
	f.Add("a: &a [*a]\n? b\n: *a\n")
	f.Fuzz(func(t *testing.T, file string) {
		got, err := configfile.Parse("f", []byte(file))
		if err != nil {
			return
		}
		if err := got.Proxy.Validate(); err != nil {
			t.Errorf("taken, and then refused: %v", err)
		}
	})
}

// Sources of rewards are read, checked, and compared by what they say.
func TestRewards(t *testing.T) {
	t.Parallel()
	const file = `models: [{name: m, base_url: "http://127.0.0.1:1/v1"}]
sessions: {idle_timeout: 1m, rewards: {events: {accepted: 1}, judge: m, program: {command: [sh, x]}}}
`
	parse := func(text string) (*configfile.File, error) { return configfile.Parse("f", []byte(text)) }
	f, err := parse(file)
	if err != nil {
		t.Fatal(err)
	}
	want := proxy.Sessions{
		IdleTimeout: time.Minute, Events: map[string]float64{"accepted": 1}, Judge: &extract.Judge{Model: "m"},
		Program: &extract.Program{Command: []string{"sh", "x"}},
	}
	if diff := cmp.Diff(want, f.Proxy.Sessions); diff != "" {
		t.Error(diff)
	}
	same, err := parse(file)
	if err != nil || len(f.Frozen(same)) > 0 {
		t.Errorf("the same file differs: %v, %v", f.Frozen(same), err)
	}
	other, err := parse(strings.Replace(file, "accepted: 1", "accepted: 2", 1))
	if err != nil || len(f.Frozen(other)) != 1 {
		t.Errorf("another reward: %v, %v", f.Frozen(other), err)
	}
	for from, mistakes := range map[string]map[string]string{
		"judge: m":                      {"judge: n": "got the model n, but models has none", `judge: {model: m, prompt: "good?"}`: "has no {next}", "judge: {model: m, votes: 0}": "votes: got the number 0"},
		"accepted: 1":                   {"accepted: yes": "rewards.events.accepted: got a text"},
		"command: [sh, x]":              {"command: []": "command", "command: [./nothing]": "nothing", "timeout: 1s": "command"},
		"sessions: {idle_timeout: 1m, ": {"sessions: {": "needs sessions.idle_timeout"},
	} {
		for to, want := range mistakes {
			if _, err := parse(strings.Replace(file, from, to, 1)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", to, err, want)
			}
		}
	}
}

package main

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/server"
)

// An engine elsewhere is asked whether it is there and has the model.
func TestDoctorEngine(t *testing.T) {
	t.Parallel()
	characters, err := chat.NewCharacters("")
	if err != nil {
		t.Fatal(err)
	}
	service, err := policy.NewService(policy.Config{Name: "tiny", Vocab: characters.Vocab(), Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	start := func(cfg server.Config) string {
		cfg.Service = service
		handler, err := server.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(handler)
		t.Cleanup(func() {
			web.Close()
			if err := handler.Close(); err != nil {
				t.Error(err)
			}
		})
		return web.URL
	}
	open, silent, locked := start(server.Config{}), start(server.Config{HideEngine: true}), start(server.Config{APIKey: "k"})
	const away = "http://127.0.0.1:1"
	for name, test := range map[string]struct {
		tinker, loss string
		algorithm    string // instead of grpo with that loss
		want         []string
	}{
		"there": {
			tinker: "base_url: " + open + ", chat: characters, warm_start: {file: demos.jsonl}",
			want:   []string{"ok engine: " + open + " answers; the model is tiny, a vocabulary of 48 tokens, a context of 16 tokens", "ok warm start: 1 conversation"},
		},
		"a demonstration that is too long": {
			tinker: "base_url: " + open + ", chat: characters, warm_start: {file: long.jsonl}",
			want: []string{
				"ok engine: " + open + " answers; the model is tiny, a vocabulary of 48 tokens, a context of 16 tokens",
				"FAIL warm start: …conversation 1: has 32 tokens, the model's context is 16 → fix the file, or change engine.tinker",
			},
		},
		"says nothing": {
			tinker: "base_url: " + silent + ", chat: characters, capabilities: {normalization: sum}",
			want:   []string{"ok engine: " + silent + " answers; the model is tiny, a vocabulary of 48 tokens, a context of 16 tokens"},
		},
		"away": {
			tinker: "base_url: '" + away + "', chat: characters",
			want:   []string{"FAIL engine: " + away + ": client: …connection refused → start it, or change engine.tinker.base_url"},
		},
		"another model": {
			tinker: "base_url: " + open + ", model: Qwen, chat: characters",
			want:   []string{`FAIL engine: ` + open + `: the engine has no model "Qwen", only ["tiny"] → change engine.tinker.model, or leave it out`},
		},
		"other characters": {
			tinker: "base_url: " + open + ", chat: {characters: ab}",
			want:   []string{"FAIL engine: " + open + `: the chat format has 6 tokens, but the engine's model "tiny" has 48 → name the files of the engine's model in engine.tinker.chat`},
		},
		"no key": {
			tinker: "base_url: " + locked + ", chat: characters",
			want:   []string{"FAIL engine: " + locked + ": client: /client/config: 401 … → set its key: api_key: env:NAME"},
		},
		"no secret": {
			tinker: "base_url: " + locked + ", chat: characters, api_key: env:AGL_NO_SUCH_KEY",
			want:   []string{"FAIL secret: engine.tinker.api_key is taken from the environment variable AGL_NO_SUCH_KEY, which is not set → set AGL_NO_SUCH_KEY"},
		},
		"no files of a model": {
			tinker: "base_url: " + open + ", chat: {folder: .}",
			want:   []string{"FAIL engine: …tokenizer.json: no such file or directory → change engine.tinker, or the files of the model"},
		},
		"another loss": {
			tinker: "base_url: " + silent + ", chat: characters, capabilities: {losses: [importance_sampling]}", loss: ", loss: ppo",
			want: []string{"FAIL engine: " + silent + `: the engine has no loss "ppo", only ["importance_sampling"] → change the algorithm, or use an engine that supports it`},
		},
		"a loss for the reference": {
			tinker: "base_url: " + silent + ", chat: characters, capabilities: {losses: [importance_sampling]}", loss: ", kl: 0.1",
			want: []string{"FAIL engine: " + silent + `: the engine has no loss "cross_entropy", only ["importance_sampling"] → change the algorithm, or use an engine that supports it`},
		},
		"a loss that averages cannot have": {
			tinker: "base_url: " + silent + ", chat: characters, capabilities: {losses: [cross_entropy, importance_sampling, dro], normalization: datum_mean}", loss: ", loss: dro, plain_advantage: true",
			want: []string{"FAIL engine: " + silent + `: the engine has no loss "dro", only ["cross_entropy" "importance_sampling"] → change the algorithm, or use an engine that supports it`},
		},
		"a loss for what others did": {
			tinker: "base_url: " + silent + ", chat: characters, capabilities: {losses: [ppo]}", algorithm: "sft: {steps: 1, best: 1}",
			want: []string{"FAIL engine: " + silent + `: the engine has no loss "cross_entropy", only ["ppo"] → change the algorithm, or use an engine that supports it`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put(t, dir, "tasks.jsonl", "1\n")
			put(t, dir, "demos.jsonl", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]}`)
			put(t, dir, "long.jsonl", `{"messages":[{"role":"assistant","content":"`+strings.Repeat("a", 31)+`"}]}`)
			file := put(t, dir, "agl.yaml", fmt.Sprintf(`
data: {train: tasks.jsonl}
engine: {tinker: {%s}}
algorithm: {%s}
store: {listen: 127.0.0.1:0, db: 'memory:'}
`, test.tinker, cmp.Or(test.algorithm, "grpo: {steps: 1"+test.loss+"}")))
			got, _ := examine(t, file)
			const before, after = 3, 3 // other findings
			if len(got) < before+after {
				t.Fatalf("findings %q", got)
			}
			like(t, test.want, got[before:len(got)-after])
		})
	}
}

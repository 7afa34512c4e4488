//go:build examples

package examples_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl/test/process"
)

// walk says how the commands of a page are run: all of them in order, in one shell.
type walk struct {
	page string
	// repository runs them in a copy of the repository instead of an empty folder. The copy is mounted in the place of the
	// repository, so that Go can use its build cache.
	repository bool
	// node says that they need a Node that runs TypeScript.
	node bool
	// setup is a script that runs first.
	setup string
	// blocks are commands that run before a block of commands, by the beginning of its
	// first command. Without one, a block begins in the folder of the page.
	blocks map[string]string
	// fill replaces the placeholders of the page, such as ids.
	fill []string
	// servers are commands that do not end, by their beginning, each with the text that it
	// logs when it is ready; empty does not wait.
	servers map[string]string
	// skip are commands that cannot run here, by their beginning, and why.
	skip map[string]string
	// after is a script that must succeed in the end.
	after string
}

// standIn is a model server with the API of OpenAI at port 8000. It answers with the
// last number of the question, and writes prompts.
const standIn = `cat >standin.py <<'EOF'
import http.server, json, re


class Model(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = " ".join(m["content"] for m in body["messages"] if isinstance(m["content"], str))
        numbers = re.findall(r"\d+", text)
        content = "Answer {question} with a number." if "{question}" in text else numbers[-1] if numbers else "hello"
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
        reply = json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args):
        pass


print("listens", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Model).serve_forever()
EOF
serve standin.log listens python standin.py
`

// tasks writes tasks for the stand-in, and an agent for them.
const tasks = `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "{\"question\": \"which number is $i\", \"answer\": \"$i\"}"; done >tasks.jsonl
`

// anAgent writes agent.py, which asks its model and reports a reward.
const anAgent = `cat >agent.py <<'EOF'
import os
from openai import OpenAI

OpenAI().chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=[{"role": "user", "content": os.environ["AGL_TASK"]}])
print('{"reward": 1}')
EOF
`

// newest is the id of a real rollout, in place of a made-up id on a page.
const newest = "$(agl rollouts --limit 1 --json | python -c 'import json, sys; print(json.load(sys.stdin)[\"rollout_id\"])')"

// tinyQwen is a tokenizer of bytes in the place of a real model's, and an agent that
// rewards what random weights can do.
const tinyQwen = `mkdir -p models/Qwen3-4B
python - <<'EOF'
import json

printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
symbols = [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]
level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
special = [{"id": 256 + i, "content": text, "special": True} for i, text in enumerate(["<|im_start|>", "<|im_end|>"])]
model = {"type": "BPE", "vocab": {s: i for i, s in enumerate(symbols)}, "merges": []}
template = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
with open("models/Qwen3-4B/tokenizer.json", "w") as f:
    json.dump({"added_tokens": special, "pre_tokenizer": level, "decoder": level, "model": model}, f)
with open("models/Qwen3-4B/tokenizer_config.json", "w") as f:
    json.dump({"chat_template": template, "eos_token": "<|im_end|>"}, f)
EOF
cat >agent.py <<'EOF'
import json, os, urllib.request

body = {"model": os.environ["OPENAI_MODEL"], "max_tokens": 4, "messages": [{"role": "user", "content": os.environ["AGL_TASK"]}]}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as reply:
    print(json.dumps({"reward": len(json.load(reply)["choices"][0]["message"]["content"]) % 2}))
EOF
`

const learned = `grep '"improved": true' `

func walks() []walk {
	return []walk{
		{
			page: "README.md", repository: true, setup: standIn + tasks + anAgent,
			fill: []string{"ro-5dc1cdd61b50", newest},
			servers: map[string]string{
				"./agl store": "listens", "./agl proxy": "listens", "./agl runner": "", "./agl rollouts --watch": "",
			},
			skip: map[string]string{
				"pip install ./python":         "fetches what builds the wheel; make python builds and installs it",
				"agl-go init first":            "is of the wheel; the block with make build does the same",
				"cd first && agl-go":           "is of the wheel; the block with make build does the same",
				"go run ./examples/calculator": "takes minutes on a busy machine; make seeds runs it",
			},
			after: "test -s first/runs/agl/report.html && test -s copy.db",
		},
		{
			page:   "docs/train-python.md",
			blocks: map[string]string{"agl config check": "cd first; ln -s $AGL_EXAMPLES_VENV .venv; cp $BLOCKS/python.3 agent.py; cp $BLOCKS/yaml.0 agl.yaml"},
			after:  "cd first; " + learned + "runs/agl/best/best.json && " + learned + "runs/agl-2/best/best.json",
		},
		{page: "docs/running.md", repository: true},
		{page: "docs/train-go.md", repository: true, after: learned + "examples/go/runs/agl/best/best.json"},
		{page: "docs/train-typescript.md", node: true, after: learned + "first/runs/agl/best/best.json"},
		{
			page: "docs/tune-my-prompts.md",
			setup: standIn + tasks + "printf 'Answer {question}' >solver.txt; export OPENAI_API_KEY=none; cp $BLOCKS/python.0 agent.py\n" +
				"sed 's,https://api.openai.com,http://127.0.0.1:8000,; s/budget: {dollars: 3}/budget: {tokens: 100}/' $BLOCKS/yaml.0 >agl.yaml\n",
			after: "test -s runs/agl/best/solver.txt",
		},
		{
			page:  "docs/live.md",
			setup: standIn + "agl init own --template shell; cp own/demos.jsonl .\n",
			blocks: map[string]string{
				"curl http://127.0.0.1:4748/v1/agl/event": "stop; serve standin.log listens python standin.py; serve store.log listens agl store\n" +
					`printf 'models: [{name: gpt, base_url: "http://127.0.0.1:8000/v1", text_only: true}]\nsessions: {idle_timeout: 15m, rewards: {events: {accepted: 1}}}\n' >proxy.yaml
serve proxy.log listens agl proxy --port 4748 --config proxy.yaml
curl -sf http://127.0.0.1:4748/v1/chat/completions -H 'X-Agl-Session: chat-81' -H 'X-Agl-User: ada' -H 'X-Agl-Turn: 3' -d '{"model":"gpt","messages":[{"role":"user","content":"hi"}]}'`,
				"agl train live.yaml":       "stop; cp $BLOCKS/indented.4 live.yaml",
				"agl resources":             "stop; serve store.log listens agl store\n" + `curl -sf http://127.0.0.1:4747/v1/agl/resources --json '{"p": {"resource_type": "prompt_template", "template": "a {b}", "engine": "f-string"}}'`,
				"agl proxy --model support": "stop; rm agl.db*; serve store.log listens agl store",
			},
			fill: []string{
				"https://api.example.com", "http://127.0.0.1:8000", "ro-1", newest, "since=CURSOR&", "", "min=32&wait_seconds=60", "min=1",
				"rs-4f1c", "$(agl resources latest | head -1 | cut -d' ' -f1)",
				"re-c2mzq7xk4n5a", "$(agl release list --json | grep -o -m1 're-[a-z0-9]*' | head -1)",
			},
			servers: map[string]string{"agl store": "listens", "agl proxy": "listens", "agl train live.yaml": "^store: http"},
		},
		{
			page: "docs/process-agents.md", setup: standIn + tasks + anAgent,
			servers: map[string]string{"agl store": "listens", "agl runner": ""},
			skip:    map[string]string{`curl "$AGL_EMIT_URL"`: "is for agents: the variables are those of an attempt"},
			after:   "finished 12",
		},
		{
			page: "docs/proxy.md", setup: standIn, servers: map[string]string{"agl store": "listens", "agl proxy": "listens"},
			skip: map[string]string{`curl -X PUT localhost:4748/admin/models -d '{"models":[…`: "leaves out what the command before it says"},
		},
		{
			page: "docs/train.md", setup: example,
			blocks: map[string]string{"agl train --resume runs/agl fixed.yaml": "sed 's/steps: 2,/steps: 3,/' agl.yaml >fixed.yaml", "curl http://127.0.0.1:4750": "cd $ROOT"},
			servers: map[string]string{
				"agl serve runs/agl": "listens", "agl policy serve": "listens",
			},
			skip: map[string]string{
				"export AGL_CA=":         "is for three machines; the tests of trainer/job run the roles with TLS",
				"AGL_PROXY_KEYS=… agl":   "is for three machines",
				"agl train agl.yaml --r": "is for three machines",
				"agl runner --store":     "is for three machines",
			},
			after: `grep '"step":3,' runs/agl/metrics.jsonl`,
		},
		{
			page: "docs/inspect.md",
			setup: example + "agl train\nprintf 'question,answer\\nq,4\\n' >tasks.csv; printf '{\"question\": \"q\"}\\n' >tasks.jsonl\n" +
				"some-program() { cat tasks.jsonl; }\nserve store.log listens agl store; agl enqueue tasks.jsonl\n",
			blocks: map[string]string{"agl export --what trajectories": "rm -f train.parquet", "agl export --what messages": "rm -f chats.jsonl"},
			fill:   []string{"ro-b66f639043f4", newest},
			skip:   map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "needs OpenTelemetry's SDK; make compat runs it"},
			after:  "test -e chats.jsonl && agl runs show sweep-7 | grep ^loss",
		},
		{
			page: "docs/access.md", setup: standIn,
			blocks: map[string]string{
				"AGL_TOKEN=… agl store": "stop", "agl store --tls-cert": "stop; agl cert certs",
				"AGL_TOKEN=… agl proxy": "stop; serve store.log listens agl store; serve standin.log listens python standin.py",
			},
			fill: []string{
				"AGL_TOKEN=… agl", "env AGL_TOKEN=$AGL_TOKEN agl", "/var/lib/agl", "projects", "HOST", "127.0.0.1", "sqlite:projects", "sqlite:$ROOT/projects",
				"b5xw2n7kq4ta", "$(agl key list --json | grep -o -m1 '\"id\":\"[a-z0-9]*' | cut -d'\"' -f4)",
			},
			servers: map[string]string{"agl store &": "listens", "AGL_TOKEN=… agl store": "listens", "agl store --tls-cert": "listens", "AGL_TOKEN=… agl proxy": "listens"},
			skip: map[string]string{
				"export AGL_TOKEN=… AGL_OIDC":         "needs an identity provider; the tests of access/oidc have one",
				"agl store --host 0.0.0.0 --tls-cert": "needs an identity provider",
				"agl store --jwt-issuer":              "needs an issuer of tokens",
			},
		},
		{
			page: "docs/train-file.md", blocks: map[string]string{"agl config check": shorten}, after: "test -s first/runs/agl/report.html",
		},
		{
			page: "docs/dashboard.md", setup: example + "agl train\n",
			fill:    []string{"agl store --db", "agl store --port 4749 --db"}, // beside the other one
			servers: map[string]string{"agl store": "listens"},
			after:   "curl -sf http://127.0.0.1:4747/ | grep '<title>' && agl rollouts --store http://127.0.0.1:4749 --json | grep reward",
		},
		{
			page: "docs/operations.md",
			setup: "mkdir data backup; agl cert own; cp own/server.* .; printf '127.0.0.1 localhost trainer\n' >hosts; mount --bind hosts /etc/hosts\n" +
				"echo 'print(\"{\\\"reward\\\": 1}\")' >agent.py; echo '{}' >tasks.jsonl\n",
			blocks: map[string]string{
				"AGL_TOKEN=… agl store": "stop", "agl db status": "stop", "agl db import": "agl db migrate --db sqlite:other.db",
			},
			fill: []string{
				"/var/lib/agl", "$ROOT/data", "/backup", "$ROOT/backup", "AGL_TOKEN=… agl", "env AGL_TOKEN=t agl",
				"backup FILE", "backup copy.db", "export FILE", "export all.jsonl", "import FILE", "import --db sqlite:other.db all.jsonl",
			},
			servers: map[string]string{"agl store": "listens", "AGL_TOKEN=… agl store": "listens", "AGL_TOKEN=… agl runner": ""},
			after: "export AGL_STORE_URL=https://trainer:4747 AGL_CA=certs/ca.pem AGL_TOKEN=t\n" +
				`curl -sS --fail-with-body --cacert certs/ca.pem -H 'Authorization: Bearer t' https://trainer:4747/v1/agl/resources --json '{"p": {"resource_type": "prompt_template", "template": "a {b}", "engine": "f-string"}}'` +
				"\nagl enqueue tasks.jsonl && finished 1 && test -s copy.db",
		},
		{page: "docs/from-agent-lightning.md", servers: map[string]string{"agl store": "listens"}},
		{page: "docs/from-agent-lightning-v1.md", servers: map[string]string{"agl store": "listens"}},
		{page: "docs/agent-lightning-versions.md", servers: map[string]string{"agl store": "listens"}},
		{
			page: "docs/policy-serve.md", setup: example + "agl train\nln -s $(command -v agl) agl; path=agl-policy\n",
			servers: map[string]string{"./agl policy serve": "listens"},
			skip:    map[string]string{"make build": "is run with the README"},
			after:   "test -s exported/model.safetensors",
		},
		{
			page: "docs/own-task.md", setup: "cp $BLOCKS/python.0 make_data.py; cp $BLOCKS/python.1 agent.py; cp $BLOCKS/yaml.0 agl.yaml\n",
			after: learned + "runs/agl/best/best.json\n" +
				`for part in 'Conversations before and after' 'Worst tasks' Settings; do grep -o "<h2>$part</h2>" runs/agl/report.html; done`,
		},
		{
			page: "docs/engines.md", setup: tasks + tinyQwen + `mv tasks.jsonl train.jsonl; cp train.jsonl val.jsonl
printf '127.0.0.1 localhost gpu\n' >hosts; mount --bind hosts /etc/hosts
serve engine.log listens agl policy serve --port 8000 --name qwen --vocab 258 --context 256 --layers 1 --dim 16 --heads 1
sed 's,Qwen/Qwen3-4B,qwen,; s/151936/258/; s/32768/256/; s/steps: 200/steps: 2/; s/_step: 32/_step: 2/; s/every: 10/every: 1/; s/every: 20/every: 1/' $BLOCKS/yaml.2 >agl.yaml
`,
			after: `grep '"step":2,' runs/agl/metrics.jsonl`,
		},
		{
			page: "docs/rl.md", repository: true, setup: "cp -r docs/images figures\n",
			skip: map[string]string{
				"make bench-async":             "takes minutes, in the warm starts of the calculator; make seeds runs it",
				"go run ./bench/async":         "takes minutes",
				"go run ./examples/calculator": "takes minutes",
			},
			after: "diff -r figures docs/images", // those of the page are what it computes
		},
		{
			page: "docs/benchmarks.md", repository: true,
			fill: []string{"-bench", "-benchtime 1x -bench"},
			skip: map[string]string{
				"time ./calculator":    "takes a minute on a busy machine; make seeds runs it",
				"go run ./bench/store": "measures for minutes, and needs the Python package",
			},
		},
	}
}

// TestEveryPageIsRun checks that TestPages runs every page with commands.
func TestEveryPageIsRun(t *testing.T) {
	ran := map[string]bool{}
	for _, w := range walks() {
		ran[w.page] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, file := range pages {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page, has := "docs/"+filepath.Base(file), false
		for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
			has = has || block[1] == "sh" || block[1] == "bash" || block[1] == "shell" || block[1] == "console"
		}
		for _, block := range indented.FindAllString(fenced.ReplaceAllString(string(text), ""), -1) {
			has = has || begins.MatchString(strings.TrimPrefix(block, "    "))
		}
		if has && !ran[page] {
			t.Errorf("%s has commands, and is not in walks", page)
		}
	}
}

// example is a run file of two short steps, with what it needs.
const example = "agl init . --template shell\n" + shorten

// shorten makes the run of a template short.
const shorten = `sed -i 's/steps: 250/steps: 20/; s/steps: 25, prompts_per_step: 16/steps: 2, prompts_per_step: 4/; s/val.jsonl/{file: val.jsonl, limit: 8}/' agl.yaml
`

// prelude defines the functions that the scripts use: serve LOG TEXT COMMAND… starts a server
// and waits until it has logged the text, unless that is empty; stop ends all servers;
// finished N waits until N rollouts are finished.
const prelude = `
serve() { : >"$1"; "${@:3}" >>"$1" 2>&1 & [ -z "$2" ] || grep -q -m1 -- "$2" <(tail -f -n +1 --pid=$! "$1"); }
stop() { [ -z "$(jobs -p)" ] || kill $(jobs -p); wait; }
finished() { until [ "$(agl rollouts --status succeeded --json --limit 0 | wc -l)" = "$1" ]; do sleep 0.1; done; }
`

// TestPages runs the commands of pages unchanged, each page in a network of its own, so that
// the ports are free and nothing else can be reached.
func TestPages(t *testing.T) {
	t.Parallel()
	isolate := []string{"unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		isolate = append(isolate, "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), isolate[0], append(isolate[1:], "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
		t.Skipf("no network of its own for each page: %v: %s", err, out)
	}
	for _, w := range walks() {
		t.Run(strings.TrimSuffix(filepath.Base(w.page), ".md"), func(t *testing.T) {
			t.Parallel()
			w.run(t, isolate)
		})
	}
}

func (w walk) run(t *testing.T, isolate []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", w.page))
	if err != nil {
		t.Fatal(err)
	}
	dir, blocks, bin := process.Dir(t), t.TempDir(), t.TempDir()
	root, place := dir, ""
	if w.repository {
		dir = t.TempDir() // the sources have what is looked for
		copyRepository(t, dir)
		if root, err = filepath.Abs("../.."); err != nil {
			t.Fatal(err)
		}
		place = fmt.Sprintf("mount --bind %q %q\ncd $ROOT\n", dir, root)
	}
	commands := w.read(t, string(text), blocks)
	if err := os.Symlink(program, filepath.Join(bin, "agl")); err != nil {
		t.Fatal(err)
	}
	path := []string{bin, filepath.Join(os.Getenv("AGL_EXAMPLES_VENV"), "bin")}
	if w.node {
		path = append(path, newNode(t)...)
	}
	sources, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e\nip link set lo up\n" + place + prelude + w.setup + "\n" + commands + "\ncd $ROOT\n" + w.after + "\n"
	const longest = 5 * time.Minute // only a failure takes so long
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, isolate[0], append(isolate[1:], "bash", "-c", script)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ROOT="+root, "BLOCKS="+blocks, "PYTHONPATH="+sources, "TERM=dumb",
		"PATH="+strings.Join(append(path, os.Getenv("PATH")), string(os.PathListSeparator)))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
		logs, _ := filepath.Glob(filepath.Join(dir, "*.log")) // the pattern is right
		for _, name := range logs {
			log, err := os.ReadFile(name)
			t.Logf("%s: %v\n%s", filepath.Base(name), err, log)
		}
	}
}

// copyRepository copies the files of the repository as they are now.
func copyRepository(t *testing.T, dir string) {
	t.Helper()
	const archive = `git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -T - -c | tar x -C "$0"`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", archive, dir)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

var (
	fenced   = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")
	indented = regexp.MustCompile(`(?m)(^    .*\n)+`)
	begins   = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*(?:\./)?(agl|agl-go|curl|cd|export|make|mkdir|time|go|pip|python3?|some-program)(?:\s|$)`)
)

// needs begins a block of commands which says that they need more than any machine has.
const needs = "# needs "

// read returns the script of a page's commands, and writes its other blocks to files.
func (w walk) read(t *testing.T, text, blocks string) string {
	t.Helper()
	count := map[string]int{}
	keep := func(kind, content string) {
		name := fmt.Sprintf("%s.%d", kind, count[kind])
		count[kind]++
		if err := os.WriteFile(filepath.Join(blocks, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text = fenced.ReplaceAllStringFunc(text, func(found string) string {
		parts := fenced.FindStringSubmatch(found)
		keep(parts[1], parts[2])
		return ""
	})
	var script strings.Builder
	used := map[string]bool{}
	ran := 0
	for _, block := range indented.FindAllString(text, -1) {
		block = regexp.MustCompile(`(?m)^    `).ReplaceAllString(block, "")
		if strings.HasPrefix(block, needs) {
			t.Logf("not run:\n%s", block)
			continue
		}
		if !begins.MatchString(block) {
			keep("indented", block)
			continue
		}
		for i, command := range split(block) {
			if why := match(w.skip, command, used); why != "" {
				t.Logf("not run: %s: %s", command, why)
				continue
			}
			if i == 0 {
				fmt.Fprintf(&script, "cd $ROOT\n")
			}
			if before := match(w.blocks, command, used); before != "" {
				fmt.Fprintln(&script, before)
			}
			ran++
			fmt.Fprintln(&script, w.line(command, ran, used))
		}
	}
	if ran == 0 {
		t.Error("the page has no command that runs")
	}
	for _, table := range []map[string]string{w.blocks, w.servers, w.skip} {
		for begin := range table {
			if !used[begin] {
				t.Errorf("the page has no command %q", begin)
			}
		}
	}
	return script.String()
}

// line is the line of the script for a command.
func (w walk) line(command string, n int, used map[string]bool) string {
	filled := strings.NewReplacer(w.fill...).Replace(command)
	if request, ok := strings.CutPrefix(filled, "curl "); ok {
		filled = "curl -sS --fail-with-body " + request
	}
	said := fmt.Sprintf("cat <<'EOF'\n$ %s\nEOF\n", command)
	for begin, ready := range w.servers {
		if !strings.HasPrefix(command, begin) {
			continue
		}
		used[begin] = true
		filled, _, _ = strings.Cut(filled, " #")
		filled = fmt.Sprintf("serve $ROOT/%d.log %q %s", n, ready, strings.TrimSuffix(strings.TrimSpace(filled), "&"))
	}
	return said + filled
}

// match returns the entry of a table for a command.
func match(table map[string]string, command string, used map[string]bool) string {
	for begin, value := range table {
		if strings.HasPrefix(command, begin) {
			used[begin] = true
			return value
		}
	}
	return ""
}

// split splits a block into its commands. All other lines are outputs of commands.
func split(block string) (commands []string) {
	open := false
	for line := range strings.Lines(block) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case open:
			commands[len(commands)-1] += "\n" + line
		case begins.MatchString(line):
			commands = append(commands, line)
		default:
			continue
		}
		last := commands[len(commands)-1]
		if code, _, comment := strings.Cut(last, "  #"); comment {
			last = code
		}
		open = strings.HasSuffix(last, `\`) || strings.Count(last, "'")%2 == 1
	}
	return commands
}

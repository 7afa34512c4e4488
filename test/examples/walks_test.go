//go:build examples

package examples_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/agl-go/agl/access/oidc/oidctest"
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
	// long are commands that take minutes, by their beginning. They run with -long only.
	long []string
	// after is a script that must succeed in the end.
	after string
}

func walks() []walk {
	return []walk{
		{
			page: "README.md", repository: true, setup: standIn + tasks + anAgent,
			fill: []string{"ro-5dc1cdd61b50", newest},
			servers: map[string]string{
				"./agl store": "listens", "./agl proxy": "listens", "./agl runner": "", "./agl rollouts --watch": "",
			},
			blocks: map[string]string{
				"pip install ./python":         "python -m venv new; . new/bin/activate; export PIP_NO_INDEX=1 PIP_FIND_LINKS=$AGL_EXAMPLES_VENV/wheels",
				"go run ./examples/calculator": "deactivate",
				"cd first":                     "shorter first/agl.yaml", "cd second": "shorter second/agl.yaml",
			},
			after: "finished 12 && test -s copy.db && " + learned + "first/runs/agl/best/best.json && " + learned + "second/runs/agl/best/best.json",
		},
		{
			page: "docs/train-python.md",
			blocks: map[string]string{
				"cd first":         "shorter first/agl.yaml",
				"agl config check": "cd first; ln -s $AGL_EXAMPLES_VENV .venv; cp $BLOCKS/python.3 agent.py; cp $BLOCKS/yaml.0 agl.yaml; shorter agl.yaml",
			},
			after: "cd first; " + learned + "runs/agl/best/best.json && " + learned + "runs/agl-2/best/best.json",
		},
		{page: "docs/running.md", repository: true},
		{page: "docs/train-go.md", repository: true, setup: "shorter examples/go/agl.yaml\n", after: learned + "examples/go/runs/agl/best/best.json"},
		{page: "docs/train-typescript.md", node: true, blocks: map[string]string{"cd first": "shorter first/agl.yaml"}, after: learned + "first/runs/agl/best/best.json"},
		{
			page: "docs/tune-my-prompts.md",
			setup: standIn + tasks + "printf 'Answer {question}' >solver.txt; export OPENAI_API_KEY=none; cp $BLOCKS/python.0 agent.py\n" +
				"sed 's,https://api.openai.com,http://127.0.0.1:8000,; s/budget: {dollars: 3}/budget: {tokens: 100}/' $BLOCKS/yaml.0 >agl.yaml; [ -n \"$LONG\" ] || echo '    rounds: 1' >>agl.yaml\n",
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
			blocks:  map[string]string{`curl -sS --fail-with-body "$AGL_EMIT_URL"`: "finished 12\n" + anAttempt},
			after:   "touch done; finished 13; agl rollouts --sort reward --json | grep '\"value\":0.1'",
		},
		{
			page: "docs/proxy.md", setup: standIn, servers: map[string]string{"agl store": "listens", "agl proxy": "listens"},
		},
		{
			page: "docs/train.md", setup: example,
			blocks: map[string]string{
				"agl train --resume runs/agl fixed.yaml": "sed 's/steps: 2,/steps: 3,/' agl.yaml >fixed.yaml", "curl http://127.0.0.1:4750": "cd $ROOT",
				"export AGL_CA=": threeMachines, "AGL_PROXY_KEYS=… agl train": "cd trainer", "agl train agl.yaml --role runner": "cd ../same", "agl runner --store": "cd ../other",
			},
			fill: []string{"AGL_TOKEN=…", "AGL_TOKEN=t", "AGL_PROXY_KEYS=…", "env AGL_PROXY_KEYS=0123456789abcdef0123456789abcdef"},
			servers: map[string]string{
				"agl serve runs/agl": "listens", "agl policy serve": "listens",
				"AGL_PROXY_KEYS=… agl train": "^store: http", "agl train agl.yaml --role runner": "", "agl runner --store": "",
			},
			after: `wait; grep '"step":3,' runs/agl/metrics.jsonl && grep '"step":2,' trainer/runs/agl/metrics.jsonl`,
		},
		{
			page: "docs/inspect.md",
			setup: example + "agl train\nprintf 'question,answer\\nq,4\\n' >tasks.csv; printf '{\"question\": \"q\"}\\n' >tasks.jsonl\n" +
				"some-program() { cat tasks.jsonl; }\nserve store.log listens agl store; agl enqueue tasks.jsonl\n",
			blocks: map[string]string{
				"agl export --what trajectories": "rm -f train.parquet", "agl export --what messages": "rm -f chats.jsonl",
				"OTEL_EXPORTER_OTLP_ENDPOINT": "agl runs show sweep-7 | grep ^loss\ncurl -sf -X DELETE http://127.0.0.1:4747/v1/agl/runs/sweep-7\n" + meter,
			},
			fill:  []string{"ro-b66f639043f4", newest},
			after: "test -e chats.jsonl && agl runs show sweep-7 | grep ^loss",
		},
		{
			page: "docs/access.md", setup: standIn,
			blocks: map[string]string{
				"AGL_TOKEN=… agl store": "stop", "agl store --tls-cert": "stop; agl cert certs",
				"AGL_TOKEN=… agl proxy":  "stop; serve store.log listens agl store; serve standin.log listens python standin.py",
				"export AGL_TOKEN=… AGL": "stop; " + provider, "agl store --jwt-issuer": signIn, "agl runner --store https": machineToken,
				"agl cert certs --client": "until agl workers --json | grep worker_id; do sleep 0.1; done; stop",
			},
			fill: []string{
				"https://agl.example.org --token-file /var/run/secrets/tokens/agl", "http://127.0.0.1:4747 --token-file jwt",
				"AGL_TOKEN=… agl", "env AGL_TOKEN=$AGL_TOKEN agl", "AGL_TOKEN=… AGL_OIDC_CLIENT_SECRET=…", "AGL_OIDC_CLIENT_SECRET=$SECRET",
				"/var/lib/agl", "projects", "HOST", "127.0.0.1", "sqlite:projects", "sqlite:$ROOT/projects",
				"b5xw2n7kq4ta", "$(agl key list --json | grep -o -m1 '\"id\":\"[a-z0-9]*' | cut -d'\"' -f4)",
			},
			servers: map[string]string{
				"agl store &": "listens", "AGL_TOKEN=… agl store": "listens", "agl store --tls-cert": "listens", "AGL_TOKEN=… agl proxy": "listens",
				"agl store --host 0.0.0.0 --tls-cert": "listens", "agl store --jwt-issuer": "listens", "agl runner --store https": "",
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
			page: "docs/policy-serve.md", repository: true, setup: "agl init first --template shell; cd first\n" + shorten + "agl train; cd ..; ln -s first/runs runs; path=agl-policy\n",
			servers: map[string]string{"./agl policy serve": "listens"},
			after:   "test -s exported/model.safetensors",
		},
		{
			page: "docs/own-task.md", setup: "cp $BLOCKS/python.0 make_data.py; cp $BLOCKS/python.1 agent.py; cp $BLOCKS/yaml.0 agl.yaml; shorter agl.yaml\n",
			after: learned + "runs/agl/best/best.json\n" +
				`for part in 'Conversations before and after' 'Worst tasks' Settings; do grep -o "<h2>$part</h2>" runs/agl/report.html; done`,
		},
		{
			page: "docs/engines.md", setup: tasks + tinyQwen + rewardsRandomly + `mv tasks.jsonl train.jsonl; cp train.jsonl val.jsonl
printf '127.0.0.1 localhost gpu\n' >hosts; mount --bind hosts /etc/hosts
serve engine.log listens agl policy serve --port 8000 --name qwen --vocab 258 --context 256 --layers 1 --dim 16 --heads 1
sed 's,Qwen/Qwen3-4B,qwen,; s/151936/258/; s/32768/256/; s/steps: 200/steps: 2/; s/_step: 32/_step: 2/; s/every: 10/every: 1/; s/every: 20/every: 1/' $BLOCKS/yaml.2 >agl.yaml
`,
			after: `grep '"step":2,' runs/agl/metrics.jsonl`,
		},
		{
			page: "docs/rl.md", repository: true, setup: "cp -r docs/images figures\n",
			long:  []string{"make bench-async", "go run ./examples/calculator"},
			after: "diff -r figures docs/images", // those of the page are what it computes
		},
		{
			page: "docs/benchmarks.md", repository: true,
			fill: []string{"-bench", "-benchtime 1x -bench"},
			long: []string{"time ./calculator", "make build", "go run ./bench/store"},
		},
	}
}

// example is a run file of two short steps, with what it needs.
const example = "agl init . --template shell\n" + shorten

// shorten makes the run of a template short.
const shorten = `sed -i 's/steps: 250/steps: 20/; s/steps: 25, prompts_per_step: 16/steps: 2, prompts_per_step: 4/; s/val.jsonl/{file: val.jsonl, limit: 8}/' agl.yaml
`

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

// anAttempt begins an attempt that waits for the file done, and takes its variables.
const anAttempt = `stop; serve store.log listens agl store
serve proxy.log listens agl proxy --port 4748 --model qwen=http://127.0.0.1:8000/v1
curl -sf http://127.0.0.1:4747/v1/agl/resources --json '{"main_llm": {"resource_type": "proxy_llm", "endpoint": "http://127.0.0.1:4748/v1", "model": "qwen"}}'
echo '{}' >one.jsonl; agl enqueue one.jsonl
serve attempt.log "" agl runner -- sh -c 'env | grep ^AGL_EMIT >new; mv new attempt; until [ -e done ]; do sleep 0.1; done'
until [ -e attempt ]; do sleep 0.1; done
. ./attempt
`

// threeMachines makes the folders of three machines: one for the trainer, one with the same run file, one with another agent.
const threeMachines = `stop; agl cert certs --host trainer; export SSL_CERT_FILE=certs/ca.pem
printf '127.0.0.1 localhost trainer\n' >hosts; mount --bind hosts /etc/hosts
mkdir trainer other; cp *.yaml *.sh *.jsonl trainer; cat $BLOCKS/yaml.6 >>trainer/agl.yaml; cp -r trainer same; cp -r certs trainer
for folder in same other; do mkdir $folder/certs; cp certs/ca.pem $folder/certs; done
cd other
` + rewardsRandomly + `cd ..
`

// meter writes train.py: the lines of the page, with OpenTelemetry's SDK.
const meter = `cat - $BLOCKS/indented.1 >train.py <<'EOF'
from opentelemetry import metrics
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

provider = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
metrics.set_meter_provider(provider)
EOF
echo 'provider.shutdown()' >>train.py
`

// provider starts the identity provider of oidctest, under the name of the page.
const provider = `printf '127.0.0.1 localhost agl.example.org id.example.org\n' >hosts; mount --bind hosts /etc/hosts
agl cert own --host agl.example.org --host id.example.org; cp own/server.* .; export AGL_CA=$ROOT/own/ca.pem
serve provider.log listens $PROVIDER own/server.pem own/server.key
`

// roleProvider is the argument with which the test binary is that provider.
const roleProvider = "provider"

// serveProvider serves the provider until the process ends.
func serveProvider(cert, key string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:443")
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "listens")
	server := http.Server{ReadHeaderTimeout: time.Minute, Handler: oidctest.NewHandler("https://id.example.org", oidctest.Config{
		Groups: map[string][]string{"ana": {"research"}, "ci": {"ci"}}, ClientID: "dashboard", RedirectURL: "https://agl.example.org:4747/v1/agl/login/oidc/callback",
	})}
	return server.ServeTLS(listener, cert, key)
}

// signIn signs in at the store as a browser does.
const signIn = `site=https://agl.example.org:4747 browser="curl -sS --fail-with-body --cacert own/ca.pem --cookie jar --cookie-jar jar"
at=$($browser -L -o /dev/null -w '%{url_effective}' $site/v1/agl/login/oidc)
$browser -L -o /dev/null -d "username=ana&password=$PASSWORD&id=${at#*authRequestID=}" "${at%%\?*}"
$browser $site/v1/agl/login | grep oidc:ana
stop; ` + provider

// machineToken asks the store with a token of the provider.
const machineToken = `token=$(curl -sS --cacert own/ca.pem -u ci:$PASSWORD -d grant_type=client_credentials -d scope=openid https://id.example.org/oauth/token | python -c 'import json, sys; print(json.load(sys.stdin)["access_token"])')
echo "$token" >jwt
curl -sS --fail-with-body -H "Authorization: Bearer $token" http://127.0.0.1:4747/v1/agl/whoami | grep oidc:ci
`

// newest is the id of a real rollout, in place of a made-up id on a page.
const newest = "$(agl rollouts --limit 1 --json | python -c 'import json, sys; print(json.load(sys.stdin)[\"rollout_id\"])')"

// rewardsRandomly writes an agent that rewards what random weights can do.
const rewardsRandomly = `cat >agent.py <<'EOF'
import json, os, urllib.request

body = {"model": os.environ["OPENAI_MODEL"], "max_tokens": 4, "messages": [{"role": "user", "content": json.loads(os.environ["AGL_TASK"])["question"]}]}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
with urllib.request.urlopen(request) as reply:
    print(json.dumps({"reward": len(json.load(reply)["choices"][0]["message"]["content"]) % 2}))
EOF
`

// tinyQwen is a tokenizer of bytes in the place of a real model's.
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
`

const learned = `grep '"improved": true' `

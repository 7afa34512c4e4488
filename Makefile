# The commands of this repository. CI calls the same ones (.ci/run).
GO           ?= go
BIN          := .cache/bin
LINT         := $(BIN)/golangci-lint
LINT_VERSION := v2.15.0
# One package more than there are processors, because tests also wait; and no debugger reads these programs, which link in less time without its data.
FASTER       := -p $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1))) -ldflags=-w
# Suites under test/ start real processes and have their own targets. The packages that take longest come first, so that none runs alone at the end.
UNIT         := ./algorithm/grpo ./store/postgres ./store/sqlite ./rest/client ./trainer/job $$($(GO) list ./... | grep -v /test/)
# The Go SDKs are large. Without optimisation they compile in a fraction of the time.
SDKS         := -gcflags='github.com/openai/openai-go/v3/...=-N -l' -gcflags='github.com/anthropics/anthropic-sdk-go/...=-N -l'

# In CI, what has failed is run once more (test/again.sh).
TEST          = $(if $(AGAIN),test/again.sh $@,$(GO) test)

# SQLite is C that was translated to Go. Watched by the race detector, its tests take five times as long; what calls it is watched.
SQLITE       := -gcflags='modernc.org/sqlite/lib=-race=false' -gcflags='modernc.org/libc/...=-race=false'

# Everything is compiled once: without C, as what is released. Only the race detector needs it.
export CGO_ENABLED ?= 0
# Without paths in what is compiled, one checkout uses what another has compiled.
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath

.PHONY: kustomize build test race lint compat gateway python wheels clients examples examples-long firsthour page e2e attack vulnerabilities chaos chaos-short faults fuzz bench bench-store bench-overhead bench-async bench-proxy bench-gateway bench-apo bench-process bench-tokenizers bench-live tinker-sdk tokenizers trackers skyrl proxy-soak seeds apo full clean

build: ## the agl binary, static
	$(GO) build -ldflags='-s -w' -o agl ./cmd/agl

test: ## unit tests
	$(GO) vet ./...
	$(TEST) $(FASTER) $(UNIT)

race: ## unit tests under the race detector, without long tests whose goroutines are those of others
	CGO_ENABLED=1 $(TEST) -race $(FASTER) $(SQLITE) -short $(UNIT)

$(LINT):
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

lint: $(LINT) ## style, bugs and import arrows
	$(LINT) run ./...

compat: ## the real Python package of Agent-lightning against this code
	AGL_COMPAT_VENV=$$(test/compat/venv.sh) $(TEST) -count=1 -run Python ./proxy
	test/compat/run.sh

gateway: ## the real Agent-lightning v1.0 against agl store --gateway and against its own server; needs Python 3.12 and PostgreSQL
	$(TEST) -count=1 ./test/gateway
	test/gateway/run.sh

python: ## the wheel agl-go: types, unit tests, and real runs with it
	python/check.sh

wheels: ## the wheel agl-go for linux, darwin and windows on amd64 and arm64, in dist/; checks their names, tags and contents
	python/wheels.sh dist

clients: ## the real SDKs of OpenAI and Anthropic against the proxy
	vars=$$(test/clients/setup.sh) && env $$vars $(TEST) -count=1 -tags clients $(SDKS) ./test/clients

tinker-sdk: ## Tinker's Python SDK against agl policy serve: the newest version, and the last one that speaks JSON
	vars=$$(test/tinkersdk/setup.sh) && env $$vars $(TEST) -count=1 -tags tinkersdk ./test/tinkersdk

kustomize: ## the Kubernetes manifests, built as kubectl builds them, against the types of Kubernetes; a module of its own
	cd test/kustomize && $(GO) test -count=1 ./...

firsthour: ## mistakes of new users, with the exit codes and the sentences that lead out
	$(TEST) -count=1 ./test/firsthour

page: ## the dashboard in a real browser, over the store of a real run
	vars=$$(test/page/setup.sh) && env $$vars $(GO) test -count=1 -timeout 20m -tags page ./test/page

vulnerabilities: ## known vulnerabilities in what is linked; says so and passes where their database cannot be reached
	test/vulnerabilities.sh

attack: ## hostile requests to the real servers: clear answers, bounded memory, and alive afterwards
	$(TEST) -count=1 -timeout 9m -parallel 4 ./test/attack

e2e: ## real processes, real signals
	AGL_COMPAT_VENV=$$(test/compat/venv.sh) $(TEST) -count=1 -timeout 20m ./test/e2e ./test/order ./test/recording ./test/stores ./test/training

examples: ## every template of agl init and every example with real SDKs, in short runs, and the commands of pages as they stand
	vars=$$(test/examples/setup.sh) && env $$vars $(TEST) -count=1 -tags examples -timeout 30m ./test/examples

examples-long: ## the same in full, the calculator in Python, and commands of pages that take minutes; needs the Python package and PostgreSQL
	test/compat/venv.sh >/dev/null
	vars=$$(test/examples/setup.sh) && env $$vars $(GO) test -count=1 -tags examples -timeout 1h -v ./test/examples -long

chaos: ## servers and databases are killed 100 times under load; damaged files; full disks
	$(GO) test -count=1 ./test/chaos/history
	$(GO) test -count=1 -timeout 1h -v ./test/chaos -kills 100
	$(GO) test -count=1 -timeout 1h -v ./test/disk -damages 200

chaos-short: ## the same in two minutes
	$(TEST) -count=1 ./test/chaos/... ./test/disk

faults: ## every fault of an engine at every request of a run of 20 steps
	$(GO) test -count=1 -timeout 1h -v -run TestFaults ./algorithm/grpo -every-fault

fuzz: ## every fuzz target for FUZZTIME (60s) each
	test/fuzz.sh

bench: ## Go benchmarks of the hot paths
	$(GO) test -run '^$$' -bench . -benchtime 1s $(UNIT)

bench-store: build ## store servers over HTTP, as ratios; needs the Python package and PostgreSQL
	test/compat/venv.sh >/dev/null
	$(GO) run ./bench/store --rounds 3 --memory 2000000000

bench-overhead: ## the cost of the whole system on the calculator example, as a ratio
	$(GO) build -o $(BIN)/calculator ./examples/calculator
	$(GO) run ./bench/overhead --calculator $(BIN)/calculator --rounds 3

bench-async: ## sampling ahead of training on the calculator example with a slow tool, as ratios; the table of docs/rl.md
	$(GO) build -o $(BIN)/calculator ./examples/calculator
	$(GO) run ./bench/async --calculator $(BIN)/calculator --seeds 2

bench-proxy: build ## LLM gateways in front of one model server, as ratios; installs LiteLLM
	$(GO) run ./bench/proxy --rounds 3 --litellm $$(bench/proxy/litellm.sh)

bench-conversation: ## what a conversation of many turns costs in bytes and time, as ratios; needs PostgreSQL
	$(GO) run ./bench/conversation

bench-live: build ## how the template live follows customers whose taste changes; draws docs/images/live.svg
	$(GO) run ./bench/live

bench-process: ## rollouts of a process agent against a bare loop of processes, as a ratio
	$(GO) build -o $(BIN)/process-agent ./bench/process/agent
	$(GO) run ./bench/process --rounds 3

bench-gateway: build ## agl store --gateway beside Agent-lightning v1.0's server, as ratios; needs Python 3.12
	$(GO) run ./bench/gateway --server $$(test/gateway/venv.sh)/bin/agl-server

bench-apo: build ## prompt tuning against the Python package's class, on the same tasks and models
	test/compat/venv.sh >/dev/null
	$(GO) run ./bench/apo

tokenizers: ## real tokenizers and chat templates against Python's; fetches five models
	vars=$$(test/tokenizers/setup.sh) && env $$vars $(GO) test -count=1 -timeout 30m -tags tokenizers ./test/tokenizers

trackers: ## metrics as TensorBoard and an MLflow server show them; installs both
	vars=$$(test/trackers/setup.sh) && env $$vars $(TEST) -count=1 -timeout 10m -tags trackers ./test/trackers

skyrl: ## training with SkyRL's Tinker server on the CPU (AGL_SKYRL_GPUS=1: one GPU), which is killed during the run; installs it, needs Python 3.12
	vars=$$(test/skyrl/setup.sh) && env $$vars $(GO) test -count=1 -timeout 30m -v -tags skyrl ./test/skyrl

bench-tokenizers: ## tokenizing against Python's tokenizers, one thread each, as a ratio
	vars=$$(test/tokenizers/setup.sh) && eval $$vars && $(GO) run ./bench/tokenizers --venv $$AGL_TOKENIZERS_VENV --models $$AGL_TOKENIZERS_MODELS

proxy-soak: ## 100,000 recorded calls while the store is killed and the proxy restarted
	$(GO) test -count=1 -timeout 2h -v ./test/recording -calls 100000 -kills 60

seeds: ## the calculator example with five seeds, the results as JSON
	$(GO) build -o $(BIN)/calculator ./examples/calculator
	for seed in 1 2 3 4 5; do $(BIN)/calculator --seed $$seed --summary $(BIN)/summary-$$seed.json >/dev/null && cat $(BIN)/summary-$$seed.json || exit 1; done

apo: ## prompt tuning on tasks with known optima, 100 seeds each: is the optimum found, and are the intervals right
	$(GO) test -count=1 -timeout 1h -v ./test/apo

full: test lint race compat gateway python clients tinker-sdk tokenizers trackers skyrl firsthour kustomize page e2e attack chaos faults seeds apo fuzz bench bench-store bench-overhead bench-gateway bench-apo bench-process bench-tokenizers examples-long ## everything, before a release

clean:
	rm -rf .cache agl

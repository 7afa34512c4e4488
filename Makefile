# The verbs of this repository. CI calls the same ones (.ci/run).
GO       ?= go
BIN      := .cache/bin
LINT     := $(BIN)/golangci-lint
LINT_VERSION := v2.15.0
FUZZTIME ?= 60s

.PHONY: build test race lint compat e2e fuzz bench full clean

build: ## the agl binary
	CGO_ENABLED=0 $(GO) build -trimpath -o agl ./cmd/agl

test: ## unit tests, seconds
	$(GO) vet ./...
	$(GO) test ./...

race: ## unit tests under the race detector
	$(GO) test -race ./...

$(LINT):
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

lint: $(LINT) ## style, bugs and import arrows
	$(LINT) run ./...

compat: ## the real Python package against this code
	test/compat/run.sh

full: test lint race compat e2e fuzz bench ## everything, before a release

clean:
	rm -rf .cache agl

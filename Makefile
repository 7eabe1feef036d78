# Fettle. `make help` lists the targets; every one can be run from a fresh clone.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/fettle-dev/fettle/internal/version.linked=$(VERSION)
# grpcnotrace leaves out gRPC's request tracing, which costs 4 MB and keeps the linker from dropping unused methods.
GOBUILD := CGO_ENABLED=0 go build -trimpath -tags=grpcnotrace -ldflags='$(LDFLAGS)'
PROGRAMS := nodeagent controller

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static programs into bin/. Needs Go.
	$(GOBUILD) -o bin/ $(PROGRAMS:%=./cmd/%)

.PHONY: run
run: ## Build, then check this machine once with bin/nodeagent check.
	@$(GOBUILD) -o bin/ ./cmd/nodeagent
	@bin/nodeagent check

.PHONY: image
image: build bin/tools/image ## Build container images without a container engine: bin/*-image.tar.
	bin/tools/image --output bin/nodeagent-image.tar --tag fettle.dev/nodeagent:dev --file bin/nodeagent=/usr/bin/nodeagent --entrypoint /usr/bin/nodeagent
	bin/tools/image --output bin/controller-image.tar --tag fettle.dev/controller:dev --file bin/controller=/usr/bin/controller --entrypoint /usr/bin/controller --user 65532:65532

.PHONY: controlplane
controlplane: ## Build or find the Kubernetes programs the tests run against; the last line is their folder.
	@go run ./test/controlplane/cmd/controlplane

.PHONY: demo
demo: build controlplane ## Watch a machine break, be tainted, and be repaired. Needs root on Debian.
	@tools/prepare
	@go run ./test/e2e/demo

.PHONY: generate
generate: bin/tools/controller-gen bin/tools/decodable ## Generate deep copies, CRDs and the pages of reference.
	bin/tools/controller-gen object paths=./api/... crd output:crd:dir=deploy/crds
	bin/tools/decodable deploy/crds
	go build -o bin/ ./cmd/nodeagent
	tools/generate-pages bin/nodeagent docs/reference

.PHONY: generate-check
generate-check: bin/tools/controller-gen bin/tools/decodable ## Fail when generated files are not current.
	tools/generate-check

.PHONY: lint
lint: bin/tools/golangci-lint ## Run the linters of tools/golangci.yml.
	bin/tools/golangci-lint run --config tools/golangci.yml ./...

.PHONY: test
test: build lint generate-check controlplane bin/tools/testrun image ## Install what is needed (root, Debian), then run everything. FETTLE_LEAVE_OUT="vm e2e" leaves levels out.
	tools/prepare
	bin/tools/testrun

.PHONY: bench-agent
bench-agent: build controlplane ## Measure what the agent takes, beside an idle program with the same libraries. Needs root on Debian; MINUTES=3.
	@tools/prepare
	@go run ./test/bench/agent --minutes $(or $(MINUTES),3)

.PHONY: bench-controller
bench-controller: controlplane ## Measure the controller, beside a bare loop that does the same writes. NODES=5000 BURST=1000 RULES=20 PAIRS=3 SPAN=20s; PARTS=steady,flapping.
	@go run ./test/bench/controller --nodes $(or $(NODES),5000) --burst $(or $(BURST),1000) --rules $(or $(RULES),20) --pairs $(or $(PAIRS),3) --span $(or $(SPAN),20s) --only "$(PARTS)"

.PHONY: clean
clean: ## Remove what was built in the checkout. Caches outside it stay.
	rm -rf bin

# The tools are pinned in tools/go.mod.
bin/tools/controller-gen: tools/go.mod tools/go.sum
	go build -C tools -o ../bin/tools/ sigs.k8s.io/controller-tools/cmd/controller-gen
bin/tools/golangci-lint: tools/go.mod tools/go.sum
	go build -C tools -o ../bin/tools/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
bin/tools/decodable: $(wildcard tools/decodable/*.go) tools/go.mod
	go build -C tools -o ../bin/tools/ ./decodable

bin/tools/testrun: $(wildcard tools/testrun/*.go) tools/go.mod
	go build -C tools -o ../bin/tools/ ./testrun
bin/tools/image: $(wildcard tools/image/*.go) tools/go.mod
	go build -C tools -o ../bin/tools/ ./image

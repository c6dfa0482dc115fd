# kueue-trainer: `make help` lists the targets.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

$(if $(word 2,$(CURDIR)),$(error make takes no path with spaces: move $(CURDIR)))

BIN := $(CURDIR)/bin

# The same compiled code serves every checkout on a machine, and so do results of tests. A program
# is the same whatever else lies in the checkout, so that nothing is restarted for a new build of it.
export GOFLAGS := $(filter-out -trimpath -buildvcs=false,$(GOFLAGS)) -trimpath -buildvcs=false

# No C compiler is needed, and what is built runs in an image of nothing else.
export CGO_ENABLED := 0

# The local control plane; see `make help`.
export LOCAL_DIR ?= .local
export NODES ?= 8
export INTEGRATION ?= external
# Without a value a new cluster gets the newest Trainer, and a running one keeps its own.
export TRAINER
# The same for the version of the control plane, which is Kueue's own without a value.
export KUBERNETES

# Flags of the generations tests: the seed and the count of random manifests.
GENERATIONS_FLAGS ?=

# What make bench measures, e.g. BENCH_FLAGS='-parts life -rounds 1 -out .local-bench-out'.
BENCH_FLAGS ?=

# Ginkgo flags for e2e, e.g. E2E_FLAGS='-ginkgo.focus=preempted', and in how many processes specs
# run that are not Serial: one on a cluster of somebody else's, whose nodes are for one.
E2E_FLAGS ?=
E2E_PROCS ?= $(if $(KUBECONFIG),1,4)

# Where a target tells what it ran: Ginkgo's report, or go test's events in what it prints.
REPORT ?=
EVENTS = $(if $(REPORT),-json)

# Flags for the fault injection, e.g. FAULTS_FLAGS='-run "TestFaults/^clean$$|TestFaults/^answers$$/409"'.
FAULTS_FLAGS ?=

# What make image builds: the tag, which --version says too, and the platforms.
VERSION ?= main
PLATFORMS ?= linux/amd64,linux/arm64

# The kind cluster; KIND_IMAGE is kind's own for the Kubernetes of the local control plane.
export KIND_NAME ?= kueue-trainer
export KIND_DIR ?= .kind
export KIND_IMAGE

# Flags of make monitoring-test, such as -churn=1m.
MONITORING_FLAGS ?=

# Flags for the seeded bugs, e.g. MUTANTS_FLAGS='-run webhook'.
MUTANTS_FLAGS ?=

##@ Start here

.PHONY: help
help: ## Show this.
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z][a-z0-9. -]*:.*## / {printf "  %-48s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nVariables: LOCAL_DIR=%s NODES=%s INTEGRATION=%s (external, in-tree or both), TRAINER=%s (2.1, 2.2 or 2.3), KUBERNETES=%s (1.34, 1.36 or 1.37), COMPONENT, E2E_FLAGS, FAULTS_FLAGS; KIND_IMAGE, KIND_NAME, KIND_DIR\n' "$(LOCAL_DIR)" "$(NODES)" "$(INTEGRATION)" "$(or $(TRAINER),2.3)" "$(or $(KUBERNETES),1.36)"

# KIND=1 has the demo play on the kind cluster, which stays.
KIND ?=

.PHONY: demo
demo: $(if $(KIND),kind-up,$(BIN)/localcluster) ## Play the main job on a local control plane of its own, and take it down. KIND=1: on a kind cluster. FLEET=1: with three clusters.
	go run ./test/demo $(if $(FLEET),-fleet,$(if $(KIND),-kubeconfig $(KIND_DIR)/kubeconfig))

# Flags of both, such as TEST_FLAGS='-only unit,lint'.
TEST_FLAGS ?=

# No go run, which would not hand a signal to end on.
run-gate = @go build -o $(BIN)/gate ./test/gate && exec $(BIN)/gate

.PHONY: test
test: ## Run what every change has to pass, in parts beside each other. Logs and reports lie in .tests/gate. TEST_FLAGS='-only unit,e2e'.
	$(run-gate) $(TEST_FLAGS)

.PHONY: test-all
test-all: ## Run everything there is, in hours; goes on where it was stopped. The table is .tests/all/tests.md, which a release keeps.
	$(run-gate) -all $(TEST_FLAGS)

##@ Local control plane

.PHONY: local-up
local-up: $(BIN)/localcluster ## Build what is missing and start it. kubectl lies in bin/, the kubeconfig in LOCAL_DIR.
	$(BIN)/localcluster up

.PHONY: local-down
local-down: $(BIN)/localcluster ## Stop what local-up started. Logs stay in LOCAL_DIR/logs.
	$(BIN)/localcluster down

.PHONY: local-status
local-status: $(BIN)/localcluster ## Show every component: process, health, port, log.
	$(BIN)/localcluster status

.PHONY: local-start local-stop local-kill local-restart
local-start local-stop local-kill local-restart: $(BIN)/localcluster ## One component: make local-restart COMPONENT=kueue
	$(BIN)/localcluster $(@:local-%=%) $(or $(COMPONENT),$(error COMPONENT is not set; 'make local-status' lists the names))

##@ Fleet

# Where the three clusters live, and who integrates TrainJobs in each: INTEGRATION or
# INTEGRATION:TRAINER, of the workers separated by a comma.
export FLEET_DIR ?= .fleet
export FLEET_MANAGER ?= external
export FLEET_WORKERS ?= external,external

.PHONY: fleet-up
fleet-up: $(BIN)/localcluster ## Start a manager cluster and two workers, connected by MultiKueue. FLEET_MANAGER=external FLEET_WORKERS=in-tree,external:2.2
	$(BIN)/localcluster fleet up

.PHONY: fleet-down
fleet-down: $(BIN)/localcluster ## Stop what fleet-up started. Logs stay in FLEET_DIR/*/logs.
	$(BIN)/localcluster fleet down

# In one process: Kueue asks a worker five times a second at most, whatever it is set to, and what
# waits for that longer than a spec expects meets Kueue's own races.
.PHONY: e2e-fleet
e2e-fleet: $(BIN)/localcluster $(BIN)/ginkgo test/fleet/fleet.test ## Run the specs of the fleet, on the one of KUBECONFIG or on one of their own.
	$(call specs,fleet,1) $(E2E_FLAGS)

# Always asked: go knows best what is out of date.
.PHONY: $(BIN)/localcluster
$(BIN)/localcluster:
	@$(if $(BUILT),test -x $@ ||) go build -C test/localcluster -o $@ .

##@ Kind cluster

# helm and the image builder have a module of their own.
.PHONY: kind-tools
kind-tools: tools $(BIN)/localcluster
	@go build -C release -o $(BIN)/ ./image helm.sh/helm/v4/cmd/helm

# What makes KIND_IMAGE where it cannot be pulled.
KIND_IMAGE_COMMAND ?=

.PHONY: kind-node-image
kind-node-image:
	$(KIND_IMAGE_COMMAND)

.PHONY: kind-up
kind-up: kind-tools ## Make a kind cluster with everything in pods, and fake GPU nodes. Needs Docker. KIND_IMAGE=for the nodes, KIND_NAME=kueue-trainer.
	$(BIN)/localcluster kind up

.PHONY: kind-down
kind-down: kind-tools ## Delete that kind cluster.
	$(BIN)/localcluster kind down

.PHONY: e2e-kind
e2e-kind: kind-up $(BIN)/ginkgo test/e2e/e2e.test ## Run the e2e specs on the kind cluster: all that need no process of their own, and those of a real kubelet. The cluster stays.
	KUBECONFIG=$(abspath $(KIND_DIR))/kubeconfig $(call specs,e2e,1) $(E2E_FLAGS)

##@ Development

.PHONY: build
build: ## Build the manager and the kubectl plugin, with its completion.
	go build -buildvcs=auto -o $(BIN)/ ./cmd/...
	install -m 755 cmd/kubectl-trainjob/kubectl_complete-trainjob $(BIN)/

.PHONY: unit
unit: ## Run the unit tests.
	go test $(EVENTS) -vet=off ./pkg/... ./cmd/... ./config/... ./test/kit/... ./test/attempt/... ./test/bench/... ./test/forecast/... ./test/ledger/... ./test/mutants/... ./test/docs/... ./test/gate/... ./test/faults/internal/...
	go test $(EVENTS) -skip 'TestFaults|TestAdversary' ./test/faults ./test/adversary
	@# They read files beside their modules, which the go command does not look at before it takes a result for the same.
	go test -C test/localcluster $(EVENTS) -count=1 ./...
	go test -C release $(EVENTS) -count=1 ./...
	go test -C hack/monitoring $(EVENTS) -count=1 ./...

# The race detector needs C.
.PHONY: race
race: ## Run the unit tests of the manager and the plugin under the race detector. Needs a C compiler.
	CGO_ENABLED=1 go test $(EVENTS) -race ./pkg/... ./cmd/...

.PHONY: generations
generations: ## Ask Trainer 2.1, 2.2 and 2.3 whether conversion, rules and provenance are right. GENERATIONS_FLAGS='-seed 1 -manifests 100'.
	go test $(EVENTS) ./test/generations/... -count=1 -timeout 30m -v -args $(GENERATIONS_FLAGS)

.PHONY: generations-sample
generations-sample: ## The same with a fifth of the manifests.
	$(MAKE) generations GENERATIONS_FLAGS='-manifests 2000 $(GENERATIONS_FLAGS)'

# specs runs a suite that is compiled in so many processes; what follows are flags of its own.
specs = $(BIN)/ginkgo --procs=$(2) --timeout=90m --fail-on-empty -v $(if $(REPORT),--output-dir=$(dir $(REPORT)) --json-report=$(notdir $(REPORT))$(3)) test/$(1)/$(1).test --

SUITES := $(foreach suite,e2e fleet monitoring,test/$(suite)/$(suite).test)

# With BUILT=1 what is there is taken as it is: the parts of make test have it built once.
BUILT ?=

.PHONY: $(SUITES)
$(SUITES):
	@$(if $(BUILT),test -x $@ ||) go test -c -o $@ ./$(@D)

.PHONY: $(BIN)/ginkgo
$(BIN)/ginkgo:
	@$(if $(BUILT),test -x $@ ||) go build -o $@ github.com/onsi/ginkgo/v2/ginkgo

.PHONY: e2e
e2e: $(BIN)/localcluster $(BIN)/ginkgo test/e2e/e2e.test ## Run the e2e specs, on the cluster of KUBECONFIG or on a local one.
	$(call specs,e2e,$(E2E_PROCS)) $(E2E_FLAGS)

# What the parts of the gate start: built once, before they run beside each other, but for the payload, which the one
# with kind builds when it is not there.
.PHONY: test-binaries
test-binaries: $(BIN)/localcluster $(BIN)/ginkgo
	rm -f $(BIN)/payload
	$(BIN)/localcluster build
	$(MAKE) --no-print-directory test/e2e/e2e.test test/fleet/fleet.test
	$(BIN)/localcluster build --trainer=2.1

# on-a-cluster runs specs on a control plane of their own, with settings as make local-up has them.
# What somebody left there who was killed goes first.
define on-a-cluster
	export LOCAL_DIR=$(CURDIR)/.local-$@ KUBECONFIG=$(CURDIR)/.local-$@/kubeconfig $(1); \
	$(BIN)/localcluster down; trap '$(BIN)/localcluster down' EXIT; \
	$(BIN)/localcluster up;
endef

# Specs that stop or change components, or make what a page of the docs names: each is alone on its cluster.
.PHONY: e2e-control e2e-pages
e2e-control e2e-pages: $(BIN)/localcluster $(BIN)/ginkgo test/e2e/e2e.test ## Run the e2e specs on a control plane beside that of make e2e, one after the other.
	$(call on-a-cluster) $(call specs,e2e,1) $(E2E_FLAGS)

.PHONY: e2e-core-2.1
e2e-core-2.1: $(BIN)/localcluster $(BIN)/ginkgo test/e2e/e2e.test ## Run the core e2e specs with Trainer 2.1 on a local control plane of its own, and upgrade it to 2.3.
	$(call on-a-cluster,TRAINER=2.1 NODES=32) \
	$(call specs,e2e,$(E2E_PROCS)) -ginkgo.label-filter='core && !long' -walk.steps=15 -churn.kills=4 $(E2E_FLAGS); \
	$(call specs,e2e,1,.upgrade) -ginkgo.label-filter=upgrade -upgrade.to=2.3 $(E2E_FLAGS)

.PHONY: e2e-2.1 e2e-2.2 e2e-1.34 e2e-1.37
e2e-2.1 e2e-2.2: $(BIN)/localcluster $(BIN)/ginkgo test/e2e/e2e.test ## Run the e2e specs with an older Trainer on a local control plane of its own.
	$(call on-a-cluster,TRAINER=$(@:e2e-%=%) NODES=32) $(call specs,e2e,$(E2E_PROCS)) $(E2E_FLAGS)

e2e-1.34 e2e-1.37: $(BIN)/localcluster $(BIN)/ginkgo test/e2e/e2e.test ## Run the e2e specs on the oldest and the newest Kubernetes.
	$(call on-a-cluster,KUBERNETES=$(@:e2e-%=%) NODES=32) $(call specs,e2e,$(E2E_PROCS)) $(E2E_FLAGS)

.PHONY: e2e-chart
e2e-chart: $(BIN)/localcluster ## Install, upgrade and uninstall the chart by Helm's library on a local control plane of its own.
	$(call on-a-cluster,INTEGRATION=in-tree) CHART_ON_A_CLUSTER=1 go test -C release $(EVENTS) ./chart -count=1 -v -run OnACluster

.PHONY: faults
faults: $(BIN)/localcluster ## Crash and fault injection: all plans, against the manager or, with INTEGRATION=in-tree, Kueue.
	go test $(EVENTS) ./test/faults -count=1 -parallel 4 -timeout 120m -v -faults.all $(FAULTS_FLAGS)

.PHONY: faults-sample
faults-sample: $(BIN)/localcluster ## Crash and fault injection: some plans that a seed chooses, in a few minutes.
	go test $(EVENTS) ./test/faults -count=1 -parallel 4 -timeout 20m -v $(FAULTS_FLAGS)

# What make adversary tries, e.g. ADVERSARY_FLAGS='-adversary.for=30m -adversary.seed=1 -adversary.hints=jobs=20'.
.PHONY: adversary
adversary: $(BIN)/localcluster ## Have tenants try whatever the API lets them do to queued TrainJobs, for five minutes by a seed.
	go test $(EVENTS) ./test/adversary -count=1 -parallel 8 -timeout 4h -v -run TestAdversary -adversary.out=$(CURDIR)/.tests/adversary $(ADVERSARY_FLAGS)

# Built on demand, as their release has them, but for what looks for targets in clouds.
.PHONY: $(BIN)/prometheus $(BIN)/promtool
$(BIN)/prometheus $(BIN)/promtool:
	@go build -C test/monitoring/prometheus -tags remove_all_sd -o $(BIN)/ github.com/prometheus/prometheus/cmd/$(@F)

.PHONY: promtool-test
promtool-test: $(BIN)/promtool ## Check alerts and recording rules, and run their tests. Builds promtool.
	$(BIN)/promtool check rules config/monitoring/rules.yaml
	$(BIN)/promtool test rules config/monitoring/tests/*.yaml

.PHONY: monitoring-test
monitoring-test: promtool-test $(BIN)/prometheus $(BIN)/localcluster $(BIN)/ginkgo test/monitoring/monitoring.test ## The same, and every query of dashboards and alerts on a real Prometheus that scrapes a control plane.
	$(call specs,monitoring,1) $(MONITORING_FLAGS)

.PHONY: mutants
mutants: ## Put one bug after another into the core; each has to fail its unit test. Result in docs/dev/invariants.md. MUTANTS_FLAGS=-e2e runs specs too.
	go run ./test/mutants $(MUTANTS_FLAGS)

# The packages that decide without a cluster.
MUTATED ?= pkg/podset pkg/patch pkg/integration/podtracking pkg/integration/state pkg/integration/podsets

.PHONY: mutation
mutation: ## Change one operator after another in MUTATED, e.g. pkg/podset, and run the unit tests of its package, in an hour. What survives is listed in .tests/mutation.
	@mkdir -p .tests/mutation
	@go build -C hack/mutation -o $(BIN)/ tool
	@for package in $(MUTATED); do echo "== $$package"; \
	  $(BIN)/gremlins unleash --invert-logical --timeout-coefficient 20 -o .tests/mutation/$$(basename $$package).json ./$$package; done

.PHONY: bench
bench: $(BIN)/localcluster ## Measure requests, speed, CPU and memory beside Kueue's in-tree integration, into docs/. About 50 minutes.
	trap 'LOCAL_DIR=$(CURDIR)/.local-bench $(BIN)/localcluster down' EXIT; go run ./test/bench $(BENCH_FLAGS)

# TRACE is a CSV of jobs (submit in minutes, virtual cluster, GPUs, duration in minutes), TRACE_CLUSTERS one of virtual clusters and their
# nodes. Neither is here: they are others'.
TRACE ?= ../shared/traces/philly-derived.csv
TRACE_CLUSTERS ?= ../shared/traces/philly-vc-nodes.csv

SAMPLE ?= 1000

.PHONY: forecast-trace
forecast-trace: ## Replay TRACE, forecast SAMPLE starts in it, and write into docs/forecast.md how many were right; goes on where it was stopped. SAMPLE=1000 takes some two hours of two cores.
	nice go run ./test/forecast -jobs $(TRACE) -clusters $(TRACE_CLUSTERS) -kept .tests/forecast-trace.json -sample $(SAMPLE) $(FORECAST_FLAGS)

.PHONY: fmt
fmt: ## Format all Go code.
	gofmt -w $$(git ls-files -- '*.go')

# What the chart installs is what config/ has: its templates read these copies.
define chart_files
	rm -rf $(1) && mkdir -p $(1)/policies $(1)/monitoring/dashboards
	cp config/manager/{configuration,manager,disruption_budget,metrics_service}.yaml \
	  config/rbac/{role,role_binding,service_account,metrics_reader_role,debug_reader_role,user_roles}.yaml \
	  config/webhook/{deleting,deactivations}_patch.yaml $(1)/
	cp config/webhook/manifests.yaml $(1)/webhooks.yaml
	cp config/webhook/service.yaml $(1)/webhook_service.yaml
	cp $(filter-out %/kustomization.yaml,$(wildcard config/policies/*.yaml)) $(1)/policies/
	cp config/monitoring/rules.yaml $(1)/monitoring/
	cp config/monitoring/dashboards/*.json $(1)/monitoring/dashboards/
endef

.PHONY: generate
generate: tools ## Make the generated files: RBAC, webhooks, dashboards and alerts, the chart's copies of config/, what Trainer's releases ship, docs/metrics.md and docs/doctor.md.
	$(BIN)/controller-gen rbac:roleName=kueue-trainer-manager-role webhook paths=./pkg/integration/... \
	  output:rbac:dir=config/rbac output:webhook:dir=config/webhook
	go run -C hack/monitoring . $(CURDIR)
	$(call chart_files,$(CURDIR)/charts/kueue-trainer/files)
	go run ./hack/releases $(BIN)/kustomize pkg/releases
	go run ./hack/pages docs

.PHONY: verify
verify: verify-generated verify-modules lint vet ## Check formatting, vet, lint, module files, generated files, workflows, and that config/ renders.

# It writes what it compares, so nothing that reads these files runs beside it.
.PHONY: verify-generated
verify-generated: generate
	@test -z "$$(gofmt -l $$(git ls-files -- '*.go'))" || { gofmt -d $$(git ls-files -- '*.go'); exit 1; }
	git diff --exit-code -- config charts pkg/releases docs/metrics.md docs/doctor.md docs/operate.md
	@test -z "$$(git status --porcelain -- config charts pkg/releases)" || { git status --short -- config charts pkg/releases; echo "commit what make generate has made"; exit 1; }
	$(BIN)/actionlint
	@for base in default monitoring samples multikueue samples/multikueue; do $(BIN)/kustomize build config/$$base > /dev/null && echo "config/$$base renders" || exit 1; done

# By far the most of it is waiting for a module proxy, where none are cached.
.PHONY: verify-modules
verify-modules:
	@for file in $$(git ls-files -- go.mod '*/go.mod'); do go mod tidy -C "$$(dirname "$$file")" -diff && echo "$$file is tidy" || exit 1; done

# What golangci-lint does not see: the modules beside this one.
.PHONY: vet
vet:
	go vet -C test/localcluster ./...
	go vet -C release ./...
	go vet -C hack/monitoring ./...
	go vet -C test/generations/oracle ./...

# A module of its own: it needs more than all other tools together.
.PHONY: lint
lint: ## Run golangci-lint with .golangci.yaml, go vet included.
	@go build -C hack/lint -o $(BIN)/ tool
	$(BIN)/golangci-lint run --timeout 60m ./...

.PHONY: image
image: ## Build the manager's image, without an engine: an OCI layout and an archive per platform in dist/. VERSION=main PLATFORMS=linux/amd64,linux/arm64.
	go run -C release ./image -root $(CURDIR) -out $(CURDIR)/dist/image -version $(VERSION) -platforms $(PLATFORMS) -revision "$$(git rev-parse HEAD 2>/dev/null)"

.PHONY: release
release: ## Make everything of a release in dist/: manifests, chart, plugin archives, image, bills of materials, notes, checksums. VERSION=vX.Y.Z.
	go run -C release ./dist -root $(CURDIR) -out $(CURDIR)/dist -version $(VERSION) \
	  -revision "$$(git rev-parse HEAD)" -date "$$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)"

.PHONY: tools
tools:
	@go build -C hack/tools -o $(BIN)/ tool

.PHONY: clean
clean: ## Remove what the targets built. Go's build cache stays.
	rm -rf $(BIN) $(SUITES) dist

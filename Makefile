# Every target sets up what it needs; all of it is quick the second time.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
TAG ?= dev
# Processes that run unit tests. Many tests wait for other processes.
WORKERS ?= 4
# Processes that run integration tests, which wait more than they compute.
WAITERS ?= 4
# A test that fails runs once more, and the summary names it (RERUN): real processes on a busy machine share time and ports.
ONCE_MORE ?= --reruns 1 -rR
# Python keeps its bytecode even where the environment of an image forbids that. Otherwise each process that a test
# starts compiles all modules, and each process of pytest rewrites the assertions of all tests.
unexport PYTHONDONTWRITEBYTECODE
# Modules that write generated files. With --check they write nothing and name the stale files.
GENERATORS := convoy_crds.generate convoy_crds.reference convoy_crds.perturbations_page convoy_operator.rights \
  convoy_controllers.reference convoy.cli.reference e2e.bench.report convoy_agents.wire.generate \
  convoy_workloads.traces.wire.generate convoy_workloads.engines.catalogue \
  convoy_workloads.simulators.page e2e.metrics_page e2e.compat.page
# Runs a layer of tests and prints its time beside its budget.
TIMED := $(PYTHON) -m e2e.setup.budgets run
# The first test's time holds the building of the images and the cluster.
E2E := -v --timeout 2400 --durations 20

.PHONY: help
help: ## List the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: host
host: ## Install the Debian packages and the Go toolchain that a local cluster needs (as root).
	@$(PYTHON) -m e2e.setup.host

.PHONY: venv
venv: host ## Make .venv from the pinned constraints.
	@$(PYTHON) -m e2e.setup.environment

.PHONY: binaries
binaries: venv ## Fetch or build the Kubernetes binaries of the local cluster (cached).
	@folder=$$($(BIN)/python -m e2e.cluster binaries); echo "binaries: $$folder"

.PHONY: kueue
kueue: venv ## Build Kueue for the tests of queues, which are skipped without it (cached; 10 minutes the first time).
	@folder=$$($(BIN)/python -m e2e.cluster kueue); echo "kueue: $$folder"

.PHONY: generate
generate: venv ## Write the CRDs, the chart's copies, the Engines, the gRPC stubs and pages of reference.
	@for one in $(GENERATORS); do echo "python -m $$one"; $(BIN)/python -m $$one; done

.PHONY: lint
lint: venv ## Style, types, layers and generated files.
	@$(TIMED) lint $(MAKE) --no-print-directory lint-checks

.PHONY: lint-checks
lint-checks:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@stale=; for one in $(GENERATORS); do $(BIN)/python -m $$one --check || stale=1; done; test -z "$$stale"

.PHONY: docs
docs: host ## Build the documentation into site/; fails for links that lead nowhere and for what is loaded from elsewhere.
	@$(PYTHON) -m e2e.setup.environment docs
	@$(TIMED) docs $(MAKE) --no-print-directory docs-site

.PHONY: docs-site
docs-site:
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict 2>&1 | (grep -v "^INFO" || true)
	@$(PYTHON) -m e2e.docs.self_contained site

.PHONY: unit
unit: venv ## Unit tests.
	@$(TIMED) unit $(BIN)/python -m pytest tests/unit -q -n $(WORKERS) --dist worksteal $(ONCE_MORE)

.PHONY: fuzz
fuzz: export CONVOY_FUZZ ?= 100
fuzz: venv ## The random unit tests with a hundred times the cases of CI (1 hour).
	@$(BIN)/python -m pytest -q -n $(WORKERS) $$(grep -rl "^from tests.cases import cases" tests/unit)

.PHONY: kernels-fuzz
kernels-fuzz: venv ## 100,000 random shapes, strides, alignments and tails of the compute kernels, beside their numpy twins (3 minutes).
	@$(BIN)/python -m e2e.kernels.fuzz

.PHONY: kernels-sanitize
kernels-sanitize: venv ## The compute kernels under the sanitizers for addresses and undefined behaviour, their threads under the one for races (3 minutes).
	@$(BIN)/python -m e2e.kernels.sanitize

.PHONY: integration
integration: binaries ## Tests against a real kube-apiserver and etcd.
	@$(TIMED) integration $(BIN)/python -m pytest tests/integration -q -n $(WAITERS) --dist loadgroup \
		--no-loadscope-reorder $(ONCE_MORE)

.PHONY: compat
compat: venv ## Integration, life and survival tests on another Kubernetes: MINOR=1.34; writes docs/bench/compat.json (1 hour).
	@$(BIN)/python -m e2e.compat $(MINOR)

.PHONY: fuzz-templates
fuzz-templates: binaries ## 20,000 random mutations of valid templates against a real API server (15 minutes).
	@CONVOY_FUZZ_TEMPLATES=20000 $(BIN)/python -m pytest tests/integration/operator/test_template_fuzz.py -q -s

.PHONY: foreign-images
foreign-images: venv ## Run the launcher in images of other distributions, Pythons and libcs (as root; 15 minutes the first time).
	@$(BIN)/python -m e2e.images.foreign
	@CONVOY_FOREIGN_IMAGES=1 $(BIN)/python -m pytest tests/integration/workloads/test_foreign_images.py -q

.PHONY: warm-and-cold
warm-and-cold: venv ## Ranks forked and executed, compared under every Python of this machine (3 minutes).
	@CONVOY_WARM_AND_COLD=1 $(BIN)/python -m pytest tests/integration/workloads/test_warm_and_cold.py \
		tests/integration/workloads/test_launcher.py::test_the_launcher_runs_under_old_pythons -q

.PHONY: e2e
e2e: binaries ## The slice of e2e tests on a real multi-node cluster that CI runs.
	@$(TIMED) e2e $(BIN)/python -m pytest e2e/tests $(E2E) -m "not full"

.PHONY: e2e-full
e2e-full: export CONVOY_E2E_NODES ?= 6
e2e-full: binaries ## All e2e tests on a real cluster of six nodes.
	@$(BIN)/python -m pytest e2e/tests $(E2E)

.PHONY: bench-scale
bench-scale: binaries ## A thousand workers on fake nodes, beside JobSet; writes docs/bench/scale.json (1.5 hours).
	@$(BIN)/python -m e2e.bench scale

.PHONY: bench-survival
bench-survival: binaries ## Faults on real nodes and the time to the next step; writes docs/bench/survival.json (1 hour).
	@$(BIN)/python -m e2e.bench survival

.PHONY: bench-schedules
bench-schedules: venv ## The checkpoint protocol under 100,000 random schedules; writes docs/bench/schedules.json (2 hours; goes on where it was stopped).
	@$(BIN)/python -m e2e.bench schedules

.PHONY: bench-tiercheck
bench-tiercheck: venv ## Saving and restoring 1 GB, beside copies and others' ways; writes docs/bench/tiercheck.json (50 minutes, as root).
	@$(BIN)/python -m e2e.bench tiercheck

.PHONY: bench-guard
bench-guard: binaries ## The guard on public traces, synthetic jobs, bad fleets, in storms and bursts; writes docs/bench/guard.json.
	@$(BIN)/python -m e2e.bench guard

.PHONY: bench-guard-sweep
bench-guard-sweep: venv ## Sweeps that find slow nodes of made-up fleets, beside others' rules; writes docs/bench/guard_sweep.json (3 minutes).
	@$(BIN)/python -m e2e.bench guard-sweep

.PHONY: bench-dashboard
bench-dashboard: binaries ## The dashboard with 500 jobs in a real browser; writes docs/bench/dashboard.json (8 minutes).
	@$(BIN)/python -m e2e.bench dashboard

.PHONY: bench-engines
bench-engines: venv ## Engines beside their baselines, in turns; writes docs/bench/engine-NAME.json. ENGINE=gpt runs one, SIZE=small a small one.
	@$(BIN)/python -m convoy_workloads.bench $(ENGINE) --size $(or $(SIZE),full)
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-engines-training
bench-engines-training: venv ## Training engines beside the baselines of their methods; writes docs/bench/engines_training.json (1 hour). ENGINE=odb runs one.
	@$(BIN)/python -m e2e.bench engines-training $(if $(ENGINE),--only $(ENGINE))
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-kernels
bench-kernels: venv ## Compute kernels and their engines beside their baselines; writes docs/bench/kernels.json (30 minutes). PART=tilefuse-kernels runs one.
	@$(BIN)/python -m e2e.bench kernels $(if $(PART),--only $(PART))
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-serving
bench-serving: binaries ## The serving front, the engine lm, rollouts and faults on real nodes; writes docs/bench/serving.json (1 hour).
	@$(BIN)/python -m e2e.bench serving
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-autoscaling
bench-autoscaling: venv ## The autoscaler beside Kubernetes' own; writes docs/bench/autoscaling.json (20 minutes).
	@$(BIN)/python -m e2e.bench autoscaling
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-placement
bench-placement: binaries ## Packing into racks and whole gangs, beside stock scheduling and JobSet; writes docs/bench/placement.json (1 hour).
	@$(BIN)/python -m e2e.bench placement $(if $(PART),--only $(PART))
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-advice
bench-advice: binaries ## What the remedies of advice are worth; writes docs/bench/advice.json (as root; 30 minutes). PART=files runs one.
	@$(BIN)/python -m e2e.bench advice $(if $(PART),--only $(PART))
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-gpu
bench-gpu: venv ## Probes, saves and engines on one NVIDIA GPU; writes docs/bench/gpu.json (15 minutes, as root).
	@$(BIN)/python -m e2e.bench gpu
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-spotlight
bench-spotlight: venv ## The engine spotlight beside its baselines, in virtual time; writes docs/bench/spotlight.json (2.5 hours; goes on where it was stopped).
	@$(BIN)/python -m e2e.bench spotlight --size $(or $(SIZE),full)
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-traces
bench-traces: venv ## Simulator beside ASTRA-sim, traces beside MLCommons' package, predicted beside measured steps; writes docs/bench/traces.json (as root; 20 minutes).
	@$(BIN)/python -m e2e.bench traces
	@$(BIN)/python -m e2e.bench.report

.PHONY: bench-experiments
bench-experiments: venv binaries ## The analysis, faults, learned controllers, shipped experiments; writes docs/bench/experiments.json (3 hours).
	@$(BIN)/python -m e2e.bench experiments
	@$(BIN)/python -m e2e.bench.report

.PHONY: oracle-hpa
oracle-hpa: venv ## The autoscaler beside Kubernetes' own in 200,000 random cases, and with faults on purpose (20 minutes).
	@$(BIN)/python -m e2e.oracle.hpa compare

.PHONY: soak
soak: binaries ## Half an hour of everything at once under random faults, with an upgrade; writes docs/bench/soak.json (1 hour).
	@$(BIN)/python -m e2e.bench soak

.PHONY: test
test: lint docs unit integration e2e ## Everything CI runs; prints the seconds of each layer.
	@$(PYTHON) -m e2e.setup.budgets table

.PHONY: demo
demo: binaries ## A local 3-node cluster, the chart, and a job under which a rank and then a node are killed.
	@$(BIN)/python -m e2e.demo

.PHONY: images
images: venv ## Build the images; PUSH=registry/prefix also pushes them for a cluster of your own.
	@$(BIN)/python -m e2e.cluster images --tag $(TAG) $(if $(PUSH),--push $(PUSH))

.PHONY: clean
clean: ## Take the local clusters of this checkout down.
	@$(BIN)/python -m e2e.cluster down --all

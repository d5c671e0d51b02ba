SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

FILE ?= dags/launches/demo-en-US.yaml
POOLS ?= dags/pools.json
LAUNCH := $(basename $(notdir $(FILE)))
export AIRFLOW_HOME ?= $(CURDIR)/.airflow
STAGES := .venv/stages/bin
LOG := $(AIRFLOW_HOME)/logs/$(LAUNCH).log
# Airflow with this project's settings, to be used in a subshell: no other command sees its variables.
AIRFLOW := set -a; . dags/airflow.env; AIRFLOW__CORE__DAGS_FOLDER=$(CURDIR)/dags; AIRFLOW__CORE__PLUGINS_FOLDER=$(CURDIR)/dags/plugins; set +a; .venv/airflow/bin/airflow
# Python compiles a module when it is first used, as most never are; where it may not, all of them are compiled here.
ENVIRONMENT = $(or $(word 2,$(subst /, ,$@)),stages)
PIP = .venv/$(ENVIRONMENT)/bin/pip install --progress-bar off $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile) --no-deps
# uv where it is there: the same locks and hashes.
BY_HASH = $(if $(shell command -v uv),uv pip install --python .venv/$(ENVIRONMENT) $(if \
	$(PYTHONDONTWRITEBYTECODE),--compile-bytecode) --no-deps,$(PIP)) --require-hashes -r
PYTHON = $(shell for name in python3.11 python3.12 python3.13 python3 python; do \
	$$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$name && break; done)

.PHONY: help setup tools torch shell launch rehearse web docs test shapes fast mutants check bench up backfill down stack stack-status stack-down lock hashes clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## Install both environments from requirements/, every file by its hash; does nothing when they are up to date
	@$(MAKE) -s -j2 .venv/airflow/.installed .venv/stages/.project

tools: setup .venv/stages/.check ## Install what make check and make docs need; both do it themselves

shell: setup ## A shell with `tacit` and the tools on PATH; for a shell of your own: source .venv/stages/bin/activate
	@PATH="$(CURDIR)/$(STAGES):$$PATH" exec "$${SHELL:-/bin/bash}"

launch: setup $(AIRFLOW_HOME)/.ready ## Launch FILE=dags/launches/NAME.yaml (default: the demo) through Airflow, no server needed
	@mkdir -p $(dir $(LOG)); echo "launch $(LAUNCH) (Airflow's own log: $(LOG))"
	@$(STAGES)/tacit --quiet ledger init
	@export TACIT_LAUNCHES=$(abspath $(FILE)) TACIT_CONSOLE_FD=3 TACIT_AHEAD=1; \
	if ! ($(AIRFLOW) dags test $(LAUNCH)) 3>&1 >$(LOG) 2>&1 </dev/null; then \
		echo "launch $(LAUNCH) did not finish; why is in $(LOG)"; exit 1; \
	fi
	@$(STAGES)/tacit --quiet launch $(FILE) 2>>$(LOG) || [ $$? = 3 ]  # all is done: this only says how; 3: it is held
	@echo "           or, with Airflow, make up; the commands named here are in .venv/stages/bin"

rehearse: setup $(AIRFLOW_HOME)/.ready ## Rehearse FILE through Airflow with made-up people: ARGS="--people 20000 --scale 0.02"; tacit rehearse --help
	@set -e; words=($$($(STAGES)/tacit rehearse $(FILE) $(ARGS) --prepare)); \
	env "$${words[@]:0:2}" $(MAKE) launch FILE="$${words[2]}" || echo "what is left needs a person, as whom the rehearsal acts:"; \
	$(STAGES)/tacit rehearse $(FILE) $(ARGS)

web: ## Install onnxruntime-web by npm, so that `tacit site` makes a keyboard page of each published launch
	@bash reports/web/install.sh .venv/web

docs: tools ## Build the documents as a site, build/docs/index.html; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(STAGES)/mkdocs --quiet build --strict

test: setup .venv/airflow/.kubernetes ## Run every test: the stages' in their environment and, beside them, the DAGs' in Airflow's
	@status=0; log=$$(mktemp); .venv/airflow/bin/pytest tests/dags >$$log 2>&1 & dags=$$!; \
	$(STAGES)/pytest -n $(or $(WORKERS),2) --ignore tests/shapes || status=1; \
	wait $$dags || status=1; cat $$log; rm -f $$log; exit $$status

shapes: setup ## Publish, prove and erase one launch of every file in dags/launches, in small; each step is shown as it ends
	@$(STAGES)/pytest -n $(or $(WORKERS),2) tests/shapes

fast: setup ## Run two cases of each test that is not marked slow: a minute on two cores, for while you work
	@$(STAGES)/pytest -n $(or $(WORKERS),2) -m "not slow" --cases 2 --ignore tests/shapes

mutants: setup ## Seed each bug of tests/mutants in a copy: the tests beside the code must find it
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(STAGES)/python -m tests.mutants.run

check: tools docs ## Lint, format, import directions, types, documents, environments, launch files, lock files, images, manifests
	$(STAGES)/ruff check .
	$(STAGES)/ruff format --check .
	$(STAGES)/lint-imports
	$(STAGES)/mypy
	$(STAGES)/pip check
	.venv/airflow/bin/pip check
	@for file in dags/launches/*.yaml; do echo "tacit check $$file"; $(STAGES)/tacit check --alone $$file || exit; done
	$(STAGES)/python -m pipeline.stages.graph | diff - dags/stages.json
	@! grep -nE '://| @ |\+cpu' requirements/*.lock
	$(STAGES)/hadolint docker/*.Dockerfile
	$(STAGES)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml
	$(STAGES)/kubernetes-validate --strict --quiet dags/kubernetes_gang.yaml docker/gang/kubernetes.yaml \
		$(filter-out %/values.yaml,$(wildcard docker/kubernetes/*.yaml docker/kubernetes/pods/*.yaml))

BENCHES ?= privacy.accounting privacy.mechanisms speed.simulation speed.growth speed.memory speed.workers privacy.secagg privacy.discovery privacy.audit stack.crash_points

bench: setup ## Run BENCHES (default: all that need no data of yours; an hour, peers' environments included)
	@for name in $(BENCHES); do echo "benchmarks.$$name"; $(STAGES)/python -m benchmarks.$$name || exit; done

up: setup $(AIRFLOW_HOME)/.ready ## Start Airflow and the MLflow UI on this machine, loopback only
	@.venv/airflow/bin/python docker/stack local up

backfill: setup ## What FILE's launches of dates FROM to TO would spend (2026-09-01); with GO=1 Airflow (make up; STACK=1: make stack) runs them
	@$(if $(STACK),.venv/airflow/bin/python docker/stack backfill,$(AIRFLOW:%/airflow=%/python) docker/stack/backfill.py) \
		"$(abspath $(FILE))" "$(FROM)" "$(TO)" $(GO)

down: ## Stop what `make up` started, and nothing else
	@[ ! -e $(AIRFLOW_HOME)/up ] || .venv/airflow/bin/python docker/stack local down

stack: setup ## Start the production stack as processes of this machine: PostgreSQL, Redis, Airflow with Celery workers, MLflow
	@.venv/airflow/bin/python docker/stack up

stack-status: setup ## Say of each service of the stack whether it runs and is well
	@.venv/airflow/bin/python docker/stack status

stack-down: ## Stop what `make stack` started, and nothing else; its data stay in .stack/, the privacy ledger too
	@.venv/airflow/bin/python docker/stack down

# Resolves for the lowest version; tests/test_locks.py checks all others. Versions that a lock has stay: to upgrade a
# package, delete its line first. A line with a marker of Python goes into the lock as it is written.
UV = build/hashes/bin/uv pip compile --quiet --no-header --no-annotate --python-version 3.11.0
lock: build/hashes/bin/uv ## Compile requirements/*.in to *.lock, for every version of Python that README names
	@cat requirements/cuda.lock >>requirements/stages.lock
	@for name in airflow stages; do $(UV) requirements/$$name.in -o requirements/$$name.lock && \
		sed -n '/; python_version/s/ *#.*//p' requirements/$$name.in >>requirements/$$name.lock || exit; done
	@for pair in stages:check airflow:kubernetes; do below=requirements/$${pair%:*}.lock name=$${pair#*:}; \
		cat $$below requirements/$$name.lock >build/$$name.lock && $(UV) requirements/$$name.in -c $$below -o build/$$name.lock && \
		grep -vxFf $$below build/$$name.lock >requirements/$$name.lock || exit; done
	@grep -E '^(nvidia|cuda|triton)' requirements/stages.lock >requirements/cuda.lock
	@sed -i -E '/^(nvidia|cuda|triton)/d' requirements/stages.lock
	@$(MAKE) -s hashes

# torch has a file of its own, as its build for a CPU is only on PyTorch's index: each of its builds has a hash there.
hashes: build/hashes/bin/uv ## Hashes of every file of what is pinned, which make setup and the images install by; make lock does it too
	@mkdir -p requirements/hashes && rm -f requirements/hashes/*.txt
	@for name in airflow kubernetes stages check cuda; do cp requirements/$$name.lock build/hashes/$$name.in; done
	@sed -i '/^torch==/w build/hashes/torch.in' build/hashes/stages.in && sed -i '/^torch==/d' build/hashes/stages.in
	@for name in airflow kubernetes stages check cuda torch; do \
		$(UV) --universal --no-deps --generate-hashes build/hashes/$$name.in -o requirements/hashes/$$name.txt || exit; done
	@for python in 3.11 3.12 3.13; do build/hashes/bin/pip download --quiet --no-deps --only-binary :all: --dest build/hashes \
		--python-version=$$python -r build/hashes/torch.in --index-url $(TORCH_INDEX) || exit; done
	@for wheel in build/hashes/torch-*.whl; do \
		sed -i "1a \    --hash=sha256:$$(sha256sum $$wheel | cut -d' ' -f1) \\\\" requirements/hashes/torch.txt; done

build/hashes/bin/uv:
	@$(PYTHON) -m venv --clear build/hashes && build/hashes/bin/pip install --quiet uv

clean: down ## Remove Airflow's state and caches; keeps the environments, and runs/ and .stack/, which hold privacy ledgers
	@rm -rf .airflow build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis benchmarks/.envs
	@find . -name __pycache__ -not -path './.venv/*' -not -path './runs/*' -not -path './.stack/*' -prune -exec rm -rf {} +

# Files of packages that nothing here opens: their tests (but gensim's text, which `sample` reads), C sources (but
# triton's), torch's tools, long lists of words and texts of languages that have others.
UNREAD = -path '*/tests/*' -o -path '*/test/*' ! -name 'enwiki-latest-pages-articles1.*' \
	-o -path './torch/include/*' -o -path './pyarrow/include/*' -o -name '*.c' ! -path './triton/*' -o -name '*.pyx' \
	-o -path './torch/bin/test_*' -o -path './torch/bin/protoc*' \
	-o -path './wordfreq/data/large_*' ! -name 'large_en.*' -o -name 'summaries_en-us.json'

.venv/%/.installed: requirements/%.lock requirements/hashes/%.txt
	@test -n "$(PYTHON)" || { echo "setup needs Python 3.11, 3.12 or 3.13; where there is none: pip install uv && uv python install 3.11, then make setup PYTHON=\$$(uv python find 3.11)"; exit 1; }
	@mkdir -p .venv; echo "$*: installing $$(grep -c == $<) packages (log: .venv/$*.log)"
	@$(PYTHON) -m venv --clear .venv/$*
	@set -o pipefail; $(BY_HASH) requirements/hashes/$*.txt 2>&1 | tee .venv/$*.log | awk -v name=$* \
		'/^(Collecting|Processing)/ && ++n % 30 == 0 { print name ": " n " packages fetched"; fflush() } \
		/^Installing collected/ { print name ": unpacking, about a minute"; fflush() } /^ERROR/ { print; fflush() }'
	@[ $* != stages ] || $(MAKE) -s torch >>.venv/$*.log 2>&1
	@.venv/$*/bin/pip check | sed 's/^/$*: /'; exit $${PIPESTATUS[0]}
	@cd .venv/$*/lib/python3*/site-packages && find . -depth \( $(UNREAD) \) \( -type f -o -empty \) -delete
	@touch $@

.venv/stages/.check: requirements/hashes/check.txt .venv/stages/.installed
.venv/airflow/.kubernetes: requirements/hashes/kubernetes.txt .venv/airflow/.installed
.venv/stages/.check .venv/airflow/.kubernetes:
	@echo "$(ENVIRONMENT): installing $$(grep -c == $<) packages of $<"
	@$(BY_HASH) $< >$@.log 2>&1 || { tail -n 20 $@.log; exit 1; }
	@touch $@

# A build that this machine keeps (PIP_FIND_LINKS), or without a GPU the one of PyTorch's index for a CPU, goes before
# that of the index, which may be the one for CUDA.
TORCH = $(PIP) --require-hashes -r requirements/hashes/torch.txt
TORCH_INDEX = $(shell sed -n 's/^ARG TORCH_INDEX=//p' docker/stages.Dockerfile)
torch:
	@$(TORCH) --no-index || { ! command -v nvidia-smi && $(TORCH) --index-url $(TORCH_INDEX) --retries 1; } || $(TORCH)
	@$(STAGES)/pip check || $(BY_HASH) requirements/hashes/cuda.txt

# Editable, so that it is redone only when the project's own metadata change.
.venv/stages/.project: pyproject.toml requirements/tacit.in .venv/stages/.installed
	@$(PIP) --quiet --no-build-isolation --editable . && touch $@

$(AIRFLOW_HOME)/.ready: $(POOLS) .venv/airflow/.installed
	@mkdir -p $(AIRFLOW_HOME)/logs; echo "preparing Airflow's database in $(AIRFLOW_HOME)"
	@($(AIRFLOW) db migrate && $(AIRFLOW:%/airflow=%/python) dags/pools.py $(POOLS)) >$(AIRFLOW_HOME)/logs/setup.log 2>&1 || \
		{ tail -n 20 $(AIRFLOW_HOME)/logs/setup.log; exit 1; }
	@touch $@

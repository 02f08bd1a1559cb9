# Everything here sets itself up: Python >= 3.10 and make are enough (the tests also use gcc).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint types unit bench fault clean

demo: $(VENV)/.installed
	$(BIN)/stoker demo

test: lint types
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/pytest tests/unit

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/run.py

fault: $(VENV)/.dev
	STOKER_FAULT_LONG=1 STOKER_FAULT_ROUNDS=200 $(BIN)/pytest tests/fault -v -s -n 2 --maxschedchunk=1

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "stoker needs Python 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis

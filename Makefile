# Two commands for a newcomer: `make run` and `make test`. Everything is installed into .venv, pinned.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: run test check docs bench growth shaped clean

run: $(VENV)/.installed
	$(BIN)/fedge compare

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -E -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/speed.py

growth: $(VENV)/.installed
	$(BIN)/python benchmarks/growth.py

shaped: $(VENV)/.installed-test
	$(BIN)/python benchmarks/shaped.py

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedge needs Python 3.11 or newer; run make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) -e '.[test]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

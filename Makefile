# `make demo` and `make test` work on a fresh clone; everything else builds on what they install.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow lint docs bench clean

demo: $(VENV)/.installed-report
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -n 2 $(ARGS)

test-slow: $(VENV)/.installed-tests
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.installed-docs
	rm -rf docs/api/generated build/docs
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs
	@echo "Open build/docs/index.html"

bench: $(VENV)/.installed-benchmarks
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) build dist docs/api/generated .pytest_cache .mypy_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# An editable install, again whenever the package's own description changes.
$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/python || { echo "Making a virtual environment in $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing maxmargin and what it needs (a minute or so) ..."
	@$(PIP) install --editable .
	@touch $@

# The same with the extra dependencies of one purpose: tests, lint, benchmarks.
$(VENV)/.installed-%: $(VENV)/.installed
	@echo "Installing what the $* need ..."
	@$(PIP) install --editable ".[$(patsubst tests,test,$*)]"
	@touch $@

# `make demo` and `make test` work on a fresh clone; everything else builds on what they install.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Peers that the benchmarks compare with, each an extra of pyproject.toml. dlib takes ten minutes to
# compile: make bench PEERS="liblinear crfsuite vowpalwabbit dlib"
PEERS ?= liblinear crfsuite vowpalwabbit

.PHONY: demo test test-slow lint docs bench bench-quick regressions clean

# As users install it: with its routines compiled.
demo: $(VENV)/.compiled
	@$(BIN)/python examples/demo.py

# Neighbours stay on one core, so that what a file makes once is made once.
test: $(VENV)/.installed-tests
	$(BIN)/maxmargin compile
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-slow: $(VENV)/.installed-tests
	$(BIN)/maxmargin compile
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.installed-docs
	rm -rf docs/api/generated build/docs
	$(BIN)/python -m sphinx -q -W --keep-going docs build/docs
	@echo "Open build/docs/index.html"

bench: $(VENV)/.installed-benchmarks $(PEERS:%=$(VENV)/.installed-peer-%)
	$(BIN)/python -m benchmarks $(ARGS)

bench-quick: $(VENV)/.installed-benchmarks $(PEERS:%=$(VENV)/.installed-peer-%)
	$(BIN)/python -m benchmarks --quick $(ARGS)

regressions: $(VENV)/.installed-benchmarks
	$(BIN)/python -m benchmarks.regressions --check

clean:
	rm -rf $(VENV) build dist docs/api/generated .pytest_cache .mypy_cache .ruff_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# An ordinary install, unless there is an editable one already.
$(VENV)/.compiled: pyproject.toml | $(BIN)/python
	@if test -e $(VENV)/.installed; then \
	    MAXMARGIN_PURE=1 $(PIP) install --editable ".[report]"; \
	else \
	    echo "Installing maxmargin and what it needs, and compiling its routines (three minutes or so) ..."; \
	    $(PIP) install ".[report]"; \
	fi
	@touch $@

# An editable install, again whenever the package's own description changes; it is not compiled.
$(VENV)/.installed: export MAXMARGIN_PURE = 1
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "Installing maxmargin and what it needs (a minute or so) ..."
	@$(PIP) install --editable .
	@touch $@

# The same with the extra dependencies of one purpose: tests, lint, docs, benchmarks.
$(VENV)/.installed-%: export MAXMARGIN_PURE = 1
$(VENV)/.installed-%: $(VENV)/.installed
	@echo "Installing what is needed for $* ..."
	@$(PIP) install --editable ".[$(patsubst tests,test,$*)]"
	@touch $@

# A peer that cannot be installed is no reason to stop: benchmarks say that it is missing.
$(VENV)/.installed-peer-%: $(VENV)/.installed
	@echo "Installing $*, to compare with ..."
	@if $(PIP) install --editable ".[$*]"; then touch $@; else echo "$* cannot be installed here: the benchmarks go on without it."; fi

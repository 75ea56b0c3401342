# Two commands do everything: `make demo` and `make test`. Each installs what is missing first.
VENV ?= .venv
PYTHON ?= python3
export DATA_ROOT ?= $(CURDIR)/data
export MUVAP_DATA_ROOT ?= $(abspath $(DATA_ROOT))
export DAGSTER_HOME ?= $(abspath $(DATA_ROOT))/dagster_home

BIN := $(VENV)/bin
# Tests run in as many processes (tests/conftest.py divides them). WORKERS=0 runs them in one.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)
# Installing again is due when the constraints or the project file changed, or the project moved.
STAMP := $(VENV)/.installed-$(shell cat constraints.txt pyproject.toml | cksum | cut -d' ' -f1)-$(shell echo '$(CURDIR)' | cksum | cut -d' ' -f1)

.PHONY: demo test test-rest test-all test-other-cpu coverage check fix docs dev bench bench-check clean install

install: $(STAMP)

$(STAMP): constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	rm -f $(VENV)/.installed-*
	touch $@

$(DAGSTER_HOME)/dagster.yaml: deploy/local/dagster.yaml
	mkdir -p $(@D)
	cp $< $@

demo: install $(DAGSTER_HOME)/dagster.yaml  ## a small corpus, every asset of it materialized, and a summary
	$(BIN)/python -m muvap_assets.defs.demo

test: install  ## the tests, less those marked slow, those that install another project and those in a browser
	$(PYTEST) -m 'not slow and not interop and not ui' $(PYTEST_ARGS)

test-rest: install  ## those that `make test` leaves out
	$(PYTEST) -m 'slow or interop or ui' $(PYTEST_ARGS)

test-all: install  ## every test
	$(PYTEST) $(PYTEST_ARGS)

test-other-cpu: install  ## what encodes, the demo and the pages, as on a processor without AVX
	ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Nehalem \
		$(PYTEST) tests/docs tests/ref2va tests/pictures tests/defs/test_asset_pages.py tests/asd/test_line.py -m 'not interop' $(PYTEST_ARGS)

coverage: PYTEST_ARGS += --cov --cov-report=term
coverage: test  ## the same tests as `make test`; fails below 90 % of the domain's lines and branches

check: install  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: install  ## what the linter can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install  ## write the tables and messages of docs/troubleshooting.md from the table of codes
	PYTHONPATH=tests:tests/asd:tests/ref2va:tests/docs $(BIN)/python tests/docs/troubleshooting.py

dev: install $(DAGSTER_HOME)/dagster.yaml  ## the Dagster UI on the same data, at http://localhost:3000
	$(BIN)/dagster dev -w workspace.yaml

bench: install  ## measure speed and memory; ratios within one run
	$(BIN)/python -m benchmarks.run --json data/bench.json

bench-check: install  ## the same, failing on a missed target
	$(BIN)/python -m benchmarks.run --json data/bench.json --check

clean:  ## remove generated data and caches, not the environment
	rm -rf data build .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info

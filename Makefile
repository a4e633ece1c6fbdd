# Targets: run, test, lint, bench, protos, lock, test-device, clean.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=

.PHONY: run test lint bench protos lock test-device clean schema

run: $(STAMP)
	$(BIN)/gpu-device-plugin simulate $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

test-device: $(STAMP)
	$(BIN)/python -m tests.device $(ARGS)

# The stubs are checked in; a test fails when they are stale.
protos: $(STAMP)
	$(BIN)/python -m tests.protos

schema: $(STAMP)
	$(BIN)/python -m deviceplugin.config.jsonschema > config/schema.json

# Pins every dependency with hashes; run it when pyproject.toml changes.
lock:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-emit-index-url --no-emit-trusted-host -o requirements.lock pyproject.toml
	$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --allow-unsafe --no-emit-index-url --no-emit-trusted-host --extra dev --constraint requirements.lock -o requirements-dev.lock pyproject.toml

$(STAMP): pyproject.toml requirements-dev.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

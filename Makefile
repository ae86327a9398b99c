# On a fresh machine: Python 3.11 or newer, make and a network are all it takes.
#
#   make demo             measure Python's own standard library, on jobs   (make demo URL=… : on another store)
#   make check            what has to pass before a change is done: lint, types, test
#   make fuzz             damaged payloads down every path: nothing lost, nothing run that isn't proved
#   make bench-overhead   what aqueue itself costs a job, in memory   (make bench-overhead ARGS=--profile)
#   make compatibility    the contract suite on every store, and docs/compatibility.md anew (ARGS='redis valkey': on these)
#   make bench-redis      aqueue beside arq, SAQ and taskiq on a Redis of its own   (make bench-redis ARGS='--rounds 1')
#   make bench-rabbitmq   aqueue beside taskiq-aio-pika and FastStream on a RabbitMQ of its own

VENV := .venv
BIN := $(VENV)/bin

# The interpreter that makes the virtual environment: the first of these that is new enough and can make one.
CANDIDATES := python3.13 python3.12 python3.11 python3
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in $(CANDIDATES); do $$p -c '$(USABLE)' 2>/dev/null && echo $$p && break; done)

# Each stamp says that the environment holds what pyproject.toml asked for when it was last touched.
RUNNABLE := $(VENV)/.runnable
DEVELOPED := $(VENV)/.developed

.DELETE_ON_ERROR:
.PHONY: demo test test-twice fuzz compatibility lint types check format clean

# Most tests wait for a store, a lease or a process, so more of them than there are cores run side by side.
JOBS ?= 3

demo: $(if $(URL),$(DEVELOPED),$(RUNNABLE))
	@$(BIN)/python -m examples.census $(if $(URL),--url '$(URL)') $(ARGS)

test: $(DEVELOPED)
	@bash .ci/servers
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# Two random orders; each run prints its seed, and make test ARGS=--randomly-seed=… repeats it.
test-twice: test
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# 100,000 damaged payloads down each path; it prints its seed, and how to repeat what fails.
fuzz: $(DEVELOPED)
	@cd tests && PYTHONPATH=.:.. $(CURDIR)/$(BIN)/python -m fuzz $(ARGS)

# It takes minutes on the stores that have leases to wait out.
compatibility: $(DEVELOPED)
	@bash .ci/servers
	@cd tests && PYTHONPATH=.:.. $(CURDIR)/$(BIN)/python -m compatibility $(ARGS)

lint: $(DEVELOPED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEVELOPED)
	$(BIN)/mypy

check: lint types test

bench-overhead: $(DEVELOPED)
	@$(BIN)/python -m benchmarks.overhead $(ARGS)

bench-redis: $(RUNNABLE)
	@$(BIN)/python -m benchmarks.redis_peers $(ARGS)

bench-rabbitmq: $(RUNNABLE)
	@$(BIN)/python -m benchmarks.rabbitmq_peers $(ARGS)

format: $(DEVELOPED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "aqueue needs Python 3.11 or newer, with its venv module (on Debian: apt install python3-venv)."; \
		echo "None of $(CANDIDATES) is that; name one: make PYTHON=/path/to/python3"; exit 1; } >&2
	@echo "making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # the first that knows --group

$(RUNNABLE): pyproject.toml | $(BIN)/python
	@echo "installing aqueue into $(VENV)"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(DEVELOPED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@ $(RUNNABLE)

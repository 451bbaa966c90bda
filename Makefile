# Two commands take you from nothing to a result: `make demo` and `make test`.
# Each makes .venv from requirements.lock when it is missing or stale, and only then.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.PHONY: demo test coverage lint format bench lock clean

demo: $(READY)  ## Train with and without a learned scale on the same tasks, and compare
	$(BIN)/varscale demo

test coverage: export GOMP_SPINCOUNT = 3000 # workers share the cores: their threads wait asleep
test: $(READY)  ## The whole suite: unit, property, contract and documentation tests
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),--numprocesses 2 --dist loadfile)

coverage: $(READY)  ## The same, with the lines that no test runs; takes half as long again
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --cov --cov-report=term:skip-covered

lint: $(READY)  ## Format, lint and types, as CI checks them
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## Rewrite the files as `make lint` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## The speed ratios of this machine
	$(BIN)/varscale bench

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "varscale needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# CUDA packages are left to torch's own metadata, so that a CPU build of torch brings none.
lock:  ## Pin the newest versions for every supported Python (needs uv on the PATH)
	echo "torch==2.13.0" | uv pip compile --quiet --upgrade --universal --python-version 3.10 \
		--extra dev --no-annotate --no-header pyproject.toml - \
		| grep -vE '^(nvidia-|cuda-|triton)' > requirements.lock

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist

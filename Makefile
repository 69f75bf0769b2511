# Two commands: `make lab` opens the quickstart in JupyterLab, `make test` runs everything that CI runs.
# Each makes the environment it needs in .venv; Python 3.11 or newer is all that has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: lab test lint browser benchmark clean

# JupyterLab refuses to run as root unless told to, which is what containers are.
lab: $(VENV)/.lab
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) \
	    --LabApp.default_url=/lab/tree/notebooks/quickstart.ipynb

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python hatch_build.py --check

benchmark: $(VENV)/.test
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) frontend/node_modules fxlab/notebook/static

# torch first and by itself: its pinned version is a wheel for the CPU, what others would ask for is not.
$(VENV)/.python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fxlab needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(INSTALL) torch
	touch $@

$(VENV)/.lab: $(VENV)/.python pyproject.toml constraints.txt
	$(INSTALL) --group lab --editable .
	touch $@

$(VENV)/.test: $(VENV)/.lab
	$(INSTALL) --group test --group lint
	touch $@

# make test: everything CI runs, in a fresh clone with Python 3.11+ alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test clean

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group lab --group test --group lint --editable .
	touch $@

test: $(VENV)/.installed
	$(BIN)/ruff check fxlab tests
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) fxlab/notebook/static

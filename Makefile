# make demo: install into .venv and run the whole method offline on the toy data set. make test: install and test.
# A plain pip on Linux may fetch the CUDA build of torch (several GB). For the CPU build:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
PYTEST_ARGS ?= -n 2 --dist loadfile

PY = $(VENV)/bin/python
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
# The stamps say what was installed and where: a changed file or a moved clone installs again, nothing else does.
STATE = $(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')-$(shell pwd -P | cksum | tr ' ' '-')
RUN_STAMP = $(VENV)/.installed-$(STATE)
DEV_STAMP = $(VENV)/.installed-dev-$(STATE)

.PHONY: demo test install lint clean
demo: $(RUN_STAMP)
	$(PY) run.py task=pipeline dataset=toy data.max_test_rows=64

test: $(DEV_STAMP)
	$(PY) -m pytest $(PYTEST_ARGS)

lint: $(DEV_STAMP)
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy fmm

install: $(RUN_STAMP)

$(RUN_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fmm needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.11")'
	@test -x $(PY) && $(PY) -c pass 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(PIP_INSTALL) --constraint constraints.txt --editable .
	@rm -f $(VENV)/.installed-*
	@touch $@

$(DEV_STAMP): $(RUN_STAMP)
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info

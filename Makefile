# Two commands matter: `make demo` and `make test`. Both set up .venv by themselves.
# Needed beforehand: Python >= 3.11 with venv, g++, make, perl.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Processes for the tests; `make test JOBS=1` for one.
JOBS ?= auto
# Further arguments for pytest and for `tidemill run`.
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help venv venv-train demo test check clean distclean

help:
	@echo "make demo       a language model writes a story in the real RTL; predicted and measured cycles compared"
	@echo "make test       style, types and every test"
	@echo "make check      style and types only"
	@echo "make venv       only the set-up that the others do first (.venv)"
	@echo "make venv-train torch as well, for train/; its tests skip without"
	@echo "make clean      remove what was built; distclean removes .venv too"

venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Tidemill needs Python 3.11 or newer, and %s is %d.%d. Name another one: make PYTHON=python3.12 ..." % (sys.executable, v[0], v[1]))'
	@for tool in g++ perl; do command -v $$tool >/dev/null || { echo "Tidemill needs $$tool (Verilator calls it) and finds none on PATH; on Debian or Ubuntu: apt-get install g++ perl" >&2; exit 1; }; done
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot create virtual environments; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[sim,dev]"
	@touch $@

# An extra of some GB where pip brings a torch with CUDA: nothing but train/ needs it.
venv-train: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[train]"

demo: $(STAMP)
	$(BIN)/tidemill run --engine rtl $(ARGS)

test: $(STAMP)
	./check
	$(BIN)/python -m pytest -m "" -n $(JOBS) --dist loadgroup --durations 15 $(ARGS)

check: $(STAMP)
	./check

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

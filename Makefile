# `make check` is what CI runs. The environment is .venv; another one: make check PYTHON=path/to/python
PYTHON ?= .venv/bin/python
# -P keeps this folder off sys.path: the checks see the installed roofcast, never cli/ or hwdb/ beside them.
RUN = $(PYTHON) -P -m
# A normal install: type checkers, import-linter and doctests do not see through an editable one.
# A build/ left by an earlier install would bring deleted files back.
INSTALL = rm -rf build && $(RUN) pip install --quiet --no-deps --no-build-isolation .

.PHONY: check fix golden

check:
	$(INSTALL)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy -p roofcast
	$(RUN) mypy tests benchmarks
	$(dir $(PYTHON))lint-imports --no-logo
	$(RUN) pytest --numprocesses auto --dist loadfile --pyargs roofcast tests

fix:
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

# Rewrites tests/golden, the pages of docs/commands and the outputs printed in README.md and docs/: review the diff as
# a claim. Pages come first, so that the outputs of their examples are of the commands that they have now.
golden:
	$(INSTALL)
	$(RUN) pytest tests/test_command_pages.py --update-golden
	$(RUN) pytest tests -k 'golden or readme' --update-golden
	git diff --stat -- tests/golden README.md docs

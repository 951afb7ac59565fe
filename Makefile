# Each target sets up what it needs: a fresh clone and Python 3.10 or newer are enough.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TYPING := .venv/typing/unknot
MIN_PYTHON ?= $(or $(shell python3.10 --version >/dev/null 2>&1 && echo python3.10),$(PYTHON))
PACKAGES := solvers datamodules metrics zoo training checkpoints hub studies cli configs

# One process for each core, each of one thread: more only get in each other's way.
test room test-min test-slow: export OMP_NUM_THREADS = 1

# Without compiled files pytest rewrites every test module again, and each command that a test starts compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test room test-min test-slow lint bench clean

demo: $(INSTALLED)
	$(BIN)/unknot demo

# One folder of pages that opens from the disk: build/docs/index.html. UNKNOT_DOCS_GALLERY=0 leaves the gallery's scripts out.
docs: export OMP_NUM_THREADS = 1
docs: $(INSTALLED)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo "The site is build/docs/index.html."

test: lint
	$(BIN)/pytest --numprocesses auto --dist loadfile

# The tests of one room: make room ROOM=zoo TESTS="-k pairs --lf".
room: $(INSTALLED)
	$(BIN)/pytest $(wildcard tests/$(ROOM) $(ROOM)) $(TESTS)

# The quick tests with the oldest versions that pyproject.toml allows, on Python 3.10 where there is one (MIN_PYTHON=...).
test-min: .venv-min/.installed
	.venv-min/bin/pytest --numprocesses auto --dist loadfile

test-slow: $(INSTALLED)
	$(BIN)/pytest -m slow

lint: $(INSTALLED) $(TYPING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/python tools/check_wording.py
	$(BIN)/mypy
	PYTHONPATH=.venv/typing $(BIN)/lint-imports --no-cache --no-logo

bench: $(INSTALLED)
	$(BIN)/python benchmarks/table.py

clean:
	rm -rf .venv .venv-min build dist *.egg-info

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

.venv-min/.installed: pyproject.toml
	$(MIN_PYTHON) -m venv --clear .venv-min
	.venv-min/bin/python -m pip install --quiet uv
	.venv-min/bin/uv pip install --python .venv-min/bin/python --resolution lowest-direct \
		--editable '.[test,data,export,video,studies,ray]'
	.venv-min/bin/uv pip freeze --python .venv-min/bin/python
	touch $@

# mypy does not follow editable installs of mapped folders: show it the package as a wheel would lay it out.
$(TYPING): $(INSTALLED) Makefile $(wildcard core/*.py)
	rm -rf $@ && mkdir -p .venv/typing && cp -rs "$(CURDIR)/core" $@
	for folder in $(PACKAGES); do ln -sfn "$(CURDIR)/$$folder" $@/$$folder; done
	touch $@

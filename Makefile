# Each target sets up what it needs: a fresh clone and Python 3.10 or newer are enough.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
TYPING := .venv/typing/unknot
PACKAGES := solvers datamodules metrics zoo training checkpoints hub studies cli configs

# One process for each core, each of one thread: more only get in each other's way.
test: export OMP_NUM_THREADS = 1

.PHONY: demo docs test test-slow lint bench clean

demo: $(INSTALLED)
	$(BIN)/unknot demo

# One folder of pages that opens from the disk: build/docs/index.html. UNKNOT_DOCS_GALLERY=0 leaves the gallery's scripts out.
docs: export OMP_NUM_THREADS = 1
docs: $(INSTALLED)
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs build/docs
	@echo "The site is build/docs/index.html."

test: lint
	$(BIN)/pytest --numprocesses auto --dist loadfile

test-slow: $(INSTALLED)
	$(BIN)/pytest -m slow

lint: $(INSTALLED) $(TYPING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	PYTHONPATH=.venv/typing $(BIN)/lint-imports --no-cache --no-logo

bench: $(INSTALLED)
	$(BIN)/python benchmarks/table.py

clean:
	rm -rf .venv build dist *.egg-info

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

# mypy does not follow editable installs of mapped folders: show it the package as a wheel would lay it out.
$(TYPING): $(INSTALLED) Makefile $(wildcard core/*.py)
	rm -rf $@ && mkdir -p .venv/typing && cp -rs "$(CURDIR)/core" $@
	for folder in $(PACKAGES); do ln -sfn "$(CURDIR)/$$folder" $@/$$folder; done
	touch $@

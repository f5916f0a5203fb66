# Proofbook's commands, for a person and for CI alike. `make help` lists them.

SHELL := /bin/bash
PYTHON ?= python3
PORT ?= 8000
PY := .venv/bin/python
NAMES ?=
FULL ?=
ARGS ?=
WORKERS ?= 3
SITE_URL ?=

# Material announces its end of life at each build; generator/README.md says what follows for us.
export NO_MKDOCS_2_WARNING := 1
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.PHONY: help site test quick browser serve torch traces pages publish check audit bench soak pythons wheel locks clean

help:  ## this list
	@echo "make TARGET, where TARGET is"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

site: BEGAN := $(shell date +%s)
site: .venv/.pages  ## a book to open in a minute or two; then the numbers of this machine in it
	@[ -f site/html/index.html ] || { \
		echo "Building the book with the reference machine's numbers"; \
		$(PY) -m generator.website first; code=$$?; [ $$code = 0 ] || exit $$code; \
		echo "Ready after $$(( $$(date +%s) - $(BEGAN) )) s. This machine is measured next; Ctrl-C keeps this book."; }
	@$(MAKE) --silent --no-print-directory .venv/.run
	@$(PY) -m generator.website site $(if $(SHORT),--short)

test: .venv/.test browser  ## every test, browser included (ARGS='-k word' picks some, WORKERS=0 runs them in one process)
	@$(PY) -m pytest -n $(WORKERS) $(ARGS)

quick: .venv/.test  ## the tests without ranks, browser and builds (ARGS='-k word')
	@$(PY) -m pytest -n $(if $(filter file,$(origin WORKERS)),auto,$(WORKERS)) -m "not ranks and not browser and not builds" $(ARGS)

browser: .venv/.test  ## find Chromium or Chrome for the tests, or install it
	@$(PY) tests/browser.py $(if $(SHELL_TOO),--shell)

serve: .venv/.pages  ## write beside a browser that follows (PORT=8000)
	@$(PY) -m generator.website serve --port $(PORT)

torch: .venv/.run  ## install PyTorch into .venv, for `.venv/bin/python -m runners`

traces: .venv/.run  ## run what is missing or stale here (NAMES='ddp' picks, FULL=1 the heavier too, ARGS=--dry)
	@$(PY) -m runners run $(NAMES) $(if $(FULL),--full) $(ARGS)

pages: .venv/.pages  ## the book from the committed traces, strictly; no torch, no experiments
	@$(PY) -m generator.website pages

publish: .venv/.pages  ## the book for a web server, and a zip of it (SITE_URL=https://example.org/book/)
	@$(PY) -m generator.website publish --address '$(SITE_URL)'

check: .venv/.test  ## ruff, ruff format, mypy strict
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

audit: .venv/.test browser  ## scripts by ESLint, exported GIFT by gift-pegjs, built pages by the Nu HTML checker, axe and Lighthouse; needs node and java (ARGS='axe topics/ddp/*')
	@[ -f site/html/index.html ] || $(MAKE) --no-print-directory pages
	@$(PY) -m tests.audit $(ARGS)

bench: .venv/.test  ## what meters and `verify` cost a step, commands and an edit an author, and `make site` a newcomer, as ratios
	@$(PY) -m tests.bench $(ARGS)

soak: .venv/.test  ## what takes long: outcomes repeated, 200 kills, property tests from a new seed (ARGS='-k killed --kills 20')
	@$(PY) -m pytest tests/soak -m soak -s $(ARGS)

pythons: .venv/.test  ## a smoke run on the oldest and the newest Python found here but that of .venv, and `quick` on the newest
	@$(PY) requirements/pythons.py

wheel:  ## build dist/proofbook-*.whl, and try it in a new environment, as a user would (PYTHON=python3.13)
	@$(PYTHON) requirements/wheel.py

locks: .venv/.test  ## pin versions and hashes in requirements/; needs uv (ARGS=--upgrade takes the newest)
	@$(PY) requirements/lock.py $(ARGS)

clean:  ## remove what was built and the caches; .venv, traces and pages that you put in stay
	@[ ! -f site/pages/.written ] || (cd site/pages && tr '\n' '\0' < .written | xargs -0 rm -f .written; \
		find . -mindepth 1 -type d -empty -delete)
	@[ ! -d site ] || find site -mindepth 1 ! -path 'site/pages*' ! -name .gitkeep -delete
	@rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

# Set-up, once for each purpose; a wider one serves the narrower.
.venv/.pages .venv/.run .venv/.test: .venv/.%: $(wildcard requirements/*.txt) pyproject.toml requirements/install.py
	@command -v $(PYTHON) >/dev/null || { echo "proofbook: no $(PYTHON) here; try make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) requirements/install.py $*
	@touch $(SERVED_BY_$*)

SERVED_BY_pages := .venv/.pages
SERVED_BY_run := $(SERVED_BY_pages) .venv/.run
SERVED_BY_test := $(SERVED_BY_run) .venv/.test

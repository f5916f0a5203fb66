# Proofbook's commands, for a person and for CI alike. `make help` lists them.

SHELL := /bin/bash
PYTHON ?= python3
PORT ?= 8000
PY := .venv/bin/python
REFERENCE := $(notdir $(firstword $(wildcard content/traces/reference-*)))
NAMES ?=
FULL ?=
ARGS ?=
WORKERS ?= 4
SITE_URL ?=

# Material announces its end of life at each build; CONTRIBUTING.md says what follows for us.
export NO_MKDOCS_2_WARNING := 1
export PYTHONUNBUFFERED := 1

RED := printf '\033[31m%s\033[0m\n'

.DEFAULT_GOAL := help
.PHONY: help site test quick browser serve torch traces pages publish check audit bench soak pythons locks clean

help:  ## this list
	@echo "make TARGET, where TARGET is"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

site: .venv/.run  ## run the experiments this machine lacks, build the book, say what to open
	@$(PY) -m runners run $(if $(SHORT),--short); ran=$$?; [ $$ran -le 1 ] || exit $$ran; \
	_PROOFBOOK_SURPRISES=1 $(PY) -m mkdocs build --quiet; built=$$?; [ $$built -le 1 ] || exit $$built; \
	echo "Open $(CURDIR)/site/html/index.html"; \
	[ $$((ran | built)) = 0 ] || { $(RED) "Not all is as declared: see the lines above; the pages show it in red."; exit 1; }

test: .venv/.test browser  ## every test, browser included (ARGS='-k word' picks some, WORKERS=0 runs them in one process)
	@$(PY) -m pytest -n $(WORKERS) $(ARGS)

quick: .venv/.test  ## the tests without ranks, browser and builds (ARGS='-k word')
	@$(PY) -m pytest -n $(if $(filter file,$(origin WORKERS)),auto,$(WORKERS)) -m "not ranks and not browser and not builds" $(ARGS)

browser: .venv/.test  ## find Chromium or Chrome for the tests, or install it
	@$(PY) tests/browser.py $(if $(SHELL_TOO),--shell)

serve: .venv/.pages  ## write beside a browser that follows (PORT=8000)
	@$(PY) -c "$$PORT_IS_FREE" $(PORT)
	@$(PY) -m mkdocs serve --dirty --no-strict --dev-addr 127.0.0.1:$(PORT)

torch: .venv/.run  ## install PyTorch into .venv, for `.venv/bin/python -m runners`

traces: .venv/.run  ## run what is missing or stale here (NAMES='ddp' picks, FULL=1 the heavier too, ARGS=--dry)
	@$(PY) -m runners run $(NAMES) $(if $(FULL),--full) $(ARGS)

pages: .venv/.pages  ## the book from the committed traces, strictly; no torch, no experiments
	@PROOFBOOK_MACHINE=$(REFERENCE) _PROOFBOOK_COMMITTED_ONLY=true _PROOFBOOK_NEW_RUNS=true $(PY) -m mkdocs build --strict
	@echo "Open $(CURDIR)/site/html/index.html"

publish: .venv/.pages  ## the book for a web server, and a zip of it (SITE_URL=https://example.org/book/)
	@export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)}; \
	[ -n "$$SOURCE_DATE_EPOCH" ] || unset SOURCE_DATE_EPOCH; \
	PROOFBOOK_MACHINE=$(REFERENCE) _PROOFBOOK_COMMITTED_ONLY=true _PROOFBOOK_SITE_URL='$(SITE_URL)' \
		$(PY) -m mkdocs build --strict --site-dir site/book && \
	$(PY) -c "$$ZIPPED"

check: .venv/.test  ## ruff, ruff format, mypy strict
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

audit: .venv/.test browser  ## scripts by ESLint, exported GIFT by gift-pegjs, built pages by the Nu HTML checker, axe and Lighthouse; needs node and java (ARGS='axe topics/ddp/*')
	@[ -f site/html/index.html ] || $(MAKE) --no-print-directory pages
	@$(PY) -m tests.audit $(ARGS)

bench: .venv/.test  ## what meters and `verify` cost a step, and commands and an edit an author, as ratios
	@$(PY) -m tests.bench $(ARGS)

soak: .venv/.test  ## what takes long: outcomes repeated, 200 kills, property tests from a new seed (ARGS='-k killed --kills 20')
	@$(PY) -m pytest tests/soak -m soak -s $(ARGS)

pythons: .venv/.test  ## a smoke run on the oldest and the newest Python found here, but not on that of .venv
	@$(PY) requirements/pythons.py

locks: .venv/.test  ## pin versions and hashes in requirements/; needs uv (ARGS=--upgrade takes the newest)
	@$(PY) requirements/lock.py $(ARGS)

clean:  ## remove what was built and the caches; .venv, traces and pages that you put in stay
	@[ ! -f site/pages/.written ] || (cd site/pages && tr '\n' '\0' < .written | xargs -0 rm -f && \
		rm -f .written && find . -mindepth 1 -type d -empty -delete)
	@[ ! -d site ] || find site -mindepth 1 ! -path 'site/pages*' ! -name .gitkeep -delete
	@rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage .coverage.*

# Set-up, once for each purpose; a wider one serves the narrower.
.venv/.pages .venv/.run .venv/.test: .venv/.%: $(wildcard requirements/*.txt) pyproject.toml requirements/install.py
	@command -v $(PYTHON) >/dev/null || { echo "proofbook: no $(PYTHON) here; try make PYTHON=…" >&2; exit 2; }
	@$(PYTHON) requirements/install.py $*
	@touch $(SERVED_BY_$*)

SERVED_BY_pages := .venv/.pages
SERVED_BY_run := $(SERVED_BY_pages) .venv/.run
SERVED_BY_test := $(SERVED_BY_run) .venv/.test

define ZIPPED
from pathlib import Path
from zipfile import main
from proofbook.generator.website.publish import locked
with locked(Path("site/pages")):
    main(["-c", "site/proofbook.zip", "site/book"])
endef
export ZIPPED

define PORT_IS_FREE
import socket, sys
port = int(sys.argv[1])
with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        sys.stderr.write(f"proofbook: port {port} is taken; try make serve PORT={port + 1}\n")
        sys.exit(2)
endef
export PORT_IS_FREE

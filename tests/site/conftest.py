"""Built sites: the frozen book, whose pages look the same for ever, and a newcomer's real one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, copy_of_the_book, made_once, mkdocs

CONFIGURATION = """\
INHERIT: {root}/mkdocs.yml
docs_dir: pages
site_dir: html
plugins:
  - search
  - offline
  - proofbook:
      content: {root}/tests/book/content
"""


NEWCOMERS = "cpu-2c-84b10e/1-of-2-cores"  # committed traces without those of `--full`


def frozen_book(folder: Path) -> Path:
    """A folder from which MkDocs builds the frozen book."""
    (folder / "pages").mkdir(parents=True)
    (folder / "mkdocs.yml").write_text(CONFIGURATION.format(root=ROOT), encoding="utf-8")
    return folder


def _frozen_site(folder: Path) -> Path:
    done = mkdocs(frozen_book(folder), "build", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="session")
def frozen_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the frozen book's HTML."""
    return made_once(tmp_path_factory, "frozen-book", _frozen_site)


def _newcomers_site(folder: Path) -> Path:
    traces = copy_of_the_book(folder) / "content" / "traces"
    shutil.copytree(ROOT / "content" / "traces" / NEWCOMERS, traces / NEWCOMERS)
    (traces / "this-machine").write_text(f"{NEWCOMERS}\n", encoding="utf-8")
    done = mkdocs(folder, "build", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site" / "html"


@pytest.fixture(scope="session")
def newcomers_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real book as a machine shows it that ran nothing but what `make site` runs."""
    return made_once(tmp_path_factory, "newcomers-book", _newcomers_site)

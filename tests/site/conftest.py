"""The frozen book as a built site: its pages look the same for ever."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT, made_once, mkdocs
from tests.site.html_reading import of_each_kind, pages
from tests.site.seen import look_at

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


def frozen_book(folder: Path) -> Path:
    """A folder from which MkDocs builds the frozen book."""
    (folder / "pages").mkdir(parents=True)
    (folder / "mkdocs.yml").write_text(CONFIGURATION.format(root=ROOT), encoding="utf-8")
    return folder


def own_book(folder: Path, configured: str = "") -> Path:
    """A folder with a copy of the frozen book, from which MkDocs builds it as configured."""
    shutil.copytree(ROOT / "tests" / "book" / "content", folder / "content")
    (frozen_book(folder) / "mkdocs.yml").write_text(
        CONFIGURATION.format(root=ROOT).replace(f"{ROOT}/tests/book/content", "content")
        + configured,
        encoding="utf-8",
    )
    return folder


def _frozen_site(folder: Path) -> Path:
    done = mkdocs(frozen_book(folder), "build", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


@pytest.fixture(scope="session")
def frozen_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the frozen book's HTML."""
    return made_once(tmp_path_factory, "frozen-book", _frozen_site)


@pytest.fixture(scope="session")
def kinds(built_site: Path) -> list[Path]:
    """Pages that together have every kind of element; `make soak` takes all."""
    return of_each_kind(pages(built_site))


MOST_ALIKE = 6  # of a family of more pages, each third is looked at in all widths


@pytest.fixture(scope="session")
def looked_at(built_site: Path, kinds: list[Path]) -> list[Path]:
    """Pages to see at all widths: `kinds`, and of each large family a third; at soak, all pages.

    A family is a folder or, of topics, a mode: sections of Deep, labs, experiments' evidence.
    """
    families = defaultdict(list)
    for path in pages(built_site):
        topic = path.parent.parent.name == "topics"
        families[path.stem.partition("-")[0] if topic else path.parent].append(path)
    few = (found[:: 3 if len(found) > MOST_ALIKE else 1] for found in families.values())
    return sorted({*kinds, *chain(*few)})


NUM_PARTS = 3  # into which the pages are divided, so that as many workers can look at them


@pytest.fixture(scope="session")
def seen(
    built_site: Path,
    kinds: list[Path],
    looked_at: list[Path],
    browser: Browser,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """What is seen of every page, by its path below the site; opened once in a session."""

    def made(folder: Path) -> Path:
        own = pages(built_site)[int(folder.name[-1]) :: NUM_PARTS]
        found = look_at(browser, built_site, own, {*looked_at}, kinds)
        folder.with_suffix(".json").write_text(json.dumps(found))
        return folder.with_suffix(".json")

    own = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0)
    parts = sorted(range(NUM_PARTS), key=lambda part: (part - own) % NUM_PARTS)
    files = [made_once(tmp_path_factory, f"seen-{part}", made) for part in parts]
    return {name: one for path in files for name, one in json.loads(path.read_text()).items()}

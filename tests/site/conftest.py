"""The frozen book as a built site: its pages look the same for ever."""

import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT, made_once, mkdocs

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

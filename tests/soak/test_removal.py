"""The folder of each companion, and of each kind of pages, deleted from a copy of the tree."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.processes import ran
from tests.test_architecture import PACKAGES
from tests.test_removal import COMPANIONS, KINDS, gone_with

pytestmark = pytest.mark.soak

PRINTS = """
import sys
from pathlib import Path
from proofbook.generator.content.reading import load
from proofbook.generator.pages.press import Press
pages = Press().printed(load(Path(sys.argv[1]), "reference-frozen", lambda _: False))
print(*sorted(pages))
"""


def _without(gone, into: Path):
    def left_out(folder, names):
        is_above = Path(folder).name in ("kinds", "companions")
        return {name for name in names if name == "__pycache__" or (is_above and name in gone)}

    for package in (*PACKAGES, "proofbook"):
        shutil.copytree(ROOT / package, into / package, symlinks=True, ignore=left_out)
    (into / "content").symlink_to(ROOT / "content")
    return into


# The other kinds are what the frozen book consists of.
@pytest.mark.parametrize(
    "name", [*COMPANIONS, *(name for name in KINDS if "lessons" not in gone_with(name))]
)
def test_the_frozen_book_prints_without_a_companion_or_a_kind(name, tmp_path):
    gone = gone_with(name)
    tree = _without(gone, tmp_path / "tree")
    frozen = str(ROOT / "tests" / "book" / "content")
    own = os.environ | {"PYTHONPATH": str(tree)}
    done = ran([sys.executable, "-c", PRINTS, frozen], tree, own)
    assert done.returncode == 0, done.stderr
    pages = {*done.stdout.split()}
    assert "marks.md" in pages  # by hand
    assert "topics/averaging/learn.md" in pages
    assert ("topics/averaging/recall.md" in pages) is ("recall" not in gone)
    assert ("evidence/tiny_training.md" in pages) is ("evidence" not in gone)

"""Whole books: measured by a newcomer, measured again in part, and built by ProperDocs.

ProperDocs continues MkDocs, and would take its place.
"""

import random
import shlex

import pytest

from proofbook.generator.printing.sources import PYTHON
from tests.clones import cloned, pasted
from tests.conftest import build_with, copy_of_the_book
from tests.sampled import paths, short_runs

pytestmark = [pytest.mark.soak, pytest.mark.builds]


def test_a_fresh_clone_measures_every_experiment_without_a_surprise(tmp_path):
    """At the sizes that the book declares; the gate shortens them."""
    done = pasted("make site", cloned(tmp_path / "clone"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 surprises" in done.stdout


def test_thirty_numbers_of_ten_short_runs_are_the_same_again(tmp_path, seed):
    draw = random.Random(seed)
    several = [[*found.values()] for one in short_runs() if len(found := paths(*one)) >= 3]
    drawn = [path for one in draw.sample(several, 10) for path in draw.sample(one, 3)]
    done = pasted(f"{PYTHON} reproduce {shlex.join(drawn)}", cloned(tmp_path / "clone"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_properdocs_writes_every_file_that_mkdocs_writes_to_the_byte(tmp_path):
    built = []
    for builder in ("mkdocs", "properdocs"):
        book = copy_of_the_book(tmp_path / builder)
        done = build_with(builder, book, "build", "--strict", "--config-file", "mkdocs.yml")
        assert done.returncode == 0, done.stdout + done.stderr
        site = book / "site" / "html"
        built.append({path.relative_to(site): path for path in site.rglob("*") if path.is_file()})
    ours, theirs = built
    assert len(ours) > 100
    assert theirs.keys() == ours.keys()
    assert [name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()] == []

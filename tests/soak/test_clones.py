"""Whole books: measured by a newcomer, tested, measured again in part, and built by ProperDocs.

ProperDocs continues MkDocs, and would take its place.
"""

import random
import shlex
import shutil

import pytest

from proofbook.generator.printing.sources import PYTHON
from tests.clones import cloned, pasted
from tests.conftest import build_with, copy_of_the_book
from tests.sampled import paths, short_runs
from tests.test_contributing import ran, tried  # noqa: F401 - a fixture
from tests.test_readme import REPRODUCE

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


def test_the_value_that_the_readme_measures_again_is_the_same(measured_book):
    done = pasted(REPRODUCE, measured_book)
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


def test_a_strict_build_shows_and_marks_what_only_this_machine_has_measured(ran):  # noqa: F811
    clone = ran[0]
    tried("make pages", clone)
    page = (clone / "site" / "html" / "evidence" / "widths.html").read_text()
    assert "Not measured on the reference machine." in page


def test_tests_after_make_site_read_the_committed_book_alone(measured_book):
    """Own traces and a try lie in the clone, and tests read no more than before."""
    content = measured_book / "content"
    own = (content / "traces" / "this-machine").read_text().strip()
    (content / "tries").mkdir(exist_ok=True)
    shutil.copy2(content / "traces" / own / "ddp.json", content / "tries" / "ddp.single-0.json")
    tests = "-n 0 -q tests/generator/test_committed.py -k book_that_tests"
    done = pasted(f".venv/bin/python -m pytest {tests}", measured_book)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout

"""Labs: each solution passes, and each wrong program fails where its file says that it does."""

from __future__ import annotations

import re

import pytest

from runners.labs.benches import BENCHES
from runners.labs.grading import graded
from runners.labs.shelf import labs

pytestmark = pytest.mark.ranks
LABS = {one.name: one for one in labs()}
# `# fails: sends`, or `# fails: sends on 4, peak on 2`; on a number that is left out, it passes.
# `# ends: hung` where it does not end.
FAILS = re.compile(r"^# fails: (.+)$", re.MULTILINE)
ENDS = re.compile(r"^# ends: (\w+)$", re.MULTILINE)
WRONG = [(name, path.stem) for name, one in LABS.items() for path in one.wrong]


def declared(text, world_size):
    """Which requirement a wrong program says that it fails first."""
    said = FAILS.search(text)[1]
    by_ranks = dict(part.split(" on ")[::-1] for part in said.split(", ") if " on " in part)
    return by_ranks.get(str(world_size)) if by_ranks else said


@pytest.fixture
def wrong_programs():
    """One of each lab; `make soak` grades all, on two ranks as well."""
    return list(dict(WRONG).items())


@pytest.fixture
def numbers_of_ranks():
    return [4]


@pytest.mark.parametrize("name", LABS)
def test_a_solution_passes(name, numbers_of_ranks):
    for world_size in numbers_of_ranks:
        grade = graded(BENCHES[name], LABS[name].folder / "solved.py", world_size, [0, 1])
        assert grade.is_solved, (world_size, grade.rows, grade.seen[0].failure)


def test_a_wrong_program_fails_where_it_says(wrong_programs, numbers_of_ranks):
    other = {}
    for name, stem in wrong_programs:
        path = LABS[name].folder / "wrong" / f"{stem}.py"
        text = path.read_text(encoding="utf-8")
        for world_size in numbers_of_ranks:
            grade = graded(BENCHES[name], path, world_size, [0])
            first = grade.first_failed
            kinds = {one.failure.kind for one in grade.seen if one.failure} - {"peer failed"}
            ends = {ENDS.search(text)[1]} if ENDS.search(text) else set()
            requirement = first.requirement if first else None
            if requirement != declared(text, world_size) or kinds != ends:
                other[name, stem, world_size] = (first, kinds)
    assert other == {}


@pytest.mark.parametrize("name", LABS)
def test_the_words_of_a_lab_name_its_requirements(name):
    one = LABS[name]
    grade = graded(BENCHES[name], one.folder / "starter.py", 2, [0])
    assert grade.first_failed.requirement == one.words.get("starter_fails", "same")
    assert [row.requirement for row in grade.rows] == [*one.requirements]
    assert len(one.words["task"].split()) <= 150
    assert one.wrong

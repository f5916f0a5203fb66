"""Every program of every lab, on two and on four ranks; and solutions beside busy processes."""

from __future__ import annotations

import multiprocessing
import time

import pytest

from proofbook.companions.labs.benches import BENCHES
from proofbook.companions.labs.grading import graded
from tests.judging import test_labs
from tests.judging.test_labs import *  # noqa: F403 the same tests, of more programs

pytestmark = [pytest.mark.soak, pytest.mark.ranks]
NUM_BUSY, NUM_ATTEMPTS = 6, 50


@pytest.fixture
def wrong_programs():
    return [*test_labs.WRONG]


@pytest.fixture
def right_programs():
    return [*test_labs.RIGHT]


@pytest.fixture
def cases():
    return [(ranks, seed) for ranks in (2, 4) for seed in (0, 1)]


@pytest.fixture
def ranks_of():
    return lambda _: [2, 4]


@pytest.mark.parametrize("name", test_labs.LABS)
def test_a_solution_passes(name, cases):
    test_labs.assert_solved(name, cases)


@pytest.mark.parametrize("name", test_labs.LABS)
def test_a_starter_fails_where_its_words_say(name):
    test_labs.assert_started(name)


def _spin():
    while True:
        time.monotonic()


@pytest.mark.parametrize("name", test_labs.LABS)
def test_no_solution_fails_on_a_busy_machine(name):
    busy = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(NUM_BUSY)]
    for one in busy:
        one.start()
    try:
        for seed in range(NUM_ATTEMPTS):
            file = test_labs.LABS[name].folder / "solved.py"
            grade = graded(BENCHES[name], file, 4, [seed])
            assert grade.is_solved, (seed, grade.requirements, grade.ranks[0].failure)
    finally:
        for one in busy:
            one.kill()

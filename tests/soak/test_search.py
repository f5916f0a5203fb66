"""Tests that draw examples search further than at the gate.

    make soak ARGS='-k search'                 another seed each time, which is printed
    make soak ARGS='-k search --seed 20000'    the same search again

What a search finds is written down as an `@example` of its test, so that the gate replays it.
"""

import random

import pytest

from tests.processes import python

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4 * 3600)]


def test_search_finds_no_example_that_fails(pytestconfig):
    seed = pytestconfig.getoption("--seed")
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"--seed {seed}")
    draws = ["-m", "hypothesis", "--hypothesis-profile=search", f"--hypothesis-seed={seed}"]
    done = python("-m", "pytest", "-q", *draws)
    assert done.returncode == 0, done.stdout + done.stderr

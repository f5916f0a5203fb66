"""Tests that draw examples search further than at the gate.

    make soak ARGS='-k search'                         another seed each time, which is printed
    PROOFBOOK_SOAK=20000 make soak ARGS='-k search'    the same search again

What a search finds is written down as an `@example` of its test, so that the gate replays it.
"""

import os
import random

import pytest

from tests.processes import python

pytestmark = [pytest.mark.soak, pytest.mark.timeout(4 * 3600)]


def test_search_finds_no_example_that_fails():
    seed = int(os.environ.get("PROOFBOOK_SOAK", random.SystemRandom().randrange(2**32)))
    print(f"PROOFBOOK_SOAK={seed}")
    draws = ["-m", "hypothesis", "--hypothesis-profile=search", f"--hypothesis-seed={seed}"]
    done = python("-m", "pytest", "-q", *draws)
    assert done.returncode == 0, done.stdout + done.stderr

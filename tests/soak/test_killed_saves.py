"""Saves of `content/code/resume.py`, killed at moments: nothing is lost, nothing is half there.

make soak ARGS='-k killed_saves --kills 20'    a short sample, another each day
"""

import random

import pytest

from tests.killed_saves import saved_twice

MOST_SECONDS = 0.05  # a save takes less
pytestmark = [pytest.mark.soak, pytest.mark.ranks, pytest.mark.timeout(1800)]


def test_a_save_killed_at_any_moment_leaves_a_whole_checkpoint(tmp_path, seed, pytestconfig):
    chance, ends = random.Random(seed), []
    for attempt in range(pytestconfig.getoption("--kills")):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        ends.append(saved_twice(folder, seconds=chance.uniform(0.0001, MOST_SECONDS)))
    dead = [step for is_dead, step in ends if is_dead]
    print(
        f"{len(dead)} of {len(ends)} died in the save, {dead.count(2)} of them once it was complete"
    )
    assert {step for _, step in ends} <= {1, 2}
    assert dead

"""The gate itself: what it draws is searched further, and what could flicker is run ten times.

    make soak ARGS='-k search'                     another seed each time, which is printed
    PROOFBOOK_SOAK=20000 make soak ARGS='-k search'    the same search again
    make soak ARGS='-k flicker'                    ten times; the tests that draw, wait or time

What a search finds is written down as an `@example` of its test, so that the gate replays it.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from tests.conftest import ROOT

REPEATS = 10
# Beside those that draw: tests that wait for processes, pages or ranks, and that read clocks.
THAT_WAIT = [
    "tests/test_patience.py",
    "tests/generator/test_plugin.py",
    *(f"tests/runners/test_{part}.py" for part in ("launch", "links", "try", "due", "hangs")),
    *(f"tests/runners/test_{part}.py" for part in ("stragglers", "pipeline_schedules")),
    *(f"tests/runners/test_{part}.py" for part in ("stopping", "peers", "not_measured", "scratch")),
    *(f"tests/runners/test_{part}.py" for part in ("gloo_threads", "kernel", "wall_time")),
]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(4 * 3600)]


def _run(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_search_finds_no_example_that_fails():
    seed = int(os.environ.get("PROOFBOOK_SOAK", random.SystemRandom().randrange(2**32)))
    print(f"PROOFBOOK_SOAK={seed}")
    _run("-m", "hypothesis", "--hypothesis-profile=search", f"--hypothesis-seed={seed}")


@pytest.mark.parametrize("attempt", range(REPEATS))
def test_none_that_draws_flickers(attempt):
    _run("-m", "hypothesis")


@pytest.mark.ranks
@pytest.mark.parametrize("attempt", range(REPEATS))
def test_none_that_waits_flickers(attempt):
    _run(*THAT_WAIT)

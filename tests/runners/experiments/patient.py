"""An experiment for the tests whose second run lasts until somebody stops it."""

from __future__ import annotations

import time

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank

QUESTION = "What is left when a person presses Ctrl-C?"


def _quick(rank: Rank) -> None:
    rank.measure("num_ranks", rank.world_size)


def _endless(rank: Rank) -> None:
    while True:
        with rank.phase("wait"):
            time.sleep(0.1)


STRATEGIES = {"quick": _quick, "endless": _endless}
RUNS = {
    "quick": RunPlan("quick", passes=("timed",)),
    "endless": RunPlan("endless", passes=("timed",)),
}

"""An experiment for the tests that only `--full` measures, as a whole."""

from __future__ import annotations

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank

QUESTION = "Is a whole experiment left to --full?"


def _count(rank: Rank) -> None:
    rank.measure("num_ranks", rank.world_size)


STRATEGIES = {"count": _count}
RUNS = {"alone": RunPlan("count", passes=("timed",), full=True)}

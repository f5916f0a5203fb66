"""An experiment for the tests: one run for everybody, one that only `--full` measures."""

from __future__ import annotations

from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank

QUESTION = "What does a run leave to --full?"


def _count(rank: Rank) -> None:
    for step in rank.steps(rank.settings.num_steps):
        rank.measure("num_counted", step + 1)


STRATEGIES = {"count": _count}
RUNS = {
    "light": RunPlan("count", settings={"num_steps": 8}, passes=("timed",)),
    "heavy": RunPlan("count", settings={"num_steps": 9}, passes=("timed",), full=True),
}

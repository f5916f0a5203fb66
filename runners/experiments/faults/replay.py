"""A long training replayed on paper, with costs that were measured: how often to save.

In: what a step, a checkpoint and a restart cost, and how long a machine runs between two failures.
Out: how long a training takes with a checkpoint every so many steps, over seeded failure times; and
the closed forms of Young and Daly beside it. Arithmetic alone: nothing here is run or timed.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass

from runners.experiments.faults import ReplayedSettings
from runners.ranks.rank import Rank

# Multiples of Young's interval that are replayed: powers of the root of two around one.
FACTORS = [2 ** (exponent / 2) for exponent in range(-6, 7)]


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds, and the mean time between two failures."""

    step_seconds: float
    checkpoint_seconds: float
    restart_seconds: float
    mtbf_seconds: float


def replay(costs: Costs, num_steps_between: int, num_steps: int, seed: int) -> float:
    """Seconds that so many steps take, with failures at random and a checkpoint now and then.

    A failure loses what was done since the last whole checkpoint. It can fall into a restart, which
    then begins again, or into a checkpoint, which is then worth nothing.
    """
    source = random.Random(seed)
    segment = num_steps_between * costs.step_seconds + costs.checkpoint_seconds
    num_segments = math.ceil(num_steps / num_steps_between)
    now, failure = 0.0, 0.0
    while True:
        failure += source.expovariate(1 / costs.mtbf_seconds)
        num_done = max(0, int((failure - now) // segment))
        if num_done >= num_segments:
            return now + num_segments * segment
        num_segments -= num_done
        now = failure + costs.restart_seconds


def expected_seconds(costs: Costs, num_steps_between: int, num_steps: int) -> float:
    """The mean of what `replay` gives, by Daly's closed form for exponential failure times."""
    mtbf, work = costs.mtbf_seconds, num_steps_between * costs.step_seconds
    per_segment = math.exp(costs.restart_seconds / mtbf) * math.expm1(
        (work + costs.checkpoint_seconds) / mtbf
    )
    return mtbf * per_segment * num_steps / num_steps_between


def young_seconds(costs: Costs) -> float:
    """Young's first-order interval between two checkpoints."""
    return math.sqrt(2 * costs.checkpoint_seconds * costs.mtbf_seconds)


def daly_seconds(costs: Costs) -> float:
    """Daly's higher-order interval between two checkpoints."""
    if costs.checkpoint_seconds >= 2 * costs.mtbf_seconds:
        return costs.mtbf_seconds
    ratio = math.sqrt(costs.checkpoint_seconds / (2 * costs.mtbf_seconds))
    return young_seconds(costs) * (1 + ratio / 3 + ratio**2 / 9) - costs.checkpoint_seconds


def replayed(rank: Rank[ReplayedSettings]) -> None:
    """A long training on paper: measured costs, seeded failures, and intervals around Young's."""
    costs = Costs(
        statistics.median(rank.followed["step"]),
        statistics.median(rank.followed["checkpoint"]),
        statistics.median(rank.followed["restart"]),
        rank.settings.mtbf_seconds,
    )
    work_seconds = costs.mtbf_seconds * rank.settings.num_failures
    num_steps = round(work_seconds / costs.step_seconds)

    def replays(intervals: list[float]) -> list[tuple[float, float, float]]:
        between = [max(1, round(seconds / costs.step_seconds)) for seconds in intervals]
        return [
            (
                steps * costs.step_seconds,
                replay(costs, steps, num_steps, rank.settings.fault_seed),
                expected_seconds(costs, steps, num_steps),
            )
            for steps in between
        ]

    young, daly = young_seconds(costs), daly_seconds(costs)
    tried = replays([factor * young for factor in FACTORS])
    best = min(tried, key=lambda one: one[1])
    ((_, at_young, expected),) = replays([young])
    ((_, at_daly, _),) = replays([daly])
    for name, seconds in {
        "step": [costs.step_seconds],
        "checkpoint": [costs.checkpoint_seconds],
        "restart": [costs.restart_seconds],
        "work": [work_seconds],
        "interval": [one[0] for one in tried],
        "replayed": [one[1] for one in tried],
        "predicted": [one[2] for one in tried],
        "best_interval": [best[0]],
        "young_interval": [young],
        "daly_interval": [daly],
        "replayed_at_best": [best[1]],
        "replayed_at_young": [at_young],
        "replayed_at_daly": [at_daly],
        "predicted_at_young": [expected],
        "lost_at_best": [best[1] - work_seconds],
        "lost_at_young": [at_young - work_seconds],
        "lost_at_daly": [at_daly - work_seconds],
    }.items():
        rank.measure_seconds(name, seconds)

"""How often a long training should save: failures at random, replayed and in closed form. No torch.

In: what a step, a checkpoint and a restart take, and how long a machine runs between two failures.
Out: seconds of the whole training, and the intervals of Young and Daly.
"""

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """What was measured, in seconds, and the mean time between two failures."""

    step_seconds: float
    checkpoint_seconds: float
    restart_seconds: float
    mtbf_seconds: float


def replay(costs: Costs, num_steps_between: int, num_steps: int, seed: int) -> float:
    """Simulated seconds of so many steps, with checkpoints and exponential failures by seed.

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

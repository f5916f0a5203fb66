"""SGD with late gradients on the parabola x²/2: from which learning rate on it diverges."""

from __future__ import annotations

from runners.experiments.synchronization import ParabolaSettings
from runners.ranks.rank import Rank


def parabola(rank: Rank[ParabolaSettings]) -> None:
    """The largest learning rate that goes down on x²/2 with gradients of each age, by halving."""
    settings = rank.settings
    found = []
    for delay in settings.delays:
        low, high = 0.0, 4.0
        for _ in range(settings.num_halvings):
            rate = (low + high) / 2
            low, high = (rate, high) if _goes_down(rate, delay, settings.num_steps) else (low, rate)
        found.append((low + high) / 2)
    rank.measure("largest_rates", found)


def _goes_down(rate: float, delay: int, num_steps: int) -> bool:
    """Whether SGD with gradients `delay` steps old comes nearer to the bottom of x²/2."""
    past = [1.0] * (delay + 1)
    early = late = 0.0
    for step in range(num_steps):
        past.append(past[-1] - rate * past[0])
        del past[0]
        size = abs(past[-1])
        if size > 1e6:
            return False
        if step < num_steps // 2:
            early = max(early, size) if step >= num_steps // 4 else 0.0
        elif step >= 3 * num_steps // 4:
            late = max(late, size)
    return late < early or late == 0.0

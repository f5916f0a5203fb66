"""The runs of `stragglers` as pure values: who is slow in which step, and how long that takes."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, stack_work
from runners.traces.records import Setting
from runners.training.teacher import Rows

MODEL: dict[str, Setting] = {
    "num_validation_rows": 200,
    "num_features": 10,
    "num_hidden": 16,
    "num_classes": 4,
    "learning_rate": 0.1,
    "teacher_temperature": 0.15,
    "dtype": "float64",
}
PACED: dict[str, Setting] = {
    **MODEL,
    "num_rows": 16,
    "num_validation_rows": 1,
    "num_steps": 24,
    "pace_seconds": 0.005,
    "slow_seconds": 0.03,
}
ALWAYS: dict[str, Setting] = {
    **PACED,
    "num_steps": 8,
    "pace_seconds": 0.02,
    "slow_seconds": 0.08,
    "slow_rank": 3,
}
SOMETIMES: dict[str, Setting] = {**PACED, "slow_share": 0.2}
JOINED: dict[str, Setting] = {
    **MODEL,
    "num_rows": 700,
    "batch_size": 25,
    "num_batches_per_rank": [10, 8, 6, 4],
    "divides_by": "initial",
}
DIVISORS = ("initial", "remaining")


def lengths(plan: RunPlan) -> list[list[float]]:
    """Seconds of each rank's own work in each step, set before anything runs."""
    settings = plan.settings
    steps = whole_number(settings, "num_steps")
    pace, slow = (_seconds(settings[name]) for name in ("pace_seconds", "slow_seconds"))
    ranks = range(plan.world_size)
    if "slow_rank" in settings:
        return [[slow if rank == settings["slow_rank"] else pace] * steps for rank in ranks]
    source = random.Random(plan.seed)
    share = _seconds(settings["slow_share"])
    return [[slow if source.random() < share else pace for _ in range(steps)] for _ in ranks]


def _longest(own: list[list[float]]) -> list[float]:
    """Of each step, the seconds of its slowest rank."""
    return [max(of_step) for of_step in zip(*own, strict=True)]


def _seconds(value: Setting) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 10:
        raise ValueError(f"a pace or a share must be a small number above zero, not {value!r}")
    return float(value)


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what its steps should take worked out anew.

    Raises:
        ValueError: a pace is no time, the slow rank is none, or shards do not add up to the rows.
    """
    settings = dict(plan.settings)
    if plan.strategy == "joined":
        return replace(plan, settings=_joined(settings, plan.world_size))
    slow_rank = settings.get("slow_rank", 0)
    if not isinstance(slow_rank, int) or not 0 <= slow_rank < plan.world_size:
        raise ValueError(f"slow_rank must be one of {plan.world_size} ranks, not {slow_rank!r}")
    own = lengths(plan)
    steps = whole_number(settings, "num_steps")
    between = 1
    if plan.strategy == "local":
        between = whole_number(settings, "steps_between")
        if steps % between:
            raise ValueError(f"num_steps {steps} is no multiple of steps_between {between}")
    blocks = range(0, steps, between)
    settings["expected_seconds"] = sum(
        max(sum(of_rank[start : start + between]) for of_rank in own) for start in blocks
    )
    settings["busiest_rank_seconds"] = max(map(sum, own))
    settings["mean_rank_seconds"] = sum(map(sum, own)) / len(own)
    if "slow_share" in settings:
        share = _seconds(settings["slow_share"])
        settings["slow_step_share"] = 1 - (1 - share) ** plan.world_size
        slow = _seconds(settings["slow_seconds"])
        settings["num_steps_with_slow"] = sum(
            max(of_step) >= slow for of_step in zip(*own, strict=True)
        )
    return replace(plan, settings=settings)


def _joined(settings: dict[str, Setting], ranks: int) -> dict[str, Setting]:
    batches = settings["num_batches_per_rank"]
    if not isinstance(batches, list) or len(batches) != ranks or min(map(int, batches)) < 1:
        raise ValueError(f"num_batches_per_rank must give each of {ranks} ranks at least one")
    if settings["divides_by"] not in DIVISORS:
        raise ValueError(f"divides_by must be initial or remaining, not {settings['divides_by']!r}")
    size = whole_number(settings, "batch_size")
    return {**settings, "num_rows": size * sum(map(int, batches))}


def shards(rows: Rows, num_batches: list[int], batch_size: int) -> list[Rows]:
    """Each rank's part of the rows, one after another, as many batches as it is given."""
    ends = [0]
    for count in num_batches:
        ends.append(ends[-1] + count * batch_size)
    return [rows.take(slice(start, end)) for start, end in pairwise(ends)]


def _paced(strategy: str, settings: dict[str, Setting], **changed: Setting) -> RunPlan:
    plan = RunPlan(strategy, 4, {**settings, **changed}, passes=("timed",), nature="paced")
    return settle(replace(plan, has_timeline=False))


def _uneven(divides_by: str) -> RunPlan:
    settings = {**JOINED, "divides_by": divides_by}
    return settle(RunPlan("joined", 4, settings, passes=("timed",), has_timeline=False))


RUNS = {
    "one_slow": replace(
        _paced("synchronous", ALWAYS), passes=("timed", "metered"), has_timeline=True
    ),
    "sometimes": _paced("synchronous", SOMETIMES),
    "sometimes_local": _paced("local", SOMETIMES, steps_between=8),
    "joined": _uneven("initial"),
    "joined_remaining": _uneven("remaining"),
}
CHOICES = (
    Choice(
        "shortest",
        "Whose typical step is the shortest, with ranks that are slow now and then?",
        ("sometimes", "sometimes_local"),
    ),
)


def forecast(plan: RunPlan) -> Work:
    """A paced step takes what was set, and a little model beside it."""
    settings, n = plan.settings, plan.world_size
    widths = tuple(whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes"))
    is_joined = plan.strategy == "joined"
    alone = stack_work(widths, whole_number(settings, "batch_size" if is_joined else "num_rows"))
    value_bytes = 8 if settings["dtype"] == "float64" else 4
    gradients = Exchange("all_reduce", value_bytes * alone.optimizer_parameters, 1, n)
    # Who may have joined is asked in every step, beside the gradients.
    asked = (Exchange("all_reduce", 4, 2, n),) if is_joined else ()
    return replace(
        alone,
        num_operations=alone.num_operations + 9,
        exchanges=() if plan.strategy == "local" else (gradients, *asked),
        num_busy_ranks=n if is_joined else 1,  # asleep, ranks share no core
        extra_seconds=_foretell_typical(plan),
    )


def _foretell_typical(plan: RunPlan) -> float:
    """The median over steps of what rank 0 should take: its own work, or that of the slowest."""
    if plan.strategy == "joined":
        return 0.0
    own = lengths(plan)
    each = (
        own[0] if plan.strategy == "local" else [max(of_step) for of_step in zip(*own, strict=True)]
    )
    return sorted(each)[len(each) // 2]

"""A rank dies, and training goes on: under the elastic launcher, from a distributed checkpoint.

The same sharded training is left in peace, killed at a step that a seed decides and resumed, and
resumed with a part of its state forgotten. What a checkpoint and a restart cost is measured, and
then replayed over failure times of a long training: how often should one save?

    python -m runners run faults
"""

from __future__ import annotations

import random
import statistics
from dataclasses import asdict, replace

import torch.distributed as dist

from runners.experiments._faults_elastic import launch, record
from runners.experiments._faults_replay import (
    Costs,
    daly_seconds,
    expected_seconds,
    replay,
    young_seconds,
)
from runners.experiments._faults_training import Shape, Training, last_checkpoint
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import FLOAT_BYTES, Exchange, Work, perceptron_flops, perceptron_parameters
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description

QUESTION = "What does it take for a killed training to end as if nothing had happened?"

TRAINING: dict[str, Setting] = {
    "width": 640,
    "num_layers": 2,
    "batch_size": 32,
    "num_steps": 30,
    "learning_rate": 0.001,
}
FAULTS: dict[str, Setting] = {
    **TRAINING,
    "num_ranks": 2,
    "checkpoint_every": 8,
    "num_deaths": 1,
    "moment": "step",
    "fault_seed": 27,
}
MOMENTS = ("step", "save")
FORGETTABLE = ("nothing", "optimizer", "rows")
# Multiples of Young's interval that are replayed: powers of the root of two around one.
FACTORS = [2 ** (exponent / 2) for exponent in range(-6, 7)]


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its deaths worked out from the seed.

    Raises:
        ValueError: a size is no whole number above zero, or there are not so many moments to die.
    """
    settings = dict(plan.settings)
    if plan.strategy == "replayed":
        whole_number(settings, "num_failures")
        return plan
    for name in ("width", "num_layers", "batch_size", "num_steps"):
        whole_number(settings, name)
    if plan.strategy == "resumed":
        _check_resumed(settings)
    if plan.strategy == "elastic":
        settings.update(_deaths(settings))
    return replace(plan, settings=settings)


def _check_resumed(settings: dict[str, Setting]) -> None:
    if settings["forgets"] not in FORGETTABLE:
        raise ValueError(f"forgets must be one of {', '.join(FORGETTABLE)}")
    if whole_number(settings, "stop_step") > whole_number(settings, "num_steps"):
        raise ValueError("stop_step lies beyond num_steps")


def _deaths(settings: dict[str, Setting]) -> dict[str, Setting]:
    """Which ranks die before which steps, or in the saves after them; and from where all go on."""
    num_steps, every = (
        whole_number(settings, "num_steps"),
        whole_number(settings, "checkpoint_every"),
    )
    if settings["moment"] not in MOMENTS:
        raise ValueError(f"moment must be one of {', '.join(MOMENTS)}")
    in_save = settings["moment"] == "save"
    moments = range(every, num_steps + 1, every) if in_save else range(1, num_steps)
    count, num_ranks = whole_number(settings, "num_deaths"), whole_number(settings, "num_ranks")
    if count > len(moments):
        raise ValueError(f"num_deaths must be at most {len(moments)}: there are no more moments")
    source = random.Random(whole_number(settings, "fault_seed"))
    steps = sorted(source.sample(moments, count))
    # The first rank writes what makes a checkpoint whole, so a save is torn where that one dies.
    ranks = [0 if in_save else source.randrange(num_ranks) for _ in steps]
    last_saved = [(step - in_save) // every * every for step in steps]
    return {
        "death_steps": steps,
        "death_ranks": ranks,
        "last_saved_steps": last_saved,
        "num_steps_at_risk": sum(d - s for d, s in zip(steps, last_saved, strict=True)),
    }


def _plan(strategy: str, world_size: int, settings: dict[str, Setting], **more: object) -> RunPlan:
    plan = RunPlan(
        strategy,
        world_size,
        settings,
        passes=("timed",),
        has_timeline=False,
        only_on_cpu=True,  # the elastic launcher's ranks are; all must be comparable to the bit
    )
    return settle(replace(plan, **more))  # type: ignore[arg-type]


def _elastic(full: bool = False, **settings: Setting) -> RunPlan:
    return _plan("elastic", 1, {**FAULTS, **settings}, full=full)


def _resumed(forgets: str) -> RunPlan:
    return _plan("resumed", 2, {**TRAINING, "stop_step": 16, "forgets": forgets})


def _replayed(mtbf_seconds: int) -> RunPlan:
    settings: dict[str, Setting] = {
        "mtbf_seconds": mtbf_seconds,
        "num_failures": 5000,
        "fault_seed": 1,
    }
    return _plan("replayed", 1, settings, nature="simulated", follows="killed")


RUNS = {
    "undisturbed": _plan("undisturbed", 2, TRAINING),
    "resumed": _resumed("nothing"),
    "resumed_without_optimizer": _resumed("optimizer"),
    "resumed_without_rows": _resumed("rows"),
    "killed": _elastic(),
    "replayed_minute": _replayed(60),
    "replayed_hour": _replayed(3600),
    "killed_three_times": _elastic(full=True, num_deaths=3, fault_seed=9),
    "killed_while_saving": _elastic(full=True, moment="save"),
    "killed_without_checkpoint": _elastic(full=True, checkpoint_every=31),
}


def _shape(rank: Rank) -> Shape:
    settings = rank.settings
    return Shape(
        settings.width, settings.num_layers, settings.batch_size, settings.learning_rate, rank.seed
    )


def _describe(rank: Rank, num_ranks: int) -> None:
    num_layers = rank.settings.num_layers
    widths = [rank.settings.width] * (num_layers + 1)
    holders = [range(num_ranks)] * num_layers
    rank.describe(description(widths, holders, sharded=[True] * num_layers))


def _train(rank: Rank, training: Training) -> None:
    """To the last step; the rank's clock reads each."""
    for _ in rank.steps(rank.settings.num_steps - training.step):
        with rank.phase("step"):
            training.take_step()


def undisturbed(rank: Rank) -> None:
    """From the first step to the last, with no checkpoint."""
    _describe(rank, rank.world_size)
    training = Training(_shape(rank))
    rank.watch(training.model, training.optimizer)
    _train(rank, training)


def resumed(rank: Rank) -> None:
    """Saved after some steps, built anew, loaded and gone on; without what is forgotten."""
    _describe(rank, rank.world_size)
    folder = rank.scratch / "checkpoints"
    first = Training(_shape(rank))
    while first.step < rank.settings.stop_step:
        first.take_step()
    with rank.phase("save"):
        first.save(folder)
    del first
    place = last_checkpoint(folder)
    assert place is not None
    second = Training(_shape(rank))
    with rank.phase("load"):
        second.load(place)
    if rank.settings.forgets == "optimizer":
        second.forget_optimizer()
    if rank.settings.forgets == "rows":
        second.rows_step = 0
    rank.watch(second.model, second.optimizer)
    _train(rank, second)
    dist.barrier()


def elastic(rank: Rank) -> None:
    """Ranks of the elastic launcher train, die as planned, and are started again."""
    settings = rank.settings
    _describe(rank, settings.num_ranks)
    deaths = [
        {"step": step, "rank": one, "moment": settings.moment}
        for step, one in zip(settings.death_steps, settings.death_ranks, strict=True)
    ]
    plan = {
        "shape": asdict(_shape(rank)),
        "num_steps": settings.num_steps,
        "num_ranks": settings.num_ranks,
        "checkpoint_every": settings.checkpoint_every,
        "deaths": deaths,
    }
    record(rank, launch(rank, plan))


def replayed(rank: Rank) -> None:
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
    ((_, at_young, foretold),) = replays([young])
    ((_, at_daly, _),) = replays([daly])
    for name, seconds in {
        "step": [costs.step_seconds],
        "checkpoint": [costs.checkpoint_seconds],
        "restart": [costs.restart_seconds],
        "work": [work_seconds],
        "interval": [one[0] for one in tried],
        "replayed": [one[1] for one in tried],
        "foretold": [one[2] for one in tried],
        "best_interval": [best[0]],
        "young_interval": [young],
        "daly_interval": [daly],
        "replayed_at_best": [best[1]],
        "replayed_at_young": [at_young],
        "replayed_at_daly": [at_daly],
        "foretold_at_young": [foretold],
        "lost_at_best": [best[1] - work_seconds],
        "lost_at_young": [at_young - work_seconds],
        "lost_at_daly": [at_daly - work_seconds],
    }.items():
        rank.measure_seconds(name, seconds)


STRATEGIES = {
    "undisturbed": undisturbed,
    "resumed": resumed,
    "elastic": elastic,
    "replayed": replayed,
}


def forecast(plan: RunPlan) -> Work | None:
    """A step of sharded training with Adam; nothing of launchers and of what is replayed."""
    if plan.strategy not in ("undisturbed", "resumed"):
        return None
    settings = plan.settings
    width, rows = whole_number(settings, "width"), whole_number(settings, "batch_size")
    widths = [width] * (whole_number(settings, "num_layers") + 1)
    num_parameters = perceptron_parameters(widths)
    num_bytes = FLOAT_BYTES * num_parameters
    return Work(
        flops=perceptron_flops(widths, rows),
        matrix_rows=rows,
        num_products=3 * (len(widths) - 1) - 1,
        moved_bytes=4.0 * num_bytes,
        num_operations=_foretell_operations(len(widths) - 1),
        optimizer_parameters=num_parameters // plan.world_size,
        optimizer="adam",
        exchanges=(
            Exchange("all_gather", num_bytes, 1, plan.world_size),
            Exchange("reduce_scatter", num_bytes, 1, plan.world_size),
        ),
        num_busy_ranks=plan.world_size,
    )


def _foretell_operations(num_layers: int) -> int:
    """Torch operations of a step, as a dispatch mode counts them: a layer's, and the group's."""
    return 34 * num_layers + 39

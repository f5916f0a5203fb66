"""When ranks agree: in every step, now and then, late, once at the end, or never.

Two ranks train one small classifier on their own shards with plain SGD. `synchronous` is DDP; in
`local_H` each rank trains alone for H steps before parameters are averaged; in `stale_T` the mean
gradient is applied T steps after it was computed, so that nobody waits for it; `at_end` averages
once, `never` not at all. Beside them one device, a bound on how far replicas drift, and the largest
learning rate that a gradient of that age allows on a parabola.

    python -m runners run synchronization
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._synchronization_replica import Replica
from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Exchange, Work, perceptron_parameters, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import flat

QUESTION = "How often must replicas agree, and how late may they?"

SETTINGS: dict[str, Setting] = {
    "num_rows": 6400,
    "num_validation_rows": 1000,
    "num_features": 10,
    "num_hidden": 64,
    "num_classes": 4,
    "batch_size": 50,
    "num_steps": 128,
    "learning_rate": 0.2,
    "teacher_temperature": 0.15,
    "dtype": "float64",
    "order": "shuffled",
}
ONE_DEVICE: dict[str, Setting] = {**SETTINGS, "num_shards": 2}
ORDERS = ("shuffled", "by_class")
PARABOLA: dict[str, Setting] = {"delays": [0, 1, 4, 16], "num_steps": 4000, "num_halvings": 14}


def settle(plan: RunPlan) -> RunPlan:
    """The same run with what follows from its settings worked out anew.

    Raises:
        ValueError: the rows cannot be dealt out so, or a word is none of its choices.
    """
    settings = dict(plan.settings)
    if plan.strategy == "parabola":
        delays = settings["delays"]
        if not isinstance(delays, list) or not all(type(d) is int and d >= 0 for d in delays):
            raise ValueError(f"delays must be a list of whole numbers, not {delays!r}")
        settings["largest_rates"] = [largest_rate(int(delay)) for delay in delays]
        return replace(plan, settings=settings)
    if settings["order"] not in ORDERS:
        raise ValueError(f"order must be {' or '.join(ORDERS)}, not {settings['order']!r}")
    shards = whole_number(settings, "num_shards") if plan.world_size == 1 else plan.world_size
    rows, batch_size = whole_number(settings, "num_rows"), whole_number(settings, "batch_size")
    if rows % shards or rows // shards % batch_size:
        raise ValueError(
            f"num_rows {rows} are no whole batches of {batch_size} for {shards} shards"
        )
    steps = whole_number(settings, "num_steps")
    widths = [whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes")]
    size = 8 if settings["dtype"] == "float64" else 4
    settings["model_bytes"] = size * perceptron_parameters(widths)
    if plan.strategy == "local":
        between = whole_number(settings, "steps_between")
        if steps % between:
            raise ValueError(f"num_steps {steps} is no multiple of steps_between {between}")
        settings["num_averages"] = steps // between
    return replace(plan, settings=settings)


def largest_rate(delay: int) -> float:
    """The largest learning rate at which SGD with gradients that old still goes down on x²/2.

    `x ← x − rate · x`, taken `delay` steps ago, is stable below 2·sin(π / (2·(2·delay + 1))).
    """
    return 2 * math.sin(math.pi / (2 * (2 * delay + 1)))


def _plan(strategy: str, settings: dict[str, Setting], ranks: int = 2, **set_: Setting) -> RunPlan:
    plan = RunPlan(strategy, ranks, {**settings, **set_}, passes=("timed",), keeps_steps=True)
    return settle(replace(plan, has_timeline=False))


RUNS = {
    "single": _plan("single", ONE_DEVICE, 1),
    "synchronous": _plan("synchronous", SETTINGS),
    "local_1": _plan("local", SETTINGS, steps_between=1),
    "local_8": _plan("local", SETTINGS, steps_between=8),
    "local_32": _plan("local", SETTINGS, steps_between=32),
    "at_end": _plan("local", SETTINGS, steps_between=128),
    "never": _plan("never", SETTINGS),
    "stale_0": _plan("stale", SETTINGS, delay=0),
    "stale_4": _plan("stale", SETTINGS, delay=4),
    "stale_16": _plan("stale", SETTINGS, delay=16),
    "synchronous_by_class": _plan("synchronous", SETTINGS, order="by_class"),
    "local_32_by_class": _plan("local", SETTINGS, steps_between=32, order="by_class"),
    "parabola": _plan("parabola", PARABOLA, 1),
}
CHOICES = (
    Choice(
        "fastest", "Whose typical step is the shortest?", ("synchronous", "local_32", "stale_4")
    ),
)


def single(rank: Rank) -> None:
    """The oracle: one device takes what the ranks together take."""
    own = Replica(rank)
    own.train(lambda _: own.optimizer.step())
    own.report()


def synchronous(rank: Rank) -> None:
    """DDP: the mean gradient in every step, before the next begins."""
    own = Replica(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(own.model)
    own.train(lambda _: own.optimizer.step(), replica)
    own.exchanged_bytes = rank.settings.num_steps * flat(own.model).nbytes
    own.report()


def local(rank: Rank) -> None:
    """Local SGD: every rank alone for some steps, then the mean of the parameters."""
    own = Replica(rank)

    def update(index: int) -> None:
        own.optimizer.step()
        if (index + 1) % rank.settings.steps_between == 0:
            own.average()

    own.train(update)
    own.report()


def never(rank: Rank) -> None:
    """Replicas that start equal and are never heard of by each other."""
    own = Replica(rank)
    own.train(lambda _: own.optimizer.step())
    own.report()


def stale(rank: Rank) -> None:
    """The mean gradient travels while ranks go on, and is applied some steps later.

    What is still under way when the rows end is applied then: every gradient counts once.
    """
    own = Replica(rank)
    under_way: list[tuple[dist.Work, Tensor]] = []

    def apply_oldest() -> None:
        work, mean = under_way.pop(0)
        work.wait()
        own.apply(mean / rank.world_size)

    def update(_: int) -> None:
        mean = own.gradient()
        under_way.append((dist.all_reduce(mean, async_op=True), mean))
        own.exchanged_bytes += mean.nbytes
        if len(under_way) > rank.settings.delay:
            apply_oldest()

    own.train(update)
    while under_way:
        apply_oldest()
    own.report()


def parabola(rank: Rank) -> None:
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


STRATEGIES = {
    "single": single,
    "synchronous": synchronous,
    "local": local,
    "never": never,
    "stale": stale,
    "parabola": parabola,
}


def forecast(plan: RunPlan) -> Work | None:
    """The work of a typical step: a small perceptron, and what is exchanged with it."""
    if plan.strategy == "parabola":
        return None
    settings, n = plan.settings, plan.world_size
    widths = tuple(whole_number(settings, f"num_{of}") for of in ("features", "hidden", "classes"))
    shards = whole_number(settings, "num_shards") if n == 1 else 1
    alone = stack_work(widths, shards * whole_number(settings, "batch_size"))
    exchange = Exchange("all_reduce", whole_number(settings, "model_bytes"), 1, n)
    talks = plan.strategy in ("synchronous", "stale") or settings.get("steps_between") == 1
    # The batch is put together, the gradient laid out in a row and measured.
    own = 8 + 2 * shards + (10 if talks and plan.strategy != "synchronous" else 0)
    return replace(
        alone,
        num_operations=alone.num_operations + own,
        exchanges=(exchange,) if talks else (),
        num_busy_ranks=n,
    )

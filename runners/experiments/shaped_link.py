"""DDP over links of a set rate: what an exchange costs, and what overlap and accumulation save.

Each rank lives in a network namespace of its own, and its one link lets a set number of bits
through in a second (`runners/system/links.py`). The same steps are taken at several rates; at one
of them with one bucket instead of one a layer, with a bucket for each parameter, with one
all_reduce after backward instead of DDP, and with gradients accumulated over several microbatches.
How long bytes over rate take is what the exchange is held against. Without the right to make links,
all of it is skipped.

    python -m runners run shaped_link
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from runners.plans.experiment import RunPlan, whole_number
from runners.plans.work import Choice, Work, stack_work
from runners.ranks.rank import Rank
from runners.traces.records import Setting
from runners.training.networks import description, num_parameters, perceptron

QUESTION = (
    "What does a step cost over a slow link, and what do overlap and accumulation save of it?"
)

VALUE_BYTES = 4
BUCKET_UNIT = 1 << 20  # DDP takes bucket sizes in mebibytes
NUM_SETTLING_STEPS = 3  # the recorder leaves out as many
MEGABIT = 1_000_000
SETTINGS: dict[str, Setting] = {
    "width": 256,
    "num_layers": 4,
    "batch_size": 768,  # rows of a rank's microbatch
    "num_microbatches": 1,
    "num_exchanges": 1,  # in a step: after the last microbatch, or after each
    "num_steps": 8,
    "learning_rate": 0.01,
}
EACH_LAYER, WHOLE_MODEL, EACH_PARAMETER = 263168, 1 << 22, 1


def settle(plan: RunPlan) -> RunPlan:
    """The same run with its link, its gradients' bytes, and what they take to pass, worked out.

    Raises:
        ValueError: there are no steps after those that settle, no link to speak over, or another
            number of exchanges than one and all.
    """
    settings = dict(plan.settings)
    if whole_number(settings, "num_steps") <= NUM_SETTLING_STEPS:
        raise ValueError(f"num_steps must be above {NUM_SETTLING_STEPS}, which only settle")
    if plan.world_size < 2:
        raise ValueError("world_size must be two or more: one rank sends nothing")
    num_microbatches = whole_number(settings, "num_microbatches")
    num_exchanges = whole_number({"num_exchanges": 1, **settings}, "num_exchanges")
    if num_exchanges not in (1, num_microbatches):
        raise ValueError(f"num_exchanges must be 1 or {num_microbatches}, the microbatches")
    rate = settings["link_bits_per_second"]
    if rate is not None:
        rate = whole_number(settings, "link_bits_per_second")
    width, num_layers = whole_number(settings, "width"), whole_number(settings, "num_layers")
    gradient_bytes = VALUE_BYTES * sum(num_parameters([width] * (num_layers + 1)))
    ring_bytes = num_exchanges * 2 * (plan.world_size - 1) * gradient_bytes / plan.world_size
    settings |= {
        "gradient_bytes": gradient_bytes,
        "num_rows_per_step": whole_number(settings, "batch_size")
        * num_microbatches
        * plan.world_size,
        # By the payload alone: headers come on top.
        "transfer_seconds": None if rate is None else 8 * ring_bytes / rate,
    }
    return replace(plan, settings=settings, link_bits_per_second=rate)


def _plan(
    megabits: int | None, changed: dict[str, Setting] | None = None, strategy: str = "ddp"
) -> RunPlan:
    rate = None if megabits is None else megabits * MEGABIT
    settings = {**SETTINGS, "bucket_bytes": EACH_LAYER, "link_bits_per_second": rate}
    settings |= changed or {}
    if strategy == "after_backward":
        del settings["bucket_bytes"], settings["num_exchanges"]
    return settle(
        RunPlan(strategy, 2, settings, passes=("timed",), only_on_cpu=True, own_network=True)
    )


PARTS: dict[str, Setting] = {"batch_size": 192, "num_microbatches": 4}
RUNS = {
    "mbit_100": _plan(100),
    "mbit_400": _plan(400),
    "mbit_1600": _plan(1600),
    "one_bucket": _plan(400, {"bucket_bytes": WHOLE_MODEL}),
    "after_backward": _plan(400, strategy="after_backward"),
    "accumulated": _plan(400, PARTS),
    "exchanged_each": _plan(400, {**PARTS, "num_exchanges": 4}),
    "small_buckets": replace(_plan(400, {"bucket_bytes": EACH_PARAMETER}), full=True),
    "mbit_50": replace(_plan(50), full=True),
    "mbit_200": replace(_plan(200), full=True),
    "mbit_800": replace(_plan(800), full=True),
    "unshaped": replace(_plan(None), full=True),
}
CHOICES = (
    Choice(
        "overlap",
        "Over the same slow link, which way to exchange gradients makes the shortest step?",
        ("mbit_400", "one_bucket", "after_backward"),
    ),
    Choice(
        "accumulation",
        "Over the same link, how often should gradients of four parts of a batch be exchanged?",
        ("accumulated", "exchanged_each"),
    ),
)


def _foretell_computing(plan: RunPlan) -> Work:
    """All microbatches of a step, and one update; gradients go into buckets and back."""
    settings = plan.settings
    widths = [whole_number(settings, "width")] * (whole_number(settings, "num_layers") + 1)
    one = stack_work(widths, whole_number(settings, "batch_size"))
    parts = whole_number(settings, "num_microbatches")
    gradients = 6 * whole_number(settings, "gradient_bytes")
    return replace(
        one,
        flops=one.flops * parts,
        num_products=one.num_products * parts,
        moved_bytes=one.moved_bytes * parts + gradients,
        num_operations=one.num_operations * parts,
        num_busy_ranks=plan.world_size,
    )


def _foretell_hidden_flops(plan: RunPlan) -> float:
    """What backward still computes once the last layer's gradients are on their way."""
    settings = plan.settings
    if settings.get("bucket_bytes", WHOLE_MODEL) == WHOLE_MODEL:
        return 0.0
    width, rows = whole_number(settings, "width"), whole_number(settings, "batch_size")
    num_products = 2 * (whole_number(settings, "num_layers") - 1) - 1
    return 2.0 * rows * width**2 * num_products * whole_number(settings, "num_exchanges")


def forecast(plan: RunPlan) -> Work | None:
    """What is computed, and on top of it as much of the transfer as cannot hide in backward."""
    transfer = plan.settings["transfer_seconds"]
    if not isinstance(transfer, float):
        return None
    transfer *= 1514 / 1448  # a full frame, and its payload
    computing, hidden = _foretell_computing(plan), _foretell_hidden_flops(plan)
    last_share = 1 / whole_number(plan.settings, "num_layers")
    # Which of the two passes first differs by machine; that a core makes tens of billions of
    # operations a second decides it wherever the two are not alike.
    if hidden / 5e10 > transfer * (1 - last_share):
        return replace(computing, extra_seconds=transfer * last_share)
    return replace(computing, flops=computing.flops - hidden, extra_seconds=transfer)


def _model(rank: Rank) -> nn.Module:
    widths = [rank.settings.width] * (rank.settings.num_layers + 1)
    rank.describe(description(widths, [range(rank.world_size)] * rank.settings.num_layers))
    with rank.phase("build"):
        torch.manual_seed(rank.seed)
        return perceptron(widths)


def _microbatches(rank: Rank) -> list[tuple[Tensor, Tensor]]:
    """This rank's rows: random ones, since what they are does not change what passes."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed + rank.rank)
    shape = (settings.batch_size, settings.width)
    with rank.phase("rows"):
        return [
            (
                torch.randn(shape, generator=source),
                torch.randint(0, settings.width, shape[:1], generator=source),
            )
            for _ in range(settings.num_microbatches)
        ]


def _train(rank: Rank, model: nn.Module, backward: Callable[[], float]) -> None:
    """Take steps; count what passes this rank's link once they have settled."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    loss = 0.0

    def step() -> None:
        nonlocal loss
        loss = backward()
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    for _ in rank.steps(NUM_SETTLING_STEPS):
        step()
    num_settled = settings.num_steps - NUM_SETTLING_STEPS
    before = rank.link_count()
    for _ in rank.steps(num_settled):
        step()
    after = rank.link_count()
    assert before is not None
    assert after is not None
    passed = after - before
    rank.measure("sent_bytes", passed.sent_payload_bytes / num_settled)
    per_microbatch = passed.sent_payload_bytes / num_settled / settings.num_microbatches
    rank.measure("sent_a_microbatch_bytes", per_microbatch)
    rank.count_samples(settings.batch_size * settings.num_microbatches * settings.num_steps)
    rank.epoch(1, loss=loss, num_samples=settings.batch_size)


def ddp(rank: Rank) -> None:
    """Gradients averaged bucket by bucket while backward goes on; only in the last microbatch."""
    settings = rank.settings
    model = _model(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, bucket_cap_mb=settings.bucket_bytes / BUCKET_UNIT)
    microbatches = _microbatches(rank)
    first_exchanged = len(microbatches) - settings.num_exchanges

    def backward() -> float:
        total = 0.0
        for index, one in enumerate(microbatches):
            with nullcontext() if index >= first_exchanged else replica.no_sync():
                total += _forward_backward(rank, replica, *one)
        return total

    _train(rank, replica, backward)


def _forward_backward(rank: Rank, model: nn.Module, features: Tensor, labels: Tensor) -> float:
    """One microbatch; its gradients are weighted as a part of the step's rows."""
    with rank.phase("forward"):
        loss = nn.functional.cross_entropy(model(features), labels) / rank.settings.num_microbatches
    with rank.phase("backward"):
        loss.backward()
    return float(loss.item())


def after_backward(rank: Rank) -> None:
    """Everything computed first; then all gradients in one all_reduce, timed by itself."""
    model = _model(rank)
    parameters = list(model.parameters())
    microbatches = _microbatches(rank)

    def backward() -> float:
        loss = float(sum(_forward_backward(rank, model, *one) for one in microbatches))
        with rank.phase("all_reduce", computes=False):
            gradients = torch.cat([p.grad.reshape(-1) for p in parameters if p.grad is not None])
            dist.barrier()  # else the time would hold the other's backward as well
            start = time.perf_counter()
            dist.all_reduce(gradients)
            rank.measure_seconds("exchange", [time.perf_counter() - start])
            gradients /= rank.world_size
        for parameter, part in zip(
            parameters, gradients.split([p.numel() for p in parameters]), strict=True
        ):
            assert parameter.grad is not None
            parameter.grad.copy_(part.view_as(parameter))
        return loss

    _train(rank, model, backward)


STRATEGIES = {"ddp": ddp, "after_backward": after_backward}

"""DDP over links of a set rate: what an all-reduce costs, and what overlap and accumulation save.

Each rank lives in a network namespace of its own, and its one link lets a set number of bits
through in a second (`runners/system/links.py`). The same steps are taken at several rates; at one
of them with one bucket instead of one a layer, with a bucket for each parameter, with one
all_reduce after backward instead of DDP, and with gradients accumulated over several microbatches.
The all-reduce is compared with how long bytes over rate take. Without the right to make links, all
of it is skipped.

    python -m runners run shaped_link
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from runners.plans.closed_forms import ring_bytes
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor
from runners.plans.work import FLOAT_BYTES, mlp_parameters
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.networks import flat_gradient
from runners.training.settings import StackSettings
from runners.training.steps import stack_for


def ddp(rank: Rank[DdpSettings]) -> None:
    """Gradients averaged bucket by bucket while backward goes on; only in the last microbatch."""
    settings = rank.settings
    model = stack_for(rank)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, bucket_cap_mb=settings.bucket_bytes / (1 << 20))
    microbatches = _microbatches(rank)
    first_reduced = len(microbatches) - settings.num_reductions

    def backward() -> float:
        total = 0.0
        for index, one in enumerate(microbatches):
            with nullcontext() if index >= first_reduced else replica.no_sync():
                total += _forward_backward(rank, replica, *one)
        return total

    _train(rank, replica, backward)


def after_backward(rank: Rank[Settings]) -> None:
    """Everything computed first; then all gradients in one all_reduce, timed by itself."""
    model = stack_for(rank)
    parameters = list(model.parameters())
    microbatches = _microbatches(rank)

    def backward() -> float:
        loss = sum(_forward_backward(rank, model, *one) for one in microbatches)
        with rank.phase("all_reduce", computes=False):
            gradients = flat_gradient(model)
            dist.barrier()  # else the time would hold the other's backward as well
            start = time.perf_counter()
            dist.all_reduce(gradients)
            rank.measure_seconds("all_reduce", [time.perf_counter() - start])
            gradients /= rank.world_size
        pieces = gradients.split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(piece.view_as(parameter))
        return loss

    _train(rank, model, backward)


def _forward_backward(
    rank: Rank[Settings], model: nn.Module, features: Tensor, labels: Tensor
) -> float:
    """One microbatch; its gradients are weighted as a part of the step's samples."""
    loss = cross_entropy(model(features), labels) / rank.settings.num_microbatches
    loss.backward()
    return loss.item()


def _train(rank: Rank[Settings], model: nn.Module, backward: Callable[[], float]) -> None:
    """Take steps; count what passes this rank's link once they have settled."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)
    loss = 0.0

    def train(num_steps: int) -> None:
        nonlocal loss
        for _ in rank.steps(num_steps):
            loss = backward()
            optimizer.step()
            optimizer.zero_grad()

    train(NUM_SETTLING_STEPS)
    num_settled = settings.num_steps - NUM_SETTLING_STEPS
    before = rank.link_count()
    train(num_settled)
    after = rank.link_count()
    assert before is not None
    assert after is not None
    sent_bytes = (after - before).sent_payload_bytes / num_settled
    rank.measure("sent_bytes", sent_bytes)
    rank.measure("sent_a_microbatch_bytes", sent_bytes / settings.num_microbatches)
    rank.count_samples(settings.batch_size * settings.num_microbatches * settings.num_steps)
    rank.epoch(1, loss=loss, num_samples=settings.batch_size)


def _microbatches(rank: Rank[Settings]) -> list[tuple[Tensor, Tensor]]:
    """This rank's samples: random ones, since what they are does not change what passes."""
    settings = rank.settings
    source = torch.Generator().manual_seed(rank.seed + rank.rank)
    shape = (settings.batch_size, settings.width)
    with rank.phase("samples"):
        return [
            (
                torch.randn(shape, generator=source),
                torch.randint(0, settings.width, shape[:1], generator=source),
            )
            for _ in range(settings.num_microbatches)
        ]


QUESTION = (
    "What does a step cost over a slow link, and how much do overlap and accumulation save of it?"
)
NUM_SETTLING_STEPS = 3  # the recorder leaves out as many
MEGABIT = 1_000_000
EACH_LAYER, WHOLE_MODEL, EACH_PARAMETER = 263168, 1 << 22, 1  # bytes of a bucket


class Settings(StackSettings):
    """Equal layers, microbatches, and a link; gradients are reduced once a step."""

    width: Count = 256
    num_layers: Count = 4
    batch_size: Count = 768  # samples of a rank's microbatch
    num_microbatches: Count = 1
    num_steps: Count = 8
    learning_rate: Factor = 0.01
    link_bits_per_second: Count | None = 400 * MEGABIT  # None: as fast as it goes

    def closed_forms(self) -> dict[str, Setting]:
        """Gradients of a replica, samples of a step, and the time of a ring's payload in a step.

        Headers come on top of that payload.
        """
        gradient_bytes = FLOAT_BYTES * mlp_parameters(self.widths)
        reduced_bytes = getattr(self, "num_reductions", 1) * gradient_bytes
        rate, sent_bytes = self.link_bits_per_second, ring_bytes(reduced_bytes, self.world_size)
        return {
            "gradient_bytes": gradient_bytes,
            "num_samples_per_step": self.batch_size * self.num_microbatches * self.world_size,
            "transfer_seconds": None if rate is None else 8 * sent_bytes / rate,
        }

    def check(self) -> None:
        """Refuse runs without a step that counts, or without a link."""
        if self.num_steps <= NUM_SETTLING_STEPS:
            raise ValueError(f"num_steps must be above {NUM_SETTLING_STEPS}, which only settle")
        if self.world_size < 2:
            raise ValueError("world_size must be two or more: one rank sends nothing")


class DdpSettings(Settings):
    """The same under DDP, whose buckets are reduced while backward goes on."""

    num_reductions: Count = 1  # in a step: after the last microbatch, or after each
    bucket_bytes: Count = EACH_LAYER

    def check(self) -> None:
        """Refuse another number of reductions than one and all."""
        super().check()
        if self.num_reductions not in (1, self.num_microbatches):
            raise ValueError(
                f"num_reductions must be 1 or {self.num_microbatches}, the microbatches"
            )


def _plan(strategy: str, settings: Settings, *, full: bool = False) -> RunPlan[Settings]:
    return RunPlan(
        strategy,
        2,
        settings,
        passes=("timed",),
        only_on_cpu=True,
        own_network=True,
        full=full,
    )


def _ddp(megabits: int | None = 400, *, full: bool = False, **settings: Any) -> RunPlan[Settings]:
    rate = None if megabits is None else megabits * MEGABIT
    return _plan("ddp", DdpSettings(link_bits_per_second=rate, **settings), full=full)


RUNS = {
    "mbit_100": _ddp(100),
    "mbit_400": _ddp(400),
    "mbit_1600": _ddp(1600),
    "one_bucket": _ddp(bucket_bytes=WHOLE_MODEL),
    "after_backward": _plan("after_backward", Settings()),
    "accumulated": _ddp(batch_size=192, num_microbatches=4),
    "reduced_each": _ddp(batch_size=192, num_microbatches=4, num_reductions=4),
    "small_buckets": _ddp(bucket_bytes=EACH_PARAMETER, full=True),
    "mbit_50": _ddp(50, full=True),
    "mbit_200": _ddp(200, full=True),
    "mbit_800": _ddp(800, full=True),
    "unshaped": _ddp(None, full=True),
}

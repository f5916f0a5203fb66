"""DDP over links of a set rate: what an all-reduce costs, and what overlap and accumulation save.

Each rank lives in a network namespace of its own, and its one link lets a set number of bits
through in a second.

    python -m runners run shaped_link
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from proofbook.runners.api import NUM_SETTLING_STEPS, Count, Declaration, Factor, Setting, Settled
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, mlp_parameters
from proofbook.runners.closed_forms.steps import ring_bytes
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.networks import copy_row, flat_gradient, gradients_of
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import replica_of, stack_for
from proofbook.runners.training.transfers import seconds_alone, sent


def ddp(rank: Rank[DdpSettings]) -> None:
    """Build and train a stack under DDP, reduced in the last `num_reductions` backward passes."""
    settings, model = rank.settings, stack_for(rank)
    replica = replica_of(rank, model, bucket_cap_mb=settings.bucket_bytes / (1 << 20))
    microbatches = _microbatches(rank)
    first_reduced = settings.num_microbatches - settings.num_reductions
    for losses in _steps(rank, replica):
        for index, (features, labels) in enumerate(microbatches):
            with nullcontext() if index >= first_reduced else replica.no_sync():
                loss = cross_entropy(replica(features), labels) / settings.num_microbatches
                loss.backward()
            losses.append(loss.item())


def after_backward(rank: Rank[Settings]) -> None:
    """Build and train a stack: all microbatches, then one all_reduce of gradients, timed alone."""
    model, microbatches = stack_for(rank), _microbatches(rank)
    for losses in _steps(rank, model):
        for features, labels in microbatches:
            loss = cross_entropy(model(features), labels) / rank.settings.num_microbatches
            loss.backward()
            losses.append(loss.item())
        with rank.phase("all_reduce", computes=False):
            gradients = flat_gradient(model)
            seconds = seconds_alone(rank, partial(dist.all_reduce, gradients))
            rank.measure_seconds("all_reduce", [seconds])
            copy_row(gradients / rank.world_size, gradients_of(model))


def _steps(rank: Rank[Settings], model: nn.Module) -> Iterator[list[float]]:
    """Steps, each with an empty list for its losses; an update ends it."""
    settings, losses = rank.settings, [0.0]
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    rank.watch(model, optimizer)

    def steps(count: int) -> Iterator[list[float]]:
        for _ in rank.steps(count):
            losses.clear()
            yield losses
            optimizer.step()
            optimizer.zero_grad()

    yield from steps(NUM_SETTLING_STEPS)
    settled = settings.num_steps - NUM_SETTLING_STEPS
    num_passed = settled * settings.num_microbatches
    with sent(rank, sent_bytes=settled, sent_a_microbatch_bytes=num_passed):
        yield from steps(settled)
    rank.count_samples(settings.batch_size * settings.num_microbatches * settings.num_steps)
    rank.epoch(1, loss=sum(losses), num_samples=settings.batch_size)


def _microbatches(rank: Rank[Settings]) -> list[tuple[Tensor, Tensor]]:
    """This rank's samples: random ones, since what they are does not change what passes."""
    size, width = rank.settings.batch_size, rank.settings.width
    source = torch.Generator().manual_seed(rank.seed + rank.rank)

    def drawn() -> tuple[Tensor, Tensor]:
        features = torch.randn((size, width), generator=source)
        return features, torch.randint(0, width, (size,), generator=source)

    with rank.phase("samples"):
        return [drawn() for _ in range(rank.settings.num_microbatches)]


QUESTION = (
    "What does a step cost over a slow link, and how much do overlap and accumulation save of it?"
)
EACH_LAYER, WHOLE_MODEL, EACH_PARAMETER = 263168, 1 << 22, 1  # bytes of a bucket


class Settings(StackSettings):
    """Equal layers, microbatches, and a link; gradients are reduced once a step."""

    width: Count = 256
    num_layers: Count = 4
    batch_size: Count = 768  # samples of a rank's microbatch
    num_microbatches: Count = 1
    num_steps: Settled = 8
    learning_rate: Factor = 0.01
    link_bits_per_second: Count | None = 400_000_000  # None: as fast as it goes

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: bytes of gradients; seconds of all_reduce, or None."""
        gradient_bytes = FLOAT_BYTES * mlp_parameters(self.widths)
        reduced_bytes = getattr(self, "num_reductions", 1) * gradient_bytes
        rate, sent_bytes = self.link_bits_per_second, ring_bytes(reduced_bytes, self.world_size)
        return {
            "gradient_bytes": gradient_bytes,
            "transfer_seconds": None if rate is None else 8 * sent_bytes / rate,
        }


class DdpSettings(Settings):
    """The same under DDP, whose buckets are reduced while backward goes on."""

    num_reductions: Count = 1  # in a step, in as many of its last microbatches
    bucket_bytes: Count = EACH_LAYER


linked = partial(Declaration, world_size=2, passes=("timed",), only_on_cpu=True, own_network=True)


def _ddp(rate: int | None = 4 * 10**8, *, full: bool = False, **settings: int) -> Declaration:
    return linked("ddp", settings=DdpSettings(link_bits_per_second=rate, **settings), full=full)


RUNS = {
    **{f"mbit_{megabits}": _ddp(megabits * 10**6) for megabits in (100, 400, 1600)},
    "one_bucket": _ddp(bucket_bytes=WHOLE_MODEL),
    "after_backward": linked("after_backward", settings=Settings()),
    "accumulated": _ddp(batch_size=192, num_microbatches=4),
    "reduced_each": _ddp(batch_size=192, num_microbatches=4, num_reductions=4),
    "small_buckets": _ddp(bucket_bytes=EACH_PARAMETER, full=True),
    **{f"mbit_{megabits}": _ddp(megabits * 10**6, full=True) for megabits in (50, 200, 800)},
    "unshaped": _ddp(None, full=True),
}

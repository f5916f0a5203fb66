"""When communication hides behind computation: layers of a set duration over a link of a set rate.

Two ranks train a stack of equal linear layers, each rank behind a link of its own. A layer computes
for as long as it is told to, twice as long in backward as in forward, so that a step differs from
another in one thing only: how much it computes for what it sends. Computation of a set duration
tests overlap, not a device.

    python -m runners run overlap
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import linear, mse_loss
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.api import (
    NUM_SETTLING_STEPS,
    Count,
    Declaration,
    Factor,
    Setting,
    Settled,
    closed_form,
)
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.closed_forms.steps import ring_bytes
from proofbook.runners.closed_forms.training_settings import StackSettings
from proofbook.runners.training.networks import average, gradients_of
from proofbook.runners.training.rank import Rank


def ddp(rank: Rank[Settings]) -> None:
    """One bucket a layer, reduced while backward computes the layers before it."""
    model, cap = stack(rank), rank.settings.layer_bytes / (1 << 20)
    with rank.phase("wrap"):
        replica = DistributedDataParallel(model, bucket_cap_mb=cap)
    train(rank, replica)


def after_backward(rank: Rank[Settings]) -> None:
    """All gradients in one all_reduce, when backward has ended."""
    model = stack(rank)
    train(rank, model, lambda: average(gradients_of(model)))


def fsdp(rank: Rank[Settings]) -> None:
    """Build and train layers by `fully_shard`, which overlaps by device streams; a CPU has none."""
    model = stack(rank)
    with rank.phase("wrap"):
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    train(rank, model)


def fsdp_by_hand(rank: Rank[Settings]) -> None:
    """Build and train layers by FSDP by hand: all_gathers a layer ahead, reduce_scatters async."""
    settings, sizes = rank.settings, range(rank.settings.num_layers)
    whole_weights = [weight.detach() for weight in stack(rank).parameters()]
    shards = [weight.chunk(rank.world_size)[rank.rank].clone() for weight in whole_weights]
    features, target = samples(rank)

    def gathered(layer: int) -> tuple[Tensor, Any]:
        whole = torch.empty(settings.width, settings.width)
        return whole, dist.all_gather_into_tensor(whole, shards[layer], async_op=True)

    for _ in _steps(rank):
        inputs, coming = [features], gathered(0)
        for layer in sizes:
            weight, work = coming
            work.wait()
            coming = gathered(min(layer + 1, sizes[-1]))  # the last one again, for backward
            inputs.append(inputs[-1] @ weight.T)
            time.sleep(settings.layer_seconds / 2)
        loss = mse_loss(inputs[-1], target)
        gradient = 2 * (inputs[-1] - target) / target.numel()
        leaving = []
        for layer in reversed(sizes):
            weight, work = coming
            work.wait()
            if layer > 0:
                coming = gathered(layer - 1)
            time.sleep(settings.layer_seconds)
            of_weight = (gradient.T @ inputs[layer]) / rank.world_size
            gradient = gradient @ weight
            share = torch.empty_like(shards[layer])
            work = dist.reduce_scatter_tensor(share, of_weight, async_op=True)
            leaving.append((layer, share, of_weight, work))
        for layer, share, _, work in leaving:
            work.wait()
            shards[layer].sub_(settings.learning_rate * share)
    rank.epoch(1, loss=loss.item(), num_samples=settings.batch_size)


class PacedLayer(nn.Module):
    """A linear layer without bias that computes for as long as it is told to.

    It sleeps, so that the threads that communicate have the core meanwhile: on an accelerator they
    take no part in the computation either.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.seconds = settings.layer_seconds  # of backward

    def forward(self, features: Tensor) -> Tensor:
        """Features `[batch, width]` to `[batch, width]`."""
        time.sleep(self.seconds / 2)
        out = linear(features, self.weight)
        out.register_hook(lambda _: time.sleep(self.seconds))  # before its own gradients
        return out


def stack(rank: Rank[Settings]) -> nn.Sequential:
    """The layers, equal on every rank."""
    torch.manual_seed(rank.seed)
    return nn.Sequential(*(PacedLayer(rank.settings) for _ in range(rank.settings.num_layers)))


def samples(rank: Rank[Settings]) -> Tensor:
    """This rank's features and what they should become, both `[batch, width]`, as one tensor."""
    source = torch.Generator().manual_seed(rank.seed + rank.rank)
    return torch.randn(2, rank.settings.batch_size, rank.settings.width, generator=source)


def train(
    rank: Rank[Settings], model: nn.Module, reduce: Callable[[], object] = lambda: None
) -> None:
    """Train `model` on one batch, `reduce()` between backward and update; record its loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    features, target = samples(rank)
    for _ in _steps(rank):
        loss = mse_loss(model(features), target)
        loss.backward()
        reduce()
        optimizer.step()
        optimizer.zero_grad()
    rank.epoch(1, loss=loss.item(), num_samples=rank.settings.batch_size)


def _steps(rank: Rank[Settings]) -> Iterator[int]:
    """The steps; what each of them took beyond its computation is kept as well."""
    settings = rank.settings
    rank.count_samples(settings.batch_size * settings.num_steps)
    yield from rank.steps(settings.num_steps)
    settled = rank.outcome.step_seconds[NUM_SETTLING_STEPS:]
    rank.measure_seconds("waiting", [one - settings.computing_seconds for one in settled])


QUESTION = "How much must a step compute for its communication to hide, and what hides it?"


class Settings(StackSettings):
    """A stack of equal layers of a set duration, and a link."""

    width: Count = 1024
    num_layers: Count = 4
    batch_size: Count = 4
    num_steps: Settled = 8
    learning_rate: Factor = 0.1
    backward_milliseconds: int = 0  # of a layer; forward takes half as long
    link_bits_per_second: Count = 400_000_000

    @property
    def layer_seconds(self) -> float:
        """How long a layer's backward computes; its forward half as long."""
        return self.backward_milliseconds / 1000

    @closed_form
    def layer_bytes(self) -> int:
        """Bytes of a layer's weight, and of its gradient."""
        return FLOAT_BYTES * self.width**2

    @closed_form
    def computing_seconds(self) -> float:
        """How long a step computes."""
        return self.num_layers * (self.layer_seconds + self.layer_seconds / 2)

    def closed_forms(self) -> dict[str, Setting]:
        """Figures by name: the base class's, and seconds of a step's backward and all_reduce."""
        payload = ring_bytes(self.num_layers * self.layer_bytes, self.world_size)
        return {
            **super().closed_forms(),
            "backward_seconds": self.num_layers * self.layer_seconds,
            "reducing_seconds": float(payload / (self.link_bits_per_second / 8)),
        }


linked = partial(Declaration, passes=("timed",), nature="paced", only_on_cpu=True, own_network=True)
# A layer's gradient passes the link in 84 ms: backward is shorter than that, or longer.
OF = {ms: Settings(backward_milliseconds=ms) for ms in (0, 21, 42, 63, 126, 168)}
RUNS = {
    **{f"ddp_{ms}": linked("ddp", 2, OF[ms], full=ms in (63, 168)) for ms in OF},
    **{f"after_backward_{ms}": linked("after_backward", 2, OF[ms]) for ms in (42, 126)},
    **{f"fsdp_{ms}": linked("fsdp", 2, OF[ms]) for ms in (0, 126)},
    **{f"by_hand_{ms}": linked("fsdp_by_hand", 2, OF[ms]) for ms in (0, 126)},
}
TRIED_WITH = {"*": {"num_steps": 4, "width": 256}}

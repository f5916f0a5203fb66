"""What sharding saves and what it costs: one model under DDP, ZeRO's first stage, and FSDP.

Equal linear layers trained with Adam over 1, 2 and 4 ranks: memory by class, and payloads by
collective.

    python -m runners run sharding
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.api import Count, Declaration, Factor, RunSettings, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, layer_parameters
from proofbook.runners.training.networks import description, mlp
from proofbook.runners.training.rank import Rank, local, wait_until_idle
from proofbook.runners.training.split import own_part
from proofbook.runners.training.steps import random_samples, replica_of


def fsdp(rank: Rank[Settings], *, layers: bool = True, root: bool | None = None) -> None:
    """Build and train an MLP under FSDP: each layer is a unit, but the last is the root's.

    `layers` are freed after forward or not, and so is the `root`; None is what FSDP chooses, and
    then the root stays gathered.
    """
    _begin(rank, is_sharded=True)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with torch.device("meta"):
        model = mlp(rank.settings.widths)
    with rank.phase("wrap"):
        for module in list(model)[:-1:2]:  # the linear layers; the others have no parameters
            fully_shard(module, mesh=mesh, reshard_after_forward=layers)
        fully_shard(model, mesh=mesh, reshard_after_forward=root)
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    _train(rank, model)


def ddp(rank: Rank[Settings]) -> None:
    """Parameters, gradients and Adam's moments whole on every rank, and buckets besides."""
    _train(rank, _replica(rank))


def zero(rank: Rank[Settings]) -> None:
    """DDP, and each rank updates some whole parameters, then broadcasts them to the others."""
    replica, rate = _replica(rank), rank.settings.learning_rate
    adam = torch.optim.Adam
    _train(rank, replica, ZeroRedundancyOptimizer(replica.parameters(), adam, lr=rate, fused=True))


def _replica(rank: Rank[Settings]) -> DistributedDataParallel:
    _begin(rank)
    model = mlp(rank.settings.widths, device=rank.device)
    _initialise(rank, model)
    return replica_of(rank, model)


def _train(
    rank: Rank[Settings], model: nn.Module, update: torch.optim.Optimizer | None = None
) -> None:
    """A few steps of each rank on a batch of its own; what is held between steps has a phase."""
    settings = rank.settings
    update = update or torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    features, labels = random_samples(rank, settings.batch_size, rank.seed + 1 + rank.rank)
    # What moments a rank has are in the optimizer that ZeroRedundancyOptimizer keeps inside.
    rank.watch(model, getattr(update, "optim", update))
    for _ in rank.steps(settings.num_steps):
        loss = nn.functional.cross_entropy(model(features), labels)
        loss.backward()
        with rank.phase("optimizer"):  # ends before "held", while gradients are still there
            update.step()
        if rank.is_metered:
            wait_until_idle()  # gloo's own threads free the last buffers
        with rank.phase("held", computes=False):
            if rank.step_index == COMPARED_STEP:
                rank.measure("loss_at_third_step", loss.item(), unit="loss")
            del loss
        update.zero_grad()
        rank.count_samples(settings.batch_size)


def _begin(rank: Rank[Settings], *, is_sharded: bool = False) -> None:
    """Describe the model; a single rank joins a group of one, for the very same wrappers."""
    if not dist.is_initialized():
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    rank.describe(description(rank.settings.widths, rank.world_size, sharded=is_sharded))


@torch.no_grad()
def _initialise(rank: Rank[Settings], model: nn.Module) -> None:
    """The same values on every rank and under every strategy; a shard gets its rows of them."""
    source = torch.Generator().manual_seed(rank.seed)
    for parameter in model.parameters():
        bound = rank.settings.widths[0] ** -0.5
        whole = torch.empty(parameter.shape).uniform_(-bound, bound, generator=source)
        local(parameter).copy_(own_part(parameter, whole))


STRATEGIES = {
    # Everything is freed after forward, and gathered again for backward.
    "fsdp_freed": partial(fsdp, root=True),
    # Every layer stays gathered from forward to backward.
    "fsdp_kept": partial(fsdp, layers=False, root=False),
}
QUESTION = (
    "How much memory does each way of sharding save on a rank, and what does it communicate for it?"
)
COPIES_PER_PARAMETER = 4  # Adam keeps each parameter, its gradient and two moments
COMPARED_STEP = 2  # two updates have passed: were one of them wrong, the loss would tell


class Settings(RunSettings):
    """A stack of linear layers, and the bytes of it that a rank keeps."""

    widths: tuple[Count, ...] = (512,) * 9
    batch_size: Count = 4
    num_steps: Count = 9
    learning_rate: Factor = 0.001

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: bytes of parameters; at the peak, those shared and whole.

        At the peak ranks share some bytes, and each holds others whole. DDP: the four copies, and
        the buckets. FSDP: near the end of backward the four copies but for the gradients of three
        layers, still to come; whole are the root and its gradient, and four layers: the one
        computed, the next one gathered ahead, a gradient, and its copy to be scattered. FSDP
        without resharding peaks as backward begins to free layers.
        """
        layers = [FLOAT_BYTES * count for count in layer_parameters(self.widths)]
        model, layer, root = sum(layers), layers[0], layers[-1]
        tensors = [FLOAT_BYTES * n for a, b in pairwise(self.widths) for n in (a * b, b)]
        part = max(parts(tensors, self.world_size))
        at_peak = {
            "ddp": (0, 5 * model),
            "zero": (0, 3 * model + 2 * part),
            "fsdp_kept": (3 * model + layer, model + root + layer),
        }
        shared, whole = at_peak.get(self.strategy, (4 * model - 3 * layer, 2 * root + 4 * layer))
        return {
            "num_layers": len(layers),
            "copies_per_parameter": COPIES_PER_PARAMETER,
            "bytes_per_value": FLOAT_BYTES,
            "model_bytes": model,
            "layer_bytes": layer,  # the first one, which is no smaller than the others
            "root_bytes": root,  # the last layer, which is the root's own under FSDP
            "largest_part_bytes": part,  # of the rank that updates most of them under ZeRO-1
            "shared_bytes": shared,
            "whole_bytes": whole,
        }


def parts(sizes: Sequence[int], num_ranks: int) -> list[int]:
    """Sums by rank of `sizes`, which go, largest first, to the rank with least so far.

    So `ZeroRedundancyOptimizer` distributes whole parameters.
    """
    loads = [0] * num_ranks
    for size in sorted(sizes, reverse=True):
        loads[loads.index(min(loads))] += size
    return loads


def _run(strategy: str, world_size: int, **settings: Any) -> Declaration[Settings]:
    is_timed = world_size == 2 and strategy != "fsdp_freed" and not settings
    return Declaration(
        strategy,
        world_size,
        Settings(**settings),
        passes=("timed", "metered") if is_timed else ("metered",),
        can_share_device=strategy in ("ddp", "zero"),
        full=world_size == 1 and strategy in ("zero", "fsdp_kept"),
    )


RUNS = {
    **{
        f"{strategy}_{world_size}": _run(strategy, world_size)
        for strategy in ("ddp", "zero", "fsdp", "fsdp_kept")
        for world_size in (1, 2, 4)
    },
    "fsdp_freed_2": _run("fsdp_freed", 2),
    # The first layer is most of the model.
    "zero_uneven_2": _run("zero", 2, widths=(2048, 512, 512, 512)),
}
ON_CUDA = {"*": {"widths": [8192] * 9}, "zero_uneven_2": {"widths": [32768, 8192, 8192, 8192]}}

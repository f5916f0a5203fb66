"""One training loop under DDP, under DDP with ZeRO's first stage, and under FSDP."""

from __future__ import annotations

from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from runners.experiments.sharding import Settings
from runners.meters.gloo_threads import wait_until_idle
from runners.ranks.rank import Rank
from runners.training.networks import description, mlp

COMPARED_STEP = 2  # two updates have passed: were one of them wrong, the loss would tell


def fsdp(rank: Rank[Settings], *, layers: bool = True, root: bool | None = None) -> None:
    """Shards of every layer; the last layer is left to the root's group, as a head often is.

    Args:
        rank: this rank.
        layers: whether the other layers are freed after forward.
        root: the same for the root; None is what FSDP chooses, and then the root stays gathered.
    """
    _join_alone(rank)
    _describe(rank, sharded=True)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with torch.device("meta"):
        model = mlp(rank.settings.widths)
    with rank.phase("wrap"):
        for module in list(model)[:-1]:
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh, reshard_after_forward=layers)
        fully_shard(model, mesh=mesh, reshard_after_forward=root)
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    rate = rank.settings.learning_rate
    _train(rank, model, torch.optim.Adam(model.parameters(), lr=rate, fused=True))


def ddp(rank: Rank[Settings]) -> None:
    """Parameters, gradients and Adam's moments whole on every rank, and buckets besides."""
    replica = _replica(rank)
    rate = rank.settings.learning_rate
    _train(rank, replica, torch.optim.Adam(replica.parameters(), lr=rate, fused=True))


def zero(rank: Rank[Settings]) -> None:
    """DDP, and each rank updates some whole parameters, then broadcasts them to the others."""
    replica = _replica(rank)
    update = ZeroRedundancyOptimizer(
        replica.parameters(), torch.optim.Adam, lr=rank.settings.learning_rate, fused=True
    )
    _train(rank, replica, update)


def _train(rank: Rank[Settings], model: nn.Module, update: torch.optim.Optimizer) -> None:
    """A few steps of each rank on a batch of its own; what is held between steps has a phase."""
    settings = rank.settings
    with rank.phase("samples"):
        source = torch.Generator().manual_seed(rank.seed + 1 + rank.rank)
        shape = (settings.batch_size, settings.widths[0])
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.widths[-1], shape[:1], generator=source).to(rank.device)
        rank.inputs(features, labels)
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
                rank.measure("loss_at_third_step", loss.item())
            del loss
        update.zero_grad()
        rank.count_samples(settings.batch_size)


def _replica(rank: Rank[Settings]) -> DistributedDataParallel:
    _join_alone(rank)
    _describe(rank)
    model = mlp(rank.settings.widths, device=rank.device)
    _initialise(rank, model)
    with rank.phase("wrap"):
        return DistributedDataParallel(model)


def _join_alone(rank: Rank[Settings]) -> None:
    """A group of one, so that a single rank runs through the very same wrappers."""
    if not dist.is_initialized():
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def _describe(rank: Rank[Settings], *, sharded: bool = False) -> None:
    num_layers = rank.settings.num_layers
    everywhere = [range(rank.world_size)] * num_layers
    rank.describe(description(rank.settings.widths, everywhere, sharded=[sharded] * num_layers))


@torch.no_grad()
def _initialise(rank: Rank[Settings], model: nn.Module) -> None:
    """The same values on every rank and under every strategy; a shard gets its samples of them."""
    source = torch.Generator().manual_seed(rank.seed)
    for parameter in model.parameters():
        bound = rank.settings.widths[0] ** -0.5
        whole = torch.empty(parameter.shape).uniform_(-bound, bound, generator=source)
        if hasattr(parameter, "to_local"):
            parameter.to_local().copy_(whole.chunk(rank.world_size)[rank.rank])
        else:
            parameter.copy_(whole)


STRATEGIES = {
    "ddp": ddp,
    "zero": zero,
    "fsdp": fsdp,
    "fsdp_freed": partial(fsdp, root=True),  # everything is gathered again for backward
    "fsdp_kept": partial(fsdp, layers=False, root=False),  # gathered from forward to backward
}

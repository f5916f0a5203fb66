"""What sharding saves and what it costs: one model under DDP, ZeRO's first stage, and FSDP.

Equal linear layers trained with Adam over 1, 2 and 4 ranks: under DDP; under DDP with
`ZeroRedundancyOptimizer`; under FSDP as it comes, where the root's own layer stays gathered; under
FSDP that frees every layer after forward, and under FSDP that frees none. Memory by class, and
payloads by collective.

    python -m runners run sharding
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from runners.experiments._sharding_plans import BYTES_PER_VALUE, ON_CUDA, RUNS, SHARDED, settle
from runners.meters.gloo_threads import wait_until_idle
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Exchange, Work, perceptron_flops
from runners.ranks.rank import Rank
from runners.training.networks import description, perceptron

__all__ = ["CHOICES", "ON_CUDA", "QUESTION", "RUNS", "STRATEGIES", "forecast", "settle"]

QUESTION = "What does each way of sharding save on a rank, and what does it send for that?"
COMPARED_STEP = 2  # two updates have passed: were one of them wrong, the loss would tell


def _join_alone(rank: Rank) -> None:
    """A group of one, so that a single rank runs through the very same wrappers."""
    if not dist.is_initialized():
        backend = "nccl" if rank.device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)


def _describe(rank: Rank, *, sharded: bool = False) -> None:
    widths = rank.settings.widths
    num_layers = len(widths) - 1
    everywhere = [range(rank.world_size)] * num_layers
    rank.describe(description(widths, everywhere, sharded=[sharded] * num_layers))


@torch.no_grad()
def _initialise(rank: Rank, model: nn.Module) -> None:
    """The same values on every rank and under every strategy; a shard gets its rows of them."""
    source = torch.Generator().manual_seed(rank.seed)
    for parameter in model.parameters():
        bound = rank.settings.widths[0] ** -0.5
        whole = torch.empty(parameter.shape).uniform_(-bound, bound, generator=source)
        if hasattr(parameter, "to_local"):
            parameter.to_local().copy_(whole.chunk(rank.world_size)[rank.rank])
        else:
            parameter.copy_(whole)


def _let_go(rank: Rank) -> None:
    """Wait until gloo's own threads have given the last buffers back."""
    if rank.is_metered:
        wait_until_idle()


def _train(rank: Rank, model: nn.Module, update: torch.optim.Optimizer) -> None:
    """A few steps of each rank on a batch of its own; what is held between steps has a phase."""
    settings = rank.settings
    with rank.phase("rows"):
        source = torch.Generator().manual_seed(rank.seed + 1 + rank.rank)
        shape = (settings.batch_size, settings.widths[0])
        features = torch.randn(shape, generator=source).to(rank.device)
        labels = torch.randint(0, settings.widths[-1], shape[:1], generator=source).to(rank.device)
        rank.rows(features, labels)
    # What moments a rank has lie in the optimizer that ZeroRedundancyOptimizer keeps inside.
    rank.watch(model, getattr(update, "optim", update))
    for _ in rank.steps(settings.num_steps):
        with rank.phase("forward"):
            loss = nn.functional.cross_entropy(model(features), labels)
        with rank.phase("backward"):
            loss.backward()
        with rank.phase("optimizer"):
            update.step()
        _let_go(rank)
        with rank.phase("held", computes=False):
            if rank.step_index == COMPARED_STEP:
                rank.measure("loss_at_third_step", loss.item())
            del loss
        update.zero_grad()
        rank.count_samples(settings.batch_size)


def _replica(rank: Rank) -> DistributedDataParallel:
    _join_alone(rank)
    _describe(rank)
    with rank.phase("build"):
        model = perceptron(rank.settings.widths, device=rank.device)
        _initialise(rank, model)
    with rank.phase("wrap"):
        return DistributedDataParallel(model)


def ddp(rank: Rank) -> None:
    """Parameters, gradients and Adam's moments whole on every rank, and buckets besides."""
    replica = _replica(rank)
    rate = rank.settings.learning_rate
    _train(rank, replica, torch.optim.Adam(replica.parameters(), lr=rate, fused=True))


def zero(rank: Rank) -> None:
    """DDP, and each rank updates some whole parameters, then broadcasts them to the others."""
    replica = _replica(rank)
    update = ZeroRedundancyOptimizer(
        replica.parameters(), torch.optim.Adam, lr=rank.settings.learning_rate, fused=True
    )
    _train(rank, replica, update)


def _sharded(rank: Rank, *, layers: bool, root: bool | None) -> None:
    """Shards of every layer; the last layer is left to the root's group, as a head often is.

    Args:
        rank: this rank.
        layers: whether the other layers are freed after forward.
        root: the same for the root; None is what FSDP chooses.
    """
    _join_alone(rank)
    _describe(rank, sharded=True)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("build"), torch.device("meta"):
        model = perceptron(rank.settings.widths)
    with rank.phase("wrap"):
        for module in list(model)[:-1]:
            if isinstance(module, nn.Linear):
                fully_shard(module, mesh=mesh, reshard_after_forward=layers)
        fully_shard(model, mesh=mesh, reshard_after_forward=root)
        model.to_empty(device=rank.device)
        _initialise(rank, model)
    rate = rank.settings.learning_rate
    _train(rank, model, torch.optim.Adam(model.parameters(), lr=rate, fused=True))


def fsdp(rank: Rank) -> None:
    """FSDP as it comes: layers are freed after forward, the root's own parameters are not."""
    _sharded(rank, layers=True, root=None)


def fsdp_freed(rank: Rank) -> None:
    """FSDP that frees everything after forward, and gathers everything again for backward."""
    _sharded(rank, layers=True, root=True)


def fsdp_kept(rank: Rank) -> None:
    """FSDP that keeps everything gathered from forward to backward."""
    _sharded(rank, layers=False, root=False)


STRATEGIES: dict[str, Callable[[Rank], None]] = {
    "ddp": ddp,
    "zero": zero,
    "fsdp": fsdp,
    "fsdp_freed": fsdp_freed,
    "fsdp_kept": fsdp_kept,
}


def forecast(plan: RunPlan) -> Work | None:
    """The closed forms of one step of any rank."""
    widths = plan.settings["widths"]
    assert isinstance(widths, list)
    numbers = [int(width) for width in widths]
    counted = {name: one for name, one in plan.settings.items() if isinstance(one, int)}
    n, model = plan.world_size, counted["model_bytes"]
    part = counted["largest_part_bytes"] if plan.strategy == "zero" else model
    sharded = plan.strategy in SHARDED
    return Work(
        peak_bytes=counted["shared_bytes"] // n + counted["whole_bytes"],
        flops=perceptron_flops(numbers, counted["batch_size"]),
        # Weights are read forward and backward and gradients written; then buckets or copies.
        moved_bytes=(9.0 if sharded else 5.0) * model,
        num_operations=counted["num_layers"] * (60 if sharded else 15),
        optimizer_parameters=part // BYTES_PER_VALUE // (n if sharded else 1),
        optimizer="fused_adam",
        exchanges=_foretell_exchanges(plan) if n > 1 else (),
        num_busy_ranks=n,
    )


def _foretell_exchanges(plan: RunPlan) -> tuple[Exchange, ...]:
    """What one rank hands over in a step, by collective."""
    counted = {name: one for name, one in plan.settings.items() if isinstance(one, int)}
    model, root, num_layers = (counted[f] for f in ("model_bytes", "root_bytes", "num_layers"))
    n = plan.world_size
    if plan.strategy in SHARDED:
        again = {"fsdp": model - root, "fsdp_freed": model, "fsdp_kept": 0}[plan.strategy]
        num_gathers = num_layers + {"fsdp": num_layers - 1, "fsdp_freed": num_layers}.get(
            plan.strategy, 0
        )
        return (
            Exchange("all_gather", model + again, num_gathers, n),
            Exchange("reduce_scatter", model, num_layers, n),
        )
    reduced = (Exchange("all_reduce", model, 2, n),)
    if plan.strategy == "ddp":
        return reduced
    return (*reduced, Exchange("broadcast", model, 2 * num_layers, n))


CHOICES = (
    Choice(
        "least_memory",
        "Over four ranks, which of these keeps the peak of a rank lowest?",
        ("ddp_4", "zero_4", "fsdp_4", "fsdp_kept_4"),
        by="peak_bytes",
    ),
    Choice(
        "fastest_step",
        "Over two ranks, which of these has the shortest step?",
        ("ddp_2", "zero_2", "fsdp_2", "fsdp_kept_2"),
    ),
)

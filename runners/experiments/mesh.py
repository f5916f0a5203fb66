"""One transformer over a mesh of ranks: replicas, shards, tensor parallelism and stages at once.

A rank has its stage of the model, its part of each projection, and its shard of both. The same
program runs in float64 beside one process, update by update, and in float32 under the meters.

    python -m runners run hybrid mesh
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.utils import clip_grad_norm_

from proofbook.runners.api import Count, Declaration, Factor, Seconds, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, TransformerSettings
from proofbook.runners.training.composed import Training, mesh_of
from proofbook.runners.training.rank import NUM_METERED_STEPS, AxisMeter, Rank, local
from proofbook.runners.training.split import own_part
from proofbook.runners.training.steps import of_all_ranks


def composed(rank: Rank[Settings]) -> None:
    """Train over all axes of the mesh: beside one process, or counted axis by axis."""
    mesh = mesh_of(rank, rank.settings.axes)
    training = Training(rank, mesh, torch.float32 if rank.is_metered else torch.float64)
    optimizer = _optimizer(training)
    rank.watch(training.module, optimizer)
    if not rank.is_metered:
        _compare(rank, training, optimizer)
        return
    axes = AxisMeter(mesh) if mesh else None
    for _ in rank.steps(rank.settings.num_steps):
        with axes if axes and rank.step_index == NUM_METERED_STEPS - 1 else nullcontext():
            training.update(optimizer)
    for name, count in axes.measured().items() if axes else ():
        rank.measure(name, count, unit="bytes" if name.endswith("_bytes") else "calls")


def _optimizer(training: Training) -> torch.optim.Optimizer:
    rate = training.settings.learning_rate
    return torch.optim.SGD(training.groups, lr=rate, momentum=MOMENTUM)


def _compare(rank: Rank[Settings], training: Training, optimizer: torch.optim.Optimizer) -> None:
    """Train over the mesh, then in this process alone, and record by how much they differ."""
    steps, alone = range(rank.settings.num_steps), Training(rank, None, torch.float64)
    own, norms = zip(*[training.update(optimizer) for _ in steps], strict=True)
    true_optimizer = _optimizer(alone)
    true_losses, true_norms = zip(*[alone.update(true_optimizer) for _ in steps], strict=True)
    by_step = zip(*of_all_ranks(rank, own), strict=True)
    losses = [fmean(loss for loss in of if loss is not None) for of in by_step]
    true = {name: parameter.detach() for name, parameter in alone.module.named_parameters()}
    apart = [
        (local(parameter.detach()) - own_part(parameter, true[name])).abs().max().item()
        for name, parameter in training.module.named_parameters()
    ]
    largest = max(parameter.abs().max().item() for parameter in true.values())
    rank.measure("losses", losses, unit="loss")
    rank.measure("norms", list(norms))
    rank.measure("stage_norm", training.stage_norm)  # of the own stage alone, in the last step
    rank.measure("loss_difference", _furthest(losses, true_losses))
    rank.measure("norm_difference", _furthest(norms, true_norms))
    rank.measure("weight_difference", max(apart) / largest)


def _furthest(mine: Sequence[float], true: Sequence[float]) -> float:
    """The largest difference, as a share of the true value."""
    return max(abs(a - b) / b for a, b in zip(mine, true, strict=True))


def clipped_at_once(rank: Rank[Settings]) -> None:
    """Clip the gradient by one call for parameters of several meshes, as one process would."""
    training = Training(rank, mesh_of(rank, rank.settings.axes), torch.float32)
    training.backward()
    with rank.phase("clip"):
        clip_grad_norm_(training.module.parameters(), rank.settings.most_norm)


def paced(rank: Rank[Settings]) -> None:
    """Let a microbatch take each stage a set time; record its idle share."""
    training, busy = Training(rank, mesh_of(rank, rank.settings.axes), torch.float32), [0.0]
    stage: Any = training.stage
    forward_seconds = rank.settings.forward_seconds
    stage.forward_one_chunk = _lasting(stage.forward_one_chunk, forward_seconds, busy)
    stage.backward_one_chunk = _lasting(stage.backward_one_chunk, 2 * forward_seconds, busy)
    for _ in rank.steps(rank.settings.num_steps):
        dist.barrier()
        start, busy[:] = time.perf_counter(), [0.0]
        training.backward()
        dist.barrier()
        idle = 1 - sum(busy) / (time.perf_counter() - start)
        training.module.zero_grad()
    rank.measure("idle_share", round(idle, 5), unit="share", repeats="clock")


def _lasting(act: Callable[..., Any], seconds: float, busy: list[float]) -> Callable[..., Any]:
    """The same action, which sleeps until so many seconds have passed and adds them to `busy`."""

    def action(*given: Any, **named: Any) -> object:
        start = time.perf_counter()
        result = act(*given, **named)
        time.sleep(max(0.0, start + seconds - time.perf_counter()))
        busy.append(time.perf_counter() - start)
        return result

    return action


MOMENTUM = 0.9


class Settings(TransformerSettings):
    """A small transformer, its batch, ranks along each axis, and what a rank holds and sends."""

    num_stages: Count = 1
    num_replicas: Count = 1
    num_shards: Count = 1
    num_tensor_ranks: Count = 1
    vocabulary: Count = 64
    context: Count = 32
    width: Count = 64
    num_heads: Count = 4
    num_layers: Count = 4
    hidden: Count = 256
    batch_size: Count = 16
    num_microbatches: Count = 4  # of a rank's samples, in a pipeline
    num_steps: Count = 3
    learning_rate: Factor = 0.1
    most_norm: Factor = 0.5  # of the gradient; above it, the gradient is scaled
    forward_seconds: Seconds = 0.0  # of a microbatch in a stage, in a paced run
    equal_parts = (
        ("width", "num_heads"),
        ("num_layers", "num_stages"),
        ("batch_size", "num_data_parts"),
        *((name, "num_tensor_ranks") for name in ("num_heads", "hidden")),
    )

    def check(self) -> None:
        """The axes have as many ranks as the run, and a rank's samples make equal microbatches."""
        if (ranks := prod(self.axes.values())) != self.world_size:
            raise ValueError(f"a mesh with these axes has {ranks} ranks, not {self.world_size}")
        if self.num_stages > 1 and self.num_samples_per_rank % self.num_microbatches:
            raise ValueError(f"{self.num_samples_per_rank} samples of a rank make no equal parts")

    @property
    def axes(self) -> dict[str, int]:
        """Ranks along each axis of the mesh, the outermost first."""
        sizes = (self.num_stages, self.num_replicas, self.num_shards, self.num_tensor_ranks)
        return dict(zip(("pipeline", "replicate", "shard", "tensor"), sizes, strict=True))

    @property
    def num_data_parts(self) -> int:
        """Parts in which the samples of a batch are dealt out."""
        return self.num_replicas * self.num_shards

    @property
    def num_samples_per_rank(self) -> int:
        """Sequences of the batch that a rank sees."""
        return self.batch_size // self.num_data_parts

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of a rank of the first stage: parameters, and payloads of a step in bytes.

        Without a pipeline, FSDP gathers a block for forward and again for backward. Tensor
        parallelism sums two activations of a block in forward, and two gradients in backward.
        """
        shape, num_layers = self.shape, self.num_layers // self.num_stages
        is_whole = self.num_stages == 1
        blocks = num_layers * shape.block_parameters_on_a_rank(self.num_tensor_ranks)
        ends = shape.embedding_parameters() + is_whole * shape.head_parameters()
        activation = FLOAT_BYTES * self.num_samples_per_rank * self.context * self.width
        return {
            "num_rank_parameters": (ends + blocks) // self.num_shards,
            "stage_bytes": FLOAT_BYTES * (ends + blocks),
            "gathered_bytes": FLOAT_BYTES * (ends + (1 + is_whole) * blocks),
            "activation_bytes": activation,
            "summed_bytes": 4 * num_layers * activation,
        }


def over(label: str, strategy: str = "composed", **settings: Any) -> Declaration[Settings]:
    """A run over all ranks of the axes that its settings name."""
    chosen = Settings(**settings)
    ranks = prod(chosen.axes.values())
    return Declaration(strategy, ranks, chosen, label=label, only_on_cpu=True)


def cube(strategy: str = "composed", **settings: int | float) -> Declaration[Settings]:
    """The same, with three axes of two ranks, unless the settings name more."""
    axes = {"num_stages": 2, "num_shards": 2, "num_tensor_ranks": 2}
    return over("fsdp_tensor_pipeline", strategy, **{**axes, **settings})


HSDP: dict[str, Any] = {"num_replicas": 2, "num_shards": 2}
FSDP_TENSOR: dict[str, Any] = {"num_shards": 2, "num_tensor_ranks": 2}
HSDP_TENSOR = HSDP | FSDP_TENSOR
slowed = partial(replace, passes=("timed",), nature="paced")
refused = partial(replace, passes=("timed",), expected="failed")
LIGHTER = {
    "single": replace(over("single"), passes=("metered",)),
    "fsdp_pipeline": over("fsdp_pipeline", num_stages=2, num_shards=2),
    "cube": cube(),
    "clipped_at_once": refused(over("hsdp_tensor", "clipped_at_once", **HSDP_TENSOR)),
}
HEAVIER = {
    "hsdp": over("hsdp", **HSDP),
    "fsdp_tensor": over("fsdp_tensor", **FSDP_TENSOR),
    "hsdp_tensor": over("hsdp_tensor", **HSDP_TENSOR),
    "clipped_fsdp_tensor": refused(over("fsdp_tensor", "clipped_at_once", **FSDP_TENSOR)),
    "doubled_shards": cube(num_shards=4),
    "doubled_tensor": cube(num_tensor_ranks=4),
    "doubled_stages": cube(num_stages=4),
    "paced": slowed(cube("paced", forward_seconds=0.2, num_steps=2)),
    "paced_stages": slowed(cube("paced", num_stages=4, forward_seconds=0.3, num_steps=2)),
}
shallow = partial(over, num_layers=2, num_steps=5)


class _Hybrid:
    QUESTION = "What does each axis of the mesh carry when a model is split in two ways at once?"
    RUNS = {
        "single": shallow("single"),
        "ddp_pipeline": shallow("ddp_pipeline", num_stages=2, num_replicas=2),
        "fsdp_tensor": shallow("fsdp_tensor", **FSDP_TENSOR),
        "hsdp": shallow("hsdp", **HSDP),
        "fsdp": replace(shallow("fsdp", num_shards=4), full=True),
    }


class _Mesh:
    QUESTION = "What does each axis of a mesh carry when one model is split in three ways at once?"
    RUNS = LIGHTER | {name: replace(one, full=True) for name, one in HEAVIER.items()}
    TRIED_WITH = {"paced": {"forward_seconds": 0.02}, "paced_stages": {"forward_seconds": 0.02}}


EXPERIMENTS = {"hybrid": _Hybrid, "mesh": _Mesh}

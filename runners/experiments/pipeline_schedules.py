"""Schedules of a pipeline: how long its ranks are idle, and how many activations they keep.

A stack of equal layers over four ranks, trained on the same batch under each schedule of
`torch.distributed.pipelining`. In the paced runs, which measure idle shares, each action of a stage
lasts as long as it is told, so that four stages are busy at once on any number of cores. The real
runs last as long as they take; the memory meter sees what they keep.

    python -m runners run pipeline_schedules
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import pipelining

from proofbook.runners.api import Count, Declaration, Factor, RunSettings, Seconds, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES
from proofbook.runners.training.networks import ResidualLayer, description, flat_gradient
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.steps import sgd_steps


def scheduled(rank: Rank[Settings], kind: type) -> None:
    """Build and train stages by a schedule; compare with the whole model; record idle share."""
    settings, pipeline = rank.settings, Pipeline(rank, kind)
    optimizer = torch.optim.SGD(pipeline.parts.parameters(), lr=settings.learning_rate)
    rank.watch(pipeline.parts, optimizer)
    for _ in rank.steps(settings.num_steps):
        dist.barrier()
        start = time.perf_counter()
        is_paced = rank.step_index >= NUM_UNPACED_STEPS and settings.forward_seconds > 0
        pipeline.step(is_paced=is_paced)
        dist.barrier()
        whole_seconds = time.perf_counter() - start
        optimizer.step()
        optimizer.zero_grad()
    diary = pipeline.diary  # of the last step
    rank.measure("num_in_flight", diary.most_held)
    if is_paced:
        idle, sending = (
            (1 - diary.busy_seconds / whole_seconds),
            diary.sending_seconds / whole_seconds,
        )
        for name, share in (("idle_share", idle), ("sending_share", sending)):
            rank.measure(name, round(share, 5), unit="share", repeats="clock")
    _compare(rank, pipeline, num_updates=rank.step_index + 1)


STRATEGIES = {
    # All forwards, then all backwards.
    "gpipe": partial(scheduled, kind=pipelining.ScheduleGPipe),
    # As soon as a microbatch's backward can run it does: one forward, one backward.
    "one_f_one_b": partial(scheduled, kind=pipelining.Schedule1F1B),
    # 1F1B with several smaller stages a rank.
    "interleaved": partial(scheduled, kind=pipelining.ScheduleInterleaved1F1B),
    # Interleaved, and the gradients of parameters wait until a rank would be idle.
    "zero_bubble": partial(scheduled, kind=pipelining.ScheduleInterleavedZeroBubble),
    # Zero bubble with the stages in the shape of a V: the first rank holds the last one too.
    "zero_bubble_v": partial(scheduled, kind=pipelining.ScheduleZBVZeroBubble),
}


class Pipeline:
    """This rank's stages, under one schedule."""

    def __init__(self, rank: Rank[Settings], kind: type) -> None:
        self.rank, settings = rank, rank.settings
        last = settings.num_stages - 1
        self.own = list(range(rank.rank, last + 1, rank.world_size))
        if kind is pipelining.ScheduleZBVZeroBubble:  # down the ranks and up again
            self.own = [rank.rank, last - rank.rank]
        size, (model, samples, targets) = settings.num_layers_per_stage, _undivided(rank)
        self.parts = nn.ModuleList(model[i * size : (i + 1) * size] for i in self.own)
        stages = [
            NotedStage(part, index, self) for index, part in zip(self.own, self.parts, strict=True)
        ]
        held = stages[0] if len(stages) == 1 else stages
        self.schedule = kind(held, settings.num_microbatches, loss_fn=_mean_loss)
        self.samples = [samples] if 0 in self.own else []
        self.targets = [targets] if last in self.own else []
        rank.inputs(*self.samples, *self.targets)

    def step(self, *, is_paced: bool = False) -> float | None:
        """Run a batch, noted in a new diary; its mean loss (a float), None off the last stage."""
        settings = self.rank.settings
        slow = settings.slow_ratio if self.rank.rank == self.rank.world_size - 1 else 1.0
        forward = is_paced * settings.forward_seconds / settings.num_chunks * slow
        self.diary = Diary(forward, forward * settings.backward_ratio / 2)
        losses: list[Tensor] = []
        given = {"target": self.targets[0], "losses": losses} if self.targets else {}
        self.schedule.step(*self.samples, return_outputs=False, **given)
        return torch.stack(losses).mean().item() if losses else None


@dataclass
class Diary:
    """What one rank does in a step, over all of its stages."""

    # How long each action on one microbatch lasts; 0 is as long as it takes.
    forward_seconds: float
    half_backward_seconds: float  # for gradients of the input, or for those of the parameters
    busy_seconds: float = 0.0  # in forward and backward
    # Gaps between actions, shorter than half a forward: no rank was waited for, a tensor was sent.
    sending_seconds: float = 0.0
    # Microbatches of each stage whose forward is done and whose backward is not.
    held: set[tuple[int, int]] = field(default_factory=set)
    most_held: int = 0  # at once, all stages of the rank together
    _last: float = field(default_factory=time.perf_counter)  # when an action ended

    @contextmanager
    def action(self, seconds: float) -> Iterator[None]:
        """Pad the block to `seconds` by sleep; add it to busy time, a short gap to sending."""
        start = time.perf_counter()
        gap = start - self._last
        if gap < self.forward_seconds / 2:
            self.sending_seconds += gap
        yield
        rest = start + seconds - time.perf_counter()
        if rest > 0:
            time.sleep(rest)
        self._last = time.perf_counter()
        self.busy_seconds += self._last - start


class NotedStage(pipelining.PipelineStage):
    """A stage as torch has it, which notes when it is busy and how many microbatches it holds."""

    def __init__(self, part: nn.Module, index: int, pipeline: Pipeline) -> None:
        rank = pipeline.rank
        super().__init__(part, index, rank.settings.num_stages, rank.device)
        self._pipeline = pipeline

    @contextmanager
    def _acting(self, phase: str, seconds: float) -> Iterator[None]:
        with self._pipeline.rank.phase(phase), self._pipeline.diary.action(seconds):
            yield

    def forward_one_chunk(self, fwd_chunk_id: int, *given: Any, **named: Any) -> object:
        """Torch's output of a microbatch's forward, paced and noted as held until backward."""
        diary = self._pipeline.diary
        with self._acting("forward", diary.forward_seconds):
            output: object = super().forward_one_chunk(fwd_chunk_id, *given, **named)
        diary.held.add((self.stage_index, fwd_chunk_id))
        diary.most_held = max(diary.most_held, len(diary.held))
        return output

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: object = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> None:
        """Run and pace a microbatch's backward; it is freed unless the parameters' half is left.

        Of the first stage, torch then leaves the whole for later.
        """
        halves = 2 if full_backward else 0 if self.is_first else 1
        with self._acting("backward", halves * self._pipeline.diary.half_backward_seconds):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        if full_backward:
            self._pipeline.diary.held.remove((self.stage_index, bwd_chunk_id))

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """What was left: the microbatch is freed only now."""
        halves = 2 if self.is_first else 1
        with self._acting("backward", halves * self._pipeline.diary.half_backward_seconds):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
        self._pipeline.diary.held.remove((self.stage_index, bwd_chunk_id))


def single(rank: Rank[Settings]) -> None:
    """Build and train the undivided stack on whole batches on one device; record the last loss."""
    model, samples, targets = _undivided(rank)
    rank.describe(description((rank.settings.width,) * (len(model) + 1), [[0]] * len(model)))
    rank.inputs(samples, targets)

    def step() -> float:
        with rank.phase("backward"):
            return _undivided_step(model, samples, targets)

    rank.measure("loss", sgd_steps(rank, model, step), unit="loss")


def _compare(rank: Rank[Settings], pipeline: Pipeline, num_updates: int) -> None:
    """Loss and gradients of one more step, beside those of the undivided model, trained alike."""
    loss = pipeline.step()
    model, samples, targets = _undivided(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    for _ in range(num_updates):
        _undivided_step(model, samples, targets)
        optimizer.step()
        optimizer.zero_grad()
    undivided_loss = _undivided_step(model, samples, targets)
    size = rank.settings.num_layers_per_stage
    whole = torch.cat([flat_gradient(model[i * size : (i + 1) * size]) for i in pipeline.own])
    furthest = (flat_gradient(pipeline.parts) - whole).abs().max().item()
    rank.measure("gradient_distance", furthest / whole.abs().max().item())
    if loss is not None:
        rank.measure("loss", loss, unit="loss")
        rank.measure("undivided_loss", undivided_loss, unit="loss")


def _undivided(rank: Rank[Settings]) -> tuple[nn.Sequential, Tensor, Tensor]:
    """The whole stack, samples and targets, each (batch_size, width): the same on every rank.

    With tanh in the place of ReLU, since gradients are compared here. A ReLU whose input is zero
    up to rounding is on in one order of summation and off in another.
    """
    settings = rank.settings
    torch.manual_seed(rank.seed)
    layers = (
        ResidualLayer(settings.width, rank.device, torch.tanh) for _ in range(settings.num_layers)
    )
    model = nn.Sequential(*layers)
    shape = (settings.batch_size, settings.width)
    samples, targets = (
        torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(rank.device)
        for seed in (rank.seed, rank.seed + 1)
    )
    return model, samples, targets


def _undivided_step(model: nn.Module, samples: Tensor, targets: Tensor) -> float:
    """Forward and backward of the whole model on the whole batch; the loss."""
    loss = _mean_loss(model(samples), targets)
    loss.backward()
    return loss.item()


def _mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of one microbatch.

    A copy: on the CPU the scalar that `mse_loss` gives lies in memory as large as its input.
    """
    return nn.functional.mse_loss(outputs, targets).clone()


QUESTION = "How long are the ranks of a pipeline idle, and what does each schedule keep in memory?"
NUM_TENSORS_KEPT = 2  # a residual layer keeps what its tanh gave and the sum that it passes on
NUM_UNPACED_STEPS = 3  # buffers and connections come up; a trace leaves these steps out too
NUM_CHUNKS = {"interleaved": 2, "zero_bubble": 2, "zero_bubble_v": 2}


class Settings(RunSettings):
    """A stack of equal layers, cut into stages, and how long each of their actions lasts."""

    width: Count = 32
    num_layers: Count = 16
    batch_size: Count = 2048
    num_microbatches: Count = 8
    forward_seconds: Seconds = 0.0  # of one rank and microbatch; 0: as long as it takes
    backward_ratio: Seconds = 2.0  # how much longer a backward lasts than a forward
    slow_ratio: Seconds = 1.0  # how much longer everything lasts on the last rank
    num_steps: Count = NUM_UNPACED_STEPS + 1
    learning_rate: Factor = 1.0
    equal_parts = (("batch_size", "num_microbatches"), ("num_layers", "num_stages"))

    @property
    def num_chunks(self) -> int:
        """Stages of each rank."""
        return NUM_CHUNKS.get(self.strategy, 1)

    @property
    def num_stages(self) -> int:
        """Stages of all ranks."""
        return self.world_size * self.num_chunks

    @property
    def num_layers_per_stage(self) -> int:
        """Of each stage; every rank has as many as it has chunks."""
        return self.num_layers // self.num_stages

    def closed_forms(self) -> dict[str, Setting]:
        """Bytes a microbatch passes, keeps, of all buffers; a rank's work in units, none idle."""
        activation = FLOAT_BYTES * self.width * (self.batch_size // self.num_microbatches)
        kept = NUM_TENSORS_KEPT * activation * self.num_layers_per_stage
        layer = FLOAT_BYTES * (self.width * self.width + self.width)
        # A unit is a forward and a backward, or a forward alone where the gradients of parameters
        # fill the time: a rank's work in units of what it waits for each rank before it.
        defers = self.strategy.startswith("zero_bubble")
        of_a_microbatch = 1 + self.backward_ratio if defers else 1
        return {
            "num_chunks": self.num_chunks,
            "activation_bytes": activation,
            "kept_bytes": kept,
            "batch_kept_bytes": kept * self.num_microbatches,
            # Torch holds a buffer for every activation and gradient of a step that comes in.
            "buffer_bytes": 2 * activation * self.num_microbatches * self.num_chunks,
            # Under 1F1B: gradients on their way, and those of the parameters of one layer.
            "passing_bytes": 3 * activation + layer,
            "num_units": self.num_chunks * self.num_microbatches * of_a_microbatch,
            # The work of the slow rank, in units of the others' forward and backward.
            "num_slow_units": self.num_microbatches * self.slow_ratio,
        }


def _real(strategy: str, world_size: int = 4, **settings: Any) -> Declaration[Settings]:
    chosen = Settings(**settings)
    return Declaration(strategy, world_size, chosen, can_share_device=False, passes=("metered",))


def _paced(strategy: str, world_size: int = 4, **settings: Any) -> Declaration[Settings]:
    """Actions long enough that sending tensors hardly counts, in every stage of a rank."""
    forward = 0.027 * NUM_CHUNKS.get(strategy, 1)
    declaration = _real(strategy, world_size, **{"forward_seconds": forward, **settings})
    return replace(declaration, passes=("timed",), nature="paced")


SCHEDULES = {"gpipe": "gpipe", "1f1b": "one_f_one_b"}
SCHEDULES |= {name: name for name in ("interleaved", "zero_bubble")}
HEAVIER = {
    **{f"paced_gpipe_{m}": _paced("gpipe", num_microbatches=m) for m in (2, 4, 16)},
    **{f"paced_{n}_16": _paced(SCHEDULES[n], num_microbatches=16) for n in ("1f1b", "interleaved")},
    # Seconds of both stages of a rank: long ones, and as few as a rank with one stage takes.
    "paced_zero_bubble_long": _paced("zero_bubble", forward_seconds=0.12),
    "paced_zero_bubble_v": _paced("zero_bubble_v", forward_seconds=0.12),
    **{
        f"paced_{name}_short": _paced(name, forward_seconds=0.027)
        for name in ("interleaved", "zero_bubble")
    },
    **{f"paced_{name}_two_ranks": _paced(SCHEDULES[name], 2) for name in ("gpipe", "1f1b")},
    **{
        f"paced_{name}_equal": _paced(SCHEDULES[name], forward_seconds=0.04, backward_ratio=1.0)
        for name in ("gpipe", "1f1b")
    },
    "paced_gpipe_slow": _paced("gpipe", slow_ratio=2.0),
    **{  # with a timeline, for a picture
        f"drawn_{name}": replace(_paced(SCHEDULES[name]), passes=("metered",), has_timeline=True)
        for name in ("gpipe", "1f1b", "zero_bubble")
    },
    **{f"real_{n}": _real(n) for n in ("interleaved", "zero_bubble", "zero_bubble_v")},
    **{f"real_{n}_16": _real(SCHEDULES[n], num_microbatches=16) for n in ("gpipe", "1f1b")},
    **{f"real_{n}_two_ranks": _real(SCHEDULES[n], 2) for n in ("gpipe", "1f1b")},
}
RUNS = {
    "paced_one_batch": _paced("gpipe", num_microbatches=1),
    **{f"paced_{name}": _paced(strategy) for name, strategy in SCHEDULES.items()},
    "real_single": _real("single", 1),
    **{f"real_{name}": _real(SCHEDULES[name]) for name in ("gpipe", "1f1b")},
    **{name: replace(declaration, full=True) for name, declaration in HEAVIER.items()},
}
ON_CUDA = {"*": {"width": 1024, "batch_size": 16384}}

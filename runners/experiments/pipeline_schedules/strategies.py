"""A stack of layers in stages over ranks, under the schedules of `torch.distributed.pipelining`."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from runners.experiments.pipeline_schedules import NUM_UNPACED_STEPS, Settings
from runners.experiments.pipeline_schedules.shown import compare
from runners.experiments.pipeline_schedules.stack import (
    drawn,
    layers_of,
    mean_loss,
    undivided_step,
)
from runners.experiments.pipeline_schedules.stages import (
    Attempt,
    Diary,
    DiaryStage,
    Pace,
    measure,
    was_disturbed,
)
from runners.ranks.rank import Rank
from runners.training.networks import description

NUM_MORE_ATTEMPTS = 2  # of a paced step that something else on the machine disturbed


def gpipe(rank: Rank[Settings]) -> None:
    """All forwards, then all backwards."""
    _train(rank, ScheduleGPipe, _in_a_row)


def one_f_one_b(rank: Rank[Settings]) -> None:
    """As soon as a microbatch's backward can run it does: one forward, one backward."""
    _train(rank, Schedule1F1B, _in_a_row)


def interleaved(rank: Rank[Settings]) -> None:
    """1F1B with several smaller stages a rank."""
    _train(rank, ScheduleInterleaved1F1B, _in_a_row)


def zero_bubble(rank: Rank[Settings]) -> None:
    """Interleaved, and the gradients of parameters wait until a rank would be idle."""
    _train(rank, ScheduleInterleavedZeroBubble, _in_a_row)


def zero_bubble_v(rank: Rank[Settings]) -> None:
    """Zero bubble with the stages in the shape of a V: the first rank holds the last one too."""
    _train(rank, ScheduleZBVZeroBubble, _in_a_v)


class Pipeline:
    """This rank's stages, under one schedule."""

    def __init__(self, rank: Rank[Settings], kind: type, place: Callable[..., list[int]]) -> None:
        settings = rank.settings
        self.num_stages = rank.world_size * settings.num_chunks
        self.own = place(rank.rank, rank.world_size, settings.num_chunks)
        size = settings.num_layers_per_stage
        layers = layers_of(rank)
        parts = [nn.Sequential(*layers[i * size : (i + 1) * size]) for i in self.own]
        self.module = nn.ModuleList(parts)
        self.diary = Diary()
        stages = [
            DiaryStage(part, index, self.num_stages, rank, self.diary)
            for part, index in zip(parts, self.own, strict=True)
        ]
        single_stage = kind in (ScheduleGPipe, Schedule1F1B)
        held = stages[0] if single_stage else stages
        self.schedule = kind(held, settings.num_microbatches, loss_fn=mean_loss)
        self.samples = [drawn(rank, 0)] if 0 in self.own else []
        self.targets = drawn(rank, 1) if self.is_last else None
        rank.inputs(*self.samples, *([self.targets] if self.targets is not None else []))

    @property
    def is_last(self) -> bool:
        """Whether this rank holds the last stage, which computes the loss."""
        return self.num_stages - 1 in self.own

    def step(self, pace: Pace) -> float | None:
        """One batch, forward and backward; its mean loss where this rank knows it."""
        self.diary.begin_step(pace)
        losses: list[Tensor] = []
        given = {"target": self.targets, "losses": losses} if self.is_last else {}
        self.schedule.step(*self.samples, return_outputs=False, **given)
        return torch.stack(losses).mean().item() if losses else None


def _train(rank: Rank[Settings], kind: type, place: Callable[..., list[int]]) -> None:
    """Train under a schedule, note each step's idle share, and compare with the whole model."""
    settings = rank.settings
    pipeline = Pipeline(rank, kind, place)
    optimizer = torch.optim.SGD(pipeline.module.parameters(), lr=settings.learning_rate)
    rank.watch(pipeline.module, optimizer)
    pace = _pace(rank)
    attempts: list[Attempt] = []
    num_steps = 0

    def step(pace: Pace) -> None:
        nonlocal num_steps
        dist.barrier()
        start = time.perf_counter()
        pipeline.step(pace)
        dist.barrier()
        if pace.forward_seconds:
            attempts.append(pipeline.diary.attempt(time.perf_counter() - start))
        optimizer.step()
        optimizer.zero_grad()
        num_steps += 1

    for _ in rank.steps(settings.num_steps):
        step(pace if num_steps >= NUM_UNPACED_STEPS else Pace())
    for _ in range(NUM_MORE_ATTEMPTS):
        if not was_disturbed(rank, attempts):
            break
        step(pace)
    rank.measure("num_in_flight", pipeline.diary.most_held)
    rank.measure("num_actions", pipeline.diary.num_actions)
    measure(rank, attempts)
    loss = pipeline.step(Pace())
    compare(rank, pipeline.own, pipeline.module, num_steps, loss)


def _pace(rank: Rank[Settings]) -> Pace:
    """How long the actions of this rank's stages last."""
    settings = rank.settings
    slow = settings.slow_ratio if rank.rank == rank.world_size - 1 else 1.0
    forward = settings.forward_seconds / settings.num_chunks * slow
    # The gradients of a layer's input and of its parameters cost about as much as each other.
    return Pace(forward, *[forward * settings.backward_ratio / 2] * 2)


def single(rank: Rank[Settings]) -> None:
    """The whole batch through all layers on one device."""
    model = nn.Sequential(*layers_of(rank))
    rank.describe(description((rank.settings.width,) * (len(model) + 1), [[0]] * len(model)))
    samples, targets = drawn(rank, 0), drawn(rank, 1)
    rank.inputs(samples, targets)
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    rank.watch(model, optimizer)
    loss = 0.0
    for _ in rank.steps(rank.settings.num_steps):
        with rank.phase("backward"):
            loss = undivided_step(model, samples, targets)
        optimizer.step()
        optimizer.zero_grad()
    rank.measure("loss", loss)


def _in_a_row(rank: int, num_ranks: int, num_chunks: int) -> list[int]:
    """Which stages a rank holds: every `num_ranks`-th."""
    return [rank + chunk * num_ranks for chunk in range(num_chunks)]


def _in_a_v(rank: int, num_ranks: int, num_chunks: int) -> list[int]:
    """Which stages a rank holds where they run down the ranks and up again."""
    return [rank, num_ranks * num_chunks - 1 - rank]


STRATEGIES = {
    "single": single,
    "gpipe": gpipe,
    "one_f_one_b": one_f_one_b,
    "interleaved": interleaved,
    "zero_bubble": zero_bubble,
    "zero_bubble_v": zero_bubble_v,
}

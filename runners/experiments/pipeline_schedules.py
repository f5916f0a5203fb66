"""Schedules of a pipeline: how long its ranks stand idle, and how many activations they keep.

A stack of equal layers over four ranks, trained on the same batch under every schedule: the whole
batch at once, GPipe, 1F1B, interleaved 1F1B and zero bubble. Each stage counts what it holds; the
undivided model says whether all of them learn the same.

    python -m runners run pipeline_schedules
"""

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

from runners.experiments._pipeline_plans import NUM_UNPACED_STEPS, RUNS, settle
from runners.experiments._pipeline_stages import (
    Attempt,
    Diary,
    DiaryStage,
    Pace,
    measure,
    was_disturbed,
)
from runners.plans.experiment import RunPlan
from runners.plans.work import Choice, Work
from runners.ranks.rank import Rank
from runners.training.networks import ResidualLayer, description

__all__ = ["CHOICES", "ON_CUDA", "QUESTION", "RUNS", "STRATEGIES", "forecast", "settle"]

QUESTION = "How long do the ranks of a pipeline stand idle, and what does each schedule keep?"
NUM_MORE_ATTEMPTS = 2  # of a paced step that something else on the machine disturbed
ON_CUDA = {"*": {"width": 1024, "batch_size": 16384}}


class SmoothResidualLayer(ResidualLayer):
    """A residual layer with tanh in the place of ReLU. In and out: (rows, width).

    Gradients are compared here. A ReLU whose input is zero up to rounding is on in one order of
    summation and off in another, so on some processors its gradient differs by far more.
    """

    def forward(self, rows: Tensor) -> Tensor:
        """Add what the layer computes to what came in."""
        return rows + torch.tanh(self.linear(rows))


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of one microbatch.

    A copy: on the CPU the scalar that `mse_loss` gives lies in memory as large as its input.
    """
    return nn.functional.mse_loss(outputs, targets).clone()


def _layers(rank: Rank) -> list[nn.Module]:
    """The whole stack, with the same values on every rank."""
    torch.manual_seed(rank.seed)
    settings = rank.settings
    return [SmoothResidualLayer(settings.width, rank.device) for _ in range(settings.num_layers)]


def _drawn(rank: Rank, which: int) -> Tensor:
    """The batch's rows (0) or targets (1): (batch_size, width), the same on every rank."""
    source = torch.Generator().manual_seed(rank.seed + which)
    shape = (rank.settings.batch_size, rank.settings.width)
    return torch.randn(shape, generator=source).to(rank.device)


def _undivided_step(model: nn.Module, rows: Tensor, targets: Tensor) -> float:
    loss = _loss(model(rows), targets)
    loss.backward()
    return loss.item()


def _undivided(rank: Rank, num_steps: int) -> tuple[nn.Sequential, float]:
    """The whole model after as many steps, with the gradients of one more; and that one's loss."""
    model = nn.Sequential(*_layers(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    rows, targets = _drawn(rank, 0), _drawn(rank, 1)
    for _ in range(num_steps):
        _undivided_step(model, rows, targets)
        optimizer.step()
        optimizer.zero_grad()
    return model, _undivided_step(model, rows, targets)


def single(rank: Rank) -> None:
    """The whole batch through all layers on one device."""
    with rank.phase("build"):
        model = nn.Sequential(*_layers(rank))
    rank.describe(description((rank.settings.width,) * (len(model) + 1), [[0]] * len(model)))
    rows, targets = _drawn(rank, 0), _drawn(rank, 1)
    rank.rows(rows, targets)
    optimizer = torch.optim.SGD(model.parameters(), lr=rank.settings.learning_rate)
    rank.watch(model, optimizer)
    loss = 0.0
    for _ in rank.steps(rank.settings.num_steps):
        with rank.phase("backward"):
            loss = _undivided_step(model, rows, targets)
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
    rank.measure("loss", loss)


def _in_a_row(rank: int, num_ranks: int, num_chunks: int) -> list[int]:
    """Which stages a rank holds: every `num_ranks`-th."""
    return [rank + chunk * num_ranks for chunk in range(num_chunks)]


def _in_a_v(rank: int, num_ranks: int, num_chunks: int) -> list[int]:
    """Which stages a rank holds where they run down the ranks and up again."""
    return [rank, num_ranks * num_chunks - 1 - rank]


class Pipeline:
    """This rank's stages, under one schedule."""

    def __init__(self, rank: Rank, kind: type, place: Callable[..., list[int]]) -> None:
        settings = rank.settings
        self.num_stages = rank.world_size * settings.num_chunks
        self.own = place(rank.rank, rank.world_size, settings.num_chunks)
        size = settings.num_layers_per_stage
        with rank.phase("build"):
            layers = _layers(rank)
            parts = [nn.Sequential(*layers[i * size : (i + 1) * size]) for i in self.own]
        self.module = nn.ModuleList(parts)
        self.diary = Diary()
        stages = [
            DiaryStage(part, index, self.num_stages, rank, self.diary)
            for part, index in zip(parts, self.own, strict=True)
        ]
        single_stage = kind in (ScheduleGPipe, Schedule1F1B)
        held = stages[0] if single_stage else stages
        self.schedule = kind(held, settings.num_microbatches, loss_fn=_loss)
        self.rows = [_drawn(rank, 0)] if 0 in self.own else []
        self.targets = _drawn(rank, 1) if self.is_last else None
        rank.rows(*self.rows, *([self.targets] if self.targets is not None else []))

    @property
    def is_last(self) -> bool:
        """Whether this rank holds the last stage, which computes the loss."""
        return self.num_stages - 1 in self.own

    def step(self, pace: Pace) -> float | None:
        """One batch, forward and backward; its mean loss where this rank knows it."""
        self.diary.begin_step(pace)
        losses: list[Tensor] = []
        given = {"target": self.targets, "losses": losses} if self.is_last else {}
        self.schedule.step(*self.rows, return_outputs=False, **given)
        return torch.stack(losses).mean().item() if losses else None


def _train(rank: Rank, kind: type, place: Callable[..., list[int]]) -> None:
    """Train under a schedule, note each step's idle share, and compare with the whole model."""
    settings = rank.settings
    pipeline = Pipeline(rank, kind, place)
    optimizer = torch.optim.SGD(pipeline.module.parameters(), lr=settings.learning_rate)
    rank.watch(pipeline.module, optimizer)
    slow = settings.slow_ratio if rank.rank == rank.world_size - 1 else 1.0
    forward = settings.forward_seconds / settings.num_chunks * slow
    # The gradients of a layer's input and of its parameters cost about as much as each other.
    pace = Pace(forward, *[forward * settings.backward_ratio / 2] * 2)
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
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        num_steps += 1

    for index in rank.steps(settings.num_steps):
        step(pace if index >= NUM_UNPACED_STEPS else Pace())
    for _ in range(NUM_MORE_ATTEMPTS):
        if not was_disturbed(rank, attempts):
            break
        step(pace)
    rank.measure("num_in_flight", pipeline.diary.most_held)
    rank.measure("num_actions", pipeline.diary.num_actions)
    measure(rank, attempts)
    _compare(rank, pipeline, num_steps)


def _compare(rank: Rank, pipeline: Pipeline, num_steps: int) -> None:
    """The loss and the gradients of one step more, beside those of the undivided model."""
    loss = pipeline.step(Pace())
    model, undivided_loss = _undivided(rank, num_steps)
    size = rank.settings.num_layers_per_stage
    furthest = largest = 0.0
    for index, part in zip(pipeline.own, pipeline.module, strict=True):
        whole = nn.Sequential(*list(model)[index * size : (index + 1) * size])
        for ours, theirs in zip(part.parameters(), whole.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            furthest = max(furthest, (ours.grad - theirs.grad).abs().max().item())
            largest = max(largest, theirs.grad.abs().max().item())
    rank.measure("gradient_distance", furthest / largest)
    if loss is not None:
        rank.measure("loss", loss)
        rank.measure("undivided_loss", undivided_loss)


def gpipe(rank: Rank) -> None:
    """All forwards, then all backwards."""
    _train(rank, ScheduleGPipe, _in_a_row)


def one_f_one_b(rank: Rank) -> None:
    """As soon as a microbatch's backward can run it does: one forward, one backward."""
    _train(rank, Schedule1F1B, _in_a_row)


def interleaved(rank: Rank) -> None:
    """1F1B with several smaller stages a rank."""
    _train(rank, ScheduleInterleaved1F1B, _in_a_row)


def zero_bubble(rank: Rank) -> None:
    """Interleaved, and the gradients of parameters wait until a rank would stand idle."""
    _train(rank, ScheduleInterleavedZeroBubble, _in_a_row)


def zero_bubble_v(rank: Rank) -> None:
    """Zero bubble with the stages in the shape of a V: the first rank holds the last one too."""
    _train(rank, ScheduleZBVZeroBubble, _in_a_v)


CHOICES = (
    Choice(
        "same_work",
        "Which schedule ends a step of the same work first?",
        ("paced_gpipe", "paced_1f1b", "paced_interleaved_short", "paced_zero_bubble_short"),
    ),
    Choice(
        "activations",
        "Under which schedule does the busiest rank need the least memory?",
        ("real_gpipe", "real_1f1b"),
        by="peak_bytes",
    ),
)


def forecast(plan: RunPlan) -> Work | None:
    """A paced step by the schedule's formula; a real one by what the busiest rank keeps."""
    settings = plan.settings
    parts, chunks = int(str(settings["num_microbatches"])), int(str(settings["num_chunks"]))
    if plan.nature != "paced":
        return Work(peak_bytes=_foretell_peak(plan, parts))
    forward = float(str(settings["forward_seconds"])) / chunks
    both = forward * (1 + float(str(settings["backward_ratio"])))
    # A rank that waits at the ends can use that time for the gradients of its parameters.
    waits = forward if plan.strategy.startswith("zero_bubble") else both
    slow = float(str(settings["slow_ratio"]))
    seconds = parts * chunks * both * slow + (plan.world_size - 1) * waits
    return Work(num_operations=40 * parts * chunks, extra_seconds=seconds)


def _foretell_peak(plan: RunPlan, parts: int) -> int | None:
    """Of the rank that needs most; None where what was sent is kept until the step ends."""
    settings = plan.settings
    tensor, kept, layer = (
        int(str(settings[name])) for name in ("activation_bytes", "kept_bytes", "layer_bytes")
    )
    rows = parts * tensor
    parameters = int(str(settings["num_layers_per_stage"])) * layer
    if plan.strategy == "single":
        return parts * kept + tensor * parts + 2 * rows + parameters + layer
    if plan.strategy == "gpipe":
        # The last rank holds targets too, and the gradient of the loss.
        return parts * kept + rows + 2 * tensor + rows + parameters + layer
    if plan.strategy == "one_f_one_b":
        held = min(parts, plan.world_size)
        return held * kept + rows + 2 * tensor + layer + rows + 2 * parameters
    return None


STRATEGIES = {
    "single": single,
    "gpipe": gpipe,
    "one_f_one_b": one_f_one_b,
    "interleaved": interleaved,
    "zero_bubble": zero_bubble,
    "zero_bubble_v": zero_bubble_v,
}

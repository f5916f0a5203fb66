"""A stage of a pipeline that keeps a diary: when it was busy, and how many microbatches it holds.

In: the layers of a stage and how long each of its actions shall last. Out: a `PipelineStage` for
any schedule of `torch.distributed.pipelining`, whose forward and backward are those of torch; the
diary notes when each began and ended. Where a pace is set, an action lasts as long as it says, so
that four stages are busy at once on any number of cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

from runners.experiments.pipeline_schedules import Settings
from runners.ranks.rank import Rank

# A machine that needs longer to send a tensor does something else besides: try again.
LONGEST_HANDOVER_SECONDS = 0.002


@dataclass(frozen=True)
class Pace:
    """How long each action on one microbatch lasts, in seconds; 0 is as long as it takes."""

    forward_seconds: float = 0.0
    input_seconds: float = 0.0  # the gradient of what came in
    weight_seconds: float = 0.0  # the gradients of the parameters


@dataclass(frozen=True)
class Attempt:
    """How one rank spent one paced step, from one barrier to the next.

    Attributes:
        idle_share: of the step, spent in no forward and no backward.
        sending_share: the part of it that the machine took to send tensors.
        sending_seconds: the same for one action, at the mean.
    """

    idle_share: float
    sending_share: float
    sending_seconds: float


@dataclass
class Diary:
    """What one rank did in a step, over all of its stages.

    Attributes:
        pace: how long actions last in this step.
        busy_seconds: spent in forward and backward.
        sending_seconds: gaps between two actions that are shorter than half a forward: no rank
            was waited for, the machine sent a tensor.
        held: microbatches of each stage whose forward is done and whose backward is not.
        most_held: the most that there were at once, all stages of the rank together.
        num_actions: forwards and backwards.
    """

    pace: Pace = field(default_factory=Pace)
    busy_seconds: float = 0.0
    sending_seconds: float = 0.0
    held: set[tuple[int, int]] = field(default_factory=set)
    most_held: int = 0
    num_actions: int = 0
    _last: float = 0.0  # when the last action ended

    def begin_step(self, pace: Pace) -> None:
        """Forget the step before."""
        assert not self.held, f"microbatches left without a backward: {self.held}"
        self.pace, self.busy_seconds, self.sending_seconds = pace, 0.0, 0.0
        self.most_held = self.num_actions = 0
        self._last = time.perf_counter()

    @contextmanager
    def action(self, seconds: float) -> Iterator[None]:
        """Note one action, which lasts at least so long."""
        start = time.perf_counter()
        gap = start - self._last
        if gap < self.pace.forward_seconds / 2:
            self.sending_seconds += gap
        yield
        rest = start + seconds - time.perf_counter()
        if rest > 0:
            time.sleep(rest)
        self._last = time.perf_counter()
        self.busy_seconds += self._last - start
        self.num_actions += 1

    def attempt(self, whole_seconds: float) -> Attempt:
        """What the step just ended came to, which took so long as a whole."""
        return Attempt(
            1 - self.busy_seconds / whole_seconds,
            self.sending_seconds / whole_seconds,
            self.sending_seconds / self.num_actions,
        )

    def hold(self, stage: int, microbatch: int) -> None:
        """A forward is done: its activations wait for the backward."""
        self.held.add((stage, microbatch))
        self.most_held = max(self.most_held, len(self.held))


class DiaryStage(PipelineStage):
    """A stage of torch's pipelining that notes what it does."""

    def __init__(
        self,
        layers: nn.Module,
        index: int,
        num_stages: int,
        rank: Rank[Settings],
        diary: Diary,
        group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        super().__init__(layers, index, num_stages, rank.device, group=group)
        self.proofbook_rank = rank
        self.diary = diary

    @contextmanager
    def _acting(self, phase: str, seconds: float) -> Iterator[None]:
        with self.proofbook_rank.phase(phase), self.diary.action(seconds):
            yield

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple[object, ...],
        kwargs: dict[str, object] | None = None,
        save_forward_output: bool = True,
    ) -> object:
        """As torch does it, noted."""
        with self._acting("forward", self.diary.pace.forward_seconds):
            output: object = super().forward_one_chunk(
                fwd_chunk_id, args, kwargs, save_forward_output
            )
        self.diary.hold(self.stage_index, fwd_chunk_id)
        return output

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: object = None,
        full_backward: bool = True,
        last_backward: bool = False,
    ) -> None:
        """As torch does it, noted; a zero-bubble schedule leaves the parameters' part for later."""
        pace = self.diary.pace
        seconds = pace.input_seconds + (pace.weight_seconds if full_backward else 0)
        if self.is_first and not full_backward:
            seconds = 0.0  # torch leaves the first stage's whole backward for later
        with self._acting("backward", seconds):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        if full_backward:
            self.diary.held.remove((self.stage_index, bwd_chunk_id))

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """As torch does it, noted: the microbatch is freed only now."""
        pace = self.diary.pace
        seconds = pace.weight_seconds + (pace.input_seconds if self.is_first else 0)
        with self._acting("backward", seconds):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
        self.diary.held.remove((self.stage_index, bwd_chunk_id))


def was_disturbed(rank: Rank[Settings], attempts: list[Attempt]) -> bool:
    """Whether some rank waited for the machine itself in every paced step; ranks agree on it."""
    least = min((one.sending_seconds for one in attempts), default=0.0)
    longest = torch.tensor(least, device=rank.device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return longest.item() > LONGEST_HANDOVER_SECONDS


def measure(rank: Rank[Settings], attempts: list[Attempt]) -> None:
    """What else the machine does only adds to a step: the least disturbed one tells most."""
    if not attempts:
        return
    best = min(attempts, key=lambda one: one.idle_share)
    rank.measure("idle_share", round(best.idle_share, 5))
    rank.measure("sending_share", round(best.sending_share, 5))
    rank.measure("idle_shares", [round(one.idle_share, 5) for one in attempts])

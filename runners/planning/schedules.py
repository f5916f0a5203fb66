"""The order in which a rank of a pipeline computes: torch's own for interleaved 1F1B.

In: a question, the rank, and how many microbatches are simulated. Out: its turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B

from runners.planning.question import Question

FORWARD, BACKWARD = "forward", "backward"
_KINDS = {"FORWARD": FORWARD, "FULL_BACKWARD": BACKWARD}


class Turn(NamedTuple):
    """What a rank computes next: `forward` or `backward`, of one of its stages and a microbatch."""

    kind: str
    chunk: int
    microbatch: int


def turns(question: Question, rank: int, num: int) -> Iterator[Turn]:
    """The order of so many microbatches on a rank of the pipeline."""
    strategy = question.strategy
    if strategy.chunks > 1:
        yield from _interleaved(question, rank, num)
        return
    ahead = 1
    if strategy.schedule == "gpipe":
        ahead = num
    elif strategy.schedule == "1f1b":
        ahead = min(num, strategy.pipeline - rank)
    for index in range(num):
        yield Turn(FORWARD, 0, index)
        if index >= ahead - 1:
            yield Turn(BACKWARD, 0, index - ahead + 1)
    for index in range(num - ahead + 1, num):
        yield Turn(BACKWARD, 0, index)


def _interleaved(question: Question, rank: int, num: int) -> Iterator[Turn]:
    """As torch's schedule lists it, which reads nothing of its stages but these numbers."""
    strategy = question.strategy
    schedule: Any = ScheduleInterleaved1F1B
    read = SimpleNamespace(
        pp_group_size=strategy.pipeline,
        n_local_stages=strategy.chunks,
        microbatches_per_round=min(num, question.microbatches_of_round),
        _n_microbatches=num,
    )
    own = strategy.stages_of(rank)
    for action in schedule._calculate_single_rank_operations(read, rank):
        if action is not None:
            kind = _KINDS[action.computation_type.name]
            yield Turn(kind, own.index(action.stage_index), action.microbatch_index)

"""The order in which a rank of a pipeline computes: torch's own for schedules with several stages.

In: a question, the rank, and how many microbatches are simulated. Out: its turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B, ScheduleZBVZeroBubble

from runners.planning.question import Question

FORWARD, BACKWARD = "forward", "backward"
INPUT, WEIGHT = "input", "weight"  # the parts of a backward pass that is split
_KINDS = {
    "FORWARD": FORWARD,
    "FULL_BACKWARD": BACKWARD,
    "BACKWARD_INPUT": INPUT,
    "BACKWARD_WEIGHT": WEIGHT,
}


class Turn(NamedTuple):
    """What a rank computes next.

    Attributes:
        kind: forward, backward, or a part of backward: gradients of the input, or of the weights.
        chunk: which of the rank's stages.
        microbatch: its number.
    """

    kind: str
    chunk: int
    microbatch: int


def turns(question: Question, rank: int, num: int) -> Iterator[Turn]:
    """The order of so many microbatches on a rank of the pipeline."""
    strategy = question.strategy
    if strategy.chunks > 1:
        yield from _of_torch(question, rank, num)
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


def _of_torch(question: Question, rank: int, num: int) -> Iterator[Turn]:
    """As torch's schedules list it, which read nothing of their stages but these numbers."""
    strategy = question.strategy
    schedule: Any = ScheduleZBVZeroBubble
    numbers = {"num_stages": strategy.num_stages}
    if strategy.schedule == "interleaved":
        schedule = ScheduleInterleaved1F1B
        of_round = min(num, question.microbatches_of_round)
        numbers = {"n_local_stages": strategy.chunks, "microbatches_per_round": of_round}
    read = SimpleNamespace(pp_group_size=strategy.pipeline, _n_microbatches=num, **numbers)
    own = strategy.stages_of(rank)
    for action in schedule._calculate_single_rank_operations(read, rank):
        if action is not None:
            kind = _KINDS[action.computation_type.name]
            yield Turn(kind, own.index(action.stage_index), action.microbatch_index)

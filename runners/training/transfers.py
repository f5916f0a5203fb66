"""The α–β model of a transfer, t = α + β·bytes, and the times that it is fitted to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch.distributed as dist

from runners.ranks.rank import Rank


class AlphaBeta(NamedTuple):
    """What a transfer costs to start, and then by the byte; seconds, and seconds a byte."""

    alpha: float
    beta: float

    def seconds(self, num_bytes: float) -> float:
        """What the model says a transfer takes."""
        return self.alpha + self.beta * num_bytes


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> AlphaBeta:
    """The α and β of least squares of the *relative* errors, so that each size weighs alike.

    Args:
        sizes: bytes of each transfer; at least two of them differ.
        seconds: what each took, above zero.
    """
    beta, alpha = np.polyfit(sizes, seconds, 1, w=[1 / t for t in seconds])
    return AlphaBeta(float(alpha), float(beta))


@contextmanager
def sent_in_steps(rank: Rank, num_steps: int) -> Iterator[list[float]]:
    """Measure what passes this rank's own link in so many steps, if it has one: bytes of a step.

    Yields:
        A list, to which the bytes are added in the end.
    """
    sent_bytes: list[float] = []
    before = rank.link_count()
    yield sent_bytes
    after = rank.link_count()
    if before is not None and after is not None:
        sent_bytes.append((after - before).sent_payload_bytes / num_steps)
        rank.measure("sent_bytes", sent_bytes[0])


def seconds_alone(rank: Rank, call: Callable[[], object]) -> float:
    """Seconds of one collective that nothing else runs beside, from when all ranks are ready."""
    dist.barrier()
    rank.settle()
    start = time.perf_counter()
    call()
    rank.settle()
    return time.perf_counter() - start

"""Objects that ranks send to each other, where each rank is simulated by itself.

In: calls of `torch.distributed` that pass objects from one rank to another, as stages of a pipeline
do with the shapes that they expect. Out: the same objects, which the simulations of one run share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch.distributed as dist

# What ranks have sent: by source, destination, and how many went before.
Sent = dict[tuple[int, int, int], Any]


class NotSentError(BaseException):
    """A rank waits for an object that nobody has sent; no program may take it for its failure."""


@contextmanager
def shared(rank: int, sent: Sent) -> Iterator[None]:
    """Let a rank send objects, and receive those that others have sent.

    Args:
        rank: which.
        sent: of all ranks; this one adds to it.
    """
    counts: Counter[tuple[int, int]] = Counter()

    def key(source: int, destination: int) -> tuple[int, int, int]:
        counts[source, destination] += 1
        return source, destination, counts[source, destination]

    def send(object_list: list[Any], dst: int, *_: Any, **__: Any) -> None:
        sent[key(rank, dst)] = list(object_list)

    def receive(object_list: list[Any], src: int, *_: Any, **__: Any) -> int:
        if (wanted := key(src, rank)) not in sent:
            raise NotSentError(f"rank {rank} waits for an object of rank {src}")
        object_list[:] = sent[wanted]
        return src

    with ExitStack() as stack:
        for module in (dist, dist.distributed_c10d):
            stack.enter_context(patch.object(module, "send_object_list", send))
            stack.enter_context(patch.object(module, "recv_object_list", receive))
        yield

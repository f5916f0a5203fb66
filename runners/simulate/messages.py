"""Objects that ranks send each other, where each rank is simulated by itself.

In: calls of `torch.distributed` that pass objects. Out: the same objects, from a mailbox that the
simulations of one run share. A rank that waits for an object which nobody has sent yet is
`BlockedError`; it is simulated again once the others have come further. What every rank gathers
from every rank is taken to be equal to its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from runners.simulate.log import Key, Sent

EVERY = -1


class BlockedError(BaseException):
    """A rank waits for an object; no program may take it for a failure of its own."""


class Mailbox:
    """What has been sent so far in this run, as one rank uses it.

    Its methods are named after the functions of `torch.distributed` for which they stand; what
    those take besides, such as a device, changes nothing here.

    Attributes:
        sent: of all ranks; this one adds to it.
    """

    def __init__(self, rank: int, sent: Sent) -> None:
        self.rank, self.sent = rank, sent
        self._counts: Counter[tuple[int, int]] = Counter()

    def stand_ins(self) -> dict[str, Callable[..., Any]]:
        """Each of its methods that stands for a function, by its name."""
        return {
            "send_object_list": self.send_object_list,
            "recv_object_list": self.recv_object_list,
            "broadcast_object_list": self.broadcast_object_list,
            "all_gather_object": self.all_gather_object,
        }

    def _key(self, source: int, destination: int) -> Key:
        number = self._counts[source, destination]
        self._counts[source, destination] += 1
        return source, destination, number

    def _taken(self, source: int, destination: int) -> Any:
        key = self._key(source, destination)
        if key not in self.sent:
            raise BlockedError(f"rank {self.rank} waits for an object of rank {source}")
        return self.sent[key]

    def send_object_list(self, object_list: list[Any], dst: int | None = None, **how: Any) -> None:
        """As torch names it."""
        destination = _global(dst, how.get("group_dst"), how.get("group"))
        self.sent[self._key(self.rank, destination)] = list(object_list)

    def recv_object_list(self, object_list: list[Any], src: int | None = None, **how: Any) -> int:
        """As torch names it."""
        source = _global(src, how.get("group_src"), how.get("group"))
        object_list[:] = self._taken(source, self.rank)
        return source

    def broadcast_object_list(
        self, object_list: list[Any], src: int | None = None, **how: Any
    ) -> None:
        """As torch names it."""
        source = _global(src, how.get("group_src"), how.get("group"))
        if source == self.rank:
            self.sent[self._key(source, EVERY)] = list(object_list)
        else:
            object_list[:] = self._taken(source, EVERY)

    def all_gather_object(self, object_list: list[Any], obj: Any, group: Any = None) -> None:
        """As torch names it."""
        object_list[:] = [obj] * dist.get_world_size(group)


class HoldingWork:
    """A transfer under way: as gloo's, it holds its tensor for as long as somebody holds it."""

    def __init__(self, work: dist.Work, tensor: torch.Tensor) -> None:
        self._work, self._tensor = work, tensor

    def __getattr__(self, name: str) -> Any:
        """Everything else is the work's own."""
        return getattr(self._work, name)


def holding(own: Callable[..., list[dist.Work]]) -> Callable[..., list[HoldingWork]]:
    """A function of pipelining that starts transfers, whose works hold what they transfer."""

    def started(ops: list[dist.P2POp], desc: str | None = None) -> list[HoldingWork]:
        works = own(ops, desc)
        return [HoldingWork(work, one.tensor) for work, one in zip(works, ops, strict=True)]

    return started


def _global(rank: int | None, group_rank: int | None, group: Any) -> int:
    """A rank as all ranks number it."""
    if group_rank is not None:
        return dist.get_global_rank(group or dist.distributed_c10d._get_default_group(), group_rank)
    return rank or 0

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
_OBJECTS = ("_object", "_object_list")
Rank = int | None


class BlockedError(BaseException):
    """A rank waits for an object; no program may take it for a failure of its own."""


class Mailbox:
    """What has been sent so far in this run, as one rank uses it.

    Its public methods stand for the functions of `torch.distributed` that have their names and
    arguments; a device, or whether to batch, changes nothing here.

    Attributes:
        sent: of all ranks; this one adds to it.
    """

    def __init__(self, rank: int, sent: Sent) -> None:
        self.rank, self.sent = rank, sent
        self._counts: Counter[tuple[int, int]] = Counter()

    def stand_ins(self) -> dict[str, Callable[..., Any]]:
        """Each of its methods that stands for a function, by its name."""
        return {name: getattr(self, name) for name in vars(Mailbox) if name.endswith(_OBJECTS)}

    def _key(self, source: int, destination: int) -> Key:
        number = self._counts[source, destination]
        self._counts[source, destination] += 1
        return source, destination, number

    def _taken(self, source: int, destination: int) -> Any:
        key = self._key(source, destination)
        if key not in self.sent:
            raise BlockedError(f"rank {self.rank} waits for an object of rank {source}")
        return self.sent[key]

    def send_object_list(
        self, object_list: list[Any], dst: Rank = None, group: Any = None, *_: Any, **how: Any
    ) -> None:
        """As torch names it."""
        destination = _global(dst, how.get("group_dst"), group)
        self.sent[self._key(self.rank, destination)] = list(object_list)

    def recv_object_list(
        self, object_list: list[Any], src: Rank = None, group: Any = None, *_: Any, **how: Any
    ) -> int:
        """As torch names it."""
        source = _global(src, how.get("group_src"), group)
        object_list[:] = self._taken(source, self.rank)
        return source

    def broadcast_object_list(
        self, object_list: list[Any], src: Rank = None, group: Any = None, *_: Any, **how: Any
    ) -> None:
        """As torch names it."""
        source = _global(src, how.get("group_src"), group)
        if source == self.rank:
            self.sent[self._key(source, EVERY)] = list(object_list)
        else:
            object_list[:] = self._taken(source, EVERY)

    def scatter_object_list(
        self,
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: Rank = None,
        group: Any = None,
        group_src: Rank = None,
    ) -> None:
        """As torch names it."""
        source = _global(src, group_src, group)
        if source == self.rank:
            ranks = dist.get_process_group_ranks(group)
            for rank, given in zip(ranks, scatter_object_input_list or (), strict=True):
                self.sent[self._key(source, rank)] = given
                if rank == source:
                    scatter_object_output_list[0] = given
        else:
            scatter_object_output_list[0] = self._taken(source, self.rank)

    def gather_object(
        self,
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: Rank = None,
        group: Any = None,
        group_dst: Rank = None,
    ) -> None:
        """As torch names it."""
        if self.rank == _global(dst, group_dst, group) and object_gather_list is not None:
            self.all_gather_object(object_gather_list, obj, group)

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


def _global(rank: Rank, group_rank: Rank, group: Any) -> int:
    """A rank as all ranks number it."""
    if group_rank is not None:
        return dist.get_global_rank(group or dist.distributed_c10d._get_default_group(), group_rank)
    return rank or 0

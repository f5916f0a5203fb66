"""The meter of a plan: the simulation's, with a log that CUDA's allocator can replay.

In: the operations of one rank. Out: memory by class, collectives by axis, FLOPs, and the log of
allocations and frees. Gradients and activations that tensor-parallel ranks sum stay what they are;
what FSDP and DDP communicate counts as their buckets.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from runners.meters.collectives import tensors_in
from runners.meters.memory import local
from runners.simulate.allocation_replay import Allocate, Event, Free
from runners.simulate.meter import SimulationMeter, _group_of

_GATHERING = "all_gather_copy_in"  # FSDP allocates what it gathers on a stream of its own
GATHER_STREAM, REDUCE_STREAM = 1, 2


_FOLLOW = inspect.unwrap(SimulationMeter.__torch_dispatch__)


class PlanMeter(SimulationMeter):
    """Follows one rank of a plan."""

    def __init__(self, meshes: list[Any]) -> None:
        super().__init__(meshes)
        self._is_activation = False
        self._axes: dict[str, str] = {}  # by a group's name
        self._streams: dict[int, int] = {}  # of storages that another stream than 0 allocated

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note which stream an accelerator would allocate results on."""
        result = _FOLLOW(self, func, types, args, kwargs)
        if func.namespace == "fsdp" and _GATHERING in func.__name__:
            for tensor in tensors_in(result):
                key = self._keys.get(local(tensor).untyped_storage()._cdata)
                if key is not None:
                    self._streams[key] = GATHER_STREAM
        return result

    def _axis(self, group: dist.ProcessGroup | None) -> str:
        if group is None:
            return super()._axis(group)
        name = group.group_name
        if name not in self._axes:
            self._axes[name] = super()._axis(group)
        return self._axes[name]

    def _see_collective(self, name: str, args: Any) -> None:
        self._is_activation = self._axis(_group_of(args)) in ("tensor", "pipeline")
        super()._see_collective(name, args)
        self._is_activation = False

    def _see(self, tensor: torch.Tensor, kind: str | None = None) -> torch.UntypedStorage:
        return super()._see(tensor, None if self._is_activation else kind)

    def events(self) -> Iterator[Event]:
        """Allocations and frees in their order, with streams."""
        held: dict[int, int] = {}
        for _, key, change in self._log:
            if key in self._on_other_device or not change:
                continue
            size = held.get(key, 0) + change
            if held.get(key):
                yield Free(key)
            if size:
                yield Allocate(key, size, self._streams.get(key, 0))
            held[key] = size


# Torch wraps this method so that compilers leave it alone, which takes longer than it does.
PlanMeter.__torch_dispatch__ = inspect.unwrap(  # type: ignore[method-assign]
    PlanMeter.__torch_dispatch__
)

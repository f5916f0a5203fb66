"""The meter of a plan: the simulation's, with a log that CUDA's allocator can replay.

In: the operations of one rank. Out: memory by class, collectives by axis, FLOPs, and the log of
allocations and frees. Gradients and activations that tensor-parallel ranks sum stay what they are;
what FSDP and DDP communicate counts as their buckets.
"""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor

from runners.meters.collectives import tensors_in
from runners.meters.memory import local
from runners.simulate.allocation_replay import Allocate, Event, Free, Pass, Use
from runners.simulate.meter import SimulationMeter, _group_of, formula_of

_GATHERING = "all_gather_copy_in"  # FSDP allocates what it gathers on a stream of its own
GATHER_STREAM, TENSOR_STREAM = 1, 2
_RARE = ("c10d", "_c10d_functional", "fsdp")  # what the simulation's own meter looks at

_DEVICE = torch.ops.prim.device.default
_FOLLOW = inspect.unwrap(SimulationMeter.__torch_dispatch__)


def _device_of(tensor: torch.Tensor) -> torch.device:
    """As `tensor.device`, which of a fake tensor is an operation of its own."""
    if isinstance(tensor, FakeTensor) and not tensor.fake_mode.in_kernel_invocation:
        return tensor.fake_device
    return tensor.device


class PlanMeter(SimulationMeter):
    """Follows one rank of a plan.

    Attributes:
        flops: of the counted step, by phase.
    """

    def __init__(
        self, meshes: list[Any], *, is_gloo: bool = False, records_streams: bool = False
    ) -> None:
        super().__init__(meshes, is_gloo=is_gloo)
        self._records_streams = records_streams
        self._used: defaultdict[int, list[int]] = defaultdict(list)  # by their place in the log
        self.flops: Counter[str] = Counter()
        self._is_activation = False
        self._axes: dict[str, str] = {}  # by a group's name
        self._streams: dict[int, int] = {}  # of storages that another stream than 0 allocated

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Follow what an operation gives, count what it computes, note an accelerator's streams."""
        if func is _DEVICE:
            return _device_of(args[0])
        if func.namespace in _RARE or any(issubclass(one, DTensor) for one in types):
            return self._dispatch_rare(func, types, args, kwargs)
        result = func(*args, **(kwargs or {}))
        given = [result] if isinstance(result, torch.Tensor) else tensors_in(result)
        for tensor in filter(self._sees, given):
            self._see(tensor)
        if self.counting and not self._asks_for_shapes:
            self._count_flops(func, args, kwargs or {}, result)
        return result

    def _dispatch_rare(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        result = _FOLLOW(self, func, types, args, kwargs)
        if func.namespace == "fsdp" and _GATHERING in func.__name__:
            for tensor in tensors_in(result):
                key = self._keys.get(local(tensor).untyped_storage()._cdata)
                if key is not None:
                    self._streams[key] = GATHER_STREAM
        return result

    def _count_flops(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        formula = formula_of(func._overloadpacket)
        if formula is not None:
            self.flops[self.phase] += formula(*args, **kwargs, out_val=result)

    def _axis(self, group: dist.ProcessGroup | None) -> str:
        if group is None:
            return super()._axis(group)
        name = group.group_name
        if name not in self._axes:
            self._axes[name] = super()._axis(group)
        return self._axes[name]

    def _see_collective(self, name: str, args: Any) -> None:
        axis = self._axis(_group_of(args))
        self._is_activation = axis in ("tensor", "pipeline")
        super()._see_collective(name, args)
        if self._records_streams and axis == "tensor":
            for tensor in tensors_in(args):
                self._used[len(self._log)].append(self._keys[self._see(tensor)._cdata])
        self._is_activation = False

    def _sees(self, tensor: torch.Tensor) -> bool:
        # The wrapper of a result under way has a size, and no memory of its own.
        is_wrapper = isinstance(tensor, AsyncCollectiveTensor)
        return not (self._asks_for_shapes or is_wrapper) and _device_of(tensor).type != "meta"

    def _see(self, tensor: torch.Tensor, kind: str | None = None) -> torch.UntypedStorage:
        own = local(tensor)
        storage = own.untyped_storage()
        self._see_storage(storage, None if self._is_activation else kind, _device_of(own))
        return storage

    def events(self) -> Iterator[Event]:
        """Allocations and frees in their order, with streams.

        Where streams are recorded, that of the tensor axis passes nothing until a step ends: a
        program's thread runs ahead of the device, at most until it reads the loss.
        """
        held: dict[int, int] = {}
        before = ""
        for place, (phase, key, change) in enumerate(self._log):
            for used in self._used.get(place, ()):
                yield Use(used, TENSOR_STREAM)
            if before == "update" != phase and self._records_streams:
                yield Pass(TENSOR_STREAM)
            before = phase
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

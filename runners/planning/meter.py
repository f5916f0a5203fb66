"""The meter of a plan: the simulation's, with a log that CUDA's allocator can replay.

In: the operations of one rank. Out: memory by class, collectives by axis, FLOPs, and the log of
allocations and frees. Gradients and activations that tensor-parallel ranks sum stay what they are;
what FSDP and DDP communicate counts as their buckets.
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from functools import cache
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
_REDUCING = "chunk_cat"  # and so what comes of this copy of gradients: their sums, its gradients
GATHER_STREAM, TENSOR_STREAM, REDUCE_STREAM = 1, 2, 3
EMBEDDING = "embedding"  # describes the group of stages that have its weight
_RARE = ("c10d", "_c10d_functional", "fsdp")  # what the simulation's own meter looks at
# Commands that a stream of CUDA takes before the program has to wait, as measured in
# https://forums.developer.nvidia.com/t/68937; recorded events are commands as well (t/220629).
QUEUE_LENGTH = 1000
_NO_KERNEL = ("detach", "empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view",
              "_local_scalar_dense")  # fmt: skip

_DEVICE = torch.ops.prim.device.default
_FOLLOW = inspect.unwrap(SimulationMeter.__torch_dispatch__)


def _device_of(tensor: torch.Tensor) -> torch.device:
    """As `tensor.device`, which of a fake tensor is an operation of its own."""
    if isinstance(tensor, FakeTensor) and not tensor.fake_mode.in_kernel_invocation:
        return tensor.fake_device
    return tensor.device


@cache
def _num_commands(func: Any) -> int:
    """Commands that the stream which computes is given: a kernel; at a collective two events.

    One is recorded before the collective, whose stream waits for it; the other is waited for.
    """
    if func.namespace in ("c10d", "_c10d_functional"):
        return 0 if func._opname == "wait_tensor" else 2
    is_kernel = func.namespace != "profiler" and not func.is_view and func._opname not in _NO_KERNEL
    return int(is_kernel)


class _Device:
    """How far a device is behind its program, and with which freed blocks a stream is not done.

    The program is ahead by the length of a queue, and waits for the device where a step ends, since
    it reads the loss.

    Args:
        commands: the places in the log at which they were queued.
    """

    def __init__(self, commands: Sequence[int]) -> None:
        self._commands = commands
        self._uses: set[int] = set()
        self._frees: deque[int] = deque()  # how many commands were queued before each

    def uses(self, key: int) -> Use:
        """A collective uses a block."""
        self._uses.add(key)
        return Use(key, TENSOR_STREAM)

    def frees(self, key: int, place: int) -> Free:
        """The program frees a block, at a place in the log."""
        if key in self._uses:
            self._uses.remove(key)
            self._frees.append(bisect_right(self._commands, place))
        return Free(key)

    def passes(self, place: int) -> Iterator[Pass]:
        """With what the stream has done when the program reaches a place in the log."""
        done = bisect_right(self._commands, place) - QUEUE_LENGTH
        while self._frees and self._frees[0] < done:
            self._frees.popleft()
            yield Pass(TENSOR_STREAM, 1)

    def ends_step(self) -> Pass:
        """The program waits for the device."""
        self._frees.clear()
        return Pass(TENSOR_STREAM)


class PlanMeter(SimulationMeter):
    """Follows one rank of a plan.

    Attributes:
        flops: of the counted step, by phase.
    """

    def __init__(
        self,
        meshes: list[Any],
        *,
        is_gloo: bool = False,
        records_streams: bool = False,
        copies_on_reduce_stream: bool = False,
    ) -> None:
        super().__init__(meshes, is_gloo=is_gloo)
        self._records_streams = records_streams
        self._copies_on_reduce_stream = copies_on_reduce_stream
        self._used: defaultdict[int, list[int]] = defaultdict(list)  # by their place in the log
        self._commands: list[int] = []  # the place in the log at which each was queued
        self.flops: Counter[str] = Counter()
        self._is_activation = False
        self._axes: dict[str, str] = {}  # by a group's name
        self._streams: dict[int, int] = {}  # of storages that another stream than 0 allocated
        self._reduced: int | None = None  # the storage that FSDP copied gradients to

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Follow what an operation gives, count what it computes, note an accelerator's streams."""
        if func is _DEVICE:
            return _device_of(args[0])
        if self._records_streams and not self._asks_for_shapes:
            self._commands += [len(self._log)] * _num_commands(func)
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
                self._allocated_on(GATHER_STREAM, tensor)
        if func.namespace == "fsdp" and _REDUCING in func.__name__:
            self._reduced = local(kwargs["out"]).untyped_storage()._cdata
            if self._copies_on_reduce_stream:
                self._allocated_on(REDUCE_STREAM, kwargs["out"])
        return result

    def _allocated_on(self, stream: int, tensor: torch.Tensor) -> None:
        key = self._keys.get(local(tensor).untyped_storage()._cdata)
        if key is not None:
            self._streams[key] = stream

    def _count_flops(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        packet = func._overloadpacket
        in_place = packet is torch.ops.aten.addmm_  # of which torch's registry has no formula
        formula = formula_of(torch.ops.aten.addmm if in_place else packet)
        if formula is not None:
            self.flops[self.phase] += formula(*args, **kwargs, out_val=result)

    def _axis(self, group: dist.ProcessGroup | None) -> str:
        if group is None:
            return super()._axis(group)
        name = group.group_name
        if name not in self._axes:
            is_named = group.group_desc == EMBEDDING
            self._axes[name] = EMBEDDING if is_named else super()._axis(group)
        return self._axes[name]

    def _see_collective(self, name: str, args: Any) -> None:
        axis = self._axis(_group_of(args))
        self._is_activation = axis in ("tensor", "pipeline", EMBEDDING)
        super()._see_collective(name, args)
        output, *others = tensors_in(args)
        if self._reduced in [local(one).untyped_storage()._cdata for one in others]:
            self._allocated_on(REDUCE_STREAM, output)
            self._reduced = None
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
        """Allocations and frees in their order, with streams where these are recorded."""
        held: dict[int, int] = {}
        device, before = _Device(self._commands), ""
        for place, (phase, key, change) in enumerate(self._log):
            yield from map(device.uses, self._used.get(place, ()))
            if before == "update" != phase and self._records_streams:
                yield device.ends_step()
            before = phase
            yield from device.passes(place)
            if key in self._on_other_device or not change:
                continue
            size = held.get(key, 0) + change
            if held.get(key):
                yield device.frees(key, place)
            if size:
                yield Allocate(key, size, self._streams.get(key, 0))
            held[key] = size


# Torch wraps this method so that compilers leave it alone, which takes longer than it does.
PlanMeter.__torch_dispatch__ = inspect.unwrap(  # type: ignore[method-assign]
    PlanMeter.__torch_dispatch__
)

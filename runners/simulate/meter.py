"""The meter of a simulation: memory, FLOPs, collectives, and an allocator's events.

In: the operations of a rank inside a fake mode. Out: what the memory meter gives; FLOPs,
by the formulas of `torch.utils.flop_counter`, but half of what these count of causal attention;
each collective's payload with the axis of the mesh that carries it; and the log of allocations and
frees with the streams of an accelerator, which CUDA's allocator can replay.
"""

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

from proofbook.runners.core.meters.collectives import (
    NAMESPACES,
    OPERATIONS,
    payload_bytes,
    process_group,
    tensors_in,
)
from proofbook.runners.core.meters.memory import FakeMemoryMeter, local
from proofbook.runners.simulate.caching_allocator import Allocate, AllocatorEvent, Free
from proofbook.runners.simulate.log import RESHARDED, AxisCalls

_aten = torch.ops.aten
# Operations for which torch registers no formula: attention as CPUs compute it, and one in place.
_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
    _aten.addmm_: flop_registry[_aten.addmm],
}
_DEVICE = torch.ops.prim.device.default

_OF_FSDP = ("", RESHARDED)  # axes of the mesh that FSDP builds for `reshard_after_forward=8`
_GATHERING = "all_gather_copy_in"  # FSDP allocates what it gathers on a stream of its own
_REDUCING = "chunk_cat"  # and so what comes of this copy of gradients: their sums, its gradients
GATHER_STREAM, REDUCE_STREAM = 1, 2


class Meter(FakeMemoryMeter):
    """Follows storages as the memory meter does, and logs the collectives of the counted step."""

    def __init__(
        self,
        meshes: list[DeviceMesh],  # whose axes name groups; may grow while the meter runs
        *,
        # What ranks send each other on these axes is an activation or a gradient and no wrapper's
        # bucket; a group that is described by one of these names is an axis.
        activation_axes: Sequence[str] = (),
        # FSDP allocates its copy of gradients where it allocates their sums.
        copies_on_reduce_stream: bool = False,
        # How often what a phase of the counted step does occurs in a whole one.
        times_of: Callable[[str], float] = lambda _: 1.0,
    ) -> None:
        super().__init__()
        self._meshes, self._activation_axes = meshes, activation_axes
        # A simulation has none of gloo's threads.
        self._gloo = SimpleNamespace(wait_until_idle=lambda: None)  # type: ignore[assignment]
        self.flops = 0.0  # of a whole step
        self._times_of = times_of
        # Of the calls of a whole step, by operation, axis and ranks, the number and the bytes.
        self._calls: defaultdict[tuple[str, str, int], tuple[float, float]]
        self._calls = defaultdict(lambda: (0.0, 0.0))
        self._is_activation = False
        self._copies_on_reduce_stream = copies_on_reduce_stream
        self._streams: dict[int, int] = {}  # of storages that another stream than 0 allocated
        self._reduced: int | None = None  # the storage that FSDP copied gradients to

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Execute an operation, follow what it gives, and count it."""
        if func is _DEVICE:
            return _device_of(args[0])
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local operations pass by here next
        result = func(*args, **(kwargs or {}))
        if func.namespace in NAMESPACES:
            self._track_collective(func.__name__.partition(".")[0], args)
        given = [result] if isinstance(result, torch.Tensor) else tensors_in(result)
        for tensor in filter(self._is_tracked, given):
            self._track(tensor)
        if func.namespace == "fsdp":
            self._note_streams_of_fsdp(func, result, kwargs)
        if self.counting and not self._asks_for_shapes:
            self._count(func, args, kwargs or {}, result)
        return result

    def _count(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if func.namespace in NAMESPACES:
            # What a functional one returns is a side of its payload, too.
            self._count_call(func.__name__.partition(".")[0], [*args, result])
        elif func.namespace != "prim":  # a question about a tensor, which only fake ones pass on
            packet = func._overloadpacket
            formula = flop_registry.get(packet) or _FORMULAS.get(packet)
            if formula:
                flops = int(formula(*args, **kwargs, out_val=result))
                names = [argument.name for argument in func._schema.arguments]
                is_causal = {**dict(zip(names, args, strict=False)), **kwargs}.get("is_causal")
                flops = flops // 2 if is_causal else flops
                self.flops += flops * self._times_of(self.phase)

    def _count_call(self, name: str, args: Any) -> None:
        operation, group = OPERATIONS.get(name), process_group(args)
        if operation is not None:
            key = operation, self._axis(group), group.size() if group else 1
            (count, size), times = self._calls[key], self._times_of(self.phase)
            self._calls[key] = count + times, size + times * payload_bytes(args)

    def _axis(self, group: dist.ProcessGroup | None) -> str:
        if group is None:
            return "group"
        if group.group_desc in self._activation_axes:
            return group.group_desc
        for mesh in reversed(self._meshes):
            for place, name in enumerate(mesh.mesh_dim_names or _OF_FSDP[: mesh.ndim]):
                if mesh.get_group(place).group_name == group.group_name:
                    return name
        return "all" if group.size() == dist.get_world_size() else "group"

    def _track_collective(self, name: str, args: Any) -> None:
        axis = self._axis(process_group(args))
        self._is_activation = axis in self._activation_axes
        super()._track_collective(name, args)
        given = tensors_in(args)
        if self._reduced in [local(tensor).untyped_storage()._cdata for tensor in given[1:]]:
            self._allocated_on(REDUCE_STREAM, given[0])
            self._reduced = None
        self._is_activation = False

    def _is_tracked(self, tensor: torch.Tensor) -> bool:
        # The wrapper of a result under way has a size, and no memory of its own.
        is_wrapper = isinstance(tensor, AsyncCollectiveTensor)
        return not (self._asks_for_shapes or is_wrapper) and _device_of(tensor).type != "meta"

    def _track(self, tensor: torch.Tensor, kind: str | None = None) -> torch.UntypedStorage:
        own = local(tensor)
        storage = own.untyped_storage()
        self._track_storage(storage, None if self._is_activation else kind, _device_of(own))
        return storage

    def _note_streams_of_fsdp(self, func: Any, result: Any, kwargs: Any) -> None:
        if _GATHERING in func.__name__:
            for tensor in tensors_in(result):
                self._allocated_on(GATHER_STREAM, tensor)
        if _REDUCING in func.__name__:
            self._reduced = local(kwargs["out"]).untyped_storage()._cdata
            if self._copies_on_reduce_stream:
                self._allocated_on(REDUCE_STREAM, kwargs["out"])

    def _allocated_on(self, stream: int, tensor: torch.Tensor) -> None:
        key = self._keys.get(local(tensor).untyped_storage()._cdata)
        if key is not None:
            self._streams[key] = stream

    def calls(self) -> list[AxisCalls]:
        """The collectives of a whole step: count and bytes, by operation, axis and ranks."""
        return [
            AxisCalls(
                operation=name, axis=axis, num_ranks=num, count=round(count), bytes=round(size)
            )
            for (name, axis, num), (count, size) in sorted(self._calls.items())
        ]

    def events(self) -> Iterator[AllocatorEvent]:
        """Yield `Allocate` and `Free` in order, on their streams; a change of size is both."""
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
Meter.__torch_dispatch__ = inspect.unwrap(Meter.__torch_dispatch__)  # type: ignore[method-assign]


def _device_of(tensor: torch.Tensor) -> torch.device:
    """The tensor's device, without the operation that asks a fake tensor for it."""
    if isinstance(tensor, FakeTensor) and not tensor.fake_mode.in_kernel_invocation:
        return tensor.fake_device
    return tensor.device

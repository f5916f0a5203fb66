"""The meter of a simulation: the memory meter, and beside it a log of operations and collectives.

In: the operations of a rank inside a fake mode. Out: the memory meter's own results, and totals by
phase: FLOPs by the formulas of `torch.utils.flop_counter`, bytes that are read and written, and
each collective's payload with the axis of the mesh that carries it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import GroupName
from torch.distributed.tensor import DTensor
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

from runners.meters.collectives import OPERATIONS, payload_bytes, process_group, tensors_in
from runners.meters.fake_memory import FakeMemoryMeter
from runners.meters.memory import MemoryMeter
from runners.simulate.log import Call, Operation

# Attention as CPUs compute it, for which torch registers no formula.
_ATTENTION: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
}
_FOLLOW = inspect.unwrap(MemoryMeter.__torch_dispatch__)
# What gloo makes of an all-reduce on a copy: its arguments are an output, an input, and so on.
_COPIED = ("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_")
_COMMUNICATES = ("c10d", "_c10d_functional")


def formula_of(operation: Any) -> Callable[..., int] | None:
    """What computes an operation's FLOPs from its arguments; None where it has none."""
    found: Callable[..., int] | None = flop_registry.get(operation) or _ATTENTION.get(operation)
    return found


class _NoThreads:
    """Stands for gloo's threads, of which a simulation has none."""

    def look(self) -> None:
        """There are none."""

    def wait_until_idle(self) -> None:
        """They are idle."""


class SimulationMeter(FakeMemoryMeter):
    """Follows storages as the memory meter does, and logs what the counted step calls.

    Args:
        meshes: whose axes name the groups of collectives; it may grow while the meter runs.
        is_gloo: whether the ranks that it stands for communicate over gloo.
    """

    def __init__(self, meshes: list[DeviceMesh], *, is_gloo: bool = True) -> None:
        super().__init__()
        self._is_gloo = is_gloo
        self._gloo = _NoThreads()  # type: ignore[assignment]
        self._meshes = meshes
        self.log_always = False  # without steps, everything counts
        self._counts: Counter[tuple[str, str]] = Counter()
        self._flops: Counter[tuple[str, str]] = Counter()
        self._moved: Counter[tuple[str, str]] = Counter()
        self._calls: Counter[tuple[str, str, int, str]] = Counter()
        self._payloads: Counter[tuple[str, str, int, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass the operation on to the memory meter, and log it."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # its local operations pass by here next
        copies = self._copies_of_gloo(func, args)
        result = _FOLLOW(self, func, types, args, kwargs)
        del copies
        if (self.counting or self.log_always) and not self._asks_for_shapes:
            if func.namespace in _COMMUNICATES:
                self._log_call(func.__name__.partition(".")[0], args)
            else:
                self._log_operation(func, args, kwargs or {}, result)
        return result

    def _copies_of_gloo(self, func: Any, args: Any) -> list[torch.Tensor]:
        """What gloo copies for a reduce-scatter, which it makes of an all-reduce of the whole."""
        if not self._is_gloo or func.__name__.partition(".")[0] not in _COPIED:
            return []
        copies = [tensor.clone() for tensor in tensors_in(args[1])]
        for copy in copies:
            self._see(copy)
        return copies

    def _log_operation(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        key = (func.__name__.partition(".")[0], self.phase)
        self._counts[key] += 1
        if func.is_view:
            return
        self._moved[key] += sum(t.nbytes for t in tensors_in((args, kwargs, result)))
        formula = formula_of(func._overloadpacket)
        if formula is not None:
            self._flops[key] += formula(*args, **kwargs, out_val=result)

    def _log_call(self, name: str, args: Any) -> None:
        operation = OPERATIONS.get(name)
        if operation is None:
            return
        group = _group_of(args)
        key = (operation, self._axis(group), group.size() if group else 1, self.phase)
        self._calls[key] += 1
        self._payloads[key] += payload_bytes(args)

    def _axis(self, group: dist.ProcessGroup | None) -> str:
        if group is None:
            return "group"
        for mesh in reversed(self._meshes):
            for name in mesh.mesh_dim_names or ():
                if mesh.get_group(name).group_name == group.group_name:
                    return name
        return "all" if group.size() == dist.get_world_size() else "group"

    def operations(self) -> list[Operation]:
        """The operations logged, by phase and name."""
        return [
            Operation(
                name=name,
                phase=phase,
                count=count,
                flops=int(self._flops[name, phase]),
                bytes=self._moved[name, phase],
            )
            for (name, phase), count in sorted(self._counts.items(), key=lambda kv: kv[0][::-1])
        ]

    def calls(self) -> list[Call]:
        """The collectives logged, by operation, axis and phase."""
        return [
            Call(
                operation=operation,
                axis=axis,
                num_ranks=num_ranks,
                phase=phase,
                count=count,
                bytes=self._payloads[operation, axis, num_ranks, phase],
            )
            for (operation, axis, num_ranks, phase), count in sorted(self._calls.items())
        ]


# Torch wraps these methods so that compilers leave them alone, which takes longer than they do.
SimulationMeter.__torch_dispatch__ = inspect.unwrap(  # type: ignore[method-assign]
    SimulationMeter.__torch_dispatch__
)


def _group_of(args: Iterable[Any]) -> dist.ProcessGroup | None:
    """The group that a collective is called on; the functional ones name it."""
    group = process_group(args)
    if group is not None:
        return group
    names = [one for one in args if isinstance(one, str)]
    return _resolve_process_group(GroupName(names[-1])) if names else None

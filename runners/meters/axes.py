"""Which collectives a step makes on which axis of a mesh of ranks: a dispatch mode that tells.

In: the mesh, and the operations of a step. Out: for each axis and operation how many calls, and
the bytes of their payload, as the memory meter counts them for all axes together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from runners.meters.collectives import OPERATIONS, payload_bytes, process_group


class AxisMeter(TorchDispatchMode):
    """Counts collectives by axis and operation while it is entered."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        names = mesh.mesh_dim_names or ()
        self._axes = {str(mesh.get_group(name).group_name): name for name in names}
        self.calls: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass the operation on; count it where it is a collective."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # its local operations pass by here next
        if func.namespace in ("c10d", "_c10d_functional"):
            self._see(OPERATIONS.get(func.__name__.split(".")[0]), args)
        return func(*args, **(kwargs or {}))

    def _see(self, operation: str | None, args: Iterable[Any]) -> None:
        if operation is None:
            return
        key = (self._axes.get(_group_name(args), "no_axis"), operation)
        self.calls[key] += 1
        self.bytes[key] += payload_bytes(args)

    def measured(self) -> dict[str, int]:
        """What was counted: `num_<axis>_<operation>` and `<axis>_<operation>_bytes`."""
        found = {}
        for (axis, operation), count in sorted(self.calls.items()):
            found[f"num_{axis}_{operation}"] = count
            found[f"{axis}_{operation}_bytes"] = self.bytes[axis, operation]
        return found


def _group_name(args: Iterable[Any]) -> str:
    """The name of the group that a collective is called on."""
    group = process_group(args)
    if group is not None:
        return str(group.group_name)
    words = [argument for argument in args if isinstance(argument, str)]
    return words[-1] if words else ""

"""Which collectives a step makes on which axis of a mesh of ranks: a dispatch mode that tells.

In: the mesh, and the operations of a step. Out: for each axis and operation how many calls, and
the bytes of their payload, as the memory meter counts them for all axes together.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.distributed.device_mesh import DeviceMesh

from runners.meters.collectives import NAMESPACES, OPERATIONS, payload_bytes, process_group
from runners.meters.operations import Operations


class AxisMeter(Operations):
    """Counts collectives by axis and operation while it is entered."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        names = mesh.mesh_dim_names or ()
        self._axes = {str(mesh.get_group(name).group_name): name for name in names}
        self._measured: Counter[str] = Counter()

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Pass the operation on; count it where it is a collective."""
        operation = OPERATIONS.get(func.__name__.split(".")[0])
        if func.namespace in NAMESPACES and operation is not None:
            group = process_group(args)
            words = [str(one) for one in args if isinstance(one, str)]  # functional ones name it
            name = str(group.group_name) if group is not None else (words or [""])[-1]
            axis = self._axes.get(name, "no_axis")
            self._measured[f"num_{axis}_{operation}"] += 1
            self._measured[f"{axis}_{operation}_bytes"] += payload_bytes(args)
        return func(*args, **kwargs)

    def measured(self) -> dict[str, int]:
        """What was counted: `num_<axis>_<operation>` and `<axis>_<operation>_bytes`."""
        return dict(self._measured)

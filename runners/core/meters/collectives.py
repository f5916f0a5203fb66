"""Operations as a dispatch mode sees them, and what the arguments of a collective say.

In: an operation of the namespaces `c10d` and `_c10d_functional` as a dispatch mode sees it, with
its real arguments. Out: what PyTorch's users call it, its bytes, its group, its two ends; and for
each axis of a mesh of ranks how many calls, and the bytes of their payload (`AxisMeter`).
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _resolve_process_group
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import GroupName
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Ends = tuple[int | None, int | None]  # source and destination, global ranks; None: every rank
EVERY_RANK: Ends = (None, None)

NAMESPACES = ("c10d", "_c10d_functional")
# What the dispatcher calls an operation → what PyTorch's users call it.
OPERATIONS = {
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "broadcast_": "broadcast",
    "send": "send",
    "recv_": "recv",
    "scatter_": "scatter",
    "gather_": "gather",
    "reduce_": "reduce",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "allreduce_coalesced_": "all_reduce",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "recv_any_source_": "recv",
}
# Operations with a root. The first number among the arguments of these, of `send` and of `recv_`
# names a rank of the *group*: on gloo, in the group of the global ranks 1 and 3, each of them to or
# from global rank 3 passed the number 1, whether its caller wrote `dst=3` or `group_dst=1`. The
# number of `recv_any_source_` is a tag, so its source stays unknown.
ROOT_SENDS = {"broadcast_", "scatter_"}
ROOT_RECEIVES = {"gather_", "reduce_"}


def tensors_in(tree: Any) -> list[torch.Tensor]:
    """Every tensor in nested arguments."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def payload_bytes(arguments: Iterable[Any]) -> int:
    """Bytes of the larger side of a collective: its payload, as this rank sees it."""
    return max((sum(t.nbytes for t in tensors_in(a)) for a in arguments), default=0)


def process_group(arguments: Iterable[Any]) -> dist.ProcessGroup | None:
    """The group among an operation's arguments, else that which the last text names; else None."""
    names = []
    for argument in arguments:
        if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
            return dist.ProcessGroup.unbox(argument)
        if isinstance(argument, str):
            names.append(argument)  # the last text of a functional operation is its group's name
    return _resolve_process_group(GroupName(names[-1])) if names else None


def ends_of(name: str, arguments: Iterable[Any]) -> Ends:
    """A pair of a call's sending and receiving global rank, None where it is the whole group."""
    if name == "recv_any_source_":
        return None, dist.get_rank()
    if name not in {"send", "recv_", *ROOT_SENDS, *ROOT_RECEIVES}:
        return EVERY_RANK
    arguments = list(arguments)
    number = next(argument for argument in arguments if type(argument) is int)
    named = dist.get_process_group_ranks(process_group(arguments))[number]
    if name == "send":
        return dist.get_rank(), named
    if name == "recv_":
        return named, dist.get_rank()
    return (named, None) if name in ROOT_SENDS else (None, named)


class Operations(TorchDispatchMode):
    """Passes each operation through `operate` while it is entered.

    An operation on DTensors is left to DTensor, whose operations on local tensors pass by next.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        return self.operate(func, args, kwargs or {})

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute an operation and return its result."""
        raise NotImplementedError


class AxisMeter(Operations):
    """Counts collectives by axis and operation while it is entered."""

    def __init__(self, mesh: DeviceMesh) -> None:
        super().__init__()
        names = mesh.mesh_dim_names or ()
        self._axes = {str(mesh.get_group(name).group_name): name for name in names}
        self._measured: Counter[str] = Counter()

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute an operation, return its result; count collectives' calls and bytes by axis."""
        operation = OPERATIONS.get(func.__name__.split(".")[0])
        if func.namespace in NAMESPACES and operation is not None:
            group = process_group(args)
            axis = self._axes.get(str(group.group_name), "no_axis") if group else "no_axis"
            self._measured[f"num_{axis}_{operation}"] += 1
            self._measured[f"{axis}_{operation}_bytes"] += payload_bytes(args)
        return func(*args, **kwargs)

    def measured(self) -> dict[str, int]:
        """The counts, as `num_<axis>_<operation>` and `<axis>_<operation>_bytes`."""
        return dict(self._measured)

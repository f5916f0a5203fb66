"""What the tool reads of torch's inside: private names, frames of functions, nodes of the graph.

In: modules and frames of a running script, or the edges that a backward pass starts from. Out: what
FSDP keeps, a line of the script as reports name it, the stage that calls, and nodes of the graph,
each once. `LACKING` says which of the private names a release of torch does not have.
"""

from __future__ import annotations

import inspect
import itertools
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.autograd.graph import GradientEdge
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _pytree as pytree
from torch.utils.data import dataloader

__all__ = ["checkpoint_wrapper", "functional_collectives", "pytree"]  # others take them from here

TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
FUNCTIONAL = (
    "all_reduce", "all_gather_tensor", "all_gather_tensor_autograd", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "all_to_all_single", "all_to_all_single_autograd",
    "broadcast", "permute_tensor",
)  # fmt: skip
NEWER = (  # since torch 2.13
    "all_gather_single", "all_gather_single_autograd", "reduce_scatter_single",
    "reduce_scatter_single_autograd",
)  # fmt: skip
# Names that torch does not document, by what is read through them and by torch's file.
_NAMES = {
    "fully_shard": {
        "distributed/fsdp/_fully_shard/_fully_shard.py": "_get_fsdp_state",
        "distributed/fsdp/_fully_shard/_fsdp_state.py": "_fsdp_param_groups _mp_policy",
        "distributed/fsdp/_fully_shard/_fsdp_param_group.py": (
            "fsdp_params mesh_info _partial_reduce_output"
        ),
        "distributed/fsdp/_fully_shard/_fsdp_param.py": (
            "unsharded_accumulated_grad _unsharded_param"
        ),
    },
    "torch.distributed.pipelining": {
        "distributed/pipelining/stage.py": (
            "forward_one_chunk fwd_chunk_id forward_maybe_with_nosync stage_index "
            "perform_reduce_grad backward_weight_one_chunk"
        ),
    },
    "training": {
        "_tensor.py": "_backward_hooks",
        "distributed/_functional_collectives.py": " ".join(FUNCTIONAL),
        "distributed/algorithms/_checkpoint/checkpoint_wrapper.py": "torch_utils_checkpoint",
        "nn/modules/_functions.py": "SyncBatchNorm",
        "nn/modules/module.py": "_forward_pre_hooks _call_impl",
        "nn/parallel/distributed.py": (
            "_DDPSink will_sync_module_buffers require_backward_grad_sync _join_config"
        ),
        "optim/lr_scheduler.py": "_initial_step",
        "utils/data/dataloader.py": "_BaseDataLoaderIter",
    },
}


def _lacking(what: str, files: Mapping[str, str]) -> str:
    for file, names in files.items():
        path = Path(TORCH, file)
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for name in names.split():
            if not re.search(rf"\b{name}\b", text):
                return f"{what} of torch {torch.__version__}, whose {file} has no {name},"
    return ""


# What of that cannot be read in this release, and why; empty where it can.
LACKING = {what: _lacking(what, files) for what, files in _NAMES.items()}
LoaderIterator: Any = getattr(dataloader, "_BaseDataLoaderIter", None)


def fsdp_groups(module: nn.Module) -> list[Any]:
    """Groups of parameters that FSDP shards together."""
    units = [one for one in module.modules() if isinstance(one, FSDPModule)]
    if LACKING["fully_shard"]:
        return []
    return [group for one in units for group in one._get_fsdp_state()._fsdp_param_groups]


def policy(unit: FSDPModule) -> Any:
    """The mixed precision of a unit of FSDP."""
    return unit._get_fsdp_state()._mp_policy


def unreduced(module: nn.Module) -> list[Tensor]:
    """Whole gradients that FSDP keeps until it reduces them."""
    groups = fsdp_groups(module)
    held = [one for group in groups for one in group.fsdp_params]
    found = [one.unsharded_accumulated_grad for one in held]
    found += [getattr(getattr(one, "_unsharded_param", None), "grad", None) for one in held]
    found += [one._partial_reduce_output for one in groups]  # of HSDP, before its all-reduce
    return [one for one in found if one is not None]


Stage = tuple[Any, int | None]  # of a pipeline, and the number of the microbatch that it computes


def place(frame: FrameType | None = None) -> str:
    """The innermost line that is neither torch's, nor ours, nor an installed package's."""
    frames = traceback.walk_stack(frame or sys._getframe(1))
    return next((place_of(one, line) for one, line in frames if is_script(one)), "")


def place_of(frame: FrameType, line: int) -> str:
    """A line of a frame, as reports name it."""
    return f"{Path(frame.f_code.co_filename).name}:{line}"


def is_script(frame: FrameType) -> bool:
    """Whether a frame is of the script or of a module beside it."""
    file = frame.f_code.co_filename
    is_own = not file.startswith((TORCH, _OWN, "<"))
    return is_own and "site-packages" not in file and "/lib/python3" not in file


def calling_stage() -> Stage | None:
    """The stage of a pipeline that calls."""
    for frame, _ in itertools.islice(traceback.walk_stack(sys._getframe(1)), 16):
        if frame.f_code.co_filename.endswith("distributed/pipelining/stage.py"):
            own = frame.f_locals.get("self")
            if frame.f_code.co_name == "forward_one_chunk":
                return own, frame.f_locals["fwd_chunk_id"]
            if frame.f_code.co_name != "forward_maybe_with_nosync":
                return own, None
    return None


def in_function(frame: FrameType) -> bool:
    """Whether an autograd function of the script's own is running."""
    inner = (one for one, _ in itertools.islice(traceback.walk_stack(frame), 8))
    return any(
        isinstance(one.f_locals.get(one.f_code.co_varnames[0]), FunctionCtx)
        for one in inner
        if one.f_code.co_name in ("forward", "backward") and one.f_code.co_argcount
    )


def fetcher(iterator: Any) -> Any:
    """What reads and collates the samples of a loader's iterator; None where workers do."""
    return getattr(iterator, "_dataset_fetcher", None)


def redirected(module: nn.Module) -> str:
    """The method that Lightning calls where its wrapper calls `forward`."""
    forward = module.__dict__.get("forward")
    if not isinstance(forward, FunctionType):
        return ""
    return str(inspect.getclosurevars(forward).nonlocals.get("method_name", ""))


def variables() -> dict[str, nn.Module]:
    """The modules that variables of the script hold, those of the outermost function first."""
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = {**frame.f_locals, **found} if is_script(frame) else found
        frame = frame.f_back
    return {name: one for name, one in found.items() if isinstance(one, nn.Module)}


def group_name(given: Sequence[Any]) -> str:
    """The name by which its ranks know the process group that a collective is given."""
    for one in given:
        is_axis = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], DeviceMesh)
        if is_axis or isinstance(one, dist.ProcessGroup | DeviceMesh):
            return str(functional_collectives._resolve_group_name(one))
    return str(getattr(dist.group.WORLD, "group_name", ""))


def reducing_group(module: nn.Module) -> str:
    """The name of the group over which a backward pass reduces; empty where DDP does not."""
    is_reducing = (
        isinstance(module, DistributedDataParallel)
        and module.require_backward_grad_sync
        and not module._join_config.enable  # ranks that have ended join in without a pass
    )
    return group_name([module.process_group]) if is_reducing else ""


# Names of the factors that nodes keep, in the order of their gradients.
_PRODUCT = ("_saved_self", "_saved_mat2")
_FACTORS = {"MmBackward0": _PRODUCT, "BmmBackward0": _PRODUCT}
Edge = tuple[Any, int]  # a node, and the number of its output


def edge_of(one: Tensor | GradientEdge) -> Edge:
    """Where a backward pass of a tensor starts; torch 2.15 also gives edges."""
    return (one.grad_fn if isinstance(one, Tensor) else one.node), one.output_nr


def walked(start: Sequence[Edge], is_end: Callable[[Any], bool]) -> Iterator[tuple[Any, bool]]:
    """Nodes, and whether a product lies before each; nothing behind the ends."""
    seen: set[Any] = set()
    queue = [(edge, False) for edge in start]
    while queue:
        edge, is_product = queue.pop()
        node = edge[0]
        key = edge if _is_sink(node) else id(node)
        if node is None or key in seen:
            continue
        seen.add(key)
        yield node, is_product
        if not is_end(node):
            is_product = is_product or node.name() == "MulBackward0"
            queue += [(other, is_product) for other in _next(edge)]


def reached(start: Sequence[Edge], ends: Collection[int] = ()) -> Iterator[Any]:
    """The nodes that a backward pass reaches; nothing behind those with the ids of `ends`."""
    return (node for node, _ in walked(start, lambda node: id(node) in ends))


# Nodes between a backward pass and the terms that its loss adds up.
_SCALAR = {
    "AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0", "NegBackward0", "SqrtBackward0",
    "ToCopyBackward0", "CloneBackward0", "ViewBackward0", "SqueezeBackward0", "AliasBackward0",
    "_DDPSinkBackward",
}  # fmt: skip


def terms(start: Sequence[Edge], known: Collection[int]) -> list[str]:
    """The terms of a loss that train something, but for nodes with the ids of `known`."""
    first = walked(start, lambda node: id(node) in known or node.name() not in _SCALAR)
    others = [n for n, _ in first if id(n) not in known and n.name() not in _SCALAR]
    trained = (one for one in others if leaves_before([(one, 0)], known))
    return [re.sub(r"Backward\d*$", "", one.name()).lower() for one in trained]


def leaves_before(start: Sequence[Edge], outputs: Collection[int]) -> list[Tensor]:
    """The leaves that a backward pass reaches past all of these nodes."""
    return [node.variable for node in reached(start, outputs) if hasattr(node, "variable")]


def multiplies(start: Sequence[Edge], outputs: Collection[int], parts: Sequence[Tensor]) -> bool:
    """Whether a backward pass multiplies, before `outputs`, by all values of these parts.

    They may be in any order and shape, and get no gradient.
    """
    if not parts or any(one.requires_grad for one in parts):
        return False
    values = torch.cat([one.flatten() for one in parts]).sort().values
    for node in reached(start, outputs):
        for index, name in enumerate(_FACTORS.get(node.name(), ())):
            saved = getattr(node, name) if node.next_functions[index][0] is None else None
            own = None if saved is None else saved.detach().flatten()
            if own is not None and torch.equal(own.sort().values, values):
                return True
    return False


def _is_sink(node: Any) -> bool:
    return bool(node is not None and node.name() == "_DDPSinkBackward")


def _next(edge: Edge) -> Sequence[Edge]:
    """What a gradient flows to; DDP has one node for all its outputs, of which one is meant."""
    node, number = edge
    edges: Sequence[Edge] = node.next_functions
    if not _is_sink(node):
        return edges
    needed = node.needs_input_grad[1:]  # the first is DDP itself, and the rest are the outputs
    own = [one for one in edges if one[0] is not None]
    return [own[sum(needed[:number])]] if needed[number] else []

"""Reads private names of torch, frames of functions, and nodes of the autograd graph.

In: modules and frames of a running script, or the edges that a backward pass starts from. Out: the
parameters that FSDP keeps, a line of the script as reports name it, the pipeline stage that calls,
and nodes of the graph, each once. `LACKING` says which of the private names a release of torch does
not have.
"""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
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
OWN = str(Path(__file__).parent)
FUNCTIONAL = (
    "all_reduce all_gather_tensor all_gather_tensor_autograd reduce_scatter_tensor "
    "reduce_scatter_tensor_autograd all_to_all_single all_to_all_single_autograd broadcast "
    "permute_tensor"
)
NEWER = (  # since torch 2.13
    "all_gather_single all_gather_single_autograd reduce_scatter_single "
    "reduce_scatter_single_autograd"
)
# Names that torch does not document: a feature of this tool, torch's file, and its names there.
_NAMES = f"""
fully_shard distributed/fsdp/_fully_shard/_fully_shard.py _get_fsdp_state
fully_shard distributed/fsdp/_fully_shard/_fsdp_state.py _fsdp_param_groups _mp_policy
fully_shard distributed/fsdp/_fully_shard/_fsdp_param_group.py \
    fsdp_params mesh_info _partial_reduce_output
fully_shard distributed/fsdp/_fully_shard/_fsdp_param.py unsharded_accumulated_grad \
    _unsharded_param sharded_param
torch.distributed.pipelining distributed/pipelining/stage.py forward_one_chunk fwd_chunk_id \
    forward_maybe_with_nosync stage_index perform_reduce_grad backward_weight_one_chunk
training _tensor.py _backward_hooks
training distributed/_functional_collectives.py {FUNCTIONAL}
training distributed/algorithms/_checkpoint/checkpoint_wrapper.py torch_utils_checkpoint
training distributed/distributed_c10d.py _resolve_process_group
training nn/modules/module.py _forward_pre_hooks _call_impl
training nn/parallel/distributed.py _DDPSink will_sync_module_buffers \
    require_backward_grad_sync _join_config
training optim/lr_scheduler.py _initial_step
training utils/data/dataloader.py _BaseDataLoaderIter
"""


def _lacking(file: str, names: Sequence[str]) -> str:
    path = Path(TORCH, file)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    absent = (name for name in names if not re.search(rf"\b{name}\b", text))
    says = f" of torch {torch.__version__}, whose {file} has no "
    return next((f"{says}{name}," for name in absent), "")


# By feature, why this release of torch does not have it; empty where it does.
LACKING: dict[str, str] = {}
for _what, _file, *_names in map(str.split, _NAMES.strip().splitlines()):
    _why = _lacking(_file, _names)
    LACKING[_what] = LACKING.get(_what) or (_why and _what + _why)
LoaderIterator: Any = getattr(dataloader, "_BaseDataLoaderIter", None)


def fsdp_groups(module: nn.Module) -> list[Any]:
    """The groups of parameters that FSDP shards together."""
    units = [child for child in module.modules() if isinstance(child, FSDPModule)]
    if LACKING["fully_shard"]:
        return []
    return [group for unit in units for group in unit._get_fsdp_state()._fsdp_param_groups]


def gathered_by_fsdp(module: nn.Module) -> set[int]:
    """A set of `id`s: of parameters that FSDP shards, without the ignored, and of their wholes."""
    return {
        id(parameter)
        for group in fsdp_groups(module)
        for held in group.fsdp_params
        for parameter in (held.sharded_param, getattr(held, "_unsharded_param", None))
    }


def policy(unit: FSDPModule) -> Any:
    """The mixed-precision policy of a unit of FSDP."""
    return unit._get_fsdp_state()._mp_policy


def unreduced(module: nn.Module) -> list[Tensor]:
    """A list of the whole gradients, without names, that FSDP keeps until it reduces them."""
    gradients = []
    for group in fsdp_groups(module):
        for held in group.fsdp_params:
            gradients.append(held.unsharded_accumulated_grad)
            gradients.append(getattr(getattr(held, "_unsharded_param", None), "grad", None))
        gradients.append(group._partial_reduce_output)  # of HSDP, before its all-reduce
    return [gradient for gradient in gradients if gradient is not None]


Stage = tuple[Any, int | None]  # of a pipeline, and the number of the microbatch that it computes


def place(frame: FrameType | None = None) -> str:
    """The innermost line of the script, as reports name it; empty without one."""
    frames = traceback.walk_stack(frame or sys._getframe(1))
    return next((place_of(caller, line) for caller, line in frames if is_script(caller)), "")


def place_of(frame: FrameType, line: int) -> str:
    """A line of a frame, as `train.py:7`."""
    return f"{Path(frame.f_code.co_filename).name}:{line}"


def is_script(frame: FrameType) -> bool:
    """Whether a frame is of the script or of a module beside it."""
    file = frame.f_code.co_filename
    is_own = not file.startswith((TORCH, OWN, "<"))
    return is_own and "site-packages" not in file and "/lib/python3" not in file


def calling_stage() -> Stage | None:
    """A pair off the call stack: pipeline stage, its microbatch's number or None; else None."""
    if "torch.distributed.pipelining.stage" not in sys.modules:
        return None
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        if frame.f_code.co_filename.endswith("distributed/pipelining/stage.py"):
            own = frame.f_locals.get("self")
            if frame.f_code.co_name == "forward_one_chunk":
                return own, frame.f_locals["fwd_chunk_id"]
            if frame.f_code.co_name != "forward_maybe_with_nosync":
                return own, None
    return None


def in_function(frame: FrameType) -> bool:
    """Whether the frame runs in an autograd function of the script's own."""
    callers = (caller for caller, _ in traceback.walk_stack(frame))
    own = (caller for caller in callers if not caller.f_code.co_filename.startswith(TORCH))
    first_locals = (next(iter(caller.f_locals.values()), None) for caller in own)
    return any(isinstance(value, FunctionCtx) for value in first_locals)


def fetcher(iterator: Any) -> Any:
    """The fetcher that reads and collates samples for a loader's iterator; None with workers."""
    return getattr(iterator, "_dataset_fetcher", None)


def redirected(module: nn.Module) -> str:
    """The method that Lightning has put in the place of `forward`; empty without one."""
    forward = module.__dict__.get("forward")
    if not isinstance(forward, FunctionType):
        return ""
    return str(inspect.getclosurevars(forward).nonlocals.get("method_name", ""))


def variables() -> dict[str, nn.Module]:
    """The modules that variables of the script hold, those of the outermost function first."""
    values: dict[str, Any] = {}
    for frame, _ in traceback.walk_stack(sys._getframe(1)):
        values = {**frame.f_locals, **values} if is_script(frame) else values
    return {name: value for name, value in values.items() if isinstance(value, nn.Module)}


def group_name(given: Sequence[Any]) -> str:
    """The name of the process group among the arguments of a collective, or of the default one."""
    for value in given:
        is_axis = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], DeviceMesh)
        if is_axis or isinstance(value, dist.ProcessGroup | DeviceMesh):
            return str(functional_collectives._resolve_group_name(value))
    return str(getattr(dist.group.WORLD, "group_name", ""))


def ranks_of(name: str) -> list[int]:
    """The global ranks of the process group of this name."""
    resolve: Any = getattr(dist.distributed_c10d, "_resolve_process_group")  # noqa: B009 undocumented
    return list(dist.get_process_group_ranks(resolve(name)))


def reducing_group(module: nn.Module) -> str:
    """The name of DDP's process group if a backward pass now reduces over it; else empty."""
    is_reducing = (
        isinstance(module, DistributedDataParallel)
        and module.require_backward_grad_sync
        and not module._join_config.enable  # ranks that have ended join in without a pass
    )
    return group_name([module.process_group]) if is_reducing else ""


Edge = tuple[Any, int]  # a node, and the number of its output


def edge_of(root: Tensor | GradientEdge) -> Edge:
    """The edge from which a backward pass starts; torch 2.15 also gives edges."""
    return (root.grad_fn if isinstance(root, Tensor) else root.node), root.output_nr


def walked(start: Sequence[Edge], is_end: Callable[[Any], bool]) -> Iterator[tuple[Any, bool]]:
    """Yield pairs: each autograd node up to the ends, once; whether a product precedes it."""
    visited: set[Any] = set()
    queue = [(edge, False) for edge in start]
    while queue:
        edge, is_product = queue.pop()
        node = edge[0]
        is_sink = node is not None and node.name() == "_DDPSinkBackward"
        key = edge if is_sink else id(node)
        if node is None or key in visited:
            continue
        visited.add(key)
        yield node, is_product
        if not is_end(node):
            is_product = is_product or node.name() == "MulBackward0"
            edges = _of_output(*edge) if is_sink else node.next_functions
            queue += [(other, is_product) for other in edges]


def _of_output(sink: Any, number: int) -> Sequence[Edge]:
    """The edge to one output of the node that DDP puts behind all outputs."""
    needed = sink.needs_input_grad[1:]  # the first is DDP itself, and the rest are the outputs
    edges = [edge for edge in sink.next_functions if edge[0] is not None]
    return [edges[sum(needed[:number])]] if needed[number] else []


def reached(start: Sequence[Edge], ends: Collection[int] = ()) -> Iterator[Any]:
    """The nodes that a backward pass reaches, up to those with the ids of `ends`."""
    return (node for node, _ in walked(start, lambda node: id(node) in ends))


# Nodes between a backward pass and the terms that its loss adds up.
_SCALAR = {
    "AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0", "NegBackward0", "SqrtBackward0",
    "ToCopyBackward0", "CloneBackward0", "ViewBackward0", "SqueezeBackward0", "AliasBackward0",
    "_DDPSinkBackward",
}  # fmt: skip


def terms(start: Sequence[Edge], known: Collection[int]) -> list[str]:
    """Autograd's names ("mean"), from a loss's edges on, of terms that train and are not `known`.

    A term that is not a sum over samples names the operation that combines them: "sum of mean".
    """
    first = walked(start, lambda node: id(node) in known or node.name() not in _SCALAR)
    others = [n for n, _ in first if id(n) not in known and n.name() not in _SCALAR]
    curve = curved(start, known)
    names = []
    for node in others:
        if leaves_before([(node, 0)], known):
            inner = combining(node.next_functions, known) or curve
            names.append(_name(node) + f" of {inner}" * bool(inner))
    return names


def _name(node: Any) -> str:
    return re.sub(r"Backward\d*$", "", node.name()).lower()


def _nodes(names: str) -> set[str]:
    return {f"{name}Backward0" for name in names.split()}


_PRODUCTS = _nodes("Mm Bmm Addmm Baddbmm Mv Dot Cdist Convolution")
_VIEWS = _nodes("T Transpose Permute View Expand Unsqueeze ToCopy Clone")
_CURVES = _nodes("Sqrt Rsqrt Pow Exp Log Log1P")
_REDUCTION = re.compile(
    "(Sum|Mean|Prod|Std|Var|Norm|LinalgVectorNorm|Logsumexp|Softmax|LogSoftmax|Max|Min|Amax|Amin"
    "|Median|Cumsum|Cumprod|Sort)Backward"
)


def combining(start: Sequence[Edge], ends: Collection[int], *, is_outside: bool = False) -> str:
    """Autograd's name of the first operation from `start` that combines samples; empty without any.

    It is a product of two activations, or a reduction over all elements or over the first axis, on
    the way to the first layer, or to nodes with the ids of `ends`. If modules have ended
    (`is_outside`), a product with any other tensor counts.
    """

    def is_end(node: Any) -> bool:
        return id(node) in ends or _is_layer(node)

    nodes = (node for node, _ in walked(start, is_end) if not is_end(node))
    return next((_name(node) for node in nodes if _combines(node, is_outside)), "")


def curved(start: Sequence[Edge], known: Collection[int]) -> str:
    """Autograd's name of a nonlinear operation on a scalar loss (root, log, ratio); else empty."""
    for node in reached(start, known):
        if id(node) in known:
            continue
        is_product = node.name() in ("MulBackward0", "DivBackward0") and _num_inputs(node) > 1
        if (is_product or node.name() in _CURVES) and not node._input_metadata[0].shape:
            return _name(node)
    return ""


def _num_inputs(node: Any) -> int:
    return sum(source is not None for source, _ in node.next_functions)


def _is_layer(node: Any) -> bool:
    """Whether a node multiplies by a parameter, which may be frozen."""
    if node.name() not in _PRODUCTS:
        return False
    saved = [getattr(node, f"_saved_{name}", None) for name in ("self", "mat1", "mat2", "weight")]
    bases = [value._base if value is not None and value._is_view() else value for value in saved]
    is_frozen = any(isinstance(base, nn.Parameter) for base in bases)
    return is_frozen or any(_is_parameter(source) for source, _ in node.next_functions)


def _is_parameter(node: Any) -> bool:
    while node is not None and node.name() in _VIEWS:
        node = node.next_functions[0][0]
    return hasattr(node, "variable")


def _combines(node: Any, is_outside: bool) -> bool:
    name, edges = node.name(), node.next_functions
    if name in _PRODUCTS:
        is_batched = name == "BmmBackward0" and node._input_metadata[0].shape[0] > 1
        return not is_batched and (is_outside or _num_inputs(node) > 1)
    if not _REDUCTION.match(name):
        return False
    (source, number), axes = edges[0], getattr(node, "_saved_dim", None)
    first = {0, 2**64 - len(source._input_metadata[number].shape)}
    return not axes or bool(first & {*(axes if isinstance(axes, tuple) else [axes])})


def leaves_before(start: Sequence[Edge], outputs: Collection[int]) -> list[Tensor]:
    """The leaves that a backward pass reaches around nodes with the ids of `outputs`."""
    return [node.variable for node in reached(start, outputs) if hasattr(node, "variable")]


def multiplies(start: Sequence[Edge], outputs: Collection[int], parts: Sequence[Tensor]) -> bool:
    """Whether the graph, up to `outputs`, has a matrix product with exactly these parts' values.

    They may be in any order and shape, and get no gradient.
    """
    if not parts or any(part.requires_grad for part in parts):
        return False
    values = torch.cat([part.flatten() for part in parts]).sort().values
    for node in reached(start, outputs):
        if node.name() not in ("MmBackward0", "BmmBackward0"):
            continue
        (left, _), (right, _) = node.next_functions
        saved = (left is None and node._saved_self, right is None and node._saved_mat2)
        factors = (factor.detach().flatten() for factor in saved if isinstance(factor, Tensor))
        if any(torch.equal(factor.sort().values, values) for factor in factors):
            return True
    return False

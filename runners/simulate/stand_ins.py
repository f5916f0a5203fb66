"""What stands for other processes and for networks while one rank is simulated.

In: which rank of how many. Out: a context in which torch's process groups send nothing, DDP keeps
its buckets in Python, and meshes are built of real numbers. Everything is put back when it ends.
"""

import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp
from torch.distributed.fsdp._fully_shard._fsdp_init import _get_post_forward_mesh_info
from torch.nn.parallel import distributed as ddp
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from proofbook.runners.simulate import reducer

Put = Callable[[Any, str, Any], None]  # lets a name of an owner be something else for now


@contextmanager
def simulating_rank(rank: int, world_size: int, meshes: list[DeviceMesh]) -> Iterator[None]:
    """In this context, torch.distributed is that of one simulated rank; append to `meshes`."""
    with ExitStack() as stack:

        def put(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(owner, name, value, create=True))

        _put_groups(put, rank, world_size)
        _put_meshes(put, meshes)
        put(dist, "Reducer", reducer.Reducer)
        put(dist, "Logger", reducer.Logger)
        for name in ("_sync_module_states", "_verify_param_shape_across_processes"):
            put(ddp, name, lambda *_, **__: None)  # which sends values, and no step
        put(_fsdp_param, "_chunk_with_empty", LazyChunks)
        put(nn.Module, "_apply", _applied(nn.Module._apply))
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _put_groups(put: Put, rank: int, world_size: int) -> None:
    """Replace process groups by ones that send nothing, whatever backend is asked for."""
    initialise, new_group = dist.init_process_group, dist.new_group

    def of_all(*_: Any, **__: Any) -> None:
        initialise("fake", store=FakeStore(), rank=rank, world_size=world_size)

    def of_some(*arguments: Any, **named: Any) -> Any:
        named = {k: v for k, v in named.items() if k not in ("backend", "timeout", "pg_options")}
        return new_group(*arguments[:1], **named)

    put(dist, "init_process_group", of_all)
    put(dist, "new_group", of_some)


class LazyChunks:
    """Stands for `_chunk_with_empty` of FSDP, which makes all chunks; a rank takes two of them."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        """The arguments of torch's own."""
        self._tensor, self._dim = tensor, dim
        self._size = -(-tensor.size(dim) // num_chunks)

    def __getitem__(self, index: int) -> torch.Tensor:
        """The chunk of a rank; beyond the last one, no elements."""
        start = index * self._size
        length = min(self._size, self._tensor.size(self._dim) - start)
        if length <= 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, length)


def _put_meshes(put: Put, meshes: list[DeviceMesh]) -> None:
    """Let meshes compute with real numbers, and note each of them for the meter."""
    for name, own in list(vars(DeviceMesh).items()):
        if isinstance(own, types.FunctionType):
            put(DeviceMesh, name, _real(own, meshes if name == "__init__" else None))
    whole: Any = vars(DeviceMesh)["mesh"]
    put(DeviceMesh, "mesh", property(_real(whole.fget, None)))
    put(fsdp, "_get_post_forward_mesh_info", _real(_get_post_forward_mesh_info, None))


def _real(own: Callable[..., Any], meshes: list[DeviceMesh] | None) -> Callable[..., Any]:
    @wraps(own)
    def real(mesh: DeviceMesh, *arguments: Any, **named: Any) -> Any:
        with unset_fake_temporarily():
            ranks = named.get("_rank_map")
            if isinstance(ranks, FakeTensor):  # of `init_device_mesh`: every rank, in order
                named["_rank_map"] = torch.arange(ranks.numel(), dtype=torch.int)
            result = own(mesh, *arguments, **named)
        if meshes is not None:
            mesh._thread_id = dist.get_rank()  # else caches would give it another rank's mesh
            meshes.append(mesh)
        return result

    return real


def _applied(own: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Stands for `nn.Module._apply`: replaces the data of fake parameters as of real ones.

    Torch swaps fake tensors, which weak references to them forbid.
    """

    @wraps(own)
    def apply(module: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        parameters = {k: v for k, v in module._parameters.items() if v is not None}
        swaps = any(is_traceable_wrapper_subclass(parameter) for parameter in parameters.values())
        if swaps or any(parameter.grad is not None for parameter in parameters.values()):
            return own(module, fn, recurse)
        for child in module.children() if recurse else ():
            child._apply(fn)
        for key, parameter in parameters.items():
            with torch.no_grad():
                moved = fn(parameter)
            if torch._has_compatible_shallow_copy_type(parameter, moved):
                parameter.data = moved
            else:
                module._parameters[key] = nn.Parameter(moved, parameter.requires_grad)
        for key, buffer in module._buffers.items():
            module._buffers[key] = None if buffer is None else fn(buffer)
        return module

    return apply

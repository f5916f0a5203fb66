"""What stands for processes, clocks and networks while one rank is simulated.

In: which rank of how many. Out: a context in which torch's process groups send nothing, DDP keeps
its buckets in Python, meshes are built of real numbers, objects come from a mailbox, and nobody
sleeps. Everything is put back when it ends.
"""

from __future__ import annotations

import os
import subprocess
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.launcher import api as launcher
from torch.distributed.pipelining import schedules
from torch.nn.parallel import distributed as ddp
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from runners.simulate import reducer
from runners.simulate.fake_mode import array_of
from runners.simulate.messages import OBJECT_CALLS, Mailbox, holding

# Methods of a mesh that compute with its ranks, which are numbers and no tensors of the model.
_MESH = (
    "__init__",
    "__getitem__",
    "_flatten",
    "_unflatten",
    "_get_all_submeshes",
    "get_local_rank",
    "get_coordinate",
)


class UnsimulatedError(Exception):
    """A strategy does what one rank alone cannot do without data and without waiting."""


@contextmanager
def stand_ins(mailbox: Mailbox, world_size: int, meshes: list[DeviceMesh]) -> Iterator[None]:
    """Let everything in this process be rank `mailbox.rank` of so many.

    Args:
        mailbox: of this rank.
        world_size: ranks there are.
        meshes: filled with every mesh that is built.
    """
    kept: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        kept.append((owner, name, vars(owner).get(name, kept)))
        setattr(owner, name, value)

    _put_groups(put, mailbox, world_size)
    _put_meshes(put, meshes)
    put(dist, "Reducer", reducer.Reducer)
    put(dist, "Logger", reducer.Logger)
    put(dist, "_register_comm_hook", reducer.register_hook)
    put(dist, "_broadcast_coalesced", reducer.broadcast_coalesced)
    put(ddp, "_verify_param_shape_across_processes", lambda *_, **__: None)
    put(nn.Module, "_apply", _applied(nn.Module._apply))
    put(FakeTensor, "numpy", array_of)
    put(time, "sleep", lambda _: None)
    starts = (subprocess, "Popen"), (os, "fork"), (BaseProcess, "start"), (launcher, "launch_agent")
    for owner, name in starts:
        put(owner, name, _refuses("it starts processes of its own"))
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for owner, name, value in reversed(kept):
            if value is kept:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _refuses(what: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise UnsimulatedError(what)

    return refuse


def _put_groups(put: Callable[[Any, str, Any], None], mailbox: Mailbox, world_size: int) -> None:
    """Groups that send nothing, whatever backend is asked for."""
    initialise, new_group = dist.init_process_group, dist.new_group

    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        rank, size = mailbox.rank, world_size
        if backend == "fake":
            rank, size = named["rank"], named["world_size"]
        initialise("fake", store=FakeStore(), rank=rank, world_size=size)

    def of_some(*arguments: Any, **named: Any) -> Any:
        named = {k: v for k, v in named.items() if k not in ("backend", "timeout", "pg_options")}
        return new_group(*arguments[:1], **named)

    put(dist, "init_process_group", init_process_group)
    put(dist, "new_group", of_some)
    put(schedules, "_batch_p2p", holding(schedules._batch_p2p))
    for module in (dist, dist.distributed_c10d):
        for name in OBJECT_CALLS:
            put(module, name, getattr(mailbox, name))


def _put_meshes(put: Callable[[Any, str, Any], None], meshes: list[DeviceMesh]) -> None:
    """Meshes that compute with real numbers, and are known to the meter."""
    for name in _MESH:
        own = vars(DeviceMesh).get(name)
        if isinstance(own, types.FunctionType):
            put(DeviceMesh, name, _real(own, meshes if name == "__init__" else None))
    whole = vars(DeviceMesh).get("mesh")
    if isinstance(whole, property) and whole.fget is not None:
        put(DeviceMesh, "mesh", property(_real(whole.fget, None)))


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
    """`nn.Module._apply` with plain fake parameters as with real ones: their data are replaced.

    Torch swaps fake tensors, which weak references to them forbid.
    """

    @wraps(own)
    def apply(module: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        parameters = {k: v for k, v in module._parameters.items() if v is not None}
        swaps = any(is_traceable_wrapper_subclass(one) for one in parameters.values())
        if swaps or any(one.grad is not None for one in parameters.values()):
            return own(module, fn, recurse)
        for child in module.children() if recurse else ():
            child._apply(fn)
        for key, parameter in parameters.items():
            _move(module, key, parameter, fn)
        for key, buffer in module._buffers.items():
            module._buffers[key] = None if buffer is None else fn(buffer)
        return module

    return apply


def _move(module: nn.Module, key: str, parameter: nn.Parameter, fn: Callable[..., Any]) -> None:
    with torch.no_grad():
        moved = fn(parameter)
    if torch._has_compatible_shallow_copy_type(parameter, moved):
        parameter.data = moved
    else:
        module._parameters[key] = nn.Parameter(moved, parameter.requires_grad)

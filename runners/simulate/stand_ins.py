"""What stands for processes, clocks and networks while one rank is simulated.

In: which rank of how many. Out: a context in which torch's process groups send nothing, DDP keeps
its buckets in Python, meshes are built of real numbers, objects of other ranks are taken to equal
those of this one, and nobody sleeps. Objects that one rank sends to another, as stages of a
pipeline do with the shapes that they expect, are kept for the simulation of that other rank.
Everything is put back when it ends.
"""

import os
import subprocess
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._C import _distributed_c10d
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.checkpoint.utils import _DistWrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._fully_shard import _fully_shard as fsdp
from torch.distributed.fsdp._fully_shard._fsdp_init import _get_post_forward_mesh_info
from torch.distributed.launcher import api as launcher
from torch.distributed.pipelining import schedules
from torch.nn.parallel import distributed as ddp
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from runners.simulate import reducer
from runners.simulate.fake_mode import array_of, formatted
from runners.simulate.log import UnsimulatedError

Put = Callable[[Any, str, Any], None]  # lets a name of an owner be something else for now
# Objects that ranks have sent: by source, destination, and how many went before.
Sent = dict[tuple[int, int, int], Any]
_TICK_SECONDS = 1e-7  # every wait for the clock ends

# What a rank without others cannot do, by its owner and name.
_REFUSED = (
    (subprocess, "Popen", "it starts processes of its own"),
    (os, "fork", "it starts processes of its own"),
    (BaseProcess, "start", "it starts processes of its own"),
    (launcher, "launch_agent", "it starts processes of its own"),
    (_distributed_c10d, "_dump_fr_trace_json", "it reads which collectives a real group recorded"),
    (_DistWrapper, "reduce_scatter", "its ranks plan a checkpoint together"),
    (dist, "scatter_object_list", "its ranks send objects to each other"),
)


class NotSentError(BaseException):
    """A rank waits for an object that nobody has sent; no program may take it for its failure."""


@contextmanager
def stand_ins(
    rank: int,
    world_size: int,
    meshes: list[DeviceMesh],
    sent: Sent | None = None,
) -> Iterator[None]:
    """Let everything in this process be one rank.

    Args:
        rank: which.
        world_size: of how many.
        meshes: filled with every mesh that is built.
        sent: objects of all ranks; those of this one are added.
    """
    with ExitStack() as stack:

        def put(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(patch.object(owner, name, value, create=True))

        _put_groups(put, rank, world_size)
        _put_objects(put, rank, {} if sent is None else sent)
        _put_meshes(put, meshes)
        put(dist, "Reducer", reducer.Reducer)
        put(dist, "Logger", reducer.Logger)
        put(dist, "_register_comm_hook", reducer.register_hook)
        put(dist, "_broadcast_coalesced", reducer.broadcast_coalesced)
        put(ddp, "_verify_param_shape_across_processes", lambda *_, **__: None)
        put(nn.Module, "_apply", _applied(nn.Module._apply))
        put(FakeTensor, "numpy", array_of)
        put(FakeTensor, "__format__", formatted)
        put(FakeTensor, "__deepcopy__", _copied)
        for owner, name, reason in _REFUSED:
            put(owner, name, _refuses(reason))
        _put_clock(put)
        try:
            yield
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def _refuses(reason: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        raise UnsimulatedError(reason)

    return refuse


def _put_groups(put: Put, own_rank: int, world_size: int) -> None:
    """Groups that send nothing, whatever backend is asked for."""
    initialise, new_group = dist.init_process_group, dist.new_group

    def init_process_group(backend: str | None = None, *arguments: Any, **named: Any) -> None:
        rank, size = own_rank, world_size
        if backend == "fake":
            rank, size = named["rank"], named["world_size"]
        initialise("fake", store=FakeStore(), rank=rank, world_size=size)

    def of_some(*arguments: Any, **named: Any) -> Any:
        named = {k: v for k, v in named.items() if k not in ("backend", "timeout", "pg_options")}
        return new_group(*arguments[:1], **named)

    put(dist, "init_process_group", init_process_group)
    put(dist, "new_group", of_some)
    put(schedules, "_batch_p2p", _holding(schedules._batch_p2p))


def _put_objects(put: Put, own_rank: int, sent: Sent) -> None:
    """Objects of other ranks: equal to those of this one, or what they have sent."""
    counts: Counter[tuple[int, int]] = Counter()

    def key(source: int, destination: int) -> tuple[int, int, int]:
        counts[source, destination] += 1
        return source, destination, counts[source, destination]

    def send(object_list: list[Any], dst: int, *_: Any, **__: Any) -> None:
        sent[key(own_rank, dst)] = list(object_list)

    def receive(object_list: list[Any], src: int, *_: Any, **__: Any) -> int:
        if (wanted := key(src, own_rank)) not in sent:
            raise NotSentError(f"rank {own_rank} waits for an object of rank {src}")
        object_list[:] = sent[wanted]
        return src

    for module in (dist, dist.distributed_c10d):
        put(module, "all_gather_object", _gathered)
        put(module, "gather_object", _gathered_by_one)
        put(module, "broadcast_object_list", lambda *_, **__: None)  # each keeps its own
        put(module, "send_object_list", send)
        put(module, "recv_object_list", receive)


def _gathered(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Stands for `all_gather_object`: the objects of all ranks are taken to be equal."""
    object_list[:] = [obj] * dist.get_world_size(group)


def _gathered_by_one(
    obj: Any, object_gather_list: list[Any] | None = None, *_: Any, group: Any = None, **__: Any
) -> None:
    """Stands for `gather_object`."""
    if object_gather_list is not None:
        _gathered(object_gather_list, obj, group)


class _HoldingWork:
    """A transfer under way: as gloo's, it holds its tensor for as long as somebody holds it."""

    def __init__(self, work: dist.Work, tensor: torch.Tensor) -> None:
        self._work, self._tensor = work, tensor

    def __getattr__(self, name: str) -> Any:
        """Everything else is the work's own."""
        return getattr(self._work, name)


def _holding(own: Callable[..., list[dist.Work]]) -> Callable[..., list[_HoldingWork]]:
    """A function of pipelining that starts transfers, whose works hold what they transfer."""

    def started(ops: list[dist.P2POp], desc: str | None = None) -> list[_HoldingWork]:
        works = own(ops, desc)
        return [_HoldingWork(work, one.tensor) for work, one in zip(works, ops, strict=True)]

    return started


def _put_clock(put: Put) -> None:
    """A clock that goes on by what is slept: who wakes at a set time sleeps as long as it says."""
    passed = [0.0]

    def slept(seconds: float) -> None:
        passed[0] += seconds

    def clock() -> float:
        passed[0] += _TICK_SECONDS
        return passed[0]

    put(time, "sleep", slept)
    put(time, "perf_counter", clock)


def _copied(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
    """Stands for a copy: of a tensor whose value torch knows, torch copies the real storage."""
    if tensor.constant is None:
        return torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]
    return memo.setdefault(id(tensor), tensor.clone())


def _put_meshes(put: Put, meshes: list[DeviceMesh]) -> None:
    """Meshes that compute with real numbers, and are known to the meter."""
    for name, own in list(vars(DeviceMesh).items()):
        if isinstance(own, types.FunctionType):
            put(DeviceMesh, name, _real(own, meshes if name == "__init__" else None))
    whole = vars(DeviceMesh).get("mesh")
    if isinstance(whole, property) and whole.fget is not None:
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

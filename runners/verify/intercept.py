"""Puts functions in the place of torch's, which call the original and tell a `Watch` of it.

In: a watch. Out: none; `install` replaces torch's functions and hooks for the whole process. Each
function of torch is called once with what it was given, and its value is returned as it is. `Sends`
finds collectives by which a script itself sends values among ranks: reasons why the module of one
process is not known, numbers that ranks add up, and calls that cut the graph.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.distributed import fsdp
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer, lr_scheduler
from torch.optim import optimizer as optimizers

from runners.verify.internals import (
    FUNCTIONAL,
    NEWER,
    TORCH,
    Edge,
    checkpoint_wrapper,
    edge_of,
    functional_collectives,
    group_name,
    in_function,
    is_script,
    multiplies,
    place,
    reducing_group,
)
from runners.verify.losses import KNOWN
from runners.verify.records import Clip, tensors_of

COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "broadcast", "reduce", "gather",
    "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv", "all_reduce_coalesced",
    "barrier", "monitored_barrier", "all_gather_single", "reduce_scatter_single",
)  # fmt: skip
_CHECKPOINT = (
    "use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state",
)  # fmt: skip
_Function = Callable[..., Any]


answers: Iterator[Tensor] = iter(())  # of the forward pass that is being replayed


class CommunicationError(RuntimeError):
    """A module communicates in the replay, where nothing may."""


def _replace(name: str, do: _Function, *owners: Any) -> None:
    """Let `do` stand in the place of one function, which it is given first, in all owners."""
    original = getattr(owners[0], name, None)
    if original is None:  # `internals.LACKING` says so
        return

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return do(original, *args, **kwargs)

    for owner in owners:  # the same function, since torch compares them
        setattr(owner, name, call)


def _told(tell: _Function) -> _Function:
    """Tells of the arguments, then calls the original."""

    def do(original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        tell(*args, **kwargs)
        return original(*args, **kwargs)

    return do


def _leaves(pid: int, original: _Function, code: int) -> None:
    """A script that ends its process at once ends as others do, since it is still compared."""
    is_main = os.getpid() == pid and threading.current_thread() is threading.main_thread()
    if is_main and is_script(_caller()):
        raise SystemExit(code)
    original(code)


def _caller() -> FrameType:
    """The frame that called a replaced function, for one that stands in its place."""
    return sys._getframe(3)


def _holders(name: str, home: Any = dist) -> list[Any]:
    """The modules of torch.distributed that hold one of its functions, under its own name."""
    original = getattr(home, name)
    known = [one for path, one in [*sys.modules.items()] if path.startswith("torch.distributed")]
    return [one for one in known if vars(one).get(name) is original]


def is_number(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ranks add up a number that has no gradient: a count, or what a script logs."""
    one = args[0] if args else kwargs.get("tensor")
    is_single = isinstance(one, Tensor) and one.numel() == 1 and not one.requires_grad
    return name == "all_reduce" and is_single and not kwargs.get("async_op")


def _recorded(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """In a replay: the number that the script's collective has had.

    Raises:
        CommunicationError: any other collective.
    """
    if "barrier" in name:
        return
    answer = next(answers, None) if is_number(name, args, kwargs) else None
    if answer is None:
        raise CommunicationError(name)
    (args[0] if args else kwargs["tensor"]).copy_(answer)


def _of_call(name: str, given: Sequence[Any]) -> tuple[str, int]:
    """The process group of a collective, and the number of elements that ranks have alike."""
    if "send" in name or "recv" in name:
        return "", 0
    first = given[0] if given and "all_to_all" not in name else None
    first = next(iter(first), None) if isinstance(first, list | tuple) else first
    return group_name(given), first.numel() if isinstance(first, Tensor) else 0


class Registered(functools.partial[Any]):
    """A method of an FSDP module that runs as a forward pass does, in place of the class's own."""


class Interceptor:
    """Replaces functions.

    Args:
        watch: a `Watch`, which is told what happens.
    """

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._answers: dict[tuple[Any, ...], Any] = {}

    def install(self) -> None:
        """Replace them all."""
        watch, part = self._watch, functools.partial
        _replace("__call__", self._called, nn.Module)
        _replace("backward", self._backward, torch.autograd)
        wraps = _told(lambda _, module, *__, **___: watch.wraps(module))
        _replace("__init__", wraps, DistributedDataParallel)
        for name in KNOWN:
            _replace(name, part(watch.losses.called, name), nn.functional)
        for owner in (torch, Tensor):  # one does not call the other
            _replace("log_softmax", self._log_softmax, owner)
        for name in filter(functools.partial(hasattr, dist), COLLECTIVES):
            _replace(name, part(self._collective, name), *_holders(name))
        for name in ("is_initialized", "get_rank", "get_world_size"):
            _replace(name, part(self._answered, name), dist, dist.distributed_c10d)
        for name in filter(
            functools.partial(hasattr, functional_collectives), (*FUNCTIONAL, *NEWER)
        ):
            _replace(name, part(self._collective, name), functional_collectives)
        method = "register_fsdp_forward_method"
        _replace(method, self._registered, *_holders(method, fsdp))
        _replace("load", self._loaded, torch, torch.serialization)
        _replace("read_metadata", self._loaded, FileSystemReader)
        _replace("_exit", functools.partial(_leaves, os.getpid()), os)
        _replace("compile", self._compiled, torch)
        _replace("compile", self._compiled, nn.Module)
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            _replace(name, part(self._clipped, name), nn.utils, nn.utils.clip_grad)
        _replace("unscale_", _told(watch.unscales), torch.amp.GradScaler)
        _replace("checkpoint", self._checkpointed, torch.utils.checkpoint)
        _replace("torch_utils_checkpoint", self._checkpointed, checkpoint_wrapper)
        zeroed = _told(lambda *_, **__: watch.zeroes())
        _replace("zero_grad", zeroed, Optimizer)
        _replace("zero_grad", zeroed, nn.Module)
        _replace("step", self._scheduled, lr_scheduler.LRScheduler)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(lambda one, *_: watch.stepped(one))

    def install_of_stages(self, kind: type) -> None:
        """Replace those of a pipeline's stage, which reduces and scales its gradients itself."""
        if not hasattr(kind.perform_reduce_grad, "__wrapped__"):  # type: ignore[attr-defined]
            _replace("perform_reduce_grad", self._reduced, kind)
            splits = _told(lambda *_, **__: self._watch.splits_backward())
            _replace("backward_weight_one_chunk", splits, kind)

    def _reduced(self, original: _Function, /, *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        self._watch.stage_reduced()

    def _called(self, original: _Function, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        watch, begun = self._watch, None
        if not watch.depth:
            if torch.is_grad_enabled():
                method = original.__name__ if original.__name__ in vars(module) else ""
                begun = watch.begins(module, args, kwargs, method)
            else:
                watch.looks(module)
        if begun is None:
            return original(module, *args, **kwargs)
        watch.depth += 1
        try:
            value = original(module, *args, **kwargs)
        finally:
            watch.depth -= 1
        watch.ends(*begun, value)
        return value

    def _registered(self, original: _Function, /, module: nn.Module, name: str) -> None:
        original(module, name)
        if isinstance(module, fsdp.FSDPModule):
            setattr(module, name, Registered(self._called, getattr(module, name).__func__, module))

    def _loaded(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        value = original(*args, **kwargs)
        self._watch.loads(value)
        return value

    def _backward(self, original: _Function, /, tensors: Any, *args: Any, **kwargs: Any) -> None:
        watch = self._watch
        groups = (reducing_group(one.wrapper) for one in watch.roots.values())
        watch.sends.tells("backward", next(filter(None, groups), ""))
        if not watch.is_on and not watch.in_backward:
            original(tensors, *args, **kwargs)
            return
        given = [tensors] if isinstance(tensors, Tensor | GradientEdge) else list(tensors)
        watch.backward_begins([edge_of(one) for one in given])
        watch.in_backward += 1
        try:
            original(tensors, *args, **kwargs)
        finally:
            watch.in_backward -= 1
        if not watch.in_backward:
            watch.backward_ends()

    def _checkpointed(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        seen = self._watch.seen
        if self._watch.is_replaying:
            kept = {name: one for name, one in kwargs.items() if name not in _CHECKPOINT}
            return args[0](*args[1:], **kept)
        if kwargs.get("preserve_rng_state") is False:
            seen.unpreserved = seen.unpreserved or place()
        return original(*args, **kwargs)

    def _log_softmax(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """Only inside `loss_parallel` do ranks hold parts of its classes."""
        value = original(*args, **kwargs)
        axis = args[1] if len(args) > 1 else kwargs["dim"]
        has_parts = isinstance(value, DTensor) and value.placements
        if has_parts and any(one.is_shard(axis % value.dim()) for one in value.placements):
            at = f"log_softmax ({place()}) inside loss_parallel (pytorch/pytorch#190746)"
            self._watch.refuse(at)
        return value

    def _clipped(self, name: str, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        if not self._watch.is_on:
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        given, limit = list(bound.arguments.values())[:2]
        given = [given] if isinstance(given, Tensor) else list(given)
        bound.arguments["parameters"] = given
        self._watch.capture()
        total = original(*bound.args, **bound.kwargs)
        norm_type = float(bound.arguments.get("norm_type", 2.0))
        self._watch.clips(Clip(name, float(limit), norm_type, None, [], place()), given, total)
        return total

    def _scheduled(self, original: _Function, scheduler: Any, /, *args: Any, **kwargs: Any) -> Any:
        code = _caller().f_code  # accelerate steps once for each rank, and means it
        if code.co_name != "_initial_step" and "accelerate" not in code.co_filename:
            self._watch.schedules(scheduler)
        return original(scheduler, *args, **kwargs)

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Look at the gradients; after the closure, where the step is given one."""
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._watch.steps_with(optimizer)
            return None

        def followed() -> Any:
            value = closure()
            self._watch.steps_with(optimizer)
            return value

        others = {name: one for name, one in kwargs.items() if name != "closure"}
        return (args[0], followed, *args[2:]), others

    def _compiled(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """What a script compiles runs eagerly, since our functions cannot be traced."""
        if _caller().f_code.co_filename.startswith(TORCH):
            return original(*args, **kwargs)
        self._watch.seen.eager = self._watch.seen.eager or place()
        model = args[0] if args else kwargs.get("model")
        if isinstance(model, nn.Module):
            model.__dict__["_orig_mod"] = model  # as scripts call what a compiled one wraps
        return model or (lambda one: one)

    def _answered(self, name: str, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """A forward pass gets in the replay the answers that it has had."""
        key = (name, *map(id, args), *map(id, kwargs.values()))
        if self._watch.is_replaying and key in self._answers:
            return self._answers[key]
        value = original(*args, **kwargs)
        if self._watch.depth:
            self._answers[key] = value
        return value

    def _collective(self, name: str, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        if self._watch.is_replaying:
            return _recorded(name, args, kwargs)
        caller = _caller()
        self._watch.sends.begins(caller, name, args, kwargs)
        value = original(*args, **kwargs)
        self._watch.sends.ended(caller, name, args, kwargs)
        return value


_BY_HAND = (
    "it is divided among ranks by hand ({} sends activations); the module of one process is not "
    "known"
)
_IN_LOSS = "{} is a part of the loss, so only the whole can be compared (`--one`)"
INSIDE = " (`--against` can name it; `--one` may do without)"  # ends a reason inside the module


class Sends:
    """Of the update that is recorded.

    Args:
        watch: a `Watch`, which knows what runs.

    Attributes:
        on_call: given what is about to be called, its process group, its size, and the line.
        reasons: why the module of one process is not known, since the last update of a root began:
            a place, and what it says.
        gathered: values without a graph, by the call that cut it, since the last backward pass.
    """

    on_call: Callable[[str, str, int, str], None] | None = None

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self.reasons: list[tuple[str, str]] = []
        self.gathered: dict[str, list[Tensor]] = {}

    def tells(self, name: str, group: str = "", size: int = 0) -> None:
        """A function that communicates is about to be called; a rank may end in it."""
        if self.on_call is not None:
            self.on_call(name, group, size, place())

    def begins(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """A collective begins: does the script send activations itself?"""
        watch, file = self._watch, caller.f_code.co_filename
        self.tells(name, *_of_call(name, [*args, *kwargs.values()]))
        if not watch.is_on or "barrier" in name:
            return
        is_norm = file.endswith("modules/_functions.py")  # of SyncBatchNorm
        if file.startswith(TORCH) and "distributed/nn" not in file and not is_norm:
            return
        given = tensors_of((args, kwargs))
        has_graph = any(one.requires_grad and one.numel() > 1 for one in given)
        is_inside = bool(watch.depth) or name.endswith("_autograd") or in_function(caller)
        sends = is_inside or has_graph or "send" in name or "recv" in name
        if not is_norm and (is_number(name, args, kwargs) or not sends):
            return
        is_cut = is_script(caller) and not in_function(caller) and "autograd" not in name
        if has_graph and is_cut:
            watch.seen.cuts.append(f"{place()} ({name})")
            self.gathered[watch.seen.cuts[-1]] = [one for one in given if not one.requires_grad]
        is_transfer = "send" in name or "recv" in name
        says = _IN_LOSS if not is_transfer else _BY_HAND
        self.reasons.append((f"{place()} ({name})", says if watch.is_idle else _BY_HAND + INSIDE))

    def enters(self, given: Any) -> None:
        """A module is called: what it is given has been sent before the loss."""
        if any(one.requires_grad for one in tensors_of(given)):
            self.reasons = [(at, says.replace(_IN_LOSS, _BY_HAND)) for at, says in self.reasons]

    def lose(self, start: Sequence[Edge], outputs: Collection[int]) -> None:
        """A backward pass begins: does the loss multiply by values that were gathered so?"""
        lost = (one for one, parts in self.gathered.items() if multiplies(start, outputs, parts))
        self._watch.seen.lost += [one for one in lost if one not in self._watch.seen.lost]

    def ended(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """A collective has ended: between forward and backward it may bring values of others."""
        watch = self._watch
        if not watch.is_on:
            return
        if watch.depth and is_number(name, args, kwargs):
            watch.present.numbers.append(tensors_of((args, kwargs))[0].detach().clone())
        if not watch.is_idle or not is_script(caller):
            return
        given = [one for one in tensors_of((args, kwargs)) if one.is_floating_point()]
        for root in (one for one in watch.roots.values() if not one.stepped):
            is_between = any(one.backward is None for one in root.update.forwards)
            if is_between and any(one.numel() > 1 for one in given):
                says = "values of other ranks, which no gradient reaches, may enter the loss ({}, "
                says += f"{name} between forward and backward; `--one` compares it)"
                self.reasons.append((place(), says))
            elif root.done and name == "all_reduce":
                root.update.sums += [
                    (place(), one.detach() if kwargs.get("async_op") else one.detach().clone())
                    for one in given if one.numel() == 1
                ]  # fmt: skip

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
    OWN,
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
    "all_reduce all_gather all_gather_into_tensor all_gather_single reduce_scatter "
    "reduce_scatter_tensor reduce_scatter_single all_to_all all_to_all_single broadcast reduce "
    "gather scatter send recv isend irecv batch_isend_irecv all_reduce_coalesced barrier "
    "monitored_barrier"
)
_Function = Callable[..., Any]

answers: Iterator[Tensor] = iter(())  # of the forward pass that is being replayed


class CommunicationError(RuntimeError):
    """A module communicates in the replay, where nothing may."""


def _replace(name: str, do: _Function, *owners: Any) -> None:
    """Let `do` stand in the place of one function, which it is given first.

    Args:
        name: of the function.
        do: is called instead.
        owners: that hold it, beside all modules of torch that hold it under this name.
    """
    original = getattr(owners[0], name, None)
    if original is None:  # `internals.LACKING` says so
        return

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return do(original, *args, **kwargs)

    known = [one for path, one in [*sys.modules.items()] if path.startswith("torch")]
    holders = [one for one in known if vars(one).get(name) is original]
    for owner in (*owners, *holders):  # the same function, since torch compares them
        setattr(owner, name, call)


def _told(tell: _Function, *, is_after: bool = False) -> _Function:
    """Calls the original, and tells of its arguments before, or of its value after it."""

    def do(original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        if not is_after:
            tell(*args, **kwargs)
        value = original(*args, **kwargs)
        if is_after:
            tell(value)
        return value

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
        raise CommunicationError(f"{name} in a forward pass")
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
        wraps = _told(lambda _, module, *__, **___: watch.wraps(module))
        zeroes = _told(lambda *_, **__: watch.zeroes())
        named = (
            (COLLECTIVES, self._collective, dist),
            (f"{FUNCTIONAL} {NEWER}", self._collective, functional_collectives),
            (" ".join(KNOWN), watch.losses.called, nn.functional),
            ("clip_grad_norm_ clip_grad_value_", self._clipped, nn.utils),
            ("is_initialized get_rank get_world_size", self._answered, dist),
        )
        replaced: list[tuple[str, _Function, Any]] = [
            *((name, part(do, name), one) for names, do, one in named for name in names.split()),
            ("__call__", self._called, nn.Module),
            ("backward", self._backward, torch.autograd),
            ("__init__", wraps, DistributedDataParallel),
            ("log_softmax", self._log_softmax, torch),
            ("log_softmax", self._log_softmax, Tensor),  # neither calls the other
            ("register_fsdp_forward_method", self._registered, fsdp),
            ("load", _told(watch.loads, is_after=True), torch),
            ("read_metadata", _told(watch.loads, is_after=True), FileSystemReader),
            ("_exit", part(_leaves, os.getpid()), os),
            ("compile", self._compiled, torch),
            ("compile", self._compiled, nn.Module),
            ("unscale_", _told(watch.unscales), torch.amp.GradScaler),
            ("checkpoint", self._checkpointed, torch.utils.checkpoint),
            ("torch_utils_checkpoint", self._checkpointed, checkpoint_wrapper),
            ("zero_grad", zeroes, Optimizer),
            ("zero_grad", zeroes, nn.Module),
            ("step", self._scheduled, lr_scheduler.LRScheduler),
        ]
        for name, do, owner in replaced:
            _replace(name, do, owner)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(lambda one, *_: watch.stepped(one))

    def install_of_stages(self, kind: type) -> None:
        """Replace those of a pipeline's stage, which reduces and scales its gradients itself."""
        watch = self._watch
        if not hasattr(kind.perform_reduce_grad, "__wrapped__"):  # type: ignore[attr-defined]
            reduced = _told(lambda _: watch.stage_reduced(), is_after=True)
            _replace("perform_reduce_grad", reduced, kind)
            splits = _told(lambda *_, **__: watch.splits_backward())
            _replace("backward_weight_one_chunk", splits, kind)

    def _called(self, original: _Function, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        watch, begun = self._watch, None
        if not watch.depth and torch.is_grad_enabled():
            method = original.__name__ if original.__name__ in vars(module) else ""
            begun = watch.begins(module, args, kwargs, method)
        elif not watch.depth:
            watch.looks(module)
        watch.depth += begun is not None
        try:
            value = original(module, *args, **kwargs)
        finally:
            watch.depth -= begun is not None
        if begun is not None:
            watch.ends(*begun, value)
        return value

    def _registered(self, original: _Function, /, module: nn.Module, name: str) -> None:
        original(module, name)
        if isinstance(module, fsdp.FSDPModule):
            setattr(module, name, Registered(self._called, getattr(module, name).__func__, module))

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
            own = {*inspect.signature(original).parameters, "preserve_rng_state"}
            return args[0](*args[1:], **{n: one for n, one in kwargs.items() if n not in own})
        if kwargs.get("preserve_rng_state") is False:
            seen.unpreserved = seen.unpreserved or place()
        return original(*args, **kwargs)

    def _log_softmax(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """Only inside `loss_parallel` do ranks hold parts of its classes."""
        value = original(*args, **kwargs)
        parts = value.placements if isinstance(value, DTensor) else ()
        axis = args[1] if len(args) > 1 else kwargs["dim"]
        if any(one.is_shard(axis % value.dim()) for one in parts):
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
        if closure is None:
            self._watch.steps_with(optimizer)
            return None

        def followed() -> Any:
            value = closure()
            self._watch.steps_with(optimizer)
            return value

        return args[:1], {**kwargs, "closure": followed}

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
        if caller.f_code.co_filename.startswith(OWN):  # it was told (`cpu`)
            return original(*args, **kwargs)
        self._watch.sends.begins(caller, name, args, kwargs)
        value = original(*args, **kwargs)
        self._watch.sends.ended(caller, name, args, kwargs)
        return value


# Ends a reason inside the module.
INSIDE = " (name it with `--against`, or compare the whole script with `--one`)"


class Sends:
    """Of the update that is recorded.

    Args:
        watch: a `Watch`, which knows what runs.

    Attributes:
        on_call: given what is about to be called, its process group, its size, and the line.
        reasons: why the module of one process is not known, since the last update of a root began.
        gathered: values without a graph, by the call that cut it, since the last backward pass.
    """

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self.on_call: Callable[[str, str, int, str], None] = lambda *_: None
        self.reasons: list[str] = []
        self.gathered: dict[str, list[Tensor]] = {}

    def tells(self, name: str, group: str = "", size: int = 0) -> None:
        """A function that communicates is about to be called; a rank may end in it."""
        self.on_call(name, group, size, place())

    def begins(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """A collective begins: does the script send activations itself?"""
        watch, file = self._watch, caller.f_code.co_filename
        self.tells(name, *_of_call(name, [*args, *kwargs.values()]))
        is_torch = file.startswith(TORCH) and "distributed/nn" not in file
        if not watch.is_on or "barrier" in name or is_torch or is_number(name, args, kwargs):
            return
        at, given = f"{place()} ({name})", tensors_of((args, kwargs))
        is_transfer = "send" in name or "recv" in name
        is_own = "autograd" in name or in_function(caller)  # it has a gradient of its own
        has_graph = any(one.requires_grad and one.numel() > 1 for one in given)
        if not (watch.depth or is_own or has_graph or is_transfer):
            return
        if has_graph and is_script(caller) and not is_own:
            watch.seen.cuts.append(at)
            self.gathered[at] = [one for one in given if not one.requires_grad]
        says = f"it is divided among ranks by hand ({at} sends activations); the module of one "
        says += "process is not known"
        if not watch.is_idle:
            says += INSIDE
        elif not is_transfer:
            says = f"{at} sends what a module computed: it is divided among ranks by hand, or that "
            says += "is a part of the loss (`--one` compares the whole)"
        self.reasons.append(says)

    def lose(self, start: Sequence[Edge], outputs: Collection[int]) -> None:
        """A backward pass begins: does the loss multiply by values that were gathered so?"""
        held, lost = self.gathered.items(), self._watch.seen.lost
        lost += [at for at, one in held if at not in lost and multiplies(start, outputs, one)]

    def ended(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """A collective has ended: between forward and backward it may bring values of others."""
        watch = self._watch
        if not watch.is_on:
            return
        given = tensors_of((args, kwargs))
        if watch.depth and is_number(name, args, kwargs):
            watch.present.numbers.append(given[0].detach().clone())
        if not watch.is_idle or not is_script(caller):
            return
        sizes = [one.numel() for one in given if one.is_floating_point()]
        for root in (one for one in watch.roots.values() if not one.stepped):
            is_between = any(one.backward is None for one in root.update.forwards)
            if is_between and any(size > 1 for size in sizes):
                self.reasons.append(
                    "values of other ranks, which no gradient reaches, may enter the loss "
                    f"({place()}, {name} between forward and backward; `--one` compares it)"
                )
            elif root.done and name == "all_reduce" and sizes == [1]:
                number = given[0].detach()
                root.sums((place(), number if kwargs.get("async_op") else number.clone()))

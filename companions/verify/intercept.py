"""Replaces functions of torch by wrappers that call the original and notify a `Watch`.

In: a watch. Out: none; `install` replaces torch's functions and hooks for the whole process. Each
function of torch is called once with its arguments, and its value is returned as it is.
`ScriptCollectives` records collectives by which a script itself sends values among ranks: reasons
why the module of one process is not known, numbers that ranks add up, and calls that cut the graph.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
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

from proofbook.companions.verify import internals
from proofbook.companions.verify.internals import TORCH, is_script, multiplies, place
from proofbook.companions.verify.losses import KNOWN
from proofbook.companions.verify.records import Clip, tensors_of

COLLECTIVES = (
    "all_reduce all_gather all_gather_into_tensor all_gather_single reduce_scatter "
    "reduce_scatter_tensor reduce_scatter_single all_to_all all_to_all_single broadcast reduce "
    "gather scatter send recv isend irecv batch_isend_irecv all_reduce_coalesced barrier "
    "monitored_barrier"
)
_Function = Callable[..., Any]

recorded_sums: Iterator[Tensor] = iter(())  # of the forward pass that is being replayed


class CommunicationError(RuntimeError):
    """A module calls a collective in the replay, where there is none to call."""


def torch_modules(names: Collection[str]) -> dict[str, list[ModuleType]]:
    """By name, the loaded modules of torch that have something of this name."""
    wanted, found = set(names), dict[str, list[ModuleType]]()
    for path, module in [*sys.modules.items()]:
        if path.startswith("torch"):
            for name in vars(module).keys() & wanted:
                found.setdefault(name, []).append(module)
    return found


def replace(
    name: str,
    do: _Function,
    *owners: Any,
    modules: Mapping[str, Sequence[ModuleType]] | None = None,
) -> None:
    """Replace the function `name` of owners and torch's modules by `do(original, *arguments)`.

    `modules` are the `torch_modules` with that name, where they are known.
    """
    original = getattr(owners[0], name, None)
    if original is None:  # `internals.LACKING` says so
        return

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return do(original, *args, **kwargs)

    named = (torch_modules([name]) if modules is None else modules).get(name, ())
    holders = [module for module in named if vars(module)[name] is original]
    for owner in (*owners, *holders):  # the same function, since torch compares them
        setattr(owner, name, call)


def _notifying(notify: _Function, *, is_after: bool = False) -> _Function:
    """A wrapper that notifies of the arguments before the call, or of the value after it."""

    def do(original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        if not is_after:
            notify(*args, **kwargs)
        value = original(*args, **kwargs)
        if is_after:
            notify(value)
        return value

    return do


def _exit(pid: int, original: _Function, code: int) -> None:
    """Raise SystemExit where the script calls `os._exit`, since it is still compared."""
    is_main = os.getpid() == pid and threading.current_thread() is threading.main_thread()
    if is_main and is_script(_caller()):
        raise SystemExit(code)
    original(code)


def _caller() -> FrameType:
    """The frame that called a replaced function; for its wrapper."""
    return sys._getframe(3)


def is_number(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether ranks add up a number that has no gradient: a count, or one that a script logs."""
    tensor = args[0] if args else kwargs.get("tensor")
    is_single = isinstance(tensor, Tensor) and tensor.numel() == 1 and not tensor.requires_grad
    return name == "all_reduce" and is_single and not kwargs.get("async_op")


def _replay_collective(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Give a number the recorded sum; a barrier does nothing, any other collective raises."""
    if "barrier" in name:
        return
    number = next(recorded_sums, None) if is_number(name, args, kwargs) else None
    if number is None:
        raise CommunicationError(f"{name} in a forward pass")
    (args[0] if args else kwargs["tensor"]).copy_(number)


def _group_and_size(name: str, arguments: Sequence[Any]) -> tuple[str, int]:
    """The process group of a collective, and the number of elements that ranks have alike."""
    if "send" in name or "recv" in name:
        return "", 0
    first = arguments[0] if arguments and "all_to_all" not in name else None
    first = next(iter(first), None) if isinstance(first, list | tuple) else first
    return internals.group_name(arguments), first.numel() if isinstance(first, Tensor) else 0


class Registered(functools.partial[Any]):
    """A method of one FSDP module, which runs as a forward pass does."""


class Interceptor:
    """Replaces functions of torch, and notifies a `Watch` of their calls."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._rank_queries: dict[tuple[Any, ...], Any] = {}

    def install(self) -> None:
        """Wrap torch's collectives, losses, modules, backward and steps to notify the watch."""
        watch, part = self._watch, functools.partial
        zeroed = _notifying(lambda *_, **__: watch.before_zero_grad())
        read = _notifying(watch.resume.checkpoint_read, is_after=True)
        functional = f"{internals.FUNCTIONAL} {internals.NEWER}"
        named = (
            (COLLECTIVES, self._collective, dist),
            (functional, self._collective, internals.functional_collectives),
            (" ".join(KNOWN), watch.losses.call, nn.functional),
            ("clip_grad_norm_ clip_grad_value_", self._clip, nn.utils),
            ("is_initialized get_rank get_world_size", self._query_rank, dist),
        )
        replaced: list[tuple[str, _Function, Any]] = [
            *(
                (name, part(do, name), owner)
                for names, do, owner in named for name in names.split()
            ),
            ("__call__", self._call_module, nn.Module),
            ("backward", self._backward, torch.autograd),
            ("__init__", _notifying(lambda _, module, *__, **___: watch.before_ddp(module)),
             DistributedDataParallel),
            ("log_softmax", self._log_softmax, torch),
            ("log_softmax", self._log_softmax, Tensor),  # neither calls the other
            ("register_fsdp_forward_method", self._register, fsdp),
            ("load", read, torch),
            ("read_metadata", read, FileSystemReader),
            ("_exit", part(_exit, os.getpid()), os),
            ("compile", self._compile, torch),
            ("compile", self._compile, nn.Module),
            ("to_local", self._to_local, DTensor),
            ("unscale_", _notifying(watch.before_unscale), torch.amp.GradScaler),
            ("scale", _notifying(watch.loss_is_scaled), torch.amp.GradScaler),
            ("checkpoint", self._checkpoint, torch.utils.checkpoint),
            ("torch_utils_checkpoint", self._checkpoint, internals.checkpoint_wrapper),
            ("zero_grad", zeroed, Optimizer),
            ("zero_grad", zeroed, nn.Module),
            ("step", self._step_scheduler, lr_scheduler.LRScheduler),
        ]  # fmt: skip
        modules = torch_modules([name for name, *_ in replaced])  # a search for each takes longer
        for name, do, owner in replaced:
            replace(name, do, owner, modules=modules)
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(lambda own, *_: watch.after_step(own))

    def install_of_stages(self, kind: type) -> None:
        """Wrap reduction and split backward in a stage's class, once, to notify the watch."""
        watch = self._watch
        if not hasattr(kind.perform_reduce_grad, "__wrapped__"):  # type: ignore[attr-defined]
            reduced = _notifying(lambda _: watch.stage_reduced(), is_after=True)
            replace("perform_reduce_grad", reduced, kind)
            splits = _notifying(lambda *_, **__: watch.backward_is_split())
            replace("backward_weight_one_chunk", splits, kind)

    def _call_module(
        self, original: _Function, module: nn.Module, /, *args: Any, **kwargs: Any
    ) -> Any:
        watch, begun = self._watch, None
        if not watch.depth and torch.is_grad_enabled():
            method = original.__name__ if original.__name__ in vars(module) else ""
            begun = watch.forward_begins(module, args, kwargs, method)
        elif not watch.depth:
            watch.record_without_grad(module)
        watch.depth += begun is not None
        try:
            value = original(module, *args, **kwargs)
        finally:
            watch.depth -= begun is not None
        if begun is not None:
            watch.forward_ends(*begun, value)
        return value

    def _register(self, original: _Function, /, module: nn.Module, name: str) -> None:
        original(module, name)
        if isinstance(module, fsdp.FSDPModule):
            method = getattr(module, name).__func__
            setattr(module, name, Registered(self._call_module, method, module))

    def _backward(self, original: _Function, /, tensors: Any, *args: Any, **kwargs: Any) -> None:
        watch = self._watch
        groups = (internals.reducing_group(root.wrapper) for root in watch.roots.values())
        watch.collectives.announce("backward", next(filter(None, groups), ""))
        if not watch.is_recording and not watch.in_backward:
            original(tensors, *args, **kwargs)
            return
        starts = [tensors] if isinstance(tensors, Tensor | GradientEdge) else list(tensors)
        watch.backward_begins(list(map(internals.edge_of, starts)))
        watch.in_backward += 1
        try:
            original(tensors, *args, **kwargs)
        finally:
            watch.in_backward -= 1
        if not watch.in_backward:
            watch.backward_ends()

    def _checkpoint(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """Call a checkpointed function in the replay without recomputation."""
        recording = self._watch.recording
        if self._watch.is_replaying:
            own = {*inspect.signature(original).parameters, "preserve_rng_state"}
            return args[0](*args[1:], **{n: v for n, v in kwargs.items() if n not in own})
        if kwargs.get("preserve_rng_state") is False:
            recording.unpreserved = recording.unpreserved or place()
        return original(*args, **kwargs)

    def _log_softmax(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """Refuse a log-softmax over sharded classes, as inside `loss_parallel`."""
        value = original(*args, **kwargs)
        placements = value.placements if isinstance(value, DTensor) else ()
        axis = args[1] if len(args) > 1 else kwargs["dim"]
        if any(placement.is_shard(axis % value.dim()) for placement in placements):
            at = f"log_softmax ({place()}) inside loss_parallel (pytorch/pytorch#190746)"
            self._watch.refuse(at)
        return value

    def _to_local(self, original: _Function, /, tensor: DTensor, *args: Any, **kwargs: Any) -> Any:
        part = original(tensor, *args, **kwargs)
        if is_script(caller := _caller()):
            in_step = isinstance(caller.f_locals.get("self"), Optimizer)
            self._watch.part_is_read(tensor, part, in_step=in_step)
        return part

    def _clip(self, name: str, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        if not self._watch.is_recording:
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        parameters, limit = list(bound.arguments.values())[:2]
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        bound.arguments["parameters"] = parameters
        self._watch.keep_gradients()
        total = original(*bound.args, **bound.kwargs)
        norm_type = float(bound.arguments.get("norm_type", 2.0))
        clip = Clip(name, float(limit), norm_type, None, [], place())
        self._watch.gradients_clipped(clip, parameters, total)
        return total

    def _step_scheduler(
        self, original: _Function, scheduler: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        code = _caller().f_code  # accelerate steps once for each rank, and means it
        if code.co_name != "_initial_step" and "accelerate" not in code.co_filename:
            is_part = code.co_filename.endswith("lr_scheduler.py")  # of a sequence of schedules
            self._watch.resume.scheduler_steps(scheduler, is_part=is_part)
        return original(scheduler, *args, **kwargs)

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Notify of an optimizer's step before it; if the step has a closure, after the closure."""
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if closure is None:
            self._watch.before_step(optimizer)
            return None

        def followed() -> Any:
            value = closure()
            self._watch.before_step(optimizer)
            return value

        return args[:1], {**kwargs, "closure": followed}

    def _compile(self, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """Return a model uncompiled, since our functions cannot be traced."""
        if _caller().f_code.co_filename.startswith(TORCH):
            return original(*args, **kwargs)
        self._watch.recording.eager = self._watch.recording.eager or place()
        model = args[0] if args else kwargs.get("model")
        if isinstance(model, nn.Module):
            model.__dict__["_orig_mod"] = model  # as scripts call what a compiled one wraps
        return model or (lambda function: function)

    def _query_rank(self, name: str, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        """Answer a query of rank or world size; in the replay, as in the recorded forward pass."""
        key = (name, *map(id, args), *map(id, kwargs.values()))
        if self._watch.is_replaying and key in self._rank_queries:
            return self._rank_queries[key]
        value = original(*args, **kwargs)
        if self._watch.depth:
            self._rank_queries[key] = value
        return value

    def _collective(self, name: str, original: _Function, /, *args: Any, **kwargs: Any) -> Any:
        if self._watch.is_replaying:
            return _replay_collective(name, args, kwargs)
        caller = _caller()
        if caller.f_code.co_filename.startswith(
            internals.OWN
        ):  # which is announced already (`cpu`)
            return original(*args, **kwargs)
        self._watch.collectives.begins(caller, name, args, kwargs)
        value = original(*args, **kwargs)
        self._watch.collectives.ended(caller, name, args, kwargs)
        return value


# Ends a reason inside the module.
INSIDE = " (name it with `--against`, or compare the whole script with `--one`)"


class ScriptCollectives:
    """Collectives of the script in the update that is recorded."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        # Called before a collective with its name, process group, size, and line.
        self.on_call: Callable[[str, str, int, str], None] = lambda *_: None
        self.reasons: list[str] = []  # why the module of one process is not known, in this update
        self.gathered: dict[str, list[Tensor]] = {}  # without a graph, by the call that cut it

    def announce(self, name: str, group: str = "", size: int = 0) -> None:
        """Announce a function that communicates, before its call: a rank may end in it."""
        self.on_call(name, group, size, place())

    def begins(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """Announce a collective before its call; note why, if it divides a module by hand."""
        watch, file = self._watch, caller.f_code.co_filename
        group, size = _group_and_size(name, [*args, *kwargs.values()])
        self.announce(name, group, size)
        is_torch = file.startswith(TORCH) and "distributed/nn" not in file
        if not watch.is_recording or "barrier" in name or is_torch or is_number(name, args, kwargs):
            return
        at, tensors = f"{place()} ({name})", tensors_of((args, kwargs))
        is_transfer = "send" in name or "recv" in name
        is_own = "autograd" in name or internals.in_function(caller)  # it has a gradient of its own
        has_graph = any(tensor.requires_grad and tensor.numel() > 1 for tensor in tensors)
        if not (watch.depth or is_own or has_graph or is_transfer):
            return
        if watch.depth and group and not watch.forward.group:
            watch.forward.group = internals.ranks_of(group)
        if has_graph and is_script(caller) and not is_own:
            watch.recording.cuts.append(at)
            self.gathered[at] = [tensor for tensor in tensors if not tensor.requires_grad]
        says = f"it is divided among ranks by hand ({at} sends activations); the module of one "
        says += "process is not known"
        if not watch.is_idle:
            says += INSIDE
        elif not is_transfer:
            says = f"{at} sends what a module computed: it is divided among ranks by hand, or that "
            says += "is a part of the loss (`--one` compares the whole)"
        self.reasons.append(says)

    def find_lost(self, start: Sequence[internals.Edge], outputs: Collection[int]) -> None:
        """Record the calls whose gathered values, without a graph, the loss multiplies by."""
        gathered, lost = self.gathered.items(), self._watch.recording.lost
        lost += [at for at, own in gathered if at not in lost and multiplies(start, outputs, own)]

    def ended(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """After its call, keep the number a collective sums, or note values that enter a loss."""
        watch = self._watch
        if not watch.is_recording:
            return
        tensors = tensors_of((args, kwargs))
        watch.parts_are_sent({tensor.data_ptr() for tensor in tensors})
        if watch.depth and is_number(name, args, kwargs):
            watch.forward.numbers.append(tensors[0].detach().clone())
        if not watch.is_idle or not is_script(caller):
            return
        sizes = [tensor.numel() for tensor in tensors if tensor.is_floating_point()]
        for root in watch.roots.values():
            if root.stepped:
                continue
            is_between = any(forward.backward is None for forward in root.update.forwards)
            if is_between and any(size > 1 for size in sizes):
                self.reasons.append(
                    "values of other ranks, which no gradient reaches, may enter the loss "
                    f"({place()}, {name} between forward and backward; `--one` compares it)"
                )
            elif root.backpropagated and name == "all_reduce" and sizes == [1]:
                number = tensors[0].detach()
                root.record_sum(place(), number if kwargs.get("async_op") else number.clone())

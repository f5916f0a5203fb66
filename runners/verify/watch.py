"""Watches a training script on one rank, and changes none of its numbers.

In: the script, which runs in this process. Out: `Seen`. Torch's hooks, and functions that call the
original and keep what went in and came out, copy tensors at these moments: before and after the
outermost forward pass of a module that trains; when a backward pass ends; before unscaling,
clipping and the optimizer's step; after the step.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer, lr_scheduler
from torch.optim import optimizer as optimizers

from runners.verify.losses import LossWatch, first_of, leaves_before, reached
from runners.verify.records import (
    Clip,
    Forward,
    Part,
    RootRecord,
    Seen,
    Update,
    mapped,
    part,
    tensors_of,
)

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "broadcast", "reduce", "gather",
    "scatter", "send", "recv", "isend", "irecv", "batch_isend_irecv", "all_reduce_coalesced",
)  # fmt: skip
FUNCTIONAL = (
    "all_reduce", "all_gather_tensor", "all_gather_tensor_autograd", "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd", "all_to_all_single", "all_to_all_single_autograd",
    "broadcast", "permute_tensor",
)  # fmt: skip
_GUARDED = (
    "_is_wanted", "_root_of", "_begin", "_end", "_later", "_arrived", "_before_backward", "_follow",
    "_after_backward", "_capture", "_keep_clip", "_keep_scale", "_without_step", "_before_step",
    "_used", "_keep_step","_sent", "_is_by_hand", "_finish",
)  # fmt: skip
_COMPILE = "torch.compile (run the script without it)"
_CHECKPOINT = (
    "use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state",
)  # fmt: skip


class Enough(BaseException):
    """Ends the script: what is to be watched was seen."""


class CommunicationError(RuntimeError):
    """A module communicates in the replay, where nothing may."""


class Root:
    """A module that trains, its names, and its present update."""

    def __init__(self, module: nn.Module, record: RootRecord) -> None:
        self.module, self.record = module, record
        self.modules = list(module.modules())
        self.names: dict[str, Any] = {}  # name → parameter; under FSDP a DTensor
        self.update: Update | None = None
        self.stepped = False
        self.without_step: list[Update] = []
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters that an optimizer has: under FSDP the shards."""
        for name, one in self.module.named_parameters():
            before = self.names.get(name)
            is_shard: bool = isinstance(one, DTensor)
            if is_shard or not isinstance(before, DTensor):
                self.names[name] = one

    def gradients(self) -> dict[str, Part | None]:
        """Copies of all gradients."""
        return {name: None if one.grad is None else part(one.grad) for name, one in self.trained()}

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that require a gradient."""
        return ((name, one) for name, one in self.names.items() if one.requires_grad)

    @property
    def is_reset(self) -> bool:
        """Whether no gradient is left."""
        found = [one.grad for _, one in self.trained() if one.grad is not None]
        found += self._unreduced()
        return not any(bool(part(one, copy=False).local.any()) for one in found)

    def _unreduced(self) -> list[Tensor]:
        """Whole gradients that FSDP keeps until it reduces them."""
        units = [one for one in self.modules if isinstance(one, FSDPModule)]
        groups = [group for one in units for group in one._get_fsdp_state()._fsdp_param_groups]
        held = [one for group in groups for one in group.fsdp_params]
        found = [one.unsharded_accumulated_grad for one in held]
        found += [getattr(getattr(one, "_unsharded_param", None), "grad", None) for one in held]
        return [one for one in found if one is not None]

    @property
    def done(self) -> list[Forward]:
        """The passes of this update whose backward pass has ended."""
        found = self.update.forwards if self.update else []
        return [one for one in found if one.backward is not None]


class Watch:
    """See the module."""

    def __init__(
        self, rank: int, world_size: int, steps: int, asks_to_stop: Callable[[int, bool], bool]
    ) -> None:
        self.seen = Seen(rank, world_size)
        self.steps, self._asks_to_stop = steps, asks_to_stop
        self.roots: dict[int, Root] = {}
        self._paths: dict[int, tuple[Root, str]] = {}
        self._skipped: dict[int, nn.Module] = {}
        # A DDP that is dropped joins gloo's thread while it holds the GIL, for which that one may
        # wait: torch 2.13 hangs so now and then where a script ends. One that is kept does not.
        self._wrappers: list[nn.Module] = []
        self._depth = self._in_backward = self._backwards = self._count = 0
        self.is_replaying = self._was_finished = False
        self._answers: dict[tuple[Any, ...], Any] = {}
        self._by_hand: list[str] = []  # since the last update of a root began
        self._outside: dict[int, list[str]] = {}
        self._scheduled: dict[int, int] = {}
        self._is_other = False
        self._alone: set[int] = set()  # backward passes that reached one module
        self._external: set[int] = set()  # nodes of outputs that the loss uses itself
        self._optimizers: dict[int, Optimizer] = {}
        self.losses = LossWatch(place, lambda: self.is_on)
        self._replaced: list[tuple[Any, str, Any]] = []

    # What is watched

    @property
    def is_on(self) -> bool:
        """Whether there is something left to record."""
        if self.is_replaying or self.seen.broken or not dist.is_initialized():
            return False
        return not self.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether each module has had its updates."""
        updates = [len(one.record.updates) for one in self.roots.values()]
        return bool(updates) and min(updates) >= self.steps and self._is_idle

    @property
    def _is_idle(self) -> bool:
        return not self._depth and not self._in_backward

    def _guard(self, owner: Any, names: Iterable[str]) -> None:
        """An error of ours ends the watching, and never reaches the script."""
        for name in names:
            setattr(owner, name, self._guarded(getattr(owner, name)))

    def _guarded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.seen.broken:
                return None
            try:
                return original(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 whatever it is, the script goes on
                at = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(at.filename).name}:{at.lineno}"
                self.seen.broken = f"{type(error).__name__} in {where}: {error}".splitlines()[0]
                return None

        return call

    def install(self) -> None:
        """Begin to watch."""
        self._guard(self, _GUARDED)
        self._guard(self.losses, ("_expect", "_reach", "follow", "ended"))
        self._replace(nn.Module, "__call__", self._called(nn.Module.__call__))
        self._replace(torch.autograd, "backward", self._backward(torch.autograd.backward))
        for owner, name, function in self.losses.install():
            self._replace(owner, name, function)
        for name in COLLECTIVES:  # torch compares functions with those of the inner module
            call = self._collective(name, getattr(dist, name))
            self._replace(dist, name, call)
            self._replace(dist.distributed_c10d, name, call)
        for name in ("is_initialized", "get_rank", "get_world_size"):
            call = self._answered(name, getattr(dist, name))
            self._replace(dist, name, call)
            self._replace(dist.distributed_c10d, name, call)
        self._replace(torch, "compile", self._compiled(torch.compile))
        self._replace(nn.Module, "compile", self._compiled(nn.Module.compile))
        for name in FUNCTIONAL:
            original = getattr(functional_collectives, name)
            self._replace(functional_collectives, name, self._collective(name, original))
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            clips = self._clipped(name, getattr(nn.utils, name))
            self._replace(nn.utils, name, clips)
            self._replace(nn.utils.clip_grad, name, clips)
        self._replace(
            torch.amp.GradScaler, "unscale_", self._unscaled(torch.amp.GradScaler.unscale_)
        )
        for owner in (torch.utils.checkpoint, checkpoint_wrapper):
            name = "checkpoint" if hasattr(owner, "checkpoint") else "torch_utils_checkpoint"
            self._replace(owner, name, self._checkpointed(torch.utils.checkpoint.checkpoint))
        for owner in (Optimizer, nn.Module):
            self._replace(owner, "zero_grad", self._zeroed(owner.zero_grad))
        scheduler = lr_scheduler.LRScheduler
        self._replace(scheduler, "step", self._scheduler(scheduler.step))
        optimizers.register_optimizer_step_pre_hook(self._before_step)
        optimizers.register_optimizer_step_post_hook(self._after_step)

    def _replace(self, owner: Any, name: str, function: Any) -> None:
        self._replaced.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    # Forward

    def _called(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self._depth or not torch.is_grad_enabled() or not self._is_wanted(module):
                return original(module, *args, **kwargs)
            calling = _calling_stage()
            if calling is not None and calling[1] is None:  # it only infers shapes
                return original(module, *args, **kwargs)
            found = self._root_of(module)
            if found is None or (self._in_backward and found[1]):
                return original(module, *args, **kwargs)
            root, path = found
            if len(root.record.updates) >= self.steps and root.stepped:
                self._later(root)
                return original(module, *args, **kwargs)
            forward = self._begin(root, path, args, kwargs)
            if forward is None:
                return original(module, *args, **kwargs)
            self._depth += 1
            try:
                value = original(module, *args, **kwargs)
            finally:
                self._depth -= 1
            self._end(root, forward, value)
            return value

        return call

    def _is_wanted(self, module: nn.Module) -> bool:
        """Whether there is something to record: of a module that comes late, too."""
        if self.is_replaying or not dist.is_initialized():
            return False
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        return id(inner) not in self._skipped

    def _later(self, root: Root) -> None:
        """Keep the parameters of this step: a script may change them on one rank at any time."""
        later = root.record.later
        if root.module.training and not (later and later[0].number == self._count):
            parameters = {name: part(one) for name, one in root.names.items()}
            root.record.later = [Update(self._count, parameters, {})]

    def _checkpointed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if not self.is_replaying:
                if self._is_drawing(kwargs):
                    self.seen.unpreserved = self.seen.unpreserved or place()
                return original(function, *args, **kwargs)
            return function(*args, **{k: v for k, v in kwargs.items() if k not in _CHECKPOINT})

        return call

    def _is_drawing(self, words: Mapping[str, Any]) -> bool:
        return words.get("preserve_rng_state") is False

    def _root_of(self, module: nn.Module) -> tuple[Root, str] | None:
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        if id(inner) in self._skipped:
            return None
        if id(inner) not in self._paths:
            parameters = [one for one in inner.parameters() if one.requires_grad]
            if not parameters:
                self._skipped[id(inner)] = inner
                return None
            self._add(module, inner)
        root, path = self._paths[id(inner)]
        if isinstance(module, DistributedDataParallel) and not root.record.wrapper:
            root.record.wrapper = "DDP"
            root.record.data_ranks = dist.get_process_group_ranks(module.process_group)
            if module.will_sync_module_buffers():
                root.record.buffers_from = root.record.data_ranks[0]
        return root, path

    def _add(self, module: nn.Module, inner: nn.Module) -> None:
        calling = _calling_stage()
        stage = None if calling is None else int(calling[0].stage_index)
        if calling is not None:
            self._reducing(type(calling[0]))
        name = type(inner).__name__.removeprefix("FSDP") or type(inner).__name__
        same = sum(one.record.key.split(" ")[0] == name for one in self.roots.values())
        key = f"stage {stage}" if stage is not None else name + (f" {same + 1}" if same else "")
        record = RootRecord(key, None, "", stage, _eps(inner), refused=_refused(module))
        units = [one for one in inner.modules() if isinstance(one, FSDPModule)]
        for unit in units:
            groups = unit._get_fsdp_state()._fsdp_param_groups
            if groups and record.data_ranks is None:
                record.wrapper = "FSDP"
                record.data_ranks = [int(r) for r in groups[0].mesh_info.mesh.mesh.flatten()]
        self._wrappers.append(module)
        root = self.roots[id(inner)] = Root(inner, record)
        record.frozen = [n for n, one in root.names.items() if not one.requires_grad]
        for path, sub in inner.named_modules():
            self._paths.setdefault(id(sub), (root, path))

    def _reducing(self, kind: Any) -> None:
        """A stage reduces and scales its gradients after the last backward pass."""
        if hasattr(kind.perform_reduce_grad, "__wrapped__"):
            return
        reduce, split = kind.perform_reduce_grad, kind.backward_weight_one_chunk

        @functools.wraps(reduce)
        def reduced(stage: Any, *args: Any, **kwargs: Any) -> Any:
            value = reduce(stage, *args, **kwargs)
            for root in self.roots.values():
                if root.update and root.done and not root.stepped:
                    root.update.after_backward = root.gradients()
            return value

        @functools.wraps(split)
        def backward(*args: Any, **kwargs: Any) -> Any:
            for root in self.roots.values():
                root.record.refused = "a zero-bubble schedule, which splits the backward pass,"
            return split(*args, **kwargs)

        self._replace(kind, "perform_reduce_grad", reduced)
        self._replace(kind, "backward_weight_one_chunk", backward)

    def _begin(self, root: Root, path: str, args: Any, kwargs: Any) -> Forward | None:
        if root.update is None or root.stepped or (root.done and root.is_reset):
            self._keep(root)
            root.refresh()
            was_stepped, root.stepped, self._by_hand = root.stepped, False, []
            before = root.update
            root.update = now = Update(
                len(root.record.updates),
                {name: part(one) for name, one in root.names.items()},
                {name: part(one) for name, one in root.module.named_buffers()},
                frozen=[name for name, one in root.names.items() if not one.requires_grad],
            )
            if before is not None and not was_stepped and not _has_moved(before, now):
                now.dropped = before.dropped + self._dropped(before)
        tensors = tensors_of((args, kwargs))
        return Forward(
            path,
            mapped((args, kwargs), part),
            _redirected(root.module),
            random=random_states(),
            autocast=(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
            training=[one.training for one in root.modules],
            digests=[digest(one) for one in tensors],
            shapes=[tuple(one.shape) for one in tensors],
            place=place(),
            chunk=(_calling_stage() or (None, None))[1],
        )

    def _end(self, root: Root, forward: Forward, value: Any) -> None:
        after = random_states()
        forward.draws = any(not _same(a, b) for a, b in zip(forward.random, after, strict=True))
        outputs = tensors_of(value)
        forward.outputs = [part(one) for one in outputs]
        if root.record.stage is not None:
            forward.outputs_sent = [digest(one) for one in outputs]
        forward.nodes = {i: one.grad_fn for i, one in enumerate(outputs) if one.grad_fn is not None}
        for index, one in enumerate(outputs):
            if one.requires_grad:
                one.register_hook(functools.partial(self._arrived, root, forward, index))
        if root.update is not None and not self._in_backward:
            root.update.forwards.append(forward)
        elif root.update is not None and outputs and outputs[0].requires_grad:
            root.update.forwards.append(forward)  # a reentrant checkpoint around the module

    def _arrived(self, root: Root, forward: Forward, index: int, gradient: Tensor | None) -> None:
        node = forward.nodes.get(index)
        if (
            gradient is None
            or not self._in_backward
            or (node is not None and id(node) not in self._external)
        ):
            return  # torch.autograd.grad leaves .grad as it is; what is inside is replayed
        forward.backward = self._backwards
        before = forward.gradients.get(index)
        own = part(gradient)
        forward.gradients[index] = (
            own if before is None else Part(before.local + own.local, own.spec)
        )

    # Backward

    def _backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def call(tensors: Any, *args: Any, **kwargs: Any) -> None:
            if not self.is_on and not self._in_backward:
                return original(tensors, *args, **kwargs)
            if not self._in_backward:
                self._before_backward()
            given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
            self._follow([getattr(one, "grad_fn", None) for one in given])
            self._in_backward += 1
            self.losses.is_running = True
            try:
                original(tensors, *args, **kwargs)
            finally:
                self._in_backward -= 1
                self.losses.is_running = bool(self._in_backward)
            if not self._in_backward:
                self._after_backward()
            return None

        return call

    def _before_backward(self) -> None:
        self._backwards += 1
        self.losses.backward = self._backwards
        self._outside, self._is_other, self._external = {}, False, set()

    def _follow(self, start: list[Any]) -> None:
        """Look at the graph before a backward pass runs."""
        passes = [(r, f) for r in self.roots.values() if r.update for f in r.update.forwards]
        for _, forward in passes:
            ids = {id(node) for node in forward.nodes.values()}
            self._external |= first_of(start, ids) if len(ids) > 1 else ids
        is_other = self.losses.follow(start)
        if self._in_backward:  # of a checkpoint, or of a schedule
            return
        self._is_other = self._is_other or is_other
        nodes = reached(start)
        for root in {
            id(r): r for r, f in passes if nodes & {id(n) for n in f.nodes.values()}
        }.values():
            self._before_gradients(root)
        outputs = {id(node) for _, one in passes for node in one.nodes.values()}
        leaves = {id(one) for one in leaves_before(start, outputs)}
        for root in self.roots.values():
            names = [name for name, one in root.names.items() if id(one) in leaves]
            if names:
                self._outside.setdefault(id(root), []).extend(names)

    def _before_gradients(self, root: Root) -> None:
        """A backward pass adds to gradients, or begins anew."""
        update = root.update
        if update is None or root.stepped:
            return
        if not root.done and not root.is_reset:
            update.carried = root.gradients()
        elif root.done and root.is_reset:
            update.dropped += self._dropped(update)
            update.forwards = [f for f in update.forwards if f.backward is None]
            update.losses = []

    def _dropped(self, update: Update) -> int:
        return len({f.backward for f in update.forwards if f.backward in self._alone})

    def _after_backward(self) -> None:
        losses, at = self.losses.ended(), place()
        touched = [
            root
            for root in self.roots.values()
            if root.update and any(f.backward == self._backwards for f in root.update.forwards)
        ]
        for root in touched:
            update = root.update
            assert update is not None
            if len(touched) == 1 and _is_finite(root):  # what is reset now is lost to all
                self._alone.add(self._backwards)
            update.after_backward, update.before_clipping = root.gradients(), {}
            update.losses += losses
            update.outside += self._outside.get(id(root), [])
            update.other_terms = update.other_terms or self._is_other
            update.by_hand += self._by_hand
            update.backward_place = at
            for one in update.forwards:
                if one.backward is not None:
                    one.nodes = {}
        self._by_hand = []
        if not touched:
            self.seen.loose += losses[: max(0, 64 - len(self.seen.loose))]

    # Between backward and the update

    def _capture(self) -> None:
        for root in self.roots.values():
            if root.update and root.done and not root.stepped and not root.update.before_clipping:
                root.update.before_clipping = root.gradients()

    def _clipped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on:
                return original(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given, limit = list(bound.arguments.values())[:2]
            given = [given] if isinstance(given, Tensor) else list(given)
            bound.arguments["parameters"] = given
            self._capture()
            total = original(*bound.args, **bound.kwargs)
            norm_type = float(bound.arguments.get("norm_type", 2.0))
            self._keep_clip(Clip(name, float(limit), norm_type, None, [], place()), given, total)
            return total

        return call

    def _keep_clip(self, clip: Clip, given: list[Tensor], total: Any) -> None:
        ids = {id(one) for one in given}
        clip.total = _number(total)
        for root in self.roots.values():
            names = [(root.record.key, n) for n, one in root.names.items() if id(one) in ids]
            clip.names += names
            if names and root.update is not None:
                root.update.clips.append(clip)

    def _unscaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(scaler: Any, optimizer: Optimizer) -> Any:
            if self.is_on:
                self._capture()
                self._keep_scale(scaler, optimizer)
            return original(scaler, optimizer)

        return call

    def _keep_scale(self, scaler: Any, optimizer: Optimizer) -> None:
        ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for root in self.roots.values():
            if root.update and any(id(one) in ids for one in root.names.values()):
                root.update.scale = float(scaler.get_scale())

    def _zeroed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(one: Any, *args: Any, **kwargs: Any) -> Any:
            if self.is_on:
                self._without_step()
            return original(one, *args, **kwargs)

        return call

    def _without_step(self) -> None:
        """Keep what a script has that never calls an optimizer's step."""
        for root in self.roots.values():
            if root.update and root.done and not root.stepped and not root.is_reset:
                self._capture()
            self._keep(root)

    def _keep(self, root: Root) -> None:
        update = root.update
        if root.record.updates or update is None or not root.done or root.stepped:
            return
        update.before_clipping = update.before_clipping or update.after_backward
        if not any(update is one for one in root.without_step):
            update.number = len(root.without_step)
            root.without_step.append(update)

    def _scheduler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_code  # accelerate steps once for each rank, and means it
            if caller.co_name != "_initial_step" and "accelerate" not in caller.co_filename:
                self._scheduled[id(scheduler)] = self._scheduled.get(id(scheduler), 0) + 1
            return original(scheduler, *args, **kwargs)

        return call

    # The update

    def _before_step(
        self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Look at the gradients; after the closure, where the step is given one."""
        self._optimizers[id(optimizer)] = optimizer
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        if not self.is_on:
            return None
        if not callable(closure):
            self._used(optimizer)
            return None

        def followed() -> Any:
            value = closure()
            self._used(optimizer)
            return value

        others = {name: one for name, one in kwargs.items() if name != "closure"}
        return (args[0], followed, *args[2:]), others

    def _used(self, optimizer: Optimizer) -> None:
        """What the optimizer is about to use."""
        if type(optimizer).__name__ == "ZeroRedundancyOptimizer":
            self._refuse("ZeroRedundancyOptimizer")
        if self._in_backward:
            self._refuse("an optimizer that steps inside the backward pass")
            return
        self._capture()
        for root, names in self._stepping(optimizer):
            update = root.update
            assert update is not None
            update.step_place = place()
            update.schedulers = max(self._scheduled.values(), default=0)
            groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
            for name in names:
                one = root.names[name]
                update.at_step[name] = None if one.grad is None else part(one.grad)
                group = groups[id(one)]
                kept = {k: _plain(v) for k, v in group.items() if k != "params"}
                update.settings[name] = (_class(optimizer), kept)
                if update.number == 0 and optimizer.state.get(one):
                    update.settings[name] = ("state", {})
        self._scheduled = {}

    def _stepping(self, optimizer: Optimizer) -> list[tuple[Root, list[str]]]:
        ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        known = [(r, [n for n, p in r.names.items() if id(p) in ids]) for r in self.roots.values()]
        active = [(r, names) for r, names in known if r.update and (r.done or names)]
        if not any(names for _, names in known):  # it holds none of what was trained
            for root, _ in active:
                root.record.foreign = True
            return [(root, []) for root, _ in active if root.done]
        return [(root, names) for root, names in active if names and (root.done or root.stepped)]

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self.is_replaying:
            return
        self._count += 1
        if self.is_on:
            self._keep_step(optimizer)
        self._was_finished = self._was_finished or self.is_finished or bool(self.seen.broken)
        if self._asks_to_stop(self._count, self._was_finished):
            raise Enough

    def _keep_step(self, optimizer: Optimizer) -> None:
        for root, names in self._stepping(optimizer):
            update = root.update
            assert update is not None
            update.after |= {name: part(root.names[name]) for name in names}
            if not update.has_step and len(root.record.updates) < self.steps:
                update.has_step = True
                update.number = len(root.record.updates)
                root.record.updates.append(update)
            root.stepped = True

    def _refuse(self, name: str) -> None:
        if name not in self.seen.refused:
            self.seen.refused.append(name)

    def _compiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What a script compiles runs as it is, since our functions cannot be traced."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not is_script(sys._getframe(1)):
                return original(*args, **kwargs)
            self._refuse(_COMPILE)
            return args[0] if args else kwargs.get("model") or (lambda one: one)

        return call

    # Communication

    def _answered(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """A forward pass gets in the replay the answers that it has had."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            key = (name, *map(id, args), *map(id, kwargs.values()))
            if self.is_replaying and key in self._answers:
                return self._answers[key]
            value = original(*args, **kwargs)
            if self._depth:
                self._answers[key] = value
            return value

        return call

    def _collective(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_replaying:
                raise CommunicationError(name)
            if self._is_by_hand(sys._getframe(1), name, args, kwargs):
                self._by_hand.append(
                    f"it is divided among ranks by hand ({place()} ({name}) sends activations); "
                    "the module of one process is not known"
                )
            value = original(*args, **kwargs)
            self._sent(sys._getframe(1), name, args, kwargs)
            return value

        return call

    def _sent(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> None:
        """Between forward and backward, values of other ranks may enter the loss."""
        if not self.is_on or not self._is_idle or not is_script(caller):
            return
        given = [one for one in tensors_of((args, kwargs)) if one.is_floating_point()]
        for root in self.roots.values():
            if root.update is None or root.stepped:
                continue
            is_between = any(one.backward is None for one in root.update.forwards)
            if is_between and any(one.numel() > 1 for one in given):
                self._by_hand.append(
                    f"values of other ranks, which no gradient reaches, may enter the loss "
                    f"({place()}, {name} between forward and backward)"
                )
            elif root.done and name == "all_reduce":
                root.update.sums += [
                    (place(), one.detach() if kwargs.get("async_op") else one.detach().clone())
                    for one in given if one.numel() == 1
                ]  # fmt: skip

    def _is_by_hand(self, caller: FrameType, name: str, args: Any, kwargs: Any) -> bool:
        """Whether the script sends activations itself: in a forward pass, or what has a graph."""
        file = caller.f_code.co_filename
        if not self.is_on or (file.startswith(_TORCH) and "distributed/nn" not in file):
            return file.endswith("modules/_functions.py")  # of SyncBatchNorm
        if self._depth or name.endswith("_autograd") or _in_function(caller):
            return True
        if any(one.requires_grad and one.numel() > 1 for one in tensors_of((args, kwargs))):
            return True
        return "send" in name or "recv" in name

    # The end

    def end(self) -> Seen:
        """What was recorded, with what the last backward pass left where no update followed."""
        self._finish()
        self.is_replaying = True
        return self.seen

    def _finish(self) -> None:
        self._without_step()
        # One that steps more rarely has not been seen yet.
        optimizers_ = [one for one in gc.get_objects() if issubclass(type(one), Optimizer)]
        optimizers_ += self._optimizers.values()
        for root in self.roots.values():
            if not root.record.updates:
                root.record.updates = root.without_step[: self.steps]
            held = {id(p) for o in optimizers_ for group in o.param_groups for p in group["params"]}
            if self._optimizers:
                root.record.unowned = [n for n, one in root.trained() if id(one) not in held]
            for update in root.record.updates:
                update.forwards = [one for one in update.forwards if one.backward is not None]
            inner = [
                one for one in self.roots.values() if any(root.module is m for m in one.modules[1:])
            ]
            if root.record.updates or not inner:
                self.seen.roots[root.record.key] = root.record
        for name, modules in (("DeepSpeed", "deepspeed"), ("Megatron", "megatron.core")):
            if modules in sys.modules:
                self._refuse(name)


def place(frame: FrameType | None = None) -> str:
    """The innermost line that is neither torch's, nor ours, nor an installed package's."""
    frame = frame or sys._getframe(1)
    while frame is not None:
        if is_script(frame):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_script(frame: FrameType) -> bool:
    """Whether a frame is of the script or of a module beside it."""
    file = frame.f_code.co_filename
    is_own = not file.startswith((_TORCH, _OWN, "<"))
    return is_own and "site-packages" not in file and "/lib/python3" not in file


def _redirected(module: nn.Module) -> str:
    """The method that Lightning calls where its wrapper calls `forward`."""
    forward = module.__dict__.get("forward")
    if not isinstance(forward, FunctionType):
        return ""
    return str(inspect.getclosurevars(forward).nonlocals.get("method_name", ""))


def random_states() -> tuple[Any, ...]:
    """The states of the generators that a forward pass may draw from."""
    numpy = sys.modules.get("numpy")
    own = (torch.get_rng_state(), random.getstate())
    return (*own, numpy.random.get_state(legacy=False)) if numpy else own


def digest(tensor: Tensor) -> str:
    """Of a tensor's bytes, its shape, and its dtype."""
    local = part(tensor, copy=False).local.contiguous().cpu()
    head = f"{local.dtype} {tuple(local.shape)}".encode()
    return hashlib.blake2b(
        head + local.view(-1).view(torch.uint8).numpy().tobytes(), digest_size=12
    ).hexdigest()


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, Tensor) else str(a) == str(b)


def _has_moved(before: Update, now: Update) -> bool:
    """Whether parameters were updated by hand."""
    pairs = ((one, now.parameters[name]) for name, one in before.parameters.items())
    return not all(torch.equal(one.local, other.local) for one, other in pairs)


def _number(total: Any) -> float | None:
    if isinstance(total, DTensor) and not all(one.is_replicate() for one in total.placements):
        return None
    return float(part(total, copy=False).local) if isinstance(total, Tensor) else None


def _is_finite(root: Root) -> bool:
    found = (one.grad for _, one in root.trained() if one.grad is not None)
    return all(bool(part(one, copy=False).local.isfinite().all()) for one in found)


def _plain(value: Any) -> Any:
    return part(value).local if isinstance(value, Tensor) else value


def _class(optimizer: Optimizer) -> str:
    kind = type(optimizer)
    return kind.__name__ if kind.__module__.startswith("torch.optim") else f"own {kind.__name__}"


def _calling_stage() -> tuple[Any, int | None] | None:
    """The stage of a pipeline that calls, and the number of its microbatch."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return None
        if frame.f_code.co_filename.endswith("distributed/pipelining/stage.py"):
            own = frame.f_locals.get("self")
            if frame.f_code.co_name == "forward_one_chunk":
                return own, frame.f_locals["fwd_chunk_id"]
            if frame.f_code.co_name != "forward_maybe_with_nosync":
                return own, None
        frame = frame.f_back
    return None


def _in_function(frame: FrameType | None) -> bool:
    """Whether an autograd function of the script's own is running."""
    for _ in range(8):
        if frame is None:
            return False
        code = frame.f_code
        first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if code.co_name in ("forward", "backward") and isinstance(
            first, torch.autograd.function.FunctionCtx
        ):
            return True
        frame = frame.f_back
    return False


def _eps(module: nn.Module) -> float:
    dtypes = {one.dtype for one in module.parameters() if one.is_floating_point()}
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            policy = unit._get_fsdp_state()._mp_policy
            dtypes |= {one for one in (policy.param_dtype, policy.reduce_dtype) if one}
    return max((torch.finfo(one).eps for one in dtypes), default=torch.finfo(torch.float32).eps)


def _refused(module: nn.Module) -> str:
    for one in module.modules():
        if isinstance(one, FullyShardedDataParallel):
            return "FSDP1 (FullyShardedDataParallel; use fully_shard)"
        if type(one).__name__ == "OptimizedModule" or one._compiled_call_impl is not None:
            return _COMPILE
        if isinstance(one, nn.SyncBatchNorm):
            return "SyncBatchNorm, which mixes the samples of all ranks"
    return ""

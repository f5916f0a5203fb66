"""Watches a training script on one rank, and changes none of its numbers.

In: what the script calls (`intercept`), in this process. Out: `Seen`. Tensors are copied at these
moments: before and after the outermost forward pass of a module that trains; when a backward pass
ends; before unscaling, clipping and the optimizer's step; after the step.
"""

from __future__ import annotations

import atexit
import functools
import gc
import io
import linecache
import runpy
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from runners.system.errors import first_line
from runners.verify import records
from runners.verify import roots as of
from runners.verify.intercept import Interceptor, Sends
from runners.verify.internals import (
    LACKING,
    Edge,
    Stage,
    calling_stage,
    is_script,
    leaves_before,
    place,
    place_of,
    reached,
    redirected,
)
from runners.verify.losses import LossWatch
from runners.verify.records import Clip, Forward, Part, Seen, Update, mapped, part, tensors_of
from runners.verify.roots import Root

_GUARDED = (
    "begins", "wraps", "looks", "ends", "_arrived", "backward_begins", "backward_ends",
    "stage_reduced", "splits_backward", "capture", "clips", "unscales", "zeroes", "schedules",
    "steps_with", "_keep_step", "loads", "_finish",
)  # fmt: skip


class Enough(BaseException):
    """Ends the script: what is to be watched was seen."""


class Watch:
    """Keeps what happens in the script.

    Args:
        steps: how many updates of each module are kept.
        asks_to_stop: given the number of steps and whether all was seen, whether the script ends.

    Attributes:
        depth: of forward passes that are recorded, now.
        in_backward: of backward passes, now.
        is_replaying: whether the script has ended, and its modules run again.
        is_shared: whether peers need all inputs and outputs.
        present: the newest forward pass.
        on_update: called with a root before its update begins.
    """

    on_update: Callable[[Root], None] | None = None
    present: Forward

    def __init__(self, steps: int, asks_to_stop: Callable[[int, bool], bool]) -> None:
        self.seen = Seen()
        self.steps, self._asks_to_stop = steps, asks_to_stop
        self.roots: dict[int, Root] = {}
        self._paths: dict[int, tuple[Root, str]] = {}
        self._quiet: dict[int, tuple[nn.Module, records.Quiet | None]] = {}  # by id of a module
        self._moments: list[tuple[str, Counter[tuple[int, ...]]]] = []  # that were read, and where
        self._unwrapped: dict[int, list[str]] = {}  # by id of what DDP wraps
        self.depth = self.in_backward = self._backwards = self._count = 0
        self.is_replaying = self._was_finished = self.is_shared = False
        self.sends = Sends(self)
        self._outside: set[int] = set()  # parameters that the loss reaches past all modules
        self._scheduled: Counter[int] = Counter()
        self._others: list[str] = []
        self._number = 0  # of the backward pass that added to the present gradients first
        self._random: tuple[Any, ...] = ()  # states of the generators after the last forward pass
        self._alone: set[int | None] = set()  # backward passes that reached one module
        self._external: set[int] = set()  # nodes of outputs that the loss uses itself
        self._optimizers: dict[int, Optimizer] = {}  # that have stepped
        self.losses = LossWatch(lambda: self.is_on, lambda: bool(self.in_backward))
        self._interceptor = Interceptor(self)

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
        updates = [one.num_stepped for one in self.roots.values()]
        return bool(updates) and min(updates) >= self.steps and self.is_idle

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Modules that train, by their names in reports."""
        return {root.record.key: root.module for root in self.roots.values()}

    @property
    def is_idle(self) -> bool:
        """Whether neither a forward nor a backward pass runs."""
        return not self.depth and not self.in_backward

    def install(self) -> None:
        """Begin to watch."""
        self._guard(self, *_GUARDED)
        self._guard(self.losses, "_expect", "_reach", "follow", "ended", "forget")
        self._guard(self.sends, "tells", "begins", "ended")
        self._interceptor.install()
        if LACKING["training"]:
            self.refuse(LACKING["training"])

    def _guard(self, owner: Any, *names: str) -> None:
        """An error of ours ends the watching, and never reaches the script."""

        def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.seen.broken:
                return None
            try:
                return original(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 whatever it is, the script goes on
                at = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(at.filename).name}:{at.lineno}"
                self.seen.broken = f"{type(error).__name__} in {where}: {error}".splitlines()[0]
                return None

        for name in names:
            setattr(owner, name, functools.partial(call, getattr(owner, name)))

    def _pending(self) -> Iterator[tuple[Root, Update]]:
        """Roots whose gradients no optimizer has used yet."""
        return ((one, one.update) for one in self.roots.values() if one.is_pending)

    # Forward

    def wraps(self, module: nn.Module) -> None:
        """DDP is about to wrap a module, and will reduce the gradients of what is not frozen."""
        self.sends.tells("DistributedDataParallel")
        frozen = [name for name, one in module.named_parameters() if not one.requires_grad]
        self._unwrapped[id(module)] = frozen

    def looks(self, module: nn.Module) -> None:
        """A module runs without gradients: keep its parameters, once for each update and line."""
        module = module.module if isinstance(module, DistributedDataParallel) else module
        if not self.is_on or id(module) in self._paths:
            return
        parameters = list(module.parameters())
        if id(module) not in self._quiet:
            self._quiet |= {id(one): (one, None) for one in module.modules()}
            is_part = calling_stage() is not None or any(isinstance(p, DTensor) for p in parameters)
            if parameters and not is_part:
                taken = [*self.seen.quiet, *(one.record.key for one in self.roots.values())]
                key = of.named(module, taken)
                self._quiet[id(module)] = module, self.seen.quiet.setdefault(key, {})
        held, at = self._quiet[id(module)][1], (self._count, place())
        if held is not None and at not in held and len(held) <= 2 * self.steps:
            last = next(reversed(held.values()), [])
            is_same = last and all(map(torch.equal, last, parameters))
            held[at] = last if is_same else [part(one).local for one in parameters]

    def begins(
        self, module: nn.Module, args: Any, kwargs: Any, method: str = ""
    ) -> tuple[Root, Forward] | None:
        """A module, or a method of it that FSDP knows, is called outside of any other.

        Returns:
            None where there is nothing to record.
        """
        if self.is_replaying or not dist.is_initialized():
            return None
        calling = calling_stage()
        is_trial = calling and calling[1] is None  # a stage infers shapes
        found = None if is_trial else self._root_of(module, calling)
        if found is None or (self.in_backward and found[1]):
            return None
        root, path = found
        if root.num_stepped >= self.steps and root.stepped:
            self._keep_later(root)
            return None
        self._begin_update(root)
        tensors = tensors_of((args, kwargs))
        self.present = Forward(
            path,
            mapped((args, kwargs), part),
            method or redirected(root.module),
            random=of.random_states(),
            autocast=(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
            training=[one.training for one in root.modules],
            digests=[of.digest(one) for one in tensors],
            shapes=[tuple(one.shape) for one in tensors],
            samples=of.samples(tensors),
            place=place(),
            chunk=calling and calling[1],
            is_shared=self.is_shared,
        )
        return root, self.present

    def _keep_later(self, root: Root) -> None:
        """Keep parameters of the next step and the newest: a script may change them at any time."""
        later = root.record.later
        if root.module.training and (not later or later[-1].number != self._count):
            parameters = {name: part(one) for name, one in root.names.items()}
            now = Update(self._count, parameters, {}, step_place=root.update.step_place)
            now.settings = {
                name: (type(one).__name__, {"lr": of.plain(group["lr"])})
                for one in self._optimizers.values() for group in one.param_groups
                for name in root.names_in(set(map(id, group["params"])))
            }  # fmt: skip
            root.record.later = [*later[:1], now]

    def _root_of(self, module: nn.Module, calling: Stage | None) -> tuple[Root, str] | None:
        """The root of a module, and its path in it; None for what does not train."""
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        if id(inner) not in self._paths:
            is_whole_step = redirected(inner) and not getattr(inner, "automatic_optimization", True)
            if is_whole_step or not any(one.requires_grad for one in inner.parameters()):
                return None
            key, stage = of.named(inner, [one.record.key for one in self.roots.values()]), None
            if calling is not None:
                self._interceptor.install_of_stages(type(calling[0]))
                stage = int(calling[0].stage_index)
                key = f"stage {stage}"
            root = self.roots[id(inner)] = Root(module, inner, key, stage)
            for path, sub in inner.named_modules():
                self._paths.setdefault(id(sub), (root, path))
        root, path = self._paths[id(inner)]
        if isinstance(module, DistributedDataParallel) and root.record.data_ranks is None:
            root.record.data_ranks = dist.get_process_group_ranks(module.process_group)
            root.record.unwrapped = self._unwrapped.get(id(inner), [])
            if module.will_sync_module_buffers():
                root.record.buffers_from = root.record.data_ranks[0]
        return root, path

    def _begin_update(self, root: Root) -> None:
        before, was_stepped = root.update, root.stepped
        if before.number >= 0 and not was_stepped and not (root.done and root.is_reset):
            return
        self.zeroes()
        root.refresh()
        if self.on_update is not None:
            self.on_update(root)
        for one in before.forwards:
            one.nodes = {}
        now = root.begin_update()
        self.losses.forget()
        if all(one.backward for other in self.roots.values() for one in other.update.forwards):
            self.sends.reasons, self.sends.gathered = [], {}
        pairs = ((one.local, now.parameters[name].local) for name, one in before.parameters.items())
        if not was_stepped and all(torch.equal(*two) for two in pairs):  # else updated by hand
            now.dropped = before.dropped + self._dropped(before)

    def ends(self, root: Root, forward: Forward, value: Any) -> None:
        """A module has returned a value."""
        self._random = of.random_states()
        forward.draws = of.have_drawn(forward.random)
        outputs = tensors_of(value)
        forward.outputs = [part(one) for one in outputs]
        forward.nodes = {i: one.grad_fn for i, one in enumerate(outputs) if one.grad_fn is not None}
        for index, one in enumerate(outputs):
            if one.requires_grad:
                one.register_hook(functools.partial(self._arrived, root, forward, index))
        is_again = outputs and outputs[0].requires_grad  # by a reentrant checkpoint around it
        if not self.in_backward or is_again:
            root.update.forwards.append(forward)

    def _arrived(self, root: Root, forward: Forward, index: int, gradient: Tensor | None) -> None:
        is_inside = index in forward.nodes and id(forward.nodes[index]) not in self._external
        if gradient is None or not self.in_backward or is_inside:
            return  # torch.autograd.grad leaves .grad as it is; what is inside is replayed
        forward.backward = self._number
        own, before = part(gradient), forward.gradients.get(index)
        forward.gradients[index] = Part(before.local + own.local, own.spec) if before else own

    # Backward

    def backward_begins(self, start: list[Edge]) -> None:
        """Look at the graph before a backward pass runs."""
        if not self.in_backward:
            self._backwards += 1
            if of.have_drawn(self._random):
                self.present.draws = True
            self._external = set()
        nodes, outputs = set(map(id, reached(start))), set[int]()
        passes = ((root, one) for root in self.roots.values() for one in root.update.forwards)
        hit = [(root, one) for root, one in passes if one.ids & nodes]
        for _, one in hit:
            outputs |= one.ids
            first = set(map(id, reached(start, one.ids))) if len(one.ids) > 1 else one.ids
            self._external |= one.ids & first
        others = self.losses.follow(start, outputs)
        if self.in_backward:  # of a checkpoint, or of a schedule
            return
        self._others = [f"{name} ({place()})" for name in others]
        self.sends.lose(start, outputs)
        self._outside = {id(one) for one in leaves_before(start, outputs)}
        for root in {id(root): root for root, _ in hit if not root.stepped}.values():
            self._before_gradients(root, [f for own, f in hit if own is root and f.backward])
        self._number = next((f.backward for _, f in hit if f.backward), self._backwards)

    def _before_gradients(self, root: Root, again: Sequence[Forward]) -> None:
        """A backward pass adds to gradients, or begins anew; through some passes once more."""
        update = root.update
        if not root.done and not root.is_reset:
            update.carried = root.gradients()
        elif root.done and root.is_reset:
            for loss in update.losses:
                if loss.backward in [one.backward for one in again]:
                    loss.weights = None
            for one in again:  # whose first gradient was only looked at
                one.backward, one.gradients = None, {}
            update.dropped += self._dropped(update)
            update.forwards = [f for f in update.forwards if f.backward is None]
            update.losses, update.carried = [], {}

    def _dropped(self, update: Update) -> int:
        return len({f.backward for f in update.forwards} & self._alone)

    def backward_ends(self) -> None:
        """Gradients have been reduced."""
        losses = self.losses.ended(self._number)
        touched = [
            root for root in self.roots.values()
            if any(one.backward == self._number for one in root.update.forwards)
        ]  # fmt: skip
        for root in touched:
            update = root.update
            if len(touched) == 1 and root.is_finite:  # what is reset now is lost to all
                self._alone.add(self._number)
            update.after_backward = root.gradients()
            update.at_sum, update.before_clipping = {}, {}
            update.losses += [one for one in losses if not any(one is k for k in update.losses)]
            update.outside += root.names_in(self._outside)
            update.other_terms += self._others
            update.by_hand += self.sends.reasons
            update.backward_place = place()
        self.sends.reasons = []

    def stage_reduced(self) -> None:
        """A stage of a pipeline reduces and scales its gradients after its last backward pass."""
        for root, update in self._pending():
            update.after_backward = root.gradients()

    def splits_backward(self) -> None:
        """A schedule computes the gradients of parameters apart from those of inputs."""
        for root in self.roots.values():
            root.record.refused = "a zero-bubble schedule, which splits the backward pass,"

    # Between backward and the update

    def capture(self) -> None:
        """Keep gradients before anything but a backward pass changes them."""
        for root, update in self._pending():
            update.before_clipping = update.before_clipping or root.gradients()

    def clips(self, clip: Clip, given: list[Tensor], total: Any) -> None:
        """Gradients were clipped, by a norm of `total`."""
        ids = {id(one) for one in given}
        if not isinstance(total, DTensor) or all(one.is_replicate() for one in total.placements):
            clip.total = float(part(total, copy=False).local) if total is not None else None
        clip.backward = self._backwards
        for root in self.roots.values():
            if names := root.names_in(ids):
                clip.names += [(root.record.key, name) for name in names]
                root.update.clips.append(clip)

    def unscales(self, scaler: Any, optimizer: Optimizer) -> None:
        """A gradient scaler is about to divide gradients."""
        self.capture()
        for root in self.roots.values():
            if root.names_in(of.ids_of(optimizer)):
                root.update.scale = float(scaler.get_scale())

    def zeroes(self) -> None:
        """Gradients are reset: keep those of a script that never calls an optimizer's step."""
        for root, update in self._pending():
            left = update.after_backward if root.is_reset else root.gradients()
            update.before_clipping = update.before_clipping or left
            kept = root.record.updates
            is_new = not root.num_stepped and not any(update is one for one in kept)
            if is_new and len(kept) < self.steps:
                kept.append(update)

    # The update

    def schedules(self, scheduler: Any) -> None:
        """A scheduler steps."""
        self._scheduled[id(scheduler)] += 1

    def steps_with(self, optimizer: Optimizer) -> None:
        """An optimizer is about to use the gradients."""
        self._optimizers[id(optimizer)] = optimizer
        if not self.is_on:
            return
        if (kind := type(optimizer).__name__) == "ZeroRedundancyOptimizer":
            self.refuse(kind)
        if self.in_backward:
            for root, _ in self._stepping(optimizer):
                root.record.refused = records.STEPS_INSIDE
            return
        self.capture()
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for root, names in self._stepping(optimizer):
            update = root.update
            update.step_place = place()
            update.schedulers = max(self._scheduled.values(), default=0)
            for name in (one for one in names if one not in update.after):
                one = root.names[name]
                update.at_step[name] = None if one.grad is None else part(one.grad)
                settings = {k: of.plain(v) for k, v in groups[id(one)].items() if k != "params"}
                is_known = type(optimizer).__module__.startswith("torch.optim")
                update.settings[name] = ("" if is_known else "own ") + kind, settings
                if update.number == 0:
                    held = of.state(optimizer, one)
                    settings[records.STATE] = ", ".join(held) or "empty"
                    update.state |= {f"{name} {key}": part(own) for key, own in held.items()}
        self._scheduled.clear()

    def _stepping(self, optimizer: Optimizer) -> list[tuple[Root, list[str]]]:
        """Roots that a step ends an update of, and the names of their parameters in it."""
        known = [(root, root.names_in(of.ids_of(optimizer))) for root in self.roots.values()]
        if not any(names for _, names in known):  # it holds none of what was trained
            return [(root, []) for root, _ in known if root.done]
        return [(root, names) for root, names in known if names and (root.done or root.stepped)]

    def stepped(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped.

        Raises:
            Enough: all was seen.
        """
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
            update.after |= {n: part(root.names[n]) for n in names if n not in update.after}
            if not update.has_step and root.num_stepped < self.steps:
                update.number = root.num_stepped
                if not update.number:
                    root.record.left_behind = self._left_behind(update, names, optimizer)
                    root.record.updates = []  # of those that were left without a step
                update.has_step, update.backwards = True, self._backwards
                root.record.updates.append(update)
            root.stepped = True

    def loads(self, held: Any) -> None:
        """The script reads a checkpoint."""
        if not self.is_replaying and (found := of.moments(held)):
            self._moments.append((place(), found))

    def _left_behind(self, update: Update, names: list[str], optimizer: Optimizer) -> str:
        """The line that read a state of this optimizer, which began its first step without any."""
        own = Counter(update.after[n].shape for n in names)
        read = (where for where, shapes in self._moments if own <= shapes)
        return "" if update.state or not optimizer.state else next(read, "")

    def refuse(self, name: str) -> None:
        """Say once that something is not supported."""
        if name not in self.seen.refused:
            self.seen.refused.append(name)

    # The end

    def end(self) -> Seen:
        """What was recorded, with what the last backward pass left where no update followed."""
        self._finish()
        self.is_replaying = True
        return self.seen

    def _finish(self) -> None:
        self.zeroes()
        # Those that step more rarely have not been seen yet.
        optimizers = [one for one in gc.get_objects() if issubclass(type(one), Optimizer)]
        held = set[int]().union(*map(of.ids_of, optimizers))
        for root in self.roots.values():
            root.record.backwards = self._backwards
            root.record.refused = root.record.refused or root.exchanged
            if self._optimizers:
                root.record.unowned = [n for n, one in root.trained() if id(one) not in held]
            for update in root.record.updates:
                update.forwards = [one for one in update.forwards if one.backward is not None]
            inner = (m for one in self.roots.values() for m in one.modules[1:])
            if root.record.updates or not any(root.module is one for one in inner):
                self.seen.roots[root.record.key] = root.record
        pipelines = "torch.distributed.pipelining"
        known = {
            "deepspeed": "DeepSpeed",
            "megatron.core": "Megatron",
            pipelines: LACKING[pipelines],
        }
        self.seen.refused += [name for one, name in known.items() if name and one in sys.modules]


# The script


def run_script(
    script: str, arguments: Sequence[str], watch: Watch,
    is_reported: Callable[[], bool] = lambda: False,
) -> Seen:  # fmt: skip
    """Run a script to its end, or until the watch has seen enough.

    Args:
        script: its path.
        arguments: that it is given.
        watch: which is installed first.
        is_reported: whether another rank has reported, so that an error here says nothing more.
    """
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    watch.install()
    seen = watch.seen
    try:
        runpy.run_path(script, run_name="__main__")
    except Enough:
        seen.is_stopped = True
    except BaseException as error:  # noqa: BLE001 whatever ends the script is reported
        seen.ended = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, SystemExit):
            seen.ended = f"it left with exit code {error.code}" if error.code else ""
        elif not is_reported():
            traceback.print_exc()
        frames = [one for one in traceback.walk_tb(error.__traceback__) if is_script(one[0])]
        for frame, line in frames[-1:] if seen.ended else ():
            seen.ended_at = place_of(frame, line)
            lines = linecache.getlines(frame.f_code.co_filename)[max(line - 3, 0) : line]
            seen.ended_line = "".join(lines)
    seen.ended_seconds = time.monotonic()
    # This process ends without Python's own end, since threads of gloo may wait for ranks that are
    # gone: join the script's threads, and run what it left for the exit.
    with suppress(Exception):  # as Python, which goes on where an exit function fails
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    flush()
    return watch.end()


def flush() -> None:
    """Write what the script has buffered in any file."""
    for one in gc.get_objects():
        if issubclass(type(one), io.IOBase):
            with suppress(Exception):
                one.flush()

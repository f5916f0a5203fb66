"""Watches a training script on one rank, and changes none of its numbers.

In: what the script calls (`intercept`), in this process. Out: a `RankRecording`. Tensors are copied
at these moments: before and after the outermost forward pass of a module that trains; when a
backward pass ends; before unscaling, clipping and the optimizer's step; after the step.
"""

from __future__ import annotations

import functools
import gc
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from proofbook.companions.verify import internals, records, roots
from proofbook.companions.verify.intercept import Interceptor, ScriptCollectives
from proofbook.companions.verify.internals import LACKING, calling_stage, place, reached, redirected
from proofbook.companions.verify.losses import LossWatch
from proofbook.companions.verify.records import Forward, UpdateRecord, local_part, tensors_of
from proofbook.companions.verify.resume import ResumeWatch
from proofbook.companions.verify.roots import Root

_GUARDED = (
    "forward_begins", "before_ddp", "record_without_grad", "forward_ends", "_gradient_arrives",
    "backward_begins", "backward_ends", "stage_reduced", "backward_is_split", "keep_gradients",
    "gradients_clipped", "before_unscale", "before_zero_grad", "before_step",
    "part_is_read", "parts_are_sent", "loss_is_scaled", "_keep_step", "_finish",
)  # fmt: skip


class Enough(BaseException):
    """Ends the script, since all updates are recorded."""


class Watch:
    """Records as many updates of each module of a script as `steps` says.

    `asks_to_stop` is given the number of steps and whether all are recorded: whether to stop.
    """

    on_update: Callable[[Root], None] | None = None  # before an update of a root begins
    forward: Forward  # the newest

    def __init__(self, steps: int, asks_to_stop: Callable[[int, bool], bool]) -> None:
        self.recording = records.RankRecording()
        self.steps, self._asks_to_stop = steps, asks_to_stop
        self.roots: dict[int, Root] = {}  # by id of the module
        self._paths: dict[int, tuple[Root, str]] = {}
        self._no_grad: dict[int, tuple[nn.Module, records.NoGradPasses | None]] = {}
        self._frozen_in_ddp: dict[int, list[str]] = {}  # by id of what DDP wraps
        self.depth = self.in_backward = 0  # of forward and backward passes that run now
        self._backwards = self._count = 0  # of backward passes and steps
        self._loss_scale = 1.0  # of a gradient scaler, in the newest loss
        self.is_replaying = False  # whether the script has ended, and its modules run again
        self.is_shared = False  # whether peers need all inputs and outputs
        self._was_finished = False
        self.collectives = ScriptCollectives(self)
        self._outside: set[int] = set()  # parameters that the loss reaches past all modules
        self._parts_read: dict[str, set[int]] = {}  # addresses of parts of gradients, by line
        self._other_terms: list[str] = []
        self._number = 0  # of the backward pass that added to the present gradients first
        self._random: tuple[Any, ...] = ()  # states of the generators after the last forward pass
        self._alone: set[int | None] = set()  # backward passes that reached one module
        self._external: set[int] = set()  # nodes of outputs that the loss uses itself
        self._optimizers: dict[int, Optimizer] = {}  # that have stepped
        self.resume = ResumeWatch(self.recording, lambda: self._count)
        self.losses = LossWatch(lambda: self.is_recording, lambda: bool(self.in_backward))
        self._interceptor = Interceptor(self)

    @property
    def is_recording(self) -> bool:
        """Whether there is something left to record."""
        if self.is_replaying or self.recording.broken or not dist.is_initialized():
            return False
        return not self.is_finished

    @property
    def is_finished(self) -> bool:
        """Whether all updates of each module are recorded."""
        updates = [root.num_stepped for root in self.roots.values()]
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
        """Wrap functions of torch to record from now on; an own error ends only the recording."""
        self._guard(self, *_GUARDED)
        self._guard(self.losses, "_record", "_weigh", "unknown_terms", "end_backward", "forget")
        self._guard(self.resume, "scheduler_steps", "checkpoint_read")
        self._guard(self.collectives, "announce", "begins", "ended")
        self._interceptor.install()
        if LACKING["training"]:
            self.refuse(LACKING["training"])

    def _guard(self, owner: Any, *names: str) -> None:
        """Let an error of ours in these methods end the recording, and never reach the script."""

        def call(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if self.recording.broken:
                return None
            try:
                return original(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 whatever it is, the script goes on
                at = traceback.extract_tb(error.__traceback__)[-1]
                says = f"{type(error).__name__} in {Path(at.filename).name}:{at.lineno}: {error}"
                self.recording.broken = says.splitlines()[0]
                return None

        for name in names:
            setattr(owner, name, functools.partial(call, getattr(owner, name)))

    def _pending(self) -> Iterator[tuple[Root, UpdateRecord]]:
        """Roots whose gradients no optimizer has used yet."""
        return ((root, root.update) for root in self.roots.values() if root.is_pending)

    # Forward

    def before_ddp(self, module: nn.Module) -> None:
        """DDP is about to wrap a module, and will reduce only gradients that are required now."""
        self.collectives.announce("DistributedDataParallel")
        frozen = [name for name, own in module.named_parameters() if not own.requires_grad]
        self._frozen_in_ddp[id(module)] = frozen

    def record_without_grad(self, module: nn.Module) -> None:
        """A module runs without gradients: record its parameters, once for each step and line."""
        module = module.module if isinstance(module, DistributedDataParallel) else module
        if not self.is_recording or id(module) in self._paths:
            return
        recorded, parameters = self.recording.no_grad, list(module.parameters())
        if id(module) not in self._no_grad:
            self._no_grad |= {id(child): (child, None) for child in module.modules()}
            is_part = calling_stage() is not None or any(isinstance(p, DTensor) for p in parameters)
            if parameters and not is_part:
                taken = [*recorded, *(root.record.key for root in self.roots.values())]
                key = roots.report_name(module, taken)
                self._no_grad[id(module)] = module, recorded.setdefault(key, {})
        passes, at = self._no_grad[id(module)][1], (self._count, place())
        if passes is not None and at not in passes and len(passes) <= 2 * self.steps:
            last = next(reversed(passes.values()), [])
            is_same = last and all(map(torch.equal, last, parameters))
            passes[at] = last if is_same else [local_part(own).local for own in parameters]

    def forward_begins(
        self, module: nn.Module, args: Any, kwargs: Any, method: str = ""
    ) -> tuple[Root, Forward] | None:
        """Begin an update if due; returns its root and a new `Forward`, or None if unrecorded."""
        if not dist.is_initialized():
            self.recording.without_group = self.recording.without_group or place()
        if self.is_replaying or not dist.is_initialized():
            return None
        calling = calling_stage()
        is_trial = calling and calling[1] is None  # a stage infers shapes
        root, path = (None, "") if is_trial else self._root_of(module, calling)
        if root is None or (self.in_backward and path):
            return None
        if root.num_stepped >= self.steps and root.stepped:
            self._keep_later(root)
            return None
        self._begin_update(root)
        tensors = tensors_of((args, kwargs))
        self.forward = Forward(
            path, records.mapped((args, kwargs), local_part), method or redirected(root.module),
            random=roots.random_states(), place=place(), chunk=calling and calling[1],
            autocast=(torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
            training=[child.training for child in root.modules],
            digests=list(map(roots.digest, tensors)),
            shapes=[tuple(tensor.shape) for tensor in tensors],
            samples=roots.sample_digests(tensors), is_shared=self.is_shared,
        )  # fmt: skip
        return root, self.forward

    def _keep_later(self, root: Root) -> None:
        """Keep parameters of the next step and the newest: a script may change them at any time."""
        later = root.record.later
        if root.module.training and (not later or later[-1].number != self._count):
            parameters = {name: local_part(own) for name, own in root.parameters.items()}
            now = UpdateRecord(self._count, parameters, {}, step_place=root.update.step_place)
            for optimizer in self._optimizers.values():
                for group in optimizer.param_groups:
                    settings = {"lr": roots.copied_setting(group.get("lr"))}
                    for name in root.names_of(set(map(id, group["params"]))):
                        now.settings[name] = type(optimizer).__name__, settings
            root.record.later = [*later[:1], now]

    def _root_of(
        self, module: nn.Module, calling: internals.Stage | None
    ) -> tuple[Root | None, str]:
        """The root of a module, and its path in it; None for a module that does not train."""
        inner = module.module if isinstance(module, DistributedDataParallel) else module
        if id(inner) not in self._paths:
            is_whole_step = redirected(inner) and not getattr(inner, "automatic_optimization", True)
            if is_whole_step or not any(own.requires_grad for own in inner.parameters()):
                return None, ""
            others = [root.record.key for root in self.roots.values()]
            key, stage = roots.report_name(inner, others), None
            if calling is not None:
                self._interceptor.install_of_stages(type(calling[0]))
                stage = int(calling[0].stage_index)
                key = f"stage {stage}"
            root = self.roots[id(inner)] = Root(module, inner, key, stage)
            for path, child in inner.named_modules():
                self._paths.setdefault(id(child), (root, path))
        root, path = self._paths[id(inner)]
        if isinstance(module, DistributedDataParallel) and root.record.data_ranks is None:
            root.record.data_ranks = dist.get_process_group_ranks(module.process_group)
            root.record.frozen_in_ddp = self._frozen_in_ddp.get(id(inner), [])
            if module.will_sync_module_buffers():
                root.record.buffers_from = root.record.data_ranks[0]
        return root, path

    def _begin_update(self, root: Root) -> None:
        """Begin an update, unless one has begun that is neither stepped nor zeroed."""
        before, was_stepped = root.update, root.stepped
        is_over = was_stepped or (root.backpropagated and root.is_zeroed)
        if before.number >= 0 and not is_over:
            return
        self.before_zero_grad()
        root.refresh()
        if self.on_update is not None:
            self.on_update(root)
        for forward in before.forwards:
            forward.nodes = {}
        now = root.begin_update()
        self.losses.forget()
        if all(f.backward for other in self.roots.values() for f in other.update.forwards):
            self.collectives.reasons, self.collectives.gathered = [], {}
        is_same = (
            torch.equal(part.local, now.parameters[name].local)
            for name, part in before.parameters.items()
        )
        if not was_stepped and all(is_same):  # else updated by hand
            now.dropped = before.dropped + self._dropped(before)

    def forward_ends(self, root: Root, forward: Forward, value: Any) -> None:
        """Record the outputs of a forward pass, hook their gradients, and add it to the update."""
        self._random = roots.random_states()
        forward.draws = roots.have_drawn(forward.random)
        if forward.draws and not torch.equal(self._random[0], forward.random[0]):
            forward.seed = roots.digest(forward.random[0])
        outputs = tensors_of(value)
        forward.outputs = list(map(local_part, outputs))
        for index, output in enumerate(outputs):
            if output.grad_fn is not None:  # after the script's own hooks of the output
                forward.nodes[index] = output.grad_fn
                arrives = functools.partial(
                    self._gradient_arrives, root, forward, index, output.output_nr
                )
                output.grad_fn.register_prehook(arrives)
        is_again = outputs and outputs[0].requires_grad  # by a reentrant checkpoint around it
        if not self.in_backward or is_again:
            root.update.forwards.append(forward)

    def _gradient_arrives(
        self, root: Root, forward: Forward, index: int, number: int,
        gradients: Sequence[Tensor | None],
    ) -> None:  # fmt: skip
        """Record the gradient of an output, which has a `number` among those of its node."""
        gradient = gradients[number]
        is_inside = index in forward.nodes and id(forward.nodes[index]) not in self._external
        if gradient is None or not self.in_backward or is_inside:
            return  # torch.autograd.grad leaves .grad as it is; what is inside is replayed
        forward.backward = self._number
        own, before = local_part(gradient), forward.gradients.get(index)
        forward.gradients[index] = (
            records.LocalPart(before.local + own.local, own.spec) if before else own
        )

    # Backward

    def backward_begins(self, start: list[internals.Edge]) -> None:
        """Note what a backward pass will reach: forward passes, losses, other terms, parameters."""
        if not self.in_backward:
            self._backwards += 1
            if roots.have_drawn(self._random):
                self.forward.draws = True
            self._external = set()
        nodes, outputs = set(map(id, reached(start))), set[int]()
        hit = [
            (root, forward) for root in self.roots.values() for forward in root.update.forwards
            if forward.ids & nodes
        ]  # fmt: skip
        for _, forward in hit:
            outputs |= forward.ids
            is_single = len(forward.ids) == 1
            first = forward.ids if is_single else set(map(id, reached(start, forward.ids)))
            self._external |= forward.ids & first
        others = self.losses.unknown_terms(start, outputs)
        if self.in_backward:  # of a checkpoint, or of a schedule
            return
        self._other_terms = [f"{name} ({place()})" for name in others]
        self.collectives.find_lost(start, outputs)
        self._outside = {id(leaf) for leaf in internals.leaves_before(start, outputs)}
        for root in {id(root): root for root, _ in hit if not root.stepped}.values():
            self._before_gradients(root, [f for own, f in hit if own is root and f.backward])
        self._number = next((f.backward for _, f in hit if f.backward), self._backwards)

    def _before_gradients(self, root: Root, again: Sequence[Forward]) -> None:
        """Keep or drop the gradients to which a backward pass adds, through some passes `again`."""
        update = root.update
        if not root.backpropagated and not root.is_zeroed:
            update.carried = root.gradients()
        elif root.backpropagated and root.is_zeroed:
            for loss in update.losses:
                if loss.backward in [forward.backward for forward in again]:
                    loss.weights = None
            for forward in again:  # whose first gradient was only looked at
                forward.backward, forward.gradients = None, {}
            update.dropped += self._dropped(update)
            update.forwards = [f for f in update.forwards if f.backward is None]
            update.losses, update.carried = [], {}

    def _dropped(self, update: UpdateRecord) -> int:
        return len({forward.backward for forward in update.forwards} & self._alone)

    def backward_ends(self) -> None:
        """Record reduced gradients and losses on each root that the backward pass reached."""
        losses = self.losses.end_backward(self._number)
        touched = [
            root for root in self.roots.values()
            if any(forward.backward == self._number for forward in root.update.forwards)
        ]  # fmt: skip
        for root in touched:
            update = root.update
            if len(touched) == 1 and root.is_finite:  # what is reset now is lost to all
                self._alone.add(self._number)
            update.loss_scale = self._loss_scale
            update.after_backward = root.gradients()
            update.at_sum, update.before_clipping = {}, {}
            update.losses += [loss for loss in losses if not any(loss is k for k in update.losses)]
            update.outside += root.names_of(self._outside)
            update.other_terms += self._other_terms
            update.by_hand += self.collectives.reasons
            update.backward_place = place()
        self.collectives.reasons = []

    def stage_reduced(self) -> None:
        """A pipeline's stage has reduced and scaled gradients, after its last backward pass."""
        for root, update in self._pending():
            update.after_backward = root.gradients()

    def backward_is_split(self) -> None:
        """Refuse a schedule that computes gradients of parameters apart from those of inputs."""
        for root in self.roots.values():
            root.record.refused = "a zero-bubble schedule, which splits the backward pass,"

    # Between backward and the update

    def keep_gradients(self) -> None:
        """Keep gradients before anything but a backward pass changes them."""
        for root, update in self._pending():
            update.before_clipping = update.before_clipping or root.gradients()

    def part_is_read(self, tensor: DTensor, part: Tensor, *, in_step: bool) -> None:
        """The script reads the local part of a tensor, which may be a gradient."""
        for root, _ in self._pending() if self.is_recording and self.is_idle else ():
            if not any(own.grad is tensor for own in root.parameters.values()):
                continue
            if in_step:
                root.record.steps_on_parts = place()
            else:
                self._parts_read.setdefault(place(), set()).add(part.data_ptr())
                self.recording.part_read = next(iter(self._parts_read))

    def parts_are_sent(self, addresses: set[int]) -> None:
        """A collective sends what was read: it is reduced by hand, and no norm is taken of it."""
        kept = {at: own for at, own in self._parts_read.items() if not own & addresses}
        if len(kept) < len(self._parts_read):
            self._parts_read, self.recording.part_read = kept, next(iter(kept), "")

    def gradients_clipped(self, clip: records.Clip, gradients: list[Tensor], total: Any) -> None:
        """Add a clip, with names and total norm, to the update of each root that it clipped."""
        ids = set(map(id, gradients))
        placements = total.placements if isinstance(total, DTensor) else ()
        if total is not None and all(placement.is_replicate() for placement in placements):
            clip.total = float(records.local_tensor(total))
        clip.backward = self._backwards
        for root in self.roots.values():
            if names := root.names_of(ids):
                clip.names += [(root.record.key, name) for name in names]
                root.update.clips.append(clip)

    def loss_is_scaled(self, scaler: Any, *_: Any) -> None:
        """A gradient scaler multiplies a loss."""
        self._loss_scale = float(scaler.get_scale())

    def before_unscale(self, scaler: Any, optimizer: Optimizer) -> None:
        """A gradient scaler is about to divide gradients."""
        self.keep_gradients()
        for root in self.roots.values():
            if root.names_of(roots.parameter_ids(optimizer)):
                root.update.scale = float(scaler.get_scale())

    def before_zero_grad(self) -> None:
        """Keep gradients before they are reset, and an update that no optimizer has stepped."""
        for root, update in self._pending():
            left = update.after_backward if root.is_zeroed else root.gradients()
            update.before_clipping = update.before_clipping or left
            kept = root.record.updates
            is_new = not root.num_stepped and not any(update is known for known in kept)
            if is_new and len(kept) < self.steps:
                kept.append(update)

    # The update

    def before_step(self, optimizer: Optimizer) -> None:
        """Record gradients and settings before an optimizer's step; refuse a step in backward."""
        self._optimizers[id(optimizer)] = optimizer
        if not self.is_recording:
            return
        if (kind := type(optimizer).__name__) == "ZeroRedundancyOptimizer":
            self.refuse(kind)
        if self.in_backward:
            for root, _ in self._stepping(optimizer):
                root.record.refused = records.STEPS_INSIDE
            return
        self.keep_gradients()
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for root, names in self._stepping(optimizer):
            root.update.step_place = place()
            root.update.scheduler_steps = self.resume.num_scheduled
            for name in names:
                if name not in root.update.after:
                    own = root.parameters[name]
                    _record_settings(root.update, name, own, optimizer, groups[id(own)])
        self.resume.scheduled.clear()

    def _stepping(self, optimizer: Optimizer) -> list[tuple[Root, list[str]]]:
        """Roots whose update a step ends, and the names of their parameters in it."""
        ids = roots.parameter_ids(optimizer)
        known = [(root, root.names_of(ids)) for root in self.roots.values()]
        if not any(names for _, names in known):  # it holds none of what was trained
            return [(root, []) for root, _ in known if root.backpropagated]
        return [(r, names) for r, names in known if names and (r.backpropagated or r.stepped)]

    def after_step(self, optimizer: Optimizer) -> None:
        """Record parameters after an optimizer's step; raises `Enough` to stop the script."""
        if self.is_replaying:
            return
        self._count += 1
        if self.is_recording:
            self._keep_step(optimizer)
        is_finished = self.is_finished or bool(self.recording.broken)
        self._was_finished = self._was_finished or is_finished
        if self._asks_to_stop(self._count, self._was_finished):
            raise Enough

    def _keep_step(self, optimizer: Optimizer) -> None:
        for root, names in self._stepping(optimizer):
            update = root.update
            new = [name for name in names if name not in update.after]
            update.after |= {name: local_part(root.parameters[name]) for name in new}
            if not update.has_step and root.num_stepped < self.steps:
                update.number = root.num_stepped
                if not update.number:
                    own = Counter(update.after[name].shape for name in names)
                    is_empty = optimizer.state and not update.state
                    root.record.left_behind = self.resume.read_at(own) if is_empty else ""
                    root.record.updates = []  # of those that were left without a step
                update.has_step, update.backwards = True, self._backwards
                root.record.updates.append(update)
            root.stepped = True

    def refuse(self, name: str) -> None:
        """Record once that something is not supported."""
        if name not in self.recording.refused:
            self.recording.refused.append(name)

    # The end

    def end(self) -> records.RankRecording:
        """Finish the recording, with gradients of a last backward pass that no update followed."""
        self.recording.is_whole = self._was_finished
        self._finish()
        self.is_replaying = True
        return self.recording

    def _finish(self) -> None:
        self.before_zero_grad()
        # Optimizers that step more rarely have not been called yet.
        optimizers = [value for value in gc.get_objects() if issubclass(type(value), Optimizer)]
        owned = set[int]().union(*map(roots.parameter_ids, optimizers))
        inner = {id(child) for root in self.roots.values() for child in root.modules[1:]}
        for root in self.roots.values():
            record = root.record
            record.backwards = self._backwards
            record.refused = record.refused or root.gathered_elsewhere
            if self._optimizers:
                record.unowned = [n for n, own in root.trainable() if id(own) not in owned]
            for update in record.updates:
                update.forwards = [f for f in update.forwards if f.backward is not None]
            if record.updates or id(root.module) not in inner:
                self.recording.roots[record.key] = record
        known = {"deepspeed": "DeepSpeed", "megatron.core": "Megatron"}
        known["torch.distributed.pipelining"] = LACKING["torch.distributed.pipelining"]
        self.recording.refused += [n for path, n in known.items() if n and path in sys.modules]


def _record_settings(
    update: UpdateRecord, name: str, parameter: Tensor, optimizer: Optimizer, group: dict[str, Any]
) -> None:
    """Record gradient and settings of a parameter, and the state of its optimizer at first."""
    gradient, kind = parameter.grad, type(optimizer).__name__
    update.at_step[name] = None if gradient is None else local_part(gradient)
    settings = {k: roots.copied_setting(v) for k, v in group.items() if k != "params"}
    is_known = type(optimizer).__module__.startswith("torch.optim")
    update.settings[name] = ("" if is_known else "own ") + kind, settings
    if update.number == 0:
        state = roots.optimizer_state(optimizer, parameter)
        settings[records.STATE] = ", ".join(state) or "empty"
        update.state |= {f"{name} {key}": local_part(value) for key, value in state.items()}

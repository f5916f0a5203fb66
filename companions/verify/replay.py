"""Replays recorded forward passes in an unsharded clone, as one process computes them.

In: a root, its whole parameters, and the forward passes that this rank recorded. Out: a `Replay`:
the sums of the gradients over these passes, in float64 and in the script's own precision, and the
error of each recorded output. Nothing communicates in the clone: wrappers and hooks of
torch.distributed are left out, `checkpoint` is the identity, and a collective raises.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from proofbook.companions.verify import intercept
from proofbook.companions.verify.intercept import INSIDE, CommunicationError, Registered
from proofbook.companions.verify.internals import gathered_by_fsdp, policy, pytree
from proofbook.companions.verify.losses import token_weights
from proofbook.companions.verify.records import Forward, LocalPart, Loss, mapped, tensors_of
from proofbook.runners.system.errors import first_line

_HOOKS = tuple(name for name in nn.Module().__dict__ if "hooks" in name)


def unsharded(
    module: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], *,
    is_exact: bool,
) -> nn.Module:  # fmt: skip
    """A clone of a module, given whole parameters and buffers by name, without wrappers' hooks.

    It computes in float64 if `is_exact`; else as each unit of FSDP does.
    """
    cloning = _Cloning(is_exact)
    for name, own in module.named_parameters():
        cloning.known[id(own)] = nn.Parameter(cloning.tensor(parameters[name]), own.requires_grad)
    for name, buffer in module.named_buffers():
        cloning.known[id(buffer)] = cloning.tensor(buffers[name])
    return cloning.clone(module)


class _Cloning:
    """Clones modules, and attributes that refer to modules; `known` has clones by id."""

    def __init__(self, is_exact: bool) -> None:
        self._is_exact = is_exact
        self._cast = set[nn.Parameter]()  # by the innermost unit of FSDP
        self.known: dict[int, Any] = {}

    def tensor(self, tensor: Tensor) -> Tensor:
        """A copy off the graph."""
        is_cast = self._is_exact and tensor.is_floating_point()
        return tensor.detach().clone().to(torch.float64 if is_cast else tensor.dtype)

    def clone(self, module: nn.Module) -> nn.Module:
        """The clone of a module, without a DDP wrapper."""
        if isinstance(module, DistributedDataParallel):
            return self.clone(module.module)
        kind: Any = next(  # of which `fully_shard` derives a class
            base for base in type(module).__mro__
            if issubclass(base, nn.Module) and not issubclass(base, FSDPModule)
        )  # fmt: skip
        new: nn.Module = kind.__new__(kind)
        self.known[id(module)] = new
        for name, value in vars(module).items():
            if name in _HOOKS and isinstance(value, dict):
                kept = ((key, hook) for key, hook in value.items() if _is_kept(hook))
                new.__dict__[name] = type(value)(kept)
            elif not isinstance(value, Registered):
                new.__dict__[name] = pytree.tree_map(self._copied, value)
        if hasattr(module, "automatic_optimization"):  # Lightning, whose trainer has ended
            new.__dict__ |= dict.fromkeys(("log", "log_dict"), lambda *_, **__: None)
        if not self._is_exact and isinstance(module, FSDPModule):
            gathered, mixed = gathered_by_fsdp(module), policy(module)
            own = {self.known[i] for i in gathered if i in self.known} - self._cast
            self._cast |= own
            for parameter in own:
                parameter.data = parameter.data.to(mixed.param_dtype or parameter.dtype)
            _cast_as_unit(new, mixed)
        return new

    def _copied(self, value: Any) -> Any:
        """The copy of an attribute's value; the same in each call."""
        if id(value) in self.known:
            return self.known[id(value)]
        if isinstance(value, nn.Module):
            return self.clone(value)
        if isinstance(value, Tensor):
            return self.tensor(value)
        return self._callable(value) if callable(value) else value

    def _callable(self, value: Any) -> Any:
        """The copy of a callable, with the modules that it is bound to or encloses."""
        if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
            return types.MethodType(self._copied(value.__func__), self._copied(value.__self__))
        if isinstance(value, functools.partial):
            args, words = pytree.tree_map(self._copied, (value.args, value.keywords))
            return functools.partial(self._copied(value.func), *args, **words)
        cells = value.__closure__ or () if isinstance(value, types.FunctionType) else ()
        self.known[id(value)] = value  # it may refer to itself
        with suppress(ValueError):  # a cell may be empty
            contents = [cell.cell_contents for cell in cells]
            copies = [pytree.tree_map(self._copied, content) for content in contents]
            if any(a is not b for a, b in zip(contents, copies, strict=True)):
                new = types.FunctionType(
                    value.__code__, value.__globals__, value.__name__, value.__defaults__,
                    tuple(map(types.CellType, copies)),
                )  # fmt: skip
                new.__kwdefaults__ = value.__kwdefaults__
                self.known[id(value)] = new
        return self.known[id(value)]


def _is_kept(hook: Any) -> bool:
    """Whether a hook is a part of the module, as that of weight normalization."""
    return str(getattr(hook, "__module__", "")).startswith("torch.nn.utils")


def _keep_gradient_hooks(new: Tensor, old: Tensor) -> None:
    """Copy the script's own hooks on a gradient, without those that communicate."""

    def hooked(hook: Any, gradient: Tensor) -> Tensor | None:
        copy = gradient.clone()
        with suppress(CommunicationError):
            value = hook(copy)
            return copy if value is None else value
        return None

    for hook in (old._backward_hooks or {}).values():
        if not str(getattr(hook, "__module__", "")).startswith("torch."):
            new.register_hook(functools.partial(hooked, hook))


def _cast_as_unit(module: nn.Module, mixed: Any) -> None:
    """Cast inputs and outputs as a unit of FSDP does."""

    def to(dtype: torch.dtype | None, tree: Any) -> Any:
        return mapped(tree, lambda t: t.to(dtype) if t.is_floating_point() else t)

    if mixed.param_dtype is not None and mixed.cast_forward_inputs:
        module.register_forward_pre_hook(
            lambda _, *inputs: to(mixed.param_dtype, inputs), with_kwargs=True
        )
    if mixed.output_dtype is not None:
        module.register_forward_hook(lambda _, __, value: to(mixed.output_dtype, value))


_MOST_ELEMENTS = 20_000_000  # of gradients that are kept apart for each backward pass
Sums = dict[int | None, dict[str, Tensor]]  # by backward pass (None: summed up) and parameter


@dataclass
class Replay:
    """The gradients and errors of replayed forward passes."""

    exact: Sums = field(default_factory=dict)  # gradients in float64
    own: Sums = field(default_factory=dict)  # their sums in the script's precision, under None
    errors: list[tuple[float, float]] = field(default_factory=list)  # of each pass: the relative
    # error of its outputs, and the rounding
    failed: str = ""  # why there is nothing to compare
    losses: list[Loss] = field(default_factory=list)  # cross-entropies of the outputs, of which
    # only their gradients are known


def replay_passes(
    module: nn.Module, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor],
    passes: Sequence[Forward], frozen: Collection[str] = (),
) -> Replay:  # fmt: skip
    """The `Replay` of passes in clones, in their own precision and float64: gradients and errors.

    Parameters, buffers, and tensors of the passes are whole.
    """
    replay = Replay(losses=_solved_losses(passes))
    elements = sum(own.numel() for own in parameters.values()) * len({f.backward for f in passes})

    def run(sums: Sums, *, is_exact: bool) -> list[list[Tensor]]:
        """The outputs of each pass."""
        clone = unsharded(module, parameters, buffers, is_exact=is_exact)
        for name, parameter in clone.named_parameters():
            parameter.requires_grad_(name not in frozen)
            _keep_gradient_hooks(parameter, module.get_parameter(name))
        keys = [f.backward if is_exact and elements <= _MOST_ELEMENTS else None for f in passes]
        return [
            replay_pass(clone, forward, sums.setdefault(key, {}), is_exact=is_exact)
            for forward, key in zip(passes, keys, strict=True)
        ]

    try:
        own = run(replay.own, is_exact=False)
    except Exception as error:  # noqa: BLE001 whatever the module raises, it is not compared
        replay.failed = f"its replay failed: {type(error).__name__}: {first_line(error)}"
        if "to_local" in str(error):
            replay.failed = (
                "it takes the local parts of DTensor weights (`to_local`), which whole weights do "
                f"not have{INSIDE}"
            )
        return replay
    try:
        exact = run(replay.exact, is_exact=True)
    except Exception:  # noqa: BLE001 it does not compute in float64
        exact, replay.exact = own, replay.own
    for index, forward in enumerate(passes):
        recorded = [output.local for output in forward.outputs]
        off, rounding = _distance(exact[index], recorded), _distance(exact[index], own[index])
        own_off = _distance(own[index], recorded)
        if off > 1e-3 > own_off and rounding > 0.5 * off:  # float64 draws other numbers
            off, rounding, replay.exact = own_off, 0.0, replay.own
        replay.errors.append((off, rounding))
    return replay


def _solved_losses(passes: Sequence[Forward]) -> list[Loss]:
    """The losses that gradients of outputs tell; none where an output has one of another loss.

    They are cross-entropies of an output, or sums of an output, as of losses of each token.
    """
    losses = []
    for forward in passes:
        for index, gradient in forward.gradients.items():
            place, backward = forward.place, forward.backward
            solved = token_weights(forward.outputs[index].local, gradient.local)
            if solved is not None:
                weights, count = solved
                losses.append(Loss("cross_entropy", place, count, weights, backward))
                continue
            used = gradient.local[gradient.local != 0].double()
            if used.numel() > 1 and not (used != used[0]).any():
                losses.append(Loss("sum", place, used.numel(), used[0], backward, is_scaled=True))
            elif bool(gradient.local.any()):
                return []
    return losses


def _distance(exact: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """The largest relative error of floating tensors; infinite where shapes differ."""
    worst = 0.0
    for should, other in zip(exact, others, strict=True):
        if should.shape != other.shape:
            return float("inf")
        if should.is_floating_point() and should.numel():
            difference = (should.double() - other.double()).norm().item()
            worst = max(worst, difference / max(should.double().norm().item(), 1e-30))
    return worst


def replay_pass(
    clone: nn.Module, forward: Forward, sums: dict[str, Tensor], *, is_exact: bool
) -> list[Tensor]:
    """Run one pass forward and backward, and add its gradients to the sums; returns the outputs."""
    for module, is_training in zip(clone.modules(), forward.training, strict=False):
        module.training = is_training
    _restore_generators(*forward.random)
    intercept.recorded_sums = iter(forward.numbers)

    def argument(recorded: Tensor | LocalPart) -> Tensor:
        tensor = recorded.local if isinstance(recorded, LocalPart) else recorded
        return tensor.double() if is_exact and tensor.is_floating_point() else tensor.clone()

    args, kwargs = mapped(forward.arguments, argument)
    is_cast, dtype = forward.autocast
    cast = torch.autocast("cpu", dtype) if is_cast and not is_exact else nullcontext()
    default = torch.get_default_dtype()
    try:
        if is_exact:
            torch.set_default_dtype(torch.float64)
        with torch.enable_grad(), cast:
            called = clone.get_submodule(forward.path)
            called = getattr(called, forward.method) if forward.method else called
            outputs = tensors_of(called(*args, **kwargs))
        if [own.shape for own in outputs] == [own.local.shape for own in forward.outputs]:
            pairs = [
                (outputs[index], gradient.local.to(outputs[index].dtype))
                for index, gradient in forward.gradients.items()
                if outputs[index].requires_grad
            ]
            for a, b in pairs:  # of an output from which others are computed, it is all
                a.register_hook(lambda _, b=b: b)
            torch.autograd.backward([a for a, _ in pairs], [b for _, b in pairs])
    finally:
        torch.set_default_dtype(default)
    for name, parameter in clone.named_parameters():
        if parameter.grad is not None:
            sums[name] = parameter.grad.double() + sums.get(name, 0.0)
            parameter.grad = None
    return [output.detach() for output in outputs]


def _restore_generators(own: Tensor, of_python: Any, *of_numpy: Any) -> None:
    torch.set_rng_state(own)
    random.setstate(of_python)
    for state in of_numpy:
        sys.modules["numpy"].random.set_state(state)

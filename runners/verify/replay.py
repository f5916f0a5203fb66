"""Replays recorded forward passes in an unsharded clone, as one process computes them.

In: a root, its whole parameters, and the forward passes that this rank recorded. Out: `Replayed`:
the sums of the gradients over these passes, in float64 and in the script's own precision, and how
far each output is from the recorded one. Nothing communicates in the clone: wrappers and hooks of
torch.distributed are left out, `checkpoint` is the identity, and a collective raises.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from runners.system.errors import first_line
from runners.verify import intercept
from runners.verify.intercept import CommunicationError, Registered
from runners.verify.internals import gathered_by_fsdp, policy
from runners.verify.losses import solved
from runners.verify.records import Forward, Loss, Part, mapped, tensors_of

_HOOKS = tuple(name for name in nn.Module().__dict__ if "hooks" in name)


def unsharded(
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    *,
    is_exact: bool,
) -> nn.Module:
    """A clone of a module with whole parameters, and without wrappers and their hooks.

    Args:
        module: of any layout.
        parameters: whole, by name.
        buffers: the same.
        is_exact: in float64; else as each unit of FSDP computes.
    """
    dtypes = {} if is_exact else _unit_dtypes(module)
    first = {id(one): name for name, one in module.named_parameters()}
    cloning = _Cloning(is_exact)
    for name, one in module.named_parameters(remove_duplicate=False):
        if id(one) not in cloning.known:
            whole = cloning.tensor(parameters[first[id(one)]])
            whole = whole.to(dtypes.get(name) or whole.dtype)
            cloning.known[id(one)] = nn.Parameter(whole, one.requires_grad)
    for name, buffer in module.named_buffers():
        cloning.known[id(buffer)] = cloning.tensor(buffers[name])
    return cloning.clone(module)


class _Cloning:
    """Clones modules, and whatever of their attributes refers to them.

    Attributes:
        known: clones, by the id of the original.
    """

    def __init__(self, is_exact: bool) -> None:
        self._is_exact = is_exact
        self.known: dict[int, Any] = {}

    def tensor(self, tensor: Tensor) -> Tensor:
        """A copy off the graph."""
        is_cast = self._is_exact and tensor.is_floating_point()
        return tensor.detach().clone().to(torch.float64 if is_cast else tensor.dtype)

    def clone(self, module: nn.Module) -> nn.Module:
        """The clone of a module; of a wrapper, that of what it wraps."""
        if isinstance(module, DistributedDataParallel):
            return self.clone(module.module)
        new: nn.Module
        new = self.known[id(module)] = _plain_class(module).__new__(_plain_class(module))
        own = {n: one for n, one in vars(module).items() if not isinstance(one, Registered)}
        for name, value in own.items():
            new.__dict__[name] = value if name in _HOOKS else self._copied(value)
        _keep_hooks(new, module)
        if hasattr(module, "automatic_optimization"):  # Lightning, whose trainer has ended
            new.__dict__ |= dict.fromkeys(("log", "log_dict"), lambda *_, **__: None)
        if not self._is_exact and isinstance(module, FSDPModule):
            _cast_as_unit(new, policy(module))
        return new

    def _copied(self, value: Any) -> Any:
        """A value of an attribute; the same for each call."""
        if id(value) in self.known:
            return self.known[id(value)]
        if isinstance(value, nn.Module):
            return self.clone(value)
        if isinstance(value, Tensor):
            return self.tensor(value)
        if type(value) in (list, tuple):
            return type(value)(map(self._copied, value))
        if type(value) in (dict, OrderedDict):
            return type(value)((key, self._copied(one)) for key, one in value.items())
        return self._callable(value) if callable(value) else value

    def _callable(self, value: Any) -> Any:
        """A function that stands in the place of a method may hold the original in its closure."""
        if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
            return types.MethodType(self._copied(value.__func__), self._copied(value.__self__))
        if isinstance(value, functools.partial):
            args, words = self._copied(value.args), self._copied(value.keywords)
            return functools.partial(self._copied(value.func), *args, **words)
        cells = value.__closure__ or () if isinstance(value, types.FunctionType) else ()
        self.known[id(value)] = value  # it may refer to itself
        with suppress(ValueError):  # a cell may be empty
            held = [one.cell_contents for one in cells]
            copies = list(map(self._copied, held))
            if any(one is not copy for one, copy in zip(held, copies, strict=True)):
                new = types.FunctionType(
                    value.__code__, value.__globals__, value.__name__, value.__defaults__,
                    tuple(map(types.CellType, copies)),
                )  # fmt: skip
                new.__kwdefaults__ = value.__kwdefaults__
                self.known[id(value)] = new
        return self.known[id(value)]


def _plain_class(module: nn.Module) -> type[nn.Module]:
    """The class of before `fully_shard`, which derives another one."""
    bases = type(module).__mro__
    kind: type[nn.Module] = next(
        one for one in bases if issubclass(one, nn.Module) and not issubclass(one, FSDPModule)
    )
    return kind


def _keep_hooks(new: nn.Module, module: nn.Module) -> None:
    for name in _HOOKS:
        hooks = module.__dict__.get(name)
        if isinstance(hooks, dict):
            new.__dict__[name] = type(hooks)((k, one) for k, one in hooks.items() if _is_kept(one))


def _is_kept(hook: Any) -> bool:
    """Whether a hook belongs to the module itself, as that of weight normalization does."""
    own = hook if hasattr(hook, "__module__") else type(hook)
    return str(own.__module__).startswith("torch.nn.utils")


def keep_gradient_hooks(new: Tensor, old: Tensor) -> None:
    """Hooks of the script's own on a gradient; not those that communicate, and so reduce."""

    def follow(hook: Any) -> Any:
        def hooked(gradient: Tensor) -> Tensor | None:
            with suppress(CommunicationError):
                copy = gradient.clone()
                value = hook(copy)
                return copy if value is None else value
            return None

        return hooked

    for hook in (old._backward_hooks or {}).values():
        if not str(getattr(hook, "__module__", "")).startswith("torch."):
            new.register_hook(follow(hook))


def _unit_dtypes(module: nn.Module) -> dict[str, torch.dtype]:
    """In which dtype FSDP gathers each parameter, where a policy says so."""
    found, gathered = dict[str, torch.dtype | None](), gathered_by_fsdp(module)
    for prefix, one in module.named_modules():  # inner units come later, and win
        if isinstance(one, FSDPModule):
            dtype = policy(one).param_dtype
            inner = module.get_submodule(prefix).named_parameters(prefix, remove_duplicate=False)
            found |= dict.fromkeys((name for name, p in inner if id(p) in gathered), dtype)
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def _cast_as_unit(module: nn.Module, said: Any) -> None:
    """Cast inputs and outputs as a unit of FSDP does."""

    def to(dtype: torch.dtype, tree: Any) -> Any:
        return mapped(tree, lambda one: one.to(dtype) if one.is_floating_point() else one)

    if said.param_dtype is not None and said.cast_forward_inputs:
        module.register_forward_pre_hook(
            lambda _, args, kwargs: (to(said.param_dtype, args), to(said.param_dtype, kwargs)),
            with_kwargs=True,
        )
    if said.output_dtype is not None:
        module.register_forward_hook(lambda _, __, value: to(said.output_dtype, value))


MOST_ELEMENTS = 20_000_000  # of gradients that are kept apart for each backward pass
Sums = dict[int | None, dict[str, Tensor]]  # by backward pass (None: summed up) and parameter


@dataclass
class Replayed:
    """What a replay computed."""

    exact: Sums = field(default_factory=dict)  # gradients in float64
    own: Sums = field(default_factory=dict)  # their sums in the script's precision, under None
    errors: list[tuple[float, float]] = field(default_factory=list)  # of each pass: the relative
    # error of its outputs, and what rounding explains
    failed: str = ""  # why there is nothing to compare
    is_own: bool = False  # float64 draws other numbers, so the script's precision is the oracle
    losses: list[Loss] = field(default_factory=list)  # cross-entropies of the outputs, of which
    # only their gradients are known


def replayed(
    module: nn.Module,
    parameters: Mapping[str, Tensor],
    buffers: Mapping[str, Tensor],
    whole: Sequence[Forward],
    frozen: Collection[str] = (),
) -> Replayed:
    """Replay forward passes.

    Args:
        module: the root, from which the clone is made.
        parameters: whole tensors by name.
        buffers: the same.
        whole: what was recorded, with inputs, outputs and gradients put together.
        frozen: parameters that did not require a gradient.
    """
    found = Replayed(losses=_solved(whole))
    passes = {one.backward for one in whole}
    elements = sum(one.numel() for one in parameters.values()) * len(passes)
    keys = [one.backward if elements <= MOST_ELEMENTS else None for one in whole]
    outputs: dict[bool, list[list[Tensor]]] = {}  # of each pass
    for is_exact in (False, True):
        sums = found.exact if is_exact else found.own
        try:
            clone = unsharded(module, parameters, buffers, is_exact=is_exact)
            for name, one in clone.named_parameters():
                one.requires_grad_(name not in frozen)
                keep_gradient_hooks(one, module.get_parameter(name))
            outputs[is_exact] = [
                replay_pass(
                    clone, one, sums.setdefault(key if is_exact else None, {}), is_exact=is_exact
                )
                for one, key in zip(whole, keys, strict=True)
            ]
        except CommunicationError as error:
            found.failed = f"its forward pass communicates ({error})"
            return found
        except Exception as error:  # noqa: BLE001 whatever the module raises, it is not compared
            if not is_exact:
                said = first_line(error)
                if "to_local" in said or "full_tensor" in said:
                    said = "it works on parts of tensors itself"
                found.failed = f"its replay failed: {type(error).__name__}: {said}"
                return found
            outputs[True], found.is_own = outputs[False], True
    _judge_outputs(found, outputs, whole)
    if found.is_own:
        found.exact = found.own
    return found


def _solved(whole: Sequence[Forward]) -> list[Loss]:
    """The cross-entropies of all outputs; none where an output has a gradient of another loss."""
    found = []
    for forward in whole:
        for index, gradient in forward.gradients.items():
            one = solved(forward.outputs[index].local, gradient.local)
            if one is not None:
                found.append(Loss("cross_entropy", forward.place, one[1], one[0], forward.backward))
            elif bool(gradient.local.any()):
                return []
    return found


def _judge_outputs(
    found: Replayed, outputs: Mapping[bool, Sequence[Sequence[Tensor]]], whole: Sequence[Forward]
) -> None:
    for index, forward in enumerate(whole):
        exact, own = outputs[True][index], outputs[False][index]
        recorded = [one.local for one in forward.outputs]
        error, rounding = _distance(exact, recorded), _distance(exact, own)
        if error > 1e-3 and rounding > 0.5 * error and _distance(own, recorded) < 1e-3:
            found.is_own = True
            error, rounding = _distance(own, recorded), 0.0
        found.errors.append((error, rounding))


def _distance(a: Sequence[Tensor], b: Sequence[Tensor]) -> float:
    """The largest relative error of floating tensors; infinite where shapes differ."""
    worst = 0.0
    for one, other in zip(a, b, strict=True):
        if one.shape != other.shape:
            return float("inf")
        if one.is_floating_point() and one.numel():
            difference = (one.double() - other.double()).norm().item()
            worst = max(worst, difference / max(one.double().norm().item(), 1e-30))
    return worst


def replay_pass(
    clone: nn.Module, forward: Forward, sums: dict[str, Tensor], *, is_exact: bool
) -> list[Tensor]:
    """Run one pass forward and backward; add its gradients to the sums."""
    for module, is_training in zip(clone.modules(), forward.training, strict=False):
        module.training = is_training
    _restore(forward.random)
    intercept.answers = iter(forward.numbers)
    args, kwargs = mapped(forward.arguments, functools.partial(_input, is_exact=is_exact))
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
        if [one.shape for one in outputs] == [one.local.shape for one in forward.outputs]:
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
    for name, one in clone.named_parameters():
        if one.grad is not None:
            sums[name] = one.grad.double() + sums.get(name, 0.0)
            one.grad = None
    return [one.detach() for one in outputs]


def _input(one: Tensor | Part, *, is_exact: bool) -> Tensor:
    tensor = one.local if isinstance(one, Part) else one
    return tensor.double() if is_exact and tensor.is_floating_point() else tensor.clone()


def _restore(states: Sequence[Any]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if len(states) > 2:
        sys.modules["numpy"].random.set_state(states[2])

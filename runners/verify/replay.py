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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from runners.verify import intercept
from runners.verify.intercept import CommunicationError
from runners.verify.losses import solved
from runners.verify.records import Forward, Loss, Part, mapped, tensors_of

_HOOKS = tuple(name for name in nn.Module().__dict__ if "hooks" in name)
MOST_CHARACTERS = 160
MOST_ELEMENTS = 20_000_000  # of gradients that are kept apart for each backward pass
Sums = dict[int | None, dict[str, Tensor]]


@dataclass
class Replayed:
    """What a replay computed.

    Attributes:
        exact: gradients in float64, by backward pass (None: summed up) and parameter.
        own: their sums in the script's precision, under None.
        errors: of each pass: the relative error of its outputs, and what rounding explains.
        failed: why there is nothing to compare.
        is_own: whether the script's precision serves as oracle, since float64 draws other numbers.
        losses: cross-entropies of the outputs, of which only their gradients are known.
    """

    exact: Sums = field(default_factory=dict)
    own: Sums = field(default_factory=dict)
    errors: list[tuple[float, float]] = field(default_factory=list)
    failed: str = ""
    is_own: bool = False
    losses: list[Loss] = field(default_factory=list)


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
    found = Replayed(losses=list(_solved(whole)))
    passes = {one.backward for one in whole}
    elements = sum(one.numel() for one in parameters.values()) * len(passes)
    keys = [one.backward if elements <= MOST_ELEMENTS else None for one in whole]
    norms: dict[bool, list[list[Tensor]]] = {}
    for is_exact in (False, True):
        sums = found.exact if is_exact else found.own
        try:
            clone = unsharded(module, parameters, buffers, is_exact=is_exact)
            for name, one in clone.named_parameters():
                one.requires_grad_(name not in frozen)
                _keep_gradient_hooks(one, module.get_parameter(name))
            norms[is_exact] = [
                replay_pass(
                    clone, one, sums.setdefault(key if is_exact else None, {}), is_exact=is_exact
                )
                for one, key in zip(whole, keys, strict=True)
            ]
        except CommunicationError as error:
            found.failed = f"its forward pass communicates ({error})"
            return found
        except Exception as error:  # noqa: BLE001 whatever the module raises, it is not compared
            said = (str(error).strip().splitlines() or [""])[0][:MOST_CHARACTERS]
            if not is_exact:
                if "to_local" in said or "full_tensor" in said:
                    said = "it works on parts of tensors itself"
                found.failed = f"its replay failed: {type(error).__name__}: {said}"
                return found
            norms[True], found.is_own = norms[False], True
    _judge_outputs(found, norms, whole)
    if found.is_own:
        found.exact = found.own
    return found


def _solved(whole: Sequence[Forward]) -> Iterator[Loss]:
    for forward in whole:
        for index, gradient in forward.gradients.items():
            one = solved(forward.outputs[index].local, gradient.local)
            if one is not None:
                yield Loss("cross_entropy", forward.place, one[1], one[0], forward.backward)


def _judge_outputs(
    found: Replayed, norms: Mapping[bool, Sequence[Sequence[Tensor]]], whole: Sequence[Forward]
) -> None:
    for index, forward in enumerate(whole):
        exact, own = norms[True][index], norms[False][index]
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
    return _Cloning(module, parameters, buffers, is_exact).clone(module)


class _Cloning:
    """Clones modules, and whatever of their attributes refers to them."""

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, Tensor],
        buffers: Mapping[str, Tensor],
        is_exact: bool,
    ) -> None:
        self._is_exact, self._memo = is_exact, {}
        self._dtypes = {} if is_exact else _unit_dtypes(module)
        first = {id(one): name for name, one in module.named_parameters()}
        for name, one in module.named_parameters(remove_duplicate=False):
            if id(one) not in self._memo:
                whole = parameters[first[id(one)]]
                self._memo[id(one)] = self._parameter(
                    whole, self._dtypes.get(name), one.requires_grad
                )
        for name, buffer in module.named_buffers():
            self._memo[id(buffer)] = self._tensor(buffers[name])

    _memo: dict[int, Any]

    def _parameter(self, whole: Tensor, dtype: torch.dtype | None, trains: bool) -> nn.Parameter:
        tensor = self._tensor(whole)
        return nn.Parameter(tensor.to(dtype) if dtype else tensor, trains)

    def _tensor(self, tensor: Tensor) -> Tensor:
        is_cast = self._is_exact and tensor.is_floating_point()
        return tensor.detach().double() if is_cast else tensor.detach().clone()

    def clone(self, module: nn.Module) -> nn.Module:
        """The clone of a module; the same for each call."""
        if isinstance(module, DistributedDataParallel):
            return self.clone(module.module)
        if id(module) in self._memo:
            known: nn.Module = self._memo[id(module)]
            return known
        new = self._memo[id(module)] = _plain_class(module).__new__(_plain_class(module))
        new.__dict__ = {
            name: value for name, value in module.__dict__.items() if name != "_modules"
        }
        new.__dict__["_modules"] = {
            name: None if one is None else self.clone(one) for name, one in module._modules.items()
        }
        for kind in ("_parameters", "_buffers"):
            new.__dict__[kind] = {
                name: None if one is None else self._copied(one)
                for name, one in module.__dict__[kind].items()
            }
        _keep_hooks(new, module)
        if hasattr(module, "automatic_optimization"):  # Lightning, whose trainer has ended
            new.__dict__ |= dict.fromkeys(("log", "log_dict"), lambda *_, **__: None)
        for name, value in new.__dict__.items():
            if name not in (*_HOOKS, "_modules", "_parameters", "_buffers"):
                new.__dict__[name] = self._copied(value)
        if not self._is_exact and isinstance(module, FSDPModule):
            _cast_as_unit(new, module._get_fsdp_state()._mp_policy)
        return new

    def _copied(self, value: Any) -> Any:
        if id(value) in self._memo:
            return self._memo[id(value)]
        if isinstance(value, nn.Module):
            return self.clone(value)
        if isinstance(value, Tensor):
            return self._tensor(value)
        if type(value) in (list, tuple):
            return type(value)(self._copied(one) for one in value)
        if type(value) is dict:
            return {key: self._copied(one) for key, one in value.items()}
        if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
            return types.MethodType(value.__func__, self._copied(value.__self__))
        if isinstance(value, functools.partial):
            words = {key: self._copied(one) for key, one in value.keywords.items()}
            return functools.partial(
                self._copied(value.func), *map(self._copied, value.args), **words
            )
        return value


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
            kept = {key: hook for key, hook in hooks.items() if _is_kept(hook)}
            new.__dict__[name] = type(hooks)(kept)


def _keep_gradient_hooks(new: Tensor, old: Tensor) -> None:
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


def _is_kept(hook: Any) -> bool:
    """Whether a hook belongs to the module itself, as that of weight normalization does."""
    own = hook if hasattr(hook, "__module__") else type(hook)
    return str(own.__module__).startswith("torch.nn.utils")


def _unit_dtypes(module: nn.Module) -> dict[str, torch.dtype]:
    """In which dtype FSDP gathers each parameter, where a policy says so."""
    found: dict[str, torch.dtype | None] = {}
    for prefix, one in module.named_modules():  # inner units come later, and win
        if isinstance(one, FSDPModule):
            dtype = one._get_fsdp_state()._mp_policy.param_dtype
            inner = module.get_submodule(prefix)
            for name, _ in inner.named_parameters(prefix=prefix, remove_duplicate=False):
                found[name] = dtype
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def _cast_as_unit(module: nn.Module, policy: Any) -> None:
    """Cast inputs and outputs as a unit of FSDP does."""

    def to(dtype: torch.dtype, tree: Any) -> Any:
        return mapped(tree, lambda one: one.to(dtype) if one.is_floating_point() else one)

    if policy.param_dtype is not None and policy.cast_forward_inputs:
        module.register_forward_pre_hook(
            lambda _, args, kwargs: (to(policy.param_dtype, args), to(policy.param_dtype, kwargs)),
            with_kwargs=True,
        )
    if policy.output_dtype is not None:
        module.register_forward_hook(lambda _, __, value: to(policy.output_dtype, value))

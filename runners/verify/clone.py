"""Clones a module without what divides it: whole parameters, no wrappers, none of their hooks.

In: a module of any layout, and its parameters and buffers put together. Out: a module that
communicates nothing itself, in float64 or as each unit of FSDP computes.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from runners.verify.intercept import CommunicationError
from runners.verify.records import mapped

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
        for name, value in module.__dict__.items():
            new.__dict__[name] = value if name in _HOOKS else self._copied(value)
        _keep_hooks(new, module)
        if hasattr(module, "automatic_optimization"):  # Lightning, whose trainer has ended
            new.__dict__ |= dict.fromkeys(("log", "log_dict"), lambda *_, **__: None)
        if not self._is_exact and isinstance(module, FSDPModule):
            _cast_as_unit(new, module._get_fsdp_state()._mp_policy)
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
        if isinstance(value, types.MethodType) and isinstance(value.__self__, nn.Module):
            return types.MethodType(value.__func__, self._copied(value.__self__))
        if isinstance(value, functools.partial):
            args, words = self._copied(value.args), self._copied(value.keywords)
            return functools.partial(self._copied(value.func), *args, **words)
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
    found: dict[str, torch.dtype | None] = {}
    for prefix, one in module.named_modules():  # inner units come later, and win
        if isinstance(one, FSDPModule):
            dtype = one._get_fsdp_state()._mp_policy.param_dtype
            inner = module.get_submodule(prefix).named_parameters(prefix, remove_duplicate=False)
            found |= dict.fromkeys((name for name, _ in inner), dtype)
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

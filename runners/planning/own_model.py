"""A model of the user's: the functions that build it, the batch it takes, and what it returns.

In: names such as `module:function`. Out: modules, arguments of a forward pass, and a loss. What the
user's functions do otherwise than a plan needs is refused in one line, which names theirs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import FSDPModule

from runners.meters.collectives import tensors_in
from runners.planning.own_code import line_of
from runners.planning.question import Model, PlanError, Training


def named(name: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises:
        PlanError: there is none.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise PlanError(f"{name!r} is not of the form MODULE:FUNCTION")
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            raise PlanError(f"{name}: {error}") from None
        raise
    if not callable(found):
        raise PlanError(f"{name}: the module {module} has no function {function}")
    return found  # type: ignore[no-any-return]


def arguments(model: Model, training: Training) -> Any:
    """A batch: a tuple, or a dictionary of keyword arguments."""
    given = named(model.batch or "")(training.microbatch, training.sequence)
    for tensor in tensors_of(given):
        if isinstance(tensor, FakeTensor):
            tensor.constant = None  # its values stand for those of any batch
    if isinstance(given, Mapping):
        return dict(given)
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def call(called: nn.Module, module: nn.Module, arguments: Any) -> Any:
    """Pass a batch to a module, or to what wraps it.

    Args:
        called: the module, or its wrapper.
        module: without a wrapper.
        arguments: a tuple, or a dictionary.

    Raises:
        PlanError: FSDP finds no tensor in what it returns.
    """
    given, by_name = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    output = called(*given, **by_name)
    is_seen = tensors_in(output) or is_dataclass(output) or not tensors_of(output)
    if isinstance(called, FSDPModule) and not is_seen:
        raise PlanError(
            f"{line_of(module.forward)} returns {type(output).__name__}, in which FSDP finds no "
            "tensor; return a dictionary or a tuple"
        )
    return output


def built(model: Model) -> nn.Module:
    """The module.

    Raises:
        PlanError: the function returns something else.
    """
    build = named(model.module or "")
    module = build()
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise PlanError(f"{line_of(build)} builds no nn.Module; it returns {kind}")
    return module


def loss_of(output: Any, line: str) -> Tensor:
    """The number that the backward pass begins with.

    It is what the output calls `loss`; else the first element of a tuple, where that is a number;
    else all tensors that have a gradient. Of each tensor the mean counts, of several their sum.

    Args:
        output: whatever a model returns.
        line: of its forward.

    Raises:
        PlanError: nothing in it has a gradient.
    """
    named_loss = output.get("loss") if isinstance(output, Mapping) else None
    loss = getattr(output, "loss", None) if named_loss is None else named_loss
    first = output[0] if isinstance(output, (tuple, list)) and output else None
    if loss is None and isinstance(first, Tensor) and not first.dim():
        loss = first
    found = tensors_of(output if loss is None else loss)
    means = [one.float().mean() if one.dim() else one for one in found if one.requires_grad]
    if not means:
        kind = "Tensor" if isinstance(output, Tensor) else type(output).__name__
        raise PlanError(f"{line} returns {kind}, of which nothing has a gradient; return a loss")
    return sum(means[1:], means[0])


def tensors_of(value: Any) -> list[Tensor]:
    """Each tensor in mappings, sequences and objects with attributes, once."""
    found: dict[int, Tensor] = {}
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, Tensor):
            found[id(one)] = one
        elif id(one) not in seen and not isinstance(one, (str, type, nn.Module)):
            seen.add(id(one))
            if isinstance(one, Mapping):
                waiting += one.values()
            elif isinstance(one, (list, tuple, set)):
                waiting += one
            else:
                waiting += getattr(one, "__dict__", {}).values()
    return list(found.values())

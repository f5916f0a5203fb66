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
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from runners.system.errors import first_line
from runners.verify import intercept
from runners.verify.clone import keep_gradient_hooks, unsharded
from runners.verify.intercept import CommunicationError
from runners.verify.losses import solved
from runners.verify.records import Forward, Loss, Part, mapped, tensors_of

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

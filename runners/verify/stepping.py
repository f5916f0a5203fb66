"""The step that the optimizer of one process makes.

In: whole gradients and parameters, and the settings of the script's optimizer. Out: parameters
whose update differs.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runners.verify.case import Case
from runners.verify.layout import Tensors
from runners.verify.records import Update
from runners.verify.roots import same
from runners.verify.sums import Expected, are_apart, error_of
from runners.verify.verdict import Error

_IGNORED = ("fused", "foreach", "capturable", "differentiable")
_Made = tuple[Optimizer, nn.Parameter]


class Steps:
    """The updates of one module, by optimizers that keep their state from update to update."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, case.layout
        self._optimizers: dict[str, _Made | None] = {}
        self._after: Tensors = {}  # of the update before
        self._moved: dict[str, bool] = {}

    def compare(self, number: int, expected: Expected | None) -> None:
        """The optimizer of one process, given the same gradients, reaches the same parameters.

        Args:
            number: of the update.
            expected: its gradients; None where they were not compared.
        """
        view = self._layout.view
        update = self._layout.update(view, number)
        if not update.has_step:
            self._skip("no optimizer of torch.optim made a step")
            return
        before, used, after = (
            self._layout.whole(number, view, held) for held in ("parameters", "at_step", "after")
        )
        last, self._after = self._after, after
        if any(are_apart(one, before.get(n)) for n, one in last.items() if one is not None):
            self._skip("parameters change between two updates")
            return
        state = self._layout.whole(number, view, "state")
        errors = self._step(update, before, used, after, state)
        if expected:
            self._case.verdict.strips[-1].steps = errors
        if wrong := [name for name, error in errors.items() if not error.agrees]:
            says = "the optimizer of one process reaches other parameters"
            self._case.find("update differs", says, update.step_place, wrong, view, number)
        for name, one in before.items():
            exact = expected.exact.get(name) if expected else None
            is_noise = expected and exact is not None and exact.norm() <= expected.tolerance[name]
            if one is not None and after.get(name) is not None and not is_noise:
                settings = update.settings.get(name, ("", {}))[1]
                is_still = _hardly_moves(one, after[name], used.get(name), settings)
                self._moved[name] = self._moved.get(name, False) or not is_still

    def compare_settings(self, number: int) -> None:
        """Ranks give the optimizer of a parameter the same settings."""
        first, *others = sorted(self._layout.records)
        held = self._layout.update(first, number).settings
        for rank in others:
            update = self._layout.update(rank, number)
            for name in (name for name in held if name in update.settings):
                (kind, one), (_, own) = held[name], update.settings[name]
                shared = [key for key in one if key in own and key not in _IGNORED]
                if key := next((key for key in shared if not same(one[key], own[key])), ""):
                    says = f"{key} of {kind} is {one[key]} on rank {first} and {own[key]} on {rank}"
                    place = update.step_place
                    self._case.find("settings differ", says, place, [name], rank, number)
                    return

    def find_still(self) -> None:
        """Find parameters that no update has moved."""
        if still := [name for name, has_moved in self._moved.items() if not has_moved]:
            count, place = self._layout.num_updates, self._layout.first.updates[0].step_place
            says = f"no element moved in {count} updates, though it has a gradient"
            self._case.find("does not move", says, place, still, None, 0)

    def _skip(self, why: str) -> None:
        self._case.skip(f"the update ({why})", is_lasting=True)

    def _step(
        self, update: Update, before: Tensors, used: Tensors, after: Tensors, state: Tensors
    ) -> dict[str, Error]:
        """Make the step; by parameter, how far that of the script is from it."""
        errors, why = {}, ""
        for name, (kind, settings) in update.settings.items():
            start, end, gradient = before.get(name), after.get(name), used.get(name)
            if start is None or end is None:
                continue
            if name not in self._optimizers:
                own = {
                    k.rpartition(" ")[2]: v for k, v in state.items() if k.startswith(f"{name} ")
                }
                self._optimizers[name] = _made(kind, settings, start, own)
                if self._optimizers[name] is None:
                    why = f"a step of {kind.removeprefix('own ')} is not repeated"
            if (made := self._optimizers[name]) is None:
                continue
            optimizer, parameter = made
            with torch.no_grad():
                parameter.copy_(start)
            parameter.grad = None if gradient is None else gradient.to(parameter.dtype)
            group = optimizer.param_groups[0]
            group |= {k: v for k, v in settings.items() if k in group and k not in _IGNORED}
            optimizer.step()
            move = parameter.detach().double() - start.double()
            rounding = 8 * torch.finfo(start.dtype).eps * start.double().norm().item()
            allowed = 2e-3 * move.norm().item() + rounding
            errors[name] = error_of(end.double() - start.double(), move, allowed)
        if why:
            self._skip(why)
        return errors


def _made(kind: str, settings: dict[str, Any], start: Tensor, state: Tensors) -> _Made | None:
    """An optimizer of one parameter, with the state of a checkpoint if it had one.

    None for one that cannot be made from its settings.
    """
    found = getattr(torch.optim, kind, None)
    if found is None or kind == "LBFGS":
        return None
    parameter = nn.Parameter(start.clone())
    known = inspect.signature(found).parameters
    words = {k: v for k, v in settings.items() if k in known and k not in _IGNORED}
    try:
        optimizer = found([parameter], **words)
    except (TypeError, ValueError):
        return None
    held = {key: one.clone() for key, one in state.items() if one is not None}
    if len(held) < len(state):
        return None
    if held:
        optimizer.state[parameter] = held
    return optimizer, parameter


def _hardly_moves(
    before: Tensor, after: Tensor | None, gradient: Tensor | None, settings: dict[str, Any]
) -> bool:
    """Whether an update in a coarse dtype with a gradient and a rate changed no element."""
    if after is None or gradient is None or torch.finfo(before.dtype).eps < 1e-4:
        return False
    has_rate = float(settings.get("lr", 0.0)) > 0
    return has_rate and bool(gradient.any()) and torch.equal(before, after)

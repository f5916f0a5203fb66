"""The step that the optimizer of one process makes.

In: whole gradients and parameters, and the settings of the script's optimizer. Out: parameters
whose update differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from runners.verify.case import Case
from runners.verify.sums import Expected, are_apart, error_of, norm
from runners.verify.layout import Tensors
from runners.verify.verdict import Error

_IGNORED = ("fused", "foreach", "capturable", "differentiable")


class Steps:
    """The updates of one module."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, case.layout
        self._optimizers = _Optimizers()
        self._after: Tensors = {}  # of the update before
        self._moved: dict[str, bool] = {}

    def compare(self, number: int, expected: Expected) -> None:
        """The optimizer of one process, given the same gradients, reaches the same parameters."""
        view = self._layout.view
        update = self._layout.update(view, number)
        if not update.has_step:
            self._case.skip("the update (no optimizer of torch.optim made a step)", is_lasting=True)
            return
        before, used, after = (
            self._layout.whole(number, view, held) for held in ("parameters", "at_step", "after")
        )
        last = self._after
        self._after = after
        if any(are_apart(one, before.get(n)) for n, one in last.items() if one is not None):
            self._case.skip("the update (parameters change between two updates)", is_lasting=True)
            return
        wrong, why = self._optimizers.step(update.settings, before, used, after)
        if expected.terms:  # its gradients were compared, so there is a strip
            self._case.verdict.strips[-1].steps = self._optimizers.errors
        if why:
            self._case.skip(f"the update ({why})", is_lasting=True)
        if wrong:
            says = "the optimizer of one process reaches other parameters"
            self._case.find("update differs", says, update.step_place, wrong, view, number)
        for name, one in before.items():
            is_noise = name in expected.exact and (
                expected.exact[name].norm() <= expected.tolerance[name]
            )
            if one is not None and after.get(name) is not None and not is_noise:
                self._moved[name] = self._moved.get(name, False) or not hardly_moves(
                    one, after[name], used.get(name), update.settings.get(name)
                )

    def still(self) -> None:
        """Find parameters that no update has moved."""
        still = [name for name, has_moved in self._moved.items() if not has_moved]
        if still:
            record = self._layout.first
            says = (
                f"no element moved in {self._layout.num_updates} updates, though it has a gradient"
            )
            self._case.find("does not move", says, record.updates[0].step_place, still, None, 0)


class _Optimizers:
    """The optimizers of one process, which keep their state from update to update."""

    def __init__(self) -> None:
        self._optimizers: dict[str, torch.optim.Optimizer] = {}
        self._parameters: dict[str, nn.Parameter] = {}
        self.errors: dict[str, Error] = {}  # of the latest step, over what one process moves

    def step(
        self,
        settings: Mapping[str, tuple[str, dict[str, Any]]],
        before: Tensors, used: Tensors, after: Tensors,
    ) -> tuple[list[str], str]:  # fmt: skip
        """Make the step, and compare.

        Returns:
            Names of parameters that differ, and why others were not compared.
        """
        wrong, why = [], ""
        self.errors = {}
        for name, (kind, group) in settings.items():
            start, end = before.get(name), after.get(name)
            if start is None or end is None:
                continue
            optimizer = self._optimizer(name, kind, group, start)
            if optimizer is None:
                why = "the optimizer had state before the first update" if kind == "state" else (
                    f"a step of {kind.removeprefix('own ')} is not repeated")  # fmt: skip
                continue
            parameter = self._parameters[name]
            with torch.no_grad():
                parameter.copy_(start)
            gradient = used.get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter.dtype)
            for key, value in group.items():
                if key in optimizer.param_groups[0] and key not in _IGNORED:
                    optimizer.param_groups[0][key] = value
            optimizer.step()
            move = parameter.detach().double() - start.double()
            allowed = 2e-3 * norm(move) + 8 * _own_eps(start) * norm(start.double())
            self.errors[name] = error_of(end.double() - start.double(), move, allowed)
            if not self.errors[name].agrees:
                wrong.append(name)
        return wrong, why

    def _optimizer(
        self, name: str, kind: str, group: dict[str, Any], start: Tensor
    ) -> torch.optim.Optimizer | None:
        if name in self._optimizers:
            return self._optimizers[name]
        found = getattr(torch.optim, kind, None)
        if found is None or kind == "LBFGS":
            return None
        parameter = self._parameters[name] = nn.Parameter(start.clone())
        known = inspect.signature(found).parameters
        words = {k: v for k, v in group.items() if k in known and k not in _IGNORED}
        try:
            self._optimizers[name] = found([parameter], **words)
        except (TypeError, ValueError):
            return None
        return self._optimizers[name]


def _own_eps(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).eps


def hardly_moves(
    before: Tensor, after: Tensor | None, gradient: Tensor | None, settings: Any
) -> bool:
    """Whether an update in a coarse dtype with a gradient and a rate changed no element."""
    if after is None or settings is None or gradient is None or _own_eps(before) < 1e-4:
        return False
    has_rate = float(settings[1].get("lr", 0.0)) > 0
    return has_rate and bool(gradient.any()) and torch.equal(before, after)

"""What one process would make of the reduced gradients: clipping, and the optimizer's step.

In: whole gradients and parameters, and the settings of the script's optimizer. Out: the gradients
after clipping, and parameters whose update differs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from runners.verify.fits import error_of, norm
from runners.verify.layout import Layout
from runners.verify.records import Clip
from runners.verify.verdict import Error

Tensors = Mapping[str, Tensor | None]
_IGNORED = ("fused", "foreach", "capturable", "differentiable")


def norm_of(tensors: list[Tensor], norm_type: float) -> float:
    """The norm of all elements of all tensors."""
    norms = [torch.linalg.vector_norm(one.double(), norm_type) for one in tensors]
    return float(torch.linalg.vector_norm(torch.stack(norms), norm_type)) if norms else 0.0


def clipped(
    layout: Layout, layouts: Mapping[str, Layout], number: int, rank: int, before: Tensors
) -> tuple[dict[str, Tensor | None], float | None]:
    """The gradients that one process would give its optimizer, and the norm that it clips by."""
    update = layout.update(rank, number)
    should = {n: None if one is None else one.double() / update.scale for n, one in before.items()}
    norm: float | None = None
    for clip in update.clips:
        names = {name for key, name in clip.names if key == layout.key}
        if clip.kind == "clip_grad_value_":
            for n in names:
                one = should.get(n)
                should[n] = None if one is None else one.clamp(-clip.limit, clip.limit)
            continue
        norm = _whole_norm(clip, layout, layouts, number, rank, should)
        factor = min(1.0, clip.limit / (norm + 1e-6))
        for n in names:
            one = should.get(n)
            should[n] = None if one is None else one * factor
    return should, norm


def _whole_norm(
    clip: Clip, layout: Layout, layouts: Mapping[str, Layout], number: int, rank: int, own: Tensors
) -> float:
    """The norm over all that one process would clip together: all stages of a pipeline."""
    if layout.records[rank].stage is not None:
        keys = {key: None for key, one in layouts.items()
                if one.first.stage is not None}  # fmt: skip
        names = None
    else:
        keys = dict.fromkeys(key for key, _ in clip.names)
        names = set(clip.names)
    found: list[Tensor] = []
    for key in keys:
        other = layouts.get(key)
        if other is None or number >= other.num_updates:
            continue
        view = rank if rank in other.records else min(other.records)
        scale = other.update(view, number).scale
        tensors = (
            own if key == layout.key else other.whole(number, view, lambda u: u.before_clipping)
        )
        divide = 1.0 if key == layout.key else scale
        found += [
            one.double() / divide
            for name, one in tensors.items()
            if one is not None and (names is None or (key, name) in names)
        ]
    return norm_of(found, clip.norm_type)


class Stepping:
    """The optimizers of one process, which keep their state from update to update."""

    def __init__(self, eps: float) -> None:
        self._eps = eps
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

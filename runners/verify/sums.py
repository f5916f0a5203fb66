"""How the script's gradients relate to those of the batches: one sum over all of them, or not?

In: gradients that ranks hold, and the gradient of each batch, replayed. Out: a `Fit`: the factor
of each batch, and the parameters that no such sum explains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runners.verify.verdict import Error

REPLICAS = 1e-5  # relative difference of parameters between replicas
Term = tuple[int, int | None]  # a rank, and one of its backward passes


@dataclass
class Expected:
    """Of one update: the gradients of all batches, their sum, and how exact it is."""

    terms: dict[Term, dict[str, Tensor]]
    exact: dict[str, Tensor]
    tolerance: dict[str, float]
    num_batches: int
    num_parts: int


@dataclass
class Fit:
    """How gradients of the script relate to those of the batches.

    Attributes:
        factors: of each batch, in the gradients of most parameters; None where nothing fits.
        wrong: names of parameters that differ, by rank.
        agreed: names of those that agree on all ranks.
        apart: factors by rank, where ranks hold different sums.
        errors: how far each gradient is from that of one process, on the rank where it is farthest.
    """

    factors: dict[Term, float] | None
    wrong: dict[int, list[str]] = field(default_factory=dict)
    agreed: list[str] = field(default_factory=list)
    apart: dict[int, dict[Term, float]] = field(default_factory=dict)
    errors: dict[str, Error] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether all gradients are one sum over all batches."""
        return self.factors is not None and not self.wrong and not self.apart

    @property
    def common(self) -> float:
        """The largest factor, which is that of all batches where they have one."""
        return max((self.factors or {}).values(), key=abs, default=0.0)


def relative(a: Tensor | None, b: Tensor | None) -> float:
    """The largest difference of two tensors, over their largest finite element."""
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    is_same = (a == b) | (a.isnan() & b.isnan())
    difference = (a.double() - b.double()).masked_fill(is_same, 0.0).abs().max().item()
    return difference / max(a.double().nan_to_num(0, 0, 0).abs().max().item(), 1e-30)


def are_apart(a: Tensor | None, b: Tensor | None) -> bool:
    """Whether replicas of a tensor differ by more than rounding."""
    return bool(not relative(a, b) <= REPLICAS)


def ratio(held: Tensor, should: Tensor) -> float:
    """The factor with which one tensor is nearest to another."""
    flat = should.flatten()
    return float((held.flatten() @ flat / (flat @ flat).clamp_min(1e-300)).item())


def is_multiple(held: Tensor, one: Tensor, tolerance: float) -> bool:
    """Whether a tensor is a multiple of another."""
    factor = ratio(held, one)
    return bool((held - factor * one).norm() <= tolerance * max(1.0, abs(factor)))


def shrink(before: Tensor | None, after: Tensor) -> float:
    """By how much clipping has shortened a gradient."""
    if before is None:
        return 1.0
    return float(min(1.0, after.norm().item() / max(before.double().norm().item(), 1e-300)))


def added(all_of: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Sums of gradients, by name."""
    found: dict[str, Tensor] = {}
    for sums in all_of:
        for name, one in sums.items():
            found[name] = found[name] + one if name in found else one
    return found


def scales_of(gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """By parameter, the largest norm of a gradient in its module."""
    scales: dict[str, float] = {}
    for name, one in gradients.items():
        module = name.rpartition(".")[0]
        scales[module] = max(scales.get(module, 0.0), norm(one.double()))
    return {name: scales[name.rpartition(".")[0]] for name in gradients}


def without(held: Tensor | None, carried: Tensor | None) -> Tensor | None:
    """A gradient without what was there before the first backward pass."""
    if held is None:
        return None
    return held.double() if carried is None else held.double() - carried.double()


def norm(tensor: Tensor) -> float:
    """The Euclidean norm."""
    return float(tensor.norm().item())


def error_of(held: Tensor | None, should: Tensor, tolerance: float) -> Error:
    """The error of a tensor, over its norm or what rounding allows, whichever is larger."""
    size = norm(should)
    allowed = tolerance + 1e-6 * size
    error = size if held is None else norm(held - should)
    scale = max(size, allowed, 1e-300)
    is_finite = math.isfinite(error / scale)
    return Error(error / scale if is_finite else math.inf, allowed / scale)


def common_factor(
    held: Mapping[str, Tensor | None], names: Sequence[str], expected: Expected
) -> float | None:
    """The factor with which most parameters agree; one element agrees with any factor."""
    told = [
        n for n in names
        if held.get(n) is not None and expected.exact[n].norm().item() > expected.tolerance[n]
    ]  # fmt: skip
    told = [n for n in told if expected.exact[n].numel() > 1] or told
    best, most = None, 0
    own = [ratio(one, expected.exact[n]) for n in told if (one := held[n]) is not None]
    for factor in (1 / expected.num_batches, 1.0, *own):
        agree = sum(
            error_of(
                held[n], factor * expected.exact[n], abs(factor) * expected.tolerance[n]
            ).agrees
            for n in told
        )
        if factor and agree > most:
            best, most = factor, agree
    return best


def factors_of(
    held: Mapping[str, Tensor | None], names: Sequence[str], expected: Expected
) -> dict[Term, float]:
    """The factor of each batch with which their sum is nearest to all gradients."""
    terms = list(expected.terms)
    flat = [
        torch.cat([expected.terms[t].get(n, torch.zeros_like(expected.exact[n])).flatten()
                   for n in names])
        for t in terms
    ]  # fmt: skip
    zero = {n: torch.zeros_like(expected.exact[n]) for n in names}
    should = torch.cat(
        [(zero[n] if (one := held.get(n)) is None else one).flatten() for n in names]
    )
    if not bool(should.isfinite().all()):
        return dict.fromkeys(terms, 1 / expected.num_batches)
    matrix = torch.stack(flat)
    solved = torch.linalg.lstsq(matrix @ matrix.T, (matrix @ should)[:, None], driver="gelsd")
    return dict(zip(terms, solved.solution.flatten().tolist(), strict=True))


def compared(
    held: Mapping[int, Mapping[str, Tensor | None]], names: Sequence[str],
    factors: Mapping[int, dict[Term, float] | None], expected: Expected,
) -> Fit:  # fmt: skip
    """Compare gradients with a sum over batches that has these factors."""
    fit = Fit(factors[min(held)])
    for rank, gradients in held.items():
        own = factors[rank]
        for n, error in _errors(gradients, names, own, expected).items():
            if own is None or not error.agrees:
                fit.wrong.setdefault(rank, []).append(n)
            fit.errors[n] = max(fit.errors.get(n, error), error)
    bad = {name for all_of in fit.wrong.values() for name in all_of}
    fit.agreed = [name for name in names if name not in bad]
    known = {rank: one for rank, one in factors.items() if one is not None}
    if not fit.wrong and _differ(known, expected):
        fit.apart = known
        for rank, own in known.items():  # each differs from one sum over all batches
            even = dict.fromkeys(own, sum(own.values()) / len(own))
            for n, error in _errors(held[rank], names, even, expected).items():
                fit.errors[n] = max(fit.errors[n], error)
    return fit


def _errors(
    held: Mapping[str, Tensor | None], names: Sequence[str],
    factors: Mapping[Term, float] | None, expected: Expected,
) -> dict[str, Error]:  # fmt: skip
    """The error of each gradient against a sum over batches, or their mean without factors."""
    own = factors or dict.fromkeys(expected.terms, 1 / expected.num_batches)
    size = max(abs(one) for one in own.values())
    found = {}
    for n in names:
        should = sum(
            (a * expected.terms[t][n] for t, a in own.items() if n in expected.terms[t]),
            torch.zeros_like(expected.exact[n]),
        )
        found[n] = error_of(held.get(n), should, size * expected.tolerance[n])
    return found


def _differ(known: Mapping[int, Mapping[Term, float]], expected: Expected) -> bool:
    """Whether ranks hold different sums, or sums in which a batch has no share."""
    first = known[min(known)]
    largest = max(abs(one) for one in first.values())
    has_none = any(abs(one) < 1e-3 * largest for one in first.values())
    return has_none or any(
        abs(one[t] - a) > 1e-2 * largest for one in known.values() for t, a in first.items()
    )

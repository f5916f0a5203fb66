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

from runners.judging.rounding import distance, ratio
from runners.verify.report import Error, Term

Held = Mapping[str, Tensor | None]  # gradients by parameter


@dataclass
class Expected:
    """Of one update: the gradients of all batches, their sum, and how exact it is."""

    terms: Mapping[Term, Mapping[str, Tensor]] = field(default_factory=dict)
    exact: Mapping[str, Tensor] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)  # of the norm of a difference
    num_batches: int = 1
    num_parts: int = 1  # microbatches


@dataclass
class Fit:
    """How gradients of the script relate to those of the batches."""

    factors: dict[Term, float] | None  # in the gradients of most parameters; None: nothing fits
    wrong: dict[int, list[str]] = field(default_factory=dict)  # parameters that differ, by rank
    agreed: list[str] = field(default_factory=list)  # parameters that agree on all ranks
    apart: dict[int, dict[Term, float]] = field(default_factory=dict)  # factors by rank, where
    # ranks hold different sums
    errors: dict[str, Error] = field(default_factory=dict)  # on the rank where each is farthest

    @property
    def is_good(self) -> bool:
        """Whether all gradients are one sum over all batches."""
        return self.factors is not None and not self.wrong and not self.apart

    @property
    def common(self) -> float:
        """The largest factor, which is that of all batches where they have one."""
        return max((self.factors or {}).values(), key=abs, default=0.0)


def added(gradients: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Sums of gradients, by name."""
    found: dict[str, Tensor] = {}
    for one in gradients:
        for name, gradient in one.items():
            found[name] = found[name] + gradient if name in found else gradient
    return found


def scales_of(gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """By parameter, the largest norm of a gradient in its module."""
    scales: dict[str, float] = {}
    for name, one in gradients.items():
        module = name.rpartition(".")[0]
        scales[module] = max(scales.get(module, 0.0), one.double().norm().item())
    return {name: scales[name.rpartition(".")[0]] for name in gradients}


def error_of(held: Tensor | None, should: Tensor, tolerance: float) -> Error:
    """The error of a tensor, over its norm or what rounding allows, whichever is larger."""
    size = should.norm().item()
    allowed = tolerance + 1e-6 * size
    error = size if held is None else distance(held, should)
    scale = max(size, allowed, 1e-300)
    return Error(error / scale if math.isfinite(error / scale) else math.inf, allowed / scale)


def fitted(held: Mapping[int, Held], names: Sequence[str], expected: Expected) -> Fit:
    """Find the factor of the batches, or one of each, that explains the gradients.

    Args:
        held: gradients, by rank.
        names: parameters that are compared.
        expected: gradients of the batches.
    """
    factor = _common_factor(held[min(held)], names, expected)
    factors = None if factor is None else dict.fromkeys(expected.terms, factor)
    fit = compared(held, names, dict.fromkeys(held, factors), expected)
    if fit.is_good:
        return fit
    own = {rank: _factors_of(one, names, expected) for rank, one in held.items()}
    again = compared(held, names, own, expected)
    return fit if again.wrong else again


def _common_factor(held: Held, names: Sequence[str], expected: Expected) -> float | None:
    """The factor with which most parameters agree; one element agrees with any factor."""
    known = {
        n: one for n in names
        if (one := held.get(n)) is not None and expected.exact[n].norm() > expected.tolerance[n]
    }  # fmt: skip
    known = {n: one for n, one in known.items() if one.numel() > 1} or known
    best, most = None, 0
    own = [ratio(one, expected.exact[n]) for n, one in known.items()]
    for factor in (1 / expected.num_batches, 1.0, *own):
        errors = (
            error_of(one, factor * expected.exact[n], abs(factor) * expected.tolerance[n])
            for n, one in known.items()
        )
        agree = sum(one.agrees for one in errors)
        if factor and agree > most:
            best, most = factor, agree
    return best


def _factors_of(held: Held, names: Sequence[str], expected: Expected) -> dict[Term, float]:
    """The factor of each batch with which their sum is nearest to all gradients."""

    def flat(gradients: Held) -> Tensor:
        zero = (torch.zeros_like(expected.exact[n]) for n in names)
        every = zip(map(gradients.get, names), zero, strict=True)
        return torch.cat([(b if a is None else a.double()).flatten() for a, b in every])

    should, terms = flat(held), list(expected.terms)
    if not bool(should.any()) or not bool(should.isfinite().all()):  # zero is no sum of batches
        return dict.fromkeys(terms, 1 / expected.num_batches)
    matrix = torch.stack([flat(one) for one in expected.terms.values()])
    solved = torch.linalg.lstsq(matrix @ matrix.T, (matrix @ should)[:, None], driver="gelsd")
    return dict(zip(terms, solved.solution.flatten().tolist(), strict=True))


def compared(
    held: Mapping[int, Held], names: Sequence[str],
    factors: Mapping[int, dict[Term, float] | None], expected: Expected,
) -> Fit:  # fmt: skip
    """Compare gradients with a sum over batches that has these factors on each rank."""
    fit = Fit(factors[min(held)])
    for rank, gradients in held.items():
        own = factors[rank]
        for n, error in _errors(gradients, names, own, expected).items():
            if own is None or not error.agrees:
                fit.wrong.setdefault(rank, []).append(n)
            fit.errors[n] = max(fit.errors.get(n, error), error)
    wrong = {name for some in fit.wrong.values() for name in some}
    fit.agreed = [name for name in names if name not in wrong]
    known = {rank: one for rank, one in factors.items() if one is not None}
    if not fit.wrong and _differ(known):
        fit.apart = known
        for rank, own in known.items():  # each differs from one sum over all batches
            even = dict.fromkeys(own, sum(own.values()) / len(own))
            for n, error in _errors(held[rank], names, even, expected).items():
                fit.errors[n] = max(fit.errors[n], error)
    return fit


def _errors(
    held: Held, names: Sequence[str], factors: Mapping[Term, float] | None, expected: Expected
) -> dict[str, Error]:
    """The error of each gradient against a sum over batches, or their mean without factors."""
    own = factors or dict.fromkeys(expected.terms, 1 / expected.num_batches)
    size = max(abs(one) for one in own.values())
    found = {}
    for n in names:
        should = torch.zeros_like(expected.exact[n])
        for term, factor in own.items():
            if n in expected.terms[term]:
                should += factor * expected.terms[term][n]
        found[n] = error_of(held.get(n), should, size * expected.tolerance[n])
    return found


def _differ(known: Mapping[int, Mapping[Term, float]]) -> bool:
    """Whether ranks hold different sums, or sums in which a batch has no share."""
    first = known[min(known)]
    largest = max(abs(one) for one in first.values())
    has_none = any(abs(one) < 1e-3 * largest for one in first.values())
    return has_none or any(
        abs(one[t] - a) > 1e-2 * largest for one in known.values() for t, a in first.items()
    )

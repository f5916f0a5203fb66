"""Fit the script's gradients as one sum over the gradients of all batches.

In: gradients that ranks hold, and the gradient of each batch, replayed. Out: a `Fit`: the factor
of each batch, and the parameters that no such sum explains.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from proofbook.companions.verify.report import Error, Term
from proofbook.runners.judging.rounding import distance, ratio

Held = Mapping[str, Tensor | None]  # gradients by parameter


@dataclass
class Expected:
    """The gradients of all batches of an update, their sum, and its tolerance."""

    terms: Mapping[Term, Mapping[str, Tensor]] = field(default_factory=dict)
    exact: Mapping[str, Tensor] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)  # of the norm of a difference
    num_batches: int = 1
    num_parts: int = 1  # microbatches
    experts: Collection[str] = ()  # parameters that one rank alone holds, which may be off together


@dataclass
class Fit:
    """The factors of the batches in the script's gradients, and the parameters that differ."""

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
        """The largest factor, which all batches have where the gradients are one sum."""
        return max((self.factors or {}).values(), key=abs, default=0.0)


def added(gradients: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The sum of gradients, by name."""
    sums: dict[str, Tensor] = {}
    for name, gradient in (pair for terms in gradients for pair in terms.items()):
        sums[name] = sums[name] + gradient if name in sums else gradient
    return sums


def scales_of(gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """By parameter, the largest norm of a gradient in its module."""
    scales: dict[str, float] = {}
    for name, gradient in gradients.items():
        module = name.rpartition(".")[0]
        scales[module] = max(scales.get(module, 0.0), gradient.double().norm().item())
    return {name: scales[name.rpartition(".")[0]] for name in gradients}


def error_of(held: Tensor | None, should: Tensor, tolerance: float) -> Error:
    """An `Error`: of `held` (None is zero) against `should`, and the allowed, over its norm."""
    size = should.norm().item()
    allowed = tolerance + 1e-6 * size
    error = size if held is None else distance(held, should)
    scale = max(size, allowed, 1e-300)
    return Error(error / scale if math.isfinite(error / scale) else math.inf, allowed / scale)


def fit_gradients(held: Mapping[int, Held], names: Sequence[str], expected: Expected) -> Fit:
    """The `Fit` with one factor for all batches; if bad, with a factor each, if all then agree."""
    factor = _common_factor(held[min(held)], names, expected)
    factors = None if factor is None else dict.fromkeys(expected.terms, factor)
    fit = compare_with_sum(held, names, dict.fromkeys(held, factors), expected)
    if fit.is_good:
        return fit
    own = {rank: _factors_of(gradients, names, expected) for rank, gradients in held.items()}
    again = compare_with_sum(held, names, own, expected)
    return fit if again.wrong else again


def _common_factor(held: Held, names: Sequence[str], expected: Expected) -> float | None:
    """The factor with which most parameters agree; one element agrees with any factor."""
    exact, tolerance = expected.exact, expected.tolerance
    known = {
        name: gradient for name in names
        if (gradient := held.get(name)) is not None and exact[name].norm() > tolerance[name]
    }  # fmt: skip
    known = {n: own for n, own in known.items() if n not in expected.experts} or known
    known = {name: own for name, own in known.items() if own.numel() > 1} or known
    best, most = None, 0
    ratios = [ratio(own, exact[name]) for name, own in known.items()]
    for factor in (1 / expected.num_batches, 1.0, *ratios):
        num_agreed = sum(
            error_of(own, factor * exact[name], abs(factor) * tolerance[name]).agrees
            for name, own in known.items()
        )
        if factor and num_agreed > most:
            best, most = factor, num_agreed
    return best


def _factors_of(held: Held, names: Sequence[str], expected: Expected) -> dict[Term, float]:
    """The factor of each batch with which their sum is nearest to all gradients."""

    def flat(gradients: Held) -> Tensor:
        zeros = (torch.zeros_like(expected.exact[name]) for name in names)
        pairs = zip(map(gradients.get, names), zeros, strict=True)
        return torch.cat([(zero if own is None else own.double()).flatten() for own, zero in pairs])

    should, terms = flat(held), list(expected.terms)
    if not bool(should.any()) or not bool(should.isfinite().all()):  # zero is no sum of batches
        return dict.fromkeys(terms, 1 / expected.num_batches)
    matrix = torch.stack([flat(gradients) for gradients in expected.terms.values()])
    solved = torch.linalg.lstsq(matrix @ matrix.T, (matrix @ should)[:, None], driver="gelsd")
    return dict(zip(terms, solved.solution.flatten().tolist(), strict=True))


def compare_with_sum(
    held: Mapping[int, Held], names: Sequence[str],
    factors: Mapping[int, dict[Term, float] | None], expected: Expected,
) -> Fit:  # fmt: skip
    """The `Fit` of gradients, by rank, to sums of batches with given factors (None: all wrong)."""
    fit = Fit(factors[min(held)])
    for rank, gradients in held.items():
        own = factors[rank]
        for name, error in _errors(gradients, names, own, expected).items():
            if own is None or not error.agrees:
                fit.wrong.setdefault(rank, []).append(name)
            fit.errors[name] = max(fit.errors.get(name, error), error)
    wrong = {name for own_wrong in fit.wrong.values() for name in own_wrong}
    fit.agreed = [name for name in names if name not in wrong]
    known = {rank: own for rank, own in factors.items() if own is not None}
    if not fit.wrong and _differ(known):
        fit.apart = known
        for rank, own in known.items():  # each differs from one sum over all batches
            even = dict.fromkeys(own, sum(own.values()) / len(own))
            for name, error in _errors(held[rank], names, even, expected).items():
                fit.errors[name] = max(fit.errors[name], error)
    return fit


def _errors(
    held: Held, names: Sequence[str], factors: Mapping[Term, float] | None, expected: Expected
) -> dict[str, Error]:
    """The error of each gradient against a sum over batches, or their mean without factors."""
    own = factors or dict.fromkeys(expected.terms, 1 / expected.num_batches)
    size = max(map(abs, own.values()))
    errors = {}
    for name in names:
        should = torch.zeros_like(expected.exact[name])
        for term, factor in own.items():
            if name in expected.terms[term]:
                should += factor * expected.terms[term][name]
        errors[name] = error_of(held.get(name), should, size * expected.tolerance[name])
    return errors


def _differ(factors: Mapping[int, Mapping[Term, float]]) -> bool:
    """Whether ranks hold different sums, or sums in which a batch has no share."""
    first = factors[min(factors)]
    largest = max(map(abs, first.values()))
    has_none = any(abs(factor) < 1e-3 * largest for factor in first.values())
    return has_none or any(
        abs(own[term] - factor) > 1e-2 * largest
        for own in factors.values() for term, factor in first.items()
    )  # fmt: skip

"""The weight of every token or sample in an update: a right program has one, 1 / their number.

In: the losses of an update on all ranks, and by which factor the reduction multiplied all
gradients. Out: a line that prints the weights, and a finding where they differ from each other, or
where their sum is off by the number of ranks or microbatches.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from runners.verify.causes import table
from runners.verify.records import Loss, Update
from runners.verify.verdict import Finding, Term

MOST_SHOWN = 3
TOLERANCE = 2e-3


@dataclass
class Weights:
    """What the weights of an update are."""

    line: str = ""  # prints them
    finding: Finding | None = None  # what is wrong with them
    why_not: str = ""  # why they could not be judged
    is_zero: bool = False  # whether that is because all are zero
    total: float = 0.0  # their sum
    note: str = ""  # what is usual, and yet a reader wants to know

    @property
    def agree(self) -> bool:
        """Whether they were judged, and are right."""
        return self.finding is None and not self.why_not


def judged(
    updates: Mapping[int, Update], factors: Mapping[Term, float] | None, tolerance: float
) -> Weights:
    """Judge the losses of one update.

    Args:
        updates: of each rank that has other samples than the rest.
        factors: of the reduction, over that of a gradient scaler; None where they are not known.
        tolerance: relative.
    """
    samples = sum(_samples(one) for one in updates.values())
    passes = Counter((r, f.backward) for r, one in updates.items() for f in one.forwards)
    calls = _calls({rank: one.losses for rank, one in updates.items()}, factors, samples, passes)
    if not calls:
        return Weights(why_not="the loss calls no function that the tool can see through")
    is_other = any(one.other_terms for one in updates.values())
    dropped = max(one.dropped for one in updates.values())
    is_only = len(calls) == 1 and not is_other
    found = [one.judged(dropped, tolerance, is_only=is_only) for one in calls]
    first = next((one for one in found if one.finding), None)
    first = first or next((one for one in found if one.why_not and not one.is_zero), None)
    first = first or next((one for one in found if not one.is_zero), found[0])
    if is_other and (first.agree or first.is_zero):
        first.is_zero = False
        first.why_not = "the loss has another term, which no known function computes"
    return first


def shown(losses: Mapping[int, Sequence[Loss]]) -> str:
    """The line of losses, by rank, of which no reduction is known."""
    return next((one.line() for one in _calls(losses, None, 0, {})), "")


def scaled(loss: Loss, rank: int, factors: Mapping[Term, float], otherwise: float) -> Tensor:
    """The weights of a loss that are not masked, times the factor of its backward pass or rank."""
    assert loss.weights is not None
    weights = loss.weights.double().flatten()
    weights = weights[loss.counted] if len(weights) == loss.count else weights
    factor = factors.get((rank, loss.backward), factors.get((rank, None), otherwise))
    return weights * factor


@dataclass
class _Group:
    """The elements of one call of a loss function: how many, and the weight of each."""

    rank: int
    loss: Loss
    count: int  # without those that a mask leaves out
    size: float  # the same, or the sum of their class weights
    weight: float  # their mean
    is_uniform: bool

    @property
    def total(self) -> float:
        """What these elements weigh together."""
        return self.weight * self.size


def _group(rank: int, loss: Loss, factors: Mapping[Term, float]) -> _Group:
    weights = scaled(loss, rank, factors, 1.0)
    mean, spread = float(weights.mean()), float(weights.max() - weights.min())
    is_uniform = spread <= 1e-4 * max(abs(mean), 1e-300)
    return _Group(rank, loss, int(loss.counted.sum()), loss.size, mean, is_uniform)


def _calls(
    losses: Mapping[int, Sequence[Loss]], factors: Mapping[Term, float] | None, samples: int,
    passes: Mapping[Term, int],
) -> list[_Calls]:  # fmt: skip
    """The groups of each line that calls a loss function.

    Args:
        losses: by rank.
        factors: see `judged`.
        samples: of the update, on all ranks.
        passes: forward passes by rank and backward pass.
    """
    places: dict[tuple[str, str], list[_Group]] = {}
    for rank, loss in ((rank, loss) for rank, some in losses.items() for loss in some):
        if loss.count and loss.weights is not None:
            group = _group(rank, loss, factors or {})
            places.setdefault((loss.place, loss.kind), []).append(group)
    return [
        _Calls(term, samples, factors is not None)
        for groups in places.values() for term in _terms(groups, passes)
    ]  # fmt: skip


def _terms(groups: list[_Group], passes: Mapping[Term, int]) -> list[list[_Group]]:
    """Apart, what a line computes more than once from a forward pass, and weighs unequally.

    Those are terms of a loss, as of two heads, and no microbatches.
    """
    calls: dict[Term, list[_Group]] = {}
    for g in groups:
        calls.setdefault((g.rank, g.loss.backward), []).append(g)
    numbers = {len(own) / max(passes.get(key, 0), 1) for key, own in calls.items()}
    number = int(min(numbers)) if len(numbers) == 1 else 1
    if number < 2 or all(_spread([g.weight for g in own]) <= TOLERANCE for own in calls.values()):
        return [groups]
    return [[g for own in calls.values() for g in own[one::number]] for one in range(number)]


def _samples(update: Update) -> int:
    """Samples of an update on one rank: the first axis of the first input of each pass."""
    firsts = ([one for one in forward.shapes if one] for forward in update.forwards)
    return sum(sizes[0][0] for sizes in firsts if sizes)


class _Calls:
    """All calls of one line, on all ranks.

    Args:
        groups: of its elements.
        samples: of the update, on all ranks.
        is_known: whether the factor of the reduction is in their weights.
    """

    def __init__(self, groups: list[_Group], samples: int, is_known: bool) -> None:
        masked = [g for g in groups if g.weight or g.loss.weights.numel() == 1]  # type: ignore[union-attr]
        self._groups, self._samples, self._is_known = masked or groups, samples, is_known
        self._count = sum(g.count for g in self._groups)
        self._size = sum(g.size for g in self._groups)
        self._total = sum(g.total for g in self._groups)
        self._place = groups[0].loss.place
        is_token = groups[0].loss.kind in ("cross_entropy", "nll_loss")
        is_sample = sum(g.loss.count for g in groups) == samples
        self._kind = ("sample" if is_sample else "token") if is_token else "element"

    def line(self) -> str:
        """Prints the weights."""
        values: dict[str, int] = {}
        for g in self._groups:
            value = f"{g.weight:.4g}" + ("" if g.is_uniform else " (mean)")
            values[value] = values.get(value, 0) + g.count
        listed = [f"{value} ({count} {self._kind}s)" for value, count in values.items()]
        more = f" and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else ""
        masked = sum(g.loss.count - g.count for g in self._groups)
        more += f"; {masked} are masked" if masked else ""
        known = f"; sum {self._total:.4g}" if self._is_known else " before the reduction"
        by_class = " over its class weight" * any(g.loss.sizes is not None for g in self._groups)
        return (
            f"weight of each {self._kind}{by_class}: {', '.join(listed[:MOST_SHOWN])}{more}{known}"
        )

    def judged(self, dropped: int, tolerance: float, *, is_only: bool) -> Weights:
        """Judge them.

        Args:
            dropped: backward passes whose gradients are lost.
            tolerance: relative.
            is_only: whether the loss has no other term.
        """
        weights, total = [g.weight for g in self._groups], self._total
        samples = self._samples
        # A mean over elements, of each by its class, or over samples; a sum.
        usual = (1 / self._count, 1 / (self._size or 1.0), 1 / max(samples, 1), 1)
        found = Weights(self.line(), why_not=self._why_not(), is_zero=not any(weights), total=total)
        if found.why_not:
            return found
        if _spread(weights) > tolerance:
            found.finding = self._unequal(tolerance)
        elif any(_is(weights[0], one, tolerance) for one in usual):
            pass
        elif (
            self._kind == "token"
            and self._count > 2 * samples
            and _is(total * (1 + samples / self._count), 1, tolerance)
        ):
            found.note = (
                "the loss is divided by the number of tokens and samples: the first label of each "
                "sample is counted, and never predicted (as transformers do for some models)"
            )
        elif is_only and (finding := self._off(dropped, tolerance)):
            found.finding = finding
        else:
            found.why_not = (
                f"the weights of {self._place} sum to {total:.4g}: a factor of the script's "
                "own, or another term of the loss"
            )
        return found

    def _why_not(self) -> str:
        """Why they cannot be judged; empty where they can."""
        if not all(g.is_uniform for g in self._groups):
            return f"{self._place} gives each {self._kind} a weight of its own"
        if not math.isfinite(self._total):
            return f"the weights of {self._place} are not finite"
        if not any(g.weight for g in self._groups):
            return f"those of {self._place} are zero in all updates"
        if not self._is_known:
            return "the factor of the reduction is not known, so nor are the weights"
        return ""

    def _off(self, dropped: int, tolerance: float) -> Finding | None:
        """A sum that is off by ranks or microbatches; half a loss is so by convention."""
        ranks = len({g.rank for g in self._groups})
        known = factors(ranks, len(self._groups) // ranks, dropped)
        causes = [cause for cause, one in known if _is(self._total, one, tolerance)]
        is_half = _is(self._total, 0.5, 2 * tolerance) and all(g.loss.half for g in self._groups)
        if not causes or is_half or not self._groups[0].loss.is_seen:
            return None
        says = f"each {self._kind} weighs {self._total:.4g} times what it weighs in one process"
        if others := [f"“{table()[one].title}”" for one in causes[1:]]:
            says += f" (or {' or '.join(others)}: here ranks and microbatches give the same factor)"
        return Finding(causes[0], says, self._place, detail=self.line())

    def _unequal(self, tolerance: float) -> Finding:
        ranks: dict[int, list[float]] = {}
        for g in self._groups:
            ranks.setdefault(g.rank, []).append(g.weight)
        is_inside = any(_spread(weights) > tolerance for weights in ranks.values())
        among = "microbatches" if is_inside else "ranks"
        is_means = _spread([g.total for g in self._groups]) <= tolerance
        cause = f"{'mean of means' if is_means else 'unequal weights'} over {among}"
        says = f"{self._kind}s of different {among} have different weights"
        return Finding(cause, says, self._place, detail=self.line())


def _is(number: float, should: float, tolerance: float) -> bool:
    """Whether a number is another, up to its sign."""
    return abs(abs(number) / should - 1) <= tolerance


def _spread(numbers: Sequence[float]) -> float:
    """How far numbers are apart, over the largest."""
    return (max(numbers) - min(numbers)) / max(*map(abs, numbers), 1e-300)


def factors(ranks: int, parts: int, dropped: int = 0) -> Iterator[tuple[str, float]]:
    """Causes, the likeliest first, and by how much the whole is then too large.

    Args:
        ranks: that have batches of their own.
        parts: microbatches of each.
        dropped: microbatches whose gradients are lost.
    """
    both = ranks * parts if min(ranks, parts) > 1 else 1
    found = (
        ("zeroed between microbatches", parts / (parts + dropped)),
        ("accumulation not divided", parts),
        ("sum over ranks", ranks),
        ("sum over ranks and microbatches", both),
        ("divided by ranks twice", 1 / ranks),
        ("divided by microbatches twice", 1 / parts),
        ("divided by ranks twice", 1 / both),
    )
    return ((cause, factor) for cause, factor in found if factor != 1)

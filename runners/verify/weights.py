"""The weight of every token or sample in an update: a right program has one, 1 / their number.

In: the losses of an update on all ranks, and by which factor the reduction multiplied all
gradients. Out: a line that prints the weights, and a finding where they differ from each other, or
where their sum is off by the number of ranks or microbatches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runners.verify.causes import table
from runners.verify.records import Loss, Update
from runners.verify.verdict import Finding

MOST_SHOWN = 3
TOLERANCE = 2e-3


@dataclass
class Group:
    """The elements of one call of a loss function: how many, and the weight of each."""

    rank: int
    loss: Loss
    weight: float
    is_uniform: bool

    @property
    def total(self) -> float:
        """What these elements weigh together."""
        return self.weight * self.loss.count


@dataclass
class Weights:
    """What the weights of an update are.

    Attributes:
        line: prints them.
        finding: what is wrong with them.
        why_not: why they could not be judged.
        note: what is usual, and yet a reader wants to know.
    """

    line: str = ""
    finding: Finding | None = None
    why_not: str = ""
    note: str = ""

    @property
    def agree(self) -> bool:
        """Whether they were judged, and are right."""
        return self.finding is None and not self.why_not


Term = tuple[int, int | None]  # a rank, and one of its backward passes


def judged(
    updates: Mapping[int, Update], factors: Mapping[Term, float] | None, tolerance: float
) -> Weights:
    """Judge the losses of one update.

    Args:
        updates: of each rank that has other samples than the rest.
        factors: of the reduction, over that of a gradient scaler; None where they are not known.
        tolerance: relative.
    """
    places = _places({rank: one.losses for rank, one in updates.items()}, factors)
    is_other = any(one.other_terms for one in updates.values())
    samples = sum(_samples(one) for one in updates.values())
    dropped = max((one.dropped for one in updates.values()), default=0)
    if not places:
        return Weights(why_not="the loss calls no function that the tool can see through")
    found = [
        _place(groups, samples, dropped, tolerance, is_known=factors is not None,
               is_only=len(places) == 1 and not is_other)
        for groups in places.values()
    ]  # fmt: skip
    first = next((one for one in found if one.finding), None) or next(
        (one for one in found if one.why_not), found[0]
    )
    if first.agree and is_other:
        first.why_not = "the loss has another term, which no known function computes"
    return first


def shown(losses: Mapping[int, Sequence[Loss]]) -> str:
    """The line of losses of which no reduction is known."""
    places = _places(losses, None)
    return next(
        (_place(groups, 0, 0, TOLERANCE, is_known=False, is_only=False).line
         for groups in places.values()), "",
    )  # fmt: skip


def _places(
    losses: Mapping[int, Sequence[Loss]], factors: Mapping[Term, float] | None
) -> dict[str, list[Group]]:
    """The groups of each line that calls a loss function."""
    places: dict[str, list[Group]] = {}
    for rank, all_of in losses.items():
        for loss in all_of:
            if loss.count and loss.weights is not None:
                known = factors or {}
                factor = known.get((rank, loss.backward), known.get((rank, None), 1.0))
                places.setdefault(f"{loss.place} {loss.kind}", []).append(
                    _group(rank, loss, factor)
                )
    return places


def _samples(update: Update) -> int:
    """Samples of an update on one rank: the first axis of the first input of each pass."""
    firsts = ([one for one in forward.shapes if one] for forward in update.forwards)
    return sum(sizes[0][0] for sizes in firsts if sizes)


def _group(rank: int, loss: Loss, factor: float) -> Group:
    assert loss.weights is not None
    weights = loss.weights.flatten() * factor
    mean = float(weights.mean())
    spread = float(weights.max() - weights.min()) if weights.numel() > 1 else 0.0
    return Group(rank, loss, mean, spread <= 1e-4 * max(abs(mean), 1e-300))


def _place(
    groups: list[Group], samples: int, dropped: int, tolerance: float, *,
    is_known: bool, is_only: bool,
) -> Weights:  # fmt: skip
    elements, total = sum(g.loss.count for g in groups), sum(g.total for g in groups)
    kind = "token" if groups[0].loss.kind in ("cross_entropy", "nll_loss") else "element"
    weights = Weights(_line(groups, kind, elements, total, is_known=is_known))
    if not all(g.is_uniform for g in groups):
        weights.why_not = f"{groups[0].loss.place} gives each {kind} a weight of its own"
        return weights
    largest = max(abs(g.weight) for g in groups)
    if not math.isfinite(total) or largest == 0:
        weights.why_not = f"the weights of {groups[0].loss.place} are zero or not finite"
    elif not is_known:
        weights.why_not = "the factor of the reduction is not known, so nor are the weights"
    elif max(abs(g.weight - groups[0].weight) for g in groups) > tolerance * largest:
        weights.finding = _unequal(groups, kind, tolerance, weights.line)
    elif _is_usual(groups[0].weight, elements, samples, tolerance):
        pass
    elif _counts_first_labels(kind, total, elements, samples, tolerance):
        weights.note = (
            "the loss is divided by the number of tokens and samples: the first label of each "
            "sample is counted, and never predicted (as transformers do for some models)"
        )
    else:
        _judge_total(weights, groups, total, dropped, tolerance, is_only=is_only)
    return weights


def _counts_first_labels(
    kind: str, total: float, elements: int, samples: int, tolerance: float
) -> bool:
    """Whether a mean counts a label of each sample that it does not predict: of sequences."""
    is_long = kind == "token" and elements > 2 * samples
    return is_long and abs(abs(total) * (1 + samples / elements) - 1) <= tolerance


def _is_usual(weight: float, elements: int, samples: int, tolerance: float) -> bool:
    """A mean over elements or over samples, or a sum."""
    usual = (1 / max(elements, 1), 1 / max(samples, 1), 1.0)
    return any(abs(abs(weight) / one - 1) <= tolerance for one in usual)


def _judge_total(
    weights: Weights, groups: list[Group], total: float, dropped: int, tolerance: float, *,
    is_only: bool,
) -> None:  # fmt: skip
    ranks = len({g.rank for g in groups})
    parts = len(groups) // max(ranks, 1)
    causes = [
        n for n, one in _factors(ranks, parts, dropped) if abs(abs(total) / one - 1) <= tolerance
    ]
    is_half = abs(total - 0.5) < tolerance and all(g.loss.half for g in groups)
    if not causes or not is_only or not groups[0].loss.is_seen or is_half:
        weights.why_not = (
            f"the weights of {groups[0].loss.place} sum to {total:.4g}: a factor of the script's "
            "own, or another term of the loss"
        )
        return
    says = f"each {'token' if 'token' in weights.line else 'element'} weighs {total:.4g} times "
    says += "what it weighs in one process"
    for other in causes[1:]:
        says += f", which is as well “{table()[other].title}”"
    weights.finding = Finding(causes[0], says, groups[0].loss.place, detail=weights.line)


def _factors(ranks: int, parts: int, dropped: int) -> Iterator[tuple[str, float]]:
    if dropped:
        yield "zeroed between microbatches", parts / (parts + dropped)
    if parts > 1:
        yield "accumulation not divided", parts
    if ranks > 1:
        yield "sum over ranks", ranks
    if ranks > 1 and parts > 1:
        yield "sum over ranks and microbatches", ranks * parts
    if ranks > 1:
        yield "divided by ranks twice", 1 / ranks
    if parts > 1:
        yield "divided by microbatches twice", 1 / parts
    if ranks > 1 and parts > 1:
        yield "divided by ranks twice", 1 / (ranks * parts)


def _unequal(groups: list[Group], kind: str, tolerance: float, line: str) -> Finding:
    totals = [g.total for g in groups]
    is_means = max(totals) - min(totals) <= tolerance * max(abs(one) for one in totals)
    ranks: dict[int, list[float]] = {}
    for g in groups:
        ranks.setdefault(g.rank, []).append(g.weight)
    inside = any(max(w) - min(w) > tolerance * max(map(abs, w)) for w in ranks.values())
    among = "microbatches" if inside else "ranks"
    cause = f"mean of means over {among}" if is_means else f"unequal weights over {among}"
    says = f"{kind}s of different {among} have different weights"
    return Finding(cause, says, groups[0].loss.place, detail=line)


def _line(groups: list[Group], kind: str, elements: int, total: float, *, is_known: bool) -> str:
    values: dict[str, int] = {}
    for g in groups:
        shown = f"{g.weight:.4g}" + ("" if g.is_uniform else " (mean)")
        values[shown] = values.get(shown, 0) + g.loss.count
    listed = [f"{value} ({count} {kind}s)" for value, count in values.items()][:MOST_SHOWN]
    more = f" and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else ""
    known = f"; sum {total:.4g}" if is_known else " before the reduction"
    return f"weight of each {kind}: {', '.join(listed)}{more}{known}"

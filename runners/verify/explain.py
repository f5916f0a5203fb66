"""Names the usual cause of gradients that are not one sum over all batches.

In: a `Fit` that is not good. Out: findings of a `Case`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from runners.verify.case import Case
from runners.verify.layout import Layout
from runners.verify.sums import Expected, Fit, added, are_apart, distance, ratio
from runners.verify.verdict import Term


def explain(case: Case, number: int, fit: Fit, expected: Expected) -> None:
    """Find what the gradients of an update are, since they are not the mean over all batches."""
    rank = min(fit.wrong or fit.apart)
    update = case.layout.update(rank, number)
    if not fit.wrong:
        cause, says = _shares(case.layout, fit.apart)
        names, place = list(expected.exact), update.backward_place
        if cause == "own gradient" and update.clips and not _steps_are_apart(case.layout, number):
            cause, says = "clipped before the reduction", "each rank clips its own gradient"
            names, place = [], update.clips[0].place
        elif cause == "own gradient" and not update.has_step:
            case.skip("gradients: each rank has its own, and no update follows")
            return
        case.find(cause, says, place, names, rank, number)
        return
    held = case.layout.whole(number, rank, "before_clipping")
    total, by_name = len(expected.exact), dict[str, str]()
    for name in fit.wrong[rank]:
        by_name[name] = _cause(case, name, held.get(name), rank, number, fit, expected)
    own = [name for name, cause in by_name.items() if cause == "own gradient"]
    if cause := _left_out(case.layout, rank, own):
        by_name |= dict.fromkeys(own, cause)
    causes = {c: [n for n, one in by_name.items() if one == c] for c in by_name.values()}
    for cause, names in sorted(causes.items(), key=lambda one: -len(one[1])):
        says = f"gradient differs from that of one process ({len(names)} of {total} parameters)"
        if cause == "no gradient" and len(causes) == 1:
            says = f"no gradient reaches the optimizer ({len(names)} of {total} parameters)"
        detail = _detail(names[0], held.get(names[0]), fit, expected)
        place = case.unpreserved if cause == "recomputation" else update.backward_place
        case.find(cause, says, place, names, rank, number, detail)


def _shares(layout: Layout, apart: Mapping[int, Mapping[Term, float]]) -> tuple[str, str]:
    """The cause, and what ranks hold that do not hold the same sum, from their factors."""
    rank, factors = min(apart.items())
    largest = max(abs(one) for one in factors.values())
    present = [term for term, one in factors.items() if abs(one) >= 1e-3 * largest]
    ranks = {r for r, _ in present}
    absent = {r for r, _ in factors} - ranks
    if ranks == {_leader(layout, rank)}:
        return "own gradient", "the gradient on each rank is that of its own batch"
    if len(apart) == 1 and absent:
        listed = ", ".join(map(str, sorted(absent)))
        return "another rank's gradient", f"the batch of rank {listed} has no share in it"
    missing = f"{len(factors) - len(present)} of {len(factors)} backward passes"
    return "not all reduced", f"{missing} have no share in it"


def _left_out(layout: Layout, rank: int, names: Sequence[str]) -> str:
    """Why nothing reduces these parameters, where what wraps the others does not know them."""
    record, parts = layout.records[rank], layout.update(rank, 0).parameters
    if not names or {*names} <= {*record.unwrapped}:
        return "unfrozen after wrapping" if names else ""
    is_plain = all(parts[name].spec is None for name in names if name in parts)
    is_divided = record.data_ranks is not None and any(one.spec for one in parts.values())
    return "outside fully_shard" if is_plain and is_divided else ""


def _leader(layout: Layout, rank: int) -> int:
    """The first rank that has the same batch."""
    return next(group[0] for group in layout.groups if rank in group)


def _steps_are_apart(layout: Layout, number: int) -> bool:
    """Whether optimizers of different ranks are given different gradients."""
    first, *others = (layout.whole(number, rank, "at_step") for rank in layout.views())
    return any(are_apart(one, other[n]) for other in others for n, one in first.items())


def _should(name: str, fit: Fit, expected: Expected) -> Tensor:
    return expected.exact[name] * (fit.common or 1 / expected.num_batches)


def _cause(
    case: Case, name: str, held: Tensor | None, rank: int, number: int, fit: Fit, expected: Expected
) -> str:
    layout = case.layout
    if name not in expected.exact:
        return "gradient from elsewhere"
    if held is None or not bool(held.any()):
        return "no gradient"
    held, tolerance = held.double(), 4 * expected.tolerance[name]
    for leader in layout.leaders if expected.num_batches > 1 else ():
        of_leader = added(g for (r, _), g in expected.terms.items() if r == leader)
        if name in of_leader and _is_multiple(held, of_leader[name], tolerance):
            return "own gradient" if leader == _leader(layout, rank) else "another rank's gradient"
    should = _should(name, fit, expected)
    before = layout.whole(number - 1, rank, "before_clipping").get(name) if number else None
    for cause, own in (("previous gradient", held), ("not zeroed", held - should)):
        if before is not None and distance(own, before) <= tolerance:
            return cause
    if _is_multiple(held, should, tolerance):
        return _factor_cause(layout, name, ratio(held, should), expected)
    other = "part of the sum" if layout.is_tensor_parallel else "gradient differs"
    return "recomputation" if case.unpreserved else other


def _is_multiple(held: Tensor, one: Tensor, tolerance: float) -> bool:
    factor = ratio(held, one)
    return distance(held, factor * one) <= tolerance * max(1.0, abs(factor))


def _factor_cause(layout: Layout, name: str, factor: float, expected: Expected) -> str:
    ranks = {expected.num_batches, *map(len, layout.groups)} - {1}
    lower = name.lower()
    kind = "norm " if "norm" in lower or "ln_" in lower else "expert " if "expert" in lower else ""
    if any(abs(factor / n - 1) < 0.01 for n in ranks):
        return f"{kind}times ranks"
    if any(abs(factor * n - 1) < 0.01 for n in ranks):
        return f"{kind}divided by ranks"
    if expected.num_parts > 1 and abs(factor / expected.num_parts - 1) < 0.01:
        return "times microbatches"
    return "other factor"


def _detail(name: str, held: Tensor | None, fit: Fit, expected: Expected) -> str:
    if held is None or name not in expected.exact:
        return ""
    should = _should(name, fit, expected)
    error = distance(held, should) / max(should.norm().item(), 1e-300)
    return f"off by {error:.1%} of its norm; best common factor {ratio(held, should):.4g}"

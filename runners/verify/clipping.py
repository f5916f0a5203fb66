"""Compares clipped gradients, and the norms by which they were clipped, with those of one process.

In: gradients after the reduction, and those that the optimizer used. Out: findings of a `Case`. A
script may call torch's functions, or clip by hand: then the factor of each rank is read from the
gradients, and the norm from what the script sums over ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor
from torch.nn.utils import get_total_norm

from runners.verify.case import Case
from runners.verify.layout import Layout, Tensors
from runners.verify.records import Clip
from runners.verify.sums import Expected, distance, ratio


def norm_of(tensors: Iterable[Tensor | None], norm_type: float = 2.0) -> float:
    """The norm of all elements of all tensors."""
    return float(get_total_norm([one.double() for one in tensors if one is not None], norm_type))


def compare_moments(case: Case, number: int) -> None:
    """Gradients are clipped when the whole sum is there, and not before."""
    view = case.layout.view
    update = case.layout.update(view, number)
    last = max((one.backward or 0 for one in update.forwards), default=0)
    early = [one for one in update.clips if one.backward < last and (one.total or 0) > one.limit]
    if early:
        says = f"{len(early)} of {len(update.clips)} calls clip before the last backward pass"
        case.find("clipped between microbatches", says, early[0].place, [], view, number)


def _find_part(case: Case, used: float, norm: float, place: str, rank: int, number: int) -> None:
    says = f"clipped by a norm of {used:.4g}; that of the whole gradient is {norm:.4g}"
    case.find("norm of a part", says, place, [], rank, number)


# Clipped by hand


def shrinking_factors(case: Case, number: int) -> dict[int, float]:
    """By which factor each rank has made all its gradients smaller; empty where it has not."""
    factors, rounding = {}, 8 * case.sum_eps
    for rank, record in case.layout.records.items():
        update = record.updates[number]
        ratios = []
        for name, raw in update.after_backward.items():
            used = update.before_clipping.get(name)
            if raw is None or used is None or not bool(raw.local.any()):
                continue
            ratios.append(ratio(used.local, raw.local))
            off = distance(used.local, ratios[-1] * raw.local.double())
            if off > (1e-4 + rounding) * used.local.double().norm():
                return {}
        if not ratios or max(ratios) - min(ratios) > (1e-3 + rounding) * max(ratios):
            return {}
        factors[rank] = ratios[0]
    is_smaller = all(0 < one <= 1 for one in factors.values())
    return factors if is_smaller and min(factors.values()) < 1 else {}


def is_clip(case: Case, number: int, found: Mapping[int, float]) -> bool:
    """Whether factors by hand are those of clipping: a norm times its factor is one limit."""
    if not _are_near(*found.values()):
        return True  # and ranks clip by different norms, which is a finding
    layout, rank, numbers = case.layout, min(found), range(case.layout.num_updates)
    factors = [shrinking_factors(case, n).get(rank, 1.0) for n in numbers]
    own = [_reduced_norm(n, [layout]) for n in numbers]
    true = [own, [_reduced_norm(n, case.layouts) for n in numbers]]
    sums = [layout.update(rank, n).sums for n in numbers]
    for at, (place, _) in enumerate(sums[number] if len({*map(len, sums)}) == 1 else ()):
        squares = [float(one[at][1]) for one in sums]
        for used in (squares, [abs(one) ** 0.5 for one in squares]):
            if any(_are_near(used[number], norms[number]) for norms in true):
                return True
            if _limit(factors, used) and not _are_near(*own):
                _find_part(case, used[number], own[number], place, rank, number)
                return True
    limit = next((one for norms in true if (one := _limit(factors, norms))), None)
    if limit is None or _are_near(*own):
        return False
    case.note(f"the script itself clips gradients to a norm of {limit:.4g}")
    return True


def _reduced_norm(number: int, layouts: Sequence[Layout]) -> float:
    held = (
        one.whole(number, one.view, "after_backward") for one in layouts if number < one.num_updates
    )
    return norm_of(tensor for tensors in held for tensor in tensors.values())


def _are_near(*numbers: float) -> bool:
    low, high = min(numbers), max(numbers)
    return high - low <= 1e-3 * max(abs(low), abs(high))


def _limit(factors: Sequence[float], norms: Sequence[float]) -> float | None:
    """The limit to which these factors clip these norms; None where they do not."""
    limits = [a * b for a, b in zip(factors, norms, strict=True) if a < 1 - 1e-6]
    rest = [b for a, b in zip(factors, norms, strict=True) if a >= 1 - 1e-6]
    if len(factors) < 2 or not limits or not _are_near(*limits):
        return None
    return limits[0] if max(rest, default=0.0) <= limits[0] * (1 + 1e-3) else None


def compare_factors(case: Case, number: int, factors: Mapping[int, float]) -> None:
    """Ranks that clip gradients by hand must use one factor, as must stages."""
    if not factors:
        return
    same = case.scaled.setdefault(number, {})
    same |= factors if case.layout.first.stage is not None else {}
    listed = same or factors
    if not _are_near(*listed.values()):
        rank = min(factors)
        update = case.layout.update(rank, number)
        says = ", ".join(f"{one:.4g} (rank {r})" for r, one in list(listed.items())[:4])
        says, place = f"ranks scale their gradients by {says}", update.step_place
        case.find("norm of a part", says, place or update.backward_place, [], rank, number)


# Clipped by torch's functions


def compare_clipped(case: Case, number: int, expected: Expected) -> None:
    """What the optimizer used is what clipping makes of the whole gradient."""
    layout, eps = case.layout, case.sum_eps
    for rank in layout.views():
        update = layout.update(rank, number)
        if not update.at_step:
            continue
        before = layout.whole(number, rank, "before_clipping")
        used = layout.whole(number, rank, "at_step")
        should, norm = _clipped(case, number, rank, before)
        for clip in update.clips:
            if norm is None or clip.total is None:
                continue
            if abs(clip.total - norm) > (1e-3 + 16 * eps) * norm:
                _find_part(case, clip.total, norm, clip.place, rank, number)
                return
        wrong = [
            name for name, one in should.items()
            if (held := used.get(name)) is not None
            and distance(held, one) > (1e-4 + 64 * eps) * norm_of([one])
            + expected.tolerance.get(name, 0.0) * _shrink(before[name], one)
        ]  # fmt: skip
        if wrong and (update.clips or update.scale != 1.0):
            place = update.clips[0].place if update.clips else update.step_place
            says = "the optimizer's gradient is not the clipped one of one process"
            case.find("norm of a part", says, place, wrong, rank, number)
            return


def _shrink(before: Tensor | None, after: Tensor) -> float:
    """By how much clipping has shortened a gradient."""
    return min(1.0, norm_of([after]) / max(norm_of([before]), 1e-300))


def _clipped(
    case: Case, number: int, rank: int, before: Tensors
) -> tuple[dict[str, Tensor], float | None]:
    """The gradients that one process would give its optimizer, and the norm that it clips by."""
    update = case.layout.update(rank, number)
    should = {n: one.double() / update.scale for n, one in before.items() if one is not None}
    norm: float | None = None
    for clip in update.clips:
        names = {name for key, name in clip.names if key == case.layout.key} & should.keys()
        if clip.kind == "clip_grad_value_":
            should |= {n: should[n].clamp(-clip.limit, clip.limit) for n in names}
        else:
            norm = _whole_norm(case, clip, number, rank, should)
            should |= {n: should[n] * min(1.0, clip.limit / (norm + 1e-6)) for n in names}
    return should, norm


def _whole_norm(case: Case, clip: Clip, number: int, rank: int, own: Tensors) -> float:
    """The norm over all that one process would clip together: all stages of a pipeline."""
    is_stage, names = case.layout.first.stage is not None, set(clip.names)
    found: list[Tensor] = []
    for other in case.layouts:
        if number >= other.num_updates or (is_stage and other.first.stage is None):
            continue
        view = rank if rank in other.records else other.view
        scale = 1.0 if other is case.layout else other.update(view, number).scale
        held = own if other is case.layout else other.whole(number, view, "before_clipping")
        found += [
            one.double() / scale for name, one in held.items()
            if one is not None and (is_stage or (other.key, name) in names)
        ]  # fmt: skip
    return norm_of(found, clip.norm_type)

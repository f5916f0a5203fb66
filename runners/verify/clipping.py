"""Compares clipped gradients, and the norms by which they were clipped, with those of one process.

In: gradients after the reduction, and those that the optimizer used. Out: findings of a `Case`. A
script may call torch's functions, or clip by hand: then the factor of each rank is read from the
gradients, and the norm from what the script sums over ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from runners.verify.case import Case
from runners.verify.sums import Expected, ratio, shrink
from runners.verify.layout import Layout, Tensors
from runners.verify.records import Clip


class Clipping:
    """Of one module."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, case.layout

    def scaled(self, number: int) -> dict[int, float]:
        """By which factor each rank has made all its gradients smaller; empty where it has not."""
        factors = {}
        for rank, record in self._layout.records.items():
            update = record.updates[number]
            ratios = []
            for name, raw in update.after_backward.items():
                used = update.before_clipping.get(name)
                if raw is None or used is None or not bool(raw.local.any()):
                    continue
                a, b = used.local.double(), raw.local.double()
                ratios.append(ratio(a, b))
                if (a - ratios[-1] * b).norm() > (1e-4 + 8 * self._case.sum_eps) * a.norm():
                    return {}
            if not ratios or max(ratios) - min(ratios) > (1e-3 + 8 * self._case.sum_eps) * max(
                ratios
            ):
                return {}
            factors[rank] = ratios[0]
        is_smaller = all(0 < one <= 1 for one in factors.values())
        return factors if is_smaller and min(factors.values()) < 1 else {}

    def is_clip(self, number: int, found: Mapping[int, float]) -> bool:
        """Whether factors by hand are those of clipping: a norm times its factor is one limit."""
        if max(found.values()) - min(found.values()) > 1e-3 * max(found.values()):
            return True  # and ranks clip by different norms, which is a finding
        rank, numbers = min(found), range(self._layout.num_updates)
        scaled = [self.scaled(n).get(rank, 1.0) for n in numbers]
        own = [self._norm(n, [self._layout]) for n in numbers]
        true = [own, [self._norm(n, self._case.layouts) for n in numbers]]
        sums = [self._layout.update(rank, n).sums for n in numbers]
        for at, (place, _) in enumerate(sums[number] if len({*map(len, sums)}) == 1 else ()):
            squares = [float(one[at][1]) for one in sums]
            for used in (squares, [abs(one) ** 0.5 for one in squares]):
                if any(_are_near(used[number], norms[number]) for norms in true):
                    return True
                if _limit(scaled, used) and not _are_near(min(own), max(own)):
                    says = f"clipped by a norm of {used[number]:.4g}; that of the whole gradient "
                    says += f"is {own[number]:.4g}"
                    self._case.find("norm of a part", says, place, [], rank, number)
                    return True
        limit = next((one for norms in true if (one := _limit(scaled, norms))), None)
        if limit is None or _are_near(min(own), max(own)):
            return False
        self._case.note(f"the script itself clips gradients to a norm of {limit:.4g}")
        return True

    def _norm(self, number: int, layouts: Sequence[Layout]) -> float:
        """The norm of all reduced gradients."""
        wholes = [
            one.whole(number, one.view, "after_backward")
            for one in layouts if number < one.num_updates
        ]  # fmt: skip
        return norm_of([one for all_of in wholes for one in all_of.values() if one is not None], 2)

    def between(self, number: int) -> None:
        """Gradients are clipped when the whole sum is there, and not before."""
        view = self._layout.view
        update = self._layout.update(view, number)
        last = max((one.backward or 0 for one in update.forwards), default=0)
        early = [
            one for one in update.clips if one.backward < last and (one.total or 0) > one.limit
        ]
        if early:
            says = f"{len(early)} of {len(update.clips)} calls clip before the last backward pass"
            place = early[0].place
            self._case.find("clipped between microbatches", says, place, [], view, number)

    def compare(self, number: int, expected: Expected) -> None:
        """What the optimizer used is what clipping makes of the whole gradient."""
        keys = {one.key: one for one in self._case.layouts}
        for rank in self._layout.views():
            update = self._layout.update(rank, number)
            if not update.at_step:
                continue
            before = self._layout.whole(number, rank, "before_clipping")
            used = self._layout.whole(number, rank, "at_step")
            should, norm = clipped(self._layout, keys, number, rank, before)
            for clip in update.clips:
                if (
                    norm is None
                    or clip.total is None
                    or abs(clip.total - norm) <= (1e-3 + 16 * self._case.sum_eps) * norm
                ):
                    continue
                whole = f"that of the whole gradient is {norm:.4g}"
                says = f"clipped by a norm of {clip.total:.4g}; {whole}"
                self._case.find("norm of a part", says, clip.place, [], rank, number)
                return
            wrong = [
                n for n, one in should.items()
                if (held := used.get(n)) is not None and one is not None
                and (held.double() - one).norm() > (1e-4 + 64 * self._case.sum_eps) * one.norm()
                + expected.tolerance.get(n, 0.0) * shrink(before.get(n), one)
            ]  # fmt: skip
            if wrong and (update.clips or update.scale != 1.0):
                place = update.clips[0].place if update.clips else update.step_place
                says = "the optimizer's gradient is not the clipped one of one process"
                self._case.find("norm of a part", says, place, wrong, rank, number)
                return

    def one_factor(self, number: int, scaled: Mapping[int, float]) -> None:
        """Ranks that clip gradients by hand must use one factor, as must stages."""
        if not scaled:
            return
        same = self._case.scaled.setdefault(number, {})
        same |= scaled if self._layout.first.stage is not None else {}
        listed = same or scaled
        low, high = min(listed.values()), max(listed.values())
        if high - low > 1e-3 * high:
            says = ", ".join(f"{one:.4g} (rank {r})" for r, one in list(listed.items())[:4])
            update = self._layout.update(min(scaled), number)
            place = update.step_place or update.backward_place
            says = f"ranks scale their gradients by {says}"
            self._case.find("norm of a part", says, place, [], min(scaled), number)


def _are_near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-3 * max(abs(a), abs(b))


def _limit(factors: Sequence[float], norms: Sequence[float]) -> float | None:
    """The limit to which these factors clip these norms; None where they do not."""
    limits = [a * b for a, b in zip(factors, norms, strict=True) if a < 1 - 1e-6]
    rest = [b for a, b in zip(factors, norms, strict=True) if a >= 1 - 1e-6]
    if len(factors) < 2 or not limits or not _are_near(min(limits), max(limits)):
        return None
    return limits[0] if max(rest, default=0.0) <= limits[0] * (1 + 1e-3) else None


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
        tensors = own if key == layout.key else other.whole(number, view, "before_clipping")
        divide = 1.0 if key == layout.key else scale
        found += [
            one.double() / divide
            for name, one in tensors.items()
            if one is not None and (names is None or (key, name) in names)
        ]
    return norm_of(found, clip.norm_type)

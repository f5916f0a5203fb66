"""Compares what the optimizer used, and what it made of it, with one process.

In: gradients after the reduction, those that the optimizer used, parameters, and the settings of
the script's optimizer. Out: findings of a `Case`. A script may clip by torch's functions, or by
hand: then the factor of each rank is read from the gradients, and the norm from what the script
sums over ranks. `Steps` makes the step that the optimizer of one process makes.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from runners.judging.rounding import NORM, are_apart, distance, ratio
from runners.verify.fit import Expected, error_of, scales_of
from runners.verify.inputs import Case
from runners.verify.records import STATE, Clip, Layout, RootRecord, Tensors, Update
from runners.verify.report import Error
from runners.verify.roots import same


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
    off = f"{used / max(norm, 1e-300):.4g}"
    case.find("norm of a part", says, place, [], rank, number, off)


# Clipped by hand


def is_clip(case: Case, number: int, raw: str) -> bool:
    """Whether the script itself clips: its factor times a norm is one limit, in all updates.

    The norm is the true one, or a number that the script sums over ranks, or the root of that. One
    may be a multiple of another: then the limit is a round number, as people write it.

    Args:
        case: of the module; stages of a pipeline clip together.
        number: of the update.
        raw: the field of `Update` that has the gradients before.
    """
    layout, is_stage = case.layout, case.layout.first.stage is not None
    clipped = [one for one in case.layouts if one.first.stage is not None] if is_stage else [layout]
    numbers, view = range(layout.num_updates), layout.view
    factors = [_shrinking_factors(clipped, n, raw, 8 * case.sum_eps) for n in numbers]
    if not (found := factors[number]):
        return False
    case.verdict.has_clipped = True
    update = layout.update(view, number)
    if not _are_near(*found.values()):
        says = ", ".join(f"{one:.4g} (rank {rank})" for rank, one in list(found.items())[:4])
        says, place = f"ranks scale their gradients by {says}", update.step_place
        case.find("norm of a part", says, place or update.backward_place, [], view, number)
        return True
    true = [[_norm(some, n, raw) for n in numbers] for some in ([layout], case.layouts)]
    summed = _summed([layout.update(view, n).sums for n in numbers])
    fits = [
        (limit, place, norms[number])
        for place, norms in [*(("", one) for one in true), *summed]
        if (limit := _limit([one.get(view, 1.0) for one in factors], norms))
    ]
    fits = [one for one in fits if abs(one[0] / float(f"{one[0]:.2g}") - 1) < 2e-4] or fits
    are_true = {any(_are_near(norm, one[number]) for one in true) for *_, norm in fits}
    if are_true == {True}:
        case.note(f"the script itself clips gradients to a norm of {fits[0][0]:.4g}")
    elif are_true == {False}:
        _find_part(case, fits[0][2], true[0][number], fits[0][1], view, number)
    return len(are_true) == 1


def _summed(sums: Sequence[Sequence[tuple[str, Tensor]]]) -> Iterator[tuple[str, list[float]]]:
    """What the numbers that a script sums in each update may be: a norm, or the square of one."""
    for calls in zip(*sums, strict=True) if len({*map(len, sums)}) == 1 else ():
        for power in (1.0, 0.5):
            yield calls[0][0], [abs(float(one)) ** power for _, one in calls]


def _limit(factors: Sequence[float], norms: Sequence[float]) -> float:
    """The limit to which these factors clip these norms; zero where they do not."""
    after = [factor * norm for factor, norm in zip(factors, norms, strict=True)]
    pairs = zip(factors, after, strict=True)
    is_one = all(_are_near(one, max(after)) for factor, one in pairs if factor < 1 - 1e-6)
    return max(after) if is_one and not _are_near(*norms) else 0.0  # equal ones fit any factor


def _shrinking_factors(
    layouts: Sequence[Layout], number: int, raw: str, rounding: float
) -> dict[int, float]:
    """By which factor each rank has made all its gradients smaller; empty where it has not."""
    factors = {}
    for layout in (one for one in layouts if number < one.num_updates):
        for rank in layout.records:
            update = layout.update(rank, number)
            pairs = [
                (used.local, one.local) for name, one in getattr(update, raw).items()
                if one and (used := update.before_clipping.get(name)) and bool(one.local.any())
            ]  # fmt: skip
            ratios = [ratio(*pair) for pair in pairs]
            is_one = pairs and max(ratios) - min(ratios) <= (1e-3 + rounding) * max(ratios)
            if not is_one or any(
                distance(used, factor * one.double()) > (1e-4 + rounding) * used.double().norm()
                for (used, one), factor in zip(pairs, ratios, strict=True)
            ):
                return {}
            factors[rank] = ratios[0]
    is_smaller = all(0 < one <= 1 for one in factors.values())
    return factors if is_smaller and min(factors.values()) < 1 else {}


def _norm(layouts: Sequence[Layout], number: int, held: str) -> float:
    wholes = [one.whole(number, one.view, held) for one in layouts if number < one.num_updates]
    return norm_of(tensor for one in wholes for tensor in one.values())


def _are_near(*numbers: float) -> bool:
    low, high = min(numbers), max(numbers)
    return high - low <= 1e-3 * max(abs(low), abs(high))


# Clipped by torch's functions


def compare_clipped(case: Case, number: int, expected: Expected) -> None:
    """What the optimizer used is what clipping makes of the whole gradient."""
    layout, eps = case.layout, case.sum_eps
    for rank in layout.views():
        update = layout.update(rank, number)
        case.verdict.has_clipped |= bool(update.clips)
        if not update.at_step or (not update.clips and update.scale == 1.0):
            continue
        held = layout.whole(number, rank, "before_clipping")
        before = {n: one.double() / update.scale for n, one in held.items() if one is not None}
        should = dict(before)
        place = update.clips[0].place if update.clips else update.step_place
        for clip in update.clips:
            names = {name for key, name in clip.names if key == layout.key} & should.keys()
            if clip.kind == "clip_grad_value_":
                should |= {n: should[n].clamp(-clip.limit, clip.limit) for n in names}
                continue
            norm = _whole_norm(case, clip, number, rank, should)
            if clip.total is not None and abs(clip.total - norm) > (1e-3 + 16 * eps) * norm:
                _find_part(case, clip.total, norm, clip.place, rank, number)
                return
            should |= {n: should[n] * min(1.0, clip.limit / (norm + 1e-6)) for n in names}
        used = layout.whole(number, rank, "at_step")
        wrong = [
            name for name, one in should.items()
            if (own := used.get(name)) is not None
            and distance(own, one) > (1e-4 + 64 * eps) * norm_of([one])
            + expected.tolerance.get(name, 0.0) * min(1.0, ratio(one, before[name]) / update.scale)
        ]  # fmt: skip
        if wrong:
            says = "the optimizer's gradient is not the clipped one of one process"
            case.find("norm of a part", says, place, wrong, rank, number)
            return


def _whole_norm(case: Case, clip: Clip, number: int, rank: int, own: Tensors) -> float:
    """The norm over all that one process would clip together: all stages of a pipeline."""
    is_stage, found = case.layout.first.stage is not None, list[Tensor]()
    for other in (one for one in case.layouts if number < one.num_updates):
        view = rank if rank in other.records else other.view
        is_own = other is case.layout
        held = own if is_own else other.whole(number, view, "before_clipping")
        scale = 1.0 if is_own else other.update(view, number).scale
        is_part = is_stage and other.first.stage is not None
        names = {name for name in held if is_part or (other.key, name) in clip.names}
        found += [one.double() / scale for n, one in held.items() if one is not None and n in names]
    return norm_of(found, clip.norm_type)


def find_skipped(case: Case) -> bool:
    """Whether a rank leaves out a step that another makes: updates are numbered by steps."""
    for (rank, one), (other, peer) in itertools.permutations(case.layout.records.items(), 2):
        made = {u.backwards: u for u in one.updates if u.backwards < peer.backwards}
        own = {u.backwards for u in peer.updates if u.backwards <= one.updates[-1].backwards}
        update = next((u for number, u in made.items() if number not in own), None)
        if update and own < {*made} and _is_lost(update, one, peer):
            says = f"after its backward pass {update.backwards}, rank {other} makes no step, and "
            says += f"rank {rank} does; the later updates of these ranks do not correspond"
            case.find("skipped step", says, update.step_place, [], other, update.number)
            return True
    return False


def _is_lost(update: Update, one: RootRecord, peer: RootRecord) -> bool:
    """Whether a step is missing, and its gradient is no microbatch of a later one.

    Ranks that accumulate unequal numbers of microbatches have equal parameters in each update.
    """
    if not any(f.backward == update.backwards for u in peer.updates for f in u.forwards):
        return True
    later = slice(update.number + 1, None)
    return any(
        part.spec is not None or are_apart(part.local, b.parameters[name].local)
        for a, b in zip(one.updates[later], peer.updates[later], strict=False)
        for name, part in a.parameters.items()
    )


def find_left_behind(case: Case) -> None:
    """Find a state of the optimizer that the script reads from a checkpoint, and does not use."""
    records = case.layout.records.values()
    place = next((one.left_behind for one in records if one.left_behind), "")
    if place and not any(one.updates[0].state for one in records):
        says = "the checkpoint holds the optimizer's state, and the first step begins without one"
        case.find("state left behind", says, place, [], None, 0)


def find_still(case: Case) -> None:
    """Find what has a gradient and does not move: outside the optimizer, or too coarse a dtype."""
    layout, view = case.layout, case.layout.view
    held, updates = [set(r.unowned) for r in layout.records.values()], layout.first.updates
    nowhere, last = set.intersection(*held), layout.num_updates - 1
    if any(one != nowhere for one in held):
        why = "the update (the optimizers of ranks hold different parameters)"
        case.skip(why, is_lasting=True)
    trained = set[str]()
    for number in range(last + 1):
        whole = layout.whole(number, view, "after_backward")
        known = {name: one for name, one in whole.items() if one is not None}
        scales, least = scales_of(known), NORM * case.sum_eps  # less is rounding
        trained |= {n for n, one in known.items() if norm_of([one]) > least * scales[n]}
    start = layout.whole(0, view, "parameters")
    end: Tensors = layout.whole(last, view, "parameters") | layout.whole(last, view, "after")
    still = [
        name for name, one in start.items()
        if name in trained and one is not None and (now := end[name]) is not None
        and torch.equal(one, now)
    ]  # fmt: skip
    settings, place = updates[last].settings, updates[0].step_place
    unowned = [name for name in still if name in nowhere]
    if unowned and any(one.has_step for one in updates):
        cause, says = "outside the optimizer", "trained, but no optimizer has it"
        if len(nowhere) == len(end):
            cause, says = "optimizer before sharding", "the optimizer has none of its parameters"
        case.find(cause, says, place, unowned, view, 0)
    coarse = [
        name for name in still
        if name in settings and float(settings[name][1].get("lr", 0.0)) > 0
        and torch.finfo(updates[0].parameters[name].local.dtype).eps > _COARSE
    ]  # fmt: skip
    if coarse:
        says = f"no element moved in {last + 1} updates, though it has a gradient"
        case.find("does not move", says, place, coarse, None, 0)


_COARSE = 1e-4  # eps of a dtype in which a step may round away
_IGNORED = ("fused", "foreach", "capturable", "differentiable")
_Made = tuple[Optimizer, nn.Parameter]


class Steps:
    """The updates of one module, by optimizers that keep their state from update to update."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, case.layout
        self._optimizers: dict[str, _Made | None] = {}

    def compare(self, number: int, expected: Expected | None) -> None:
        """The optimizer of one process, given the same gradients, reaches the same parameters.

        Args:
            number: of the update.
            expected: its gradients; None where they were not compared.
        """
        layout, view = self._layout, self._layout.view
        update = layout.update(view, number)
        if not update.has_step:
            self._skip("no optimizer of torch.optim made a step")
            return
        before = layout.whole(number, view, "parameters")
        last = layout.whole(number - 1, view, "after") if number else {}
        if any(are_apart(one, before.get(n)) for n, one in last.items() if one is not None):
            self._skip("parameters change between two updates")
            return
        used, after = (layout.whole(number, view, held) for held in ("at_step", "after"))
        errors = self._step(number, before, used, after)
        if expected:
            self._case.verdict.keep(self._layout.key, number, "step", errors)
        if wrong := [name for name, error in errors.items() if not error.agrees]:
            says = "the optimizer of one process reaches other parameters"
            self._case.find("update differs", says, update.step_place, wrong, view, number)

    def reached(self, number: int, gradients: Tensors) -> set[str]:
        """Parameters that begin the next update as the optimizer makes them of these gradients."""
        layout, view = self._layout, self._layout.view
        if number + 1 == layout.num_updates and not layout.has_later:
            return set()
        before, after = (layout.whole(n, view, "parameters") for n in (number, number + 1))
        errors = self._step(number, before, gradients, after)
        return {name for name, error in errors.items() if error.agrees}

    def compare_settings(self, number: int) -> None:
        """Ranks give the optimizer of a parameter the same settings."""
        first, *others = sorted(self._layout.records)
        held = self._layout.update(first, number).settings
        for rank, name in itertools.product(others, held):
            update, (kind, one) = self._layout.update(rank, number), held[name]
            _, own = update.settings.get(name, held[name])
            shared = [key for key in one if key in own and key not in _IGNORED]
            if key := next((key for key in shared if not same(one[key], own[key])), ""):
                says = f"{key} of {kind} is {one[key]} on rank {first} and {own[key]} on {rank}"
                cause = "state differs" if key == STATE else "settings differ"
                self._case.find(cause, says, update.step_place, [name], rank, number)
                return

    def _skip(self, why: str) -> None:
        self._case.skip(f"the update ({why})", is_lasting=True)

    def _step(
        self, number: int, before: Tensors, used: Tensors, after: Tensors
    ) -> dict[str, Error]:
        """Make the step; by parameter, how far that of the script is from it."""
        errors, state = {}, self._layout.whole(number, self._layout.view, "state")
        settings_of = self._layout.update(self._layout.view, number).settings
        for name, (kind, settings) in settings_of.items():
            start, end, gradient = before.get(name), after.get(name), used.get(name)
            if start is None or end is None:
                continue
            if name not in self._optimizers:
                own = {k.split()[1]: v for k, v in state.items() if k.startswith(f"{name} ")}
                self._optimizers[name] = _made(kind, settings, start, own)
            if (made := self._optimizers[name]) is None:
                self._skip(f"a step of {kind.removeprefix('own ')} is not repeated")
                continue
            optimizer, parameter = made
            with torch.no_grad():
                parameter.copy_(start)
            parameter.grad = None if gradient is None else gradient.to(parameter.dtype)
            group = optimizer.param_groups[0]
            group |= {k: v for k, v in settings.items() if k in group and k not in _IGNORED}
            optimizer.step()
            move = parameter.detach().double() - start.double()
            rounding = 8 * torch.finfo(start.dtype).eps * start.double().norm().item()
            allowed = 2e-3 * move.norm().item() + rounding
            errors[name] = error_of(end.double() - start.double(), move, allowed)
        return errors


def _made(kind: str, settings: dict[str, Any], start: Tensor, state: Tensors) -> _Made | None:
    """An optimizer of one parameter, with the state of a checkpoint if it had one.

    None for one that cannot be made from its settings.
    """
    found = getattr(torch.optim, kind, None)
    held = {key: one.clone() for key, one in state.items() if one is not None}
    if found is None or kind == "LBFGS" or len(held) < len(state):
        return None
    parameter = nn.Parameter(start.clone())
    known = inspect.signature(found).parameters
    words = {k: v for k, v in settings.items() if k in known and k not in _IGNORED}
    try:
        optimizer: Optimizer = found([parameter], **words)
    except (TypeError, ValueError):
        return None
    if held:
        optimizer.state[parameter] = held
    return optimizer, parameter

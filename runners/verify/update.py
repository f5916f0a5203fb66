"""Compares what the optimizer used, and what it made of it, with one process.

In: gradients after the reduction, those that the optimizer used, parameters, and the settings of
the script's optimizer. Out: findings of a `Case`. A script may clip by torch's functions, or by
hand: then the factor of each rank is read from the gradients, and the norm from what the script
sums over ranks. `Steps` makes the step that the optimizer of one process makes.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from runners.verify.fit import Expected, are_apart, distance, error_of, ratio, scales_of
from runners.verify.inputs import ROUNDINGS, Case
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
    """Whether factors by hand are those of clipping: a norm times its factor is one limit.

    The norm is the true one, or one that the script sums over ranks, or its square.
    """
    if not _are_near(*found.values()):
        return True  # and ranks clip by different norms, which is a finding
    layout, rank, numbers = case.layout, min(found), range(case.layout.num_updates)
    factors = [shrinking_factors(case, n).get(rank, 1.0) for n in numbers]
    true = [[_reduced_norm(n, some) for n in numbers] for some in ([layout], case.layouts)]
    sums = [layout.update(rank, n).sums for n in numbers]
    for place, norms in [*(("", one) for one in true), *_norms_of(sums)]:
        if (limit := _limit(factors, norms)) is None:
            continue
        if any(_are_near(norms[number], one[number]) for one in true):
            case.note(f"the script itself clips gradients to a norm of {limit:.4g}")
        else:
            _find_part(case, norms[number], true[0][number], place, rank, number)
        return True
    return False


def _norms_of(sums: Sequence[Sequence[tuple[str, Tensor]]]) -> Iterator[tuple[str, list[float]]]:
    """What the numbers that a script sums in each update may be: a norm, or the square of one."""
    for calls in zip(*sums, strict=True) if len({*map(len, sums)}) == 1 else ():
        numbers = [float(one) for _, one in calls]
        yield calls[0][0], numbers
        yield calls[0][0], [abs(one) ** 0.5 for one in numbers]


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
    if not limits or not _are_near(*limits) or _are_near(*norms):
        return None  # norms that are equal make any factor a limit
    return limits[0] if max(rest, default=0.0) <= limits[0] * (1 + 1e-3) else None


def compare_factors(case: Case, number: int, factors: Mapping[int, float]) -> None:
    """Ranks that clip gradients by hand must use one factor, as must stages."""
    if not factors:
        return
    case.verdict.has_clipped = True
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
        case.verdict.has_clipped |= bool(update.clips)
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


def find_skipped(case: Case) -> bool:
    """Whether a rank leaves out a step that another makes: updates are numbered by steps."""
    for (rank, one), (other, peer) in itertools.permutations(case.layout.records.items(), 2):
        made = [u.backwards for u in one.updates if u.backwards < peer.backwards]
        own = {u.backwards for u in peer.updates if u.backwards <= one.updates[-1].backwards}
        left_out = [at for at, number in enumerate(made) if number not in own]
        if left_out and own < {*made} and _is_lost(one, peer, left_out[0]):
            update = one.updates[left_out[0]]
            says = f"after its backward pass {update.backwards}, rank {other} makes no step, and "
            says += f"rank {rank} does; the later updates of these ranks do not correspond"
            case.find("skipped step", says, update.step_place, [], other, update.number)
            return True
    return False


def _is_lost(one: RootRecord, peer: RootRecord, at: int) -> bool:
    """Whether a step is missing, and its gradient is no microbatch of a later one.

    Ranks that accumulate unequal numbers of microbatches have equal parameters in each update.
    """
    passes = {f.backward for u in peer.updates for f in u.forwards}
    if one.updates[at].backwards not in passes:
        return True
    pairs = zip(one.updates[at + 1 :], peer.updates[at + 1 :], strict=False)
    return any(
        part.spec is not None or are_apart(part.local, b.parameters[name].local)
        for a, b in pairs for name, part in a.parameters.items()
    )  # fmt: skip


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
    trained = {
        name
        for number in range(last + 1)
        for known in [layout.whole(number, view, "after_backward")]
        for name, scale in scales_of({n: g for n, g in known.items() if g is not None}).items()
        if norm_of([known[name]]) > ROUNDINGS * case.sum_eps * scale  # less is rounding
    }
    start = layout.whole(0, view, "parameters")
    end: Tensors = layout.whole(last, view, "parameters") | layout.whole(last, view, "after")
    pairs = {name: (one, end[name]) for name, one in start.items() if name in trained}
    still = {
        name: torch.finfo(a.dtype).eps for name, (a, b) in pairs.items()
        if a is not None and b is not None and torch.equal(a, b)
    }  # fmt: skip
    settings, place = updates[last].settings, updates[0].step_place
    unowned = [name for name in still if name in nowhere]
    if unowned and any(one.has_step for one in updates):
        cause, says = "outside the optimizer", "trained, but no optimizer has it"
        if len(nowhere) == len(end):
            cause, says = "optimizer before sharding", "the optimizer has none of its parameters"
        case.find(cause, says, place, unowned, view, 0)
    coarse = [name for name, eps in still.items() if eps > _COARSE and name in settings]
    if coarse := [name for name in coarse if float(settings[name][1].get("lr", 0.0)) > 0]:
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
        self._after: Tensors = {}  # of the update before

    def compare(self, number: int, expected: Expected | None) -> None:
        """The optimizer of one process, given the same gradients, reaches the same parameters.

        Args:
            number: of the update.
            expected: its gradients; None where they were not compared.
        """
        view = self._layout.view
        update = self._layout.update(view, number)
        if not update.has_step:
            self._skip("no optimizer of torch.optim made a step")
            return
        before, used, after = (
            self._layout.whole(number, view, held) for held in ("parameters", "at_step", "after")
        )
        last, self._after = self._after, after
        if any(are_apart(one, before.get(n)) for n, one in last.items() if one is not None):
            self._skip("parameters change between two updates")
            return
        state = self._layout.whole(number, view, "state")
        errors = self._step(update, before, used, after, state)
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
        state = layout.whole(number, view, "state")
        errors = self._step(layout.update(view, number), before, gradients, after, state)
        return {name for name, error in errors.items() if error.agrees}

    def compare_settings(self, number: int) -> None:
        """Ranks give the optimizer of a parameter the same settings."""
        first, *others = sorted(self._layout.records)
        held = self._layout.update(first, number).settings
        for rank in others:
            update = self._layout.update(rank, number)
            for name in (name for name in held if name in update.settings):
                (kind, one), (_, own) = held[name], update.settings[name]
                shared = [key for key in one if key in own and key not in _IGNORED]
                if key := next((key for key in shared if not same(one[key], own[key])), ""):
                    says = f"{key} of {kind} is {one[key]} on rank {first} and {own[key]} on {rank}"
                    cause = "state differs" if key == STATE else "settings differ"
                    self._case.find(cause, says, update.step_place, [name], rank, number)
                    return

    def _skip(self, why: str) -> None:
        self._case.skip(f"the update ({why})", is_lasting=True)

    def _step(
        self, update: Update, before: Tensors, used: Tensors, after: Tensors, state: Tensors
    ) -> dict[str, Error]:
        """Make the step; by parameter, how far that of the script is from it."""
        errors, why = {}, ""
        for name, (kind, settings) in update.settings.items():
            start, end, gradient = before.get(name), after.get(name), used.get(name)
            if start is None or end is None:
                continue
            if name not in self._optimizers:
                own = {
                    k.rpartition(" ")[2]: v for k, v in state.items() if k.startswith(f"{name} ")
                }
                self._optimizers[name] = _made(kind, settings, start, own)
                if self._optimizers[name] is None:
                    why = f"a step of {kind.removeprefix('own ')} is not repeated"
            if (made := self._optimizers[name]) is None:
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
        if why:
            self._skip(why)
        return errors


def _made(kind: str, settings: dict[str, Any], start: Tensor, state: Tensors) -> _Made | None:
    """An optimizer of one parameter, with the state of a checkpoint if it had one.

    None for one that cannot be made from its settings.
    """
    found = getattr(torch.optim, kind, None)
    if found is None or kind == "LBFGS":
        return None
    parameter = nn.Parameter(start.clone())
    known = inspect.signature(found).parameters
    words = {k: v for k, v in settings.items() if k in known and k not in _IGNORED}
    try:
        optimizer = found([parameter], **words)
    except (TypeError, ValueError):
        return None
    held = {key: one.clone() for key, one in state.items() if one is not None}
    if len(held) < len(state):
        return None
    if held:
        optimizer.state[parameter] = held
    return optimizer, parameter

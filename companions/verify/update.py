"""Compares clipping and the optimizer's step with one process.

In: gradients after the reduction, those that the optimizer used, parameters, and the settings of
the script's optimizer. Out: findings of a `ModuleCase`. A script may clip by torch's functions, or
by hand: then the factor of each rank is read from the gradients, and the norm from numbers that the
script sums over ranks. `OptimizerReplay` makes the step that the optimizer of one process makes.
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

from proofbook.companions.verify.fit import Expected, error_of, scales_of
from proofbook.companions.verify.inputs import ModuleCase
from proofbook.companions.verify.records import (
    STATE,
    Clip,
    Modules,
    RootRecord,
    Tensors,
    UpdateRecord,
)
from proofbook.companions.verify.report import Error
from proofbook.companions.verify.roots import are_equal
from proofbook.runners.judging.rounding import NORM, are_apart, distance, ratio


def norm_of(tensors: Iterable[Tensor | None], norm_type: float = 2.0) -> float:
    """The norm of all elements of all tensors."""
    return float(get_total_norm([t.double() for t in tensors if t is not None], norm_type))


def find_early_clips(case: ModuleCase, number: int) -> None:
    """Add a finding where clips that had effect precede the last backward pass of the update."""
    rank = case.module.first_rank
    update = case.module.update(rank, number)
    last = max((forward.backward or 0 for forward in update.forwards), default=0)
    early = [
        clip for clip in update.clips if clip.backward < last and (clip.total or 0) > clip.limit
    ]
    if early:
        says = f"{len(early)} of {len(update.clips)} calls clip before the last backward pass"
        case.find("clipped between microbatches", says, early[0].place, [], rank, number)


def _find_wrong_norm(
    case: ModuleCase, used: float, norm: float, place: str, rank: int, number: int
) -> None:
    says = f"clipped by a norm of {used:.4g}; that of the whole gradient is {norm:.4g}"
    off = f"{used / max(norm, 1e-300):.4g}"
    case.find("norm of a part", says, place, [], rank, number, off)


# Clipped by hand


def is_clipped_by_hand(case: ModuleCase, number: int, before: str) -> bool:
    """Whether the script itself clips to a constant limit; adds a finding if by a wrong norm.

    The norm is the true one, or a number that the script sums over ranks, or the root of that. One
    may be a multiple of another: then the limit is a round number, as people write it. Stages of a
    pipeline clip together. `before` names the gradients before, in `UpdateRecord`.
    """
    module, rank = case.module, case.module.first_rank
    scope = [module]
    if module.first.stage is not None:
        scope = [other for other in case.modules if other.first.stage is not None]
    numbers = range(module.num_updates)
    factors = [_shrinking_factors(scope, n, before, 8 * case.sum_eps) for n in numbers]
    if not factors[number]:
        return False
    case.verdict.has_clipped = True
    if find_unequal_factors(case, factors[number], number):
        return True
    true = [[_norm(case, some, n, before) for n in numbers] for some in ([module], case.modules)]
    summed = _summed_norms([module.update(rank, n).sums for n in numbers])
    fits = [
        (limit, place, norms[number])
        for place, norms in [*(("", norms) for norms in true), *summed]
        if (limit := _limit([own.get(rank, 1.0) for own in factors], norms))
    ]
    fits = [fit for fit in fits if abs(fit[0] / float(f"{fit[0]:.2g}") - 1) < 2e-4] or fits
    are_true = {any(_are_near(norm, norms[number]) for norms in true) for *_, norm in fits}
    if are_true == {True}:
        case.note(f"the script itself clips gradients to a norm of {fits[0][0]:.4g}")
    elif are_true == {False}:
        _find_wrong_norm(case, fits[0][2], true[0][number], fits[0][1], rank, number)
    return len(are_true) == 1


def find_unequal_factors(case: ModuleCase, factors: Mapping[int, float], number: int) -> bool:
    """Whether ranks (their factors by rank) scale one gradient differently; adds a finding."""
    if not factors or _are_near(*factors.values()):
        return False
    rank = case.module.first_rank
    update = case.module.update(rank, number)
    listed = [f"{own:.4g} (rank {r})" for r, own in list(factors.items())[:4]]
    says, place = f"ranks scale their gradients by {', '.join(listed)}", update.step_place
    case.find("norm of a part", says, place or update.backward_place, [], rank, number)
    return True


def _summed_norms(
    sums: Sequence[Sequence[tuple[str, Tensor]]],
) -> Iterator[tuple[str, list[float]]]:
    """Norms of all updates, of which a script sums the norm or its square, and where."""
    for calls in zip(*sums, strict=True) if len({*map(len, sums)}) == 1 else ():
        for power in (1.0, 0.5):
            yield calls[0][0], [abs(float(number)) ** power for _, number in calls]


def _limit(factors: Sequence[float], norms: Sequence[float]) -> float:
    """The limit to which these factors clip these norms; zero where they do not."""
    after = [factor * norm for factor, norm in zip(factors, norms, strict=True)]
    pairs = zip(factors, after, strict=True)
    is_same = all(_are_near(norm, max(after)) for factor, norm in pairs if factor < 1 - 1e-6)
    return max(after) if is_same and not _are_near(*norms) else 0.0  # equal ones fit any factor


def _shrinking_factors(
    modules: Modules, number: int, before: str, rounding: float
) -> dict[int, float]:
    """The factor by which each rank has made all its gradients smaller; empty if one has not."""
    factors = {}
    for module in modules:
        for rank in module.records if number < module.num_updates else ():
            update = module.update(rank, number)
            pairs = [
                (used.local, raw.local) for name, raw in getattr(update, before).items()
                if raw and (used := update.before_clipping.get(name)) and bool(raw.local.any())
            ]  # fmt: skip
            ratios = [ratio(*pair) for pair in pairs]
            is_same = pairs and max(ratios) - min(ratios) <= (1e-3 + rounding) * max(ratios)
            if not is_same or any(
                distance(used, factor * raw.double()) > (1e-4 + rounding) * used.double().norm()
                for (used, raw), factor in zip(pairs, ratios, strict=True)
            ):
                return {}
            factors[rank] = ratios[0]
    is_smaller = all(0 < factor <= 1 for factor in factors.values())
    return factors if is_smaller and min(factors.values()) < 1 else {}


def _norm(case: ModuleCase, modules: Modules, number: int, attribute: str) -> float:
    """The norm of all modules' gradients; of a weight that two stages share, once."""
    known = [module for module in modules if number < module.num_updates]
    again = case.counted_again if len(known) > 1 else set()
    wholes = [(m.key, m.whole(number, m.first_rank, attribute)) for m in known]
    return norm_of(own for key, w in wholes for n, own in w.items() if (key, n) not in again)


def _are_near(*numbers: float) -> bool:
    low, high = min(numbers), max(numbers)
    return high - low <= 1e-3 * max(abs(low), abs(high))


# Clipped by torch's functions


def compare_clipped(case: ModuleCase, number: int, expected: Expected) -> None:
    """Add a finding where the norm or the clipped gradients are not those of one process."""
    module, eps = case.module, case.sum_eps
    for rank in module.replicas():
        update = module.update(rank, number)
        case.verdict.has_clipped |= bool(update.clips)
        if not update.at_step or (not update.clips and update.scale == 1.0):
            continue
        before = {
            name: own.double() / update.scale
            for name, own in module.present(number, rank, "before_clipping").items()
        }
        should = dict(before)
        place = update.clips[0].place if update.clips else update.step_place
        for clip in update.clips:
            names = {name for key, name in clip.names if key == module.key} & should.keys()
            if clip.kind == "clip_grad_value_":
                should |= {n: should[n].clamp(-clip.limit, clip.limit) for n in names}
                continue
            norm = _whole_norm(case, clip, number, rank, should)
            if clip.total is not None and abs(clip.total - norm) > (1e-3 + 16 * eps) * norm:
                _find_wrong_norm(case, clip.total, norm, clip.place, rank, number)
                return
            should |= {n: should[n] * min(1.0, clip.limit / (norm + 1e-6)) for n in names}
        used = module.whole(number, rank, "at_step")
        wrong = [
            name for name, clipped in should.items()
            if (own := used.get(name)) is not None
            and distance(own, clipped) > (1e-4 + 64 * eps) * norm_of([clipped])
            + expected.tolerance.get(name, 0.0)
            * min(1.0, ratio(clipped, before[name]) / update.scale)
        ]  # fmt: skip
        if wrong:
            says = "the optimizer's gradient is not the clipped one of one process"
            case.find("norm of a part", says, place, wrong, rank, number)
            return


def _whole_norm(case: ModuleCase, clip: Clip, number: int, rank: int, own: Tensors) -> float:
    """The norm over all that one process would clip together: all stages of a pipeline."""
    is_stage, gradients = case.module.first.stage is not None, list[Tensor | None]()
    for other in case.modules:
        if number >= other.num_updates:
            continue
        peer, whole, scale = rank if rank in other.records else other.first_rank, own, 1.0
        if other is not case.module:
            whole = other.whole(number, peer, "before_clipping")
            scale = other.update(peer, number).scale
        is_part = is_stage and other.first.stage is not None
        for name, gradient in whole.items():
            is_again = is_part and (other.key, name) in case.counted_again
            if (
                gradient is not None
                and not is_again
                and (is_part or (other.key, name) in clip.names)
            ):
                gradients.append(gradient.double() / scale)
    return norm_of(gradients, clip.norm_type)


def find_skipped_step(case: ModuleCase) -> bool:
    """Whether a rank skips a step that a peer makes, by their backward counts; adds a finding."""
    records = case.module.records.items()
    for (rank, record), (other, peer) in itertools.permutations(records, 2):
        made = {u.backwards: u for u in record.updates if u.backwards < peer.backwards}
        own = {u.backwards for u in peer.updates if u.backwards <= record.updates[-1].backwards}
        update = next((u for number, u in made.items() if number not in own), None)
        if update and own < {*made} and _is_lost(update, record, peer):
            says = f"after its backward pass {update.backwards}, rank {other} makes no step, and "
            says += f"rank {rank} does; the later updates of these ranks do not correspond"
            case.find("skipped step", says, update.step_place, [], other, update.number)
            return True
    return False


def _is_lost(update: UpdateRecord, record: RootRecord, peer: RootRecord) -> bool:
    """Whether a peer's step is missing, and its gradient is no microbatch of a later one.

    Ranks that accumulate unequal numbers of microbatches have equal parameters in each update.
    """
    if not any(f.backward == update.backwards for u in peer.updates for f in u.forwards):
        return True
    later = slice(update.number + 1, None)
    return any(
        part.spec is not None or are_apart(part.local, b.parameters[name].local)
        for a, b in zip(record.updates[later], peer.updates[later], strict=False)
        for name, part in a.parameters.items()
    )


def find_state_left_behind(case: ModuleCase) -> None:
    """Add a finding where a checkpoint has the optimizer's state, and the first step has none."""
    records = case.module.records.values()
    place = next(filter(None, (record.left_behind for record in records)), "")
    if place and not any(record.updates[0].state for record in records):
        says = "the checkpoint holds the optimizer's state, and the first step begins without one"
        case.find("state left behind", says, place, [], None, 0)


def find_unmoved(case: ModuleCase) -> None:
    """Add findings on trained parameters that never move: in no optimizer, or of a coarse dtype."""
    module, rank = case.module, case.module.first_rank
    unowned_by = [set(record.unowned) for record in module.records.values()]
    nowhere, last = set.intersection(*unowned_by), module.num_updates - 1
    are_apart_owners = any(names != nowhere for names in unowned_by)
    if are_apart_owners:
        why = "the update (the optimizers of ranks hold different parameters)"
        case.skip(why, is_lasting=True)
    trained = set[str]()
    for number in range(last + 1):
        known = module.present(number, rank, "after_backward")
        scales, least = scales_of(known), NORM * case.sum_eps  # less is rounding
        trained |= {name for name, own in known.items() if norm_of([own]) > least * scales[name]}
    start = module.present(0, rank, "parameters")
    end: Tensors = module.whole(last, rank, "parameters") | module.whole(last, rank, "after")
    still = [
        name for name, own in start.items()
        if name in trained and (now := end[name]) is not None and torch.equal(own, now)
    ]  # fmt: skip
    updates = module.first.updates
    settings, place = updates[last].settings, updates[0].step_place
    unowned = [name for name in still if name in nowhere]
    if unowned and any(update.has_step for update in updates):
        cause, says = "outside the optimizer", "trained, but no optimizer has it"
        if len(nowhere) == len(end):
            cause, says = "optimizer before sharding", "the optimizer has none of its parameters"
        case.find(cause, says, place, unowned, rank, 0)
    sent = [name for name in still if are_apart_owners and name not in nowhere]
    if sent:
        says = f"no element moved in {last + 1} updates, though the optimizer of a rank has it"
        case.find("sent unmoved", says, place, sent, None, 0)
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
_OptimizerOfOne = tuple[Optimizer, nn.Parameter]


class OptimizerReplay:
    """The steps of one module, by optimizers that keep their state from update to update."""

    def __init__(self, case: ModuleCase) -> None:
        self._case, self._module = case, case.module
        self._optimizers: dict[str, _OptimizerOfOne | None] = {}  # by parameter

    def compare(self, number: int, expected: Expected | None) -> None:
        """Make the step again, and add a finding where it differs; keep errors if `expected`."""
        module, rank = self._module, self._module.first_rank
        update = module.update(rank, number)
        if not update.has_step:
            self._skip("no optimizer of torch.optim made a step")
            return
        before = module.whole(number, rank, "parameters")
        last = module.present(number - 1, rank, "after") if number else {}
        if any(are_apart(own, before.get(name)) for name, own in last.items()):
            self._skip("parameters change between two updates")
            return
        used, after = (module.whole(number, rank, moment) for moment in ("at_step", "after"))
        errors = self._step_errors(number, before, used, after)
        if expected:
            self._case.verdict.keep_largest(module.key, number, "step", errors)
        if wrong := [name for name, error in errors.items() if not error.agrees]:
            says = "the optimizer of one process reaches other parameters"
            self._case.find("update differs", says, update.step_place, wrong, rank, number)

    def reached(self, number: int, gradients: Tensors) -> set[str]:
        """A set of names: parameters that a step by these gradients brings to the next update's."""
        module, rank = self._module, self._module.first_rank
        if number + 1 == module.num_updates and not module.has_later:
            return set()
        before, after = (module.whole(n, rank, "parameters") for n in (number, number + 1))
        errors = self._step_errors(number, before, gradients, after)
        return {name for name, error in errors.items() if error.agrees}

    def compare_settings(self, number: int) -> None:
        """Add a finding where ranks have unequal settings or state of a parameter's optimizer."""
        first, *others = sorted(self._module.records)
        settings_of = self._module.update(first, number).settings
        for rank, (name, both) in itertools.product(others, settings_of.items()):
            update, (kind, settings) = self._module.update(rank, number), both
            _, own = update.settings.get(name, both)
            shared = [key for key in settings if key in own and key not in _IGNORED]
            if key := next((key for key in shared if not are_equal(settings[key], own[key])), ""):
                says = f"{key} of {kind} is {settings[key]} on rank {first}"
                says += f" and {own[key]} on {rank}"
                cause = "state differs" if key == STATE else "settings differ"
                self._case.find(cause, says, update.step_place, [name], rank, number)
                return

    def _skip(self, why: str) -> None:
        self._case.skip(f"the update ({why})", is_lasting=True)

    def _step_errors(
        self, number: int, before: Tensors, used: Tensors, after: Tensors
    ) -> dict[str, Error]:
        """Make the step; by parameter, the error of the script's own step."""
        errors, rank = {}, self._module.first_rank
        state = self._module.whole(number, rank, "state")
        for name, (kind, settings) in self._module.update(rank, number).settings.items():
            start, end, gradient = before.get(name), after.get(name), used.get(name)
            if start is None or end is None:
                continue
            if name not in self._optimizers:
                own = {k.split()[1]: v for k, v in state.items() if k.startswith(f"{name} ")}
                self._optimizers[name] = _optimizer_of_one(kind, settings, start, own)
            if (optimizer_of_one := self._optimizers[name]) is None:
                why = f"a step of {kind.removeprefix('own ')} is not repeated"
                if where := self._module.first.steps_on_parts:
                    why += f"; it computes from shards ({where}): right for each element by itself"
                    why += ", and wrong for what needs whole matrices, as Muon does"
                self._skip(why)
                continue
            optimizer, parameter = optimizer_of_one
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


def _optimizer_of_one(
    kind: str, settings: dict[str, Any], start: Tensor, state: Tensors
) -> _OptimizerOfOne | None:
    """An optimizer of one parameter, with the state of a checkpoint if it had one.

    None for one that cannot be made from its settings.
    """
    known = {key: value.clone() for key, value in state.items() if value is not None}
    optimizer_class = getattr(torch.optim, kind, None)
    if optimizer_class is None or kind == "LBFGS" or len(known) < len(state):
        return None
    parameter = nn.Parameter(start.clone())
    accepted = inspect.signature(optimizer_class).parameters
    words = {k: v for k, v in settings.items() if k in accepted and k not in _IGNORED}
    try:
        optimizer: Optimizer = optimizer_class([parameter], **words)
    except (TypeError, ValueError):
        return None
    if known:
        optimizer.state[parameter] = known
    return optimizer, parameter

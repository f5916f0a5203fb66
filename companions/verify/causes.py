"""The usual causes of gradients, weights and schedules that are not those of one process.

In: a `ModuleCase` and, of one of its updates, how its gradients fit the expected ones, or the
weights of its loss. Out: a finding for each cause, which is added to the case or the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from proofbook.companions.verify import inputs, records
from proofbook.companions.verify.fit import Expected, Fit, added
from proofbook.companions.verify.inputs import ModuleCase
from proofbook.companions.verify.losses import TOLERANCE, Weights
from proofbook.companions.verify.report import Finding, Term, in_words
from proofbook.companions.verify.update import find_unequal_factors
from proofbook.runners.judging.rounding import are_apart, distance, ratio

_OWN = "own gradient"
_APART = 1.5  # a gradient scaler skips some of an optimizer's steps, and a scheduler none


# Gradients of other backward passes, and schedulers


def find_leftovers(
    case: ModuleCase, recordings: records.Recordings, number: int, added_up: set[str]
) -> None:
    """Find gradients of the update before, gradients that are lost, and schedulers.

    Those of the parameters in `added_up` are meant to be kept.
    """
    module = case.module
    updates = {r: own.updates[number] for r, own in module.records.items() if number}
    for rank, update in updates.items():
        carried = update.carried.items()
        names = [name for name, part in carried if part and bool(part.local.any())]
        if names := [name for name in names if name not in added_up]:
            says = "holds the gradient of the update before"
            case.find("not zeroed", says, update.backward_place, names, rank, number)
    for rank, update in updates.items():
        if are_dropped(module.records[rank].updates) and rank in module.leaders:
            share = f"{update.dropped} of {update.dropped + 1}"
            says = f"the gradients of {share} backward passes are lost"
            cause = "zeroed between microbatches"
            case.find(cause, says, update.backward_place, [], rank, number)
    if number == 0:
        _find_wrong_schedule(case, recordings)
    by_rank = module.records.values()
    steps = min((u.scheduler_steps for own in by_rank for u in own.updates[1:]), default=0)
    if number == 0 and steps > 1:
        place, says = module.first.updates[0].step_place, f"a scheduler steps {steps} times"
        case.find("scheduler", f"{says} for each update", place, [], None, number)


def _find_wrong_schedule(case: ModuleCase, recordings: records.Recordings) -> None:
    """Find a scheduler that a resumed run has stepped again, or begun anew."""
    for rank, recording in recordings.items():
        if (own := recording.resumed) is None:
            continue
        says = ""
        if not own.steps or own.steps > _APART * own.updates:
            says = f"before the first update here, a scheduler had stepped {own.steps} times, "
            says += f"and its optimizer {own.updates}"
        elif abs(own.rates[0] - own.rates[1]) > TOLERANCE * max(own.rates):
            says = f"the scheduler's last learning rate is {own.rates[0]:.4g}, and the "
            says += f"optimizer's {own.rates[1]:.4g}"
        if says:
            case.find("schedule not resumed", says, own.place, [], rank, 0)


def are_dropped(updates: Sequence[records.UpdateRecord]) -> bool:
    """Whether gradients of backward passes are reset before the optimizer uses them."""
    return len(updates) > 1 and all(update.dropped and update.has_step for update in updates)


# The weights of the loss


def find_short_update(
    module: records.DistributedModule, number: int, weights: Weights, earlier: Sequence[Weights]
) -> None:
    """Find an update of fewer microbatches than an `earlier` one, divided by as many as that."""
    update = module.update(module.leaders[0], number)
    parts = len(update.forwards)
    for index, before in enumerate(earlier):
        usual = len(module.update(module.leaders[0], index).forwards)
        is_off = not weights.agree and before.agree and parts < usual
        if is_off and abs(weights.total * usual / parts - 1) <= TOLERANCE:
            says = f"{parts} of {usual} microbatches, and each weighs as one of {usual}"
            place = weights.finding.place if weights.finding else update.backward_place
            off = f"{parts / usual:.4g} = {parts} / {usual} microbatches"
            weights.finding = Finding("short update", says, place, off=off)
            weights.why_not = ""
            return


def find_scaled(update: records.UpdateRecord, weights: Weights) -> None:
    """Find a loss that a gradient scaler has scaled, and nobody unscales."""
    is_scaled = update.loss_scale != 1.0 == update.scale
    if is_scaled and abs(weights.total / update.loss_scale - 1) <= TOLERANCE:
        says = f"each weighs {update.loss_scale:.4g} times, which is the scale of GradScaler"
        place, off = update.step_place or update.backward_place, f"{weights.total:.4g}"
        weights.finding, weights.why_not = Finding("not unscaled", says, place, off=off), ""


# The usual cause of gradients that are no sum over all batches


def find_gradient_causes(case: ModuleCase, number: int, fit: Fit, expected: Expected) -> None:
    """Add to the case a finding for each cause why an update's gradients do not fit `expected`."""
    if find_unequal_factors(case, _factors_of_copies(case.module, number, expected), number):
        return
    if fit.wrong:
        _find_wrong(case, number, fit, expected)
        return
    module, rank = case.module, min(fit.apart)
    update = module.update(rank, number)
    cause, says = _cause_of_shares(module, fit.apart)
    names, place = list(expected.exact), update.backward_place
    has_own = cause == _OWN and inputs.has_own_gradients(module, number)
    if cause == _OWN and update.clips and not has_own:
        cause, says = "clipped before the reduction", "each rank clips its own gradient"
        names, place = [], update.clips[0].place
    elif cause == _OWN and not update.has_step:
        case.skip("gradients: each rank has its own, and no update follows")
        return
    case.find(cause, says, place, names, rank, number)


def _find_wrong(case: ModuleCase, number: int, fit: Fit, expected: Expected) -> None:
    """Add a finding for each cause of the gradients that are no sum over all batches."""
    module, rank = case.module, min(fit.wrong)
    update = module.update(rank, number)
    held = module.whole(number, rank, "before_clipping")
    wrong = {n: _cause(case, n, held.get(n), rank, number, fit, expected) for n in fit.wrong[rank]}
    causes: dict[str, list[str]] = {}
    unreduced = _cause_unreduced(module, rank, [n for n, (c, *_) in wrong.items() if c == _OWN])
    for name, (cause, *_) in wrong.items():
        causes.setdefault(unreduced if unreduced and cause == _OWN else cause, []).append(name)
    if [*causes] == ["no gradient"] and not update.settings and _moves(module, rank, number):
        case.skip(
            "gradients: the optimizer does not hold the module's parameters, and they move: the "
            "script updates them in its own way (as ZeRO by hand)",
            is_lasting=True,
        )
        return
    for cause, names in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        error = "gradient differs from that of one process"
        if cause == "no gradient" and len(causes) == 1:
            error = "no gradient reaches the optimizer"
        says = f"{error} ({len(names)} of {len(expected.exact)} parameters)"
        _, off, others = wrong[names[0]]
        places = {"recomputation": case.unpreserved, "gather cuts": case.cut.partition(" ")[0]}
        place = places.get(cause) or update.backward_place
        case.find(cause, says, place, names, rank, number, off, [o for o in others if o != cause])


def _factors_of_copies(
    module: records.DistributedModule, number: int, expected: Expected
) -> dict[int, float]:
    """By rank, its factor in all gradients that it holds whole; empty where one has no factor."""
    factors = {}
    for rank in module.records:
        held = module.update(rank, number).before_clipping.items()
        own = {
            name: part.local.double() for name, part in held
            if part and part.shape == part.local.shape and name not in expected.experts
        }  # fmt: skip
        scale = _multiple(own, expected)
        if scale is None:
            return {}
        factors[rank] = scale * expected.num_batches
    return factors


def _multiple(held: Mapping[str, Tensor], expected: Expected) -> float | None:
    """The one factor of all these gradients over the exact ones; None without one."""
    exact, known = expected.exact, held.keys() & expected.exact.keys()
    factors = [ratio(held[name], exact[name]) for name in sorted(known) if held[name].numel() > 1]
    factor = max(factors, key=abs, default=0.0)
    is_one = factor and all(
        distance(held[name], factor * exact[name]) <= 4 * abs(factor) * expected.tolerance[name]
        + 1e-4 * held[name].norm().item() for name in known
    )  # fmt: skip
    return factor if is_one else None


def _moves(module: records.DistributedModule, rank: int, number: int) -> bool:
    """Whether parameters differ at the beginning of the next update."""
    if number + 1 == module.num_updates and not module.has_later:
        return False
    own, after = (module.update(rank, n).parameters for n in (number, number + 1))
    return any(not torch.equal(part.local, after[name].local) for name, part in own.items())


def _cause_of_shares(
    module: records.DistributedModule, apart: Mapping[int, Mapping[Term, float]]
) -> tuple[str, str]:
    """The cause of ranks that hold different sums, and its description, from their factors."""
    rank, factors = min(apart.items())
    largest = max(map(abs, factors.values()))
    present = [term for term, factor in factors.items() if abs(factor) >= 1e-3 * largest]
    ranks = {r for r, _ in present}
    absent = sorted({r for r, _ in factors} - ranks)
    is_one = all(
        abs(own[term]) < 1e-3 * largest for own in apart.values() for term in own
        if term[0] in absent
    )  # fmt: skip
    if absent and is_one:
        listed = ", ".join(map(str, absent))
        return "another rank's gradient", f"the batch of rank {listed} has no share in it"
    if ranks == {_leader(module, rank)}:
        return _OWN, "the gradient on each rank is that of its own batch"
    missing = f"{len(factors) - len(present)} of {len(factors)} backward passes"
    return "not all reduced", f"{missing} have no share in it"


def _cause_unreduced(module: records.DistributedModule, rank: int, names: Sequence[str]) -> str:
    """The cause of parameters that no wrapper reduces; empty where none is known."""
    record, parts = module.records[rank], module.update(rank, 0).parameters
    if not names or {*names} <= {*record.frozen_in_ddp}:
        return "unfrozen after wrapping" if names else ""
    is_plain = all(parts[name].spec is None for name in names if name in parts)
    is_divided = record.data_ranks is not None and any(part.spec for part in parts.values())
    return "outside fully_shard" if is_plain and is_divided else ""


def _leader(module: records.DistributedModule, rank: int) -> int:
    """The first rank that has the same batch."""
    return next(group[0] for group in module.groups if rank in group)


def _cause(
    case: ModuleCase, name: str, held: Tensor | None, rank: int, number: int, fit: Fit,
    expected: Expected,
) -> tuple[str, str, list[str]]:  # fmt: skip
    """The cause of one gradient, by how much it is off, and other causes of that factor."""
    if held is None or not bool(held.any()):
        return "no gradient", "", []
    held, tolerance = held.double(), 4 * expected.tolerance[name]
    should = expected.exact[name] * (fit.common or 1 / expected.num_batches)
    off = f"{distance(held, should) / max(should.norm().item(), 1e-300):.1%} of its norm"
    causes = ["gradient differs"]
    if case.module.is_tensor_parallel:
        causes = [inputs.cause_of_part(case.module, number)]
    others = list[str]()
    if case.unpreserved or case.cut:
        causes = ["recomputation" if case.unpreserved else "gather cuts"]
    if _is_multiple(held, should, tolerance):
        off, causes = _causes_of_factor(case.module, name, ratio(held, should), expected)
        others = [cause for cause in causes if cause == "times microbatches"]
    is_as_one = _are_parts_equal(case.module, name, rank, number, expected)
    causes[:0] = ["parts reduced as one"] * is_as_one
    tied = {own for tie in case.ties for own, *_ in tie.partners(case.module.key)}
    causes[:0] = ["tied weights apart"] * (name in tied)
    before = None
    if number:
        before = case.module.whole(number - 1, rank, "before_clipping").get(name)
    for cause, rest in (("not zeroed", held - should), ("previous gradient", held)):
        if before is not None and distance(rest, before) <= tolerance:
            causes.insert(0, cause)
    causes[:0] = _causes_of_one_batch(case.module, name, held, rank, expected)
    return causes[0], off, others


def _are_parts_equal(
    module: records.DistributedModule, name: str, rank: int, number: int, expected: Expected
) -> bool:
    """Whether ranks that hold other parts of a gradient, or other experts, hold equal values."""
    held = [module.update(r, number).before_clipping.get(name) for r in module.records]
    parts = [part.local for part in held if part and part.shape != part.local.shape]
    if name in expected.experts:
        wholes = module.present(number, rank, "before_clipping")
        same = (wholes[n] for n in expected.experts if n != name and n in wholes)
        parts = [wholes[name], *(own for own in same if own.shape == wholes[name].shape)]
        return any(not are_apart(parts[0], other) for other in parts[1:])
    is_even = len({part.shape for part in parts}) == 1 and len(parts) == len(held)
    return is_even and not any(are_apart(parts[0], other) for other in parts)


def _causes_of_one_batch(
    module: records.DistributedModule, name: str, held: Tensor, rank: int, expected: Expected
) -> Iterator[str]:
    """The causes of a gradient that is, up to a factor, the gradient of one batch."""
    for leader in module.leaders if expected.num_batches > 1 else ():
        own = added(g for (r, _), g in expected.terms.items() if r == leader).get(name)
        if own is not None and _is_multiple(held, own, 4 * expected.tolerance[name]):
            yield _OWN if leader == _leader(module, rank) else "another rank's gradient"


def _causes_of_factor(
    module: records.DistributedModule, name: str, factor: float, expected: Expected
) -> tuple[str, list[str]]:
    """A factor in words, and its usual causes."""
    ranks, lower = {expected.num_batches, *map(len, module.groups)} - {1}, name.lower()
    kind = "norm " if "norm" in lower or "ln_" in lower else "expert " if "expert" in lower else ""
    known = [(f"{kind}times ranks", float(n)) for n in ranks]
    known += [(f"{kind}divided by ranks", 1 / n) for n in ranks]
    known += [("times microbatches", n) for n in {expected.num_parts} - {1}]
    causes = [cause for cause, size in known if abs(factor / size - 1) < 0.01]
    return in_words(factor, ranks, expected.num_parts), causes or ["other factor"]


def _is_multiple(held: Tensor, should: Tensor, tolerance: float) -> bool:
    factor = ratio(held, should)
    return factor != 0 and distance(held, factor * should) <= tolerance * max(1.0, abs(factor))

"""Compares the script's update with the replay of one process.

In: what all ranks recorded (`DistributedModule`), and their replays. Out: a `Verdict`. For each
module and update, in this order: inputs, parameters of replicas, outputs, gradients after the
reduction, weights of the loss, clipping, and the optimizer's update. A comparison that could not be
made is said, and never counts as agreeing.

An error is a finding above the `allowance` of rounding (`judging/rounding.py`). A tensor's own
error is that of the replay in the script's precision against float64. Its scale is that of the
gradients in its module: a gradient that is zero in exact arithmetic has no scale of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from proofbook.companions.verify import inputs, records
from proofbook.companions.verify.fit import Expected, Fit, added, fit_gradients, scales_of
from proofbook.companions.verify.inputs import ModuleCase, find_ties
from proofbook.companions.verify.losses import TOLERANCE, Weights, judge_weights
from proofbook.companions.verify.replay import Replay
from proofbook.companions.verify.report import Finding, Term, Verdict, in_words
from proofbook.companions.verify.update import (
    OptimizerReplay,
    compare_clipped,
    find_early_clips,
    find_skipped_step,
    find_state_left_behind,
    find_unequal_factors,
    find_unmoved,
    is_clipped_by_hand,
)
from proofbook.runners.judging.rounding import NORM, allowance, are_apart, distance, ratio

_OWN = "own gradient"
_APART = 1.5  # a gradient scaler skips some of an optimizer's steps, and a scheduler none
UNCLIPPED = "clipping: none seen (a limit that was never reached hides a norm of one shard)"
Replays = Mapping[int, Mapping[str, Sequence[Replay]]]  # by rank and module, one for each update


def compare_modules(
    modules: records.Modules, recordings: records.Recordings, replays: Replays
) -> Verdict:
    """The `Verdict` on a script: each module compared with replays by its groups' first ranks."""
    verdict = Verdict(compared={"parameters": 0, "parameters_compared": 0, "updates": 0})
    _report_recordings(verdict, recordings)
    if broken := _first(own.broken for own in recordings.values()):
        verdict.skip(f"anything: an error of the tool's own ({broken})")
        return verdict
    inputs.compare_no_grad_modules(verdict, modules, recordings)
    cut = "outputs of all ranks enter the loss without a gradient, its own among them"
    for rank, where in ((rank, where) for rank, own in recordings.items() for where in own.lost):
        verdict.find(Finding("gather cuts", cut, where.split()[0], rank=rank))
    unpreserved = _first(own.unpreserved for own in recordings.values())
    cut = _first(cut for own in recordings.values() for cut in own.cuts)
    ties = list(find_ties(modules))
    for module in modules:
        case = ModuleCase(module, modules, verdict, unpreserved, ties, cut)
        _ModuleComparison(case, replays, recordings).compare()
    _report_unclipped(verdict, modules, recordings)
    where = _first(own.without_group for own in recordings.values())
    if not modules and where:
        verdict.skip(f"gradients: no process group was initialized when a module ran ({where})")
    elif not modules:
        verdict.skip("gradients: no module with trained parameters ran a forward and backward pass")
    return verdict


def _report_recordings(verdict: Verdict, recordings: records.Recordings) -> None:
    """Add gaps and notes on scripts that were stopped, compiled, or are not supported."""
    by_rank = recordings.values()
    for name in (name for own in by_rank for name in own.refused):
        verdict.skip(f"{name} is not supported")
    has_failed = any(own.failure for own in by_rank)
    for waits in () if has_failed else filter(None, (own.waits for own in by_rank)):
        verdict.skip(f"what follows the updates: {waits}, and other ranks were stopped earlier")
    for where in sorted({own.eager for own in by_rank if own.eager})[:1]:
        verdict.notes.append(f"{where}: torch.compile does nothing here; the script ran eagerly")


def _report_unclipped(
    verdict: Verdict, modules: records.Modules, recordings: records.Recordings
) -> None:
    """Add a note or a gap where a script computes norms, and clips nothing in these updates."""
    part_read = _first(own.part_read for own in recordings.values())
    if verdict.has_clipped or verdict.findings:
        return
    if any(update.sums for module in modules for update in module.updates):
        verdict.notes.append(UNCLIPPED)
    elif part_read:
        verdict.skip(
            f"clipping: {part_read} reads the local parts of gradients, of which a norm is that of "
            "one shard, and nothing is clipped in these updates (lower the limit)"
        )


def _first(reasons: Iterable[str]) -> str:
    return next(filter(None, reasons), "")


class _ModuleComparison:
    """Compares the updates of one module."""

    def __init__(self, case: ModuleCase, replays: Replays, recordings: records.Recordings) -> None:
        self._case, self._module, self._replays = case, case.module, replays
        self._recordings = recordings
        self._optimizers = OptimizerReplay(case)
        self._has_own = False  # ranks use gradients of their own, and the script makes up for it
        self._weights: list[Weights] = []  # of each update whose weights could be judged
        # Whether an update has several microbatches, or the module runs several times.
        self._has_parts = any(len(update.forwards) > 1 for update in case.module.updates)

    def compare(self) -> None:
        """Compare all updates, until one differs."""
        if why := self._why_not():
            self._case.skip(why)
            for number in range(self._module.num_updates):  # what `--one` leaves open
                if self._module.first.refused == records.STEPS_INSIDE:
                    inputs.compare_replicas(self._case, number)
                self._optimizers.compare(number, None)
        elif not find_skipped_step(self._case):
            self._compare_updates()
        if not self._weights and self._has_parts and not self._case.verdict.findings:
            self._skip_weights("not known, as the module is not compared")

    def _compare_updates(self) -> None:
        case, module, verdict = self._case, self._module, self._case.verdict
        find_state_left_behind(case)
        find_unmoved(case)
        self._find_untied()
        updates = module.first.updates
        compared = frozen = set(updates[0].parameters)
        for number in range(module.num_updates):
            frozen = frozen & set(updates[number].frozen)
            compared = compared & (self._compare_update(number) | set(updates[number].frozen))
            verdict.compared["updates"] = max(verdict.compared["updates"], number + 1)
            if any(finding.step is not None for finding in verdict.findings):
                break
        compared = frozen if self._are_zero() else compared
        verdict.compared["parameters_compared"] += len(compared - frozen)
        if frozen:
            listed = ", ".join(sorted(frozen)[:4]) + " …" * (len(frozen) > 4)
            case.note(f"{len(frozen)} parameters are frozen: {listed}")
        if not verdict.findings and not self._has_own:
            inputs.compare_replicas(case, module.num_updates - 1, "after")
        inputs.compare_samples(case)
        inputs.compare_generators(case)
        self._compare_buffers(is_judged=bool(compared - frozen))
        if module.has_later and not verdict.findings:
            self._optimizers.compare_settings(module.num_updates + 1)
            inputs.compare_replicas(case, module.num_updates + 1)

    def _are_zero(self) -> bool:
        """Whether all weights of the loss are zero, with which anything agrees."""
        if not self._weights or not all(weights.is_zero for weights in self._weights):
            return False
        verdict, first = self._case.verdict, self._weights[0]
        verdict.skip(f"weights of the loss: {first.why_not}", is_lasting=True)
        verdict.weights = verdict.weights or first.line
        return True

    def _why_not(self) -> str:
        """Why the module cannot be compared; empty where it can."""
        by_rank = self._module.records.values()
        updates = self._module.first.updates
        self._case.verdict.compared["parameters"] += len(updates[0].parameters) if updates else 0
        if refused := _first(record.refused for record in by_rank):
            return f"{refused} is not supported" if "which" not in refused else refused
        if not self._module.num_updates:
            return "no backward pass through it ended"
        for reason in (reason for update in self._module.updates for reason in update.by_hand):
            return reason
        first, *others = (
            [part.shape for part in record.updates[0].parameters.values()] for record in by_rank
        )
        if any(shapes != first for shapes in others):
            return "its parameters have other shapes on other ranks (divided by hand?)"
        return ""

    def _find_untied(self) -> None:
        for tie in self._case.ties:
            (module, other), (a, b) = tie.modules, tie.names
            if module is self._module and not tie.is_kept:
                says = f"starts equal to {other.key}: {b}, and is updated otherwise"
                place = module.first.updates[0].step_place
                self._case.find("tied weights apart", says, place, [a], module.first_rank, None)

    def _compare_buffers(self, *, is_judged: bool) -> None:
        """Compare buffers of ranks, without statistics of their own as batch norm keeps them."""
        by_rank = self._module.records.values()
        apart: dict[int, list[str]] = {}
        for number in (0, self._module.num_updates - 1):
            first, *others = (record.updates[number].buffers for record in by_rank)
            apart[number] = [
                name for name, part in first.items() if not ("running_" in name or part.spec)
                and any(are_apart(part.local, own[name].local) for own in others if name in own)
            ]  # fmt: skip
        if any(record.buffers_from is not None for record in by_rank):
            apart[0] = []  # one rank sends them before each pass
        update = self._module.first.updates[0]
        start = [n for n in apart[0] if update.buffers[n].local.is_floating_point()]
        if start and is_judged:
            says, place = "a buffer differs before the first forward pass", update.forwards[0].place
            self._case.find("replicas start apart", says, place, start, None, 0)
        elif name := next((name for names in apart.values() for name in names), ""):
            why = f"what its buffers are for: {name} differs between ranks"
            self._case.skip(why, is_lasting=True)

    # One update

    def _compare_update(self, number: int) -> set[str]:
        """Compare an update; returns the parameters that agree."""
        if not inputs.compare_batches(self._case, number):
            return set()
        agreed = self._compare_with_replays(number)
        inputs.compare_replicas(self._case, number, "used")
        return agreed

    def _compare_with_replays(self, number: int) -> set[str]:
        case, module = self._case, self._module
        replays = {rank: self._replays[rank][module.key][number] for rank in module.leaders}
        failed = _first(replay.failed for replay in replays.values())
        errors = [error for replay in replays.values() for error, _ in replay.errors]
        case.is_replayed = not failed and all(map(math.isfinite, errors))
        inputs.compare_replicas(case, number)
        if failed:
            case.skip(failed)
        if failed or not inputs.compare_outputs(case, number, replays):
            return set()
        outside = module.update(module.leaders[0], number).outside
        if outside:
            case.skip(f"{outside[0]}: the loss uses it outside of any module's forward pass")
        if added_up := self._added_up(number):
            why = f"{min(added_up)}: its optimizer steps in fewer updates, by gradients of several"
            case.skip(why, is_lasting=True)
        left_out = added_up.union(outside)
        expected = self._expected(number, replays)
        names = [name for name in expected.exact if name not in left_out]
        if not all(bool(gradient.isfinite().all()) for gradient in expected.exact.values()):
            case.skip("gradients: those of one process are not finite either")
            return set()
        return self._compare_gradients(number, names, expected) - left_out if names else set()

    def _added_up(self, number: int) -> set[str]:
        """Parameters without a step in the update before, whose gradients this one adds to."""
        before, update = (
            self._module.update(self._module.first_rank, n) for n in (number - 1, number)
        )
        carried = update.carried.items() if number and before.has_step else ()
        left = {name for name, part in carried if part and bool(part.local.any())}
        return left - before.at_step.keys()

    def _expected(self, number: int, replays: Mapping[int, Replay]) -> Expected:
        """The gradients of all batches; that of a tied weight is the sum over all its places."""
        case, key = self._case, self._module.key
        terms = {(r, at): sums for r, own in replays.items() for at, sums in own.exact.items()}
        owns = [sums for replay in replays.values() for sums in replay.own.values()]
        partners = (pair for tie in case.ties if tie.is_kept for pair in tie.partners(key))
        for name, module, other in partners:
            for rank in module.leaders:
                replay = self._replays[rank][module.key][number]
                owns += [{name: sums[other]} for sums in replay.own.values() if other in sums]
                for at, sums in replay.exact.items():
                    if other in sums:
                        terms[rank, at] = added([terms.get((rank, at), {}), {name: sums[other]}])
        exact, own, eps = added(terms.values()), added(owns), case.sum_eps
        tolerance = {
            name: allowance(NORM, distance(exact[name], own.get(name, exact[name])), eps, scale)
            for name, scale in scales_of(exact).items()
        }
        forwards = self._module.update(min(replays), number).forwards
        parts = len({f.backward for f in forwards if f.chunk is None}) or len(forwards)
        held = self._module.update(min(replays), number).parameters
        experts = {n for n, part in held.items() if part.spec and part.spec.is_of_one_rank}
        return Expected(terms, exact, tolerance, len(replays), parts, experts)

    def _compare_gradients(self, number: int, names: Sequence[str], expected: Expected) -> set[str]:
        case = self._case
        find_early_clips(case, number)
        reduced = self._fit(number, "before_clipping", names, expected)
        weights = self._judged_weights(number, reduced)
        for attribute in ("at_sum", "after_backward"):
            if reduced.is_good and weights.agree:
                break
            earlier = self._fit(number, attribute, names, expected)
            again = self._judged_weights(number, earlier)
            if earlier.is_good and again.agree and is_clipped_by_hand(case, number, attribute):
                reduced, weights = earlier, again
        if not weights.is_zero:
            case.verdict.weights = case.verdict.weights or weights.line
        case.verdict.keep_largest(self._module.key, number, "gradient", reduced.errors)
        if not reduced.is_good:
            has_own = inputs.has_own_gradients(self._module, number)
            if has_own and inputs.are_equal_again(self._module):
                self._has_own = True
                return self._compare_own_reduction(number, names, expected)
            find_gradient_causes(case, number, reduced, expected)
            return set(reduced.agreed)
        self._report_weights(number, weights)
        self._find_leftovers(number)
        compare_clipped(case, number, expected)
        self._optimizers.compare_settings(number)
        self._optimizers.compare(number, expected)
        return set(reduced.agreed)

    def _compare_own_reduction(
        self, number: int, names: Sequence[str], expected: Expected
    ) -> set[str]:
        """Compare the step with that of the mean gradient, where ranks keep their own gradients."""
        share = 1 / expected.num_batches
        update = self._module.update(self._module.first_rank, number)
        mean = {name: share * gradient for name, gradient in expected.exact.items()}
        if not self._optimizers.reached(number, mean) >= set(names):
            place = update.step_place or update.backward_place
            self._case.skip(
                f"gradients: each rank's are those of its own batch, and its parameters are equal "
                f"again before the next update: the script reduces in its own way ({place}); one "
                "that reduces `.grad` is compared",
                is_lasting=True,
            )
            return set()
        fit = Fit(dict.fromkeys(expected.terms, share))
        self._report_weights(number, self._judged_weights(number, fit))
        self._find_leftovers(number)
        return set(names)

    def _fit(self, number: int, attribute: str, names: Sequence[str], expected: Expected) -> Fit:
        """Fit the gradients of an update, without those that were there before."""
        rank, module = self._module.first_rank, self._module
        carried = module.present(number, rank, "carried")
        held = {r: module.whole(number, r, attribute) for r in module.replicas()}
        for own in held.values():
            for name, before in carried.items():
                if (gradient := own.get(name)) is not None:
                    own[name] = gradient.double() - before.double()
        fit = fit_gradients(held, names, expected)
        outside = module.update(module.leaders[0], number).outside
        extra = [
            name for name, gradient in held[rank].items()
            if name not in expected.exact and name not in outside
            and gradient is not None and bool(gradient.any())
        ]  # fmt: skip
        for name in extra[:1]:
            self._case.skip(f"{name}: it has a gradient, and no recorded forward pass uses it")
        return fit

    # The loss

    def _judged_weights(self, number: int, fit: Fit) -> Weights:
        """The weights of the loss, which the last stage of a pipeline computes."""
        last, is_stage = self._module, self._module.first.stage is not None
        if is_stage:
            stages = (m for m in self._case.modules if m.first.stage is not None)
            last = max(stages, key=lambda module: module.first.stage or 0)
        updates = {r: last.update(r, number) for r in last.leaders if number < last.num_updates}
        for r, own in updates.items():
            # Where the gradient at outputs is that of a known loss, there is no other term.
            losses = self._replays[r][last.key][number].losses
            is_sum = any(loss.kind == "sum" for loss in losses)
            if losses and not (is_sum and own.losses):
                updates[r] = dataclasses.replace(own, losses=own.losses or losses, other_terms=[])
        factors: dict[Term, float] | None = None
        if fit.is_good and fit.factors:
            scale = max((own.scale for own in updates.values()), default=1.0)
            factors = {term: factor / scale for term, factor in fit.factors.items()}
            if last is not self._module:
                factors = dict.fromkeys([(r, None) for r in updates], fit.common / scale)
        tolerance = max(TOLERANCE, NORM * self._case.sum_eps)
        return judge_weights(updates, factors, tolerance)

    def _report_weights(self, number: int, weights: Weights) -> None:
        verdict, updates = self._case.verdict, self._module.first.updates
        self._find_short_update(number, weights)
        self._find_scaled(number, weights)
        self._weights.append(weights)
        if weights.is_zero or (self._are_dropped(updates) and not weights.finding):
            return
        if weights.finding:
            weights.finding.step = number + 1
            verdict.weights = weights.line
            verdict.find(weights.finding)
        elif weights.why_not:
            self._skip_weights(weights.why_not)
        if weights.note:
            self._case.note(weights.note)

    def _skip_weights(self, why: str) -> None:
        """Leave the weights open, once; one process repeats the script's own accumulation."""
        verdict, has_parts = self._case.verdict, self._has_parts
        by_one = "the sum over ranks, but not microbatches with each other" if has_parts else "it"
        if not any("weights of" in gap for gap in verdict.not_compared):
            says = f"weights of the loss: {why} (`--one` compares {by_one})"
            verdict.skip(says, is_lasting=has_parts)

    def _find_short_update(self, number: int, weights: Weights) -> None:
        """Find an update of fewer microbatches than one before, divided by as many as that one."""
        update = self._module.update(self._module.leaders[0], number)
        parts = len(update.forwards)
        for index, before in enumerate(self._weights):
            usual = len(self._module.update(self._module.leaders[0], index).forwards)
            is_off = not weights.agree and before.agree and parts < usual
            if is_off and abs(weights.total * usual / parts - 1) <= TOLERANCE:
                says = f"{parts} of {usual} microbatches, and each weighs as one of {usual}"
                place = weights.finding.place if weights.finding else update.backward_place
                off = f"{parts / usual:.4g} = {parts} / {usual} microbatches"
                weights.finding = Finding("short update", says, place, off=off)
                weights.why_not = ""
                return

    def _find_scaled(self, number: int, weights: Weights) -> None:
        """Find a loss that a gradient scaler has scaled, and nobody unscales."""
        update = self._module.update(self._module.leaders[0], number)
        is_scaled = update.loss_scale != 1.0 == update.scale
        if is_scaled and abs(weights.total / update.loss_scale - 1) <= TOLERANCE:
            says = f"each weighs {update.loss_scale:.4g} times, which is the scale of GradScaler"
            place, off = update.step_place or update.backward_place, f"{weights.total:.4g}"
            weights.finding, weights.why_not = Finding("not unscaled", says, place, off=off), ""

    # Gradients of other backward passes, and schedulers

    def _find_leftovers(self, number: int) -> None:
        """Find gradients of the update before, gradients that are lost, and schedulers."""
        module, case = self._module, self._case
        updates = {r: own.updates[number] for r, own in module.records.items() if number}
        for rank, update in updates.items():
            carried = update.carried.items()
            names = [name for name, part in carried if part and bool(part.local.any())]
            if names := [name for name in names if name not in self._added_up(number)]:
                says = "holds the gradient of the update before"
                case.find("not zeroed", says, update.backward_place, names, rank, number)
        for rank, update in updates.items():
            if self._are_dropped(module.records[rank].updates) and rank in module.leaders:
                share = f"{update.dropped} of {update.dropped + 1}"
                says = f"the gradients of {share} backward passes are lost"
                cause = "zeroed between microbatches"
                case.find(cause, says, update.backward_place, [], rank, number)
        self._find_wrong_schedule(number)
        by_rank = module.records.values()
        steps = min((u.scheduler_steps for own in by_rank for u in own.updates[1:]), default=0)
        if number == 0 and steps > 1:
            place, says = module.first.updates[0].step_place, f"a scheduler steps {steps} times"
            case.find("scheduler", f"{says} for each update", place, [], None, number)

    def _find_wrong_schedule(self, number: int) -> None:
        """Find a scheduler that a resumed run has stepped again, or begun anew."""
        for rank, recording in self._recordings.items() if number == 0 else ():
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
                self._case.find("schedule not resumed", says, own.place, [], rank, number)

    @staticmethod
    def _are_dropped(updates: Sequence[records.UpdateRecord]) -> bool:
        """Whether gradients of backward passes are reset before the optimizer uses them."""
        return len(updates) > 1 and all(update.dropped and update.has_step for update in updates)


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

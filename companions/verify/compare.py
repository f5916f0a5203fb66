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
from collections.abc import Iterable, Mapping, Sequence

from proofbook.companions.verify import causes, inputs, records
from proofbook.companions.verify.fit import Expected, Fit, added, fit_gradients, scales_of
from proofbook.companions.verify.inputs import ModuleCase, find_ties
from proofbook.companions.verify.losses import TOLERANCE, Weights, judge_weights
from proofbook.companions.verify.replay import Replay
from proofbook.companions.verify.report import Finding, Term, Verdict
from proofbook.companions.verify.update import (
    OptimizerReplay,
    compare_clipped,
    find_early_clips,
    find_skipped_step,
    find_state_left_behind,
    find_unmoved,
    is_clipped_by_hand,
)
from proofbook.runners.judging.rounding import NORM, allowance, are_apart, distance

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
            causes.find_gradient_causes(case, number, reduced, expected)
            return set(reduced.agreed)
        self._report_weights(number, weights)
        causes.find_leftovers(case, self._recordings, number, self._added_up(number))
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
        causes.find_leftovers(self._case, self._recordings, number, self._added_up(number))
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
        first = self._module.update(self._module.leaders[0], number)
        causes.find_short_update(self._module, number, weights, self._weights)
        causes.find_scaled(first, weights)
        self._weights.append(weights)
        if weights.is_zero or (causes.are_dropped(updates) and not weights.finding):
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

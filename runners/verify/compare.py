"""Compares what the script's ranks held with the replay of one process.

In: what all ranks recorded (`Layout`), and the sums of all replays. Out: a `Verdict`. For each
module and update, in this order: inputs, parameters of replicas, outputs, gradients after the
reduction, weights of the loss, clipping, and the optimizer's update. A comparison that could not be
made is said, and never counts as agreeing.

An error is a finding above `ROUNDINGS` times the larger of the tensor's own rounding, which is the
replay in the script's precision against float64, and eps times the scale of the gradients in its
module: a gradient that is zero in exact arithmetic has no scale of its own.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from torch import Tensor

from runners.verify import inputs
from runners.verify.fit import Expected, Fit, added, are_apart, distance, fitted, ratio, scales_of
from runners.verify.inputs import ROUNDINGS, Case, ties
from runners.verify.losses import TOLERANCE, Weights, judged_weights
from runners.verify.records import Layout, Seen, Update
from runners.verify.replay import Replayed
from runners.verify.report import Error, Finding, Term, Verdict, in_words
from runners.verify.update import (
    Steps,
    compare_clipped,
    compare_factors,
    compare_moments,
    find_left_behind,
    find_skipped,
    find_still,
    is_clip,
    shrinking_factors,
)

UNCLIPPED = "clipping: none seen (a limit that was never reached hides a norm of one shard)"
Replays = Mapping[int, Mapping[str, Sequence[Replayed]]]  # by rank and module, one for each update


def judged(layouts: Sequence[Layout], seen: Mapping[int, Seen], replays: Replays) -> Verdict:
    """Compare everything that was recorded.

    Args:
        layouts: of each module.
        seen: by rank.
        replays: of the ranks that lead a group.
    """
    verdict = Verdict(compared={"parameters": 0, "parameters_compared": 0, "updates": 0})
    _say_limits(verdict, seen.values())
    if broken := next((one.broken for one in seen.values() if one.broken), ""):
        verdict.skip(f"anything: an error of the tool's own ({broken})")
        return verdict
    inputs.compare_quiet(verdict, layouts, seen)
    for rank, where in ((rank, where) for rank, one in seen.items() for where in one.lost):
        says = "outputs of all ranks enter the loss without a gradient, its own among them"
        verdict.find(Finding("gather cuts", says, where.split()[0], rank=rank))
    unpreserved = next((one.unpreserved for one in seen.values() if one.unpreserved), "")
    scaled: dict[int, dict[int, float]] = {}
    tied = list(ties(layouts))
    for layout in layouts:
        _Judge(Case(layout, layouts, verdict, unpreserved, scaled, tied), replays).judge()
    if verdict.compared["updates"] and not verdict.has_clipped and not verdict.findings:
        verdict.notes.append(UNCLIPPED)
    if not layouts:
        verdict.skip("gradients: no module with trained parameters ran a forward and backward pass")
    return verdict


def _say_limits(verdict: Verdict, seen: Collection[Seen]) -> None:
    for name in (name for one in seen for name in one.refused):
        verdict.skip(f"{name} is not supported")
    for waits in (one.waits for one in seen if one.waits):
        verdict.skip(f"what follows the updates: {waits}, and other ranks were stopped earlier")
    for where in sorted({one.eager for one in seen if one.eager})[:1]:
        verdict.notes.append(f"{where}: torch.compile does nothing here; the script ran eagerly")


class _Judge:
    """Judges one module."""

    def __init__(self, case: Case, replays: Replays) -> None:
        self._case, self._layout, self._replays = case, case.layout, replays
        self._steps = Steps(case)
        self._has_own = False  # ranks use gradients of their own, and the script makes up for it
        self._weighed: list[Weights] = []  # of each update whose weights could be judged

    def judge(self) -> None:
        """Compare all updates; the first that differs is reported."""
        self._judge()
        if not self._weighed and self._has_parts and not self._case.verdict.findings:
            self._skip_weights("not known, as the module is not compared")

    @property
    def _has_parts(self) -> bool:
        """Whether an update has several microbatches, or the module runs several times."""
        records = self._layout.records.values()
        return any(len(update.forwards) > 1 for one in records for update in one.updates)

    def _judge(self) -> None:
        case, layout, verdict = self._case, self._layout, self._case.verdict
        updates, numbers = layout.first.updates, range(layout.num_updates)
        names = set(updates[0].parameters) if updates else set()
        verdict.compared["parameters"] += len(names)
        if why := self._why_not():
            case.skip(why)
            for number in numbers:  # what `--one` leaves open
                self._steps.compare(number, None)
            return
        if find_skipped(case):
            return
        find_left_behind(case)
        find_still(case)
        self._find_untied()
        compared, frozen = names, names
        for number in numbers:
            frozen = frozen & set(updates[number].frozen)
            compared = compared & (self._update(number) | set(updates[number].frozen))
            verdict.compared["updates"] = max(verdict.compared["updates"], number + 1)
            if any(one.step is not None for one in verdict.findings):
                break
        compared = frozen if self._are_zero() else compared
        verdict.compared["parameters_compared"] += len(compared - frozen)
        self._note_frozen(sorted(frozen))
        if not verdict.findings and not self._has_own:
            inputs.compare_replicas(case, layout.num_updates - 1, "after")
        inputs.compare_samples(case)
        self._compare_buffers(is_judged=bool(compared - frozen))
        if layout.has_later and not verdict.findings:
            inputs.compare_replicas(case, layout.num_updates + 1)

    def _note_frozen(self, names: Sequence[str]) -> None:
        if names:
            listed = ", ".join(names[:4]) + (" …" if len(names) > 4 else "")
            self._case.note(f"{len(names)} parameters are frozen: {listed}")

    def _are_zero(self) -> bool:
        """Whether all weights of the loss are zero, with which anything agrees."""
        if not self._weighed or not all(one.is_zero for one in self._weighed):
            return False
        verdict, first = self._case.verdict, self._weighed[0]
        verdict.skip(f"weights of the loss: {first.why_not}", is_lasting=True)
        verdict.weights = verdict.weights or first.line
        return True

    def _why_not(self) -> str:
        """Why nothing can be compared; empty where something can."""
        records = self._layout.records.values()
        if refused := next((one.refused for one in records if one.refused), ""):
            return f"{refused} is not supported" if "which" not in refused else refused
        if not self._layout.num_updates:
            return "no backward pass through it ended"
        for line in (one for r in records for u in r.updates for one in u.by_hand):
            return line
        shapes = [[p.shape for p in r.updates[0].parameters.values()] for r in records]
        if any(one != shapes[0] for one in shapes):
            return "its parameters have other shapes on other ranks (divided by hand?)"
        return ""

    def _find_untied(self) -> None:
        for tie in self._case.ties:
            (layout, other), (a, b) = tie.layouts, tie.names
            if layout is self._layout and not tie.is_kept:
                says = f"starts equal to {other.key}: {b}, and is updated otherwise"
                place = layout.first.updates[0].step_place
                self._case.find("tied weights apart", says, place, [a], layout.view, None)

    def _compare_buffers(self, *, is_judged: bool) -> None:
        """Ranks may keep statistics of their own, as batch norm does; other buffers start equal."""
        records = self._layout.records.values()
        if any(one.buffers_from is not None for one in records):
            return  # one rank sends them before each pass
        apart: dict[int, list[str]] = {}
        for number in (0, self._layout.num_updates - 1):
            first, *others = (one.updates[number].buffers for one in records)
            apart[number] = [
                name for name, one in first.items() if not ("running_" in name or one.spec)
                and any(are_apart(one.local, own[name].local) for own in others if name in own)
            ]  # fmt: skip
        update = self._layout.first.updates[0]
        start = [n for n in apart[0] if update.buffers[n].local.is_floating_point()]
        if start and is_judged:
            says, place = "a buffer differs before the first forward pass", update.forwards[0].place
            self._case.find("replicas start apart", says, place, start, None, 0)
        elif name := next((name for names in apart.values() for name in names), ""):
            why = f"what its buffers are for: {name} differs between ranks"
            self._case.skip(why, is_lasting=True)

    # One update

    def _update(self, number: int) -> set[str]:
        """Compare an update; the parameters that agree."""
        case = self._case
        if not inputs.compare_batches(case, number):
            return set()
        runs = {
            rank: self._replays[rank][self._layout.key][number] for rank in self._layout.leaders
        }
        failed = next((one.failed for one in runs.values() if one.failed), "")
        errors = [error for one in runs.values() for error, _ in one.errors]
        case.is_replayed = not failed and all(map(math.isfinite, errors))
        inputs.compare_replicas(case, number)
        if failed:
            case.skip(failed)
        if failed or not inputs.compare_outputs(case, number, runs):
            inputs.compare_replicas(case, number, "used")
            return set()
        outside = self._layout.update(self._layout.leaders[0], number).outside
        if outside:
            case.skip(f"{outside[0]}: the loss uses it outside of any module's forward pass")
        expected = self._expected(number, runs)
        names = [name for name in expected.exact if name not in outside]
        if not names:
            return set()
        if not all(bool(one.isfinite().all()) for one in expected.exact.values()):
            case.skip("gradients: those of one process are not finite either")
            return set()
        agreed = self._gradients(number, names, expected) - set(outside)
        inputs.compare_replicas(case, number, "used")
        return agreed

    def _expected(self, number: int, runs: Mapping[int, Replayed]) -> Expected:
        case, key = self._case, self._layout.key
        terms = {(rank, at): one for rank, run in runs.items() for at, one in run.exact.items()}
        owns = [one for run in runs.values() for one in run.own.values()]
        for tie in case.ties:  # the gradient of a tied weight is that of all its places
            for name, layout, other in tie.partners(key) if tie.is_kept else ():
                for rank in layout.leaders:
                    run = self._replays[rank][layout.key][number]
                    for at, one in run.exact.items():
                        if other in one:
                            held = terms.get((rank, at), {})
                            terms[rank, at] = added([held, {name: one[other]}])
                    owns += [{name: one[other]} for one in run.own.values() if other in one]
        exact, own = added(terms.values()), added(owns)
        tolerance = {
            name: ROUNDINGS
            * max(distance(exact[name], own.get(name, exact[name])), case.sum_eps * scale)
            for name, scale in scales_of(exact).items()
        }
        forwards = self._layout.update(min(runs), number).forwards
        parts = len({one.backward for one in forwards if one.chunk is None}) or len(forwards)
        return Expected(terms, exact, tolerance, len(runs), parts)

    def _gradients(self, number: int, names: Sequence[str], expected: Expected) -> set[str]:
        case = self._case
        compare_moments(case, number)
        reduced = self._fit(number, "before_clipping", names, expected)
        weights = self._weights(number, reduced)
        factors: Mapping[int, float] = {}
        if not reduced.is_good or not weights.agree:  # or does the script clip by hand?
            earlier = self._fit(number, "after_backward", names, expected)
            again = self._weights(number, earlier)
            found = shrinking_factors(case, number)
            if earlier.is_good and again.agree and found and is_clip(case, number, found):
                reduced, weights, factors = earlier, again, found
        if not weights.is_zero:
            case.verdict.weights = case.verdict.weights or weights.line
        case.verdict.keep(self._layout.key, number, "gradient", reduced.errors)
        if not reduced.is_good:
            has_own = inputs.has_own_gradients(self._layout, number)
            if has_own and inputs.are_equal_again(self._layout):
                self._has_own = True
                return self._reached(number, names, expected)
            explain(case, number, reduced, expected)
            return set(reduced.agreed)
        self._judge_weights(number, weights)
        self._find_carried(number)
        self._find_dropped(number)
        compare_factors(case, number, factors)
        compare_clipped(case, number, expected)
        self._find_schedulers(number)
        self._steps.compare_settings(number)
        self._steps.compare(number, expected)
        return set(reduced.agreed)

    def _reached(self, number: int, names: Sequence[str], expected: Expected) -> set[str]:
        """Ranks keep their own gradients: is the update that of the mean gradient all the same?"""
        share, update = 1 / expected.num_batches, self._layout.update(self._layout.view, number)
        mean = {name: share * one for name, one in expected.exact.items()}
        if not self._steps.reached(number, mean) >= set(names):
            place = update.step_place or update.backward_place
            self._case.skip(
                f"gradients: each rank's are those of its own batch, and its parameters are equal "
                f"again before the next update: the script reduces in its own way ({place}); one "
                "that reduces `.grad` is compared",
                is_lasting=True,
            )
            return set()
        fit = Fit(dict.fromkeys(expected.terms, share))
        self._judge_weights(number, self._weights(number, fit))
        self._find_schedulers(number)
        return set(names)

    def _fit(self, number: int, gradients: str, names: Sequence[str], expected: Expected) -> Fit:
        """How the gradients of an update relate to the batches, without what was there before."""
        view, layout = self._layout.view, self._layout
        carried = layout.whole(number, view, "carried")
        held = {rank: layout.whole(number, rank, gradients) for rank in layout.views()}
        for name, before in carried.items():
            for own in held.values():
                one = own.get(name)
                own[name] = one if one is None or before is None else one.double() - before.double()
        fit = fitted(held, names, expected)
        outside = layout.update(layout.leaders[0], number).outside
        extra = [
            name for name, one in held[view].items()
            if name not in expected.exact and name not in outside
            and one is not None and bool(one.any())
        ]  # fmt: skip
        if extra:
            fit.wrong.setdefault(view, []).extend(extra)
            fit.errors |= dict.fromkeys(extra, Error(1.0, 0.0))
        return fit

    # The loss

    def _weights(self, number: int, fit: Fit) -> Weights:
        stages = [one for one in self._case.layouts if one.first.stage is not None]
        is_stage = self._layout.first.stage is not None
        last = max(stages, key=lambda one: one.first.stage or 0) if is_stage else self._layout
        updates = {
            r: self._with_losses(last.update(r, number), self._replays[r][last.key][number])
            for r in last.leaders
            if number < last.num_updates
        }
        factors: dict[Term, float] | None = None
        if fit.is_good and fit.factors:
            scale = max((one.scale for one in updates.values()), default=1.0)
            factors = {term: one / scale for term, one in fit.factors.items()}
            if last is not self._layout:
                factors = dict.fromkeys([(r, None) for r in updates], fit.common / scale)
        tolerance = max(TOLERANCE, ROUNDINGS * self._case.sum_eps)
        return judged_weights(updates, factors, tolerance)

    @staticmethod
    def _with_losses(update: Update, replay: Replayed) -> Update:
        """Where the gradient at the logits is that of a cross-entropy, there is no other term."""
        if not replay.losses:
            return update
        losses = update.losses or replay.losses
        return dataclasses.replace(update, losses=losses, other_terms=[])

    def _judge_weights(self, number: int, weights: Weights) -> None:
        verdict, updates = self._case.verdict, self._layout.first.updates
        self._find_short(number, weights)
        self._weighed.append(weights)
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
        """The weights are open; one process repeats the script's own accumulation."""
        verdict, has_parts = self._case.verdict, self._has_parts
        by_one = "the sum over ranks, but not microbatches with each other" if has_parts else "it"
        if not any("weights of" in one for one in verdict.not_compared):
            says = f"weights of the loss: {why} (`--one` compares {by_one})"
            verdict.skip(says, is_lasting=has_parts)

    def _find_short(self, number: int, weights: Weights) -> None:
        """An update of fewer microbatches than one before, divided by as many as that one."""
        update = self._layout.update(self._layout.leaders[0], number)
        parts = len(update.forwards)
        for index, before in enumerate(self._weighed):
            usual = len(self._layout.update(self._layout.leaders[0], index).forwards)
            is_off = not weights.agree and before.agree and parts < usual
            if is_off and abs(weights.total * usual / parts - 1) <= TOLERANCE:
                says = f"{parts} of {usual} microbatches, and each weighs as one of {usual}"
                place = weights.finding.place if weights.finding else update.backward_place
                off = f"{parts / usual:.4g} = {parts} / {usual} microbatches"
                weights.finding = Finding("short update", says, place, off=off)
                weights.why_not = ""
                return

    # What was left of other backward passes, and schedulers

    def _find_carried(self, number: int) -> None:
        for rank in self._layout.records if number else ():
            update = self._layout.update(rank, number)
            if names := [n for n, one in update.carried.items() if one and bool(one.local.any())]:
                says = "holds the gradient of the update before"
                self._case.find("not zeroed", says, update.backward_place, names, rank, number)

    def _find_dropped(self, number: int) -> None:
        """Backward passes whose gradients were reset before the optimizer saw them."""
        for rank in self._layout.leaders if number else ():
            updates = self._layout.records[rank].updates
            update, cause = updates[number], "zeroed between microbatches"
            if self._are_dropped(updates):
                share = f"{update.dropped} of {update.dropped + 1}"
                says = f"the gradients of {share} backward passes are lost"
                self._case.find(cause, says, update.backward_place, [], rank, number)

    @staticmethod
    def _are_dropped(updates: Sequence[Update]) -> bool:
        return len(updates) > 1 and all(one.dropped and one.has_step for one in updates)

    def _find_schedulers(self, number: int) -> None:
        records = self._layout.records.values()
        steps = min((u.schedulers for r in records for u in r.updates[1:]), default=0)
        if number == 0 and steps > 1:
            place = self._layout.first.updates[0].step_place
            says = f"a scheduler steps {steps} times for each update"
            self._case.find("scheduler", says, place, [], None, number)


# The usual cause of gradients that are no sum over all batches


def explain(case: Case, number: int, fit: Fit, expected: Expected) -> None:
    """Find what the gradients of an update are, since they are not the mean over all batches."""
    rank = min(fit.wrong or fit.apart)
    update = case.layout.update(rank, number)
    if not fit.wrong:
        cause, says = _shares(case.layout, fit.apart)
        names, place = list(expected.exact), update.backward_place
        has_own = cause == "own gradient" and inputs.has_own_gradients(case.layout, number)
        if cause == "own gradient" and update.clips and not has_own:
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
        off, others = _off(case, names[0], held.get(names[0]), fit, expected)
        place = case.unpreserved if cause == "recomputation" else update.backward_place
        case.find(cause, says, place, names, rank, number, off, [o for o in others if o != cause])


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


def _ranks(layout: Layout, expected: Expected) -> set[int]:
    """Numbers of ranks that may be a factor: of all batches, and of those that share one."""
    return {expected.num_batches, *map(len, layout.groups)} - {1}


def _factor_cause(layout: Layout, name: str, factor: float, expected: Expected) -> str:
    ranks, lower = _ranks(layout, expected), name.lower()
    kind = "norm " if "norm" in lower or "ln_" in lower else "expert " if "expert" in lower else ""
    if any(abs(factor / n - 1) < 0.01 for n in ranks):
        return f"{kind}times ranks"
    if any(abs(factor * n - 1) < 0.01 for n in ranks):
        return f"{kind}divided by ranks"
    return "times microbatches" if _is_parts(factor, expected) else "other factor"


def _is_parts(factor: float, expected: Expected) -> bool:
    return expected.num_parts > 1 and abs(factor / expected.num_parts - 1) < 0.01


def _off(
    case: Case, name: str, held: Tensor | None, fit: Fit, expected: Expected
) -> tuple[str, list[str]]:
    """By how much a gradient is off, and the causes of which this factor is usual, too."""
    if held is None or name not in expected.exact:
        return "", []
    should = _should(name, fit, expected)
    factor = ratio(held, should)
    if not factor or not _is_multiple(held, should, 4 * expected.tolerance[name]):
        error = distance(held, should) / max(should.norm().item(), 1e-300)
        return f"{error:.1%} of its norm", []
    words = in_words(factor, _ranks(case.layout, expected), expected.num_parts)
    return words, ["times microbatches"] if _is_parts(factor, expected) else []

"""Compares what the script's ranks held with the replay of one process.

In: what all ranks recorded (`Layout`), and the sums of all replays. Out: a `Verdict`. For each
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
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from runners.judging.rounding import NORM, allowance, are_apart, distance, ratio
from runners.verify import inputs
from runners.verify.fit import Expected, Fit, added, fitted, scales_of
from runners.verify.inputs import Case, ties
from runners.verify.losses import TOLERANCE, Weights, judged_weights
from runners.verify.records import STEPS_INSIDE, Layout, Seen, Update
from runners.verify.replay import Replayed
from runners.verify.report import Error, Finding, Term, Verdict, in_words
from runners.verify.update import (
    Steps,
    compare_clipped,
    compare_moments,
    find_left_behind,
    find_skipped,
    find_still,
    is_clip,
)

_OWN = "own gradient"
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
    says = [f"{name} is not supported" for one in seen.values() for name in one.refused]
    says += [
        f"what follows the updates: {one.waits}, and other ranks were stopped earlier"
        for one in seen.values() if one.waits
    ]  # fmt: skip
    for one in says:
        verdict.skip(one)
    for where in sorted({one.eager for one in seen.values() if one.eager})[:1]:
        verdict.notes.append(f"{where}: torch.compile does nothing here; the script ran eagerly")
    if broken := next((one.broken for one in seen.values() if one.broken), ""):
        verdict.skip(f"anything: an error of the tool's own ({broken})")
        return verdict
    inputs.compare_quiet(verdict, layouts, seen)
    cut = "outputs of all ranks enter the loss without a gradient, its own among them"
    for rank, where in ((rank, where) for rank, one in seen.items() for where in one.lost):
        verdict.find(Finding("gather cuts", cut, where.split()[0], rank=rank))
    unpreserved = next((one.unpreserved for one in seen.values() if one.unpreserved), "")
    tied = list(ties(layouts))
    for layout in layouts:
        _Judge(Case(layout, layouts, verdict, unpreserved, tied), replays).judge()
    if verdict.compared["updates"] and not verdict.has_clipped and not verdict.findings:
        verdict.notes.append(UNCLIPPED)
    if not layouts:
        verdict.skip("gradients: no module with trained parameters ran a forward and backward pass")
    return verdict


class _Judge:
    """Judges one module."""

    def __init__(self, case: Case, replays: Replays) -> None:
        self._case, self._layout, self._replays = case, case.layout, replays
        self._steps = Steps(case)
        self._has_own = False  # ranks use gradients of their own, and the script makes up for it
        self._weighed: list[Weights] = []  # of each update whose weights could be judged
        # Whether an update has several microbatches, or the module runs several times.
        updates = [update for one in case.layout.records.values() for update in one.updates]
        self._has_parts = any(len(one.forwards) > 1 for one in updates)

    def judge(self) -> None:
        """Compare all updates; the first that differs is reported."""
        if why := self._why_not():
            self._case.skip(why)
            for number in range(self._layout.num_updates):  # what `--one` leaves open
                if self._layout.first.refused == STEPS_INSIDE:
                    inputs.compare_replicas(self._case, number)
                self._steps.compare(number, None)
        elif not find_skipped(self._case):
            self._judge()
        if not self._weighed and self._has_parts and not self._case.verdict.findings:
            self._skip_weights("not known, as the module is not compared")

    def _judge(self) -> None:
        case, layout, verdict = self._case, self._layout, self._case.verdict
        find_left_behind(case)
        find_still(case)
        self._find_untied()
        updates = layout.first.updates
        compared = frozen = set(updates[0].parameters)
        for number in range(layout.num_updates):
            frozen = frozen & set(updates[number].frozen)
            compared = compared & (self._update(number) | set(updates[number].frozen))
            verdict.compared["updates"] = max(verdict.compared["updates"], number + 1)
            if any(one.step is not None for one in verdict.findings):
                break
        compared = frozen if self._are_zero() else compared
        verdict.compared["parameters_compared"] += len(compared - frozen)
        if frozen:
            listed = ", ".join(sorted(frozen)[:4]) + " …" * (len(frozen) > 4)
            case.note(f"{len(frozen)} parameters are frozen: {listed}")
        if not verdict.findings and not self._has_own:
            inputs.compare_replicas(case, layout.num_updates - 1, "after")
        inputs.compare_samples(case)
        self._compare_buffers(is_judged=bool(compared - frozen))
        if layout.has_later and not verdict.findings:
            self._steps.compare_settings(layout.num_updates + 1)
            inputs.compare_replicas(case, layout.num_updates + 1)

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
        updates = self._layout.first.updates
        self._case.verdict.compared["parameters"] += len(updates[0].parameters) if updates else 0
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
        """Ranks may keep statistics of their own, as batch norm does; other buffers are equal."""
        records = self._layout.records.values()
        apart: dict[int, list[str]] = {}
        for number in (0, self._layout.num_updates - 1):
            first, *others = (one.updates[number].buffers for one in records)
            apart[number] = [
                name for name, one in first.items() if not ("running_" in name or one.spec)
                and any(are_apart(one.local, own[name].local) for own in others if name in own)
            ]  # fmt: skip
        if any(one.buffers_from is not None for one in records):
            apart[0] = []  # one rank sends them before each pass
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
        if not inputs.compare_batches(self._case, number):
            return set()
        agreed = self._replay(number)
        inputs.compare_replicas(self._case, number, "used")
        return agreed

    def _replay(self, number: int) -> set[str]:
        case, layout = self._case, self._layout
        runs = {rank: self._replays[rank][layout.key][number] for rank in layout.leaders}
        failed = next((one.failed for one in runs.values() if one.failed), "")
        errors = [error for one in runs.values() for error, _ in one.errors]
        case.is_replayed = not failed and all(map(math.isfinite, errors))
        inputs.compare_replicas(case, number)
        if failed:
            case.skip(failed)
        if failed or not inputs.compare_outputs(case, number, runs):
            return set()
        outside = layout.update(layout.leaders[0], number).outside
        if outside:
            case.skip(f"{outside[0]}: the loss uses it outside of any module's forward pass")
        expected = self._expected(number, runs)
        names = [name for name in expected.exact if name not in outside]
        if not all(bool(one.isfinite().all()) for one in expected.exact.values()):
            case.skip("gradients: those of one process are not finite either")
            return set()
        return self._gradients(number, names, expected) - set(outside) if names else set()

    def _expected(self, number: int, runs: Mapping[int, Replayed]) -> Expected:
        case, key = self._case, self._layout.key
        terms = {(rank, at): one for rank, run in runs.items() for at, one in run.exact.items()}
        owns = [one for run in runs.values() for one in run.own.values()]
        # The gradient of a tied weight is that of all its places.
        partners = (each for tie in case.ties if tie.is_kept for each in tie.partners(key))
        for name, layout, other in partners:
            for rank in layout.leaders:
                run = self._replays[rank][layout.key][number]
                owns += [{name: one[other]} for one in run.own.values() if other in one]
                for at, one in run.exact.items():
                    if other in one:
                        terms[rank, at] = added([terms.get((rank, at), {}), {name: one[other]}])
        exact, own, eps = added(terms.values()), added(owns), case.sum_eps
        tolerance = {
            name: allowance(NORM, distance(exact[name], own.get(name, exact[name])), eps, scale)
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
        for moment in ("at_sum", "after_backward"):
            if reduced.is_good and weights.agree:
                break
            earlier = self._fit(number, moment, names, expected)
            again = self._weights(number, earlier)
            if earlier.is_good and again.agree and is_clip(case, number, moment):
                reduced, weights = earlier, again
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
        self._find_others(number)
        compare_clipped(case, number, expected)
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
        self._find_others(number)
        return set(names)

    def _fit(self, number: int, gradients: str, names: Sequence[str], expected: Expected) -> Fit:
        """How the gradients of an update relate to the batches, without what was there before."""
        view, layout = self._layout.view, self._layout
        carried = layout.whole(number, view, "carried")
        held = {rank: layout.whole(number, rank, gradients) for rank in layout.views()}
        for own in held.values():
            for name, before in carried.items():
                if before is not None and (one := own.get(name)) is not None:
                    own[name] = one.double() - before.double()
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
        updates = {r: last.update(r, number) for r in last.leaders if number < last.num_updates}
        for r, own in updates.items():
            # Where the gradient at logits is that of a cross-entropy, there is no other term.
            if losses := self._replays[r][last.key][number].losses:
                own_or_solved = own.losses or losses
                updates[r] = dataclasses.replace(own, losses=own_or_solved, other_terms=[])
        factors: dict[Term, float] | None = None
        if fit.is_good and fit.factors:
            scale = max((one.scale for one in updates.values()), default=1.0)
            factors = {term: one / scale for term, one in fit.factors.items()}
            if last is not self._layout:
                factors = dict.fromkeys([(r, None) for r in updates], fit.common / scale)
        tolerance = max(TOLERANCE, NORM * self._case.sum_eps)
        return judged_weights(updates, factors, tolerance)

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

    def _find_others(self, number: int) -> None:
        layout, case = self._layout, self._case
        updates = [(rank, one.updates) for rank, one in layout.records.items() if number]
        for rank, update in ((rank, own[number]) for rank, own in updates):
            if names := [n for n, one in update.carried.items() if one and bool(one.local.any())]:
                says = "holds the gradient of the update before"
                case.find("not zeroed", says, update.backward_place, names, rank, number)
        for rank, own in updates:
            if self._are_dropped(own) and rank in layout.leaders:
                update, cause = own[number], "zeroed between microbatches"
                share = f"{update.dropped} of {update.dropped + 1}"
                says = f"the gradients of {share} backward passes are lost"
                case.find(cause, says, update.backward_place, [], rank, number)
        records = layout.records.values()
        steps = min((u.schedulers for r in records for u in r.updates[1:]), default=0)
        if number == 0 and steps > 1:
            place, says = layout.first.updates[0].step_place, f"a scheduler steps {steps} times"
            case.find("scheduler", f"{says} for each update", place, [], None, number)

    @staticmethod
    def _are_dropped(updates: Sequence[Update]) -> bool:
        """Whether gradients of backward passes are reset before the optimizer sees them."""
        return len(updates) > 1 and all(one.dropped and one.has_step for one in updates)


# The usual cause of gradients that are no sum over all batches


def explain(case: Case, number: int, fit: Fit, expected: Expected) -> None:
    """Find what the gradients of an update are, since they are not the mean over all batches."""
    layout, rank = case.layout, min(fit.wrong or fit.apart)
    update = layout.update(rank, number)
    if not fit.wrong:
        cause, says = _shares(layout, fit.apart)
        names, place = list(expected.exact), update.backward_place
        has_own = cause == _OWN and inputs.has_own_gradients(layout, number)
        if cause == _OWN and update.clips and not has_own:
            cause, says = "clipped before the reduction", "each rank clips its own gradient"
            names, place = [], update.clips[0].place
        elif cause == _OWN and not update.has_step:
            case.skip("gradients: each rank has its own, and no update follows")
            return
        case.find(cause, says, place, names, rank, number)
        return
    held = layout.whole(number, rank, "before_clipping")
    found = {n: _cause(case, n, held.get(n), rank, number, fit, expected) for n in fit.wrong[rank]}
    causes: dict[str, list[str]] = {}
    left_out = _left_out(layout, rank, [n for n, (cause, *_) in found.items() if cause == _OWN])
    for name, (cause, *_) in found.items():
        causes.setdefault(left_out if left_out and cause == _OWN else cause, []).append(name)
    for cause, names in sorted(causes.items(), key=lambda one: -len(one[1])):
        what = "gradient differs from that of one process"
        if cause == "no gradient" and len(causes) == 1:
            what = "no gradient reaches the optimizer"
        says = f"{what} ({len(names)} of {len(expected.exact)} parameters)"
        _, off, others = found[names[0]]
        place = case.unpreserved if cause == "recomputation" else update.backward_place
        case.find(cause, says, place, names, rank, number, off, [o for o in others if o != cause])


def _shares(layout: Layout, apart: Mapping[int, Mapping[Term, float]]) -> tuple[str, str]:
    """The cause, and what ranks hold that do not hold the same sum, from their factors."""
    rank, factors = min(apart.items())
    largest = max(abs(one) for one in factors.values())
    present = [term for term, one in factors.items() if abs(one) >= 1e-3 * largest]
    ranks = {r for r, _ in present}
    absent = sorted({r for r, _ in factors} - ranks)
    if ranks == {_leader(layout, rank)}:
        return _OWN, "the gradient on each rank is that of its own batch"
    if len(apart) == 1 and absent:
        listed = ", ".join(map(str, absent))
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


def _cause(
    case: Case, name: str, held: Tensor | None, rank: int, number: int, fit: Fit, expected: Expected
) -> tuple[str, str, list[str]]:
    """The cause of one gradient, by how much it is off, and other causes of that factor."""
    if name not in expected.exact:
        return "gradient from elsewhere", "", []
    if held is None or not bool(held.any()):
        return "no gradient", "", []
    held, tolerance = held.double(), 4 * expected.tolerance[name]
    should = expected.exact[name] * (fit.common or 1 / expected.num_batches)
    off = f"{distance(held, should) / max(should.norm().item(), 1e-300):.1%} of its norm"
    causes = ["part of the sum" if case.layout.is_tensor_parallel else "gradient differs"]
    others = list[str]()
    if case.unpreserved:
        causes = ["recomputation"]
    if _is_multiple(held, should, tolerance):
        off, causes = _of_factor(case.layout, name, ratio(held, should), expected)
        others = [one for one in causes if one == "times microbatches"]
    before = None
    if number:
        before = case.layout.whole(number - 1, rank, "before_clipping").get(name)
    for cause, own in (("not zeroed", held - should), ("previous gradient", held)):
        if before is not None and distance(own, before) <= tolerance:
            causes.insert(0, cause)
    causes[:0] = _of_batch(case.layout, name, held, rank, expected)
    return causes[0], off, others


def _of_batch(
    layout: Layout, name: str, held: Tensor, rank: int, expected: Expected
) -> Iterator[str]:
    """Whose batch alone a gradient is of, up to a factor."""
    for leader in layout.leaders if expected.num_batches > 1 else ():
        own = added(g for (r, _), g in expected.terms.items() if r == leader).get(name)
        if own is not None and _is_multiple(held, own, 4 * expected.tolerance[name]):
            yield _OWN if leader == _leader(layout, rank) else "another rank's gradient"


def _of_factor(
    layout: Layout, name: str, factor: float, expected: Expected
) -> tuple[str, list[str]]:
    """A factor in words, and its usual causes."""
    ranks, lower = {expected.num_batches, *map(len, layout.groups)} - {1}, name.lower()
    kind = "norm " if "norm" in lower or "ln_" in lower else "expert " if "expert" in lower else ""
    known = [(f"{kind}times ranks", float(one)) for one in ranks]
    known += [(f"{kind}divided by ranks", 1 / one) for one in ranks]
    known += [("times microbatches", one) for one in {expected.num_parts} - {1}]
    causes = [cause for cause, one in known if abs(factor / one - 1) < 0.01]
    return in_words(factor, ranks, expected.num_parts), causes or ["other factor"]


def _is_multiple(held: Tensor, one: Tensor, tolerance: float) -> bool:
    factor = ratio(held, one)
    return factor != 0 and distance(held, factor * one) <= tolerance * max(1.0, abs(factor))

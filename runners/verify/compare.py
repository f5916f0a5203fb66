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
from collections.abc import Mapping, Sequence

from torch import Tensor

from runners.verify import weights as weighing
from runners.verify.case import ROUNDINGS, Case
from runners.verify.clipping import Clipping
from runners.verify.explain import Explainer
from runners.verify.sums import (
    Expected,
    Fit,
    Term,
    added,
    are_apart,
    common_factor,
    compared,
    factors_of,
    norm,
    scales_of,
    without,
)
from runners.verify.inputs import Inputs
from runners.verify.layout import Layout
from runners.verify.records import Seen, Update
from runners.verify.replay import Replayed
from runners.verify.stepping import Steps
from runners.verify.tied_weights import ties
from runners.verify.verdict import Error, Strip, Verdict


def judged(
    layouts: Sequence[Layout],
    seen: Mapping[int, Seen],
    replays: Mapping[int, Mapping[str, Sequence[Replayed]]],
) -> Verdict:
    """Compare everything that was recorded.

    Args:
        layouts: of each module.
        seen: by rank.
        replays: by rank and module, one for each update.
    """
    verdict = Verdict(numbers={"parameters": 0, "parameters_compared": 0, "updates": 0})
    for name in dict.fromkeys(name for one in seen.values() for name in one.refused):
        verdict.skip(f"{name} is not supported")
    broken = next((one.broken for one in seen.values() if one.broken), "")
    if broken:
        verdict.skip(f"anything: an error of the tool's own ({broken})")
        return verdict
    scaled: dict[int, dict[int, float]] = {}
    unpreserved = next((one.unpreserved for one in seen.values() if one.unpreserved), "")
    _judge_quiet(seen, verdict)
    tied = list(ties(layouts))
    for layout in layouts:
        _Judge(Case(layout, layouts, verdict, unpreserved, scaled, tied), replays).judge()
    if not layouts:
        _loose(seen, verdict)
    return verdict


def _judge_quiet(seen: Mapping[int, Seen], verdict: Verdict) -> None:
    """Modules without gradients, such as a teacher, make targets: are they equal on all ranks?"""
    for key in dict.fromkeys(key for one in seen.values() for key in one.quiet):
        held = [one.quiet[key] for one in seen.values() if key in one.quiet]
        if any(one != held[0] for one in held):
            verdict.skip(f"what {key} computes without gradients: its parameters differ on ranks")


def _loose(seen: Mapping[int, Seen], verdict: Verdict) -> None:
    """A script whose parameters belong to no module: only the weights of its losses are known."""
    verdict.skip("gradients: no module with trained parameters ran a forward and backward pass")
    first = {r: one.loose[:1] for r, one in seen.items() if one.loose}
    if first:
        verdict.weights = weighing.shown(first)


class _Judge:
    """Judges one module."""

    def __init__(self, case: Case, replays: Mapping[int, Mapping[str, Sequence[Replayed]]]) -> None:
        self._case, self._layout, self._replays = case, case.layout, replays
        self._inputs, self._clipping = Inputs(case), Clipping(case)
        self._explainer, self._steps = Explainer(case), Steps(case)

    def judge(self) -> None:
        """Compare all updates; the first that differs is reported."""
        numbers, updates = self._case.verdict.numbers, self._layout.first.updates
        names = list(updates[0].parameters) if updates else []
        numbers["parameters"] += len(names)
        if why := self._why_not():
            self._case.skip(why)
            for number in range(self._layout.num_updates):  # what `--one` leaves open
                self._steps.compare(number, Expected({}, {}, {}, 1, 1))
            return
        self._owned()
        self._tied()
        compared, frozen = set(names), set(names)
        for number in range(self._layout.num_updates):
            still = set(updates[number].frozen)
            compared &= self._update(number) | still
            frozen &= still
            numbers["updates"] = max(numbers["updates"], number + 1)
            if any(one.step is not None for one in self._case.verdict.findings):
                break
        numbers["parameters_compared"] += len(compared - frozen)
        if frozen:
            listed = ", ".join(sorted(frozen)[:4]) + (" …" if len(frozen) > 4 else "")
            self._case.note(f"{len(frozen)} parameters are frozen: {listed}")
        if not self._case.verdict.findings:
            self._inputs.after(self._layout.num_updates - 1)
        self._inputs.shared()
        self._buffers()
        self._steps.still()
        records = self._layout.records.values()
        later = {one.later[0].number if one.later else None for one in records}
        counts = {len(one.updates) for one in records}
        if len(later) == len(counts) == 1 and None not in later and not self._case.verdict.findings:
            self._inputs.replicas(self._layout.num_updates)

    def _buffers(self) -> None:
        """Ranks may keep buffers of their own, as batch norm does; of others this is said."""
        last, records = self._layout.num_updates - 1, self._layout.records.values()
        if any(one.buffers_from is not None for one in records):
            return  # one rank sends them before each pass
        held = [one.updates[last].buffers for one in records]
        apart = [
            name for name, one in held[0].items()
            if "running_" not in name and one.spec is None
            and any(are_apart(one.local, h[name].local) for h in held if name in h)
        ]  # fmt: skip
        if apart:
            self._case.skip(
                f"what its buffers are for: {apart[0]} differs between ranks", is_lasting=True
            )

    # Before anything is compared

    def _why_not(self) -> str:
        records = self._layout.records
        refused = next((one.refused for one in records.values() if one.refused), "")
        if refused:
            return f"{refused} is not supported" if "which" not in refused else refused
        if not self._layout.num_updates:
            return "no backward pass through it ended"
        for line in (one for r in records.values() for u in r.updates for one in u.by_hand):
            return line
        shapes = [[p.shape for p in r.updates[0].parameters.values()] for r in records.values()]
        if any(one != shapes[0] for one in shapes):
            return "its parameters have other shapes on other ranks (divided by hand?)"
        return ""

    def _owned(self) -> None:
        records = self._layout.records
        nowhere = set.intersection(*(set(one.unowned) for one in records.values()))
        if any(set(one.unowned) - nowhere for one in records.values()):
            self._case.skip(
                "the update (the optimizers of ranks hold different parameters)", is_lasting=True
            )
        for rank, record in records.items():
            where = record.updates[0].step_place
            unowned = [one for one in record.unowned if one in nowhere]
            is_stepped = any(one.has_step for one in record.updates)
            if is_stepped and len(unowned) == len(record.updates[0].parameters):
                self._case.find(
                    "optimizer before sharding", "the optimizer has none of its parameters",
                    where, unowned, rank, 0,
                )  # fmt: skip
            elif is_stepped and unowned:
                self._case.find("outside the optimizer", "trained, but no optimizer has it",
                           where, unowned, rank, 0)  # fmt: skip

    def _tied(self) -> None:
        for tie in self._case.ties:
            (layout, other), (a, b) = tie.layouts, tie.names
            if not tie.is_kept and layout is self._layout:
                says = f"starts equal to {other.key}: {b}, and is updated otherwise"
                place = layout.first.updates[0].step_place
                self._case.find("tied weights apart", says, place, [a], layout.view, None)

    # One update

    def _update(self, number: int) -> set[str]:
        leaders = self._layout.leaders
        if not self._inputs.batches(number):
            return set()
        self._inputs.received(number)
        self._inputs.replicas(number)
        runs = {rank: self._replays[rank][self._case.key][number] for rank in leaders}
        failed = next((one.failed for one in runs.values() if one.failed), "")
        if failed:
            self._case.skip(f"{failed}")
            return set()
        if not self._inputs.outputs(number, runs):
            return set()
        expected = self._expected(number, runs)
        return self._gradients(number, expected)

    def _expected(self, number: int, runs: Mapping[int, Replayed]) -> Expected:
        terms = {(rank, at): one for rank, run in runs.items() for at, one in run.exact.items()}
        owns = [one for run in runs.values() for one in run.own.values()]
        for tie in self._case.ties:
            for name in tie.names if tie.is_kept else ():
                if end := tie.other(self._case.key, name):
                    self._add_tied(number, name, *end, terms, owns)
        exact, own = added(terms.values()), added(owns)
        tolerance = {
            name: ROUNDINGS
            * max(norm(exact[name] - own.get(name, exact[name])), self._case.sum_eps * scale)
            for name, scale in scales_of(exact).items()
        }
        forwards = self._layout.update(min(runs), number).forwards
        parts = len({one.backward for one in forwards if one.chunk is None}) or len(forwards)
        return Expected(terms, exact, tolerance, len(runs), parts)

    def _add_tied(
        self, number: int, name: str, layout: Layout, other: str,
        terms: dict[Term, dict[str, Tensor]], owns: list[dict[str, Tensor]],
    ) -> None:  # fmt: skip
        """The gradient of a tied weight is that of all its places."""
        for rank in layout.leaders:
            run = self._replays[rank][layout.key][number]
            for at, one in run.exact.items():
                if other in one:
                    terms[rank, at] = added([terms.get((rank, at), {}), {name: one[other]}])
            owns += [{name: one[other]} for one in run.own.values() if other in one]

    # Gradients

    def _gradients(self, number: int, expected: Expected) -> set[str]:
        outside = set(self._outside(number))
        if not set(expected.exact) - outside:
            return set()
        if not all(bool(one.isfinite().all()) for one in expected.exact.values()):
            self._case.skip("gradients: those of one process are not finite either")
            return set()
        self._clipping.between(number)
        reduced = self._fit(number, "before_clipping", expected)
        weights = self._weights(number, reduced)
        scaled: dict[int, float] = {}
        if not reduced.is_good or not weights.agree:  # or does the script clip by hand?
            earlier = self._fit(number, "after_backward", expected)
            again = self._weights(number, earlier)
            found = self._clipping.scaled(number)
            if earlier.is_good and again.agree and found and self._clipping.is_clip(number, found):
                reduced, weights, scaled = earlier, again, found
        if not self._case.verdict.weights:
            self._case.verdict.weights = weights.line
        factors = reduced.factors if reduced.is_good else None
        strip = Strip(self._case.key, number + 1, reduced.errors, factors)
        self._case.verdict.strips.append(strip)
        if not reduced.is_good:
            self._explainer.explain(number, reduced, expected)
            return set(reduced.agreed)
        self._judge_weights(number, weights)
        self._carried(number)
        self._dropped(number)
        self._clipping.one_factor(number, scaled)
        self._clipping.compare(number, expected)
        self._schedulers(number)
        self._steps.compare(number, expected)
        self._explainer.remember(number)
        return set(reduced.agreed) - outside

    def _judge_weights(self, number: int, weights: weighing.Weights) -> None:
        verdict = self._case.verdict
        if weights.finding:
            weights.finding.step = number + 1
            verdict.find(weights.finding)
        elif weights.why_not and not any("weights of" in one for one in verdict.not_compared):
            verdict.skip(f"weights of the loss: {weights.why_not}")
        if weights.note:
            self._case.note(weights.note)

    def _outside(self, number: int) -> list[str]:
        names = self._layout.update(self._layout.leaders[0], number).outside
        if names:
            self._case.skip(f"{names[0]}: the loss uses it outside of any module's forward pass")
        return names

    def _fit(self, number: int, gradients: str, expected: Expected) -> Fit:
        outside = set(self._layout.update(self._layout.leaders[0], number).outside)
        carried = self._layout.whole(number, self._layout.view, "carried")
        names = [n for n in expected.exact if n not in outside]
        held = {
            rank: {n: without(one, carried.get(n)) for n, one in
                   self._layout.whole(number, rank, gradients).items()}
            for rank in self._layout.views()
        }  # fmt: skip
        factor = common_factor(held[min(held)], names, expected)
        factors = None if factor is None else dict.fromkeys(expected.terms, factor)
        fit = compared(held, names, dict.fromkeys(held, factors), expected)
        if not fit.is_good:  # each batch may have a factor of its own
            own = {rank: factors_of(one, names, expected) for rank, one in held.items()}
            again = compared(held, names, own, expected)
            fit = again if not again.wrong else fit
        extra = [n for n, one in held[min(held)].items()
                 if n not in expected.exact and one is not None and bool(one.any())
                 and n not in outside]  # fmt: skip
        if extra:
            fit.wrong.setdefault(min(held), []).extend(extra)
            fit.errors |= dict.fromkeys(extra, Error(1.0, 0.0))
        return fit

    def _weights(self, number: int, fit: Fit) -> weighing.Weights:
        last = self._layout
        if self._layout.first.stage is not None:
            last = max(
                (one for one in self._case.layouts if one.first.stage is not None),
                key=lambda one: one.first.stage or 0,
            )
        updates = {
            r: self._with_losses(last.update(r, number), self._replays[r][last.key][number])
            for r in last.leaders
            if number < last.num_updates
        }
        scale = max((one.scale for one in updates.values()), default=1.0)
        factors = fit.factors if fit.is_good else None
        if factors is not None:
            factors = {term: one / scale for term, one in factors.items()}
            if last is not self._layout:
                factors = dict.fromkeys([(r, None) for r in updates], fit.common / scale)
        tolerance = max(weighing.TOLERANCE, ROUNDINGS * self._case.sum_eps)
        return weighing.judged(updates, factors, tolerance)

    @staticmethod
    def _with_losses(update: Update, replay: Replayed) -> Update:
        """Where the gradient at the logits is that of a cross-entropy, there is no other term."""
        if not replay.losses:
            return update
        is_seen = any(one.is_seen for one in update.losses)
        losses = update.losses if is_seen else replay.losses
        return dataclasses.replace(update, losses=losses, other_terms=False)

    def _carried(self, number: int) -> None:
        for rank in self._layout.records:
            update = self._layout.update(rank, number)
            names = [
                n for n, one in update.carried.items() if one is not None and bool(one.local.any())
            ]
            if names and number > 0:
                self._case.find("not zeroed", "holds the gradient of the update before",
                           update.backward_place, names, rank, number)  # fmt: skip
                return

    def _dropped(self, number: int) -> None:
        """Backward passes whose gradients were reset before the optimizer saw them."""
        for rank in self._layout.leaders:
            updates = self._layout.records[rank].updates
            update = updates[number]
            if number == 0 or not (update.has_step and all(one.dropped for one in updates)):
                continue
            share = f"{update.dropped} of {update.dropped + 1}"
            says = f"the gradients of {share} backward passes are lost"
            self._case.find(
                "zeroed between microbatches", says, update.backward_place, [], rank, number
            )
            return

    # Clipping and the step

    def _schedulers(self, number: int) -> None:
        counts = [u.schedulers for r in self._layout.records.values() for u in r.updates[1:]]
        if number == 0 and len(counts) and min(counts) > 1:
            update = self._layout.update(self._layout.view, 0)
            says = f"a scheduler steps {min(counts)} times for each update"
            self._case.find("scheduler", says, update.step_place, [], None, number)

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

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from runners.verify import weights as weighing
from runners.verify.fits import (
    Expected,
    Fit,
    Term,
    added,
    are_apart,
    common_factor,
    compared,
    factors_of,
    is_multiple,
    ratio,
    relative,
    shrink,
    without,
)
from runners.verify.layout import Layout
from runners.verify.records import Part, Seen, Update
from runners.verify.replay import Replayed
from runners.verify.stepping import Stepping, clipped, hardly_moves, norm_of
from runners.verify.verdict import Error, Finding, Strip, Verdict

ROUNDINGS = 16
OUTPUT_ERROR = 1e-5  # relative, in fp32; scaled with eps
SAME_OUTPUTS = 1e-3  # of two replays, relative, in fp32: more is no rounding
Tensors = Mapping[str, Tensor]


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
    for layout in layouts:
        judge = _Judge(layout, layouts, replays, verdict)
        judge.scaled = scaled
        judge.unpreserved = next((one.unpreserved for one in seen.values() if one.unpreserved), "")
        judge.judge()
    if not layouts:
        _loose(seen, verdict)
    return verdict


def _loose(seen: Mapping[int, Seen], verdict: Verdict) -> None:
    """A script whose parameters belong to no module: only the weights of its losses are known."""
    verdict.skip("gradients: no module with trained parameters ran a forward and backward pass")
    first = {r: one.loose[:1] for r, one in seen.items() if one.loose}
    if first:
        verdict.weights = weighing.shown(first)


class _Judge:
    """Judges one module."""

    def __init__(
        self, layout: Layout, layouts: Sequence[Layout],
        replays: Mapping[int, Mapping[str, Sequence[Replayed]]], verdict: Verdict,
    ) -> None:  # fmt: skip
        self.layout, self.layouts, self.replays, self.verdict = layout, layouts, replays, verdict
        self.key = layout.key
        self.eps = max(one.eps for one in layout.records.values())
        self.stepping = Stepping(self.eps)
        self.scaled: dict[int, dict[int, float]] = {}  # by hand, of all stages in an update
        self.unpreserved = ""  # the line of a checkpoint that draws anew
        self.previous: dict[str, Tensor] = {}
        self.after: Mapping[str, Tensor | None] = {}  # the update before
        self.moved: dict[str, bool] = {}

    def judge(self) -> None:
        """Compare all updates; the first that differs is reported."""
        why = self._why_not()
        names = list(self.layout.first.updates[0].parameters) if self.layout.first.updates else []
        self.verdict.numbers["parameters"] += len(names)
        if why:
            self.verdict.skip(f"{self.key}: {why}")
            return
        self._owned()
        compared, frozen = set(names), set(names)
        for number in range(self.layout.num_updates):
            still = set(self.layout.first.updates[number].frozen)
            compared &= self._update(number) | still
            frozen &= still
            if any(one.step is not None for one in self.verdict.findings):
                break
        self.verdict.numbers["parameters_compared"] += len(compared - frozen)
        self.verdict.numbers["updates"] = max(
            self.verdict.numbers["updates"], self.layout.num_updates
        )
        if frozen:
            listed = ", ".join(sorted(frozen)[:4]) + (" …" if len(frozen) > 4 else "")
            self.verdict.notes.append(f"{self.key}: {len(frozen)} parameters are frozen: {listed}")
        self._buffers()
        self._still()
        later = {one.later[0].number if one.later else None for one in self.layout.records.values()}
        counts = {len(one.updates) for one in self.layout.records.values()}
        if len(later) == len(counts) == 1 and None not in later and not self.verdict.findings:
            self._replicas(self.layout.num_updates)

    def _buffers(self) -> None:
        """Ranks may keep buffers of their own, as batch norm does; of others this is said."""
        last, views = self.layout.num_updates - 1, list(self.layout.views())
        held = [self.layout.whole(last, rank, lambda u: u.buffers) for rank in views]
        apart = [
            name for name in held[0]
            if "running_" not in name and any(are_apart(held[0][name], h.get(name)) for h in held)
        ]  # fmt: skip
        if apart:
            self.verdict.notes.append(f"{self.key}: buffers differ between ranks: {apart[0]}")

    # Before anything is compared

    def _why_not(self) -> str:
        records = self.layout.records
        refused = next((one.refused for one in records.values() if one.refused), "")
        if refused:
            return f"{refused} is not supported" if "which" not in refused else refused
        if not self.layout.num_updates:
            return "no backward pass through it ended"
        lines = [
            line for one in records.values() for update in one.updates for line in update.by_hand
        ]
        if lines:
            return lines[0]
        shapes = {
            rank: [tuple(p.spec.shape if p.spec else p.local.shape)
                   for p in one.updates[0].parameters.values()]
            for rank, one in records.items()
        }  # fmt: skip
        if any(one != shapes[min(shapes)] for one in shapes.values()):
            return "its parameters have other shapes on other ranks (divided by hand?)"
        return ""

    def _owned(self) -> None:
        for rank, record in self.layout.records.items():
            where = record.updates[0].step_place
            if record.foreign or (
                record.unowned and len(record.unowned) == len(record.updates[0].parameters)
            ):
                self._find("optimizer before sharding", "the optimizer has none of its parameters",
                           where, record.unowned, rank, 0)  # fmt: skip
            elif record.unowned:
                self._find("outside the optimizer", "trained, but no optimizer has it",
                           where, record.unowned, rank, 0)  # fmt: skip

    def _find(
        self, cause: str, says: str, place: str, names: Sequence[str], rank: int | None,
        step: int | None, detail: str = "",
    ) -> None:  # fmt: skip
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown = f"{self.key}: {names[0]}{more}" if names else self.key
        at = None if step is None else step + 1
        self.verdict.find(Finding(cause, says, place, shown, rank, at, detail))

    # One update

    def _update(self, number: int) -> set[str]:
        leaders = self.layout.leaders
        if not self._inputs(number):
            return set()
        self._received(number)
        self._replicas(number)
        runs = {rank: self.replays[rank][self.key][number] for rank in leaders}
        failed = next((one.failed for one in runs.values() if one.failed), "")
        if failed:
            self.verdict.skip(f"{self.key}: {failed}")
            return set()
        if not self._outputs(number, runs):
            return set()
        expected = self._expected(number, runs)
        return self._gradients(number, expected)

    def _inputs(self, number: int) -> bool:
        """Ranks that share a batch have equal inputs, all others different ones."""
        passes = {
            rank: [one.digests for one in self.layout.update(rank, number).forwards]
            for rank in self.layout.records
        }
        place = next(
            (f.place for f in self.layout.update(self.layout.leaders[0], number).forwards), ""
        )
        for group in self.layout.groups:
            for rank in group[1:]:
                has_parts = any(
                    one.spec for f in self.layout.update(rank, number).forwards
                    for one in f.outputs if one
                )  # fmt: skip
                if passes[rank] != passes[group[0]] and not has_parts:
                    says = f"ranks {group[0]} and {rank} share a batch, but their inputs differ"
                    self._find("unequal inputs", says, place, [], rank, number)
                    return False
        leaders = self.layout.leaders
        for index, rank in enumerate(leaders):
            for other in leaders[:index]:
                if passes[rank] and passes[rank] == passes[other] and any(passes[rank][0]):
                    self._equal(other, rank, number, place)
        return True

    def _received(self, number: int) -> None:
        """What a stage of a pipeline received is what the stage before it sent."""
        stage = self.layout.first.stage
        before = [one for one in self.layouts if stage and one.first.stage == stage - 1]
        for sender in (
            before if number < min((one.num_updates for one in before), default=0) else ()
        ):
            for source, rank in zip(sender.leaders, self.layout.leaders, strict=False):
                sent = {f.chunk: f.outputs_sent for f in sender.update(source, number).forwards}
                for forward in self.layout.update(rank, number).forwards:
                    outputs = sent.get(forward.chunk, [])
                    if forward.digests[: len(outputs)] != outputs[: len(forward.digests)]:
                        says = f"microbatch {forward.chunk} is not what rank {source} sent"
                        self._find("received differs", says, forward.place, [], rank, number)
                        return

    def _equal(self, other: int, rank: int, number: int, place: str) -> None:
        """Ranks read the same data; a script that has one batch for all updates may mean it."""
        says = f"ranks {other} and {rank} train on the same inputs"
        batches = {str(f.digests) for u in self.layout.records[rank].updates for f in u.forwards}
        updates = self.layout.records[rank].updates
        if len(batches) == sum(len(one.forwards) for one in updates) and len(updates) > 1:
            self._find("equal batches", says, place, [], rank, number)
        elif not self.verdict.notes:
            self.verdict.notes.append(f"{says}, in every update")

    def _replicas(self, number: int) -> None:
        views = list(self.layout.views())
        first = self.layout.whole(number, views[0], lambda u: u.parameters)
        for rank in views[1:]:
            other = self.layout.whole(number, rank, lambda u: u.parameters)
            apart = [n for n, one in first.items() if are_apart(one, other.get(n))]
            if apart:
                largest = max(relative(first[n], other[n]) for n in apart)
                cause = "replicas start apart" if number == 0 else "replicas drift apart"
                says = f"parameters of ranks {views[0]} and {rank} differ by {largest:.2g}"
                place = self.layout.update(rank, max(number - 1, 0)).step_place
                self._find(cause, says, place, apart, rank, number)
                return
        self._within(number)

    def _within(self, number: int) -> None:
        """Parts that a mesh replicates are equal on its ranks."""
        updates = {r: self.layout.update(r, number).parameters for r in self.layout.records}
        for rank, parameters in updates.items():
            for name, part in parameters.items():
                if part.spec is None or ("replicate",) not in part.spec.placements:
                    continue
                peer = _replica_of(part, rank)
                other = updates.get(peer, {}).get(name)
                if other is not None and are_apart(part.local, other.local):
                    cause = "replicas start apart" if number == 0 else "replicas drift apart"
                    says = f"ranks {peer} and {rank} hold different values of one parameter"
                    place = self.layout.update(rank, max(number - 1, 0)).step_place
                    self._find(cause, says, place, [name], rank, number)
                    return

    def _outputs(self, number: int, runs: Mapping[int, Replayed]) -> bool:
        for rank, run in runs.items():
            forwards = self.layout.update(rank, number).forwards
            same = max(SAME_OUTPUTS, ROUNDINGS * self._eps_of(rank, number))
            for forward, (error, rounding) in zip(forwards, run.errors, strict=False):
                if rounding > same:
                    self.verdict.skip(
                        f"{self.key}: two replays of a forward pass differ by {rounding:.2g} of "
                        "their size: it draws from a generator of its own, or keeps something"
                    )
                    return False
                allowed = ROUNDINGS * max(rounding, OUTPUT_ERROR * self.eps / 1.2e-7)
                if error <= allowed:
                    continue
                says = f"outputs differ from those of one process by {error:.2g} of their size"
                if self.layout.is_tensor_parallel and not forward.draws:
                    self._find("outputs differ", says, forward.place, [], rank, number)
                else:
                    why = "it draws random numbers that one process draws otherwise, or "
                    why = why if forward.draws else ""
                    self.verdict.skip(
                        f"{self.key}: the replay's {says.replace('of one process', 'recorded')} "
                        f"({why}its forward pass depends on more than inputs and parameters)"
                    )
                return False
        return True

    def _eps_of(self, rank: int, number: int) -> float:
        """Of the precision in which a rank's forward passes computed."""
        is_cast = any(one.autocast[0] for one in self.layout.update(rank, number).forwards)
        return max(self.eps, torch.finfo(torch.bfloat16).eps) if is_cast else self.eps

    def _expected(self, number: int, runs: Mapping[int, Replayed]) -> Expected:
        terms = {(rank, at): one for rank, run in runs.items() for at, one in run.exact.items()}
        exact = added(terms.values())
        own = added(one for run in runs.values() for one in run.own.values())
        eps = self._eps_of(min(runs), number)
        scales: dict[str, float] = {}
        for name, one in exact.items():
            module = name.rpartition(".")[0]
            scales[module] = max(scales.get(module, 0.0), one.norm().item())
        tolerance = {}
        for name, one in exact.items():
            rounding = (one - own.get(name, one)).norm().item()
            scale = scales[name.rpartition(".")[0]]
            tolerance[name] = ROUNDINGS * max(rounding, eps * scale)
        forwards = self.layout.update(min(runs), number).forwards
        parts = len({one.backward for one in forwards if one.chunk is None}) or len(forwards)
        return Expected(terms, exact, tolerance, len(runs), parts)

    # Gradients

    def _gradients(self, number: int, expected: Expected) -> set[str]:
        outside = set(self._outside(number))
        if not set(expected.exact) - outside:
            return set()
        reduced = self._fit(number, lambda u: u.before_clipping, expected)
        weights = self._weights(number, reduced)
        scaled: dict[int, float] = {}
        if not reduced.is_good or not weights.agree:  # or does the script clip by hand?
            earlier = self._fit(number, lambda u: u.after_backward, expected)
            again = self._weights(number, earlier)
            found = self._scaled(number)
            if earlier.is_good and again.agree and found and self._is_clip(number, found):
                reduced, weights, scaled = earlier, again, found
        if not self.verdict.weights:
            self.verdict.weights = weights.line
        factors = reduced.factors if reduced.is_good else None
        strip = Strip(self.key, number + 1, reduced.errors, factors)
        self.verdict.strips.append(strip)
        if not reduced.is_good:
            self._explain(number, reduced, expected)
            return set(reduced.agreed)
        if weights.finding:
            weights.finding.step = number + 1
            self.verdict.find(weights.finding)
        elif weights.why_not and not any("weights of" in one for one in self.verdict.not_compared):
            self.verdict.skip(f"weights of the loss: {weights.why_not}")
        self._carried(number)
        self._dropped(number)
        self._one_factor(number, scaled)
        self._clipping(number, expected)
        self._schedulers(number)
        self._step(number, expected)
        strip.steps = self.stepping.errors
        self._remember(number)
        return set(reduced.agreed) - outside

    def _scaled(self, number: int) -> dict[int, float]:
        """By which factor each rank has made all its gradients smaller; empty where it has not."""
        factors = {}
        for rank, record in self.layout.records.items():
            update = record.updates[number]
            ratios = []
            for name, raw in update.after_backward.items():
                used = update.before_clipping.get(name)
                if raw is None or used is None or not bool(raw.local.any()):
                    continue
                a, b = used.local.double(), raw.local.double()
                ratios.append(ratio(a, b))
                if (a - ratios[-1] * b).norm() > (1e-4 + 8 * self.eps) * a.norm():
                    return {}
            if not ratios or max(ratios) - min(ratios) > (1e-3 + 8 * self.eps) * max(ratios):
                return {}
            factors[rank] = ratios[0]
        is_smaller = all(0 < one <= 1 for one in factors.values())
        return factors if is_smaller and min(factors.values()) < 1 else {}

    def _is_clip(self, number: int, found: Mapping[int, float]) -> bool:
        """Whether factors by hand are those of clipping: a norm times its factor is one limit."""
        if max(found.values()) - min(found.values()) > 1e-3 * max(found.values()):
            return True  # and ranks clip by different norms, which is a finding
        rank, numbers = min(found), range(self.layout.num_updates)
        scaled = [self._scaled(n).get(rank, 1.0) for n in numbers]
        own = [self._norm(n, [self.layout]) for n in numbers]
        true = [own, [self._norm(n, self.layouts) for n in numbers]]
        sums = [self.layout.update(rank, n).sums for n in numbers]
        for at, (place, _) in enumerate(sums[number] if len({*map(len, sums)}) == 1 else ()):
            squares = [float(one[at][1]) for one in sums]
            for used in (squares, [abs(one) ** 0.5 for one in squares]):
                if any(_are_near(used[number], norms[number]) for norms in true):
                    return True
                if _limit(scaled, used) and not _are_near(min(own), max(own)):
                    says = f"clipped by a norm of {used[number]:.4g}; that of the whole gradient "
                    says += f"is {own[number]:.4g}"
                    self._find("norm of a part", says, place, [], rank, number)
                    return True
        limit = next((one for norms in true if (one := _limit(scaled, norms))), None)
        if limit is None or _are_near(min(own), max(own)):
            return False
        note = f"{self.key}: the script itself clips gradients to a norm of {limit:.4g}"
        if note not in self.verdict.notes:
            self.verdict.notes.append(note)
        return True

    def _norm(self, number: int, layouts: Sequence[Layout]) -> float:
        """The norm of all reduced gradients."""
        wholes = [
            one.whole(number, min(one.records), lambda u: u.after_backward)
            for one in layouts if number < one.num_updates
        ]  # fmt: skip
        return norm_of([one for all_of in wholes for one in all_of.values() if one is not None], 2)

    def _outside(self, number: int) -> list[str]:
        names = self.layout.update(self.layout.leaders[0], number).outside
        if names:
            self.verdict.skip(
                f"{self.key}: {names[0]}: the loss uses it outside of any module's forward pass"
            )
        return names

    def _fit(
        self, number: int, choose: Callable[[Update], Mapping[str, Part | None]], expected: Expected
    ) -> Fit:
        outside = set(self.layout.update(self.layout.leaders[0], number).outside)
        carried = self.layout.whole(number, min(self.layout.views()), lambda u: u.carried)
        names = [n for n in expected.exact if n not in outside]
        held = {
            rank: {n: without(one, carried.get(n)) for n, one in
                   self.layout.whole(number, rank, choose).items()}
            for rank in self.layout.views()
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
        last = self.layout
        if self.layout.first.stage is not None:
            last = max(
                (one for one in self.layouts if one.first.stage is not None),
                key=lambda one: one.first.stage or 0,
            )
        updates = {r: last.update(r, number) for r in last.leaders if number < last.num_updates}
        scale = max((one.scale for one in updates.values()), default=1.0)
        factors = fit.factors if fit.is_good else None
        if factors is not None:
            factors = {term: one / scale for term, one in factors.items()}
            if last is not self.layout:
                factors = dict.fromkeys([(r, None) for r in updates], fit.common / scale)
        tolerance = max(weighing.TOLERANCE, ROUNDINGS * self.eps if self.eps > 1e-6 else 0.0)
        return weighing.judged(updates, factors, tolerance)

    def _explain(self, number: int, fit: Fit, expected: Expected) -> None:
        """Name what the gradients are that are not the mean over all batches."""
        rank = min(fit.wrong or fit.apart)
        update = self.layout.update(rank, number)
        if fit.apart and not fit.wrong:
            cause, says = self._shares(fit.apart, expected)
            if cause == "own gradient" and update.clips and not self._are_apart(number):
                self._find("clipped before the reduction", "each rank clips its own gradient",
                           update.clips[0].place, [], rank, number)  # fmt: skip
            elif cause == "own gradient" and not update.has_step:
                self.verdict.skip(
                    f"{self.key}: gradients: each rank has its own, and no update follows"
                )
            else:
                self._find(cause, says, update.backward_place, list(expected.exact), rank, number)
            return
        held = self.layout.whole(number, rank, lambda u: u.before_clipping)
        causes: dict[str, list[str]] = {}
        for name in fit.wrong[rank]:
            causes.setdefault(self._cause(name, held.get(name), rank, fit, expected), []).append(
                name
            )
        total = len(expected.exact)
        for cause, names in sorted(causes.items(), key=lambda one: -len(one[1])):
            says = f"gradient differs from that of one process ({len(names)} of {total} parameters)"
            detail = self._detail(names[0], held.get(names[0]), fit, expected)
            at = self.unpreserved if cause == "recomputation" else update.backward_place
            self._find(cause, says, at, names, rank, number, detail)

    def _shares(
        self, apart: Mapping[int, Mapping[Term, float]], expected: Expected
    ) -> tuple[str, str]:
        """What ranks hold that do not hold the same sum."""
        rank = min(apart)
        largest = max(abs(one) for one in apart[rank].values())
        missing = [t for t, one in apart[rank].items() if abs(one) < 1e-3 * largest]
        absent = {r for r, _ in missing} - {r for r, _ in apart[rank] if (r, _) not in missing}
        has_all = [t for t in apart[rank] if t not in missing]
        if {r for r, _ in has_all} == {self._leader(rank)}:
            return "own gradient", "the gradient on each rank is that of its own batch"
        if len(apart) == 1 and absent:
            listed = ", ".join(map(str, sorted(absent)))
            return "another rank's gradient", f"the batch of rank {listed} has no share in it"
        count = len(missing)
        return (
            "not all reduced",
            f"{count} of {len(apart[rank])} backward passes have no share in it",
        )

    def _are_apart(self, number: int) -> bool:
        """Whether optimizers of different ranks are given different gradients."""
        views = [self.layout.whole(number, r, lambda u: u.at_step) for r in self.layout.views()]
        return any(are_apart(one, other[n]) for other in views[1:] for n, one in views[0].items())

    def _cause(
        self, name: str, held: Tensor | None, rank: int, fit: Fit, expected: Expected
    ) -> str:
        if name not in expected.exact:
            return "gradient from elsewhere"
        should = expected.exact[name] * (fit.common or 1 / expected.num_batches)
        if held is None or not bool(held.any()):
            return "no gradient"
        tolerance = 4 * expected.tolerance[name]
        held = held.double()
        for leader in self.layout.leaders if expected.num_batches > 1 else ():
            alone = added(g for (r, _), g in expected.terms.items() if r == leader).get(name)
            if alone is not None and is_multiple(held, alone, tolerance):
                is_own = leader == self._leader(rank)
                return "own gradient" if is_own else "another rank's gradient"
        if (late := self._late(name, held, should, tolerance)) is not None:
            return late
        factor = ratio(held, should)
        if (held - factor * should).norm() <= tolerance * max(1.0, abs(factor)):
            return self._factor_cause(name, factor, expected)
        if self.unpreserved:
            return "recomputation"
        return "part of the sum" if self.layout.is_tensor_parallel else "gradient differs"

    def _late(self, name: str, held: Tensor, should: Tensor, tolerance: float) -> str | None:
        """Whether it is, or holds, the gradient of the update before."""
        before = self.previous.get(name)
        if before is None:
            return None
        if (held - before).norm() <= tolerance:
            return "previous gradient"
        return "not zeroed" if (held - should - before).norm() <= tolerance else None

    def _factor_cause(self, name: str, factor: float, expected: Expected) -> str:
        ranks = {expected.num_batches, *(len(g) for g in self.layout.groups)} - {1}
        kind = "norm" if any(word in name.lower() for word in ("norm", "ln_")) else ""
        kind = kind or ("expert" if "expert" in name.lower() else "")
        if any(abs(factor / n - 1) < 0.01 for n in ranks):
            return f"{kind} times ranks".strip()
        if any(abs(factor * n - 1) < 0.01 for n in ranks):
            return f"{kind} divided by ranks".strip()
        if expected.num_parts > 1 and abs(factor / expected.num_parts - 1) < 0.01:
            return "times microbatches"
        return "other factor"

    def _detail(self, name: str, held: Tensor | None, fit: Fit, expected: Expected) -> str:
        if held is None or name not in expected.exact:
            return ""
        should = expected.exact[name] * (fit.common or 1 / expected.num_batches)
        error = (held.double() - should).norm().item() / max(should.norm().item(), 1e-300)
        nearest = ratio(held.double(), should)
        return f"off by {error:.1%} of its norm; best common factor {nearest:.4g}"

    def _leader(self, rank: int) -> int:
        return next(group[0] for group in self.layout.groups if rank in group)

    def _carried(self, number: int) -> None:
        for rank in self.layout.records:
            update = self.layout.update(rank, number)
            names = [
                n for n, one in update.carried.items() if one is not None and bool(one.local.any())
            ]
            if names and number > 0:
                self._find("not zeroed", "holds the gradient of the update before",
                           update.backward_place, names, rank, number)  # fmt: skip
                return

    def _dropped(self, number: int) -> None:
        """Backward passes whose gradients were reset before the optimizer saw them."""
        for rank in self.layout.leaders:
            updates = self.layout.records[rank].updates
            update = updates[number]
            if number == 0 or not (update.has_step and all(one.dropped for one in updates)):
                continue
            share = f"{update.dropped} of {update.dropped + 1}"
            says = f"the gradients of {share} backward passes are lost"
            self._find("zeroed between microbatches", says, update.backward_place, [], rank, number)
            return

    def _remember(self, number: int) -> None:
        view = min(self.layout.records)
        held = self.layout.whole(number, view, lambda u: u.before_clipping)
        self.previous = {n: one.double() for n, one in held.items() if one is not None}

    # Clipping and the step

    def _clipping(self, number: int, expected: Expected) -> None:
        """What the optimizer used is what clipping makes of the whole gradient."""
        keys = {one.key: one for one in self.layouts}
        for rank in self.layout.views():
            update = self.layout.update(rank, number)
            if not update.at_step:
                continue
            before = self.layout.whole(number, rank, lambda u: u.before_clipping)
            used = self.layout.whole(number, rank, lambda u: u.at_step)
            should, norm = clipped(self.layout, keys, number, rank, before)
            for clip in update.clips:
                if (
                    norm is None
                    or clip.total is None
                    or abs(clip.total / norm - 1) < 1e-3 + 16 * self.eps
                ):
                    continue
                whole = f"that of the whole gradient is {norm:.4g}"
                says = f"clipped by a norm of {clip.total:.4g}; {whole}"
                self._find("norm of a part", says, clip.place, [], rank, number)
                return
            wrong = [
                n for n, one in should.items()
                if (held := used.get(n)) is not None and one is not None
                and (held.double() - one).norm() > (1e-4 + 64 * self.eps) * one.norm()
                + expected.tolerance.get(n, 0.0) * shrink(before.get(n), one)
            ]  # fmt: skip
            if wrong and (update.clips or update.scale != 1.0):
                place = update.clips[0].place if update.clips else update.step_place
                says = "the optimizer's gradient is not the clipped one of one process"
                self._find("norm of a part", says, place, wrong, rank, number)
                return

    def _one_factor(self, number: int, scaled: Mapping[int, float]) -> None:
        """Ranks that clip gradients by hand must use one factor, as must stages."""
        if not scaled:
            return
        same = self.scaled.setdefault(number, {})
        same |= scaled if self.layout.first.stage is not None else {}
        listed = same or scaled
        low, high = min(listed.values()), max(listed.values())
        if high - low > 1e-3 * high:
            says = ", ".join(f"{one:.4g} (rank {r})" for r, one in list(listed.items())[:4])
            update = self.layout.update(min(scaled), number)
            place = update.step_place or update.backward_place
            says = f"ranks scale their gradients by {says}"
            self._find("norm of a part", says, place, [], min(scaled), number)

    def _schedulers(self, number: int) -> None:
        counts = [u.schedulers for r in self.layout.records.values() for u in r.updates[1:]]
        if number == 0 and len(counts) and min(counts) > 1:
            update = self.layout.update(min(self.layout.records), 0)
            says = f"a scheduler steps {min(counts)} times for each update"
            self._find("scheduler", says, update.step_place, [], None, number)

    def _step(self, number: int, expected: Expected) -> None:
        """The optimizer of one process, given the same gradients, reaches the same parameters."""
        view = min(self.layout.records)
        update = self.layout.update(view, number)
        if not update.has_step:
            self.verdict.skip(f"{self.key}: the update (no optimizer of torch.optim made a step)")
            return
        wholes = [
            self.layout.whole(number, view, choose)
            for choose in (lambda u: u.parameters, lambda u: u.at_step, lambda u: u.after)
        ]
        before, used, after = wholes
        last = self.after
        self.after = after
        if any(are_apart(one, before.get(n)) for n, one in last.items() if one is not None):
            self.verdict.skip(f"{self.key}: the update (parameters change between two updates)")
            return
        wrong, why = self.stepping.step(update.settings, before, used, after)
        if why:
            self.verdict.skip(f"{self.key}: the update ({why})")
        if wrong:
            self._find("update differs", "the optimizer of one process reaches other parameters",
                       update.step_place, wrong, view, number)  # fmt: skip
        for name, one in before.items():
            is_noise = name in expected.exact and (
                expected.exact[name].norm() <= expected.tolerance[name]
            )
            if one is not None and after.get(name) is not None and not is_noise:
                self.moved[name] = self.moved.get(name, False) or not hardly_moves(
                    one, after[name], used.get(name), update.settings.get(name)
                )

    def _still(self) -> None:
        still = [name for name, has_moved in self.moved.items() if not has_moved]
        if still:
            record = self.layout.first
            says = (
                f"no element moved in {self.layout.num_updates} updates, though it has a gradient"
            )
            self._find("does not move", says, record.updates[0].step_place, still, None, 0)


def _are_near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-3 * max(abs(a), abs(b))


def _limit(factors: Sequence[float], norms: Sequence[float]) -> float | None:
    """The limit to which these factors clip these norms; None where they do not."""
    limits = [a * b for a, b in zip(factors, norms, strict=True) if a < 1 - 1e-6]
    rest = [b for a, b in zip(factors, norms, strict=True) if a >= 1 - 1e-6]
    if len(factors) < 2 or not limits or not _are_near(min(limits), max(limits)):
        return None
    return limits[0] if max(rest, default=0.0) <= limits[0] * (1 + 1e-3) else None


def _replica_of(part: Part, rank: int) -> int:
    """The rank that holds the same part first."""
    assert part.spec is not None
    at = (part.spec.mesh == rank).nonzero()[0].tolist()
    for axis, one in enumerate(part.spec.placements):
        if one[0] == "replicate":
            at[axis] = 0
    return int(part.spec.mesh[tuple(at)])

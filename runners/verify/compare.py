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
from dataclasses import dataclass, field

import torch
from torch import Tensor

from runners.verify import weights as weighing
from runners.verify.layout import Layout
from runners.verify.records import Part, RootRecord, Seen, Update
from runners.verify.replay import Replayed
from runners.verify.stepping import Stepping, clipped, hardly_moves
from runners.verify.verdict import Finding, Verdict

ROUNDINGS = 16
OUTPUT_ERROR = 1e-5  # relative, in fp32; scaled with eps
REPLICAS = 1e-5  # relative difference of parameters between replicas
Tensors = Mapping[str, Tensor]


@dataclass
class Expected:
    """Of one update: the sum of the gradients of all batches, and how exact it is."""

    exact: dict[str, Tensor]
    own: dict[int, dict[str, Tensor]]
    tolerance: dict[str, float]
    num_batches: int
    num_parts: int


@dataclass
class Fit:
    """How gradients of the script relate to the sum over all batches.

    Attributes:
        factor: common to most parameters; None where no two agree.
        wrong: names of parameters that differ, by rank.
        agreed: names of those that agree on all ranks.
    """

    factor: float | None
    wrong: dict[int, list[str]] = field(default_factory=dict)
    agreed: list[str] = field(default_factory=list)


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
    for layout in layouts:
        _Judge(layout, layouts, replays, verdict).judge()
    if not layouts:
        _loose(seen, verdict)
    return verdict


def _loose(seen: Mapping[int, Seen], verdict: Verdict) -> None:
    """A script whose parameters belong to no module: only the weights of its losses are known."""
    verdict.skip("gradients: no module with trained parameters ran a forward and backward pass")
    first = {r: one.loose[:1] for r, one in seen.items() if one.loose}
    if first:
        found = weighing.judged(first, None, 0)
        verdict.weights = found.line
        if found.finding:
            found.finding.step = 1
            verdict.find(found.finding)


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
        self.previous: dict[str, Tensor] = {}
        self.moved: dict[str, bool] = {}

    def judge(self) -> None:
        """Compare all updates; the first that differs is reported."""
        why = self._why_not()
        names = list(self._first().updates[0].parameters) if self._first().updates else []
        self.verdict.numbers["parameters"] += len(names)
        if why:
            self.verdict.skip(f"{self.key}: {why}")
            return
        self._owned()
        compared: set[str] | None = None
        for number in range(self.layout.num_updates):
            agreed = self._update(number)
            compared = agreed if compared is None else compared & agreed
            if any(one.step is not None for one in self.verdict.findings):
                break
        self.verdict.numbers["parameters_compared"] += len(compared or ())
        self.verdict.numbers["updates"] = max(
            self.verdict.numbers["updates"], self.layout.num_updates
        )
        self._still()

    # Before anything is compared

    def _first(self) -> RootRecord:
        return self.layout.records[min(self.layout.records)]

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
            return (
                f"it is divided among ranks by hand ({lines[0]} sends activations); "
                "--against gives the module of one process"
            )
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
        self._inputs(number)
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

    def _inputs(self, number: int) -> None:
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
        leaders = self.layout.leaders
        for index, rank in enumerate(leaders):
            for other in leaders[:index]:
                if passes[rank] and passes[rank] == passes[other] and any(passes[rank][0]):
                    says = f"ranks {other} and {rank} train on the same inputs"
                    self._find("equal batches", says, place, [], rank, number)

    def _replicas(self, number: int) -> None:
        views = list(self.layout.views())
        first = self.layout.whole(number, views[0], lambda u: u.parameters)
        for rank in views[1:]:
            other = self.layout.whole(number, rank, lambda u: u.parameters)
            apart = [n for n, one in first.items() if _apart(one, other.get(n))]
            if apart:
                largest = max(_relative(first[n], other[n]) for n in apart)
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
                if other is not None and _apart(part.local, other.local):
                    cause = "replicas start apart" if number == 0 else "replicas drift apart"
                    says = f"ranks {peer} and {rank} hold different values of one parameter"
                    place = self.layout.update(rank, max(number - 1, 0)).step_place
                    self._find(cause, says, place, [name], rank, number)
                    return

    def _outputs(self, number: int, runs: Mapping[int, Replayed]) -> bool:
        for rank, run in runs.items():
            forwards = self.layout.update(rank, number).forwards
            for forward, (error, rounding) in zip(forwards, run.errors, strict=False):
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

    def _expected(self, number: int, runs: Mapping[int, Replayed]) -> Expected:
        exact: dict[str, Tensor] = {}
        own: dict[str, Tensor] = {}
        for run in runs.values():
            for sums, total in ((run.exact, exact), (run.own, own)):
                for name, one in sums.items():
                    total[name] = total[name] + one if name in total else one.clone()
        eps = self.eps
        if any(f.autocast[0] for f in self.layout.update(min(runs), number).forwards):
            eps = max(eps, torch.finfo(torch.bfloat16).eps)
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
        alone = {rank: run.exact for rank, run in runs.items()}
        return Expected(exact, alone, tolerance, len(runs), parts)

    # Gradients

    def _gradients(self, number: int, expected: Expected) -> set[str]:
        reduced = self._fit(number, lambda u: u.before_clipping, expected)
        weights = self._weights(number, reduced, expected)
        if reduced.wrong or not weights.agree:
            earlier = self._fit(number, lambda u: u.after_backward, expected)
            again = self._weights(number, earlier, expected)
            is_better = not earlier.wrong and (bool(reduced.wrong) or again.agree)
            if is_better and self._has_scaled(reduced, earlier):
                reduced, weights = earlier, again
        if not self.verdict.weights:
            self.verdict.weights = weights.line
        outside = set(self._outside(number))
        if reduced.wrong:
            self._explain(number, reduced, expected)
            if weights.finding and reduced.factor is not None:
                self.verdict.find(self._placed(weights.finding, number))
            return set(reduced.agreed)
        if weights.finding:
            self.verdict.find(self._placed(weights.finding, number))
        elif weights.why_not:
            self.verdict.skip(f"weights of the loss: {weights.why_not}")
        self._carried(number)
        self._clipping(number, expected)
        self._schedulers(number, expected)
        self._step(number)
        self._remember(number)
        return set(reduced.agreed) - outside

    def _has_scaled(self, later: Fit, earlier: Fit) -> bool:
        """Whether the script itself has made gradients smaller after backward: clipped by hand."""
        return bool(later.wrong) or (
            later.factor is not None and earlier.factor is not None
            and abs(later.factor) < abs(earlier.factor)
        )  # fmt: skip

    def _placed(self, finding: Finding, number: int) -> Finding:
        finding.step = number + 1
        return finding

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
        views = {rank: self.layout.whole(number, rank, choose) for rank in self.layout.views()}
        outside = set(self.layout.update(self.layout.leaders[0], number).outside)
        carried = self.layout.whole(number, min(views), lambda u: u.carried)
        names = [n for n in expected.exact if n not in outside]
        factor = _common_factor(views[min(views)], names, carried, expected)
        fit = Fit(factor)
        for rank, held in views.items():
            wrong = [n for n in names if not _agrees(held.get(n), n, factor, carried, expected)]
            extra = [n for n, one in held.items()
                     if n not in expected.exact and one is not None and bool(one.any())
                     and carried.get(n) is None and n not in outside]  # fmt: skip
            if wrong or extra:
                fit.wrong[rank] = wrong + extra
        bad = {name for all_of in fit.wrong.values() for name in all_of}
        fit.agreed = [name for name in names if name not in bad]
        return fit

    def _weights(self, number: int, fit: Fit, expected: Expected) -> weighing.Weights:
        last = self.layout
        if last.records[min(last.records)].stage is not None:
            last = max(
                (one for one in self.layouts if one.records[min(one.records)].stage is not None),
                key=lambda one: one.records[min(one.records)].stage or 0,
            )
        updates = {r: last.update(r, number) for r in last.leaders if number < last.num_updates}
        scale = max((one.scale for one in updates.values()), default=1.0)
        factor = None if fit.factor is None else fit.factor / scale
        samples = sum(_samples(one) for one in updates.values())
        is_other = any(one.other_terms for one in updates.values())
        tolerance = max(weighing.TOLERANCE, ROUNDINGS * self.eps if self.eps > 1e-6 else 0.0)
        return weighing.judged(
            {r: one.losses for r, one in updates.items()}, factor, samples,
            is_other=is_other, tolerance=tolerance,
        )  # fmt: skip

    def _explain(self, number: int, fit: Fit, expected: Expected) -> None:
        """Name what the gradients are that are not the mean over all batches."""
        rank = min(fit.wrong)
        held = self.layout.whole(number, rank, lambda u: u.before_clipping)
        causes: dict[str, list[str]] = {}
        for name in fit.wrong[rank]:
            causes.setdefault(self._cause(name, held.get(name), rank, fit, expected), []).append(name)
        place = self.layout.update(rank, number).backward_place
        total = len(expected.exact)
        for cause, names in sorted(causes.items(), key=lambda one: -len(one[1])):
            says = f"gradient differs from that of one process ({len(names)} of {total} parameters)"
            detail = self._detail(names[0], held.get(names[0]), fit, expected)
            self._find(cause, says, place, names, rank, number, detail)

    def _cause(
        self, name: str, held: Tensor | None, rank: int, fit: Fit, expected: Expected
    ) -> str:
        if name not in expected.exact:
            return "gradient from elsewhere"
        should = expected.exact[name] * (fit.factor or 1 / expected.num_batches)
        if held is None or not bool(held.any()):
            return "no gradient"
        tolerance = 4 * expected.tolerance[name]
        alone = expected.own.get(self._leader(rank), {}).get(name)
        held = held.double()
        for number, one in expected.own.items():
            if name in one and expected.num_batches > 1 and _is_multiple(held, one[name], tolerance):
                return "own gradient" if one[name] is alone else f"gradient of rank {number}"
        if name in self.previous:
            before = self.previous[name]
            if (held - before).norm() <= tolerance:
                return "previous gradient"
            if (held - should - before).norm() <= tolerance:
                return "not zeroed"
        factor = _ratio(held, should)
        if (held - factor * should).norm() <= tolerance * max(1.0, abs(factor)):
            return self._factor_cause(name, factor, expected)
        return "part of the sum" if self.layout.is_tensor_parallel else "gradient differs"

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

    def _detail(
        self, name: str, held: Tensor | None, fit: Fit, expected: Expected
    ) -> str:
        if held is None or name not in expected.exact:
            return ""
        should = expected.exact[name] * (fit.factor or 1 / expected.num_batches)
        error = (held.double() - should).norm().item() / max(should.norm().item(), 1e-300)
        return f"off by {error:.1%} of its norm; best common factor {_ratio(held.double(), should):.4g}"

    def _leader(self, rank: int) -> int:
        return next(group[0] for group in self.layout.groups if rank in group)

    def _carried(self, number: int) -> None:
        for rank in self.layout.records:
            update = self.layout.update(rank, number)
            names = [n for n, one in update.carried.items() if one is not None and bool(one.local.any())]
            if names and number > 0:
                self._find("not zeroed", "holds the gradient of the update before",
                           update.backward_place, names, rank, number)  # fmt: skip
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
                if norm is None or clip.total is None or abs(clip.total / norm - 1) < 1e-3 + 16 * self.eps:
                    continue
                says = f"clipped by a norm of {clip.total:.4g}; that of the whole gradient is {norm:.4g}"
                self._find("norm of a part", says, clip.place, [], rank, number)
                return
            wrong = [
                n for n, one in should.items()
                if (held := used.get(n)) is not None and one is not None
                and (held.double() - one).norm() > (1e-4 + 64 * self.eps) * one.norm()
                + expected.tolerance.get(n, 0.0) * _shrink(before.get(n), one)
            ]  # fmt: skip
            if wrong and (update.clips or update.scale != 1.0):
                place = update.clips[0].place if update.clips else update.step_place
                says = "the optimizer's gradient is not the clipped one of one process"
                self._find("norm of a part", says, place, wrong, rank, number)
                return
        self._scaled_by_hand(number)

    def _scaled_by_hand(self, number: int) -> None:
        """Ranks that scale gradients themselves must use one factor."""
        factors: dict[int, float] = {}
        for rank, record in self.layout.records.items():
            update = record.updates[number]
            if update.clips or update.scale != 1.0:
                return
            ratios = [
                _ratio(used.local.double(), raw.local.double())
                for n, used in (update.at_step or update.before_clipping).items()
                if used is not None and (raw := update.after_backward.get(n)) is not None
                and bool(raw.local.any())
            ]  # fmt: skip
            if ratios:
                factors[rank] = max(ratios, key=abs)
        if not factors or len(self.layout.groups) < 2:
            return
        views = [self.layout.records[r] for r in factors]
        low, high = min(factors.values()), max(factors.values())
        is_sharded = any(p.spec for one in views for p in one.updates[number].parameters.values())
        if is_sharded and high - low > 1e-3 * abs(high):
            listed = ", ".join(f"{one:.4g} (rank {r})" for r, one in list(factors.items())[:4])
            place = views[0].updates[number].step_place or views[0].updates[number].backward_place
            self._find("norm of a part", f"ranks scale their gradients by {listed}",
                       place, [], min(factors), number)  # fmt: skip

    def _schedulers(self, number: int, expected: Expected) -> None:
        counts = [u.schedulers for r in self.layout.records.values() for u in r.updates[1:]]
        if number == 0 and len(counts) and min(counts) > 1:
            update = self.layout.update(min(self.layout.records), 0)
            says = f"a scheduler steps {min(counts)} times for each update"
            self._find("scheduler", says, update.step_place, [], None, number)

    def _step(self, number: int) -> None:
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
        wrong, why = self.stepping.step(update.settings, before, used, after)
        if why:
            self.verdict.skip(f"{self.key}: the update ({why})")
        if wrong:
            self._find("update differs", "the optimizer of one process reaches other parameters",
                       update.step_place, wrong, view, number)  # fmt: skip
        for name, one in before.items():
            if one is not None and after.get(name) is not None:
                self.moved[name] = self.moved.get(name, False) or not hardly_moves(
                    one, after[name], used.get(name), update.settings.get(name)
                )

    def _still(self) -> None:
        still = [name for name, has_moved in self.moved.items() if not has_moved]
        if still:
            record = self.layout.records[min(self.layout.records)]
            says = f"no element moved in {self.layout.num_updates} updates, though it has a gradient"
            self._find("does not move", says, record.updates[0].step_place, still, None, 0)


def _replica_of(part: Part, rank: int) -> int:
    """The rank that holds the same part first."""
    assert part.spec is not None
    at = (part.spec.mesh == rank).nonzero()[0].tolist()
    for axis, one in enumerate(part.spec.placements):
        if one[0] == "replicate":
            at[axis] = 0
    return int(part.spec.mesh[tuple(at)])


def _relative(a: Tensor | None, b: Tensor | None) -> float:
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    difference = (a.double() - b.double()).abs().max().item()
    return difference / max(a.double().abs().max().item(), 1e-30)


def _apart(a: Tensor | None, b: Tensor | None) -> bool:
    return not _relative(a, b) <= REPLICAS


def _ratio(held: Tensor, should: Tensor) -> float:
    flat = should.flatten()
    return (held.flatten() @ flat / (flat @ flat).clamp_min(1e-300)).item()


def _is_multiple(held: Tensor, one: Tensor, tolerance: float) -> bool:
    factor = _ratio(held, one)
    return (held - factor * one).norm().item() <= tolerance * max(1.0, abs(factor))


def _shrink(before: Tensor | None, after: Tensor) -> float:
    if before is None:
        return 1.0
    return min(1.0, after.norm().item() / max(before.double().norm().item(), 1e-300))


def _agrees(
    held: Tensor | None, name: str, factor: float | None, carried: Mapping[str, Tensor | None],
    expected: Expected,
) -> bool:  # fmt: skip
    if factor is None:
        return False
    should, tolerance = expected.exact[name] * factor, expected.tolerance[name] * abs(factor)
    if held is None:
        return should.norm().item() <= tolerance
    before = carried.get(name)
    should = should if before is None else should + before.double()
    return bool((held.double() - should).norm() <= tolerance + 1e-6 * should.norm())


def _common_factor(
    held: Mapping[str, Tensor | None], names: Sequence[str], carried: Mapping[str, Tensor | None],
    expected: Expected,
) -> float | None:  # fmt: skip
    """The factor with which most parameters agree."""
    own = [
        _ratio(one.double() - (0 if carried.get(n) is None else carried[n].double()),  # type: ignore[union-attr]
               expected.exact[n])
        for n in names
        if (one := held.get(n)) is not None
        and expected.exact[n].norm().item() > expected.tolerance[n]
    ]  # fmt: skip
    best, most = None, 0
    for factor in (1 / expected.num_batches, 1.0, *own):
        if factor == 0:
            continue
        agree = sum(_agrees(held.get(n), n, factor, carried, expected) for n in names)
        if agree > most:
            best, most = factor, agree
    return best


def _samples(update: Update) -> int:
    """Samples of an update on one rank: the first axis of the first input of each pass."""
    found = 0
    for forward in update.forwards:
        sizes = [one for one in forward.shapes if one]
        found += sizes[0][0] if sizes else 0
    return found

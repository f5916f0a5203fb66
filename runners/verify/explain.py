"""Names the usual cause of gradients that are not one sum over all batches.

In: a `Fit` that is not good. Out: findings of a `Case`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from runners.verify.case import Case
from runners.verify.sums import Expected, Fit, Term, added, are_apart, is_multiple, ratio


class Explainer:
    """Of one module; it remembers the gradients of the update before."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, case.layout
        self._previous: dict[str, Tensor] = {}

    def remember(self, number: int) -> None:
        """Keep the gradients of an update for the next one."""
        layout = self._layout
        held = layout.whole(number, layout.view, "before_clipping")
        self._previous = {n: one.double() for n, one in held.items() if one is not None}

    def explain(self, number: int, fit: Fit, expected: Expected) -> None:
        """Name what the gradients are that are not the mean over all batches."""
        rank = min(fit.wrong or fit.apart)
        update = self._layout.update(rank, number)
        if fit.apart and not fit.wrong:
            cause, says = self._shares(fit.apart, expected)
            if cause == "own gradient" and update.clips and not self._are_apart(number):
                self._case.find("clipped before the reduction", "each rank clips its own gradient",
                           update.clips[0].place, [], rank, number)  # fmt: skip
            elif cause == "own gradient" and not update.has_step:
                self._case.skip("gradients: each rank has its own, and no update follows")
            else:
                self._case.find(
                    cause, says, update.backward_place, list(expected.exact), rank, number
                )
            return
        held = self._layout.whole(number, rank, "before_clipping")
        causes: dict[str, list[str]] = {}
        for name in fit.wrong[rank]:
            causes.setdefault(self._cause(name, held.get(name), rank, fit, expected), []).append(
                name
            )
        total = len(expected.exact)
        for cause, names in sorted(causes.items(), key=lambda one: -len(one[1])):
            says = f"gradient differs from that of one process ({len(names)} of {total} parameters)"
            detail = self._detail(names[0], held.get(names[0]), fit, expected)
            at = self._case.unpreserved if cause == "recomputation" else update.backward_place
            self._case.find(cause, says, at, names, rank, number, detail)

    def _shares(
        self, apart: Mapping[int, Mapping[Term, float]], expected: Expected
    ) -> tuple[str, str]:
        """What ranks hold that do not hold the same sum."""
        rank = min(apart)
        largest = max(abs(one) for one in apart[rank].values())
        missing = [t for t, one in apart[rank].items() if abs(one) < 1e-3 * largest]
        absent = {r for r, _ in missing} - {r for r, _ in apart[rank] if (r, _) not in missing}
        has_all = [t for t in apart[rank] if t not in missing]
        if {r for r, _ in has_all} == {self._case.leader(rank)}:
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
        views = [self._layout.whole(number, r, "at_step") for r in self._layout.views()]
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
        for leader in self._layout.leaders if expected.num_batches > 1 else ():
            alone = added(g for (r, _), g in expected.terms.items() if r == leader).get(name)
            if alone is not None and is_multiple(held, alone, tolerance):
                is_own = leader == self._case.leader(rank)
                return "own gradient" if is_own else "another rank's gradient"
        if (late := self._late(name, held, should, tolerance)) is not None:
            return late
        factor = ratio(held, should)
        if (held - factor * should).norm() <= tolerance * max(1.0, abs(factor)):
            return self._factor_cause(name, factor, expected)
        if self._case.unpreserved:
            return "recomputation"
        return "part of the sum" if self._layout.is_tensor_parallel else "gradient differs"

    def _late(self, name: str, held: Tensor, should: Tensor, tolerance: float) -> str | None:
        """Whether it is, or holds, the gradient of the update before."""
        before = self._previous.get(name)
        if before is None:
            return None
        if (held - before).norm() <= tolerance:
            return "previous gradient"
        return "not zeroed" if (held - should - before).norm() <= tolerance else None

    def _factor_cause(self, name: str, factor: float, expected: Expected) -> str:
        ranks = {expected.num_batches, *(len(g) for g in self._layout.groups)} - {1}
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

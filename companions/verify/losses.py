"""Weights of the loss: the weight with which each token or sample enters the update.

In: calls of torch's loss functions, and the graph that a backward pass starts from. Out: a `Loss`
for each call, with the weight of each element, read from the gradient that arrives at the value of
the function; and, with the factor of the reduction, the `Weights` of an update. A right program has
one weight, 1 / the number of elements.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proofbook.companions.verify import internals
from proofbook.companions.verify.records import Loss, Updates, local_tensor, tensors_of
from proofbook.companions.verify.report import Finding, Term, in_words

KNOWN = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "gaussian_nll_loss",
)  # fmt: skip
_CERTAIN = 1e-2  # the probability that is left for other classes, below which rounding rules
_SOLVED = 1e-2  # relative: gradients may be in bf16


class LossWatch:
    """Records the calls of loss functions until a backward pass reaches them."""

    def __init__(self, is_recording: Callable[[], bool], is_backward: Callable[[], bool]) -> None:
        self._is_recording, self._is_backward = is_recording, is_backward
        # By the id of a node, which stays alive: it, its loss, and where the inputs come from.
        self._nodes: dict[int, tuple[Any, Loss, list[internals.Edge]]] = {}
        self._reached: dict[int, Loss] = {}  # by id
        self._is_inside = False

    def call(
        self, name: str, original: Callable[..., Tensor], /, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Call a loss function and return its value; record the outermost call that has a graph."""
        if self._is_inside or not self._is_recording():
            return original(*args, **kwargs)
        self._is_inside = True
        try:
            value = original(*args, **kwargs)
        finally:
            self._is_inside = False
        if value.grad_fn is not None:
            bound = inspect.signature(original).bind(*args, **kwargs)
            bound.apply_defaults()
            self._record(name, value, bound.arguments)
        return value

    def _record(self, name: str, value: Tensor, arguments: dict[str, Any]) -> None:
        valid, sizes = _counted(name, arguments)
        normalizer = float(valid.sum() if sizes is None else sizes.sum())
        reduction = arguments.get("reduction", "mean")
        if reduction == "batchmean":
            normalizer = float(arguments["input"].shape[0])
        loss = Loss(name, internals.place(), int(valid.sum()), sizes=sizes)

        def weigh(weight: Tensor) -> Tensor:
            if reduction == "none":
                weight = weight.flatten()
                return weight[valid.flatten()] if len(weight) == valid.numel() else weight
            return weight if reduction == "sum" else weight / max(normalizer, 1e-300)

        # After the script's own hooks of the value, which may divide the gradient.
        node: Any = value.grad_fn
        node.register_prehook(lambda gradients: self._weigh(loss, gradients[0], weigh))
        edges = [(t.grad_fn, t.output_nr) for t in tensors_of(arguments) if t.grad_fn]
        self._nodes[id(node)] = node, loss, edges

    def _weigh(
        self, loss: Loss, gradient: Tensor | None, weigh: Callable[[Tensor], Tensor]
    ) -> None:
        """Add the gradient that arrives at a loss; one of torch.autograd.grad does not count."""
        if gradient is None or not self._is_backward():
            return
        weight = weigh(local_tensor(gradient).double())
        loss.weights = weight.clone() if loss.weights is None else loss.weights + weight
        self._reached[id(loss)] = loss

    def unknown_terms(self, start: Sequence[internals.Edge], outputs: Collection[int]) -> list[str]:
        """Mark known losses in a graph as scaled or combined; returns names of other terms."""
        outside = set(map(id, internals.reached(start, outputs))) - {*outputs}
        curve = internals.curved(start, self._nodes)
        curve += " of the loss" * bool(curve)
        for node, is_product in internals.walked(start, lambda node: id(node) in self._nodes):
            if id(node) in self._nodes:
                _, loss, edges = self._nodes[id(node)]
                loss.is_scaled = is_product
                loss.combining = curve or internals.combining(
                    edges, outputs, is_outside=id(node) in outside
                )
        return internals.terms(start, self._nodes)

    def end_backward(self, number: int) -> list[Loss]:
        """The losses of the backward pass with this number, which has ended."""
        losses, self._reached = [*self._reached.values()], {}
        for loss in losses:
            loss.backward = number
        return losses

    def forget(self) -> None:
        """An update begins: forget the losses of the one before."""
        self._nodes = {k: v for k, v in self._nodes.items() if v[1].backward is None}


def _counted(name: str, arguments: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """A mask of the elements that count, and the class weights of those."""
    target, source = arguments["target"], arguments["input"]
    local = local_tensor(target).detach()
    if name not in ("cross_entropy", "nll_loss") or target.dtype.is_floating_point:
        if name == "cross_entropy":  # probabilities of classes
            local = local[..., 0] if local.dim() < 3 else local[:, 0]
        shape = torch.broadcast_shapes(local.shape, local_tensor(source).shape)
        return torch.ones(shape if name != "cross_entropy" else local.shape, dtype=torch.bool), None
    valid = local != arguments["ignore_index"]
    weight = arguments.get("weight")
    return valid, None if weight is None else local_tensor(weight)[local[valid]].double()


def token_weights(logits: Tensor, gradient: Tensor) -> tuple[Tensor, int] | None:
    """A cross-entropy's token weights, solved from its logits' gradient, and their count; or None.

    That gradient is w (softmax(logits) - onehot(target)) for each token, so its only negative
    element tells the target, and w follows. A token that is left out has none. Classes lie along
    the last axis.

    Returns:
        The weights of tokens that are not yet predicted with certainty (one, where they are equal
        but for rounding), and how many tokens count; None where the gradient is no cross-entropy's.
    """
    classes = logits.shape[-1] if logits.dim() > 1 else 0
    if classes < 3 or not logits.is_floating_point() or logits.shape != gradient.shape:
        return None
    rows = gradient.reshape(-1, classes).double()
    counted = rows.abs().amax(1) > 0
    rows = rows[counted]
    odds = logits.reshape(-1, classes)[counted].double().softmax(1)
    if not len(rows):
        return None
    target = rows.argmin(1, keepdim=True)
    rest = 1 - odds.gather(1, target)
    weights = -rows.gather(1, target) / rest.clamp_min(1e-300)
    clear = (rest > _CERTAIN).squeeze(1)
    should = weights * odds.scatter_add(1, target, torch.full_like(rest, -1.0))
    allowed = _SOLVED * rows[clear].norm(dim=1)
    if not clear.any() or bool(((rows - should)[clear].norm(dim=1) > allowed).any()):
        return None
    known = weights[clear].flatten()
    rounding = 64 * torch.finfo(gradient.dtype).eps / _CERTAIN
    if known.max() - known.min() <= rounding * known.abs().max():
        known = known.mean()
    return known, len(rows)


MOST_SHOWN = 3
TOLERANCE = 2e-3


@dataclass
class Weights:
    """The judged weights of the loss in one update."""

    line: str = ""  # of the report
    finding: Finding | None = None
    why_not: str = ""  # why they could not be judged
    is_zero: bool = False  # all are, so they could not be judged
    total: float = 0.0  # their sum
    note: str = ""  # of a usual deviation

    @property
    def agree(self) -> bool:
        """Whether they were judged, and are right."""
        return self.finding is None and not self.why_not


def judge_weights(
    updates: Updates, factors: Mapping[Term, float] | None, tolerance: float
) -> Weights:
    """The worst `Weights` among an update's losses: with a finding, else with a gap, else good.

    `factors` are those of the reduction, over that of a gradient scaler; None: not known.
    """
    forwards = [(rank, forward) for rank, own in updates.items() for forward in own.forwards]
    shapes = (next(filter(None, forward.shapes), None) for _, forward in forwards)
    samples = sum(shape[0] for shape in shapes if shape)
    places: dict[tuple[str, str], list[_Group]] = {}
    for rank, loss in ((rank, loss) for rank, own in updates.items() for loss in own.losses):
        if loss.weights is not None:
            group = _group(rank, loss, factors or {})
            places.setdefault((loss.place, loss.kind), []).append(group)
    passes = Counter((rank, forward.backward) for rank, forward in forwards)
    calls = [term for groups in places.values() for term in _terms(groups, passes)]
    others = ", ".join(sorted({name for own in updates.values() for name in own.other_terms}))
    if not calls:
        says = f"{others} is no loss function that is known" if others else "no loss is known"
        return Weights(why_not=says)
    dropped = max(own.dropped for own in updates.values())
    dropped = -1 if others or len(calls) > 1 else dropped
    judged = [
        _Calls(term, samples, is_known=factors is not None).judge(dropped, tolerance)
        for term in calls
    ]
    first = min(judged, key=lambda own: (not own.finding, own.is_zero, not own.why_not))
    if others and not first.finding:
        first.is_zero = False
        first.why_not += "; " * bool(first.why_not)
        first.why_not += f"the loss has another term, which no known function computes: {others}"
    return first


@dataclass
class _Group:
    """The elements of one call of a loss function: how many, and the weight of each."""

    rank: int
    loss: Loss
    count: int = 0  # without those that a mask leaves out
    size: float = 0.0  # the same, or the sum of their class weights
    weight: float = 0.0  # their mean
    is_uniform: bool = True

    @property
    def total(self) -> float:
        """The sum of the weights of all elements."""
        return self.weight * self.size


def _group(rank: int, loss: Loss, factors: Mapping[Term, float]) -> _Group:
    """The elements of a loss, weighted with the factor of the backward pass or rank."""
    if loss.weights is None or not loss.count:  # all labels are padding
        return _Group(rank, loss)
    weights = loss.weights.double().flatten()
    weights = weights[loss.counted] if len(weights) == loss.count else weights
    weights = weights * factors.get((rank, loss.backward), factors.get((rank, None), 1.0))
    mean, spread = float(weights.mean()), float(weights.max() - weights.min())
    is_uniform = spread <= 1e-4 * max(abs(mean), 1e-300)
    return _Group(rank, loss, int(loss.counted.sum()), loss.size, mean, is_uniform)


def _terms(groups: list[_Group], passes: Mapping[Term, int]) -> list[list[_Group]]:
    """Divide the calls of one line into terms of the loss, as of two heads.

    The line calls more than once for each forward pass, with unequal weights: no microbatches.
    """
    calls: dict[tuple[int, int | None, int], list[_Group]] = {}
    for g in groups:
        calls.setdefault((g.rank, g.loss.backward, g.loss.part), []).append(g)
    numbers = {len(own) / max(passes.get(key[:2], 0), 1) for key, own in calls.items()}
    number = int(min(numbers)) if len(numbers) == 1 else 1
    if number < 2 or all(_spread([g.weight for g in own]) <= TOLERANCE for own in calls.values()):
        return [groups]
    return [[g for own in calls.values() for g in own[first::number]] for first in range(number)]


class _Calls:
    """All calls of one line, on all ranks, in an update of so many samples."""

    def __init__(self, groups: list[_Group], samples: int, *, is_known: bool) -> None:
        used = [g for g in groups if g.count and (g.weight or g.loss.weights.numel() == 1)]  # type: ignore[union-attr]
        self._groups, self._samples, self._is_known = used or groups, samples, is_known
        self._all = groups  # with those of which nothing is left by a mask
        self._count = sum(g.count for g in self._groups)
        self._total = sum(g.total for g in self._groups)
        self._place = groups[0].loss.place
        is_token = groups[0].loss.kind in ("cross_entropy", "nll_loss")
        is_sample = sum(g.loss.count for g in groups) == samples
        self._kind = ("sample" if is_sample else "token") if is_token else "element"

    def _line(self) -> str:
        values: Counter[str] = Counter()
        for g in self._groups:
            values[f"{g.weight:.4g}" + " (mean)" * (not g.is_uniform)] += g.count
        listed = [f"{value} ({count} {self._kind}s)" for value, count in values.items()]
        more = f" and {len(values) - MOST_SHOWN} more" if len(values) > MOST_SHOWN else ""
        masked = sum(g.loss.count - g.count for g in self._groups)
        more += f"; {masked} are masked" if masked else ""
        more += f"; sum {self._total:.4g}" if self._is_known else " before the reduction"
        by_class = " over its class weight" * any(g.loss.sizes is not None for g in self._groups)
        return f"weight of each {self._kind}{by_class}: {', '.join(listed[:MOST_SHOWN])}{more}"

    def judge(self, dropped: int, tolerance: float) -> Weights:
        """Judge their weights; `dropped` backward passes, or -1 if the loss has other terms."""
        values, total = [g.weight for g in self._groups], self._total
        samples, count = self._samples, self._count
        # A mean over elements, of each by its class, or over samples; a sum.
        size = sum(g.size for g in self._groups)
        usual = (1 / max(count, 1), 1 / (size or 1.0), 1 / max(samples, 1), 1)
        weights = Weights(self._line(), why_not=self._why_not(), total=total)
        if weights.why_not:
            weights.is_zero = not any(values)
        elif _spread(values) > tolerance:
            weights.finding = self._unequal(tolerance)
        elif any(_is(values[0], weight, tolerance) for weight in usual):
            pass
        elif (
            self._kind == "token"
            and count > 2 * samples
            and _is(total * (1 + samples / count), 1, tolerance)
        ):
            weights.note = (
                "the loss is divided by the number of tokens and samples: the first label of each "
                "sample is counted, and never predicted (as transformers do for some models)"
            )
        elif dropped >= 0 and (finding := self._off(dropped, tolerance)):
            weights.finding = finding
        else:
            weights.why_not = (
                f"the weights of {self._place} sum to {total:.4g}: a factor of the script's "
                "own, or another term of the loss"
            )
        return weights

    def _why_not(self) -> str:
        """Why the weights cannot be judged; empty where they can."""
        if by := next((g.loss.combining for g in self._groups if g.loss.combining), ""):
            return f"{self._place} is not a sum over samples: {by} combines them, or other values"
        if not all(g.is_uniform for g in self._groups):
            return f"{self._place} gives each {self._kind} a weight of its own"
        if not math.isfinite(self._total):
            return f"the weights of {self._place} are not finite"
        if not any(g.weight for g in self._groups):
            return f"those of {self._place} are zero in all updates"
        unknown = "the factor of the reduction is not known, and the weights depend on it"
        return "" if self._is_known else unknown

    def _off(self, dropped: int, tolerance: float) -> Finding | None:
        """The finding of a sum that is off by ranks or microbatches; a half may be a convention."""
        ranks = len({g.rank for g in self._all})
        parts = {len(groups) // ranks for groups in (self._all, self._groups)}
        known = [pair for number in sorted(parts) for pair in factors(ranks, number, dropped)]
        causes = list(dict.fromkeys(c for c, size in known if _is(self._total, size, tolerance)))
        is_half = _is(self._total, 0.5, 2 * tolerance)
        is_half = is_half and all(g.loss.is_scaled for g in self._groups)
        if not causes or is_half:
            return None
        says = f"each {self._kind} weighs {self._total:.4g} times what it weighs in one process"
        off = in_words(self._total, [ranks], len(self._groups) // ranks)
        return Finding(causes[0], says, self._place, off=off, others=causes[1:])

    def _unequal(self, tolerance: float) -> Finding:
        ranks: dict[tuple[int, int], list[_Group]] = {}
        for g in self._groups:
            ranks.setdefault((g.rank, g.loss.part), []).append(g)
        is_inside = any(_spread([g.weight for g in own]) > tolerance for own in ranks.values())
        among = "microbatches" if is_inside else "ranks"
        totals = [g.total for g in self._groups]
        if not is_inside:  # each rank divides by what it has in the whole update
            totals = [sum(g.total for g in own) for own in ranks.values()]
        cause = "mean of means" if _spread(totals) <= tolerance else "unequal weights"
        says = f"{self._kind}s of different {among} have different weights"
        return Finding(f"{cause} over {among}", says, self._place)


def _is(number: float, should: float, tolerance: float) -> bool:
    """Whether two numbers are equal within the tolerance, up to the sign."""
    return abs(abs(number) / should - 1) <= tolerance


def _spread(numbers: Sequence[float]) -> float:
    """The range of numbers, over the largest."""
    return (max(numbers) - min(numbers)) / max(*map(abs, numbers), 1e-300)


def factors(ranks: int, parts: int, dropped: int = 0) -> Iterator[tuple[str, float]]:
    """Yield pairs, the likeliest first: a cause, and its factor in gradients, unless it is 1."""
    both = ranks * parts if min(ranks, parts) > 1 else 1
    causes = (
        ("zeroed between microbatches", parts / (parts + dropped)),
        ("accumulation not divided", parts),
        ("sum over ranks", ranks),
        ("sum over ranks and microbatches", both),
        ("divided by ranks twice", 1 / ranks),
        ("divided by microbatches twice", 1 / parts),
        ("divided by ranks twice", 1 / both),
    )
    return ((cause, factor) for cause, factor in causes if factor != 1)

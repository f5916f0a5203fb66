"""The loss as a sum over tokens or samples: with which weight does each enter the backward pass?

In: calls of torch's loss functions, and the graph that a backward pass starts from. Out: a `Loss`
for each call, with the weight of each element, read from the gradient that arrives at the value of
the function. A loss of which only a mean or a sum is known counts the elements of that mean.
Nothing is changed: results of torch's own functions are returned as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from runners.verify.frames import place
from runners.verify.graph import Edge, walked
from runners.verify.records import Loss, part

KNOWN = (
    "cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", "gaussian_nll_loss",
)  # fmt: skip
# Nodes between a backward pass and the mean that it starts from.
_SCALAR = {
    "AddBackward0", "SubBackward0", "MulBackward0", "DivBackward0", "NegBackward0", "SqrtBackward0",
    "ToCopyBackward0", "CloneBackward0", "ViewBackward0", "SqueezeBackward0", "AliasBackward0",
}  # fmt: skip
_MOST_PENDING = 4096
_CERTAIN = 1e-2  # the probability that is left for other classes, below which rounding rules
_SOLVED = 1e-2  # relative: gradients may be in bf16


class LossWatch:
    """Keeps the calls of loss functions until a backward pass reaches them.

    Args:
        is_on: whether calls are kept.
        is_running: whether a backward pass is.
    """

    def __init__(self, is_on: Callable[[], bool], is_running: Callable[[], bool]) -> None:
        self._is_on, self._is_running = is_on, is_running
        self._nodes: dict[int, tuple[Any, Loss]] = {}  # by id of a node, which stays alive
        self._reached: list[Loss] = []
        self._is_inside = False

    def called(
        self, name: str, original: Callable[..., Tensor], /, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Stands in the place of a loss function of torch."""
        if self._is_inside or not self._is_on():
            return original(*args, **kwargs)
        self._is_inside = True
        try:
            value = original(*args, **kwargs)
        finally:
            self._is_inside = False
        if value.grad_fn is not None:
            bound = inspect.signature(original).bind(*args, **kwargs)
            bound.apply_defaults()
            self._expect(name, value, bound.arguments)
        return value

    def _expect(self, name: str, value: Tensor, given: dict[str, Any]) -> None:
        valid, sizes = _counted(name, given)
        normalizer = float(valid.sum() if sizes is None else sizes.sum())
        reduction = given.get("reduction", "mean")
        if reduction == "batchmean":
            normalizer = float(given["input"].shape[0])
        loss = Loss(name, place(), int(valid.sum()), sizes=sizes)

        def weigh(weight: Tensor) -> Tensor:
            if reduction == "none":
                weight = weight.flatten()
                return weight[valid.flatten()] if len(weight) == valid.numel() else weight
            return weight if reduction == "sum" else weight / max(normalizer, 1e-300)

        value.register_hook(lambda gradient: self._reach(loss, gradient, weigh))
        if len(self._nodes) > _MOST_PENDING:
            self._nodes.clear()
        self._nodes[id(value.grad_fn)] = (value.grad_fn, loss)

    def _reach(
        self, loss: Loss, gradient: Tensor | None, weigh: Callable[[Tensor], Tensor]
    ) -> None:
        """A gradient arrives at a loss; torch.autograd.grad, which leaves .grad, does not count."""
        if gradient is None or not self._is_running():
            return
        weight = weigh(part(gradient, copy=False).local.double())
        loss.weights = weight.clone() if loss.weights is None else loss.weights + weight
        if not any(loss is one for one in self._reached):
            self._reached.append(loss)

    def follow(self, start: Sequence[Edge]) -> bool:
        """Walk the graph of a backward pass before it runs; whether a term is of no known loss."""
        is_known = is_other = False
        for node, is_product in walked(start, lambda node: id(node) in self._nodes):
            if id(node) in self._nodes:
                is_known = True
                self._nodes[id(node)][1].half = is_product
            else:
                is_other = is_other or hasattr(node, "variable")
        return is_other if is_known else not self._guess(start)

    def _guess(self, start: Sequence[Edge]) -> bool:
        """Take the means or sums that a backward pass starts from for its loss."""
        first = [one for one in walked(start, lambda node: node.name() not in _SCALAR)
                 if one[0].name() not in _SCALAR]  # fmt: skip
        if any(node.name() not in ("MeanBackward0", "SumBackward0") for node, _ in first):
            return False
        for index, (node, is_product) in enumerate(first):
            is_mean, count = node.name()[0] == "M", torch.Size(node._saved_self_sym_sizes).numel()
            kind = ("mean" if is_mean else "sum") + f" {index}" * (index > 0)
            loss = Loss(kind, place(), count, is_seen=is_mean, half=is_product)
            size = max(count, 1) if is_mean else 1
            node.register_prehook(
                lambda found, loss=loss, size=size: self._reach(loss, found[0], lambda w: w / size)
            )
        return bool(first)

    def ended(self, number: int) -> list[Loss]:
        """The losses of the backward pass that has ended, which gets a number."""
        reached, self._reached = self._reached, []
        for loss in reached:
            loss.backward = number
        gone = {id(loss) for loss in reached}
        self._nodes = {k: v for k, v in self._nodes.items() if id(v[1]) not in gone}
        return reached


def _counted(name: str, given: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Which elements count, and the class weights of those."""
    target, source = given["target"], given["input"]
    local = part(target, copy=False).local.detach()
    if name not in ("cross_entropy", "nll_loss") or target.dtype.is_floating_point:
        if name == "cross_entropy":  # probabilities of classes
            local = local[..., 0] if local.dim() < 3 else local[:, 0]
        shape = torch.broadcast_shapes(local.shape, part(source, copy=False).local.shape)
        return torch.ones(shape if name != "cross_entropy" else local.shape, dtype=torch.bool), None
    valid = local != given["ignore_index"]
    weight = given.get("weight")
    return valid, None if weight is None else part(weight, copy=False).local[local[valid]].double()


def solved(logits: Tensor, gradient: Tensor) -> tuple[Tensor, int] | None:
    """The weights of tokens in a cross-entropy of which only the gradient at its logits is known.

    That gradient is w (softmax(logits) - onehot(target)) for each token, so its only negative
    element tells the target, and w follows. A token that is left out has none.

    Args:
        logits: classes along the last axis.
        gradient: of the same shape.

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

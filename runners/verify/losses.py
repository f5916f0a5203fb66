"""The loss as a sum over tokens or samples: with which weight does each enter the backward pass?

In: calls of torch's loss functions, and the graph that a backward pass starts from. Out: a `Loss`
for each call, with the weight of each element, read from the gradient that arrives at the value of
the function. A loss of which only a mean or a sum is known counts the elements of that mean.
Nothing is changed: results of torch's own functions are returned as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

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
Edge = tuple[Any, int]  # of a graph: a node, and the number of its output
_CERTAIN = 1e-2  # the probability that is left for other classes, below which rounding rules
_SOLVED = 1e-2  # relative: gradients may be in bf16


class LossWatch:
    """Keeps the calls of loss functions until a backward pass reaches them."""

    def __init__(self, place: Callable[[], str], is_on: Callable[[], bool]) -> None:
        self._place, self._is_on = place, is_on
        self._nodes: dict[int, tuple[Any, Loss]] = {}
        self.backward = 0
        self.reached: list[Loss] = []
        self._is_inside = False
        self.is_running = False  # a backward pass

    def recorded(self, name: str, original: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """What to put in place of a loss function of torch."""
        signature = inspect.signature(original)

        def call(*args: Any, **kwargs: Any) -> Tensor:
            if self._is_inside or not self._is_on():
                return original(*args, **kwargs)
            self._is_inside = True
            try:
                value = original(*args, **kwargs)
            finally:
                self._is_inside = False
            if value.grad_fn is not None:
                bound = signature.bind(*args, **kwargs)
                bound.apply_defaults()
                self._expect(name, value, bound.arguments)
            return value

        return call

    def _expect(self, name: str, value: Tensor, given: dict[str, Any]) -> None:
        reduction = given.get("reduction", "mean")
        valid, normalizer = _counted(name, given)
        loss = Loss(name, self._place(), int(valid.sum()))
        if reduction == "batchmean":
            normalizer = float(given["input"].shape[0])

        def arrived(gradient: Tensor | None) -> None:
            if gradient is None:
                return
            weight = part(gradient, copy=False).local.detach().double()
            if reduction == "none":
                weight = weight.flatten()
                weight = weight[valid.flatten()] if len(weight) == valid.numel() else weight
            elif reduction != "sum":
                weight = weight / max(normalizer, 1e-300)
            self._reach(loss, weight)

        value.register_hook(arrived)
        if len(self._nodes) > _MOST_PENDING:
            self._nodes.clear()
        self._nodes[id(value.grad_fn)] = (value.grad_fn, loss)

    def _reach(self, loss: Loss, weight: Tensor) -> None:
        if not self.is_running:  # a call of torch.autograd.grad, which leaves .grad as it is
            return
        loss.backward = self.backward
        loss.weights = weight.clone() if loss.weights is None else loss.weights + weight
        if not any(loss is one for one in self.reached):
            self.reached.append(loss)

    def follow(self, start: list[Edge]) -> bool:
        """Walk the graph of a backward pass before it runs; whether a term is of no known loss."""
        known = False
        seen: set[Any] = set()
        queue = [(edge, False) for edge in start]
        past_losses = False
        while queue:
            edge, half = queue.pop()
            node = edge[0]
            if node is None or _key(edge) in seen:
                continue
            seen.add(_key(edge))
            if id(node) in self._nodes and self._nodes[id(node)][0] is node:
                known = True
                self._nodes[id(node)][1].half = half
                continue
            past_losses = past_losses or hasattr(node, "variable")
            half = half or node.name() == "MulBackward0"
            queue += [(other, half) for other in _next(edge)]
        if not known:
            past_losses = not self._guess(start)
        return past_losses

    def _guess(self, start: list[Edge]) -> bool:
        """Take the means or sums that a backward pass starts from for its loss."""
        queue, found = [(node, False) for node, _ in start], []
        while queue:
            node, half = queue.pop()
            name = node.name() if node is not None else ""
            if name in ("MeanBackward0", "SumBackward0"):
                found.append((node, half, name))
            elif name in _SCALAR:
                queue += [
                    (other, half or name.startswith("Mul")) for other, _ in node.next_functions
                ]
            elif node is not None:
                return False
        for index, (node, half, name) in enumerate(found):
            sizes = node._saved_self_sym_sizes
            count = int(torch.Size(sizes).numel())
            kind = f"{name[:4].lower()} {index}".removesuffix(" 0")
            loss = Loss(kind, self._place(), count, is_seen=name[0] == "M", half=half)
            self._await(node, loss, count if name[0] == "M" else 1)
        return bool(found)

    def _await(self, node: Any, loss: Loss, normalizer: int) -> None:
        def arrived(gradients: tuple[Tensor | None, ...]) -> None:
            if gradients[0] is not None:
                weight = part(gradients[0], copy=False).local.detach().double()
                self._reach(loss, weight / max(normalizer, 1))

        node.register_prehook(arrived)

    def ended(self) -> list[Loss]:
        """The losses of the backward pass that has ended."""
        reached, self.reached = self.reached, []
        gone = {id(loss) for loss in reached}
        self._nodes = {k: v for k, v in self._nodes.items() if id(v[1]) not in gone}
        return reached


def _counted(name: str, given: dict[str, Any]) -> tuple[Tensor, float]:
    """Which elements count, and what a mean divides by."""
    target, source = given["target"], given["input"]
    local = part(target, copy=False).local.detach()
    if name not in ("cross_entropy", "nll_loss") or target.dtype.is_floating_point:
        if name == "cross_entropy":  # probabilities of classes
            local = local[..., 0] if local.dim() < 3 else local[:, 0]
        shape = torch.broadcast_shapes(local.shape, part(source, copy=False).local.shape)
        valid = torch.ones(shape if name != "cross_entropy" else local.shape, dtype=torch.bool)
        return valid, float(valid.numel())
    valid = local != given["ignore_index"]
    weight = given.get("weight")
    if weight is None:
        return valid, float(valid.sum())
    return valid, float(part(weight, copy=False).local[local[valid]].sum())


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


def _key(edge: Edge) -> Any:
    return edge if _is_sink(edge[0]) else id(edge[0])


def _is_sink(node: Any) -> bool:
    return bool(node is not None and node.name() == "_DDPSinkBackward")


def _next(edge: Edge) -> Sequence[Edge]:
    """What a gradient flows to; DDP has one node for all its outputs, of which one is meant."""
    node, number = edge
    edges: Sequence[Edge] = node.next_functions
    if not _is_sink(node):
        return edges
    needed = node.needs_input_grad[1:]  # the first is DDP itself, and the rest are the outputs
    own = [one for one in edges if one[0] is not None]
    return [own[sum(needed[:number])]] if needed[number] else []


def reached(start: list[Edge]) -> set[int]:
    """The ids of all nodes that a backward pass reaches."""
    return {id(node) for node in _walked(start, set())}


def leaves_before(start: list[Edge], outputs: set[int]) -> list[Tensor]:
    """The leaves that a backward pass reaches past all of these nodes."""
    return [node.variable for node in _walked(start, outputs) if hasattr(node, "variable")]


def first_of(start: list[Edge], outputs: set[int]) -> set[int]:
    """The nodes of outputs of one forward pass that a backward pass reaches past all others."""
    return {id(node) for node in _walked(start, outputs)} & outputs


def _walked(start: list[Edge], ends: set[int]) -> Iterator[Any]:
    """The nodes of a graph; nothing behind the ends."""
    seen: set[Any] = set()
    queue = list(start)
    while queue:
        edge = queue.pop()
        if edge[0] is not None and _key(edge) not in seen:
            seen.add(_key(edge))
            yield edge[0]
            if id(edge[0]) not in ends:
                queue += _next(edge)

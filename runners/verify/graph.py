"""Walks of the graph that a backward pass runs through.

In: the edges that a backward pass starts from. Out: nodes of torch's graph, each once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# Names of the factors that nodes keep, in the order of their gradients.
_PRODUCT = ("_saved_self", "_saved_mat2")
_FACTORS = {"MmBackward0": _PRODUCT, "BmmBackward0": _PRODUCT}
Edge = tuple[Any, int]  # a node, and the number of its output


def walked(start: Sequence[Edge], is_end: Callable[[Any], bool]) -> Iterator[tuple[Any, bool]]:
    """Nodes, and whether a product lies before each; nothing behind the ends."""
    seen: set[Any] = set()
    queue = [(edge, False) for edge in start]
    while queue:
        edge, is_product = queue.pop()
        node = edge[0]
        key = edge if _is_sink(node) else id(node)
        if node is None or key in seen:
            continue
        seen.add(key)
        yield node, is_product
        if not is_end(node):
            is_product = is_product or node.name() == "MulBackward0"
            queue += [(other, is_product) for other in _next(edge)]


def reached(start: Sequence[Edge], ends: Collection[int] = ()) -> Iterator[Any]:
    """The nodes that a backward pass reaches; nothing behind those with the ids of `ends`."""
    return (node for node, _ in walked(start, lambda node: id(node) in ends))


def leaves_before(start: Sequence[Edge], outputs: Collection[int]) -> list[Tensor]:
    """The leaves that a backward pass reaches past all of these nodes."""
    return [node.variable for node in reached(start, outputs) if hasattr(node, "variable")]


def multiplies(start: Sequence[Edge], outputs: Collection[int], parts: Sequence[Tensor]) -> bool:
    """Whether a backward pass multiplies, before `outputs`, by all values of these parts.

    They may be in any order and shape, and get no gradient.
    """
    if not parts or any(one.requires_grad for one in parts):
        return False
    values = torch.cat([one.flatten() for one in parts]).sort().values
    for node in reached(start, outputs):
        for index, name in enumerate(_FACTORS.get(node.name(), ())):
            saved = getattr(node, name) if node.next_functions[index][0] is None else None
            own = None if saved is None else saved.detach().flatten()
            if own is not None and torch.equal(own.sort().values, values):
                return True
    return False


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

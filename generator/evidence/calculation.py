"""A checked syntax tree and the values of its names → its result.

`expression.py` has held every node against its allow-list before; what is walked here is that list
and nothing more. Jinja2's compiled templates give the same, at many times the cost of parsing.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import nodes

_OPERATORS: dict[type[nodes.Node], Callable[[Any, Any], object]] = {
    nodes.Add: operator.add,
    nodes.Sub: operator.sub,
    nodes.Mul: operator.mul,
    nodes.Div: operator.truediv,
}


class Calculation:
    """One walk over a tree.

    Args:
        roots: by name, what the tree starts from and calls.
        step: follows `.name` and `[…]`: takes a thing and a key.
        filters: by name, what `|name` does.
    """

    def __init__(
        self,
        roots: Mapping[str, object],
        step: Callable[[object, object], object],
        filters: Mapping[str, Callable[..., object]],
    ) -> None:
        self.roots, self.step, self.filters = roots, step, filters

    def result(self, node: nodes.Node) -> object:
        """What a tree amounts to; whatever its arithmetic raises is raised."""
        walk: Callable[[Calculation, Any], object] = _WALKS[type(node)]
        return walk(self, node)

    def arithmetic(self, node: nodes.BinExpr) -> object:
        """`a + b` and the like."""
        found = _OPERATORS[type(node)](self.result(node.left), self.result(node.right))
        if isinstance(found, float) and not math.isfinite(found):  # constants; a Value sees to it
            raise OverflowError("the result is not finite; use smaller numbers")
        return found

    def negative(self, node: nodes.Neg) -> object:
        """`-a`."""
        found: Any = self.result(node.node)
        return -found

    def item(self, node: nodes.Getitem) -> object:
        """`a[key]` and `a[start:end]`."""
        thing: Any = self.result(node.node)
        if not isinstance(node.arg, nodes.Slice):
            return self.step(thing, self.result(node.arg))
        ends = (node.arg.start, node.arg.stop)
        return thing[slice(*(None if end is None else self.result(end) for end in ends))]

    def filtered(self, node: nodes.Filter) -> object:
        """`a | name(argument)`."""
        assert node.node is not None
        return self.filters[node.name](self.result(node.node), *map(self.result, node.args))

    def called(self, node: nodes.Call) -> object:
        """`name(argument)`."""
        call: Any = self.result(node.node)
        return call(*map(self.result, node.args))


_WALKS: dict[type[nodes.Node], Callable[[Calculation, Any], object]] = {
    **dict.fromkeys(_OPERATORS, Calculation.arithmetic),
    nodes.Neg: Calculation.negative,
    nodes.Const: lambda _, node: node.value,
    nodes.Name: lambda walk, node: walk.roots[node.name],
    nodes.Getattr: lambda walk, node: walk.step(walk.result(node.node), node.attr),
    nodes.Getitem: Calculation.item,
    nodes.Filter: Calculation.filtered,
    nodes.Call: Calculation.called,
}

"""A formula as a small tree: what arithmetic builds, a page prints, and a script reads.

A leaf is a number or a name; a node is a sign, or a function's name, with what it is applied to.
Values with provenance carry such a tree (`value.py`), and an expression over symbols comes to one,
its laws written out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

Tree = int | float | str | tuple[Any, ...]
Operation = Callable[[Any, object], Any]
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_NEGATIVE, _ATOM = 1, 3


def printed(tree: Tree, words: Mapping[str, str] | None = None) -> str:
    """A formula as text, which reads back as the same tree; `words` replace some of its names.

    What stands on the right of a sign keeps its brackets whatever the sign: rounded sums and
    products are not associative, so `a + (b + c)` is not always `a + b + c`.
    """
    return _printed(tree, words or {})[0]


def _printed(tree: Tree, words: Mapping[str, str]) -> tuple[str, int]:
    """The text, and how strongly it holds together."""
    match tree:
        case str():
            return words.get(tree, tree), _ATOM
        case ("~", inner):
            return f"-{_bracketed(inner, _ATOM, words)}", _NEGATIVE
        case int() | float():
            short = f"{tree:.15g}"  # without the point of a whole number, with no digit lost
            return (
                short if isinstance(tree, float) and float(short) == tree else repr(tree)
            ), _ATOM
        case (sign, left, right) if sign in _BINDING:
            binding = _BINDING[sign]
            sides = _bracketed(left, binding, words), _bracketed(right, binding + 1, words)
            return f"{sides[0]} {sign} {sides[1]}", binding
        case (name, *parts):
            return f"{name}({', '.join(printed(part, words) for part in parts)})", _ATOM
    raise AssertionError(tree)


def _bracketed(tree: Tree, binding: int, words: Mapping[str, str]) -> str:
    text, own = _printed(tree, words)
    return text if own >= binding else f"({text})"


def names_of(tree: Tree) -> dict[str, None]:
    """The names of a formula, in the order in which they stand."""
    if isinstance(tree, tuple):
        return {name: None for part in tree[1:] for name in names_of(part)}
    return {tree: None} if isinstance(tree, str) else {}


def filled(tree: Tree, trees: Mapping[str, Tree]) -> Tree:
    """Substitute formulas for the names of a formula."""
    if isinstance(tree, tuple):
        return (tree[0], *(filled(part, trees) for part in tree[1:]))
    return trees[tree] if isinstance(tree, str) else tree


def postfix(tree: Tree) -> Iterator[str]:
    """Yield the strings of a `Tree` in postfix order, for `assets/calculator.js`; `~` negates."""
    if isinstance(tree, tuple):
        for part in tree[1:]:
            yield from postfix(part)
        yield tree[0]
    else:
        yield tree if isinstance(tree, str) else repr(tree)


def _operations(sign: str) -> tuple[Operation, Operation]:
    """A sign with the other side on its right, and on its left."""
    return (
        lambda self, other: self.combined(self, sign, other),
        lambda self, other: self.combined(other, sign, self),
    )


class Arithmetic:
    """Operators `+ - * /`, all defined by `combined`."""

    __add__, __radd__ = _operations("+")
    __sub__, __rsub__ = _operations("-")
    __mul__, __rmul__ = _operations("*")
    __truediv__, __rtruediv__ = _operations("/")

    @classmethod
    def combined(cls, left: object, sign: str, right: object) -> Self:
        """Combine two sides by a sign; one may be a plain number."""
        raise NotImplementedError


@dataclass(frozen=True)
class Symbol(Arithmetic):
    """A symbolic operand: arithmetic on it builds the tree of a formula."""

    tree: Tree

    @classmethod
    def combined(cls, left: object, sign: str, right: object) -> Symbol:
        """This formula and another, joined by an operator."""
        return Symbol((sign, tree_of(left), tree_of(right)))

    def __neg__(self) -> Symbol:
        return Symbol(("~", self.tree))


def tree_of(operand: object) -> Tree:
    """The tree of a symbol or of a plain number; TypeError for anything else."""
    if isinstance(operand, Symbol):
        return operand.tree
    if isinstance(operand, int | float):
        return operand
    raise TypeError(operand)


def _folded(name: str, of: Callable[..., object]) -> Callable[..., object]:
    """`min` or `max` of several symbols or numbers."""

    def fold(first: object, second: object, *more: object) -> object:
        things = (first, second, *more)
        if not any(isinstance(operand, Symbol) for operand in things):
            return of(things)
        return Symbol(reduce(lambda tree, operand: (name, tree, operand), map(tree_of, things)))

    return fold


least, most = _folded("min", min), _folded("max", max)

"""A calculator's formula: parsed once into a small tree that Python and the page both evaluate.

In: `+ - * /`, brackets, `min`, `max`, laws, numbers and names of inputs. Out: a `Formula`, which
evaluates to a number (None where it divides by zero), prints with other words for its inputs, and
writes itself as postfix for `assets/calculator.js`, which works it out in the same order. Both
calculate in binary64, so both give the same number.
"""

from __future__ import annotations

import ast
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from runners.plans.closed_forms import LAWS

Tree = float | str | tuple[str, "Tree", "Tree"] | tuple[str, "Tree"]
FUNCTIONS = ("min", "max")
MADE_OF = "formulas are made of + - * / ( ) min max, laws, numbers and inputs"
_SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_WORKED_OUT: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "min": min,
    "max": max,
}
_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2}
_ATOM = 3


class FormulaError(ValueError):
    """What is wrong with a formula, and at which of its characters."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True)
class Parsed:
    """A formula that can be worked out.

    Attributes:
        tree: a number, the name of an input, or a sign with what it is applied to.
        names: the inputs that it needs, in the order in which they stand.
    """

    tree: Tree
    names: tuple[str, ...]

    def value(self, inputs: Mapping[str, float]) -> float | None:
        """Its value; None where it divides by zero or exceeds the range of floats."""
        try:
            found = _value(self.tree, inputs)
        except (ZeroDivisionError, OverflowError):
            return None
        return found if math.isfinite(found) else None

    def written(self, words: Mapping[str, str]) -> str:
        """The formula with something else in the place of its inputs."""
        return _written(self.tree, words)[0]

    def readable(self, written: str) -> str:
        """The formula for readers: as its author wrote it, unless that calls a law by its name."""
        calls_law = any(f"{law}(" in written for law in LAWS)
        return self.written({}) if calls_law else written

    @property
    def postfix(self) -> str:
        """The formula as a stack takes it: `a b + 2.0 *`; `~` negates."""
        return " ".join(_postfix(self.tree))


@dataclass(frozen=True)
class Symbol:
    """What a law is called with to become a formula: it gathers what is done to it."""

    tree: Tree

    def written(self) -> str:
        """The formula."""
        return _written(self.tree, {})[0]

    def __add__(self, other: object) -> Symbol:
        match self.tree, symbol_of(other).tree:
            case ("+", float(first), rest), float(last):  # `2 + moments + 1` reads `3 + moments`
                return Symbol(("+", first + last, rest))
            case own, added:
                return Symbol(("+", own, added))

    def __radd__(self, other: object) -> Symbol:
        return symbol_of(other) + self

    def __sub__(self, other: object) -> Symbol:
        return Symbol(("-", self.tree, symbol_of(other).tree))

    def __rsub__(self, other: object) -> Symbol:
        return symbol_of(other) - self

    def __mul__(self, other: object) -> Symbol:
        return Symbol(("*", self.tree, symbol_of(other).tree))

    def __rmul__(self, other: object) -> Symbol:
        return symbol_of(other) * self

    def __truediv__(self, other: object) -> Symbol:
        return Symbol(("/", self.tree, symbol_of(other).tree))

    def __rtruediv__(self, other: object) -> Symbol:
        return symbol_of(other) / self


def symbol_of(thing: object) -> Symbol:
    """A symbol, a number or a tree as a symbol."""
    if isinstance(thing, Symbol):
        return thing
    if isinstance(thing, int | float):
        return Symbol(float(thing))
    assert isinstance(thing, str | tuple), thing
    return Symbol(thing)


def parse(text: str) -> Parsed:
    """Read a formula.

    Raises:
        FormulaError: it holds something else than what formulas are made of.
    """
    offset, last = len(text) - len(text.lstrip()), max(len(text) - 1, 0)
    try:
        body = ast.parse(text.strip(), mode="eval").body
        tree = _tree(body, offset)
    except FormulaError as error:
        raise FormulaError(str(error), min(error.offset, last)) from None
    except SyntaxError as error:
        at = offset + max((error.offset or 1) - 1, 0)
        raise FormulaError(f"not a formula: {error.msg}", min(at, last)) from None
    except (RecursionError, MemoryError, ValueError):
        raise FormulaError("not a formula", min(offset, last)) from None
    return Parsed(tree, tuple(dict.fromkeys(_names(tree))))


def _tree(node: ast.expr, offset: int) -> Tree:
    place = offset + node.col_offset
    if isinstance(node, ast.Constant) and not isinstance(node.value, bool):
        return _number(node.value, place)
    if isinstance(node, ast.Name) and node.id not in FUNCTIONS:
        return node.id
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return ("~", _tree(node.operand, offset))
    if isinstance(node, ast.BinOp) and type(node.op) in _SIGNS:
        return (_SIGNS[type(node.op)], _tree(node.left, offset), _tree(node.right, offset))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _call(node, node.func.id, offset)
    raise FormulaError(MADE_OF, place)


def _number(constant: object, place: int) -> float:
    if not isinstance(constant, int | float):
        raise FormulaError(MADE_OF, place)
    try:
        number = float(constant)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise FormulaError("a number beyond what can be calculated with", place)
    return number


def _call(node: ast.Call, name: str, offset: int) -> Tree:
    place = offset + node.col_offset
    if name in LAWS and not node.keywords:
        return _law(name, [_tree(one, offset) for one in node.args], place)
    if name not in FUNCTIONS:
        raise FormulaError(f"{name}(…) is not known; only min, max and laws are", place)
    if len(node.args) < 2 or node.keywords:
        raise FormulaError(f"{name}(…) takes at least two values", place)
    first, *rest = (_tree(one, offset) for one in node.args)
    for one in rest:
        first = (name, first, one)
    return first


def _law(name: str, arguments: list[Tree], place: int) -> Tree:
    """A law of `runners/plans/closed_forms.py`, worked out over its arguments."""
    wanted = list(inspect.signature(LAWS[name]).parameters)
    if len(arguments) != len(wanted):
        raise FormulaError(f"{name}(…) takes {', '.join(wanted)}", place)
    found: Symbol = LAWS[name](*map(symbol_of, arguments))
    return found.tree


def _names(tree: Tree) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree[1:]:
            yield from _names(part)


def _value(tree: Tree, inputs: Mapping[str, float]) -> float:
    if isinstance(tree, float):
        return tree
    if isinstance(tree, str):
        return float(inputs[tree])
    if len(tree) == 2:
        return -_value(tree[1], inputs)
    return _WORKED_OUT[tree[0]](_value(tree[1], inputs), _value(tree[2], inputs))


def _written(tree: Tree, words: Mapping[str, str]) -> tuple[str, int]:
    """The text of a tree, which reads back as the same tree, and how strongly it holds together.

    What stands on the right of a sign keeps its brackets whatever the sign: rounded sums and
    products are not associative, so `a + (b + c)` is not always `a + b + c`.
    """
    if isinstance(tree, float):
        return _digits(tree), _ATOM
    if isinstance(tree, str):
        return words.get(tree, tree), _ATOM
    if len(tree) == 2:
        return f"-{_bracketed(tree[1], _ATOM, words)}", 1
    sign, left, right = tree
    if sign in FUNCTIONS:
        return f"{sign}({_written(left, words)[0]}, {_written(right, words)[0]})", _ATOM
    binding = _BINDING[sign]
    return (
        f"{_bracketed(left, binding, words)} {sign} {_bracketed(right, binding + 1, words)}",
        binding,
    )


def _digits(number: float) -> str:
    """A number without the point of a whole one, with no digit lost."""
    short = f"{number:.15g}"
    return short if float(short) == number else repr(number)


def _bracketed(tree: Tree, binding: int, words: Mapping[str, str]) -> str:
    text, own = _written(tree, words)
    return text if own >= binding else f"({text})"


def _postfix(tree: Tree) -> Iterator[str]:
    if isinstance(tree, tuple):
        for part in tree[1:]:
            yield from _postfix(part)
        yield tree[0]
    else:
        yield repr(tree) if isinstance(tree, float) else tree

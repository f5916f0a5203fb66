"""The language of expressions: a subset of Python's, parsed by `ast`, walked here, never executed.

Numbers, words in quotes, `+ - * /`, fields (`a.b`), elements (`a[0]`, `a['name']`, `a[1:]`) and
calls of named functions. `a | f(x)` is `f(a, x)`; as in Python, `|` binds less than any arithmetic,
so it takes the whole sum before it. What names and functions stand for is the caller's: values
with provenance (`evaluation.py`), numbers, or symbols of a formula (`formulas.py` of
calculators, `claim_formula.py`).
"""

import ast
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from proofbook.generator.content.errors import nearest
from proofbook.generator.values.formula import Symbol, Tree, tree_of
from proofbook.generator.values.value import ExpressionError

Function = Callable[..., object]
BEYOND = "a number beyond what can be calculated with"
MADE_OF = "expressions are made of + - * / ( ) [ ] |, numbers, names and functions"
LARGEST_FACTOR, TERMS = 12, {*"1234567"}  # constants without a name
_NAME_IT = "; give it a name, a meaning and a source under `given:` in references.yml"
SINGLE = "only single values can be calculated with; go on to one field of a group or list"
_SIGNS: dict[type[ast.operator], Callable[[Any, Any], object]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


class Expression:
    """One expression, parsed."""

    def __init__(self, text: str) -> None:
        """Parse a text; ExpressionError if it cannot be read."""
        self.tree = _parsed(text)  # in which a filter is the call that it stands for
        nodes = [*ast.walk(self.tree)]
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        free = [node for node in nodes if isinstance(node, ast.Name) and node not in called]
        free.sort(key=lambda name: name.col_offset)
        self.names = dict.fromkeys(name.id for name in free)  # what it starts from, in order
        # Why one of its constants has to have a name; or None.
        self.unnamed = next(_unnamed(self.tree), None)
        self.functions = {function.id for function in called if isinstance(function, ast.Name)}
        self.calls = [*filter(None, map(_of_text, nodes))]  # pairs: function, its one text

    def evaluate(self, names: Mapping[str, object], functions: Mapping[str, Function]) -> object:
        """Result of the expression over these names and functions.

        ExpressionError where it makes no sense, AbsentError where this machine lacks a value.
        """
        return _Walk(names, functions).result(self.tree)

    def formula(self, symbols: Mapping[str, Symbol], functions: Mapping[str, Function]) -> Tree:
        """The formula's `Tree` over symbols, laws written out; ExpressionError if it is none."""
        result = self.evaluate(symbols, functions)
        try:
            return tree_of(result)
        except TypeError:
            raise ExpressionError("no formula, which calculates with numbers") from None


@lru_cache(maxsize=65536)
def compiled(text: str) -> Expression:
    """The expression of a text, parsed once; ExpressionError if it cannot be read."""
    return Expression(text)


def _of_text(node: ast.AST) -> tuple[str, str] | None:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Constant(value=str() as text)]):
            return name, text
    return None


def _unnamed(node: ast.AST) -> Iterator[str]:
    """What is wrong with each constant that calculates and is no small factor or term."""
    match node:
        case ast.Call(func=ast.Name(id="drawn" | "rank" | "Rank" | "step" | "layer")):
            return  # which counts nothing
        case ast.Call(func=ast.Name(id="digits"), args=[of, *_]) | ast.Subscript(value=of):
            yield from _unnamed(of)
        case ast.Constant(value=int() | float() as number):
            is_small = isinstance(number, int) and number <= LARGEST_FACTOR
            if not is_small and str(number).strip("0") != "1":
                lacks = f"no whole factor up to {LARGEST_FACTOR} and no power of ten"
                yield f"{number:,} is {lacks}{_NAME_IT}"
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            terms = _terms(node)
            named = [term for term in terms if any(isinstance(n, ast.Name) for n in ast.walk(term))]
            fixed = [ast.unparse(term) for term in terms if term not in named]
            if len(fixed) > 1 or {*fixed} - TERMS:
                yield f"{', '.join(fixed)}: a sum has one constant at most, from 1 to 7{_NAME_IT}"
            yield from chain(*map(_unnamed, terms))
        case _:
            yield from chain(*map(_unnamed, ast.iter_child_nodes(node)))


def _terms(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub(), left=left, right=right):
            return [*_terms(left), *_terms(right)]
        case ast.UnaryOp(operand=operand):
            return _terms(operand)
    return [node]


class _Walk:
    def __init__(self, names: Mapping[str, object], functions: Mapping[str, Function]) -> None:
        self._names, self._functions = names, functions

    def result(self, node: ast.expr) -> Any:  # noqa: ANN401
        """Evaluate a node; arithmetic errors become ExpressionErrors."""
        try:
            return self._result(node)
        except ZeroDivisionError:
            raise ExpressionError("divides by zero") from None
        except OverflowError:
            raise ExpressionError(BEYOND) from None
        except TypeError:
            raise ExpressionError(SINGLE) from None

    def _result(self, node: ast.expr) -> object:
        match node:
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Name(id=name):
                raise ExpressionError(f"unknown name {name!r}{nearest(name, self._names)}")
            case ast.Attribute():
                return _stepped(self.result(node.value), node.attr)
            case ast.Subscript():
                return _stepped(self.result(node.value), self.result(node.slice))
            case ast.Slice(step=None):
                return slice(*(end and self.result(end) for end in (node.lower, node.upper)))
            case ast.Call(func=ast.Name(id=name), keywords=[]):
                return self._called(name, [self.result(argument) for argument in node.args])
            case _:
                return self._calculated(node)

    def _calculated(self, node: ast.expr) -> object:
        match node:
            case ast.Constant() if type(node.value) in (int, float, str):
                result: object = node.value
            case ast.UnaryOp(op=ast.USub()):
                result = -_single(self.result(node.operand))
            case ast.BinOp() if type(node.op) in _SIGNS:
                sides = _single(self.result(node.left)), _single(self.result(node.right))
                result = _SIGNS[type(node.op)](*sides)
            case _:
                raise ExpressionError(f"{ast.unparse(node)!r} is not allowed; {MADE_OF}")
        if isinstance(result, float) and not math.isfinite(result):
            raise ExpressionError(BEYOND)
        return result

    def _called(self, name: str, arguments: list[object]) -> object:
        if name not in self._functions:
            hint = nearest(name, self._functions) or f"; known: {', '.join(self._functions)}"
            raise ExpressionError(f"{name}(…) is not known{hint}")
        try:
            return self._functions[name](*arguments)
        except TypeError:
            wanted = inspect.signature(self._functions[name])  # too slow for each call
            try:
                wanted.bind(*arguments)
            except TypeError:
                raise ExpressionError(f"{name}(…) takes {', '.join(wanted.parameters)}") from None
            raise


def _stepped(operand: object, key: object) -> object:
    """The field, element or elements of an operand under a key."""
    if not isinstance(key, str | int | slice):
        raise ExpressionError("only a whole number or a word in quotes may stand in [ ]")
    if isinstance(operand, tuple) and isinstance(key, int | slice):
        try:
            return operand[key]
        except IndexError:
            raise ExpressionError(f"a list of {len(operand)} has no element {key}") from None
    if not hasattr(operand, "step"):
        raise ExpressionError(f"{getattr(operand, 'formula', operand)} has no {key!r}")
    return operand.step(key)


def _single(operand: object) -> Any:  # noqa: ANN401
    """The operand unless it is text or a list, which Python would join and repeat."""
    if isinstance(operand, str):
        raise ExpressionError("arithmetic on text is not allowed")
    if isinstance(operand, tuple):
        raise ExpressionError(SINGLE)
    return operand


def _parsed(text: str) -> ast.expr:
    """The tree of a text, a filter being the call that it stands for."""
    line = " ".join(text.split())
    if "#" in line:  # what follows would be a comment
        raise ExpressionError(f"'#' is not allowed; {MADE_OF}")
    if line.startswith("{{"):
        raise ExpressionError("write it without {{ and }}, which stand in texts alone")
    try:
        tree = ast.parse(line, mode="eval").body
        return _Filters().visit(tree) if "|" in line else tree
    except SyntaxError as error:
        raise ExpressionError(f"not an expression: {error.msg}; {MADE_OF}") from None
    except (RecursionError, MemoryError, ValueError):
        raise ExpressionError("not an expression") from None


class _Filters(ast.NodeTransformer):
    """Makes of `a | f(x)` the call that it stands for."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """A filter, or arithmetic, which stays as it is."""
        self.generic_visit(node)
        match node:
            case ast.BinOp(op=ast.BitOr(), right=ast.Name() as name):
                return ast.copy_location(ast.Call(name, [node.left], []), node)
            case ast.BinOp(op=ast.BitOr(), right=ast.Call() as call):
                call.args.insert(0, node.left)
                return ast.copy_location(call, node)
        return node

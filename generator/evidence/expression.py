"""The sandbox: what an author may write between the braces, and how it is evaluated.

An expression is parsed by Jinja2, every node of its syntax tree is checked against an allow-list,
and only then is it calculated, by a walk whose attribute access knows nothing but `Node.step`.
There are no statements, no powers, no repetition, no comparison and no call but the named ones: a
filter may be written as a function, `mean(a) - mean(b)`, and a law of
`runners/plans/closed_forms.py` is one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from jinja2 import Environment, nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.parser import Parser

from generator.content.errors import nearest
from generator.evidence.calculation import Calculation
from generator.evidence.filters import FILTERS, LABELS, described
from generator.evidence.paths import Node
from generator.evidence.value import ExpressionError, is_finite
from runners.plans.closed_forms import LAWS

MAX_CHARACTERS = 240
MAX_BRACKETS = 50  # a parser that meets more may leave the stack, which others may have made larger
BEYOND = "a number beyond what can be calculated with"
CLAIM_CALLS = ("verdict", "holds", "showed", "predicted", "observed")
FUNCTIONS: dict[str, Callable[..., object]] = {**FILTERS, **LAWS}
CALLS = (*LABELS, *CLAIM_CALLS, *FUNCTIONS)
_WITH_ARGUMENT = ("digits", "each")  # filters that take one beside what they are applied to
_MAY_TAKE_ARGUMENT = ("ended",)
_REFUSED: dict[type[nodes.Node], str] = {
    nodes.Pow: "a power (**)",
    nodes.Mod: "a remainder (%)",
    nodes.FloorDiv: "a floor division (//)",
    nodes.Concat: "joining text (~)",
    nodes.Compare: "a comparison",
    nodes.And: "a condition (and)",
    nodes.Or: "a condition (or)",
    nodes.Not: "a condition (not)",
    nodes.Test: "a test (is)",
    nodes.CondExpr: "a condition (if)",
    nodes.List: "a list",
    nodes.Tuple: "a list",
    nodes.Dict: "a dict",
    nodes.Pos: "a sign (+)",
    nodes.Slice: "a slice here",
}


def _step(thing: object, key: object) -> object:
    if isinstance(thing, Node) and isinstance(key, int | str | slice):
        return thing.step(key)
    if isinstance(thing, tuple) and isinstance(key, int | slice):
        try:
            return thing[key]
        except IndexError:
            raise ExpressionError(f"a list of {len(thing)} has no element {key}") from None
    raise ExpressionError(f"{described(thing)} has no {key!r}")


ENVIRONMENT = Environment(autoescape=False)  # it parses, and renders nothing
ENVIRONMENT.globals.clear()
ENVIRONMENT.tests.clear()


class _Parser(Parser):
    """Jinja2's, which remembers what stands in parentheses.

    To Jinja2 `a + b|digits(4)` rounds b alone; a reader expects the sum to be rounded. So neither
    goes without parentheses.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._in_parentheses: list[nodes.Node] = []

    def parse_primary(self, *arguments: Any, **more: Any) -> nodes.Expr:
        """A name, a number, or what stands in parentheses."""
        is_open = self.stream.current.type == "lparen"
        node = super().parse_primary(*arguments, **more)
        self._in_parentheses += [node] if is_open else []
        return node

    def refuse_mixed(self, tree: nodes.Expr) -> None:
        """Refuse arithmetic on what a filter gives, unless that stands in parentheses.

        Raises:
            ExpressionError: there is such.
        """
        sums = [*tree.find_all(nodes.BinExpr), *([tree] if isinstance(tree, nodes.BinExpr) else [])]
        for one in sums:
            for side in (one.left, one.right):
                is_bare = all(side is not known for known in self._in_parentheses)
                if isinstance(side, nodes.Filter) and is_bare:
                    sign, name = one.operator, side.name
                    raise ExpressionError(
                        f"|{name} beside {sign} needs parentheses: (a {sign} b)|{name} takes it of "
                        f"the whole, a {sign} (b|{name}) of one part"
                    )


def _check(node: nodes.Node) -> None:
    """Refuse any node that is not on the list, and so on for what it holds."""
    for kind, check in _ALLOWED.items():
        if isinstance(node, kind):
            check(node)
            return
    if (
        isinstance(node, nodes.Const)
        and isinstance(node.value, float)
        and not is_finite(node.value)
    ):
        raise ExpressionError(BEYOND)
    if not _is_plain(node, (int, float, str)):
        raise ExpressionError(f"{_REFUSED.get(type(node), 'this')} is not allowed")


def _check_arithmetic(node: nodes.BinExpr) -> None:
    _check_operand(node.left)
    _check_operand(node.right)


def _check_attribute(node: nodes.Getattr) -> None:
    _check_name(node.attr)
    _check(node.node)


def _check_item(node: nodes.Getitem) -> None:
    _check_subscript(node.arg)
    _check(node.node)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise ExpressionError(f"{name!r} is not a field of a trace")


def _check_operand(node: nodes.Expr) -> None:
    if isinstance(node, nodes.Const) and not _is_plain(node, (int, float)):
        raise ExpressionError("arithmetic on text is not allowed")
    _check(node)


def _is_plain(node: nodes.Node | None, types: tuple[type, ...]) -> bool:
    return isinstance(node, nodes.Const) and type(node.value) in types


def _is_position(node: nodes.Node | None) -> bool:
    inside = node.node if isinstance(node, nodes.Neg) else node
    return _is_plain(inside, (int,))


def _check_subscript(node: nodes.Expr) -> None:
    if isinstance(node, nodes.Slice):
        if node.step is not None:
            raise ExpressionError("a slice with a step is not allowed")
        if all(end is None or _is_position(end) for end in (node.start, node.stop)):
            return
    elif _is_position(node):
        return
    elif _is_plain(node, (str,)):
        _check_name(cast("nodes.Const", node).value)
        return
    raise ExpressionError("only a whole number or a word in quotes may stand in [ ]")


def _check_filter(node: nodes.Filter) -> None:
    if node.name not in FILTERS:
        raise ExpressionError(f"unknown filter {node.name!r}{nearest(node.name, FILTERS)}")
    if node.node is None:
        raise ExpressionError("a filter needs something before it")
    _check_arguments(node.name, node)
    expected = 1 if node.name in _WITH_ARGUMENT else 0
    if len(node.args) not in (expected, expected + (node.name in _MAY_TAKE_ARGUMENT)):
        raise ExpressionError(f"|{node.name} takes {'an' if expected else 'no'} argument")
    _check(node.node)


def _check_call(node: nodes.Call) -> None:
    if not isinstance(node.node, nodes.Name) or node.node.name not in CALLS:
        name = getattr(node.node, "name", None) or getattr(node.node, "attr", "this")
        raise ExpressionError(f"{name}(…) is not allowed; calls: {', '.join(CALLS)}")
    name = node.node.name
    if name in FUNCTIONS:
        _check_function(name, node)
        return
    if len(node.args) != 1:
        raise ExpressionError(f"{name}(…) takes one argument")
    if name in LABELS and not isinstance(node.args[0], nodes.Const):
        _check_named_arguments(name, node)
        _check(node.args[0])
    else:
        _check_arguments(name, node)
        wanted: type = int if name in LABELS else str
        if not _is_plain(node.args[0], (wanted,)):
            kind = "a whole number" if wanted is int else "a claim's id in quotes"
            raise ExpressionError(f"{name}(…) takes {kind}")


def _check_function(name: str, node: nodes.Call) -> None:
    """A filter written as a function, `mean(a)`, or a law, `ring_bytes(payload, ranks)`."""
    _check_named_arguments(name, node)
    expected = num_arguments(LAWS[name]) if name in LAWS else 1 + (name in _WITH_ARGUMENT)
    if len(node.args) not in (expected, expected + (name in _MAY_TAKE_ARGUMENT)):
        raise ExpressionError(f"{name}(…) takes {expected} argument{'s' * (expected > 1)}")
    is_filter = name not in LAWS
    if is_filter and not all(_is_plain(one, (int, str)) for one in node.args[1:]):
        raise ExpressionError(f"{name} takes a plain word or number")
    for argument in node.args[:1] if is_filter else node.args:
        (_check_operand if name in LAWS else _check)(argument)


def num_arguments(law: Callable[..., Any]) -> int:
    """How many values a law takes."""
    return len(inspect.signature(law).parameters)


def _check_named_arguments(name: str, node: nodes.Call | nodes.Filter) -> None:
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"{name} takes no named arguments")


def _check_arguments(name: str, node: nodes.Call | nodes.Filter) -> None:
    _check_named_arguments(name, node)
    if not all(_is_plain(argument, (int, str)) for argument in node.args):
        raise ExpressionError(f"{name} takes a plain word or number")


_ALLOWED: dict[type[nodes.Node], Callable[[Any], None]] = {
    nodes.Add: _check_arithmetic,
    nodes.Sub: _check_arithmetic,
    nodes.Mul: _check_arithmetic,
    nodes.Div: _check_arithmetic,
    nodes.Neg: lambda node: _check_operand(node.node),
    nodes.Getattr: _check_attribute,
    nodes.Getitem: _check_item,
    nodes.Filter: _check_filter,
    nodes.Call: _check_call,
    nodes.Name: lambda node: _check_name(node.name),
}


class Expression:
    """One checked expression.

    Attributes:
        text: what the author wrote, its white space folded.
        names: the names it starts from, without those it calls.
        is_constant: nothing but a number or a word.
    """

    def __init__(self, text: str) -> None:
        """Parse and check.

        Raises:
            ExpressionError: the syntax is broken or not on the allow-list.
        """
        self.text = " ".join(text.split())
        if len(self.text) > MAX_CHARACTERS:
            raise ExpressionError(f"longer than {MAX_CHARACTERS} characters")
        if sum(map(self.text.count, "([{")) > MAX_BRACKETS:
            raise ExpressionError(f"not an expression: more than {MAX_BRACKETS} brackets")
        tree = parsed(self.text)
        try:
            _check(tree)
        except RecursionError:
            raise ExpressionError("nested too deeply") from None
        inside = [tree, *tree.find_all(nodes.Node)]
        calls = (one.node for one in inside if isinstance(one, nodes.Call))
        called = {one.name for one in calls if isinstance(one, nodes.Name)}
        self.names = {one.name for one in inside if isinstance(one, nodes.Name)} - called
        self._called = called | {one.name for one in inside if isinstance(one, nodes.Filter)}
        self._functions = {name: FUNCTIONS[name] for name in called if name in FUNCTIONS}
        self.is_constant = isinstance(tree, nodes.Const)
        self._tree = tree

    def calls(self, name: str) -> bool:
        """Whether it calls a function, or applies a filter, of this name."""
        return name in self._called

    def evaluate(self, roots: Mapping[str, object]) -> object:
        """The result over named roots.

        Raises:
            ExpressionError: a name is unknown, or the arithmetic makes no sense.
            AbsentError: this machine lacks what is asked for.
        """
        for name in sorted(self.names - set(roots)):
            known = [root for root in roots if root not in CALLS]
            raise ExpressionError(f"unknown name {name!r}{nearest(name, known)}")
        try:
            names = {**ENVIRONMENT.globals, **roots, **self._functions}
            return _finite(Calculation(names, _step, FILTERS).result(self._tree))
        except (TypeError, OverflowError, ZeroDivisionError) as error:
            raise ExpressionError(_arithmetic_said(error)) from None


def _finite(result: object) -> object:
    """A result that is no number beyond what can be calculated with."""
    if isinstance(result, int | float) and not is_finite(result):
        raise ExpressionError(BEYOND)
    return result


def _arithmetic_said(error: Exception) -> str:
    if isinstance(error, ZeroDivisionError):
        return "divides by zero"
    if isinstance(error, TypeError):
        return "only single values can be calculated with; go on to one field of a group or list"
    return str(error)


@lru_cache(maxsize=65536)
def parsed(text: str) -> nodes.Expr:
    """The syntax tree of an expression, not checked yet; the same text is parsed once.

    Raises:
        ExpressionError: it is none.
    """
    try:
        parser = _Parser(ENVIRONMENT, text, state="variable")
        tree = parser.parse_expression()
        parser.refuse_mixed(tree)
        if not parser.stream.eos:
            raise ExpressionError(f"unexpected {parser.stream.current.value!r}")
    except TemplateSyntaxError as error:
        raise ExpressionError(f"not an expression: {error.message}") from None
    except SyntaxError:  # of Python's own reader, to which Jinja2 gives what looks like a number
        raise ExpressionError(
            "not an expression: a number is written in the digits 0 to 9"
        ) from None
    except (RecursionError, ValueError, OverflowError) as error:
        if isinstance(error, ExpressionError):
            raise
        raise ExpressionError("not an expression") from None
    return tree


@lru_cache(maxsize=65536)
def compiled(text: str) -> Expression:
    """The expression of a text, parsed once.

    Raises:
        ExpressionError: as `Expression`.
    """
    return Expression(text)

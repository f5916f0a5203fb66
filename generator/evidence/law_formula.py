"""A claim's rule as readers see it: printed from its expressions, in words for what they read.

In: a claim. Out: `peak = 3 × model bytes`, or None where the rule reads something that has no short
name; then the claim's own `formula:` says what the expressions cannot.
"""

from __future__ import annotations

import re
from functools import lru_cache

from jinja2 import nodes

from generator.content.claim import Claim, Tolerance
from generator.evidence import expression
from generator.evidence.formula import Symbol, Tree, symbol_of
from generator.evidence.value import ExpressionError
from runners.plans.closed_forms import LAWS

SIGNS = {
    "equals": "=", "at_least": "≥", "at_most": "≤", "above": ">", "below": "<", "differs": "≠",
}  # fmt: skip
ROUGHLY = 1e-4  # a law that may be off by more than this share says ≈
FORMS = frozenset({"digits", "percent", "times", "exact", "word", "median"})  # how it is printed
OVER_RANKS = {"largest": "largest", "smallest": "smallest", "mean": "mean", "total": "Σ"}
OF_COUNTS = {"largest": "most", "smallest": "fewest"}
_PARTS: dict[type[nodes.BinExpr], str] = {
    nodes.Add: "+", nodes.Sub: "-", nodes.Mul: "*", nodes.Div: "/",
}  # fmt: skip
_NAMED = {
    "world_size": "ranks",
    "model.bytes": "model bytes",
    "model.num_parameters": "parameters",
    "num_parameters": "parameters per rank",
    "budget_bytes": "budget",
    "settings.learning_rate": "rate",
    "memory.peak_bytes": "peak",
    "memory.phases.held": "bytes held",
    "memory.largest.optimizer_bytes": "optimizer state held",
    "validation.loss": "validation loss",
}
_PATTERNS = (
    (re.compile(r"settings\.(?:num_)?(\w+)"), "{}"),
    (re.compile(r"measures\.(?:num_)?(\w+)"), "{}"),
    (re.compile(r"memory\.(?:largest|at_peak)\.(\w+)_bytes"), "{} held"),
)
_CALLED = re.compile(r"collectives\.(\w+)\.(bytes|count)")
_GIVEN = ("settings.", "model.", "world_size", "budget_bytes")
_LETTER = re.compile(r"`[^`]*`|\{\{.*?\}\}|(?<!['’])\b([b-zA-HJ-Z])\b")  # `a` is a word as well
_SPELLED = re.compile(r"\d{4,}|_\d")  # a size within a field's name


class _Unsaid(Exception):  # noqa: N818 - caught where it is raised from
    """The rule reads something that has no short name."""


def shown(claim: Claim) -> str | None:
    """What a page prints as a claim's formula: the author's, else its rule's, as a Line."""
    return _LETTER.sub(_as_code, claim.formula) if claim.formula else printed(claim)


def _as_code(found: re.Match[str]) -> str:
    """A symbol in the words beside a formula looks as it does in the formula."""
    return f"`{found[1]}`" if found[1] else found[0]


def printed(claim: Claim) -> str | None:
    """A claim's rule as a Line, where its prediction is worked out of what the run was given."""
    sides = (claim.predicted, claim.relation, claim.observed)
    return _printed(*sides, _is_rough(claim.tolerance))


@lru_cache(maxsize=4096)
def named(path: str) -> str | None:
    """The short name of what a run was given, such as `model bytes`; None where it has none."""
    try:
        return _words(_tree(expression.parsed(path), is_given=True))
    except (_Unsaid, ExpressionError):
        return None


@lru_cache(maxsize=4096)
def _printed(predicted: str, relation: str, observed: str, is_rough: bool) -> str | None:
    if relation not in SIGNS:
        return None
    try:
        right = _tree(expression.parsed(predicted), is_given=True)
        left = _tree(expression.parsed(observed), is_given=False)
    except (_Unsaid, ExpressionError):
        return None
    if not _has_words(right) or right == left:
        return None
    sign = "≈" if is_rough and relation == "equals" else SIGNS[relation]
    return f"`{_words(left)} {sign} {_words(right)}`"


def _is_rough(tolerance: Tolerance | None) -> bool:
    return tolerance is not None and (tolerance.share or tolerance.amount or 0) > ROUGHLY


def _has_words(tree: Tree) -> bool:
    return isinstance(tree, str) or (isinstance(tree, tuple) and any(map(_has_words, tree[1:])))


def _words(tree: Tree) -> str:
    return symbol_of(tree).written().replace(" * ", " × ").replace(" - ", " − ")


def _tree(node: nodes.Node, *, is_given: bool) -> Tree:
    """An expression as a formula over words."""
    if isinstance(node, nodes.Const) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, nodes.BinExpr) and type(node) in _PARTS:
        left, right = (_tree(one, is_given=is_given) for one in (node.left, node.right))
        return (_PARTS[type(node)], left, right)
    if isinstance(node, nodes.Call) and isinstance(node.node, nodes.Name):
        return _called(node.node.name, node.args, is_given=is_given)
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _called(node.name, [node.node, *node.args], is_given=is_given)
    return _word(node, is_given=is_given)


def _called(name: str, arguments: list[nodes.Expr], *, is_given: bool) -> Tree:
    """A law worked out over words, or a filter's words."""
    if name in LAWS:
        values = [symbol_of(_tree(one, is_given=is_given)) for one in arguments]
        found: Symbol = LAWS[name](*values)
        return found.tree
    if name in FORMS:
        return _tree(arguments[0], is_given=is_given)
    if name == "each" and not is_given:
        path = nodes.Call(nodes.Name(name, "load"), arguments, [], None, None)
        return f"{_word(path, is_given=False).removesuffix(' per rank')} on each rank"
    if name in OVER_RANKS and not is_given:
        is_count = _steps(arguments[0])[-1].startswith("num_")
        over = OF_COUNTS.get(name) if is_count else None
        return f"{over or OVER_RANKS[name]} {_word(arguments[0], is_given=is_given)}"
    raise _Unsaid


def _word(node: nodes.Node, *, is_given: bool) -> str:
    """The short name of what a path leads to."""
    first, *steps = (one for one in _steps(node) if not one.isdigit())
    path = ".".join(steps if first in ("run", "other") else steps[1:]).removeprefix("ranks.")
    if is_given and not path.startswith(_GIVEN):
        raise _Unsaid
    if path in _NAMED:
        return _NAMED[path]
    for pattern, words in _PATTERNS:
        found = pattern.fullmatch(path)
        if found and not _SPELLED.search(found[1]):
            return words.format(found[1].replace("_", " "))
    found = _CALLED.fullmatch(path)
    if found:
        return f"{'calls' if found[2] == 'count' else found[2]} of {found[1]}"
    raise _Unsaid


def _steps(node: nodes.Node) -> list[str]:
    """The steps of a path from the run on, which is the first of them."""
    if isinstance(node, nodes.Name):
        return [node.name]
    if isinstance(node, nodes.Getattr):
        return [*_steps(node.node), node.attr]
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const | nodes.Neg):
        key = node.arg.value if isinstance(node.arg, nodes.Const) else 0
        return [*_steps(node.node), str(key)]
    if isinstance(node, nodes.Filter) and node.name == "each" and node.node is not None:
        return [*_steps(node.node), *str(node.args[0].as_const()).split(".")]
    if isinstance(node, nodes.Call) and getattr(node.node, "name", "") == "each":
        return [*_steps(node.args[0]), *str(node.args[1].as_const()).split(".")]
    raise _Unsaid

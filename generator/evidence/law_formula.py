"""A claim's rule as readers see it: printed from its expressions, in words for what they read.

`printed(claim)` gives `peak = 3 × model bytes`, or None where the rule reads something that has no
short name. The expressions are evaluated over words instead of values, so laws are written out.
"""

from __future__ import annotations

import re
from functools import lru_cache

from generator.content.claim import Claim, Tolerance
from generator.evidence import formula
from generator.evidence.expression import Function, compiled
from generator.evidence.formula import Symbol, names_of
from generator.evidence.value import ExpressionError
from runners.plans.closed_forms import LAWS

SIGNS = {
    "equals": "=", "at_least": "≥", "at_most": "≤", "above": ">", "below": "<", "differs": "≠",
}  # fmt: skip
ROUGHLY = 1e-4  # a law that may be off by more than this share says ≈
FORMS = frozenset({"digits", "percent", "times", "exact", "word", "median"})  # how it is printed
OVER_RANKS = {"largest": "largest", "smallest": "smallest", "mean": "mean", "total": "Σ"}
OF_COUNTS = {"largest": "most", "smallest": "fewest"}
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
        return _in_words(path, is_given=True)[0]
    except ExpressionError:
        return None


@lru_cache(maxsize=4096)
def _printed(predicted: str, relation: str, observed: str, is_rough: bool) -> str | None:
    if relation not in SIGNS:
        return None
    try:
        right, has_words = _in_words(predicted, is_given=True)
        left, _ = _in_words(observed, is_given=False)
    except ExpressionError:
        return None
    sign = "≈" if is_rough and relation == "equals" else SIGNS[relation]
    return f"`{left} {sign} {right}`" if has_words and right != left else None


def _is_rough(tolerance: Tolerance | None) -> bool:
    return tolerance is not None and (tolerance.share or tolerance.amount or 0) > ROUGHLY


def _in_words(text: str, *, is_given: bool) -> tuple[str, bool]:
    """An expression over words, and whether there are any.

    Raises:
        ExpressionError: it reads something that has no short name.
    """
    expression = compiled(text)
    places = {name: _Place(name) for name in expression.names}
    tree = expression.formula(places, _OF_PLACES)
    words = {path: _word(path, is_given=is_given) for path in names_of(tree)}
    said = formula.printed(tree, words).replace(" * ", " × ").replace(" - ", " − ")
    return said, bool(words)


class _Place(Symbol):
    """A place of a trace, whose path is a symbol."""

    def step(self, key: str | int | slice) -> _Place:
        """What lies below it; the elements of a list have one name."""
        return _Place(f"{self.tree}.{key}") if isinstance(key, str) else self


def _each(place: _Place, path: str) -> _Place:
    return _Place(f"each {place.tree}.{path}")


def _over_ranks(name: str) -> Function:
    def gather(place: _Place) -> Symbol:
        return Symbol(f"{name} {str(place.tree).removeprefix('each ')}")

    return gather


_OF_PLACES: dict[str, Function] = {
    **LAWS,
    **dict.fromkeys(FORMS, lambda place, *_: place),
    **{name: _over_ranks(name) for name in OVER_RANKS},
    "each": _each,
}


def _word(name: str, *, is_given: bool) -> str:
    """The short name of what a path leads to, and of what is made of it over the ranks."""
    over, _, path = name.rpartition(" ")
    first, *steps = path.split(".")
    path = ".".join(steps if first in ("run", "other") else steps[1:]).removeprefix("ranks.")
    word = _short_name(path)
    if word is None or (is_given and (over or not path.startswith(_GIVEN))):
        raise ExpressionError(f"{path} has no short name")
    if over == "each":
        return f"{word.removesuffix(' per rank')} on each rank"
    is_count = steps[-1].startswith("num_") and over in OF_COUNTS
    return f"{(OF_COUNTS if is_count else OVER_RANKS)[over]} {word}" if over else word


def _short_name(path: str) -> str | None:
    if path in _NAMED:
        return _NAMED[path]
    for pattern, words in _PATTERNS:
        found = pattern.fullmatch(path)
        if found and not _SPELLED.search(found[1]):
            return words.format(found[1].replace("_", " "))
    called = _CALLED.fullmatch(path)
    return called and f"{'calls' if called[2] == 'count' else called[2]} of {called[1]}"

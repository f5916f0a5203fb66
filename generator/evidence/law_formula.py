"""A claim's rule as readers see it: printed from its expressions, in words for what they read.

`printed(claim)` gives `peak = 3 × model bytes` or `peak of split < peak of single`, or None where
the rule reads something that has no short name. The expressions are evaluated over words instead
of values, so laws are written out.
"""

from __future__ import annotations

import re
from functools import lru_cache

from generator.content.claim import Claim, Tolerance
from generator.evidence import formula
from generator.evidence.expression import Function, compiled
from generator.evidence.formula import Symbol, Tree, names_of
from generator.evidence.value import ExpressionError
from runners.plans.closed_forms import LAWS

SIGNS = {
    "equals": "=", "at_least": "≥", "at_most": "≤", "above": ">", "below": "<", "differs": "≠",
}  # fmt: skip
ROUGHLY = 1e-4  # a law that may be off by more than this share says ≈
FORMS = frozenset({"digits", "percent", "times", "exact", "word", "median", "unit"})  # as printed
OVER_RANKS = {"largest": "largest", "smallest": "smallest", "mean": "mean", "total": "Σ"}
OF_COUNTS = {"largest": "most", "smallest": "fewest"}
_NAMED = {
    "world_size": "ranks",
    "model.bytes": "model bytes",
    "model.value_bytes": "bytes per value",
    "model.num_parameters": "parameters",
    "num_parameters": "parameters per rank",
    "budget_bytes": "budget",
    "settings.learning_rate": "rate",
    "memory.peak_bytes": "peak",
    "memory.phases.held": "bytes held",
    "memory.largest.optimizer_bytes": "optimizer state held",
    "measures.num_wrong": "wrong sums",
    "measures.num_distinct": "distinct replicas",
    "prediction.samples.facts.num_given": "samples given",
    "validation.loss": "validation loss",
    "validation.accuracy": "validation accuracy",
    "epochs.loss": "loss",
    "epochs.0.loss": "loss",
    "epochs.-1.loss": "loss",
    "step_losses": "loss of each step",
    "step_losses.-1": "last loss",
    "num_samples": "samples per rank",
    "parameter_digest": "digest of parameters",
    "error.requested_bytes": "bytes requested",
    "error.step": "step of the error",
    "model.layers.0.bytes": "bytes of the first layer",
    "timing.step": "step time",
    "timing.step.median_seconds": "step time",
}
_PATTERNS = (
    (re.compile(r"settings\.(?:num_)?(\w+)(?:\.-?\d)?"), "{}"),
    (re.compile(r"measures\.(?:num_)?(\w+)"), "{}"),
    (re.compile(r"timing\.measures\.(\w+)"), "{} time"),
    (re.compile(r"timing\.ranks\.(?:\d\.)?(\w+?)(?:_seconds)?"), "{}"),
    (re.compile(r"prediction\.\w+\.facts\.(?:num_)?(\w+)"), "{}"),
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
    """A claim's rule as a Line; None where it reads something that has no short name."""
    sides = (claim.predicted, claim.relation, claim.observed)
    return _printed(*sides, _is_rough(claim.tolerance), tuple(claim.names.items()))


@lru_cache(maxsize=4096)
def _printed(
    predicted: str, relation: str, observed: str, is_rough: bool, runs: tuple[tuple[str, str], ...]
) -> str | None:
    if relation not in SIGNS:
        return None
    try:
        right, left = _tree(predicted), _tree(observed)
        words = _words([*names_of(left), *names_of(right)], dict(runs))
    except ExpressionError:
        return None
    sign = "≈" if is_rough and relation == "equals" else SIGNS[relation]
    first, last = (
        formula.printed(tree, words).replace(" * ", " × ").replace(" - ", " − ")
        for tree in (left, right)
    )
    return f"`{first} {sign} {last}`" if names_of(left) and first != last else None


def _is_rough(tolerance: Tolerance | None) -> bool:
    return tolerance is not None and (tolerance.share or tolerance.amount or 0) > ROUGHLY


def _tree(text: str) -> Tree:
    """An expression over the places that it reads.

    Raises:
        ExpressionError: it comes to something else than a formula.
    """
    expression = compiled(text)
    return expression.formula({name: _Place(name) for name in expression.names}, _OF_PLACES)


class _Place(Symbol):
    """A place of a trace, whose path is a symbol."""

    def step(self, key: str | int | slice) -> _Place:
        """What lies below it; several elements of a list have one name."""
        return self if isinstance(key, slice) else _Place(f"{self.tree}.{key}")


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
    "epsilon": lambda *_: Symbol("ε"),
}


class _Read:
    """What a path of a rule leads to.

    Attributes:
        word: its short name, with what is made of it over the ranks.
        run: the run's name; `run` or `other` where the rule is over several.
        rank: the position of the only rank that it is of, or empty.
        is_given: whether the run was given it, and did not measure it.
    """

    def __init__(self, name: str) -> None:
        """Name it.

        Raises:
            ExpressionError: it has no short name.
        """
        over, _, path = name.rpartition(" ")
        first, *steps = path.split(".")
        self.run = first if first in ("run", "other") else steps.pop(0) if steps else ""
        is_of_rank = steps[:1] == ["ranks"] and steps[1:2] != [] and steps[1].isdigit()
        self.rank = steps.pop(1) if is_of_rank else ""
        path = ".".join(steps).removeprefix("ranks.")
        word = "ε" if name == "ε" else _short_name(path)
        if word is None:
            raise ExpressionError(f"{path} has no short name")
        is_count = bool(steps) and steps[-1].startswith("num_") and over in OF_COUNTS
        if over == "each":
            of_each = "of each epoch" if path.startswith("epochs.") else "on each rank"
            word = f"{word.removesuffix(' per rank')} {of_each}"
        elif over:
            word = f"{(OF_COUNTS if is_count else OVER_RANKS)[over]} {word}"
        self.word, self.is_given = word, name == "ε" or path.startswith(_GIVEN)

    def told_apart(self, runs: dict[str, str], *, by_run: bool) -> str:
        """Its word with its run, or else with its rank."""
        run = runs.get(self.run, self.run).rpartition(".")[2]
        return f"{self.word} of {run if by_run else f'rank {self.rank}'}"


def _words(paths: list[str], runs: dict[str, str]) -> dict[str, str]:
    """A word for each path; what several runs measured is told apart by run, else by rank.

    Raises:
        ExpressionError: one has no short name, or two cannot be told apart.
    """
    found = {path: _Read(path) for path in paths}
    measured = {one.run for one in found.values() if not one.is_given}
    words = {}
    for path, one in found.items():
        alike = [other for other in found.values() if other.word == one.word]
        by_run = len({other.run for other in alike}) > 1
        if by_run or (len(measured) > 1 and not one.is_given):
            words[path] = one.told_apart(runs, by_run=True)
        else:
            words[path] = one.told_apart(runs, by_run=False) if len(alike) > 1 else one.word
    if len(set(words.values())) < len(words):
        raise ExpressionError("reads two fields that have one name")
    return words


def _short_name(path: str) -> str | None:
    if path in _NAMED:
        return _NAMED[path]
    for pattern, words in _PATTERNS:
        found = pattern.fullmatch(path)
        if found and not _SPELLED.search(found[1]):
            return words.format(found[1].replace("_", " "))
    called = _CALLED.fullmatch(path)
    return called and f"{'calls' if called[2] == 'count' else called[2]} of {called[1]}"

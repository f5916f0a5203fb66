"""A law as readers see it: its rule in words, its run, both sides, and how far they are apart.

`printed(claim)` gives `peak = 3 × model bytes` or `peak of split < peak of single`, or None where
the rule reads something that has no short name. The expressions are evaluated over words instead
of values, so laws are written out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from proofbook.generator.content.claim import Claim, NumberTolerance, Relation
from proofbook.generator.values import formula, units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.expression import Function, compiled
from proofbook.generator.values.formula import Symbol, Tree, names_of
from proofbook.generator.values.laws import closed_forms
from proofbook.generator.values.value import ExpressionError, Value
from proofbook.generator.values.verdicts import TIMED

SIGNS: dict[Relation, str] = {  # of what is observed to what is predicted; of times, the shorter
    "equals": "=", "at_least": "≥", "at_most": "≤", "above": ">", "below": "<", "differs": "≠",
    "faster": "<", "slower": ">",
}  # fmt: skip
EPSILON = "ε"
ROUGHLY = 1e-4  # a law that may be off by more than this share says ≈
FORMS = frozenset({"digits", "percent", "times", "exact", "word", "median", "unit"})  # as printed
OVER_RANKS = {"largest": "largest", "smallest": "smallest", "mean": "mean", "total": "Σ"}
OF_COUNTS = {"largest": "most", "smallest": "fewest"}
# What the fields of a run are called: the first pattern that a path is, with its word.
_WORDS = tuple((re.compile(path), word) for path, word in (
    (r"world_size", "ranks"),
    (r"model\.bytes", "model bytes"),
    (r"model\.value_bytes", "bytes per value"),
    (r"model\.layers\.0\.bytes", "bytes of the first layer"),
    (r"num_parameters", "parameters per rank"),
    (r"num_samples", "samples per rank"),
    (r"budget_bytes", "budget"),
    (r"settings\.learning_rate", "rate"),
    (r"memory\.peak_bytes", "peak"),
    (r"memory\.phases\.held", "bytes held"),
    (r"memory\.largest\.optimizer_bytes", "optimizer state held"),
    (r"memory\.(?:largest|at_peak)\.(\w+)_bytes", "{} held"),
    (r"validation\.(loss|accuracy)", "validation {}"),
    (r"epochs\.(?:0\.|-1\.)?loss", "loss"),
    (r"step_losses", "loss of each step"),
    (r"parameter_digest", "digest of parameters"),
    (r"error\.requested_bytes", "bytes requested"),
    (r"error\.step", "step of the error"),
    (r"collectives\.(\w+)\.bytes", "bytes of {}"),
    (r"collectives\.(\w+)\.count", "calls of {}"),
    (r"timing\.step(?:\.median_seconds)?", "step time"),
    (r"timing\.measures\.(\w+)", "{} time"),
    (r"timing\.ranks\.(?:\d\.)?(\w+?)(?:_seconds)?", "{}"),
    (r"settings\.(?:num_)?(\w+)(?:\.-?\d)?", "{}"),
    (r"(?:measures|model|prediction\.\w+\.facts)\.(?:num_)?(\w+)", "{}"),
))  # fmt: skip
_CODE, _NO_FORMULA = re.compile(r"`([^`]+)`"), re.compile(r"^\w{2,}$|[_*\[](?![^{]*\}\})")
# Neither an article, nor a unit of bytes behind a number, nor what an expression reads.
_LETTER = re.compile(r"(?<![A-Za-z'{_-])(?!a [a-z]{2})((?<!\d )B|[AC-Za-z])(?![A-Za-z0-9_-])")
_GIVEN = ("settings.", "model.", "world_size", "budget_bytes")
_SPELLED = re.compile(r"\d{4,}|_\d")  # a size within a field's name


def formula_of(claim: Claim) -> str | None:
    """A claim's formula as a Line: the author's, else the printed rule."""
    return claim.formula or printed(claim)


def as_prose(text: str) -> str:
    """A formula with its letters as the text around it has them: italic, and words upright."""
    return _CODE.sub(
        lambda code: code[0] if _NO_FORMULA.search(code[1]) else _LETTER.sub(r"*\1*", code[1]), text
    )


def printed(claim: Claim) -> str | None:
    """A claim's rule as text, `a = b`; None for times, constants, and paths without a name."""
    if claim.relation in TIMED:
        return None
    try:
        right, left = _tree(claim.predicted), _tree(claim.observed)
        words = _words([*names_of(left), *names_of(right)])
    except ExpressionError:
        return None
    within = claim.tolerance and (claim.tolerance.share or claim.tolerance.absolute)
    is_rough = claim.relation == "equals" and (within or 0) > ROUGHLY
    first, last = (
        formula.printed(tree, words).replace(" * ", " × ").replace(" - ", " − ")
        for tree in (left, right)
    )
    sign = "≈" if is_rough else SIGNS[claim.relation]
    return f"`{first} {sign} {last}`" if names_of(left) and first != last else None


def _tree(text: str) -> Tree:
    expression = compiled(text)
    places = {name: _Place(name) for name in expression.names}
    return expression.formula(places, {**closed_forms(), **_OF_PLACES})


class _Place(Symbol):
    """A place of a trace, whose path is a symbol."""

    def step(self, key: str | int | slice) -> _Place:
        """What lies below it; several elements of a list have one name."""
        return self if isinstance(key, slice) else _Place(f"{self.tree}.{key}")


_OF_PLACES: dict[str, Function] = {
    **dict.fromkeys(FORMS, lambda place, *_: place),
    **{
        name: lambda place, over=name: Symbol(f"{over} {str(place.tree).removeprefix('each ')}")
        for name in OVER_RANKS
    },
    "each": lambda place, path: _Place(f"each {place.tree}.{path}"),
    "epsilon": lambda *_: Symbol(EPSILON),
}


class _NamedReading(NamedTuple):
    """A path of a rule, named for readers."""

    word: str  # its short name, with what is made of it over the ranks
    run: str = ""  # the run's name
    rank: str = ""  # the position of the only rank that it is of, or empty
    is_given: bool = True  # whether the run was given it, and did not measure it


def _read(name: str) -> _NamedReading:
    """What a name of the formula leads to: a path, with what is made of it over the ranks."""
    if name == EPSILON:
        return _NamedReading(EPSILON)
    over, _, path = name.rpartition(" ")
    run, *steps = path.partition(".")[2].split(".")
    rank = steps.pop(1) if steps[:1] == ["ranks"] and "".join(steps[1:2]).isdigit() else ""
    path = ".".join(steps).removeprefix("ranks.")
    word = _short_name(path)
    if over == "each":
        of_each = "of each epoch" if path.startswith("epochs.") else "on each rank"
        word = f"{word.removesuffix(' per rank')} {of_each}"
    elif over:
        is_count = steps[-1].startswith("num_") and over in OF_COUNTS
        word = f"{(OF_COUNTS if is_count else OVER_RANKS)[over]} {word}"
    return _NamedReading(word, run, rank, path.startswith(_GIVEN))


def _words(paths: list[str]) -> dict[str, str]:
    """A word for each path; what several runs measured is told apart by run, else by rank."""
    readings = {path: _read(path) for path in paths}
    several = len({reading.run for reading in readings.values() if not reading.is_given}) > 1
    words = {}
    for path, reading in readings.items():
        alike = [other for other in readings.values() if other.word == reading.word]
        if (several and not reading.is_given) or len({other.run for other in alike}) > 1:
            words[path] = f"{reading.word} of {reading.run}"
        else:
            of_rank = f" of rank {reading.rank}" if len(alike) > 1 else ""
            words[path] = reading.word + of_rank
    if len(set(words.values())) < len(words):
        raise ExpressionError("reads two fields that have one name")
    return words


def _short_name(path: str) -> str:
    for pattern, word in _WORDS:
        match = pattern.fullmatch(path)
        if match and not match.groups():
            return word
        if match and not _SPELLED.search(match[1]):
            of = match[1] if path.startswith("collectives.") else match[1].replace("_", " ")
            return word.format(of)
    raise ExpressionError(f"{path} has no short name")


def observed_run(claim: Claim, evidence: Evidence) -> str:
    """The run that a claim observes: its own, else the first that its observation reads."""
    _, observed = evidence.sides(claim)
    return claim.run or next(iter(observed.runs), "")


def why_not_numeric(claim: Claim, evidence: Evidence) -> str | None:
    """Message why a claim has no number to print with its measurement; None where it has."""
    for side in ("predicted", "observed"):
        value = getattr(evidence.judged(claim.id), side)
        if claim.relation in TIMED or (value is not None and isinstance(value.number, str)):
            return f"{claim.id} compares no numbers: {side} is {getattr(claim, side)}"
    return None


def in_same_form(
    predicted: Value | None, observed: Value | None
) -> tuple[Value | None, Value | None]:
    """Both sides, to print alike: a typed prediction in the other's unit; rounding, noun of any."""
    if not (predicted and observed and predicted.unit.is_number) or observed.unit == units.TEXT:
        return predicted, observed
    if not predicted.leaves:
        predicted = replace(predicted, unit=observed.unit, form=observed.form)
    elif predicted.form.way in (None, "written"):
        way = "percent" if observed.unit == units.SHARE else observed.form.way
        predicted = replace(predicted, form=replace(predicted.form, way=way))
    if isinstance(observed.number, float):
        predicted = replace(predicted, number=float(predicted.number))
    return _with_noun(predicted, observed), _with_noun(observed, observed)


def _with_noun(value: Value, observed: Value) -> Value:
    """A count or a rank behind what is counted, by the field that was observed."""
    counted = {leaf.origin.counts for leaf in observed.leaves if leaf.origin}
    noun = counted.pop() if len(counted) == 1 else ""
    if value.form.label or not (observed.form.label or observed.unit.style in ("count", "ordinal")):
        return value
    if noun in units.OF_FIELDS and noun != "rank":
        noun = ""
    label = observed.form.label or (noun.removesuffix("s") if value.number == 1 else noun)
    return replace(value, unit=observed.unit, form=replace(value.form, label=label))


def off_by(
    predicted: Value | None, measured: Value | None, tolerance: NumberTolerance | None = None
) -> Value | None:
    """A `Value`: the signed distance of a formula from a measurement, as a share of that.

    It is in their own unit where the tolerance is an amount, and where the measurement is zero.
    None where one of the two is missing or words, and where a typed number, which has no unit, is
    predicted of one that has. ExpressionError if their units differ.
    """
    if not (predicted and measured) or units.TEXT in (predicted.unit, measured.unit):
        return None
    if not predicted.leaves and predicted.unit.is_number and not measured.unit.is_number:
        return None
    difference: Value = predicted - measured
    if measured.number == 0 or (tolerance is not None and tolerance.absolute is not None):
        return difference
    share: Value = difference / measured
    return share.formatted(way="error")

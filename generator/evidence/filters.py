"""The functions that an author may use in an expression: filters, laws and labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from generator.content.claim import EPSILONS
from generator.evidence import units
from generator.evidence.outcome_words import ended
from generator.evidence.paths import Node, field_name
from generator.evidence.value import ExpressionError, Kind, Value, computed, numeric, quotient
from runners.plans.closed_forms import LAWS
from runners.traces.measured import SampledSeconds

Thing = object  # whatever an expression yields: Value, Node, tuple of them, Label


@dataclass(frozen=True)
class Label:
    """Words that print without provenance: a name, `rank 0`, or a verdict."""

    text: str


@dataclass(frozen=True)
class Showed:
    """The sentence that a claim gives for its verdict here; it is rendered in its turn."""

    claim: str


def _one(thing: Thing, filter_name: str) -> Value:
    if isinstance(thing, Value):
        return thing
    raise ExpressionError(f"|{filter_name} wants one value, not {described(thing)}")


def described(thing: Thing) -> str:
    """What a result is, for an error."""
    if isinstance(thing, Value):
        return f"{thing.formula} (a single value)"
    if isinstance(thing, Node):
        return f"{thing.formula} (a group of fields; go on to one of them)"
    if isinstance(thing, tuple):
        return f"a list of {len(thing)} (take one of them, or |largest, |total, |mean)"
    if isinstance(thing, Label):
        return f"the label {thing.text!r}"
    return repr(thing)


def elements(thing: Thing) -> tuple[Thing, ...]:
    """The elements of a list, of a path or made by `each`."""
    if isinstance(thing, Node):
        return thing.elements()
    if isinstance(thing, tuple) and thing:
        return thing
    raise ExpressionError(f"a list is wanted, not {described(thing)}")


def _values(thing: Thing, filter_name: str) -> tuple[Value, ...]:
    return tuple(_one(one, filter_name) for one in elements(thing))


def _made_of(name: str, values: Sequence[Value], thing: Thing) -> str:
    """The formula of what a filter gathers from a list."""
    inside = thing.formula if isinstance(thing, Node) else ", ".join(v.formula for v in values)
    return f"{name}({inside})"


def _same_unit(values: Sequence[Value]) -> units.Unit:
    unit = values[0].unit
    for value in values[1:]:
        try:
            unit = units.of_sum(unit, value.unit)
        except units.UnitError as error:
            raise ExpressionError(str(error)) from None
    return unit


def _gathered(name: str, of: Callable[[list[float]], float]) -> Callable[[Thing], Value]:
    def gather(thing: Thing) -> Value:
        values = _values(thing, name)
        number = of([numeric(value) for value in values])
        formula = _made_of(name, values, thing)
        return computed(number, _same_unit(values), formula, tuple(values))

    return gather


def _as(way: units.Way, wanted: str = "") -> Callable[[Thing], Value]:
    """A filter that prints a value in another way; `wanted` names the only kind of it."""

    def show(thing: Thing) -> Value:
        value = _one(thing, way)
        if wanted and not value.absent and not value.unit.is_number:
            raise ExpressionError(f"|{way} wants a {wanted}, not {value.unit}")
        return value.shown(way=way)

    return show


def _digits(thing: Thing, digits: object) -> Value:
    if not isinstance(digits, int) or not 1 <= digits <= 15:
        raise ExpressionError("|digits wants a whole number from 1 to 15")
    return _one(thing, "digits").shown(digits=digits)


def _absolute(thing: Thing) -> Value:
    value = _one(thing, "absolute")
    return computed(abs(numeric(value)), value.unit, f"|{value.formula}|", (value,))


def _count(thing: Thing) -> Value:
    if not isinstance(thing, Node) or not isinstance(thing.thing, list | dict):
        raise ExpressionError(f"|count wants a list of a trace, not {described(thing)}")
    number = len(thing.thing)  # nothing counts too: an empty list has none
    thing.refuse_if_skipped()
    kind: Kind = "simulated" if thing.origin.nature == "simulated" else "measured"
    origin = thing.origin._replace(field=field_name(thing.steps))
    node = Value(number, units.COUNT, kind, thing.formula, origin=origin)
    return computed(number, units.COUNT, f"count({thing.formula})", (node,))


def _each(thing: Thing, path: object) -> tuple[Thing, ...]:
    if not isinstance(path, str):
        raise ExpressionError("|each wants a path in quotes, as in each('memory.peak_bytes')")
    return tuple(_followed(one, path) for one in elements(thing))


def _flat(thing: Thing) -> tuple[Thing, ...]:
    """The elements of the lists in a list, one after the other."""
    return tuple(inner for one in elements(thing) for inner in elements(one))


def _num_distinct(thing: Thing) -> Value:
    values = _values(thing, "num_distinct")
    number = len({_present(value) for value in values})
    return computed(number, units.COUNT, _made_of("num_distinct", values, thing), values)


def _present(value: Value) -> int | float | str:
    """The number or word of a value that this machine has."""
    return value.number if isinstance(value.number, str) and not value.absent else numeric(value)


def _neighbours(thing: Thing) -> tuple[Value, ...]:
    """The ranks next to each rank of a chain, in order: for three ranks 1, then 0 and 2, then 1."""
    value = _one(thing, "neighbours")
    num = numeric(value)
    if not isinstance(num, int) or num < 2:
        raise ExpressionError("neighbours(…) wants the number of ranks in a chain, at least two")
    return tuple(
        computed(next_to, units.ORDINAL, f"neighbours({value.formula})", (value,))
        for rank in range(num)
        for next_to in (rank - 1, rank + 1)
        if 0 <= next_to < num
    )


def _followed(thing: Thing, path: str) -> Thing:
    for name in path.split("."):
        if not isinstance(thing, Node):
            raise ExpressionError(f"|each: no {path!r} in {described(thing)}")
        thing = thing.step(name)
    return thing


def _shape(thing: Thing) -> Value:
    values = _values(thing, "shape")
    if not isinstance(thing, Node) or not all(isinstance(one.number, int) for one in values):
        raise ExpressionError("|shape wants a list of whole numbers")
    text = f"{units.NBSP}×{units.NBSP}".join(f"{value.number:,}" for value in values)
    origin = thing.origin._replace(field=field_name(thing.steps))
    return replace(values[0], number=text, unit=units.TEXT, tree=thing.formula, origin=origin)


def _median(thing: Thing) -> Value:
    if not isinstance(thing, Node) or not isinstance(thing.thing, SampledSeconds):
        raise ExpressionError(f"|median wants samples such as timing.step, not {described(thing)}")
    found = thing.step("median_seconds")
    assert isinstance(found, Value)
    return found


def _word(thing: Thing) -> Value:
    value = _one(thing, "word")
    if not isinstance(value.number, str):
        raise ExpressionError(f"|word wants a word, not {value.unit}")
    return replace(value, number=value.number.replace("_", " "))


def _epsilon(thing: Thing) -> Value:
    """The epsilon of a dtype, given in quotes or as a field of a run: `epsilon('float64')`."""
    dtype = thing.number if isinstance(thing, Value) else thing
    if not isinstance(dtype, str) or dtype.removeprefix("torch.") not in EPSILONS:
        raise ExpressionError(f"epsilon(…) wants one of {', '.join(EPSILONS)}")
    number = EPSILONS[dtype.removeprefix("torch.")]
    inputs = (thing,) if isinstance(thing, Value) else ()
    return computed(number, units.PLAIN, f"epsilon({dtype!r})", inputs)


FILTERS: dict[str, Callable[..., Thing]] = {
    "percent": _as("percent", "share"),
    "times": _as("times", "ratio"),
    "digits": _digits,
    "exact": _as("exact"),
    "absolute": _absolute,
    "largest": _gathered("largest", max),
    "smallest": _gathered("smallest", min),
    "total": _gathered("total", sum),
    "mean": _gathered("mean", lambda numbers: quotient(sum(numbers), len(numbers))),
    "count": _count,
    "each": _each,
    "flat": _flat,
    "num_distinct": _num_distinct,
    "neighbours": _neighbours,
    "shape": _shape,
    "median": _median,
    "word": _word,
    "ended": ended,
    "epsilon": _epsilon,
}


def _label(name: str) -> Callable[[Thing], Thing]:
    def label(number: Thing) -> Thing:
        if not isinstance(number, int):
            raise ExpressionError(f"{name}(…) wants a whole number")
        return Label(f"{name}{units.NBSP}{number}")

    return label


# `Rank(0)` begins a sentence.
LABELS: dict[str, Callable[[Thing], Thing]] = {
    name: _label(name) for name in ("rank", "Rank", "step", "layer")
}

FUNCTIONS: dict[str, Callable[..., Thing]] = {**LABELS, **FILTERS, **LAWS}
OF_CLAIMS = ("holds", "showed", "predicted", "observed")  # functions of a claim's id
RESERVED = frozenset({"run", "other", "machine", "cited", *FUNCTIONS, *OF_CLAIMS})

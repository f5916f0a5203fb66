"""The functions that an author may use in an expression, beside laws: filters and labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from proofbook.generator.content.claim import EPSILONS
from proofbook.generator.content.numerals import NAMED_UNIT, SPELLED
from proofbook.generator.values import units
from proofbook.generator.values.expression import compiled
from proofbook.generator.values.formula import Tree
from proofbook.generator.values.paths import Node
from proofbook.generator.values.value import (
    ExpressionError,
    Value,
    computed,
    constant,
    numeric,
    quotient,
)
from proofbook.runners.core.trace.fields import NBSP, path_of
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Failure, Run

Result = object  # whatever an expression yields: Value, Node, tuple of them, Label


@dataclass(frozen=True)
class Label:
    """Words that print without provenance: a name, `rank 0`, or a verdict."""

    text: str


@dataclass(frozen=True)
class ClaimSentence:
    """The sentence that a claim gives for its verdict here; it is rendered in its turn."""

    claim: str


def _single(result: Result, filter_name: str) -> Value:
    if isinstance(result, Value):
        return result
    raise ExpressionError(f"|{filter_name} wants one value, not {described(result)}")


def described(result: Result) -> str:
    """Describe a result in an error message."""
    if isinstance(result, tuple):
        return f"a list of {len(result)}"
    return getattr(result, "formula", None) or repr(result)


def elements(result: Result) -> tuple[Result, ...]:
    """A tuple of a list's Values or Nodes, of a path or of `each`; ExpressionError if no list."""
    if isinstance(result, Node):
        return result.elements()
    if isinstance(result, tuple) and result:
        return result
    raise ExpressionError(f"a list is wanted, not {described(result)}")


def _values(result: Result, filter_name: str) -> tuple[Value, ...]:
    return tuple(_single(element, filter_name) for element in elements(result))


def _made_of(name: str, values: Sequence[Value], gathered: Result) -> Tree:
    """The formula of what a filter gathers from a list."""
    inside = [gathered.formula] if isinstance(gathered, Node) else [value.tree for value in values]
    return (name, *inside)


def _gathered(name: str, of: Callable[[list[float]], float]) -> Callable[..., Value]:
    def gather(listed: Result, *more: Result) -> Value:  # a list, or as its formula, the values
        listed = (listed, *more) if isinstance(listed, Value) else listed
        values = _values(listed, name)
        number = of([numeric(value) for value in values])
        unit = reduce(units.of_sum, [value.unit for value in values])
        return computed(number, unit, _made_of(name, values, listed), values)

    gather.__doc__ = f"The {name} of a list."
    return gather


largest = _gathered("largest", max)


def _as(way: units.Way, says: str, wanted: str = "") -> Callable[[Result], Value]:
    """A filter that prints a value in another way; `wanted` names the only kind of it."""

    def show(value: Result) -> Value:
        value = _single(value, way)
        if wanted and not value.unit.is_number:
            raise ExpressionError(f"|{way} wants a {wanted}, not {value.unit}")
        return value.formatted(way=way)

    show.__doc__ = says
    return show


def _digits(value: Result, digits: object) -> Value:
    """A number with so many significant digits."""
    if not isinstance(digits, int) or not 1 <= digits <= 15:
        raise ExpressionError("|digits wants a whole number from 1 to 15")
    return _single(value, "digits").formatted(digits=digits)


def _unit(value: Result, label: object) -> Value:
    """A plain number with a unit in quotes, such as `Mbit/s`, which counts in no arithmetic."""
    value = constant(value) if isinstance(value, int) else _single(value, "unit")
    if not isinstance(label, str) or any(map(str.isdigit, label)):
        raise ExpressionError("|unit wants a unit in quotes, without a digit")
    if not value.unit.is_number:
        raise ExpressionError(f"|unit wants a plain number, not {value.unit}")
    if named := NAMED_UNIT.search(label) or SPELLED.search(label):
        raise ExpressionError(f"|unit names {named[0]!r}, which follows from what is read")
    return replace(value, form=replace(value.form, label=label))


def _absolute(value: Result) -> Value:
    """A number without its sign."""
    value = _single(value, "absolute")
    return computed(abs(numeric(value)), value.unit, ("absolute", value.tree), (value,))


def _count(listed: Result) -> Value:
    """How many elements a list of a trace has."""
    if not (isinstance(listed, Node) and listed.steps and isinstance(listed.content, list | dict)):
        raise ExpressionError(f"|count wants a list of a trace, not {described(listed)}")
    listed.refuse_if_skipped()  # nothing counts too: an empty list has none
    read = listed.value(len(listed.content), listed.steps, listed.formula)
    read = replace(read, unit=units.COUNT)
    return computed(read.number, units.COUNT, f"count({listed.formula})", (read,))


def each(listed: Result, path: object) -> tuple[Result, ...]:
    """One field of each element of a list, as a list; its path stands in quotes."""
    if not isinstance(path, str):
        raise ExpressionError("|each wants a path in quotes, as in each('memory.peak_bytes')")
    return tuple(_followed(element, path) for element in elements(listed))


def _num_distinct(listed: Result) -> Value:
    """How many different elements a list has: one where all are equal."""
    values = _values(listed, "num_distinct")
    number = len({value.number for value in values})
    return computed(number, units.COUNT, _made_of("num_distinct", values, listed), values)


def _followed(result: Result, path: str) -> Result:
    for name in path.split("."):
        if not isinstance(result, Node):
            raise ExpressionError(f"|each: no {path!r} in {described(result)}")
        result = result.step(name)
    return result


def shape(sizes: Result) -> Value:
    """A list of sizes as a shape, `50 × 20`."""
    values = _values(sizes, "shape")
    if not isinstance(sizes, Node) or not all(isinstance(value.number, int) for value in values):
        raise ExpressionError("|shape wants a list of whole numbers")
    text = f"{NBSP}×{NBSP}".join(f"{value.number:,}" for value in values)
    origin = sizes.origin._replace(field=path_of(sizes.steps))
    return replace(values[0], number=text, unit=units.TEXT, tree=sizes.formula, origin=origin)


def _median(times: Result) -> Value:
    """The median of measured times, such as `timing.step`."""
    if not isinstance(times, Node) or not isinstance(times.content, SampledSeconds):
        raise ExpressionError(f"|median wants samples such as timing.step, not {described(times)}")
    median = times.step("median_seconds")
    assert isinstance(median, Value)
    return median


def _word(value: Result) -> Value:
    """A word of a trace with spaces: `out_of_memory` as `out of memory`."""
    value = _single(value, "word")
    if not isinstance(value.number, str):
        raise ExpressionError(f"|word wants a word, not {value.unit}")
    return replace(value, number=value.number.replace("_", " "))


def _epsilon(dtype: Result) -> Value:
    """The distance from 1 to the next number of a dtype, given in quotes or by a field of a run."""
    name = dtype.number if isinstance(dtype, Value) else dtype
    if not isinstance(name, str) or name.removeprefix("torch.") not in EPSILONS:
        raise ExpressionError(f"epsilon(…) wants one of {', '.join(EPSILONS)}")
    number = EPSILONS[name.removeprefix("torch.")]
    inputs = (dtype,) if isinstance(dtype, Value) else ()
    return computed(number, units.PLAIN, f"epsilon({name!r})", inputs)


# --- how a run ended, from what it recorded; what its experiment declared is not read

# `out of memory` only where the recorded bytes explain the refusal: what was held lay within the
# budget, and with what was requested it would not have.
UNEXPLAINED = "not explained by the budget"
# An allocation of C++ code that finds the heap full raises `std::bad_alloc`, which names no size.
# Before that glibc tries to add a region of this size, so less than it was left.
HEAP_GROWTH_BYTES = 1 << 20
# Where a run ended, by its phase; a program of a listing marks none.
_PLACES = {
    "collective": " in a collective", "optimizer": " in the optimizer step", "program": "",
    "step": " in a step", "wrap": " while the model is wrapped",
}  # fmt: skip
_DECIDING = ("kind", "phase", "signal", "held_bytes", "requested_bytes")  # fields of an error


def ended(run: object) -> Value:
    """How a run ended, in words such as `out of memory in forward`.

    ExpressionError for anything but a run, AbsentError if the run was skipped.
    """
    if not isinstance(run, Node) or not isinstance(run.content, Run):
        raise ExpressionError("ended(…) takes a run, such as large_model.wide_ddp_budget")
    run.refuse_if_skipped()
    read: list[object] = [run.step("status")]
    words, error = run.content.status.replace("_", " "), run.content.error
    if words != "completed" and error is not None:
        place = run.step("error")
        assert isinstance(place, Node)
        read += [place.step(field) for field in _DECIDING if getattr(error, field) is not None]
        if run.content.budget_bytes:
            read.append(run.step("budget_bytes"))
        words = _failed(run.content, error)
    inputs = tuple(value for value in read if isinstance(value, Value))
    outcome = computed(words, units.TEXT, ("ended", run.formula), inputs)
    return run.reading.substitute(outcome)


def _failed(run: Run, error: Failure) -> str:
    """How and where it ended, such as `killed by SIGABRT in a collective`."""
    place = _PLACES.get(error.phase, f" in {error.phase}")
    if run.status == "out_of_memory":
        return f"out of memory{place}{'' if _is_explained(run, error) else f', {UNEXPLAINED}'}"
    how = f"killed by {error.signal}" if error.signal else run.status
    how += " with an exception" if error.kind == "exception" else ""
    return f"{how}{place}{' until the time-out' if error.kind == 'timed_out' else ''}"


def _is_explained(run: Run, error: Failure) -> bool:
    """Whether the budget leaves room for what was held, and not for what was requested as well."""
    budget, held, requested = run.budget_bytes, error.held_bytes, error.requested_bytes
    if requested is None and error.message == "std::bad_alloc":
        requested = HEAP_GROWTH_BYTES
    if error.kind != "out_of_memory" or budget is None or held is None or requested is None:
        return False
    return held <= budget < held + requested


FILTERS: dict[str, Callable[..., Result]] = {
    "percent": _as("percent", "A share in percent.", "share"),
    "times": _as("times", "A number and the word *times*.", "ratio"),
    "digits": _digits,
    "unit": _unit,
    "exact": _as("exact", "A value with all of its digits."),
    "absolute": _absolute,
    "largest": largest,
    "smallest": _gathered("smallest", min),
    "total": _gathered("total", sum),
    "mean": _gathered("mean", lambda numbers: quotient(sum(numbers), len(numbers))),
    "count": _count,
    "each": each,
    "num_distinct": _num_distinct,
    "shape": shape,
    "median": _median,
    "word": _word,
    "ended": ended,
    "epsilon": _epsilon,
}


def _label(name: str) -> Callable[[Result], Result]:
    def label(number: Result) -> Result:
        if not isinstance(number, int):
            raise ExpressionError(f"{name}(…) wants a whole number")
        return Label(f"{name}{NBSP}{number}")

    label.__doc__ = f"The words `{name} 0`: a number that names, and was not measured."
    return label


# `Rank(0)` begins a sentence.
LABELS: dict[str, Callable[[Result], Result]] = {
    name: _label(name) for name in ("rank", "Rank", "step", "layer")
}

FUNCTIONS: dict[str, Callable[..., Result]] = {**LABELS, **FILTERS}
OF_CLAIMS = {  # functions of a claim's id in quotes
    "holds": "Nothing where the claim holds; its verdict, after a sentence, where it does not.",
    "showed": "The sentence of the claim's `showed:` for its verdict on this machine.",
    "predicted": "What the claim predicts.",
    "observed": "What the claim observed.",
}
SIDES = ("predicted", "observed")


def calls_of_claims(expression: str) -> list[tuple[str, str]]:
    """Each function of `OF_CLAIMS` that an expression calls, with the id of the claim."""
    return [call for call in compiled(expression).calls if call[0] in OF_CLAIMS]

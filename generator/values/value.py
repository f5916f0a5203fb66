"""A Value: the only thing with a digit that a page can print.

It carries its number, unit and kind, the formula and inputs that made it, and where the number was
measured, through every sum and quotient; so a page can always say where a number comes from. The
formula is a tree (`formula.py`), printed only where a page shows it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

from proofbook.generator.content.shelf import is_of_no_machine
from proofbook.generator.values import formula, units
from proofbook.generator.values.formula import Arithmetic, Tree
from proofbook.generator.values.regime import CROWDED
from proofbook.generator.values.units import AS_RULED, Form, Unit, UnitError, Way
from proofbook.runners.core.trace.schema import Nature

Kind = Literal["given", "measured", "computed", "simulated", "cited"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NOT_REAL: tuple[Nature, ...] = ("simulated", "paced")
QUOTED = "text, because it stands in quotes; name a value without them"


class ExpressionError(ValueError):
    """An expression that asks for something impossible or forbidden."""


class MixedError(ExpressionError):
    """Arithmetic over numbers of two machines."""


@dataclass(eq=False)
class AbsentError(ValueError):
    """What an expression asks for is not in this machine's trace."""

    reason: str  # why
    run: str | None = None  # the run that lacks it, as `experiment.run`
    is_mistake: bool = False  # nothing excuses the lack, so the expression itself is wrong
    is_unexplained: bool = False  # ended as declared, and lacks what the reference machine has

    def __str__(self) -> str:
        return self.reason


class Origin(NamedTuple):
    """The place that a number was read from."""

    machine: str
    experiment: str | None = None
    run: str | None = None
    field: str = ""
    recorded_at: str = ""
    software: str = ""
    reference: str | None = None  # the id of what is cited
    nature: Nature = "real"  # of the run
    is_crowded: bool = False  # whether ranks took turns on a device in the run
    counts: str = ""  # its unit, or what it counts, as the run recorded it

    @property
    def measured_on(self) -> str:
        """The machine that the number is about; empty where it is about none."""
        return "" if is_of_no_machine(self.experiment or "", self.nature) else self.machine

    @property
    def is_nowhere(self) -> bool:
        """Whether it was read nowhere, because a question drew it."""
        return not (self.machine or self.experiment or self.reference)

    @property
    def path(self) -> str:
        """`EXPERIMENT.RUN.FIELD`; empty for what no run gave."""
        return f"{self.experiment}.{self.run}.{self.field}" if self.run else ""


@dataclass(frozen=True)
class Value(Arithmetic):
    """A number or a text with its unit, kind and provenance."""

    number: int | float | str  # in bytes, in seconds, as a share of 1, or plain; text for words
    unit: Unit  # see `units.py`
    kind: Kind  # given, measured, computed, simulated or cited
    tree: Tree  # the formula that yields it, over what an author would write
    inputs: tuple[Value, ...] = ()  # the values that the formula reads; empty for a value read off
    origin: Origin | None = None  # where it was read off; None for a computed value
    form: Form = AS_RULED  # how a filter asked to print it
    absent: str | None = None  # why this machine has none; `number` says so, and is only printed
    words: str | None = None  # what is printed of a digest, which nobody reads, in its place

    @cached_property
    def formula(self) -> str:
        """The expression that yields it, as an author would write it."""
        return formula.printed(self.tree)

    @cached_property
    def machines(self) -> frozenset[str]:
        """The machines that measured what it is made of."""
        if self.origin:
            return frozenset({self.origin.measured_on} - {""})
        return frozenset().union(*(value.machines for value in self.inputs))

    @cached_property
    def leaves(self) -> tuple[Value, ...]:
        """The distinct values read off that it is made of, in the order of the formula."""
        if not self.inputs:
            return (self,) if self.origin else ()
        return tuple(dict.fromkeys(leaf for value in self.inputs for leaf in value.leaves))

    @cached_property
    def link_target(self) -> Origin | None:
        """Origin that its link leads to: the first with an experiment, else the first."""
        origins = [leaf.origin for leaf in self.leaves if leaf.origin]
        of_runs = [origin for origin in origins if origin.experiment]
        return next(iter([*of_runs, *origins]), None)

    @property
    def path(self) -> str:
        """The path of a value that was read off a run; empty for any other."""
        return self.origin.path if self.origin else ""

    @property
    def run_origins(self) -> list[Origin]:
        """Origins of its measured and simulated leaves."""
        decided = (leaf.origin for leaf in self.leaves if leaf.kind in ("measured", "simulated"))
        return [origin for origin in decided if origin]

    @property
    def is_literal(self) -> bool:
        """Whether its formula is but a number, perhaps negative, or words in quotes."""
        match self.tree:
            case int() | float() | ("~", int() | float()):
                return True
            case str() as name:
                return name.startswith("'") and not self.inputs
        return False

    @property
    def is_digest(self) -> bool:
        """Whether it was read off a digest, which says nothing but whether two are equal."""
        is_text = isinstance(self.number, str)
        origins = (leaf.origin for leaf in self.leaves if leaf.origin)
        return is_text and any("digest" in origin.field for origin in origins)

    @cached_property
    def nature(self) -> Nature:
        """Nature of its runs: `simulated` or `paced` if any is, else `real`."""
        natures = {origin.nature for origin in self.run_origins}
        return next((nature for nature in _NOT_REAL if nature in natures), "real")

    @property
    def way(self) -> str:
        """`measured`, `simulated` or `computed from runs`."""
        if self.nature == "simulated":
            return "simulated"
        is_arithmetic = isinstance(self.tree, tuple) and self.tree[0] in ("+", "-", "*", "/", "~")
        return "computed from runs" if is_arithmetic else "measured"  # as a largest or a sum is

    @cached_property
    def is_crowded(self) -> bool:
        """Whether it rests on a time measured while ranks took turns on the cores."""
        origins = [leaf.origin for leaf in self.leaves if leaf.origin and leaf.kind == "measured"]
        return any(origin.is_crowded and origin.field.startswith("timing.") for origin in origins)

    @property
    def marks(self) -> list[str]:
        """Words printed beside it: a nature that is not real, and oversubscription."""
        turns = [CROWDED] if self.is_crowded else []
        return [self.nature, *turns] if self.nature != "real" else turns

    @cached_property
    def printed(self) -> str:
        """The value as every page prints it."""
        return self.words or units.printed(self.number, self.unit, self.form)

    def __str__(self) -> str:
        return self.printed

    def formatted(self, *, digits: int | None = None, way: Way | None = None) -> Value:
        """The same value, printed with so many digits, or in another way (see `units.Form`)."""
        form = replace(self.form, digits=digits or self.form.digits, way=way or self.form.way)
        return replace(self, form=form)

    @classmethod
    def combined(cls, left: object, sign: str, right: object) -> Value:
        """A `Value`: sum, difference, product or quotient; ExpressionError if undefined."""
        first, second = _operand(left), _operand(right)
        tree: Tree = (sign, first.tree, second.tree)
        numbers = numeric(first), numeric(second)
        try:
            number, unit = _NUMBERS[sign](*numbers), _unit(first, sign, second)
        except ZeroDivisionError:
            raise ExpressionError(f"{formula.printed(tree)} divides by zero") from None
        except OverflowError:
            raise ExpressionError(f"{formula.printed(tree)} is not finite") from None
        except UnitError as error:
            raise ExpressionError(f"{formula.printed(tree)}: {error}") from None
        inputs = tuple(operand for operand in (first, second) if not _is_constant(operand))
        return computed(number, unit, tree, inputs)

    def __neg__(self) -> Value:
        return computed(-numeric(self), self.unit, ("~", self.tree), (self,))


def computed(number: int | float | str, unit: Unit, tree: Tree, inputs: tuple[Value, ...]) -> Value:
    """A value of kind `computed`, with formula and inputs; ExpressionError if not finite.

    MixedError if its inputs come from two machines.
    """
    if not isinstance(number, str) and not abs(number) < 1e300:  # nor is it then nan
        raise ExpressionError(f"{formula.printed(tree)} is not finite")
    value = Value(number, unit, "computed", tree, inputs)
    if len(value.machines) > 1:
        both = ", ".join(sorted(value.machines))
        instead = "numbers of different machines are only ever compared side by side"
        raise MixedError(f"mixes two machines ({both}); {instead}")
    return value


def numeric(value: Value) -> int | float:
    """The number of a value; ExpressionError if it is text."""
    if isinstance(value.number, str):
        raise ExpressionError(f"{value.formula} is text, not a number")
    return value.number


def constant(number: int | float | str) -> Value:
    """A constant that an author wrote inside a formula, or as what a claim predicts."""
    if isinstance(number, str):
        return Value(number, units.TEXT, "computed", repr(number))
    return Value(number, units.PLAIN, "computed", number)


def _is_constant(value: Value) -> bool:
    """Whether it is a typed constant, which takes the other operand's unit."""
    return value.origin is None and not value.inputs and value.kind != "given"


def quotient(left: float, right: float) -> float:
    """Left over right; whole numbers that divide evenly stay whole."""
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


_NUMBERS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": quotient,
}  # fmt: skip


def _unit(left: Value, sign: str, right: Value) -> Unit:
    if sign in "+-":
        for fixed, other in ((left, right), (right, left)):
            if _is_constant(fixed) and other.unit.is_number:
                return units.PLAIN if other.unit == units.ORDINAL else other.unit
        return units.of_sum(left.unit, right.unit)
    if _is_constant(right) or (_is_constant(left) and sign == "*"):
        return right.unit if _is_constant(left) else left.unit
    return (units.of_product if sign == "*" else units.of_quotient)(left.unit, right.unit)


def _operand(operand: object) -> Value:
    if isinstance(operand, Value):
        return operand
    if isinstance(operand, int | float) and not isinstance(operand, bool):
        return constant(operand)
    written = getattr(operand, "formula", None) or repr(operand)
    raise ExpressionError(f"{written} is not a number to calculate with (of a sample: … | median)")

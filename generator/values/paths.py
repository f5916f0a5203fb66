"""Paths: what an expression may reach of a trace, and nothing else.

A `Node` stands for a place inside a trace. Its steps follow the fields that the pydantic models
declare, the keys of their dicts and the positions of their lists, never Python attributes; a step
that ends at a number or a word gives a `Value` with its unit, kind and origin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from proofbook.generator.content.errors import nearest
from proofbook.generator.content.shelf import TraceOnPage, measure_command
from proofbook.generator.values import units
from proofbook.generator.values.regime import is_crowded
from proofbook.generator.values.units import AS_RULED, Form
from proofbook.generator.values.value import (
    AbsentError,
    ExpressionError,
    Kind,
    Origin,
    Value,
    numeric,
)
from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.trace import fields
from proofbook.runners.core.trace.fields import DECLARED, Key
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run, software
from proofbook.runners.core.trace.spread import field_of
from proofbook.runners.system import book
from proofbook.runners.traces.tolerance import MOST_SPREAD

GIVEN = {"settings", "model", "world_size", "seed", "budget_bytes", "strategy", "backend", "device"}


@dataclass
class Evaluation:
    """The result of one expression, and the runs and fields that it read."""

    result: Any = None  # a Value, a Node (a group of fields, samples), a tuple, a Label, words …
    absent: AbsentError | None = None  # why this machine has no result
    error: str | None = None  # what is wrong with the expression
    runs: dict[str, None] = field(default_factory=dict)  # the runs it touches, as `experiment.run`
    measured: dict[str, None] = field(default_factory=dict)  # the measured fields it reads
    substitute: Callable[[Value], Value] = field(default=lambda value: value)  # see `perturbed.py`


@dataclass(frozen=True, eq=False)
class Node:
    """A place inside a trace, a machine or the list of what is cited."""

    content: Any  # the model, dict or list at this place
    steps: tuple[Key, ...]  # from the run, or from the root where there is no run
    formula: str  # the same as an author writes it
    reading: Evaluation  # where this evaluation notes what it touched
    origin: Origin  # machine, experiment and run of what lies below
    on_page: TraceOnPage | None = None  # the trace it lies in; None for the machine

    def step(self, key: Key | slice) -> Node | Value | tuple[Any, ...]:
        """What is a step below: a `Value`, a `Node` of a group, or for a slice a tuple of elements.

        ExpressionError if there is no such field, AbsentError if this machine's run left it empty.
        """
        if isinstance(key, slice):
            if not isinstance(self.content, list):
                raise ExpressionError(f"{self.formula} is not a list; it cannot be sliced")
            return tuple(self._element(position) for position in range(len(self.content))[key])
        if self.on_page and self.origin.run is None:
            return self._run(str(key), self.on_page)
        if not isinstance(self.content, BaseModel | Mapping):
            return self._element(key)
        name, is_model = str(key), isinstance(self.content, BaseModel)
        if name == "measures" and isinstance(self.content, Run) and self.content.is_plain:
            only = replace(self, content=self.content.ranks[0], steps=("ranks", 0))
            return only.step(name)
        held = self.content
        known = type(held).model_fields if isinstance(held, BaseModel) else held
        if name not in known or name in DECLARED:  # which prove nothing of their own run
            what = "field" if is_model else "entry"
            instead = "; observe ended(run)" if name in known else nearest(name, known)
            message = f"{self.formula} has no {what} {name!r}{instead}"
            raise ExpressionError(message) if is_model else self._missing((name,), message)
        below = getattr(self.content, name) if is_model else known[name]
        written = f".{name}" if name.isidentifier() else f"[{name!r}]"
        return self._below(name, below, self.formula + written)

    def elements(self) -> tuple[Node | Value, ...]:
        """A tuple of Values, Nodes for groups; ExpressionError if no list, AbsentError if empty."""
        if not isinstance(self.content, list):
            raise ExpressionError(f"{self.formula} is not a list")
        if not self.content:
            raise self._missing((), f"{self.formula} is empty")
        steps = (self.step(index) for index in range(len(self.content)))
        return tuple(element for element in steps if not isinstance(element, tuple))

    def _run(self, name: str, on_page: TraceOnPage) -> Node:
        on_page = on_page.holder(name)
        trace = on_page.trace
        if name not in trace.runs:
            if name in _declared(trace.experiment):
                do = f"run `{book.program()} run {trace.experiment}`"
                raise ExpressionError(
                    f"run {name!r} of {trace.experiment} was never measured; {do}"
                )
            known = nearest(name, trace.runs)
            raise ExpressionError(f"{trace.experiment} has no run {name!r}{known}")
        path, run = f"{trace.experiment}.{name}", trace.runs[name]
        self.reading.runs[path] = None
        origin = self.origin._replace(
            machine=on_page.measured_on,
            recorded_at=trace.recorded_at, software=software(trace.circumstances),
            run=name, nature=run.nature, is_crowded=is_crowded(run),
        )  # fmt: skip
        return Node(run, (), path, self.reading, origin, on_page)

    def _element(self, key: Key) -> Node | Value:
        """An element of a list, by its position, or by its name, its operation or its rank."""
        position: int | None = key if isinstance(key, int) else None
        if isinstance(key, str):
            elements = enumerate(self.content)
            named = (at for at, element in elements if key in fields.names_of(element))
            position = next(named, None)
        if position is None or not -len(self.content) <= position < len(self.content):
            raise self._missing((key,), f"{self.formula} has no element {key!r}")
        written = f"{self.formula}[{key!r}]"
        return self._below(range(len(self.content))[position], self.content[position], written)

    def _below(self, key: Key, content: object, formula: str) -> Node | Value:
        steps = (*self.steps, key)
        if content is None:
            raise self._missing((key,), f"{formula} is empty: the run did not measure it")
        if isinstance(content, Value):  # what is cited
            return self.reading.substitute(content)
        if isinstance(content, SampledSeconds) and self.on_page:
            seconds = numeric(self.value(content.median_seconds, steps, formula))
            if seconds != content.median_seconds:  # it is moved
                share = seconds / content.median_seconds
                content = SampledSeconds.of([sample * share for sample in content.samples])
        if isinstance(content, int | float | str):
            return self.value(content, steps, formula)
        return Node(content, steps, formula, self.reading, self.origin, self.on_page)

    def value(self, number: int | float | str, steps: tuple[Key, ...], formula: str) -> Value:
        """A `Value` of a number read at some steps; a measured field is noted in the evaluation."""
        kind = self._kind(steps)
        path = fields.path_of(steps) if self.on_page else formula  # `machine.num_cores`
        run = self._run_of_page
        if run and run.is_plain:
            path = path.removeprefix("ranks[0].")
        quantity = fields.quantity(steps, run.quantities if run else {})
        origin = self.origin._replace(field=path, counts=quantity.unit)
        if self.on_page and kind != "given":
            self.reading.measured[origin.path] = None
        if isinstance(number, bool):
            number = "yes" if number else "no"
        unit = units.of_field(quantity.unit, number)
        form = Form(way="written") if kind == "given" and unit.style == "plain" else AS_RULED
        spread = run.spread.get(field_of(run, steps), 0) if run and run.spread else 0
        if kind == "measured" and spread > MOST_SPREAD:
            form = Form(digits=2)  # the third is another on another processor
        return self.reading.substitute(Value(number, unit, kind, formula, origin=origin, form=form))

    def _kind(self, steps: tuple[Key, ...]) -> Kind:
        if self.on_page and steps[0] in GIVEN:
            return "given"
        if self.on_page and self.on_page.nature == "computed":
            return "computed"
        return "simulated" if self.origin.nature == "simulated" else "measured"

    @property
    def _run_of_page(self) -> Run | None:
        return self.on_page.trace.runs.get(str(self.origin.run)) if self.on_page else None

    def refuse_if_skipped(self) -> None:
        """Raise AbsentError if the run was skipped, since its lists are then empty."""
        run = self._run_of_page
        if run is not None and run.status == "skipped":
            raise self._missing((), "")

    def _missing(self, keys: tuple[Key, ...], message: str) -> ExpressionError | AbsentError:
        """The error for a step that leads nowhere: the author's mistake, or this machine's lack."""
        if self.on_page is None or self.origin.run is None:
            return ExpressionError(message)
        run = self.on_page.trace.runs[self.origin.run]
        name = f"{self.on_page.trace.experiment}.{self.origin.run}"
        if run.status == "skipped":
            return AbsentError(run.why_skipped, name)
        if run.is_surprise:
            return AbsentError("the run did not end as declared", name)
        reference = self.on_page.reference
        is_elsewhere = reference is not None and reference is not self.on_page.trace
        path = [self.origin.run, *self.steps, *keys]
        if reference and is_elsewhere and fields.has_value_at(reference.runs, path):
            return AbsentError("this machine's run has none", name, is_unexplained=True)
        if self.on_page.is_stale:
            command = measure_command(self.origin.experiment or "")
            message += f"; the trace is stale: run `{command}`"
        return AbsentError(message, name, is_mistake=True)


def _declared(experiment: str) -> Collection[str]:
    """The runs that an experiment declares; none where it cannot be loaded, which is said apart."""
    with suppress(ValueError):
        return find(experiment).runs
    return ()

"""What a page holds of a figure that readers operate: controls, a table of all states, a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from generator.evidence.play_states import Control, State


@dataclass(frozen=True)
class Row:
    """A row of the table: a run of a state."""

    state: int
    words: tuple[str, ...]  # the options, and what tells the run apart
    cells: tuple[Markup | str, ...]
    run: str
    nature: str
    source: str
    timeline: str | None
    clock_error: Markup | None  # of that timeline


@dataclass(frozen=True)
class Budget:
    """The line that readers move, in the unit of the axis; from `low`, steps lead to `start`."""

    start: float
    low: float
    top: float
    step: float
    unit: str
    shown: Markup


@dataclass(frozen=True)
class Line:
    """A place where readers may put the line at once, in bytes: the memory of a device."""

    name: Markup
    device: Markup
    size: float
    shown: Markup
    is_first: bool


@dataclass(frozen=True)
class Played:
    """What a template needs beside the picture of the first state."""

    task: Markup
    script: str
    controls: Sequence[Control]
    first: State
    words: Sequence[str]  # heads of the columns that name a row
    head: Sequence[str]  # and of those with its numbers
    rows: Sequence[Row]
    drawn: Markup
    budget: Budget | None
    lines: Sequence[Line]

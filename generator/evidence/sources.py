"""Where the values of one page come from, as one block of data and as links.

In: the values that a page prints. Out: a number for each distinct one, the place of its run in the
book for readers without a script, and a block of JSON that `sources.js` fills the page's popover
from. A run stands in the block once, and so does a value that others are computed from.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from markupsafe import Markup, escape

from generator.content.shelf import page_of
from generator.content.typesetting import moment
from generator.evidence.evaluation import Evidence
from generator.evidence.found_by import found_by
from generator.evidence.regime import CROWDED
from generator.evidence.reproduce_command import COMMAND, arguments_for
from generator.evidence.value import KINDS, Origin, Value

FORMULAS = "pb-formulas"  # the part of a page's foot that holds the formulas that values share
BLOCK = "pb-sources"
NATURES = {
    "paced": "paced: its stages last as long as they were told",
    "simulated": "simulated: by fake tensors on one rank, or replayed from measured costs",
    CROWDED: "oversubscribed: more ranks than cores took turns, so no device takes this time",
}
Row = list[Any]
MARKS = 7  # the column of a row that says what sets a number apart
_CONSTANT = re.compile(r"'[^']*'|[\d.e+-]+")
_GOES_ON = re.compile(r"[\w.]")  # what an end of a path has beside it where the path is longer


class Sources:
    """The sources of one page's values, gathered while it is written."""

    def __init__(self, evidence: Evidence, root: str) -> None:
        """Start a page.

        Args:
            evidence: what its values were evaluated by.
            root: what leads from the page to the site's root.
        """
        self._evidence = evidence
        self._root = root
        self.formulas: dict[str, str] = {}  # that several values share, by name
        self._numbers: dict[object, int] = {}
        self._values: list[Value | str] = []  # or the name of what several share
        self._places: dict[object, str] = {}

    def number(self, value: Value) -> int:
        """The number of a value on this page; equal ones have the same."""
        key = (str(value), value.kind, value.formula, value.origin or value.machines)
        if key not in self._numbers:
            self._numbers[key] = len(self._values)
            self._values.append(value)
        return self._numbers[key]

    def shared(self, name: str, says: str) -> int:
        """The number of all values that share a formula."""
        if name not in self.formulas:
            self.formulas[name] = says
            self._numbers[name] = len(self._values)
            self._values.append(name)
        return self._numbers[name]

    def place(self, value: Value, stated_at: str = "") -> str:
        """Where the source of a value stands in the book.

        Args:
            value: what is printed.
            stated_at: where it stands if no run and no citation is its source.
        """
        first = value.leads_to
        if first is None and stated_at:
            return str(escape(self._root + stated_at))
        key = first and (first.machine, first.experiment, first.run, first.reference)
        if key not in self._places:
            self._places[key] = str(escape(self._root + self._place(first)))
        return self._places[key]

    def _place(self, origin: Origin | None) -> str:
        if origin and origin.experiment:
            page = page_of(origin.experiment)
            return page + (f"#{origin.run}{self._machine_suffix(origin)}" if origin.run else "")
        if origin and origin.reference:
            return f"evidence.html#reference-{origin.reference}"
        return f"machines/{origin.machine}.html" if origin and origin.machine else "evidence.html"

    def _machine_suffix(self, origin: Origin) -> str:
        """What the id of a run's row ends in where another machine than the one shown ran it."""
        shown = self._evidence.book.traces.get(origin.experiment or "")
        is_shown = shown is None or not origin.machine or shown.machine.name == origin.machine
        return "" if is_shown else f"-on-{origin.machine}"

    @property
    def has_crowded(self) -> bool:
        """Whether a time of ranks that took turns on the cores is among the values."""
        return any(one.is_crowded for one in self._values if isinstance(one, Value))

    def block(self) -> Markup:
        """The data as an element; nothing where the page prints no value."""
        if not self._values:
            return Markup("")
        runs: dict[object, Row] = {}  # each once
        rows: list[Row] = []
        while len(rows) < len(self._values):  # a value that another is computed from is added
            rows.append(self._row(self._values[len(rows)], runs))
        marks = {mark for row in rows if len(row) > MARKS for mark in str(row[MARKS]).split()}
        data = {
            "natures": {mark: NATURES[mark] for mark in sorted(marks)},
            "root": self._root,
            "command": COMMAND,
            "runs": list(runs.values()),
            "values": rows,
        }
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        text = text.replace("<", r"\u003c")  # nothing else ends a script element
        return Markup(f'<script type="application/json" id="{BLOCK}">{text}</script>')

    def _row(self, value: Value | str, runs: dict[object, Row]) -> Row:
        """One value: the columns that `sources.js` names, without empty ones at the end."""
        if isinstance(value, str):
            return ["", KINDS.index("computed"), self.formulas[value]]
        made = self._made(value, runs)
        return _short([str(value), _kind(value), *made, value.absent, " ".join(value.marks)])

    def _made(self, value: Value, runs: dict[object, Row]) -> Row:
        """Formula or field; run, or inputs; what measures it again; the number exactly."""
        origin, reference = value.origin, self._evidence.book.reference.name
        if origin and origin.reference:
            cited = self._evidence.book.references[origin.reference]
            return [f"{cited.title} ({cited.where})", None, None, None]
        if _is_stated(value):
            return [None, None, None, None]
        says, again, exact = self._evidence.once(
            "source", value, lambda: _on_every_page(value, reference)
        )
        if origin is None:
            return [says, [self.number(leaf) for leaf in value.leaves], again, exact]
        key = (origin.machine, origin.experiment, origin.run)
        if key not in runs:
            runs[key] = _short([*key, origin.recorded_at and moment(origin.recorded_at),
                                origin.torch, self._machine_suffix(origin)])  # fmt: skip
        return [says, [*runs].index(key), again, exact]


def _kind(value: Value) -> int:
    """The place of its kind in the words of the interface: last are `counted` and `stated`."""
    if _is_stated(value):
        return len(KINDS) + 1
    is_counted = value.origin is not None and found_by(value) == "counted"
    return len(KINDS) if is_counted else KINDS.index(value.kind)


def _is_stated(value: Value) -> bool:
    """Whether it is a constant that a claim states, computed from nothing."""
    is_constant = value.kind == "computed" and not value.leaves
    return is_constant and _CONSTANT.fullmatch(value.formula) is not None


def _on_every_page(value: Value, reference: str) -> tuple[str, str | int | None, str | int | None]:
    """Formula or field, what measures it again, the number exactly.

    The last two are 1 where they follow: the command names the paths that the row leads to, and the
    number is what is shown.
    """
    again: str | int | None = arguments_for(value, reference)
    paths = [
        one.path
        for one in (value.leaves if value.origin is None else (value,))
        if one.kind in ("measured", "simulated")
    ]
    if again and again == " ".join(f"'{one}'" if "[" in one else one for one in paths):
        again = 1
    if value.origin is None:
        return _with_places(value), again, None
    is_text = isinstance(value.number, str) and not value.words
    exact = None if is_text else str(replace(value, words=None).shown(way="exact"))
    return value.origin.field, again, 1 if exact == str(value) else exact


def _with_places(value: Value) -> str:
    """A formula in which `{n}` stands for the path of input n, so that no path is repeated."""
    formula = value.formula
    paths = [(place, one.path) for place, one in enumerate(value.leaves) if one.path]
    for place, path in sorted(paths, key=lambda one: -len(one[1])):  # a path may begin another
        formula = _replaced(formula, path, f"{{{place}}}")
    return formula


def _replaced(formula: str, path: str, mark: str) -> str:
    """A formula with a mark for each path that is no part of a longer one."""
    text, *rest = formula.split(path)
    for after in rest:
        is_part = _GOES_ON.match(text[-1:]) or _GOES_ON.match(after) or after.startswith("[")
        text += (path if is_part else mark) + after
    return text


def _short(row: Row) -> Row:
    """A row without its last empty cells, and with zero for each other one."""
    cells = list(row)
    while cells[-1] in (None, ""):
        cells.pop()
    return [0 if one in (None, "") else one for one in cells]

"""Where the values of one page come from, as one block of data and as links.

In: the values that a page prints. Out: a number for each distinct one, the place of its run in the
book for readers without a script, and a block of JSON that `values.js` fills the page's popover
from. A run stands in the block once, and so does a value that others are computed from.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from markupsafe import Markup, escape

from proofbook.generator.content.shelf import page_of
from proofbook.generator.values import formula
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import KINDS, Origin, Value
from proofbook.runners.system.book import program

PYTHON = ".venv/bin/python -m runners"
BLOCK = "pb-sources"
Row = list[Any]


def command(paths: Iterable[str], machine: str, reference: str) -> str:
    """The command that measures each `EXPERIMENT.RUN.FIELD`, or less, again as on a machine."""
    on = [] if machine in ("", reference) else ["--from", machine]
    return " ".join([program(PYTHON), "reproduce", *map(shlex.quote, [*on, *paths])])


def moment(recorded: str) -> str:
    """An ISO time as `21 November 2026, 20:16:39 UTC`."""
    when = datetime.fromisoformat(recorded).astimezone(UTC)
    return f"{when.day} {when:%B %Y, %H:%M:%S} UTC"


class Sources:
    """The values of one page and their sources, numbered in the order of printing."""

    def __init__(self, evidence: Evidence, root: str, natures: Mapping[str, str]) -> None:
        """Start a page, from which `root` leads to the site's root; `natures` defines marks."""
        self._evidence, self._root, self._natures = evidence, root, natures
        self._numbers: dict[object, int] = {}
        self.here: dict[int, Value] = {}  # by number, the same on the machine at hand
        self.values: list[Value] = []
        self.texts: set[str] = set()  # that authors wrote and the block has
        self._words = {"": 0}  # which runs share, each with its number in the block

    def number(self, value: Value, here: Value | None = None) -> int:
        """The number of a value on this page, and of the same `here`; equal values share one."""
        key = (str(value), value.kind, value.formula, value.origin or value.machines)
        if key not in self._numbers:
            self._numbers[key] = len(self.values)
            self.values.append(value)
        if here:
            self.here[self._numbers[key]] = here
        return self._numbers[key]

    def place(self, value: Value, stated_at: str = "") -> str:
        """Address of a value's source: a run, a citation, or else where the value is stated."""
        first = value.link_target
        place = stated_at if first is None and stated_at else self.place_of(first)
        return str(escape(self._root + place))

    def place_of(self, origin: Origin | None) -> str:
        """Address of an origin: a run's row in the table of the machine that measured it."""
        if origin and origin.experiment:
            trace = self._evidence.book.traces.get(origin.experiment)
            page = trace.page if trace else page_of(origin.experiment)
            return page + (f"#{origin.run}{self._machine_suffix(origin)}" if origin.run else "")
        if origin and origin.reference:
            return f"evidence.html#reference-{origin.reference}"
        return f"machines/{origin.machine}.html" if origin and origin.machine else "evidence.html"

    def _machine_suffix(self, origin: Origin) -> str:
        """What the id of a run's row ends in where another machine than the one shown ran it."""
        machines = self._evidence.book.machines.items()
        first = next((name for name, folder in machines if origin.experiment in folder.traces), "")
        return "" if origin.machine in ("", first) else f"-on-{origin.machine}"

    @property
    def command(self) -> str:
        """The command that measures a value again, but for the path of the value."""
        book = self._evidence.book
        return command((), book.machine.name, book.reference.name)

    def block(self) -> Markup:
        """The JSON block of all sources as a script element; empty without values."""
        if not self.values:
            return Markup("")
        runs = dict[object, Row]()  # each once
        # While it is read, a value that another is computed from is added.
        rows = [_short(self._row(value, runs)) for value in self.values]
        marks = sorted({mark for value in self.values for mark in value.marks})
        data = {
            "natures": {mark: f"{mark}: {self._natures[mark]}" for mark in marks},
            "root": self._root,
            "command": self.command,
            "words": [*self._words],
            "runs": list(runs.values()),
            "values": rows,
        }
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        text = text.replace("<", r"\u003c")  # nothing else ends a script element
        return Markup(f'<script type="application/json" id="{BLOCK}">{text}</script>')

    def footnotes(self) -> list[str]:
        """What each value is and where it comes from, in Markdown; empty for what a claim states.

        A machine is named where it is another than the page shows.
        """
        return ["" if _is_stated(value) else self._footnote(value) for value in self.values]

    def _footnote(self, value: Value) -> str:
        origin = value.origin
        if origin and origin.reference:
            cited = self._evidence.book.references[origin.reference]
            return f"cited: [{cited.title}]({cited.url}), {cited.where}"
        paths = {leaf.formula: leaf.path for leaf in value.leaves if leaf.path}
        words = self._with_given(value) | paths
        parts = [f"`{value.path or formula.printed(value.tree, words)}`"]
        if not origin:
            inputs = ", ".join(f"{leaf} ({leaf.kind})" for leaf in value.leaves)
            parts += [f"from {inputs}"] * bool(inputs)
        elif not origin.is_nowhere and (exact := _exactly(value)) not in (None, str(value)):
            parts += [f"exactly {exact}"]
        machines = sorted(value.machines - {self._evidence.book.machine.name})
        parts += [*value.marks, *(f"on {machine}" for machine in machines), value.absent or ""]
        if here := self.here.get(self.number(value)):
            parts += [f"on {', '.join(here.machines)} {here}", *here.marks]
        return f"{value.kind}: {', '.join(filter(None, parts))}"

    @cached_property
    def _given(self) -> dict[str, float | str]:
        """The given numbers, by the name that formulas have for each."""
        return {f"given[{key!r}]": one.value for key, one in self._evidence.book.given.items()}

    def _with_given(self, value: Value) -> dict[str, str]:
        """The given numbers of a formula, by name, each with its value behind it."""
        if isinstance(value.tree, str):  # which shows its number
            return {}
        names = formula.names_of(value.tree)
        return {name: f"{name} ({self._given[name]})" for name in names if name in self._given}

    def _row(self, value: Value, runs: dict[object, Row]) -> Row:
        """One value: the columns that `values.js` names.

        They are what is shown; the kind, of which the last is a constant that a claim states;
        formula or field; run, or inputs; the number exactly, 1 where that is shown; why it is
        absent; what sets it apart; the same on the machine at hand, and a run behind that.
        """
        if _is_stated(value):
            return [str(value), len(KINDS)]
        says, of, exact = self._origin_cells(value, runs)
        kind = KINDS.index(value.kind)
        row = [str(value), kind, says, of, exact, value.absent, " ".join(value.marks)]
        here = self.here.get(self.number(value))
        if here and here.link_target:
            row += [", ".join([str(here), *here.marks]), self._run_cell(here.link_target, runs)]
        return row

    def _origin_cells(self, value: Value, runs: dict[object, Row]) -> tuple[str, object, object]:
        """Formula or field; run, or inputs; the number exactly."""
        origin = value.origin
        if origin is None:
            paths = {leaf.formula: f"{{{at}}}" for at, leaf in enumerate(value.leaves) if leaf.path}
            says = formula.printed(value.tree, self._with_given(value) | paths)  # no path twice
            return says, [self.number(leaf) for leaf in value.leaves], None
        if origin.reference:
            cited = self._evidence.book.references[origin.reference]
            self.texts |= {cited.title, cited.where}
            return f"{cited.title} ({cited.where})", None, None
        if origin.is_nowhere:
            return origin.field, [], None  # the inputs of no formula
        exact = _exactly(value)
        return origin.field, self._run_cell(origin, runs), 1 if exact == str(value) else exact

    def _run_cell(self, origin: Origin, runs: dict[object, Row]) -> int:
        """The number of a run on this page."""
        key = (origin.machine, origin.experiment, origin.run)
        if key not in runs:
            recorded = origin.recorded_at and moment(origin.recorded_at)
            shared = (origin.machine, origin.experiment, recorded, origin.software)
            numbers = (self._words.setdefault(word or "", len(self._words)) for word in shared)
            runs[key] = _short([*numbers, origin.run, self._machine_suffix(origin)])
        return [*runs].index(key)


def _short(row: Row) -> Row:
    """A row without its last empty cells, and with zero for each other one."""
    cells = list(row)
    while cells[-1] in (None, ""):
        cells.pop()
    return [0 if cell in (None, "") else cell for cell in cells]


def _exactly(value: Value) -> str | None:
    """The number of a value with all digits; None for words."""
    is_text = isinstance(value.number, str) and not value.words
    return None if is_text else str(replace(value, words=None).formatted(way="exact"))


def _is_stated(value: Value) -> bool:
    """Whether it is a constant that a claim states."""
    return value.kind == "computed" and not value.leaves and value.is_literal

"""One page while it is being written: what templates and views ask for.

It evaluates expressions, renders authors' texts, and prints each value as a link to the row of its
run. With `sources.js`, which reads the block of data at the page's end, a value opens its source in
the page's one popover. Each section of a page comes from one machine: from the one shown, or from
the reference machine where that lacks anything it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup, escape

from generator.content import prose
from generator.content.book import Book
from generator.content.shelf import page_of
from generator.content.typesetting import parted
from generator.printing.sources import Sources
from generator.values.evaluation import Evidence
from generator.values.filters import SIDES, ClaimSentence, calls_of_claims
from generator.values.machines import OtherOutcomes
from generator.values.value import Kind, Origin, Value
from generator.values.verdicts import Judged, sentence
from runners.core.trace.records import Run

ABSENT = Markup('<span class="pb-absent">–</span>')
REFERENCE = "reference"  # behind a number of the reference machine on the pages of another one
LEAST = 2  # values of a table that repeat a mark
LONG = 24  # letters of a value that fit any line; what has more may break
_JOINTS = re.compile(r"(?<=/)|(?<=\.)(?!py$)")  # of a name such as `experiment.run`, of a path
WHOLE = 36  # letters of a part that fit into a line of a phone


@lru_cache(maxsize=1)
def interface_words() -> dict[str, Any]:
    """Every word of the interface, from ui.yml."""
    text = Path(__file__).parents[1].joinpath("ui.yml").read_text(encoding="utf-8")
    words: dict[str, Any] = yaml.safe_load(text)
    return words


@dataclass
class Folio:
    """One page of a book.

    Attributes:
        evidence: what the page's expressions are evaluated by.
        at_hand: what the machine at hand says, also where the page shows the reference machine.
        other_outcomes: the verdicts of the other machines.
        path: the page's, under the site's root.
        marks_reference: whether numbers of the reference machine carry its mark.
        unmarked: the nature that the page says once, of all its numbers.
        caption: what sets all values of a table apart, where this is the page for one.
        opens: whether values are links; they are not in the words of a link.
        runs: the runs that it used.
        lent: the runs of figures and tables that the reference machine lends.
        shown_claims: those whose numbers stand below the last table of claims.
        items: the questions asked so far, in their order; `figures` likewise.
        noted: the texts with footnotes so far.
        assets: files that the page loads, by path.
    """

    evidence: Evidence
    at_hand: Evidence
    other_outcomes: Mapping[str, OtherOutcomes] = field(default_factory=dict)
    path: str = ""
    marks_reference: bool = False
    unmarked: str = ""
    caption: str = ""
    opens: bool = True
    ui: dict[str, Any] = field(default_factory=interface_words)
    runs: set[str] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)
    shown_claims: set[str] = field(default_factory=set)
    items: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    assets: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What the page prints leads to where it comes from."""
        self.sources = Sources(self.evidence, "../" * self.path.count("/"), self.ui["natures"])

    @property
    def book(self) -> Book:
        """The book, as the page's machine shows it."""
        return self.evidence.book

    def over(self, evidence: Evidence) -> Folio:
        """The same page, for a part of it that another machine's evidence fills."""
        part = copy(self)
        part.evidence = evidence
        return part

    def for_runs(self, paths: Iterable[str]) -> Folio:
        """The page for a figure or a table over some runs, all of which one machine measured.

        That is the reference machine where it lends one of them and not all.
        """
        machines = {self.book.machine_of(path) for path in paths if self.book.run(path)} - {""}
        if len(machines) < 2 or self.evidence.reference is None:
            return self
        part = self.over(self.evidence.reference)
        part.runs = self.lent
        return part

    def without_mark(self, nature: str, marks_reference: bool = True) -> Folio:
        """The page for a part of it that says once what is the nature of all its numbers."""
        part = copy(self)
        part.unmarked = nature or self.unmarked
        part.marks_reference &= marks_reference
        return part

    def for_table(self, values: Iterable[Value | None]) -> Folio:
        """The page for a table of these values, whose caption says what sets all of them apart."""
        found = [(one, self._marks(one)) for one in values if one is not None]
        marked = [marks for _, marks in found if marks]
        first = marked[0] if len(marked) >= LEAST else []
        shared = [one for one in first if all(one in marks for marks in marked)]
        if not shared or any(one.run_origins for one, marks in found if not marks):
            return self
        part = self.without_mark("".join({*shared} - {REFERENCE}), REFERENCE not in shared)
        part.caption = " and ".join(shared).replace(REFERENCE, f"of the {REFERENCE} machine")
        return part

    @property
    def in_link(self) -> Folio:
        """The page for the words of a link, in which values are plain: links do not nest."""
        part = copy(self)
        part.opens = False
        return part

    def is_lent(self, paths: Iterable[str]) -> bool:
        """Whether the reference machine measured any of these runs."""
        machines = map(self.book.machine_of, filter(self.book.run, paths))
        return self.book.reference.name in machines

    def place_of(self, path: str) -> str:
        """Where the row of a run stands, from the site's root: on the section's machine."""
        self.run(path)
        experiment, _, name = path.partition(".")
        shown = self.book.holder(path)
        machine = shown.measured_on if shown else ""
        return self.sources.place_of(Origin(machine, experiment, name))

    def judged(self, claim: str) -> Judged:
        """The verdict on a claim, by the machine of the section."""
        return self.evidence.judged(claim)

    def line(self, text: str) -> Markup:
        """An author's line, inline."""
        return Markup(prose.render(text, self.expression, self.in_link.expression, inline=True))

    def prose(self, text: str) -> Markup:
        """An author's prose, as paragraphs; its tables and footnotes as this page's."""
        html = prose.render(text, self.expression, self.in_link.expression, inline=False)
        if prose.NOTES in html:
            self.noted.append(text)
            html = html.replace(prose.NOTES, str(len(self.noted)))
        named = f'{prose.SCROLLED[:-1]} aria-label="{self.ui["table"]["scroll"]}">'
        return Markup(html.replace(prose.SCROLLED, named))

    def expression(self, expression: str) -> Markup:
        """One expression printed with its provenance."""
        thing = self.evidence.printable(expression)
        if isinstance(thing, Value):
            sides = (claim for name, claim in calls_of_claims(expression) if name in SIDES)
            return self.show(thing, next(sides, ""))
        if isinstance(thing, ClaimSentence):
            self.shown_claims.add(thing.claim)
            return self.line(sentence(self.judged(thing.claim)))
        return escape(thing.text)

    def show(self, value: Value, claim: str = "", at: str = "") -> Markup:
        """A value with its provenance.

        Args:
            value: what is printed; `sources.place` says where it leads.
            claim: that states it, to which a value leads that no run gave.
            at: instead, the page that states it, from the site's root.
        """
        self.runs.update(self._runs_of(value))
        place = self.sources.place(value, self.claim_place(claim) if claim else at)
        marks = ", ".join(self._marks(value))
        css, text = _look(str(value), value.kind, marks, bool(value.absent))
        is_drawn = value.origin is not None and value.origin.is_nowhere
        if not self.opens or is_drawn:  # which stands for itself
            return Markup(f'<span class="pb-label">{text}</span>')
        number = self.sources.number(value)
        return Markup(f'<a class="{css}" href="{place}" data-v="{number}">{text}</a>')

    def _marks(self, value: Value) -> list[str]:
        """The words behind a value: its nature, and whether the reference machine measured it."""
        marks = [one for one in value.marks[-1:] if one != self.unmarked]
        measured = (one.machines for one in value.leaves if one.kind != "given")
        if self.marks_reference and any(self.book.reference.name in one for one in measured):
            marks.append(REFERENCE)
        return marks

    def _runs_of(self, value: Value) -> Iterator[str]:
        """The runs of the machine shown that a value was read from or computed from."""
        for origin in (leaf.origin for leaf in value.leaves):
            if origin and origin.experiment and origin.run:
                shown = self.book.holder(f"{origin.experiment}.{origin.run}")
                if shown and origin.machine == shown.measured_on:
                    yield f"{origin.experiment}.{origin.run}"

    def value(self, expression: str) -> Value | None:
        """A value for a table or a figure; None where this machine has none."""
        return self.evidence.value(expression)

    def printed(self, value: Value | None) -> Markup:
        """A value with its provenance; a dash where this machine has none."""
        return ABSENT if value is None else self.show(value)

    def cell(self, expression: str) -> Markup:
        """A value for a cell of a table, or a dash."""
        return self.printed(self.value(expression))

    def run(self, path: str) -> Run | None:
        """A run by `experiment.run`, remembered as used by this page."""
        run = self.book.run(path)
        if run is not None:
            self.runs.add(path)
        return run

    def claim_place(self, claim: str) -> str:
        """Where a claim stands with its numbers, from the site's root."""
        experiment = self.judged(claim).experiment
        page = page_of(experiment) if experiment in self.book.traces else "evidence.html"
        return f"{page}#claim-{claim}"

    def column_head(self, values: Iterable[Value | None]) -> str:
        """What heads a column of values: how they were found."""
        ways = {one.way for one in values if one is not None} or {"measured"}
        both = {"computed from runs", "measured"}
        return "From runs" if ways == both else " or ".join(sorted(ways)).capitalize()

    def strategy(self, run: Run) -> str:
        """What a run did, in the words of the interface."""
        words: dict[str, str] = self.ui["strategies"]
        parts = (run.label or run.strategy).split("+")  # of a plan: fsdp.4+tp.2
        axes = [part.partition(".")[0] for part in parts]
        return " × ".join(words.get(one, one.replace("_", " ")) for one in axes)


@lru_cache(maxsize=65536)
def _look(printed: str, kind: Kind, mark: str, is_absent: bool) -> tuple[str, Markup]:
    """The classes of a value's link, and what stands in it."""
    text = escape(printed)
    if mark:
        text += Markup(' <small class="pb-nature">{}</small>').format(mark)
    absent = " pb-absent" if is_absent else ""
    long = " pb-long" if len(text.striptags()) > LONG else ""
    return f"pb-value pb-{kind}{absent}{long}", text


def breakable(name: str) -> Markup:
    """A run's name or a path, which is one long word, with places where a line may end.

    They are between its parts, and within a part only where no line of a phone would hold it.
    """
    return Markup(parted(_JOINTS.split(str(escape(name))), WHOLE))


def escaped_heading(markup: str | Markup) -> Markup:
    """HTML that may stand in a Markdown heading: nothing in its text is Markdown any more."""
    out, in_tag = [], False
    for letter in str(escape(markup)):
        in_tag = letter == "<" or (in_tag and letter != ">")
        is_special = not in_tag and letter in "\\`*_{}[]()#+-!|~^"
        out.append(f"&#{ord(letter)};" if is_special else letter)
    return Markup("".join(out).replace("\n", " "))

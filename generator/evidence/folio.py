"""One page while it is being written: what templates and views ask for.

It knows the book, evaluates expressions, prints values with their provenance, and remembers which
runs the page used, so that the foot of the page can name them. Each section of a page comes from
one machine: from the one shown, or from the reference machine where that lacks anything it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup, escape

from generator.content.book import Book
from generator.content.shelf import page_of
from generator.content.typesetting import parted
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import OtherOutcomes
from generator.evidence.provenance import PageText
from generator.evidence.value import Origin, Value
from generator.evidence.verdicts import Outcome
from runners.traces.records import Run

ABSENT = Markup('<span class="pb-absent">–</span>')
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
        at_hand: what the machine at hand says, also where the page shows the reference machine.
        runs: the runs that it used.
        lent: the runs of figures and tables that the reference machine lends.
        items: the questions asked so far, in their order; `figures` likewise.
        path: the page's, under the site's root.
        assets: files that the page loads, by path.
    """

    book: Book
    evidence: Evidence
    outcomes: dict[str, Outcome]
    text: PageText
    at_hand: Evidence
    other_outcomes: Mapping[str, OtherOutcomes] = field(default_factory=dict)
    ui: dict[str, Any] = field(default_factory=interface_words)
    runs: set[str] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)
    items: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    path: str = ""
    assets: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """The runs whose values the text prints are used as well; it links claims as the page."""
        self.text.runs = self.runs
        self.text.claim_place = self.claim_place

    def for_runs(self, paths: Iterable[str]) -> Folio:
        """The page for a figure or a table over some runs, all of which one machine measured.

        That is the reference machine where it lends one of them and not all.
        """
        machines = {self.book.machine_of(path) for path in paths if self.book.run(path)} - {""}
        there = self.evidence.reference
        if len(machines) < 2 or there is None:
            return self
        text = self.text.over(there)
        return replace(self, evidence=there, book=there.book, runs=self.lent, text=text)

    def said_once(self, nature: str) -> Folio:
        """The page for a part of it that says once what is the nature of all its numbers."""
        text = self.text.over(self.evidence)
        text.unmarked = nature or text.unmarked
        return replace(self, text=text)

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
        return self.text.sources.place_of(Origin(machine, experiment, name))

    def outcome(self, claim: str) -> Outcome:
        """The verdict on a claim, by the machine of the section."""
        return self.evidence.outcome(claim)

    def line(self, text: str) -> Markup:
        """An author's line, inline."""
        return self.text.line(text)

    def prose(self, text: str) -> Markup:
        """An author's prose, as paragraphs."""
        return self.text.prose(text)

    def show(self, value: Value, claim: str = "") -> Markup:
        """A value with its provenance; what a claim itself states leads to the claim."""
        return self.text.show(value, self.claim_place(claim) if claim else "")

    def value(self, expression: str) -> Value | None:
        """A value for a table or a figure; None where this machine has none."""
        return self.evidence.one(expression)

    def shown(self, value: Value | None) -> Markup:
        """A value with its provenance; a dash where this machine has none."""
        return ABSENT if value is None else self.text.show(value)

    def cell(self, expression: str) -> Markup:
        """A value for a cell of a table, or a dash."""
        return self.shown(self.value(expression))

    def run(self, path: str) -> Run | None:
        """A run by `experiment.run`, remembered as used by this page."""
        run = self.book.run(path)
        if run is not None:
            self.runs.add(path)
        return run

    def claim_place(self, claim: str) -> str:
        """Where a claim stands with its numbers, from the site's root."""
        experiment = self.outcomes[claim].experiment
        page = page_of(experiment) if experiment in self.book.traces else "evidence.html"
        return f"{page}#claim-{claim}"

    def found(self, values: Iterable[Value | None]) -> str:
        """What heads a column of values: that they were measured, or simulated, or both."""
        natures = {one.nature for one in values if one is not None}
        words = {self.ui["found_by"]["simulated" if one == "simulated" else "measured"]
                 for one in natures or {"real"}}  # fmt: skip
        return " or ".join(sorted(words)).capitalize()

    def strategy(self, run: Run) -> str:
        """What a run did, in the words of the interface."""
        words: dict[str, str] = self.ui["strategies"]
        parts = (run.label or run.strategy).split("+")  # of a plan: fsdp.4+tp.2
        axes = [part.partition(".")[0] for part in parts]
        return " × ".join(words.get(one, one.replace("_", " ")) for one in axes)


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

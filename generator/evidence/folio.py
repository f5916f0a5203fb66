"""One page while it is being written: what templates and views ask for.

It knows the book, evaluates expressions, prints values with their provenance, and remembers which
runs the page used, so that the foot of the page can name them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment
from markupsafe import Markup, escape

from generator.content.book import Book
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import OtherOutcomes
from generator.evidence.provenance import PageText
from generator.evidence.value import AbsentError, Value
from generator.evidence.verdicts import Outcome
from runners.traces.records import Run

ABSENT = Markup('<span class="pb-absent">–</span>')


@lru_cache(maxsize=1)
def interface_words() -> dict[str, Any]:
    """Every word of the interface, from ui.yml."""
    return _words(Path(__file__).parents[1].joinpath("ui.yml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _words(text: str) -> dict[str, Any]:
    words: dict[str, Any] = yaml.safe_load(text)
    return words


@dataclass
class Folio:
    """One page of a book."""

    book: Book
    evidence: Evidence
    outcomes: dict[str, Outcome]
    environment: Environment
    text: PageText
    topic: str | None = None
    other_outcomes: Mapping[str, OtherOutcomes] = field(default_factory=dict)
    ui: dict[str, Any] = field(default_factory=interface_words)
    runs: set[str] = field(default_factory=set)
    items: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    path: str = ""  # of the page, under the site's root
    assets: dict[str, bytes] = field(default_factory=dict)  # files that the page loads, by path

    def line(self, text: str) -> Markup:
        """An author's line, inline."""
        return self.text.line(text)

    def prose(self, text: str) -> Markup:
        """An author's prose, as paragraphs."""
        return self.text.prose(text)

    def show(self, value: Value) -> Markup:
        """A value with its provenance."""
        return self.text.show(value)

    def value(self, expression: str) -> Value | None:
        """A value for a table or a figure; None where this machine has none."""
        try:
            found = self.evidence.value(expression)
        except AbsentError:
            return None
        assert isinstance(found, Value), expression
        return None if found.absent else found

    def cell(self, expression: str) -> Markup:
        """A value for a cell of a table, or a dash."""
        found = self.value(expression)
        return ABSENT if found is None else self.text.show(found)

    def run(self, path: str) -> Run | None:
        """A run by `experiment.run`, remembered as used by this page."""
        experiment, name = path.split(".")
        shown = self.book.traces.get(experiment)
        run = shown.trace.runs.get(name) if shown else None
        if run is not None:
            self.runs.add(path)
        return run

    def experiment_of(self, claim: str) -> str:
        """The experiment that a claim rests on first of all; empty where no run decides it."""
        runs = self.outcomes[claim].runs
        return runs[0].partition(".")[0] if runs else ""

    def claim_place(self, claim: str) -> str:
        """Where a claim stands with its numbers, from the site's root."""
        experiment = self.experiment_of(claim)
        page = f"evidence/{experiment}.html" if experiment in self.book.traces else "evidence.html"
        return f"{page}#claim-{claim}"

    def strategy(self, run: Run) -> str:
        """What a run did, in the words of the interface."""
        if run.settings.get("gradient_as_bucket_view"):
            return str(self.ui["strategies"]["ddp_view"])
        if "num_forward_sums" in run.settings:  # of `tensor_parallel`, which splits no batch
            return str(self.ui["strategies"]["tensor_parallel"])
        words: dict[str, str] = self.ui["strategies"]
        return words.get(run.strategy, run.strategy.replace("_", " "))


def breakable(name: str) -> Markup:
    """A run's name, which is one long word, with places where a line may end."""
    return Markup(re.sub(r"(?<=[._])(?=\w)", "<wbr>", str(escape(name))))


def escaped_heading(markup: str | Markup) -> Markup:
    """HTML that may stand in a Markdown heading: nothing in its text is Markdown any more."""
    out, in_tag = [], False
    for letter in str(escape(markup)):
        in_tag = letter == "<" or (in_tag and letter != ">")
        is_special = not in_tag and letter in "\\`*_{}[]()#+-!|~^"
        out.append(f"&#{ord(letter)};" if is_special else letter)
    return Markup("".join(out).replace("\n", " "))

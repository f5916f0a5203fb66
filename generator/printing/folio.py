"""One page while it is being written: what templates and views ask for.

It evaluates expressions, renders authors' texts, and prints each value as a link to the row of its
run. With `sources.js` and `values.js`, which read the block of data at the page's end, a value
opens its source in the page's one popover. Each section of a page comes from one machine: from the
one shown, or from the reference machine where that lacks anything it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup, escape

from proofbook.generator.content.book import Book
from proofbook.generator.printing.markdown import Span, Text, parted, render
from proofbook.generator.printing.sources import Sources
from proofbook.generator.values.evaluation import Evidence, verdict_words
from proofbook.generator.values.filters import SIDES, ClaimSentence, calls_of_claims
from proofbook.generator.values.machines import OtherOutcomes, measured_here
from proofbook.generator.values.value import Kind, Origin, Value
from proofbook.generator.values.verdicts import Judged
from proofbook.runners.core.trace.fields import Key
from proofbook.runners.core.trace.records import Run
from proofbook.runners.system.kinds import kinds

ABSENT = Markup('<span class="pb-absent">–</span>')
REFERENCE = "reference"  # behind a number of the reference machine on the pages of another one
LEAST = 2  # values of a table that repeat a mark
LONG = 24  # letters of a value that fit any line; what has more may break
_JOINTS = re.compile(r"(?<=/)|(?<=\.)(?!py$)")  # of a name such as `experiment.run`, of a path
WHOLE = 36  # letters of a part that fit into a line of a phone


@lru_cache(maxsize=1)
def interface_words() -> dict[str, Any]:
    """Every word of the interface, from ui.yml, and from that of each kind and companion."""
    words: dict[str, Any] = {}
    for folder in (Path(__file__).parents[1], *(kind.folder for kind in kinds())):
        if (own := folder / "ui.yml").exists():
            words |= yaml.safe_load(own.read_text(encoding="utf-8"))
    return words


@dataclass
class Folio:
    """One page of a book, with the runs, claims, items, figures and notes that it used so far."""

    evidence: Evidence  # that its expressions are evaluated by
    at_hand: Evidence  # of the machine at hand, also where the page shows the reference machine
    other_outcomes: Mapping[str, OtherOutcomes] = field(default_factory=dict)
    path: str = ""  # under the site's root
    marks_reference: bool = False  # whether numbers of the reference machine carry its mark
    unmarked: str = ""  # the nature that the page says once, of all its numbers
    caption: str = ""  # of the table that this is the page for: the marks that all its values have
    opens: bool = True  # whether values are links; they are not in the words of a link
    ui: dict[str, Any] = field(default_factory=interface_words)
    runs: set[str] = field(default_factory=set)
    lent: set[str] = field(default_factory=set)  # runs that the reference machine lends to figures
    shown_claims: set[str] = field(default_factory=set)  # with numbers below the last claim table
    items: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)  # texts with footnotes
    assets: dict[str, bytes] = field(default_factory=dict)  # files that the page loads, by path
    natures: set[str] = field(default_factory=set)  # words behind its numbers
    markup: set[str] = field(default_factory=set)  # what its texts hold: formulas, footnotes, boxes
    linked_claims: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)  # that authors wrote and it prints

    def __post_init__(self) -> None:
        """What the page prints leads to where it comes from."""
        self.sources = Sources(self.evidence, self.root, self.ui["natures"])

    @property
    def root(self) -> str:
        """What leads from the page to the site's root."""
        return "../" * self.path.count("/")

    @property
    def book(self) -> Book:
        """The book, as the page's machine shows it."""
        return self.evidence.book

    def over(self, evidence: Evidence) -> Folio:
        """A copy of the page for a part whose values another machine's evidence gives."""
        return self._with(evidence=evidence)

    def _with(self, **changes: object) -> Folio:
        part = copy(self)  # which numbers its values among those of the page
        vars(part).update(changes)
        return part

    def for_runs(self, paths: Iterable[str]) -> Folio:
        """The page, or where runs are of several machines, a copy over the reference machine."""
        evidence = self.evidence.for_runs(paths)
        is_own = evidence is self.evidence
        return self if is_own else self._with(evidence=evidence, runs=self.lent)

    def without_mark(self, nature: str, marks_reference: bool = True) -> Folio:
        """A copy of the page for a part that states the nature of all its numbers once."""
        is_marking = self.marks_reference and marks_reference
        return self._with(unmarked=nature or self.unmarked, marks_reference=is_marking)

    def for_table(self, values: Iterable[Value | None]) -> Folio:
        """This folio, or a copy that says the marks all values share in `caption`, not at each."""
        marked_values = [(value, self._marks(value)) for value in values if value is not None]
        marked = [marks for _, marks in marked_values if marks]
        first = marked[0] if len(marked) >= LEAST else []
        shared = [mark for mark in first if all(mark in marks for marks in marked)]
        if not shared or any(value.run_origins for value, marks in marked_values if not marks):
            return self
        part = self.without_mark("".join({*shared} - {REFERENCE}), REFERENCE not in shared)
        caption = " and ".join(shared).replace(REFERENCE, f"of the {REFERENCE} machine")
        self.natures.add(caption)
        return part._with(caption=caption)

    @property
    def in_link(self) -> Folio:
        """A copy of the page for the words of a link, where values are plain: links do not nest."""
        return self._with(opens=False)

    def place_of(self, path: str) -> str:
        """Address of a run's row, from the site's root, on the machine shown; records its use."""
        self.run(path)
        experiment, _, name = path.partition(".")
        trace = self.book.holder(path)
        machine = trace.measured_on if trace else ""
        return self.sources.place_of(Origin(machine, experiment, name))

    def judged(self, claim: str) -> Judged:
        """The verdict on a claim by the evidence of the section."""
        return self.evidence.judged(claim)

    def line(self, text: str) -> Text:
        """An author's line as inline HTML."""
        return self._text(text, inline=True)

    def prose(self, text: str) -> Text:
        """An author's prose as HTML paragraphs, tables and footnotes."""
        return self._text(text, inline=False)

    def _text(self, text: str, *, inline: bool) -> Text:
        note, table = str(len(self.noted) + 1), self.ui["table"]["scroll"]
        linked = self.in_link.expression
        written = render(text, self.expression, linked, inline=inline, note=note, table=table)
        self.texts.add(text)
        self.markup |= written.markup
        self.noted += [text] if "footnote" in written.markup else []
        return written

    def expression(self, expression: str) -> Text:
        """An expression as HTML: a value with its provenance, a claim's sentence, or plain text."""
        result = self.evidence.printable(expression)
        if isinstance(result, Value):
            sides = (claim for name, claim in calls_of_claims(expression) if name in SIDES)
            return self.show(result, next(sides, ""))
        if isinstance(result, ClaimSentence):
            self.shown_claims.add(result.claim)
            return self.line(sentence(self.judged(result.claim)))
        return Text.of([Span(str(escape(result.text)), "words")])

    def show(self, value: Value, claim: str = "", at: str = "") -> Text:
        """HTML of a value: a link to its run, or if none gave it, to the claim or page `at`."""
        self.runs.update(self._runs_of(value))
        place = self.sources.place(value, self.claim_place(claim) if claim else at)
        marks = ", ".join(self._marks(value))
        self.natures.add(marks)
        is_lent = self.evidence is self.at_hand.reference
        here = measured_here(value, self.at_hand) if is_lent else None
        css, text = _look(str(value), value.kind, marks, bool(value.absent))
        is_drawn = value.origin is not None and value.origin.is_nowhere
        if not self.opens or is_drawn:  # which stands for itself
            return Text(f'<span class="pb-label">{text}</span>')
        number = self.sources.number(value, here)
        css += " pb-moved" if here and str(here) != str(value) else ""
        if claim and value.link_target is None:
            self.linked_claims.add(claim)
        return Text(f'<a class="{css}" href="{place}" data-v="{number}">{text}</a>')

    def _marks(self, value: Value) -> list[str]:
        """The words behind a value: its nature, and whether the reference machine measured it."""
        marks = [mark for mark in value.marks[-1:] if mark != self.unmarked]
        measured = (leaf.machines for leaf in value.leaves if leaf.kind != "given")
        if self.marks_reference and any(self.book.reference.name in names for names in measured):
            marks.append(REFERENCE)
        return marks

    def _runs_of(self, value: Value) -> Iterator[str]:
        """The runs of the machine shown that a value was read from or computed from."""
        for origin in (leaf.origin for leaf in value.leaves):
            if origin and origin.experiment and origin.run:
                trace = self.book.holder(f"{origin.experiment}.{origin.run}")
                if trace and origin.machine == trace.measured_on:
                    yield f"{origin.experiment}.{origin.run}"

    def value(self, expression: str) -> Value | None:
        """The value of an expression; None where this machine has none."""
        return self.evidence.value(expression)

    def reading(
        self, path: str, *keys: Key, by: Callable[[Any], object] | None = None
    ) -> Value | None:
        """The value of a field of a run, or what the function `by` makes of it; None if absent."""
        return self.evidence.reading(path, *keys, by=by)

    def printed(self, value: Value | None) -> Markup:
        """A value as HTML with its provenance; a dash for None."""
        return ABSENT if value is None else self.show(value)

    def cell(self, expression: str) -> Markup:
        """The value of an expression as HTML for a table's cell; a dash for None."""
        return self.printed(self.value(expression))

    def run(self, path: str) -> Run | None:
        """A run by `experiment.run`, recorded as used by this page."""
        run = self.book.run(path)
        if run is not None:
            self.runs.add(path)
        return run

    def claim_place(self, claim: str) -> str:
        """Address of a claim with its numbers, from the site's root."""
        experiment = self.judged(claim).experiment
        trace = self.book.traces.get(experiment)
        page = trace.page if trace else "evidence.html"
        return f"{page}#claim-{claim}"

    def column_head(self, values: Iterable[Value | None]) -> str:
        """The head of a column of values: measured, computed, simulated or cited."""
        ways = {value.way for value in values if value is not None} or {"measured"}
        both = {"computed from runs", "measured"}
        return "From runs" if ways == both else " or ".join(sorted(ways)).capitalize()

    def strategy(self, run: Run) -> str:
        """The strategy of a run, in the words of the interface."""
        words: dict[str, str] = self.ui["strategies"]
        parts = (run.label or run.strategy).split("+")  # of a plan: fsdp.4+tp.2
        axes = [part.partition(".")[0] for part in parts]
        return " × ".join(words.get(axis, axis.replace("_", " ")) for axis in axes)


def sentence(outcome: Judged) -> str:
    """Line: the `showed:` of a claim for its verdict; without one, the claim and its verdict."""
    claim, words = outcome.claim, verdict_words(outcome.verdict).capitalize()
    showed = claim.sentence_for(outcome.verdict)
    return showed or f"“{claim.says}” {words}: {outcome.explanation}."


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
    """A run's name or a path with places where a line may break.

    They are between its parts, and within a part only where no line of a phone would hold it.
    """
    return Markup(parted(_JOINTS.split(str(escape(name))), WHOLE))


def escaped_heading(markup: str | Markup) -> Markup:
    """HTML for a Markdown heading: outside tags, Markdown's characters as character references."""
    out, in_tag = [], False
    for letter in str(escape(markup)):
        in_tag = letter == "<" or (in_tag and letter != ">")
        is_special = not in_tag and letter in "\\`*_{}[]()#+-!|~^"
        out.append(f"&#{ord(letter)};" if is_special else letter)
    return Markup("".join(out).replace("\n", " "))

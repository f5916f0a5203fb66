"""One page's text: author's Markdown to HTML in which every value leads to where it comes from.

Flow: texts and values in; inline HTML out, and at the end of the page one block of data with the
source of each distinct value. A value is a link to the row of its run. With `sources.js`, which
reads the block, it opens its source beside itself in the page's one popover. Runs stand in the
block once, and so do values that others are computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from markupsafe import Markup, escape

from generator.content import prose
from generator.evidence.evaluation import Evidence
from generator.evidence.filters import SIDES, Showed, asked_of_claims
from generator.evidence.sources import Sources
from generator.evidence.value import Kind, Value
from generator.evidence.verdicts import sentence

REFERENCE = "reference"  # behind a number of the reference machine on the pages of another one
LONG = 24  # letters that fit any line; what has more may break


class PageText:
    """Renders the texts of one page and gathers the provenance of what they print."""

    def __init__(self, evidence: Evidence, depth: int) -> None:
        """Start a page.

        Args:
            evidence: what expressions are evaluated by.
            depth: folders below the site's root, for links to the raw traces.
        """
        self._evidence = evidence
        self.sources = Sources(evidence, "../" * depth)
        self.shown_claims: set[str] = set()  # whose numbers stand below the last table of claims
        self.claim_place: Callable[[str], str] = str  # from the site's root; of a claim
        self.unmarked = ""  # the word that the page says once, of all its numbers
        self.marks_reference = False  # whether numbers of the reference machine carry its mark
        self.runs: set[str] = set()  # whose values it prints

    def over(self, evidence: Evidence) -> PageText:
        """The same page, for a part of it that another machine's evidence fills."""
        part = PageText(evidence, 0)
        part.__dict__.update(self.__dict__, _evidence=evidence)
        return part

    def line(self, text: str) -> Markup:
        """Inline HTML of a Line."""
        return Markup(prose.render(text, self.expression, inline=True))

    def prose(self, text: str) -> Markup:
        """Paragraphs of a Prose."""
        return Markup(prose.render(text, self.expression, inline=False))

    def expression(self, expression: str) -> Markup:
        """One expression printed with its provenance."""
        thing = self._evidence.printable(expression)
        if isinstance(thing, Value):
            sides = (one for name, one in asked_of_claims(expression) if name in SIDES)
            claim = next(sides, "")
            return self.show(thing, claim and self.claim_place(claim))
        if isinstance(thing, Showed):
            self.shown_claims.add(thing.claim)
            return self.line(sentence(self._evidence.outcome(thing.claim)))
        return escape(thing.text)

    def show(self, value: Value, stated_at: str = "") -> Markup:
        """A value made in Python, printed with its provenance; `sources.place` says what it is."""
        self.runs.update(self._runs_of(value))
        place, number = self.sources.place(value, stated_at), self.sources.number(value)
        mark = value.marks[-1] if value.marks and not value.absent else ""
        shown = "" if mark == self.unmarked else mark
        if self.marks_reference and self._is_of_reference(value):
            shown = f"{shown}, {REFERENCE}" if shown else REFERENCE
        css, text = _look(str(value), value.kind, shown, bool(value.absent))
        return Markup(f'<a class="{css}" href="{place}" data-v="{number}">{text}</a>')

    def _is_of_reference(self, value: Value) -> bool:
        """Whether the reference machine measured any of what a value is made of."""
        reference = self._evidence.book.reference.name
        return any(one.kind != "given" and reference in one.machines for one in value.leaves)

    def _runs_of(self, value: Value) -> Iterator[str]:
        """The runs of the machine shown that a value was read from or computed from."""
        for origin in (leaf.origin for leaf in value.leaves):
            if origin and origin.experiment and origin.run:
                shown = self._evidence.book.holder(f"{origin.experiment}.{origin.run}")
                if shown and origin.machine == shown.measured_on:
                    yield f"{origin.experiment}.{origin.run}"


@lru_cache(maxsize=65536)
def _look(printed: str, kind: Kind, mark: str, is_absent: bool) -> tuple[str, Markup]:
    """The classes of a value's link, and what stands in it."""
    text = escape(printed)
    if mark:
        text += Markup(' <small class="pb-nature">{}</small>').format(mark)
    absent = " pb-absent" if is_absent else ""
    long = " pb-long" if len(text.striptags()) > LONG else ""
    return f"pb-value pb-{kind}{absent}{long}", text

"""One page's text: author's Markdown to HTML in which every value opens to where it comes from.

Flow: texts and values in; inline HTML out, and at the end of the page one popover for each distinct
value. Values are buttons with a `popovertarget`, so they open without any script.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from generator import prose
from generator.filters import Label, Showed
from generator.prose import Fill
from generator.value import Value

if TYPE_CHECKING:
    from generator.evidence import Evidence

KINDS = {
    "given": "given: set by the run",
    "measured": "measured by the run",
    "computed": "computed from other values",
    "simulated": "simulated, not run at this size",
    "cited": "cited",
}


class PageText:
    """Renders the texts of one page and gathers the provenance of what they print."""

    def __init__(self, evidence: Evidence, depth: int) -> None:
        """Start a page.

        Args:
            evidence: what expressions are evaluated by.
            depth: folders below the site's root, for links to the raw traces.
        """
        self._evidence = evidence
        self._root = "../" * depth
        self._numbers: dict[object, int] = {}
        self._values: list[Value] = []

    def line(self, text: str) -> Markup:
        """Inline HTML of a Line."""
        return Markup(prose.render(text, self._fill(text), inline=True))

    def prose(self, text: str) -> Markup:
        """Paragraphs of a Prose."""
        return Markup(prose.render(text, self._fill(text), inline=False))

    def expression(self, expression: str) -> Markup:
        """One expression printed with its provenance."""
        return self._shown(self._evidence.printable(expression))

    def show(self, value: Value) -> Markup:
        """A value made in Python, printed with its provenance."""
        number = self._number(value)
        absent = " pb-absent" if value.absent else ""
        return Markup(
            '<button type="button" class="pb-value pb-{kind}{absent}" '
            'popovertarget="pb-v{number}">{text}</button>'
        ).format(kind=value.kind, absent=absent, number=number, text=str(value))

    def provenances(self) -> Markup:
        """The popovers of every value printed so far, for the page's end."""
        return Markup("\n").join(
            self._popover(number, value) for number, value in enumerate(self._values, 1)
        )

    def _fill(self, text: str) -> Fill:
        def fill(expression: str) -> str:
            return str(self._shown(self._evidence.printable(expression, text)))

        return fill

    def _shown(self, thing: Value | Label | Showed | str) -> Markup:
        if isinstance(thing, Value):
            return self.show(thing)
        if isinstance(thing, Showed):
            return self.line(self._evidence.sentence(thing.claim))
        return escape(thing.text if isinstance(thing, Label) else thing)

    def _number(self, value: Value) -> int:
        key = (str(value), value.kind, value.formula, value.origin)
        if key not in self._numbers:
            self._values.append(value)
            self._numbers[key] = len(self._values)
        return self._numbers[key]

    def _popover(self, number: int, value: Value) -> Markup:
        rows = [*self._facts(value), *self._inputs(value)]
        return Markup(
            '<div class="pb-provenance" popover id="pb-v{number}">'
            '<p class="pb-provenance-kind pb-{kind}">{text}: {words}</p><dl>{rows}</dl></div>'
        ).format(
            number=number,
            kind=value.kind,
            text=str(value),
            words=KINDS[value.kind],
            rows=Markup("").join(
                Markup("<dt>{}</dt><dd>{}</dd>").format(name, text) for name, text in rows
            ),
        )

    def _facts(self, value: Value) -> Iterable[tuple[str, Markup | str]]:
        if value.absent:
            yield "why", value.absent
        origin = value.origin
        if origin is None:
            yield "formula", Markup("<code>{}</code>").format(value.formula)
            return
        if origin.reference:
            yield "source", self._evidence.citation(origin.reference)
            return
        if not isinstance(value.number, str):
            yield "exactly", str(value.shown(way="exact"))
        yield "machine", origin.machine
        if not origin.experiment:
            yield "field", Markup("<code>{}</code>").format(origin.field)
            return
        place = " · ".join(part for part in (origin.experiment, origin.run, origin.field) if part)
        yield "from", Markup("<code>{}</code>").format(place)
        yield "when", f"{origin.recorded_at}, torch {origin.torch}"
        command = f"python -m runners run {origin.experiment}"
        yield "run it yourself", Markup("<code>{}</code>").format(command)
        yield "trace", self._trace_link(origin.machine, origin.experiment)

    def _inputs(self, value: Value) -> Iterable[tuple[str, Markup | str]]:
        seen: set[tuple[str, str]] = set()
        for leaf in value.leaves if value.origin is None else ():
            seen.add(
                (leaf.origin.machine, leaf.origin.experiment or "") if leaf.origin else ("", "")
            )
            yield (
                "from",
                Markup("<code>{}</code> = {} ({})").format(leaf.formula, str(leaf), leaf.kind),
            )
        for machine, experiment in sorted(seen):
            if experiment:
                yield "trace", self._trace_link(machine, experiment)

    def _trace_link(self, machine: str, experiment: str) -> Markup:
        return Markup('<a href="{root}traces/{machine}/{name}.json">{name}.json</a>').format(
            root=self._root, machine=machine, name=experiment
        )

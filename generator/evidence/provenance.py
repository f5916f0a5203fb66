"""One page's text: author's Markdown to HTML in which every value opens to where it comes from.

Flow: texts and values in; inline HTML out, and at the end of the page one popover for each distinct
value. Values are buttons with a `popovertarget`, so they open without any script.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from generator.content import prose
from generator.content.prose import Fill
from generator.evidence.filters import Label, Showed
from generator.evidence.reproduce_command import command_for
from generator.evidence.value import Origin, Value

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

KINDS = {
    "given": "given: set by the run",
    "measured": "measured by the run",
    "computed": "computed from other values",
    "simulated": "simulated, not run at this size",
    "cited": "cited",
}

NATURES = {
    "paced": "paced: its stages last as long as they were told",
    "simulated": "simulated: fake tensors, on one rank of as many as it says",
}

CROWDED = "oversubscribed"
CROWDED_SAYS = "oversubscribed: more ranks than cores took turns, so no device takes this time"

REPEAT = "repeat"  # the part of the home page that says how to measure a number again
NUM_BRIEF = 4  # inputs that a brief popover lists
LONG = 24  # letters that fit any line; what has more may break


class PageText:
    """Renders the texts of one page and gathers the provenance of what they print."""

    def __init__(self, evidence: Evidence, depth: int, *, is_brief: bool = False) -> None:
        """Start a page.

        Args:
            evidence: what expressions are evaluated by.
            depth: folders below the site's root, for links to the raw traces.
            is_brief: whether a value's trace and command stand on its experiment's own page, which
                its popover then links: for a page of a thousand values.

        While `leads_to` is set, a value is a link to that place, where it opens.
        """
        self._evidence = evidence
        self._root = "../" * depth
        self._is_brief = is_brief
        self.leads_to: str | None = None  # where a number stands with its provenance, if not here
        self.claims: set[str] = set()  # whose sentences the page prints
        self.told: set[str] = set()  # whose numbers the section under way has shown
        self._shared: dict[str, Markup] = {}
        self._numbers: dict[object, int] = {}
        self._values: list[Value] = []

    def over(self, evidence: Evidence) -> PageText:
        """The same page, for a part of it that another machine's evidence fills."""
        part = PageText(evidence, 0)
        part.__dict__.update(self.__dict__, _evidence=evidence)
        return part

    def copied(self, evidence: Evidence) -> PageText:
        """The page as it stands, apart from this one, for a part that may not stay."""
        part = self.over(evidence)
        for name, state in vars(part).items():
            if isinstance(state, set | dict | list):
                setattr(part, name, state.copy())
        return part

    def line(self, text: str, evidence: Evidence | None = None) -> Markup:
        """Inline HTML of a Line; over another machine's evidence where that is given."""
        return Markup(prose.render(text, self._fill(text, evidence), inline=True))

    def prose(self, text: str) -> Markup:
        """Paragraphs of a Prose."""
        return Markup(prose.render(text, self._fill(text), inline=False))

    def expression(self, expression: str) -> Markup:
        """One expression printed with its provenance."""
        return self._shown(self._evidence.printable(expression), self._evidence)

    def show(self, value: Value) -> Markup:
        """A value made in Python, printed with its provenance."""
        printed = str(value)
        absent = " pb-absent" if value.absent else ""
        long = " pb-long" if len(printed) > LONG else ""
        if self.leads_to:
            return Markup('<a class="pb-value pb-{}{}{}" href="{}">{}{}</a>').format(
                value.kind, absent, long, self.leads_to, printed, _mark(value)
            )
        number = self._number(value)
        return Markup(
            f'<button type="button" class="pb-value pb-{value.kind}{absent}{long}" '
            f'popovertarget="pb-v{number}">{escape(printed)}{_mark(value)}</button>'
        )

    def shown_alike(self, value: Value, name: str, says: str) -> Markup:
        """A computed value that stands beside its inputs; all of one name share a popover."""
        body = Markup("<p>{}</p><p><code>{}</code></p>").format(KINDS[value.kind], says)
        self._shared[name] = Markup('<div popover id="pb-{}">{}</div>').format(name, body)
        return Markup(
            '<button type="button" class="pb-value pb-{}" popovertarget="pb-{}">{}{}</button>'
        ).format(value.kind, name, str(value), _mark(value))

    @property
    def has_crowded(self) -> bool:
        """Whether it shows a time of ranks that took turns on the cores."""
        return any(value.is_crowded for value in self._values)

    def provenances(self) -> Markup:
        """The popovers of every value printed so far, for the page's end."""
        own = (self._popover(number, value) for number, value in enumerate(self._values, 1))
        return Markup("\n").join([*own, *self._shared.values()])

    def _fill(self, text: str, evidence: Evidence | None = None) -> Fill:
        by = evidence or self._evidence

        def fill(expression: str) -> str:
            return str(self._shown(by.printable(expression, text), by))

        return fill

    def _shown(self, thing: Value | Label | Showed, by: Evidence) -> Markup:
        if isinstance(thing, Value):
            return self.show(thing)
        if isinstance(thing, Showed):
            self.claims.add(thing.claim)
            self.told.add(thing.claim)
            return self.line(by.sentence(thing.claim), by)
        return escape(thing.text)

    def _number(self, value: Value) -> int:
        key = (str(value), value.kind, value.formula, value.origin or value.machines)
        if key not in self._numbers:
            self._values.append(value)
            self._numbers[key] = len(self._values)
        return self._numbers[key]

    def _popover(self, number: int, value: Value) -> Markup:
        known = (self._root, self._is_brief, value)
        body = self._evidence.remembered(known, lambda: self._body(value))
        brief = ' class="pb-brief"' if self._is_brief else ""
        return Markup(f'<div popover id="pb-v{number}"{brief}>{body}</div>')

    def _body(self, value: Value) -> str:
        if self._is_brief:
            return self._brief(value)
        rows = "".join(
            f"<dt>{name}</dt><dd>{content}</dd>"
            for name, content in (*self._facts(value), *self._inputs(value))
        )
        return f"<p><b>{escape(str(value))}</b>: {KINDS[value.kind]}</p><dl>{rows}</dl>"

    def _brief(self, value: Value) -> str:
        """The same in lines of text: a page of a thousand values has few elements to spare."""
        lines = (
            f"{name} {content}" for name, content in (*self._facts(value), *self._inputs(value))
        )
        head = f"<b>{escape(str(value))}</b>: {KINDS[value.kind]}"
        return "\n".join([head, *lines])

    def _facts(self, value: Value) -> Iterator[tuple[str, str]]:
        """What is known of a value read off, or the formula of a computed one, as HTML."""
        if value.absent:
            yield "why", escape(value.absent)
        origin = value.origin
        yield from _circumstances(value)
        if origin is None:
            yield "formula", _code(value.formula)
            return
        if origin.reference:
            yield "source", escape(self._evidence.citation(origin.reference))
            return
        if value.words or not isinstance(value.number, str):
            yield "exactly", escape(str(replace(value, words=None).shown(way="exact")))
        if not origin.experiment:
            yield "from", _code(origin.field)
            yield "on", escape(origin.machine)
            return
        place = " · ".join(part for part in (origin.experiment, origin.run, origin.field) if part)
        yield "from", _code(place)
        if self._is_brief:
            yield "on", escape(origin.machine)
            yield "run", self._run_link(origin)
            return
        yield "on", escape(f"{origin.machine}, {origin.recorded_at}, torch {origin.torch}")
        yield from self._again(value)
        yield "trace", self._trace_link(origin.machine, origin.experiment)

    def _inputs(self, value: Value) -> Iterator[tuple[str, str]]:
        """The values that a computed one is made of, its machine and its traces, as HTML."""
        if value.origin is not None:
            return
        for leaf in value.leaves[: NUM_BRIEF if self._is_brief else None]:
            yield "from", f"{_code(leaf.formula)} = {escape(str(leaf))} ({leaf.kind})"
        if self._is_brief and len(value.leaves) > NUM_BRIEF:
            yield "from", f"and {len(value.leaves) - NUM_BRIEF} more"
        for machine in sorted(value.machines):
            yield "on", escape(machine)
        if self._is_brief:
            return
        yield from self._again(value)
        origins = [leaf.origin for leaf in value.leaves if leaf.origin]
        for machine, experiment in dict.fromkeys((o.machine, o.experiment) for o in origins):
            if experiment:
                yield "trace", self._trace_link(machine, experiment)

    def _again(self, value: Value) -> Iterator[tuple[str, str]]:
        """The command that measures it again, or its inputs, beside a link to what that needs."""
        line = command_for(value, self._evidence.book.reference.name)
        if line:
            what = "repeat" if value.origin else "repeat its inputs"
            yield f'<a href="{self._root}index.html#{REPEAT}">{what}</a>', _code(line)

    def _run_link(self, origin: Origin) -> str:
        place = f"evidence/{origin.experiment}.html"
        if origin.run:
            place += f"#run-{origin.experiment}-{origin.run}"
        return f'<a href="{self._root}{place}">{escape(origin.run or origin.experiment)}</a>'

    def _trace_link(self, machine: str, experiment: str) -> str:
        name = escape(f"{experiment}.json")
        return f'<a href="{self._root}traces/{escape(machine)}/{name}">{name}</a>'


def _mark(value: Value) -> Markup:
    """The word behind a number that no real run decided, or a time of ranks that took turns."""
    word = CROWDED if value.is_crowded else value.nature
    if word == "real" or value.absent:
        return Markup("")
    return Markup(' <small class="pb-nature">{}</small>').format(word)


def _circumstances(value: Value) -> Iterator[tuple[str, str]]:
    """What sets a number apart from those of ordinary runs, as HTML."""
    if value.nature != "real":
        yield "nature", escape(NATURES[value.nature])
    if value.is_crowded:
        yield "ranks", escape(CROWDED_SAYS)


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"

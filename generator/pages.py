"""Book → {page path: Markdown}. Pure: the same book gives the same bytes.

Each page is a template of its own over the shared frame. Headings are Markdown, so that MkDocs
makes the table of contents from them; everything else is HTML, so that no Markdown builder changes
it. Code that pages show is read from the files that runs executed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from generator import checks, figures, given_away, verdicts
from generator.book import Book, Topic
from generator.errors import ContentError, ContentErrors
from generator.evidence import Evidence
from generator.exhibit import Figure
from generator.provenance import PageText
from generator.verdicts import Outcome
from generator.views import (
    calculator_form,
    claims,
    costs,
    decisions,
    frame,
    listing,
    question,
    stages,
    tables,
    trials,
    walkthrough,
    ways,
)
from generator.views.folio import Folio, breakable, escaped_heading, interface_words
from generator.views.picture import plain

TEMPLATES = Path(__file__).parent / "templates"
DESCRIPTION_LENGTH = 180
_VALUE_AND_MARK = re.compile(
    r'((?:[(\[“"]|&#34;)?<button type="button" class="pb-value[^>]*>[^<]*</button>'
    r"(?:[.,;:!?)\]”%]|’s)+)"
)


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, autoescaped and strict."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["heading"] = escaped_heading
    made.filters["plain"] = plain
    made.filters["breakable"] = breakable
    made.globals["ui"] = interface_words()
    return made


class _Printer:
    """Renders the pages of one book."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.evidence = Evidence(book)
        errors = checks.check(self.evidence)
        if errors:
            raise ContentErrors(errors)
        self.outcomes = verdicts.judge(book, self.evidence)
        self.reference_outcomes = _on_reference(book, self.outcomes)
        self.minutes: dict[str, int] = {}  # of each page that stands printed
        self.told: dict[str, str] = {}  # items whose answer a page gives away

    def page(self, path: str, template: str, topic: Topic | None = None, **context: Any) -> str:
        """One page: the template's body inside the frame."""
        depth = path.count("/")
        text = PageText(self.evidence, depth)
        folio = Folio(
            self.book, self.evidence, self.outcomes, environment(), text,
            reference_outcomes=self.reference_outcomes,
        )  # fmt: skip
        context |= {"folio": folio, "book": self.book, "topic": topic, "root": "../" * depth}
        context |= self._tools(folio, topic, context.get("lesson"))
        body = _kept_together(environment().get_template(template).render(context))
        if topic and self.book.is_reference:
            self.told |= given_away.told(body, path, topic.items, self.evidence)
        row = ways.ways(topic, context.get("mode"), folio) if topic else []
        found = frame.origins(folio.runs, self.book, depth)
        self.minutes[path] = frame.minutes(body, len(folio.items))
        description = plain(folio.line(context["about"])) if context.get("about") else ""
        return (
            environment()
            .get_template("page.md.j2")
            .render(
                context,
                body=Markup(body),
                ways=row,
                has_toc=context.get("has_toc", False),
                minutes=self.minutes[path],
                scripts=frame.scripts(body, has_ways=bool(row)),
                origins=found,
                machines=frame.machines(found),
                notices=frame.notices(folio, found),
                title=folio.line(context["heading"]),
                description=_shortened(description),
            )
        )

    def _tools(self, folio: Folio, topic: Topic | None, lesson: object) -> dict[str, Any]:
        """What templates call: each takes what an author wrote and gives what a macro prints."""
        drawn: dict[str, Figure] = {f.id: f for f in getattr(lesson, "figures", [])}
        items = topic.items if topic else {}
        return {
            "figure": lambda name: figures.draw(drawn[name], folio),
            "drawn": lambda figure: figures.draw(figure, folio),
            "question": lambda name, kind: question.question(items[name], folio, kind),
            "listing": lambda written: listing.listing(written, folio),
            "stages": lambda flow: stages.stages(flow, folio),
            "prediction": lambda written: tables.prediction(written, folio),
            "epochs": lambda training: tables.epochs(training, folio),
            "verdicts": lambda names: claims.verdict_rows(names, folio),
            "changed_claims": lambda: claims.changed(folio),
            "failing": lambda paths: tables.failing(paths, folio),
            "compared": lambda written: tables.compared(written, folio),
            "program": lambda written: listing.listing(written, folio),
            "notes": lambda program, written: walkthrough.notes(program, written, folio),
            "decisions": lambda written: decisions.decisions(written, folio),
            "trial": lambda written, whole: trials.trial(written, whole, folio),
            "output": lambda path: listing.printed(path, folio),
            "cost_rows": lambda table: costs.cost_rows(table, folio),
            "calculator": lambda written: calculator_form.calculator(written, folio),
            "standing": lambda one: claims.standing(one, folio.outcomes[one.claim]),
            "line": folio.line,
            "prose": folio.prose,
            "cell": folio.cell,
            "strategy": folio.strategy,
            "ways_into": lambda one: self._ways_into(one, folio),
            "marks_of": lambda one: ways.marks(ways.asked_anywhere(one), one, self.evidence),
        }

    def _ways_into(self, topic: Topic, folio: Folio) -> list[ways.Way]:
        """The modes of a topic with the minutes that each takes, where their pages are printed."""
        places = {mode: f"topics/{topic.id}/{mode}.md" for mode in topic.lessons}
        read = {mode: self.minutes[path] for mode, path in places.items() if path in self.minutes}
        return ways.ways(topic, None, folio, read)

    def claim_groups(self) -> list[tuple[str, list[str]]]:
        """Claims by the experiment they rest on, in the order in which authors wrote them."""
        groups: dict[str, list[str]] = {}
        for name, outcome in self.outcomes.items():
            experiment = outcome.runs[0].split(".")[0] if outcome.runs else ""
            groups.setdefault(experiment, []).append(name)
        return sorted(groups.items())

    def lessons(self, topic: Topic) -> Iterator[tuple[str, str]]:
        """The pages of one topic, its index last: it tells how long each of the others takes."""
        for mode, lesson in topic.lessons.items():
            path = f"topics/{topic.id}/{mode}.md"
            yield path, self.page(
                path, f"{mode}.md.j2", topic, heading=lesson.model.title, lesson=lesson.model,
                about=topic.file.modes[mode], mode=mode, source=lesson.source.file,  # type: ignore[index]
            )  # fmt: skip
        index = f"topics/{topic.id}/index.md"
        yield index, self.page(
            index, "topic.md.j2", topic, heading=topic.file.title, about=topic.file.summary,
            source=f"content/topics/{topic.id}/topic.yml", mode=None,
        )  # fmt: skip


def _kept_together(html: str) -> str:
    """Punctuation stays on the line of the value it follows; browsers break after any button."""
    return _VALUE_AND_MARK.sub(r'<span class="pb-keep">\1</span>', html)


def _on_reference(book: Book, outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """The verdicts on the reference machine of claims that this machine judged on its own runs."""
    own = {
        name: replace(shown, trace=shown.reference, machine=book.reference, is_stale=False)
        for name, shown in book.traces.items()
        if shown.reference is not None and shown.reference is not shown.trace
    }
    if not own:
        return {}
    reference = replace(book, traces={**book.traces, **own}, machine=book.reference)
    judged = verdicts.judge(reference, Evidence(reference))
    return {
        name: judged[name]
        for name, outcome in outcomes.items()
        if any(run.partition(".")[0] in own for run in outcome.runs)
    }


def _shortened(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    if len(text) <= DESCRIPTION_LENGTH:
        return text
    return text[:DESCRIPTION_LENGTH].rsplit(" ", 1)[0] + "…"


def render(book: Book) -> dict[str, str]:
    """Every page of the book, by its path under the site's root.

    Raises:
        ContentErrors: whatever authors wrote that cannot be printed, all at once.
    """
    printer = _Printer(book)
    words = interface_words()
    pages = {
        "index.md": printer.page(
            "index.md", "home.md.j2", heading=book.home.title, about=book.home.promise,
            source="content/home.yml",
        ),
        "topics/index.md": printer.page(
            "topics/index.md", "topics.md.j2", heading=words["topics"]["title"],
            about=words["topics"]["lede"], source=None,
        ),
        "evidence.md": printer.page(
            "evidence.md", "evidence.md.j2", heading=words["evidence"]["title"],
            about=words["evidence"]["lede"], source="content/claims",
            claim_groups=printer.claim_groups(), has_toc=True,
        ),
        "retracted.md": printer.page(
            "retracted.md", "retracted.md.j2", heading=words["retracted"]["title"],
            about=words["retracted"]["lede"], source="content/retracted.yml",
        ),
    }  # fmt: skip
    errors: list[ContentError] = []
    for topic in book.topics:
        try:
            pages.update(printer.lessons(topic))
        except ContentErrors as found:
            errors += found.errors
    if not errors:
        errors += given_away.mistakes(book, printer.told)
    if errors:
        raise ContentErrors(errors)
    return pages


def problems(book: Book) -> list[str]:
    """What a strict build refuses in sound content: surprises, broken laws, staleness."""
    return verdicts.problems(book, Evidence(book))


def raw_traces(book: Book, content: Path) -> dict[str, Path]:
    """The raw traces that pages link, by their path under the site's root."""
    shown = {(one.folder, experiment) for experiment, one in book.traces.items()}
    beside = {
        (book.reference.name, experiment)
        for experiment, one in book.traces.items()
        if one.reference is not None and one.reference is not one.trace
    }
    return {
        f"traces/{folder}/{experiment}.json": content / "traces" / folder / f"{experiment}.json"
        for folder, experiment in sorted(shown | beside)
    }

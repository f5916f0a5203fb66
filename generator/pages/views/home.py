"""The home page: one question, and once it is answered the runs that answer it.

Where this machine's runs came out otherwise, or could not be measured, the question, the figure and
its text come from the reference machine, all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from markupsafe import Markup

from generator.content.book import Topic
from generator.content.quiz import Item
from generator.evidence.folio import Folio
from generator.figures import figures
from generator.figures.figures import FigureOnPage
from generator.items.keys import key_of
from generator.pages.views.question import Question, question


@dataclass(frozen=True)
class Home:
    """The part of the home page that asks and shows.

    Attributes:
        topic: the topic of the item.
        question: what the reader commits to.
        figure: the runs that answer it.
        seen: what the figure shows.
        start: the page to start with, from the site's root.
        is_elsewhere: whether all of it comes from the reference machine, not from the one shown.
    """

    topic: Topic
    question: Question
    figure: FigureOnPage
    seen: Markup
    start: str
    is_elsewhere: bool


def home(folio: Folio) -> Home:
    """Ask on this machine's runs where they answer, else on those of the reference machine."""
    written = folio.book.home
    topic = next(one for one in folio.book.topics if one.id == written.topic)
    item = topic.items[written.commit]
    there = None if _answers(folio, item) else _on_reference(folio)
    by = there or folio
    first = folio.book.topics[0]
    return Home(
        topic=topic,
        question=question(item, by, "before"),
        figure=figures.draw(written.figure, by),
        seen=by.prose(written.seen),
        start=f"topics/{first.id}/{next(iter(first.items_by_mode))}.html",
        is_elsewhere=there is not None,
    )


def _answers(folio: Folio, item: Item) -> bool:
    """Whether this machine's runs answer the question, each having ended as declared."""
    figure = folio.book.home.figure
    runs = [folio.book.run(path) for path in (*figure.runs, *figure.budgeted)]
    ended = all(run and run.status != "skipped" and not run.is_surprise for run in runs)
    return ended and not key_of(item, folio.evidence).is_open


def _on_reference(folio: Folio) -> Folio | None:
    """The same page over the reference machine's traces; None where it shows them anyway."""
    there = folio.other_outcomes.get(folio.book.reference.name)
    if there is None:
        return None
    evidence = there.evidence
    return replace(
        folio,
        book=replace(folio.book, traces=evidence.book.traces),
        evidence=evidence,
        outcomes={**folio.outcomes, **there.outcomes},
        text=folio.text.over(evidence),
        runs=set(),  # what this page says of its runs is about the machine that it shows
    )

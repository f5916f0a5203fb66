"""The home page: one question, and once it is answered the runs that answer it."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from generator.content.book import Topic
from generator.evidence.folio import Folio
from generator.figures import figures
from generator.figures.figures import FigureOnPage
from generator.pages.views.question import Question, question


@dataclass(frozen=True)
class Home:
    """The part of the home page that asks and shows.

    Attributes:
        topic: the topic of the item.
        question: what the reader commits to.
        figure: the runs that answer it.
        seen: what the figure shows.
    """

    topic: Topic
    question: Question
    figure: FigureOnPage
    seen: Markup


def home(folio: Folio) -> Home:
    """The question of the home page with its answer."""
    written = folio.book.home
    topic = next(one for one in folio.book.topics if one.id == written.topic)
    return Home(
        topic=topic,
        question=question(topic.items[written.commit], folio, "before"),
        figure=figures.draw(written.figure, folio),
        seen=folio.prose(written.seen),
    )


def start(folio: Folio) -> str:
    """The page to start with, from the site's root."""
    first = folio.book.topics[0]
    return f"topics/{first.id}/{next(iter(first.items_by_mode))}.html"

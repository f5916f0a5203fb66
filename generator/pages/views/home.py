"""The home page: one question, and once it is answered the runs that answer it."""

from __future__ import annotations

from generator.content.book import Topic
from generator.evidence.folio import Folio
from generator.figures import figures
from generator.figures.figures import FigureOnPage
from generator.pages.shown import Shown
from generator.pages.views.question import question


def home(folio: Folio) -> tuple[Topic, Shown, FigureOnPage]:
    """What the home page asks: the topic of its item, the question, the runs that answer it."""
    written = folio.book.home
    topic = next(one for one in folio.book.topics if one.id == written.topic)
    asked = question(topic.items[written.commit], folio, "before")
    return topic, asked, figures.draw(written.figure, folio)


def start(folio: Folio) -> str:
    """The page to start with, from the site's root."""
    first = folio.book.topics[0]
    return f"topics/{first.id}/{next(iter(first.items_by_mode))}.html"

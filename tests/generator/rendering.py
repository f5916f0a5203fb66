"""Book → {page path: Markdown}. Pure: the same book gives the same bytes."""

from __future__ import annotations

from generator.content.book import Book
from generator.evidence import verdicts
from generator.evidence.evaluation import Evidence
from generator.pages.press import Press


def render(book: Book) -> dict[str, str]:
    """Every page of the book, by its path under the site's root.

    Raises:
        ContentErrors: whatever authors wrote that cannot be printed, all at once.
    """
    return {path: content.decode() for path, content in Press().printed(book).items()}


def problems(book: Book) -> list[str]:
    """What a strict build refuses in sound content: surprises, broken laws, staleness."""
    return verdicts.problems(book, Evidence(book).outcomes)

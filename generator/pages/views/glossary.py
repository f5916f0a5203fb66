"""The page of the glossary: each term, and the lessons that use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from generator.content.glossary import Term
from generator.evidence.folio import Folio


class UsedIn(NamedTuple):
    """A topic whose lessons use a term: the mode of each, with a link."""

    title: Markup
    lessons: tuple[tuple[str, str], ...]


class Entry(NamedTuple):
    """A term as its page shows it."""

    term: Term
    topics: tuple[UsedIn, ...]

    @property
    def letter(self) -> str:
        """What the page lists the term under."""
        return self.term.term[0].upper()

    @property
    def num_lessons(self) -> int:
        """How many lessons use the term."""
        return sum(len(one.lessons) for one in self.topics)


def entries(used_in: Mapping[str, tuple[str, ...]], folio: Folio) -> Iterator[Entry]:
    """The terms of the book with the lessons that use each.

    Args:
        used_in: paths of lessons, such as `topics/ddp/learn.md`, by the term's id.
        folio: the page of the glossary.
    """
    for term in folio.book.terms:
        yield Entry(term, tuple(_topics(used_in.get(term.id, ()), folio)))


def _topics(paths: Sequence[str], folio: Folio) -> Iterator[UsedIn]:
    """The lessons by topic, in the order of the topics."""
    for topic in folio.book.topics:
        own = [path for path in paths if path.split("/")[1] == topic.id]
        if own:
            lessons = ((f"{path.removesuffix('.md')}.html", _mode(path, folio)) for path in own)
            yield UsedIn(folio.line(topic.file.title), tuple(lessons))


def _mode(path: str, folio: Folio) -> str:
    return str(folio.ui["modes"][path.split("/")[2].removesuffix(".md")])

"""The page of the glossary: each term, and the lessons that use it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from markupsafe import Markup

from generator.content.glossary import Term
from generator.evidence.folio import Folio


class UsedIn(NamedTuple):
    """A lesson that uses a term."""

    href: str
    title: Markup


class Entry(NamedTuple):
    """A term as its page shows it."""

    term: Term
    pages: tuple[UsedIn, ...]


def entries(used_in: Mapping[str, tuple[str, ...]], folio: Folio) -> Iterator[Entry]:
    """The terms of the book with the lessons that use each.

    Args:
        used_in: paths of lessons, such as `topics/ddp/learn.md`, by the term's id.
        folio: the page of the glossary.
    """
    for term in folio.book.terms:
        yield Entry(term, tuple(_page(path, folio) for path in used_in.get(term.id, ())))


def _page(path: str, folio: Folio) -> UsedIn:
    """A lesson as a link: its topic and its mode."""
    _, topic_id, page = path.split("/")
    topic = next(one for one in folio.book.topics if one.id == topic_id)
    mode = str(folio.ui["modes"][page.removesuffix(".md")])
    return UsedIn(
        f"{path.removesuffix('.md')}.html",
        Markup("{}, {}").format(folio.line(topic.file.title), mode),
    )

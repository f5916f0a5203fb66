"""The page of the glossary: each term, and the lessons that use it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from generator.content.glossary import Term
from generator.evidence.folio import Folio
from generator.pages.shown import Shown

MOST_SHOWN = 2  # lessons that are named beside the run of a term


class Use(NamedTuple):
    """A lesson that uses a term, by its path such as `topics/ddp/learn.md`.

    Attributes:
        shows: whether it also links the run that shows the term, or prints a value of it.
    """

    path: str
    shows: bool

    @classmethod
    def of(cls, path: str, content: bytes, term: Term) -> Use:
        """The use in a lesson, by its text."""
        if not term.run:
            return cls(path, shows=False)
        experiment, run = term.run.split(".")
        places = f"#run-{experiment}-{run}", f"/{experiment}.html#{run}"
        ends = ('"', "-on-")  # the second where the run is another machine's
        links = (f"{place}{end}".encode() for place in places for end in ends)
        return cls(path, any(one in content for one in links))


def entries(used_in: Mapping[str, tuple[Use, ...]], folio: Folio) -> Iterator[Shown]:
    """The terms of the book with the lessons that use each, topic by topic.

    Args:
        used_in: the lessons by the term's id.
        folio: the page of the glossary.
    """
    for term in folio.book.terms:
        uses = used_in.get(term.id, ())
        lessons = list(_lessons(uses, folio))
        showing = [one for one in uses if one.shows][:MOST_SHOWN]
        yield Shown(
            term=term,
            shown_in=list(_lessons(showing, folio)),
            num_lessons=len(lessons),
            by_topic=[(title, list(of)) for title, of in groupby(lessons, lambda one: one.topic)],
        )


def _lessons(uses: Iterable[Use], folio: Folio) -> Iterator[Shown]:
    """Links to lessons, in the order of the topics."""
    for topic in folio.book.topics:
        for address in (one.path.removesuffix(".md") for one in uses):
            _, folder, mode = address.split("/")
            if folder == topic.id:
                title = folio.line(topic.file.title)
                yield Shown(href=f"{address}.html", topic=title, mode=folio.ui["modes"][mode])

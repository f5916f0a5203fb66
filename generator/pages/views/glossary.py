"""The page of the glossary: each term, and the lessons that use it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby

from generator.evidence.folio import Folio
from generator.pages.shown import Shown


def entries(used_in: Mapping[str, Collection[str]], folio: Folio) -> Iterator[Shown]:
    """The terms of the book with the lessons that use each, topic by topic.

    Args:
        used_in: the paths of the lessons, such as `topics/ddp/learn.md`, by the term's id.
        folio: the page of the glossary.
    """
    lessons = [
        (f"topics/{topic.id}/{mode}", folio.line(topic.file.title), folio.ui["modes"][mode])
        for topic in folio.book.topics
        for mode in topic.lessons
    ]
    for term in folio.book.terms:
        paths = used_in.get(term.id, ())
        uses = [
            Shown(href=f"{page}.html", topic=topic, mode=mode)
            for page, topic, mode in lessons
            if f"{page}.md" in paths
        ]
        yield Shown(
            term=term,
            num_lessons=len(uses),
            by_topic=[(title, list(of)) for title, of in groupby(uses, lambda one: one.topic)],
        )

"""The form of a page's filters: which choices there are here, and in which words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.pages.sifting import Choices, machine_mark, topic_mark, verdict_mark

_MARKS = re.compile(r'data-is="([^"]+)"')


def choices(
    verdicts: Mapping[str, str],
    topics: Mapping[str, tuple[str, ...]],
    folio: Folio,
    things: str = "",
) -> list[Choices]:
    """The lists of choices of a page; one that would offer a single choice is left out.

    Args:
        verdicts: the verdicts, or standings, that things on this page may have, in words.
        topics: the topics of every claim.
        folio: the page.
        things: what the page lists, with its marks: no choice is offered that leaves none of it.
            Without, every choice is.
    """
    found = list(_choices(verdicts, topics, folio))
    if things:
        marks = {mark for of_thing in _MARKS.findall(things) for mark in of_thing.split()}
        found = [
            replace(one, words={mark: said for mark, said in one.words.items() if mark in marks})
            for one in found
        ]
    return [one for one in found if len(one.words) > 1]


def _choices(
    verdicts: Mapping[str, str], topics: Mapping[str, tuple[str, ...]], folio: Folio
) -> Iterator[Choices]:
    words, book = folio.ui["sift"], folio.book
    named = {topic for found in topics.values() for topic in found}
    titles = {topic.id: plain(folio.line(topic.file.title)) for topic in book.topics}
    yield Choices(
        "topic", words["topic"],
        {topic_mark(one): title for one, title in titles.items() if one in named},
    )  # fmt: skip
    judging = [book.machine.name, book.reference.name, *folio.other_outcomes]
    yield Choices(
        "machine", words["machine"],
        {
            machine_mark(place): name
            for place, name in enumerate(book.machines)
            if name in judging
        },
    )  # fmt: skip
    judged = {verdict_mark(one): said for one, said in verdicts.items()}
    if folio.other_outcomes:
        judged[verdict_mark("differs")] = words["differs"]
    yield Choices("verdict", words["verdict"], judged)
    yield Choices(
        "kind", words["kind"], {"k-law": words["laws"], "k-observation": words["observations"]}
    )

"""Filters that need no script: a form of choices, and a style sheet that hides all else.

Pages mark each thing, in `data-is`, with every choice it belongs to; the sheet looks with `:has()`
at what the form has chosen. A verdict belongs to a machine, so there is a rule for each pair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from generator.content.typesetting import plain
from generator.evidence.folio import Folio
from generator.pages.shown import Shown

FORM = "pb-sift"
THING = ".pb-one"  # what is hidden
ON = ".pb-on"  # a line of a thing that is about one machine
_CHOSEN = '.md-typeset:has(.{form} option[value="{choice}"]:checked)'


_MARKS = re.compile(r'data-is="([^"]+)"')


def machine_mark(place: int) -> str:
    """The mark of what the machine at a place of `Book.machines` says."""
    return f"m{place}"


def verdict_mark(verdict: str) -> str:
    """The mark of what has a verdict, or a standing."""
    return f"v-{verdict.replace('_', '-')}"


def topic_mark(topic: str) -> str:
    """The mark of what belongs to a topic."""
    return f"t-{topic}"


def marks(
    topics: Iterable[str], kind: str, verdicts: Sequence[tuple[str, str]], *, differs: bool
) -> str:
    """The marks of one thing, as its `data-is` holds them.

    Args:
        topics: the ids of its topics.
        kind: law or observation.
        verdicts: the mark of each machine that judged it, with its verdict.
        differs: whether two machines disagree about it.
    """
    found = [f"k-{kind}", *map(topic_mark, topics)]
    for machine, verdict in verdicts:
        judged = verdict_mark(verdict)
        found += [machine, judged, f"{machine}-{judged}"]
    return " ".join(dict.fromkeys([*found, *(["v-differs"] if differs else [])]))


def css(topics: Sequence[str], num_machines: int, verdicts: Sequence[str]) -> str:
    """The style sheet for every choice that a page may offer."""
    return "\n".join(_rules(topics, num_machines, verdicts)) + "\n"


def _rules(topics: Sequence[str], num_machines: int, verdicts: Sequence[str]) -> Iterator[str]:
    machines = [machine_mark(place) for place in range(num_machines)]
    judged = [verdict_mark(one) for one in (*verdicts, "differs")]
    kinds = ["k-law", "k-observation"]
    for choice in (*kinds, *map(topic_mark, topics), *machines, *judged):
        yield _hidden([choice], f'{THING}:not([data-is~="{choice}"])')
    for machine in machines:
        yield _hidden([machine], f'{ON}:not([data-is~="{machine}"])')
        for verdict in judged[:-1]:
            yield _hidden([machine, verdict], f'{THING}:not([data-is~="{machine}-{verdict}"])')


def _hidden(chosen: Sequence[str], what: str) -> str:
    where = "".join(
        _CHOSEN.format(form=FORM, choice=choice)
        if place == 0
        else f':has(.{FORM} option[value="{choice}"]:checked)'
        for place, choice in enumerate(chosen)
    )
    return f"{where} {what}{{display:none}}"


def choices(
    verdicts: Mapping[str, str],
    topics: Mapping[str, tuple[str, ...]],
    folio: Folio,
    things: str = "",
) -> list[Shown]:
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
            one.but(words={mark: said for mark, said in one.words.items() if mark in marks})
            for one in found
        ]
    return [one for one in found if len(one.words) > 1]


def _choices(
    verdicts: Mapping[str, str], topics: Mapping[str, tuple[str, ...]], folio: Folio
) -> Iterator[Shown]:
    """Each list, with the words of each choice by the mark of what it leaves."""
    words, book = folio.ui["sift"], folio.book
    named = {topic for found in topics.values() for topic in found}
    judging = [book.machine.name, book.reference.name, *folio.other_outcomes]
    judged = {verdict_mark(one): said for one, said in verdicts.items()}
    if folio.other_outcomes:
        judged[verdict_mark("differs")] = words["differs"]
    found = {
        "topic": {
            topic_mark(one.id): plain(folio.line(one.file.title))
            for one in book.topics
            if one.id in named
        },
        "machine": {
            machine_mark(place): name for place, name in enumerate(book.machines) if name in judging
        },
        "verdict": judged,
        "kind": {"k-law": words["laws"], "k-observation": words["observations"]},
    }
    for name, by_mark in found.items():
        yield Shown(name=name, label=words[name], words=by_mark)

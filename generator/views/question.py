"""A question as its template wants it: options with their explanations, and what is right."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from markupsafe import Markup

from generator.evidence import Evidence
from generator.keys import key_of
from generator.quiz import Choice, Item, Option
from generator.views.folio import Folio


@dataclass(frozen=True)
class OptionOnPage:
    """One answer: what it says, how it stands here, why, and the claim that shows it."""

    text: Markup
    why: Markup
    verdict: str  # right, wrong, or open where this machine's runs leave it open
    evidence: Markup | None
    claim: str | None


@dataclass(frozen=True)
class Question:
    """One question; `digest` changes with anything a reader sees of it."""

    id: str
    kind: str  # "commit" or "question"
    stem: Markup
    options: tuple[OptionOnPage, ...]
    hint: Markup | None
    digest: str
    anchor: str  # the id on this page; an item may stand on a page more than once


def question(item: Item, folio: Folio, kind: str) -> Question:
    """Judge an item on this book's runs and render it."""
    assert isinstance(item, Choice), item.id
    key = key_of(item, folio.evidence)
    right = None if key.is_open else key.right[0]
    folio.items.append(item.id)
    again = folio.items.count(item.id)
    judged = [
        "open" if right is None else "right" if position == right else "wrong"
        for position in range(len(item.options))
    ]
    return Question(
        id=item.id,
        kind=kind,
        stem=_in_legend(folio.prose(item.stem)),
        options=tuple(
            _option(option, verdict, folio)
            for option, verdict in zip(item.options, judged, strict=True)
        ),
        hint=folio.line(item.hints[0]) if item.hints else None,
        anchor=item.id if again == 1 else f"{item.id}-{again}",
        digest=digest_of(item, folio.evidence),
    )


def digest_of(item: Item, evidence: Evidence) -> str:
    """What a reader's answer is kept with; changes with whatever a reader sees of an item."""
    key = key_of(item, evidence)
    seen = f"{item.model_dump_json()}\n{key.right} {key.value}"
    return hashlib.sha256(seen.encode()).hexdigest()[:12]


def _in_legend(prose: Markup) -> Markup:
    """Paragraphs as a legend may hold them."""
    text = str(prose).replace("<p>", '<span class="pb-stem">').replace("</p>", "</span>")
    return Markup(text)


def _option(option: Option, verdict: str, folio: Folio) -> OptionOnPage:
    behind = option.right_if.claim if option.right_if else None
    claim = behind if verdict == "right" else option.refuted_by or behind
    says = folio.line(folio.book.claims[claim].says) if claim else None
    if claim:
        folio.runs.update(folio.outcomes[claim].runs)
    return OptionOnPage(
        folio.line(option.text or ""), folio.line(option.why or ""), verdict, says, claim
    )

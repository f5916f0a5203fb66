"""The key of an item with every answer explained, as it stands below the question.

In: an item, its key, the page. Out: for each option, piece, pair, line, number or slip what it
says, why it is right or wrong, and the evidence. The script in the page reads the key from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from generator.content.claim import Tolerance
from generator.content.quiz import (
    Choice,
    CodeLine,
    Complete,
    FaultyLine,
    Item,
    Match,
    Number,
    Option,
    Order,
    Predict,
    Several,
    Slip,
)
from generator.evidence.folio import Folio
from generator.figures.picture import plain
from generator.items.keys import Key, shown_order, tolerance_of
from generator.items.typed_number import Reach, reach


@dataclass(frozen=True)
class Backing:
    """A claim or a source behind an answer, as a link; `href` of a claim is inside the site.

    `verdict` is the claim's in words, unless it holds: the claim's sentence alone would then say
    the contrary of what the runs showed. `belief` is the misconception that it refutes, where it is
    evidence about that and not about the answer itself. `says` is empty where the evidence against
    the belief follows below the answers.
    """

    says: Markup
    href: str
    is_inside: bool = True
    verdict: str = ""
    belief: Markup | None = None


@dataclass(frozen=True)
class Answer:
    """One answer, explained.

    Attributes:
        text: what it says, with values that open.
        why: why it is right or wrong.
        verdict: right, wrong, or open where this machine's runs leave it open.
        word: the verdict in words, if any.
        position: its place among what the author wrote; stored answers name it.
        backing: what shows it.
        beside: the value that a piece is sorted by, or the right side of a pair.
        mate: match: the right side as the form names it; equal ones are one.
        reach: what a typed answer is compared with.
    """

    text: Markup
    why: Markup
    verdict: str
    word: str = ""
    position: int = 0
    backing: tuple[Backing, ...] = ()
    beside: Markup | None = None
    mate: int | None = None
    reach: Reach | None = None


def answers(item: Item, key: Key, folio: Folio) -> tuple[Answer, ...]:
    """Every answer to an item, in the order in which they are explained."""
    if isinstance(item, Choice | Several):
        shown = shown_order(item, key)
        return tuple(_option(item.options[place], place, key, folio) for place in shown)
    if isinstance(item, Order):
        order = range(len(item.pieces)) if key.is_open else key.right
        return tuple(_piece(item, place, folio) for place in order)
    if isinstance(item, Match):
        return tuple(_pair(item, place, folio) for place in range(len(item.pairs)))
    if isinstance(item, FaultyLine):
        return tuple(_line(line, place, key, folio) for place, line in enumerate(item.lines))
    return (_asked_for(item, key, folio), *_slips(item, key, folio))


def told_once(
    explained: Sequence[Answer], more: Sequence[Backing]
) -> tuple[tuple[Answer, ...], tuple[Backing, ...]]:
    """The answers, and the evidence below them, so that no sentence of evidence is repeated.

    What several answers rest on moves below them; `more`, the evidence of the whole question,
    leaves out what stands with an answer.
    """
    beliefs: dict[str, list[Markup | None]] = {}
    by_href: dict[str, Backing] = {}
    for answer in explained:
        for one in answer.backing:
            beliefs.setdefault(one.href, []).append(one.belief)
            by_href[one.href] = one
    shared = {href for href, found in beliefs.items() if len(found) > 1}
    moved = {href for href in shared if len(set(beliefs[href])) == 1}  # with the belief, if any

    def beside(one: Backing) -> Backing | None:
        """What stays with its answer."""
        if one.href not in shared:
            return one
        if one.href in moved or one.belief is None:
            return None
        return replace(one, says=Markup())

    left = tuple(
        replace(answer, backing=tuple(kept for one in answer.backing if (kept := beside(one))))
        for answer in explained
    )
    below = [
        one if href in moved else replace(one, belief=None)
        for href, one in by_href.items()
        if href in shared
    ]
    return left, (*below, *(one for one in more if one.href not in beliefs))


def claim_behind(name: str, folio: Folio) -> Backing:
    """A claim as evidence; its runs count as used by the page."""
    outcome = folio.outcome(name)
    folio.runs.update(outcome.runs)
    verdict = "" if outcome.verdict == "holds" else str(folio.ui["verdicts"][outcome.verdict])
    says = folio.line(folio.book.claims[name].says)
    return Backing(says, folio.claim_place(name), verdict=verdict)


def against(misconception: str | None, folio: Folio) -> tuple[Backing, ...]:
    """What refutes a misconception, with the belief: a claim, or what is cited."""
    found = folio.book.misconceptions.get(misconception or "")
    if found is None:
        return ()
    belief = folio.line(found.belief)
    if found.refuted_by:
        return (replace(claim_behind(found.refuted_by, folio), belief=belief),)
    if found.source is None:
        return ()
    cited = folio.book.references[found.source]
    return (Backing(escape(cited.title), cited.url, is_inside=False, belief=belief),)


def _verdict(position: int, key: Key) -> str:
    return "open" if key.is_open else "right" if position in key.right else "wrong"


def _option(option: Option, position: int, key: Key, folio: Folio) -> Answer:
    verdict = _verdict(position, key)
    if option.slip is not None:
        text, why = folio.text.expression(option.slip.gives), _slipped(option.slip, folio)
        backing = _refuted(option.refuted_by, option.slip.misconception, folio)
    else:
        assert option.text is not None
        assert option.why is not None
        text, why = folio.line(option.text), folio.line(option.why)
        behind = option.right_if.claim if option.right_if else None
        named = behind if verdict == "right" else option.refuted_by or behind
        backing = _refuted(named, option.misconception, folio)
    return Answer(text, why, verdict, folio.ui["item"][verdict], position, backing)


def _refuted(claim: str | None, misconception: str | None, folio: Folio) -> tuple[Backing, ...]:
    return (claim_behind(claim, folio),) if claim else against(misconception, folio)


def _slipped(slip: Slip, folio: Folio) -> Markup:
    """What a slip says of itself."""
    words = folio.ui["item"]
    if slip.why is None:
        return Markup(escape(words["slip"])).format(name=folio.line(slip.name))
    named = {"name": folio.line(slip.name), "why": folio.line(slip.why)}
    return Markup(escape(words["slip_because"])).format(**named)


def _piece(item: Order, position: int, folio: Folio) -> Answer:
    piece = item.pieces[position]
    beside = folio.cell(piece.by) if piece.by and item.run is None else None
    return Answer(
        folio.line(piece.text), folio.line(piece.why), "right", position=position, beside=beside
    )


def _pair(item: Match, position: int, folio: Folio) -> Answer:
    pair = item.pairs[position]
    backing = (claim_behind(pair.claim, folio),) if pair.claim else ()
    sides = [plain(folio.line(one.right)) for one in item.pairs]
    return Answer(
        folio.line(pair.left), folio.line(pair.why), "right", position=position, backing=backing,
        beside=folio.line(pair.right), mate=sides.index(sides[position]),
    )  # fmt: skip


def _line(line: CodeLine, position: int, key: Key, folio: Folio) -> Answer:
    words = folio.ui["item"]
    verdict = _verdict(position, key)
    word = {"right": words["fault"], "wrong": words["sound"]}.get(verdict, words["open"])
    backing = () if verdict == "right" else against(line.misconception, folio)
    text = Markup("<code>{}</code>").format(line.code.strip())
    return Answer(text, folio.line(line.why), verdict, word, position, backing)


def _asked_for(item: Number | Predict | Complete, key: Key, folio: Folio) -> Answer:
    words = folio.ui["item"]
    why = Markup() if isinstance(item, Predict) else folio.line(item.why)
    if key.value is None:
        return Answer(Markup(), why, "open", words["open"])
    word = words["measured" if isinstance(item, Predict) else "answer_is"]
    return Answer(
        folio.show(key.value), why, "right", word, reach=reach(key.value, tolerance_of(item))
    )


def _slips(item: Number | Predict | Complete, key: Key, folio: Folio) -> Sequence[Answer]:
    tolerance: Tolerance | None = tolerance_of(item)
    return [
        Answer(
            folio.show(value), _slipped(slip, folio), "wrong", folio.ui["item"]["slip_is"],
            position, against(slip.misconception, folio), reach=reach(value, tolerance),
        )
        for position, (slip, value) in enumerate(zip(item.slips, key.slips, strict=False))
        if value is not None
    ]  # fmt: skip

"""A question as its template wants it: what is asked, what a reader operates, and the key.

Before a reader commits nothing is given away: what stands in the question opens nothing, since
where a number comes from would tell. The key below it opens everything; see `answers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from generator.content.listed_code import listed
from generator.content.quiz import (
    Choice,
    Complete,
    FaultyLine,
    Item,
    Match,
    Order,
    Predict,
    Several,
    TableRow,
)
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.value import Value, numeric
from generator.figures.picture import plain
from generator.items import worked
from generator.items.cases import answerable
from generator.items.digests import digest_of
from generator.items.keys import Key, key_of, shown_order
from generator.items.typed_number import Unit, unit_of
from generator.pages.views.answers import Answer, Backing, answers, claim_behind, told_once
from generator.pages.views.highlighting import highlighted_lines
from generator.pages.views.listing import ListingOnPage, listing

Rows = tuple[tuple[Markup, tuple[Markup, ...]], ...]  # titles, each with its cells
_OPENS = re.compile(r'(<a class="pb-value[^>]*>)(.*?)(</a>)', re.DOTALL)
_BLOCK = re.compile(r"<(?:pre|ul|ol|blockquote)\b")
_TWICE = frozenset({"question", "challenge"})  # what else is asked is a commitment
_IN_SHORT = 80  # characters


@dataclass(frozen=True)
class Asked:
    """One thing in the form: an option, a piece, a left or right side, a line of code, a cell.

    `position` is its place among what the author wrote; None where there is nothing to choose.
    """

    text: Markup
    position: int | None = None


@dataclass(frozen=True)
class Ends:
    """The ends of a slider: in base units, as they are printed, and with values that open."""

    low: float
    high: float
    says_low: Markup
    says_high: Markup
    is_logarithmic: bool
    opened: tuple[Markup, Markup]


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        id: the item's own.
        kind: one of `quiz.KINDS`.
        asked_as: commit, before, question, challenge, recall: the word above it.
        num_attempts: how often a reader may try before everything is explained.
        digest: tells which question an answer belongs to.
        anchor: the id on this page; an item may stand on a page more than once.
        variant: which variant of the item this is, counted from 1; 0 for the item itself.
        is_open: this machine's runs leave it open.
        asks_how_sure: a commitment and a repetition do; elsewhere the answer alone counts.
        stem: the question, as a legend may hold it; `more` is what follows as blocks.
        code: the code it is about; for a faulty line, the run that printed.
        asked: what a reader operates, in the order shown.
        rights: match: the right sides, in the order shown.
        unit: number, predict, complete: the unit asked in.
        ends: predict: the slider, if this machine's answer lies on it.
        places: order: words for the first and the last place.
        is_number: whether a number is asked for, and no shape or word.
        columns, table, whole: complete: the table as asked, and as completed.
        about: the columns and the rows of the table that the question is about.
        answers: every answer, explained; `explains` is the mechanism, `backing` the evidence that
            does not stand with a single answer.
        corrected: faulty line: the program that works.
    """

    id: str
    kind: str
    asked_as: str
    num_attempts: int
    digest: str
    anchor: str
    variant: int
    is_open: bool
    asks_how_sure: bool
    stem: Markup
    more: Markup
    code: ListingOnPage | None
    columns: tuple[Markup, ...]
    asked: tuple[Asked, ...]
    rights: tuple[Asked, ...]
    unit: Unit | None
    ends: Ends | None
    places: tuple[Markup, Markup] | None
    is_number: bool
    table: tuple[tuple[Markup, tuple[Asked, ...]], ...]
    whole: Rows
    about: tuple[tuple[Markup, ...], Rows]
    answers: tuple[Answer, ...]
    explains: Markup
    backing: tuple[Backing, ...]
    corrected: ListingOnPage | None
    hints: tuple[Markup, ...]


def question(item: Item, folio: Folio, asked_as: str) -> Question:
    """Judge an item on this book's runs and render it."""
    key = key_of(item, folio.evidence)
    folio.items.append(item.id)
    again = folio.items.count(item.id)
    stem, more = _stem(folio.prose(item.stem))
    behind = [claim_behind(name, folio) for name in item.claims]
    explained, backing = told_once(answers(item, key, folio), behind)
    shown = item.wrong if isinstance(item, FaultyLine) else item.listing
    code = listing(shown, folio) if shown else None
    worked_steps = worked.steps(item, key, folio.evidence, folio.ui["item"])
    told = item.reveal if isinstance(item, Predict) else item.explains
    return Question(
        id=item.id,
        kind=item.kind,
        asked_as=asked_as,
        num_attempts=_num_attempts(item, asked_as),
        digest=digest_of(item, folio.evidence),
        anchor=item.id if again == 1 else f"{item.id}-{again}",
        variant=0,
        is_open=key.is_open,
        asks_how_sure=not (asked_as in _TWICE or key.is_open or isinstance(item, Predict)),
        stem=stem,
        more=more,
        code=code,
        columns=tuple(map(folio.line, item.columns)) if isinstance(item, Complete) else (),
        asked=_code_lines(item, folio)
        if isinstance(item, FaultyLine)
        else _asked(item, key, explained),
        rights=_rights(item, key, folio),
        unit=unit_of(key.value) if key.value else None,
        ends=_ends(item, key, folio),
        places=_places(item, folio),
        is_number=key.value is None or not isinstance(key.value.number, str),
        table=_table(item, folio),
        whole=_rows(item.rows, folio) if isinstance(item, Complete) else (),
        about=_about(item, folio),
        answers=explained,
        explains=folio.prose(told) if told else Markup(),
        backing=backing,
        corrected=listing(item.right, folio, with_output=False)
        if isinstance(item, FaultyLine)
        else None,
        hints=tuple(folio.line(hint) for hint in (*item.hints, *worked_steps)),
    )


def variants(item: Item, folio: Folio, asked_as: str) -> list[Question]:
    """The item on other runs, wherever these have one answer; readers' answers are the item's."""
    found = []
    for number, one in answerable(item, folio.evidence):
        found.append(
            replace(
                question(one, folio, asked_as),
                id=item.id, digest=digest_of(item, folio.evidence), variant=number,
            )
        )  # fmt: skip
        folio.items.remove(one.id)  # one question to a reader
    return found


def in_short(item: Item, folio: Folio) -> str:
    """What an item asks, for a line that leads to it: its last question, shortened."""
    sentences = re.split(r"(?<=[.?!])\s+", folio.evidence.plain(item.stem))
    asked = [one for one in sentences if one.endswith("?")] or sentences
    last = asked[-1].replace("`", "")
    if len(last) <= _IN_SHORT:
        return last
    return last[:_IN_SHORT].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def unopened(markup: Markup) -> Markup:
    """A text whose values open nothing."""
    return Markup(_OPENS.sub(r'<span class="pb-label">\2</span>', str(markup)))


def _num_attempts(item: Item, asked_as: str) -> int:
    """Two where a second try asks for a thought: not of a commitment, not of yes and no."""
    is_either_or = isinstance(item, Choice) and len(item.options) == 2
    return 2 if asked_as in _TWICE and not isinstance(item, Predict) and not is_either_or else 1


def _stem(prose: Markup) -> tuple[Markup, Markup]:
    """Paragraphs as a legend may hold them, and the blocks that it may not."""
    text = str(prose)
    block = _BLOCK.search(text)
    first, more = (text[: block.start()], text[block.start() :]) if block else (text, "")
    first = first.replace("<p>", '<span class="pb-stem">').replace("</p>", "</span>")
    return Markup(first.strip()), Markup(more)


def _asked(item: Item, key: Key, explained: tuple[Answer, ...]) -> tuple[Asked, ...]:
    """What a reader chooses from, in the order shown."""
    if not isinstance(item, Choice | Several | Order | Match):
        return ()
    texts = {one.position: unopened(one.text) for one in explained}
    order = range(len(item.pairs)) if isinstance(item, Match) else shown_order(item, key)
    return tuple(Asked(texts[position], position) for position in order)


def _rights(item: Item, key: Key, folio: Folio) -> tuple[Asked, ...]:
    """Right sides in the order shown, each once; equal ones count as the first of them."""
    if not isinstance(item, Match):
        return ()
    sides: dict[str, int] = {}
    for position in shown_order(item, key):
        text = plain(folio.line(item.pairs[position].right))
        sides[text] = min(position, sides.get(text, position))
    return tuple(Asked(Markup.escape(text), position) for text, position in sides.items())


def _code_lines(item: FaultyLine, folio: Folio) -> tuple[Asked, ...]:
    """The program line by line; those to choose from have a position."""
    places = {line.code.strip(): place for place, line in enumerate(item.lines)}
    lines = highlighted_lines(listed(folio.book.root, item.wrong.path, item.wrong.object).rstrip())
    return tuple(Asked(one, places.get(plain(one).strip())) for one in lines[:-1])


def _ends(item: Item, key: Key, folio: Folio) -> Ends | None:
    if not isinstance(item, Predict) or key.ends is None:
        return None
    low, high = key.ends
    assert key.value is not None
    unit = unit_of(key.value)
    opened = (_in_unit(low, unit, folio), _in_unit(high, unit, folio))
    said = (unopened(opened[0]), unopened(opened[1]))
    return Ends(numeric(low), numeric(high), *said, item.logarithmic, opened)


def _in_unit(value: Value, unit: Unit, folio: Folio) -> Markup:
    """An end of a slider in the unit that the question asks in."""
    shown = folio.show(value)
    if unit_of(value).label == unit.label:
        return shown
    number = units.significant(float(numeric(value)) / unit.scale, 3)
    return Markup(_OPENS.sub(rf"\g<1>{number}{units.NBSP}{unit.label}\g<3>", str(shown)))


def _places(item: Item, folio: Folio) -> tuple[Markup, Markup] | None:
    if not isinstance(item, Order) or item.ends is None:
        return None
    first, last = (unopened(folio.line(one)) for one in item.ends)
    return first, last


def _table(item: Item, folio: Folio) -> tuple[tuple[Markup, tuple[Asked, ...]], ...]:
    """The rows to complete; the blank has a position."""
    if not isinstance(item, Complete):
        return ()
    blank = (item.blank.row - 1, item.blank.column - 1)
    return tuple(
        (
            unopened(folio.line(row.title)),
            tuple(
                Asked(Markup(), 0) if (down, across) == blank else Asked(unopened(folio.cell(cell)))
                for across, cell in enumerate(row.cells)
            ),
        )
        for down, row in enumerate(item.rows)
    )


def _rows(rows: Sequence[TableRow], folio: Folio) -> Rows:
    """Whole rows, with values that open."""
    return tuple(
        (folio.line(row.title), tuple(folio.cell(cell) for cell in row.cells)) for row in rows
    )


def _about(item: Item, folio: Folio) -> tuple[tuple[Markup, ...], Rows]:
    """The table that a question is about; without one, nothing."""
    if item.this_table is None:
        return (), ()
    columns = tuple(map(folio.line, item.this_table.columns))
    return columns, _rows(item.this_table.rows, folio)

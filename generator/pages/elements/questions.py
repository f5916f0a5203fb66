"""A question as its template wants it: what is asked, what a reader operates, and the key.

Before a reader commits nothing is given away: what stands in the question opens nothing, since
where a number comes from would tell; only the table of a question that is not typed does. The key
below it opens everything; see `answers.py`.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from generator.content.quiz import Item
from generator.figures import figures
from generator.figures.figures import FigureOnPage
from generator.items.answers import Backing, ExplainedAnswer, claim_backing, deduplicated
from generator.items.item_checks import answerable_cases
from generator.items.kinds import digest_of, kind_of
from generator.items.kinds.arranged import Ordering
from generator.items.kinds.kind import AnswerField, Kind
from generator.items.kinds.picked import FaultyLine
from generator.pages.elements import programs, tables
from generator.pages.elements.element import Element
from generator.printing.folio import Folio

_BLOCK = re.compile(r"<(?:pre|ul|ol|blockquote|div)\b|<p><img")
_CHECKS = frozenset({"question", "challenge"})  # what else is asked says how sure a reader is
_IN_SHORT = 80  # characters


@dataclass(frozen=True)
class Exhibit(Element):
    """What a question shows below its stem. Nothing in it opens."""

    figure: FigureOnPage | None
    program: programs.ListedProgram | None
    printed: programs.RunOutput | None


@dataclass(frozen=True)
class Question(Element):
    """A question as a form, its hints and its key."""

    id: str
    anchor: str
    digest: str  # which question an answer belongs to
    item: Item  # as written
    kind: Kind[Any]
    asked_as: str
    called: str  # how it is asked, in words
    level: int  # of its heading
    variant: int  # which variant of the item this is, counted from 1
    asks_how_sure: bool
    stem: Markup
    more: Markup  # what follows the question, as blocks
    about: tables.Table | None  # which does not open before the answer where one is typed
    exhibit: Exhibit | None
    form: "Form"  # what a reader operates
    answers: Sequence[ExplainedAnswer]
    opened: tables.Table | None  # the same as `about`, after the answer
    explains: Markup
    correction: "Correction | None"  # of a program
    backing: Sequence[Backing]  # the evidence that does not stand with a single answer
    hints: Sequence[Markup]
    source: Markup  # that is cited
    root: str  # what leads to the site's root

    @property
    def is_open(self) -> bool:
        """Whether the runs of this machine leave it open."""
        return self.kind.key.is_open

    @property
    def above(self) -> Markup:
        """The words above it: what it is, and what to do."""
        return escape(" · ".join(filter(None, (self.called, self.kind.instruction))))

    @property
    def every_backing(self) -> list[Backing]:
        """The evidence that stands with its answers and below them."""
        of_answers = (backing for answer in self.answers for backing in answer.backing)
        return [*of_answers, *self.backing]

    def parts(self) -> Iterator[Element | Markup]:
        """What is asked, without hints and key."""
        yield from (self.stem, self.more)
        yield from (part for part in (self.about, self.exhibit, self.form) if part)


@dataclass(frozen=True)
class Form(Element):
    """What a reader operates; its answers as they stand before one is given, where none opens."""

    IS_FOUND = False
    anchor: str  # of the question
    shown: Sequence[ExplainedAnswer]  # what there is to choose from


@dataclass(frozen=True)
class Options(Form):
    """Options to choose from."""

    are_several: bool

    def parts(self) -> Iterator[Markup]:
        """The options."""
        yield from (option.text for option in self.shown)


@dataclass(frozen=True)
class Lines(Form):
    """A program, some of whose lines are to choose from, and what it printed."""

    program: programs.ListedProgram
    lines: Sequence[tuple[Markup, int | None]]  # each with its position among the choices


@dataclass(frozen=True)
class Pieces(Form):
    """Pieces to put in order, between two ends if there are any."""

    ends: Sequence[Markup]

    def parts(self) -> Iterator[Markup]:
        """The pieces between their ends."""
        yield from (*self.ends[:1], *(piece.text for piece in self.shown), *self.ends[1:])


@dataclass(frozen=True)
class Pairs(Form):
    """Left sides, for each of which a right side is chosen."""

    lefts: Sequence[ExplainedAnswer]

    def parts(self) -> Iterator[Markup]:
        """Both sides."""
        for side in self.lefts:
            yield from (side.text, side.beside or Markup())


@dataclass(frozen=True)
class TypedField(Form):
    """A field to type into, with a slider if it has ends."""

    field: AnswerField | None


@dataclass(frozen=True)
class Correction(Element):
    """The corrected program, and the lines in which it differs."""

    difference: programs.Difference


def question(quiz_item: Item, folio: Folio, asked_as: str, level: int = 3) -> Question:
    """A question with its key on this book's runs; recorded in `folio`."""
    kind = kind_of(quiz_item, folio.evidence)
    folio.items.append(quiz_item.id)
    again = folio.items.count(quiz_item.id)
    anchor = quiz_item.id if again == 1 else f"{quiz_item.id}-{again}"
    stem, more = _stem(folio.prose(quiz_item.stem))
    behind = [claim_backing(name, folio) for name in quiz_item.claims]
    explained, backing = deduplicated(kind.answers(folio), behind)
    field = kind.field(folio)
    table = quiz_item.this_table
    opened = tables.of_values(table, folio) if table else None
    return Question(
        id=quiz_item.id,
        anchor=anchor,
        digest=digest_of(quiz_item, folio.evidence),
        item=quiz_item,
        kind=kind,
        asked_as=asked_as,
        called=folio.ui["item"].get(asked_as, "Question"),
        level=level,
        variant=0,
        asks_how_sure=kind.is_graded and not (asked_as in _CHECKS or kind.key.is_open),
        stem=stem,
        more=more,
        about=tables.of_values(table, folio.in_link) if table and field else opened,
        exhibit=_exhibit(quiz_item, folio.in_link),
        form=_form(quiz_item, kind, anchor, field, folio.in_link),
        answers=explained,
        opened=opened,
        explains=folio.prose(kind.explains) if kind.explains else Markup(),
        correction=_correction(quiz_item, folio),
        backing=backing,
        hints=tuple(folio.line(hint) for hint in quiz_item.hints),
        source=folio.line(quiz_item.source) if quiz_item.source else Markup(),
        root=folio.root,
    )


def variants(quiz_item: Item, folio: Folio, asked_as: str) -> list[Question]:
    """A question for each answerable case of an item, with the item's id and digest."""
    asked_cases = []
    for number, case in answerable_cases(quiz_item, folio.evidence):
        digest = digest_of(quiz_item, folio.evidence)
        asked = question(case, folio, asked_as)
        asked_cases.append(replace(asked, id=quiz_item.id, digest=digest, variant=number))
        folio.items.remove(case.id)  # one question to a reader
    return asked_cases


def in_short(quiz_item: Item, folio: Folio) -> str:
    """The last question of an item's stem, shortened for a link."""
    sentences = re.split(r"(?<=[.?!])\s+", folio.evidence.plain(quiz_item.stem))
    asked = [sentence for sentence in sentences if sentence.endswith("?")] or sentences
    return textwrap.shorten(re.sub("[`$]", "", asked[-1]), _IN_SHORT, placeholder=" …")


def _exhibit(quiz_item: Item, folio: Folio) -> Exhibit | None:
    """What stands below the stem: a figure with its drawing, or code, or what a run printed."""
    exhibit, figure = quiz_item.exhibit, folio.book.exhibited.get(quiz_item.id)
    if exhibit is None:
        return None
    program, log = exhibit.program, exhibit.log
    return Exhibit(
        figure=figures.exhibit(figure, quiz_item.id, folio) if figure else None,
        program=programs.listing(program, folio, is_asked=True) if program else None,
        printed=programs.printed(log, folio) if log else None,
    )


def _form(
    quiz_item: Item, kind: Kind[Any], anchor: str, field: AnswerField | None, folio: Folio
) -> Form:
    """What a reader operates; the `folio` prints values that do not open."""
    closed = {answer.position: answer for answer in kind.answers(folio)}
    shown = [closed[place] for place in kind.page_order()]
    if isinstance(quiz_item, FaultyLine):
        program = programs.listing(quiz_item.wrong, folio)
        choices = [line.code for line in quiz_item.lines]
        return Lines(anchor, shown, program, programs.code_lines(quiz_item.wrong, choices, folio))
    if kind.places == "pieces":
        ends = (quiz_item.ends or ()) if isinstance(quiz_item, Ordering) else ()
        return Pieces(anchor, shown, [folio.line(end) for end in ends])
    if kind.places == "pairs":
        return Pairs(anchor, shown, list(kind.answers(folio)))
    if not kind.places:
        return TypedField(anchor, shown, field)
    return Options(anchor, shown, quiz_item.kind == "several")


def _correction(quiz_item: Item, folio: Folio) -> Correction | None:
    """The correction of a program with a fault to find."""
    if not isinstance(quiz_item, FaultyLine):
        return None
    return Correction(programs.difference(quiz_item.wrong, quiz_item.right, folio))


def _stem(prose: Markup) -> tuple[Markup, Markup]:
    """Paragraphs as a legend may hold them, and the blocks that it may not."""
    text = str(prose)
    block = _BLOCK.search(text)
    first, more = (text[: block.start()], text[block.start() :]) if block else (text, "")
    first = first.replace("<p>", '<span class="pb-stem">').replace("</p>", "</span>")
    return Markup(first.strip()), Markup(more)

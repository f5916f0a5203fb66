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

from proofbook.generator.content.listed_code import anonymized
from proofbook.generator.content.quiz import Item
from proofbook.generator.kinds.figures import figures
from proofbook.generator.kinds.figures.figures import FigureOnPage
from proofbook.generator.kinds.questions.answers import (
    Backing,
    ExplainedAnswer,
    claim_backing,
    deduplicated,
)
from proofbook.generator.kinds.questions.item_checks import answerable_cases
from proofbook.generator.kinds.questions.kinds import digest_of, kind_of
from proofbook.generator.kinds.questions.kinds.arranged import Ordering
from proofbook.generator.kinds.questions.kinds.base import AnswerField, QuestionKind
from proofbook.generator.kinds.questions.kinds.picked import FaultyLine
from proofbook.generator.pages.elements import programs, tables
from proofbook.generator.pages.elements.element import Block, Element, Made
from proofbook.generator.printing.folio import Folio, interface_words
from proofbook.runners.core.trace.fields import NBSP

_BLOCKS = ("<pre", "<ul", "<ol", "<blockquote", "<div", "<p><img")  # which no legend may hold
_CHECKS = frozenset({"question", "challenge"})  # what else is asked says how sure a reader is
_IN_SHORT = 80  # characters


@dataclass(frozen=True)
class Exhibit(Element):
    """What a question shows below its stem. Nothing in it opens."""

    figure: FigureOnPage | None
    program: programs.ListedProgram | None
    printed: programs.RunOutput | None

    @property
    def needs(self) -> frozenset[str]:
        """Also the style of states, if it has one."""
        is_play = self.figure and self.figure.picture.play
        return super().needs | ({"state"} if is_play else set())


@dataclass(frozen=True)
class Question(Element):
    """A question as a form, its hints and its key."""

    ASKS = True
    id: str
    anchor: str
    digest: str  # which question an answer belongs to
    item: Item  # as written
    kind: QuestionKind[Any]
    asked_as: str
    level: int  # of its heading
    stem: Markup
    more: Markup  # what follows the question, as blocks
    about: tables.Table | None  # which does not open before the answer where one is typed
    exhibit: Exhibit | None
    closed: Sequence[ExplainedAnswer]  # as they stand before one is given, where none opens
    field: AnswerField | None  # to type into
    ends: Sequence[Markup]  # of pieces to put in order, if these have any
    program: programs.ListedProgram | None  # with a fault
    lines: Sequence[tuple[Markup, int | None]]  # of it, each with its position among the choices
    answers: Sequence[ExplainedAnswer]
    opened: tables.Table | None  # the same as `about`, after the answer
    explains: Markup
    correction: Made | None  # of a program
    backing: Sequence[Backing]  # the evidence that does not stand with a single answer
    hints: Sequence[Markup]
    source: Markup  # that is cited
    root: str  # what leads to the site's root
    variant: int = 0  # which variant of the item this is, counted from 1

    @property
    def asks_how_sure(self) -> bool:
        """Whether it asks how sure a reader is."""
        is_check = self.asked_as in _CHECKS or self.kind.key.is_open
        return self.kind.is_graded and not is_check

    @property
    def called(self) -> str:
        """How it is asked, in words."""
        return str(interface_words()["item"].get(self.asked_as, "Question"))

    @property
    def above(self) -> Markup:
        """The words above it: what it is, and what to do."""
        return escape(" · ".join(filter(None, (self.called, self.kind.instruction))))

    @property
    def shown(self) -> list[ExplainedAnswer]:
        """What there is to choose from, in the order of the page."""
        by_position = {answer.position: answer for answer in self.closed}
        return [by_position[position] for position in self.kind.page_order()]

    @property
    def needs(self) -> frozenset[str]:
        """Also its kind and its form."""
        return super().needs | {self.item.kind, self.kind.places or "typed_field"}

    def parts(self) -> Iterator[Element | Markup]:
        """What is asked, what explains the answers, and the evidence, without hints."""
        yield Block([self.above], is_found=False)
        yield from (self.stem, self.more)
        yield from (part for part in (self.about, self.exhibit) if part)
        words = [answer.text for answer in self.shown]
        if self.kind.places == "pairs":
            words += [answer.beside or Markup() for answer in self.closed]
        lines = (code for code, _ in self.lines)
        yield Block([*words, *self.ends, *lines], is_found=False)
        behind = [*self.backing, *(proof for answer in self.answers for proof in answer.backing)]
        evidence = [text for proof in behind for text in (proof.belief, proof.says) if text]
        whys = (answer.why for answer in self.answers)
        yield Block([self.explains, *whys, *evidence], is_found=False)


def question(quiz_item: Item, folio: Folio, asked_as: str, level: int = 3) -> Question:
    """A question with its key on this book's runs; recorded in `folio`."""
    kind, closed = kind_of(quiz_item, folio.evidence), folio.in_link
    folio.items.append(quiz_item.id)
    again = folio.items.count(quiz_item.id)
    stem, more = _stem(folio.prose(quiz_item.stem))
    behind = [claim_backing(name, folio) for name in quiz_item.claims]
    explained, backing = deduplicated(kind.answers(folio), behind)
    field = kind.field(folio)
    table = quiz_item.this_table
    opened = tables.of_values(table, folio) if table else None
    faulty = quiz_item if isinstance(quiz_item, FaultyLine) else None
    ends = (quiz_item.ends or ()) if isinstance(quiz_item, Ordering) else ()
    return Question(
        id=quiz_item.id,
        anchor=quiz_item.id if again == 1 else f"{quiz_item.id}-{again}",
        digest=digest_of(quiz_item, folio.evidence),
        item=quiz_item,
        kind=kind,
        asked_as=asked_as,
        level=level,
        stem=stem,
        more=more,
        about=tables.of_values(table, closed) if table and field else opened,
        exhibit=_exhibit(quiz_item, closed),
        closed=kind.answers(closed),
        field=field,
        ends=[closed.line(end) for end in ends],
        program=programs.listing(faulty.wrong, closed) if faulty else None,
        lines=code_lines(faulty, closed) if faulty else (),
        answers=explained,
        opened=opened,
        explains=folio.prose(kind.explains) if kind.explains else Markup(),
        correction=programs.difference(faulty.wrong, faulty.right, folio) if faulty else None,
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
    drawn = figures.exhibit(figure, quiz_item.id, folio) if figure else None
    if exhibit is None or (figure and not drawn):  # the page has drawn it above
        return None
    program, log = exhibit.program, exhibit.log
    return Exhibit(
        figure=drawn,
        program=programs.listing(program, folio, is_asked=True) if program else None,
        printed=programs.printed(log, folio) if log else None,
    )


def _stem(prose: Markup) -> tuple[Markup, Markup]:
    """Paragraphs as a legend may hold them, and the blocks that it may not."""
    text = str(prose)
    ends = min(f"{text}{block}".find(block) for block in _BLOCKS)
    first = text[:ends].replace("<p>", '<span class="pb-stem">').replace("</p>", "</span>")
    return Markup(first.strip()), Markup(text[ends:])


def code_lines(question: FaultyLine, folio: Folio) -> list[tuple[Markup, int | None]]:
    """Pairs: a line of a faulty program as a question shows it; its place among the choices."""
    wrong = question.wrong
    places = {line.code.strip(): place for place, line in enumerate(question.lines)}
    code = anonymized(folio.book.root, wrong.path, wrong.object).rstrip()
    return [
        (NBSP * (len(line) - len(line.lstrip())) + coloured.lstrip(), places.get(line.strip()))
        for line, coloured in zip(code.splitlines(), programs.highlighted_lines(code), strict=False)
    ]

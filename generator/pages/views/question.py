"""A question as its template wants it: what is asked, what a reader operates, and the key.

Before a reader commits nothing is given away: what stands in the question opens nothing, since
where a number comes from would tell; only the table of a question that is not typed does. The key
below it opens everything; see `answers.py`.
"""

import re
import textwrap

from markupsafe import Markup

from generator.content.quiz import Item, ValueTable
from generator.figures import figures
from generator.items.answers import claim_backing, deduplicated
from generator.items.item_checks import answerable_cases
from generator.items.kinds import digest_of, kind_of
from generator.pages.view import Row, View
from generator.pages.views import listing
from generator.printing.folio import Folio

_BLOCK = re.compile(r"<(?:pre|ul|ol|blockquote|div)\b|<p><img")
_OPENS = re.compile(r'(<a class="pb-value[^>]*>)(.*?)(</a>)', re.DOTALL)
_CHECKS = frozenset({"question", "challenge"})  # what else is asked says how sure a reader is
_IN_SHORT = 80  # characters


def question(quiz_item: Item, folio: Folio, asked_as: str) -> View:
    """`View` of an item for its template, with its key on this book's runs; recorded in `folio`."""
    kind = kind_of(quiz_item, folio.evidence)
    folio.items.append(quiz_item.id)
    again = folio.items.count(quiz_item.id)
    stem, more = _stem(folio.prose(quiz_item.stem))
    behind = [claim_backing(name, folio) for name in quiz_item.claims]
    explained, backing = deduplicated(kind.answers(folio), behind)
    by_place = {answer.position: answer for answer in explained}
    return View(
        id=quiz_item.id,
        kind=kind,
        item=quiz_item,  # as written, for its form
        asked_as=asked_as,  # the word above it
        digest=digest_of(quiz_item, folio.evidence),  # which question an answer belongs to
        anchor=quiz_item.id if again == 1 else f"{quiz_item.id}-{again}",
        variant=0,  # which variant of the item this is, counted from 1
        is_open=kind.key.is_open,
        asks_how_sure=kind.is_graded and not (asked_as in _CHECKS or kind.key.is_open),
        stem=stem,
        more=more,  # what follows the question, as blocks
        shown=[by_place[place] for place in kind.page_order()],  # what there is to choose from
        field=kind.field(folio),  # what a reader types into
        about=in_table(quiz_item.this_table, folio),
        exhibit=_exhibit(quiz_item, folio),
        answers=explained,
        explains=folio.prose(kind.explains) if kind.explains else Markup(),
        backing=backing,  # the evidence that does not stand with a single answer
        hints=tuple(folio.line(hint) for hint in quiz_item.hints),
    )


def variants(quiz_item: Item, folio: Folio, asked_as: str) -> list[View]:
    """`View`s by `question`, of each answerable case of an item, with the item's id and digest."""
    asked_cases = []
    for number, case in answerable_cases(quiz_item, folio.evidence):
        digest = digest_of(quiz_item, folio.evidence)
        asked = question(case, folio, asked_as)
        asked_cases.append(asked.copy_with(id=quiz_item.id, digest=digest, variant=number))
        folio.items.remove(case.id)  # one question to a reader
    return asked_cases


def in_short(quiz_item: Item, folio: Folio) -> str:
    """The last question of an item's stem, shortened for a link."""
    sentences = re.split(r"(?<=[.?!])\s+", folio.evidence.plain(quiz_item.stem))
    asked = [sentence for sentence in sentences if sentence.endswith("?")] or sentences
    return textwrap.shorten(re.sub("[`$]", "", asked[-1]), _IN_SHORT, placeholder=" …")


def _exhibit(quiz_item: Item, folio: Folio) -> View | None:
    """What stands below the stem: a figure with its drawing, or code, or what a run printed."""
    exhibit, figure = quiz_item.exhibit, folio.book.exhibited.get(quiz_item.id)
    if exhibit is None:
        return None
    drawn, drawing = figures.exhibit(figure, quiz_item.id, folio) if figure else (None, Markup())
    return View(
        figure=drawn,
        drawing=drawing,
        program=listing.listing(exhibit.program, folio, is_asked=True) if exhibit.program else None,
        printed=listing.printed(exhibit.log, folio) if exhibit.log else None,
    )


def _stem(prose: Markup) -> tuple[Markup, Markup]:
    """Paragraphs as a legend may hold them, and the blocks that it may not."""
    text = str(prose)
    block = _BLOCK.search(text)
    first, more = (text[: block.start()], text[block.start() :]) if block else (text, "")
    first = first.replace("<p>", '<span class="pb-stem">').replace("</p>", "</span>")
    return Markup(first.strip()), Markup(more)


def unopened(markup: Markup) -> Markup:
    """HTML whose values are no links: the source of a number would give its question away."""
    return Markup(_OPENS.sub(r'<span class="pb-label">\2</span>', str(markup)))


def in_table(
    written: ValueTable | None, folio: Folio, first: str = ""
) -> tuple[Row, list[Row], str]:
    """Triple of an author's table: titles, rows, caption; `first` heads the first column."""
    if written is None:
        return [], [], ""
    if first:  # else a question is about it, whose key is of the machine at hand
        cells = (cell for row in written.rows for cell in row.cells)
        folio = folio.for_runs(run for cell in cells for run in folio.evidence.evaluate(cell).runs)
    titles = [first, *("#" + folio.line(column) for column in written.columns)]
    page = folio.for_table(folio.value(cell) for row in written.rows for cell in row.cells)
    rows: list[Row] = [[page.line(row.title), *map(page.cell, row.cells)] for row in written.rows]
    return titles, rows, page.caption

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


def question(item: Item, folio: Folio, asked_as: str) -> View:
    """Judge an item on this book's runs and render it."""
    kind = kind_of(item, folio.evidence)
    folio.items.append(item.id)
    again = folio.items.count(item.id)
    stem, more = _stem(folio.prose(item.stem))
    behind = [claim_backing(name, folio) for name in item.claims]
    explained, backing = deduplicated(kind.answers(folio), behind)
    by_place = {one.position: one for one in explained}
    return View(
        id=item.id,
        kind=kind,
        item=item,  # as written, for its form
        asked_as=asked_as,  # the word above it
        digest=digest_of(item, folio.evidence),  # which question an answer belongs to
        anchor=item.id if again == 1 else f"{item.id}-{again}",
        variant=0,  # which variant of the item this is, counted from 1
        is_open=kind.key.is_open,
        asks_how_sure=kind.is_graded and not (asked_as in _CHECKS or kind.key.is_open),
        stem=stem,
        more=more,  # what follows the question, as blocks
        shown=[by_place[place] for place in kind.page_order()],  # what there is to choose from
        field=kind.field(folio),  # what a reader types into
        about=in_table(item.this_table, folio),
        exhibit=_exhibit(item, folio),
        answers=explained,
        explains=folio.prose(kind.explains) if kind.explains else Markup(),
        backing=backing,  # the evidence that does not stand with a single answer
        hints=tuple(folio.line(hint) for hint in item.hints),
    )


def variants(item: Item, folio: Folio, asked_as: str) -> list[View]:
    """The item on other runs, wherever these have one answer; readers' answers are the item's."""
    found = []
    for number, one in answerable_cases(item, folio.evidence):
        digest = digest_of(item, folio.evidence)
        asked = question(one, folio, asked_as)
        found.append(asked.but(id=item.id, digest=digest, variant=number))
        folio.items.remove(one.id)  # one question to a reader
    return found


def in_short(item: Item, folio: Folio) -> str:
    """What an item asks, for a line that leads to it: its last question, shortened."""
    sentences = re.split(r"(?<=[.?!])\s+", folio.evidence.plain(item.stem))
    asked = [one for one in sentences if one.endswith("?")] or sentences
    return textwrap.shorten(re.sub("[`$]", "", asked[-1]), _IN_SHORT, placeholder=" …")


def _exhibit(item: Item, folio: Folio) -> View | None:
    """What stands below the stem: a figure with its drawing, or code, or what a run printed."""
    shown, figure = item.exhibit, folio.book.exhibited.get(item.id)
    if shown is None:
        return None
    drawn, drawing = figures.exhibit(figure, item.id, folio) if figure else (None, Markup())
    return View(
        figure=drawn,
        drawing=drawing,
        has_caption=shown.drawing is not None,
        program=listing.listing(shown.program, folio, is_asked=True) if shown.program else None,
        printed=listing.printed(shown.log, folio) if shown.log else None,
    )


def _stem(prose: Markup) -> tuple[Markup, Markup]:
    """Paragraphs as a legend may hold them, and the blocks that it may not."""
    text = str(prose)
    block = _BLOCK.search(text)
    first, more = (text[: block.start()], text[block.start() :]) if block else (text, "")
    first = first.replace("<p>", '<span class="pb-stem">').replace("</p>", "</span>")
    return Markup(first.strip()), Markup(more)


def unopened(markup: Markup) -> Markup:
    """A text whose values open nothing, since where a number comes from would tell."""
    return Markup(_OPENS.sub(r'<span class="pb-label">\2</span>', str(markup)))


def in_table(
    written: ValueTable | None, folio: Folio, first: str = ""
) -> tuple[Row, list[Row], str]:
    """The titles of an author's table, the `first` above the heads of rows; rows; its caption."""
    if written is None:
        return [], [], ""
    if first:  # else a question is about it, whose key is of the machine at hand
        cells = (cell for row in written.rows for cell in row.cells)
        folio = folio.for_runs(run for one in cells for run in folio.evidence.evaluate(one).runs)
    titles = [first, *("#" + folio.line(one) for one in written.columns)]
    page = folio.for_table(folio.value(cell) for row in written.rows for cell in row.cells)
    rows: list[Row] = [[page.line(row.title), *map(page.cell, row.cells)] for row in written.rows]
    return titles, rows, page.caption

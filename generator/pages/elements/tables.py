"""Tables: a title with # before it stands above numbers, whose common unit stands in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]
from markupsafe import Markup, escape

from proofbook.generator.content.exhibit import ValueTable
from proofbook.generator.pages.elements.element import Element
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain
from proofbook.generator.values.units import SCALES
from proofbook.runners.core.trace.fields import NBSP

_UNITS = [NBSP + name for sizes in SCALES.values() for name, _ in sizes] + ["%"]
_EMPTY = ("", "–")
SENTENCE, IN_ANCHOR = 5, 8  # words of a cell, and of the first one those in an anchor
LONG = 40  # letters of a cell that no column of a phone holds
Row = Sequence[Markup | str]  # the first cell heads it


@dataclass(frozen=True)
class Table(Element):
    """A table. Numbers that are wider than the page scroll; sentences take the width of a phone."""

    titles: Row
    rows: Sequence[Row]
    caption: str = ""  # the marks that all values have
    css: str = ""
    is_found: bool = True
    anchors: list[str] = field(default_factory=list)  # of its rows; a page gives unknown ones
    head_css: str = ""  # of the cells that head the rows
    is_headed: bool = True  # whether the first cell of each row heads it

    def parts(self) -> Iterator[Markup]:
        """Its titles, and its cells row by row."""
        yield from (escape(title.removeprefix("#")) for title in self.titles)
        yield from (_escaped(cell) for row in self.rows for cell in row)

    def words_of(self, row: Row) -> list[Markup]:
        """The cells of a row that hold no number."""
        pairs = zip(self.titles, row, strict=True)
        return [_escaped(cell) for title, cell in pairs if not title.startswith("#")]

    def give_ids(self, taken: set[str]) -> None:
        """Give each row with a sentence in a cell an id of the first cell's words; others ''."""
        if not self.anchors:
            names = [row_name(self.words_of(row)) for row in self.rows]
            self.anchors.extend(unique(name, taken) if name else "" for name in names)

    @property
    def is_stacked(self) -> bool:
        """Whether a phone shows each row as a block, since one of its cells is long."""
        return any(is_long(cell) for row in self.rows for cell in self.words_of(row))

    @property
    def in_units(self) -> "Table":
        """The table with the unit that all numbers of a column have in its head."""
        titles, rows = with_units(self.titles, self.rows)
        return replace(self, titles=titles, rows=rows)


def _escaped(cell: Markup | str) -> Markup:
    return cell if isinstance(cell, Markup) else escape(cell)  # a `Text` stays one


def row_name(cells: Sequence[Markup]) -> str:
    """The id of a row with a sentence in a cell, of the first one's words; '' for others."""
    if len(cells) < 2 or max(map(_num_words, cells)) < SENTENCE:
        return ""
    words = Markup(cells[0].replace("<br>", " ")).striptags().split()
    return f"row-{slugify(' '.join(words[:IN_ANCHOR]), '-')}"


def is_long(cell: Markup) -> bool:
    """Whether the words of a cell need the width of a phone."""
    return len(plain(cell)) > LONG


def _num_words(cell: Markup) -> int:
    """The words of a cell outside code."""
    outside = " ".join(part.partition("</code>")[2] for part in f"</code>{cell}".split("<code>"))
    text = Markup(outside.replace("<", " <")).striptags()
    letters = "".join(letter if letter.isalpha() else " " for letter in text)
    return sum(len(word) > 1 for word in letters.split())


def with_units(titles: Row, rows: Sequence[Row]) -> tuple[list[Markup], list[list[Markup]]]:
    """Titles and rows, in which a unit common to the numbers of a column stands in its title."""
    columns = [[escape(cell) for cell in column] for column in zip(*rows, strict=True)]
    heads = [escape(title) for title in titles]
    for at, (title, cells) in enumerate(zip(titles, columns, strict=False)):
        unit = _common_unit(cells) if title.startswith("#") else ""
        if unit:
            heads[at] += f", {unit.removeprefix(NBSP)}"
            columns[at] = [_without(cell, unit) for cell in cells]
    return heads, [list(row) for row in zip(*columns, strict=True)]


def _common_unit(cells: Sequence[Markup]) -> str:
    """The unit with which all these numbers end, or nothing where they have several or none."""
    units = {_unit_of(cell) for cell in cells if plain(cell).strip() not in _EMPTY}
    return units.pop() if len(units) == 1 else ""


def _unit_of(cell: Markup) -> str:
    """The unit behind the number that ends a cell."""
    words = plain(cell)
    ends = [unit for unit in _UNITS if words.endswith(unit)]
    unit = max(ends, key=len, default="")
    return unit if words.removesuffix(unit)[-1:].isdecimal() else ""


def _without(cell: Markup, unit: str) -> Markup:
    """A cell without the unit that ends it."""
    before, _, after = cell.rpartition(unit)
    return Markup(before + after) if before else cell


def of_values(written: ValueTable, folio: Folio, first: str = "") -> Table:
    """An author's table of values; `first` heads the first column."""
    if first:  # else a question is about it, whose key is of the machine at hand
        cells = (cell for row in written.rows for cell in row.cells)
        folio = folio.for_runs(run for cell in cells for run in folio.evidence.evaluate(cell).runs)
    titles = [escape(first), *("#" + folio.line(column) for column in written.columns)]
    page = folio.for_table(folio.value(cell) for row in written.rows for cell in row.cells)
    rows = [[page.line(row.title), *map(page.cell, row.cells)] for row in written.rows]
    return Table(titles, rows, page.caption)

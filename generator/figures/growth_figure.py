"""How a measured number grows over runs, beside what a formula says of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from markupsafe import Markup

from generator.content.exhibit import Figure, Growth
from generator.content.typesetting import plain
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.growth import GrowthRun, ruled, runs_by_series
from generator.evidence.law_sides import relative_difference
from generator.evidence.value import Value, numeric
from generator.figures.drawings import growth as drawing
from generator.figures.drawings.growth import Axes, Grown, Point
from generator.figures.picture import Picture, Table, on_both


def growth(figure: Figure, folio: Folio) -> Picture:
    """Points and a line a series, the formula dashed, and every number in a table."""
    assert figure.growth is not None
    written = ruled(figure.growth, folio.book)
    found = {label: runs for label, runs in runs_by_series(written, folio.evidence).items() if runs}
    for row in (row for runs in found.values() for row in runs):
        folio.run(row.run)
    table = _table(found, written, folio, by_law=figure.growth.law is not None)
    if not found:
        return Picture(table)
    rows = [row for runs in found.values() for row in runs]
    x_unit, x_size = _scale([row.x for row in rows])
    measured = [row.measured for row in rows]
    y_unit, y_size = _scale([*measured, *(row.predicted for row in rows if row.predicted)])
    names = {label: plain(folio.line(label)) for label in found}
    series = [
        Grown(names[label], tuple(_point(row, names[label], x_size, y_size, folio) for row in runs))
        for label, runs in found.items()
    ]
    axes = Axes(
        x_title=_titled(written.x_label, x_unit, written, folio),
        y_title=_titled(written.y_label, y_unit, written, folio),
        measured=_heading(found, folio).lower(),
        formula=folio.ui["figure"]["by_formula"],
        is_logarithmic=written.logarithmic,
        x_digits=3 if x_size > 1 else 4,
    )
    description = "; ".join(_described(names[label], runs, folio) for label, runs in found.items())

    draw = partial(drawing.growth, series, axes)
    return Picture(table, on_both(draw, figure, folio, description))


def _point(row: GrowthRun, name: str, x_size: float, y_size: float, folio: Folio) -> Point:
    predicted = None if row.predicted is None else numeric(row.predicted) / y_size
    say = _described(name, [row], folio)
    return Point(numeric(row.x) / x_size, numeric(row.measured) / y_size, predicted, say)


def _scale(values: Sequence[Value]) -> tuple[str, float]:
    """The unit of an axis, and how much one of it is, so that its numbers are easily read."""
    return units.of_axis(values[0].unit, max(abs(numeric(value)) for value in values))


def _titled(label: str, unit: str, written: Growth, folio: Folio) -> str:
    scale = folio.ui["figure"]["log_scale"] if written.logarithmic else ""
    return ", ".join(filter(None, (plain(folio.line(label)), unit, scale)))


def _described(name: str, runs: Sequence[GrowthRun], folio: Folio) -> str:
    described = (
        f"{row.x}: {row.measured}"
        + (f" ({folio.ui['figure']['by_formula']} {row.predicted})" if row.predicted else "")
        for row in runs
    )
    return f"{name}: {', '.join(described)}"


def _heading(found: dict[str, list[GrowthRun]], folio: Folio) -> str:
    """How the numbers of all its runs were found."""
    values = (row.measured for runs in found.values() for row in runs)
    return folio.found(values)


def _table(
    found: dict[str, list[GrowthRun]], written: Growth, folio: Folio, *, by_law: bool
) -> Table:
    """Every number; how far a formula is off only where it is a law's, not a line to compare."""
    words = folio.ui["figure"]
    head = [words["run"], plain(folio.line(written.x_label)), _heading(found, folio)]
    table = Table(head)
    if written.predicted:
        head += [words["by_formula"], *([folio.ui["cost"]["differs_by"]] if by_law else [])]
    for label, runs in found.items():
        for row in runs:
            cells: list[Markup | str] = [
                Markup("{} · <code>{}</code>").format(folio.line(label), row.run),
                folio.show(row.x),
                folio.show(row.measured),
            ]
            if written.predicted:
                cells.append(folio.shown(row.predicted))
            if by_law:
                cells.append(folio.shown(relative_difference(row.predicted, row.measured)))
            table.rows.append(cells)
    return table

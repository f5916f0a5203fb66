"""How a measured number grows over runs, beside what a formula says of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from generator.content.exhibit import Figure, Growth
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.growth import GrowthRun, ruled, runs_by_series
from generator.evidence.law_sides import relative_difference
from generator.evidence.value import Value, numeric
from generator.figures.axes import plain
from generator.figures.drawing import Drawing, Layout
from generator.figures.drawings.plot import MARKS, Axis, Series, axis_of, plot
from generator.figures.picture import Picture, Seen, Table, both, plainly

ROOM = 1.08  # between the outermost values and the ends of the axis across
ROOM_OF_POWERS = 1.25
HEIGHT = 250


def growth(figure: Figure, folio: Folio) -> Picture:
    """Points and a line a series, the formula dashed, and every number in a table."""
    assert figure.growth is not None
    written = ruled(figure.growth, folio.book)
    found = {label: runs for label, runs in runs_by_series(written, folio.evidence).items() if runs}
    rows = [row for runs in found.values() for row in runs]
    for row in rows:
        folio.run(row.run)
    measured = folio.found(row.measured for row in rows)
    table = _table(found, written, measured, folio, by_law=figure.growth.law is not None)
    if not rows:
        return Picture(table)
    named = {plainly(label, folio): runs for label, runs in found.items()}
    x_unit, x_size = _scale([row.x for row in rows])
    y_unit, y_size = _scale([one for row in rows for one in (row.measured, row.predicted) if one])
    series = list(_series(named, measured.lower(), (x_size, y_size), folio))
    points = [point for one in series for point in one.points]
    xs, ys = {x for x, _, _ in points}, {y for _, y, _ in points}
    is_log = written.logarithmic
    ends = (min(xs) / ROOM_OF_POWERS, max(xs) * ROOM_OF_POWERS) if is_log else (0, max(xs) * ROOM)
    x_title, y_title = (
        ", ".join(
            filter(None, (plainly(label, folio), unit, is_log * folio.ui["figure"]["log_scale"]))
        )
        for label, unit in ((written.x_label, x_unit), (written.y_label, y_unit))
    )
    x = Axis(x_title, sorted(xs), ends, lambda value: plain(value, 4), is_log)
    y = axis_of(y_title, [*ys, *([] if is_log else [0])], 5, is_logarithmic=is_log)

    def draw(layout: Layout) -> Drawing:
        return plot(series, x, y, layout.width, HEIGHT)

    says = "; ".join(_described(name, runs, folio) for name, runs in named.items())
    return Picture(table, Seen(both(draw), says).svg(figure.id, plainly(figure.title, folio)))


def _series(
    named: Mapping[str, Sequence[GrowthRun]],
    measured: str,
    sizes: tuple[float, float],
    folio: Folio,
) -> Iterator[Series]:
    """A line for each label, and what the formula says, which needs one name for all.

    A formula whose points are all on the line of another is drawn once: dashes upon dashes would
    look like a line.
    """
    x_size, y_size = sizes
    formulas = sorted(
        (
            [(numeric(row.x) / x_size, numeric(row.predicted) / y_size, "") for row in runs
             if row.predicted] for runs in named.values()
        ), key=len, reverse=True,
    )  # fmt: skip
    for (name, runs), mark in zip(named.items(), MARKS, strict=False):
        points = [
            (
                numeric(row.x) / x_size,
                numeric(row.measured) / y_size,
                _described(name, [row], folio),
            )
            for row in runs
        ]
        # beside a formula a band, on which dashes still show
        title, width = (f"{name}, {measured}", "band") if any(formulas) else (name, "thick")
        yield Series(title, points, f"{mark[0]} {width}", mark)
    for n, formula in enumerate(formulas):
        if formula and not any(set(formula) <= set(longer) for longer in formulas[:n]):
            yield Series("" if n else folio.ui["figure"]["by_formula"], formula, "formula")


def _scale(values: Sequence[Value]) -> tuple[str, float]:
    """The unit of an axis, and how much one of it is, so that its numbers are easily read."""
    return units.of_axis(values[0].unit, max(abs(numeric(value)) for value in values))


def _described(name: str, runs: Sequence[GrowthRun], folio: Folio) -> str:
    described = (
        f"{row.x}: {row.measured}"
        + (f" ({folio.ui['figure']['by_formula']} {row.predicted})" if row.predicted else "")
        for row in runs
    )
    return f"{name}: {', '.join(described)}"


def _table(
    found: Mapping[str, Sequence[GrowthRun]], written: Growth, measured: str, folio: Folio, *,
    by_law: bool,
) -> Table:  # fmt: skip
    """Every number; how far a formula is off only where it is a law's, not a line to compare."""
    words = folio.ui["figure"]
    head = [words["run"], plainly(written.x_label, folio), measured]
    if written.predicted:
        head += [words["by_formula"], *([folio.ui["cost"]["differs_by"]] if by_law else [])]
    table = Table(head)
    for label, runs in found.items():
        for row in runs:
            error = relative_difference(row.predicted, row.measured)
            values = (row.x, row.measured, row.predicted, error)[: len(head) - 1]
            name = Markup("{} · <code>{}</code>").format(folio.line(label), row.run)
            table.rows.append([name, *map(folio.shown, values)])
    return table

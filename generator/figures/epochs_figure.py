"""Loss and accuracy over epochs, of one run or of several."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.value import Value, numeric
from generator.figures.axes import percent, plain
from generator.figures.drawings.plot import LINES, Axis, Series, axis_of, dashed, plot
from generator.figures.picture import Picture, Table, plainly

FIELDS = ("loss", "validation_loss", "accuracy", "validation_accuracy")
WIDTH, HEIGHT = 344, 170  # of a panel: half a column; between its axes


def epochs(figure: Figure, folio: Folio) -> Picture:
    """Two panels: losses and accuracies, in training and in validation where there is any."""
    words, names = folio.ui["figure"], _names(figure, folio)
    panels = Markup()
    for panel, says in (("loss", plain), ("accuracy", percent)):
        series = _series(panel, names, folio)
        if series:
            ys = [y for one in series for _, y, _ in one.points]
            numbers = range(1, 1 + max(len(one.points) for one in series))
            x = Axis(words["epoch"], numbers, ends=(1, max(numbers[-1], 2)))
            drawing = plot(series, x, axis_of("", ys, 4, says=says), WIDTH, HEIGHT)
            described = "; ".join(
                f"{one.name}: " + ", ".join(f"{y:.4g}" for _, y, _ in one.points) for one in series
            )
            name, title = f"{figure.id}-{panel}", words[panel]
            shown = drawing.svg(
                name, plainly(figure.title, folio), f"{title}. {described}", f"pb-{panel}"
            )
            panels += Markup("<div><p>{}</p>{}</div>").format(title, shown)
    drawings = Markup('<div class="pb-panels">{}</div>').format(panels) if panels else None
    return Picture(_table(names, folio), drawings)


def _names(figure: Figure, folio: Folio) -> dict[str, str]:
    """A short name of each run that there is."""
    words = folio.ui["strategies"]
    own = {path: path.partition(".")[2] for path in figure.runs if folio.run(path)}
    return {path: words.get(name, name.replace("_", " ")) for path, name in own.items()}


def _values(path: str, field: str, folio: Folio) -> list[Value | None]:
    """A field of each epoch of a run."""
    run = folio.book.run(path)
    assert run is not None
    return [
        None if getattr(epoch, field) is None else folio.value(f"{path}.epochs[{position}].{field}")
        for position, epoch in enumerate(run.epochs)
    ]


def _series(panel: str, names: Mapping[str, str], folio: Folio) -> list[Series]:
    """Lines that dashes tell apart; of more runs than there are dashes, training alone."""
    words = folio.ui["figure"]
    fields = {panel: words["training"]}
    if 2 * len(names) <= len(LINES):
        fields[f"validation_{panel}"] = words["validation"]
    found: list[Series] = []
    for path, of_run in names.items():
        for field, kind in fields.items():
            name = f"{of_run}, {kind}" if len(names) > 1 else kind
            points = [
                (float(n), numeric(value), f"{name}, {words['epoch']} {n}: {value}")
                for n, value in enumerate(_values(path, field, folio), 1)
                if value is not None and not isinstance(value.number, str)
            ]
            if points and len(found) < len(LINES):
                found.append(dashed(name, points, len(found), len(names)))
    return found


def _table(names: Mapping[str, str], folio: Folio) -> Table:
    words = folio.ui["figure"]
    read = {path: {one: _values(path, one, folio) for one in FIELDS} for path in names}
    columns = [one for one in FIELDS if any(any(of_run[one]) for of_run in read.values())]
    table = Table([words["epoch_column"], *(words[column] for column in columns)])
    for path, of_run in read.items():
        for position in range(len(of_run["loss"])):
            label = f"{words['epoch']} {position + 1}"
            values = [of_run[column][position] for column in columns]
            table.rows.append(
                [
                    f"{names[path]} · {label}" if len(names) > 1 else label,
                    *("" if value is None else folio.show(value) for value in values),
                ]
            )
    return table

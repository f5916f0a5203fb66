"""Loss and accuracy over epochs, of one run or of several."""

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.value import Value, numeric
from generator.figures.axes import percent, plain
from generator.figures.drawings.plot import LINES, Axis, Series, axis_of, dashed, plot
from generator.figures.picture import Picture, Table, plainly

FIELDS = ("loss", "validation_loss", "accuracy", "validation_accuracy")
WIDTH, HEIGHT = 344, 170  # of a panel: half a column; between its axes
Read = Mapping[str, Mapping[str, Sequence[Value | None]]]  # of each run, each field of its epochs


def epochs(figure: Figure, folio: Folio) -> Picture:
    """Two panels: losses and accuracies, in training and in validation where there is any."""
    read = {
        _name(path, folio): {
            field: [folio.value(f"{path}.epochs[{n}].{field}") for n in range(len(run.epochs))]
            for field in FIELDS
        }
        for path in figure.runs
        if (run := folio.run(path))
    }
    panels = Markup()
    for panel, says in (("loss", plain), ("accuracy", percent)):
        series = list(_series(panel, read))
        if series:
            ys = [y for one in series for _, y, _ in one.points]
            numbers = range(1, 1 + max(len(one.points) for one in series))
            x = Axis("epoch", numbers, ends=(1, max(numbers[-1], 2)))
            drawing = plot(series, x, axis_of("", ys, 4, says=says), WIDTH, HEIGHT)
            described = "; ".join(
                f"{one.name}: " + ", ".join(f"{y:.4g}" for _, y, _ in one.points) for one in series
            )
            described = f"{panel.capitalize()}. {described}"
            title = plainly(figure.title, folio)
            shown = drawing.svg(f"{figure.id}-{panel}", title, described, f"pb-{panel}")
            panels += Markup("<div><p>{}</p>{}</div>").format(panel.capitalize(), shown)
    drawings = Markup('<div class="pb-panels">{}</div>').format(panels) if panels else None
    return Picture(_table(read, folio), drawings)


def _name(path: str, folio: Folio) -> str:
    """A short name of a run."""
    own, words = path.partition(".")[2], folio.ui["strategies"]
    return str(words.get(own, own.replace("_", " ")))


def _series(panel: str, read: Read) -> Iterator[Series]:
    """Lines that dashes tell apart; of more runs than there are dashes, training alone."""
    fields = {panel: "training", f"validation_{panel}": "validation"}
    if len(fields) * len(read) > len(LINES):
        fields = {panel: "training"}
    position = 0
    for of_run, values in read.items():
        for field, kind in fields.items():
            name = f"{of_run}, {kind}" if len(read) > 1 else kind
            points = [
                (float(n), numeric(value), f"{name}, epoch {n}: {value}")
                for n, value in enumerate(values[field], 1)
                if value is not None and not isinstance(value.number, str)
            ]
            if points and position < len(LINES):
                yield dashed(name, points, position)
                position += 1


def _table(read: Read, folio: Folio) -> Table:
    """A row for each epoch of each run."""
    columns = [one for one in FIELDS if any(any(values[one]) for values in read.values())]
    table = Table(["Epoch", *(column.replace("_", " ").capitalize() for column in columns)])
    for of_run, values in read.items():
        for n, row in enumerate(zip(*(values[column] for column in columns), strict=True), 1):
            label = f"{of_run} · epoch {n}" if len(read) > 1 else f"epoch {n}"
            shown = ["" if value is None else folio.show(value) for value in row]
            table.rows.append([label, *shown])
    return table

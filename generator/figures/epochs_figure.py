"""Loss and accuracy over epochs, of one run or of several."""

from __future__ import annotations

from generator.content.exhibit import Figure
from generator.evidence.folio import Folio
from generator.evidence.value import Value, numeric
from generator.figures.drawings.lines import Series, lines
from generator.figures.picture import Picture, Table, figure_svg

FIELDS = ("loss", "validation_loss", "accuracy", "validation_accuracy")
Epochs = list[dict[str, Value | None]]  # of a run: each field, and the epoch's number


def epochs(figure: Figure, folio: Folio) -> Picture:
    """Two panels: losses and accuracies, in training and in validation where there is any."""
    words = folio.ui["figure"]
    read = {path: _read(path, folio) for path in figure.runs}
    names = _names(figure, folio)
    panels = []
    for panel in ("loss", "accuracy"):
        series = _series(panel, read, names, folio)
        if series:
            drawing = lines(series, words["epoch"], is_share=panel == "accuracy")
            title = words[panel]
            description = f"{title}. " + "; ".join(
                f"{s.name}: " + ", ".join(f"{y:.4g}" for _, y in s.points) for s in series
            )
            panels.append((title, figure_svg(drawing, figure, folio, panel, description)))
    return Picture(_table(read, names, folio), panels=panels)


def _read(path: str, folio: Folio) -> Epochs:
    run = folio.run(path)
    if run is None:
        return []
    return [
        {
            name: folio.value(f"{path}.epochs[{position}].{name}")
            if getattr(epoch, name) is not None
            else None
            for name in FIELDS
        }
        | {"epoch": folio.value(f"{path}.epochs[{position}].epoch")}
        for position, epoch in enumerate(run.epochs)
    ]


def _names(figure: Figure, folio: Folio) -> dict[str, str]:
    """A short name a run: its strategy, or its own name where strategies repeat."""
    runs = {path: folio.run(path) for path in figure.runs}
    names = {path: folio.strategy(run) if run else path for path, run in runs.items()}
    if len(set(names.values())) < len(names):
        words, own = folio.ui["strategies"], {path: path.split(".")[1] for path in names}
        return {path: words.get(name, name.replace("_", " ")) for path, name in own.items()}
    return names


def _series(
    panel: str, read: dict[str, Epochs], names: dict[str, str], folio: Folio
) -> list[Series]:
    words = folio.ui["figure"]
    found = []
    for path, rows in read.items():
        for field, kind in ((panel, "training"), (f"validation_{panel}", "validation")):
            points = [
                (float(position + 1), value, row["epoch"])
                for position, row in enumerate(rows)
                if (value := row[field]) is not None and not isinstance(value.number, str)
            ]
            if not points:
                continue
            name = words[kind] if len(read) == 1 else f"{names[path]}, {words[kind]}"
            says = tuple(f"{name}, {words['epoch']} {epoch}: {value}" for _, value, epoch in points)
            found.append(Series(name, tuple((x, numeric(y)) for x, y, _ in points), says))
    if len(found) > 4:  # told apart by four dashes; training alone says enough
        found = [one for one in found if one.name.endswith(words["training"])]
    return found[:4]


def _table(read: dict[str, Epochs], names: dict[str, str], folio: Folio) -> Table:
    words = folio.ui["figure"]
    columns = [f for f in FIELDS if any(row[f] for rows in read.values() for row in rows)]
    table = Table([words["epoch_column"], *(words[column] for column in columns)])
    for path, rows in read.items():
        for row in rows:
            label = f"{words['epoch']} {row['epoch']}"
            if len(read) > 1:
                label = f"{names[path]} · {label}"
            table.rows.append(
                [label, *(folio.show(v) if (v := row[column]) else "" for column in columns)]
            )
    return table

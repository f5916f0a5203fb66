"""The tables of lessons: stages, predictions, failing runs."""

from __future__ import annotations

import re

from markupsafe import Markup

from generator.content.lesson import Recorded, RecordedRow
from generator.evidence.folio import Folio
from generator.pages.shown import Shown
from runners.traces.records import PredictionStep, Stage

NUM_VALUES = 4
ByRank = tuple[list[str], list[tuple[str, list[Markup]]]]
_OF_RANK = re.compile(r"rank_(\d+)_(\w+)")
_UNIT_IN_NAME = re.compile(r"^num_|_(?:share|bytes|seconds)$")


def recorded(written: Recorded, field: str, folio: Folio) -> list[Shown]:
    """What a run recorded as `stages` or as `prediction`, each row with a title and a note."""
    run = folio.run(written.run)
    found = {one.name: one for one in getattr(run, field)} if run else {}
    base = f"{written.run}.{field}"
    return [_row(found.get(one.name), f"{base}['{one.name}']", one, folio) for one in written.rows]


def _row(
    found: Stage | PredictionStep | None, base: str, written: RecordedRow, folio: Folio
) -> Shown:
    words = folio.ui["table"]
    rank = ""
    if found is not None:
        rank = (
            words["every_rank"] if found.rank is None else f"{words['on_rank']} rank {found.rank}"
        )
    return Shown(
        title=folio.line(written.title),
        note=folio.line(written.note),
        operation=found.operation if found else "",
        shape_in=_shape(found.shape_in if found else [], f"{base}.shape_in", folio),
        shape_out=_shape(found.shape_out if found else [], f"{base}.shape_out", folio),
        num_bytes=folio.cell(f"{base}.bytes") if isinstance(found, Stage) else None,
        rank=rank,
        values=_values(found, base, folio),
        facts=_facts(found, base, folio),
        by_rank=_by_rank(found, base, folio),
    )


def _shape(shape: list[int], expression: str, folio: Folio) -> Markup:
    return folio.cell(f"{expression} | shape") if shape else Markup("–")


def _values(found: Stage | PredictionStep | None, base: str, folio: Folio) -> Markup:
    if found is None or not found.values:
        return Markup("")
    shown = [
        folio.cell(f"{base}.values[{position}] | digits(3)")
        for position in range(min(NUM_VALUES, len(found.values)))
    ]
    more = Markup(", …") if len(found.values) > NUM_VALUES else Markup("")
    return Markup("[{}{}]").format(Markup(", ").join(shown), more)


def _facts(
    found: Stage | PredictionStep | None, base: str, folio: Folio
) -> list[tuple[str, Markup]]:
    if not isinstance(found, PredictionStep):
        return []
    rows = []
    for name, fact in sorted(found.facts.items()):
        if _OF_RANK.fullmatch(name):
            continue
        rows.append((_label(name, folio), _fact(f"{base}.facts.{name}", fact, folio)))
    return rows


def _label(name: str, folio: Folio) -> str:
    """A fact's name in words: those of `ui.yml`, or its own."""
    own = _UNIT_IN_NAME.sub("", name).replace("_", " ").capitalize()
    return str(folio.ui["table"]["facts"].get(name, own))


def _by_rank(found: Stage | PredictionStep | None, base: str, folio: Folio) -> ByRank:
    """Facts named `rank_0_before`: what each rank had, before and after."""
    facts = found.facts if isinstance(found, PredictionStep) else {}
    named = {name: match for name in facts if (match := _OF_RANK.fullmatch(name))}
    columns = sorted({match[2] for match in named.values()}, key=_before_after)
    rows = [
        (
            f"rank {rank}",
            [
                _fact(
                    f"{base}.facts.rank_{rank}_{column}", facts.get(f"rank_{rank}_{column}"), folio
                )
                for column in columns
            ],
        )
        for rank in sorted({int(match[1]) for match in named.values()})
    ]
    return [_label(column, folio) for column in columns], rows


def _before_after(column: str) -> tuple[int, str]:
    return (0 if column.startswith("before") else 1 if column.startswith("after") else 2, column)


def _fact(expression: str, fact: object, folio: Folio) -> Markup:
    if fact is None:
        return Markup("–")
    if isinstance(fact, list):
        parts = [_fact(f"{expression}[{i}]", one, folio) for i, one in enumerate(fact)]
        return Markup(", ").join(parts)
    if isinstance(fact, str):
        return Markup("<code>{}</code>").format(fact)
    if isinstance(fact, float):
        return folio.cell(f"{expression} | digits(4)")
    return folio.cell(expression)

"""The figure that tells the story: what each rank needs, against what each rank was allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from generator.content.exhibit import Figure
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.value import Value, numeric
from generator.figures.drawings import memory_bars as drawing
from generator.figures.drawings.memory_bars import Bar, Tone
from generator.figures.picture import Picture, Table, on_both, source_of
from runners.traces.records import RankRecord, Run


@dataclass(frozen=True)
class _Row:
    name: str  # the run, told apart from every other of the figure, and the rank
    group: str
    label: str  # beside the bar: the first of a group names the strategy, the others their rank
    peak: Value
    budget: Value | None
    tone: Tone
    outcome: str


def memory_bars(figure: Figure, folio: Folio) -> Picture:
    """Peak of every rank of the runs, and what happened to it under the budget."""
    budgeted = [*figure.budgeted, *[None] * len(figure.runs)]
    pairs = zip(figure.runs, budgeted, strict=False)
    rows = [row for path, tried in pairs for row in _rows(path, tried, figure, folio)]
    if not rows:
        return Picture(Table([]))
    unit, scale = units.of_axis(units.BYTES, max(numeric(row.peak) for row in rows), 10)
    table, words = _table(rows, folio), folio.ui["figure"]
    bars = [
        Bar(
            group=row.group,
            label=row.label,
            size=round(numeric(row.peak) / scale, 3),
            words=_together(str(row.peak), row.outcome),
            tone=row.tone,
            limit=round(numeric(row.budget) / scale, 3) if row.budget else None,
            say=f"{row.name}: "
            + _together(
                str(row.peak), row.outcome, f"{words['budget']} {row.budget}" if row.budget else ""
            ),
            opens=source_of(cells[1]),
        )
        for row, cells in zip(rows, table.rows, strict=True)
    ]
    budgets = dict.fromkeys(str(row.budget) for row in rows if row.budget)
    limit = f"{words['budget']} {', '.join(budgets)}"
    description = "; ".join(f"{bar.group}, {bar.label}: {bar.words}" for bar in bars)
    if budgets:
        description += f". {limit} {words['per_rank']}."
    draw = partial(drawing.memory_bars, bars, f"{unit} {words['per_rank']}", limit)
    return Picture(table, on_both(draw, figure, folio, description))


def _together(*parts: str) -> str:
    return " · ".join(filter(None, parts))


def _rows(path: str, budgeted: str | None, figure: Figure, folio: Folio) -> list[_Row]:
    run = folio.run(path)
    if run is None:
        return []
    tried = folio.run(budgeted) if budgeted else None
    budget = folio.value(f"{budgeted}.budget_bytes") if budgeted else None
    group = _name(path, run, figure, folio)
    rows: list[_Row] = []
    for position, record in enumerate(run.ranks):
        peak = folio.value(f"{path}.ranks[{position}].memory.peak_bytes")
        if peak is not None:
            rank = f"{folio.ui['figure']['rank']} {record.rank}" if len(run.ranks) > 1 else ""
            name = _together(group, rank)
            outcome = _outcome(tried, position, folio)
            rows.append(_Row(name, group, rank if rows else name, peak, budget, *outcome))
    return rows


def _name(path: str, run: Run, figure: Figure, folio: Folio) -> str:
    """The strategy; where another run of the figure shares it, with what tells the two apart."""
    name = folio.strategy(run)
    others = [other for p in figure.runs if p != path and (other := folio.run(p))]
    alike = [one.world_size for one in others if folio.strategy(one) == name]
    if run.world_size in alike:
        return f"{name}, {path.partition('.')[2].replace('_', ' ')}"
    return f"{name}, {run.world_size} {folio.ui['figure']['ranks']}" if alike else name


def _outcome(tried: Run | None, position: int, folio: Folio) -> tuple[Tone, str]:
    words = folio.ui["figure"]
    if tried is None or tried.status == "skipped" or position >= len(tried.ranks):
        return "plain", ""
    record: RankRecord = tried.ranks[position]
    if record.status == "completed" and tried.status == "completed":
        return "completed", words["completes"]
    if record.failure is not None and record.failure.kind == "out_of_memory":
        return "refused", f"{words['refused']} {record.failure.phase.replace('_', ' ')}"
    return "refused", words["stopped"]


def _table(rows: list[_Row], folio: Folio) -> Table:
    words = folio.ui["figure"]
    table = Table([words["run"], words["peak"]])
    has_budget = any(row.budget for row in rows)
    if has_budget:
        table.head += [words["allowed"], words["under_budget"]]
    for row in rows:
        cells: list[Markup | str] = [row.name, folio.show(row.peak)]
        if has_budget:
            cells += [folio.show(row.budget) if row.budget else "", row.outcome]
        table.rows.append(cells)
    return table

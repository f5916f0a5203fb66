"""Published measurements beside what is computed of them: memory, and rates of training steps.

In: planner/plan_published.json and planner/plan_steps.json as traces, and a citation of each
published number. Out: for each of the two a table of scores and one of every row, with the place
that the row was published at; of steps also one of searches for a layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from markupsafe import Markup

from generator.evidence.folio import Folio, breakable
from generator.evidence.value import Value, computed, numeric
from generator.pages.table import Cell, Column, Marked, Row, counted, label, table
from runners.traces.published import (
    KINDS,
    MOST_ERROR,
    PEAKS,
    STEPS,
    published_bytes_of,
    reference_of,
)
from runners.traces.records import Run

*ALLOCATED, RESERVED = KINDS
MEDIAN = "the median of |simulated − published| / published"
AXES = ("data", "tensor", "pipeline", "context")
SHARDING = {
    "none": "DDP", "zero1": "ZeRO-1", "fsdp": "FSDP", "fsdp-keep": "FSDP without resharding",
}  # fmt: skip
LAYOUT = "tensor {}, pipeline {}, microbatch {}"
SEARCH = "{model}, {devices} devices, {batch:,} × {sequence:,} tokens"
CASE = "Configuration, and where it is published"
WITHIN, APART = 0.2, 1.05  # as runners.planning.published_steps scores them
SCORES = {
    "efficiency_share": "Fitted efficiency",
    "num_within": f"Held-out rows within {WITHIN:.0%}",
    "num_held_out": "Held-out rows",
    "num_right": "Pairs in the right order",
    "num_wrong": "Pairs in the wrong order",
    "num_pairs": f"Pairs that differ by {APART - 1:.0%} or more",
}


# --- memory


def published(folio: Folio) -> tuple[Markup, Markup]:
    """The scores of the book's published measurements of memory, and every row of them."""
    folio.unmarked = "simulated"
    peaks = [
        (name, run, kind)
        for name, run in _listed(PEAKS.experiment, "place", folio)
        for kind, _ in published_bytes_of(run)
    ]
    both = " and ".join(ALLOCATED)
    groups = {both: ALLOCATED, RESERVED: [RESERVED]}
    misses = Markup('Off by more than <span class="pb-label">{:g}%</span>').format(MOST_ERROR * 100)
    scores = (
        _score(said, [_off(name, one, one, folio) for name, _, one in peaks if one in kinds], folio)
        for said, kinds in groups.items()
    )
    heads = _columns(["Kind"], ["Median error", "Numbers", misses])
    texts, numbers = [CASE, "Kind"], ["Published", "Simulated", "Error"]
    rows = _peak_rows(peaks, folio)
    return table(heads, scores), table(_columns(texts, numbers), rows, is_found=False)


def _score(said: str, offs: Sequence[Value], folio: Folio) -> Row:
    """How far a kind of number is off."""
    errors = [abs(numeric(off)) for off in offs]
    value = computed(median(errors), offs[0].unit, MEDIAN, ()).shown(way="percent")
    return [
        said,
        folio.show(value, at="plan/published.html"),
        counted(len(errors)),
        counted(sum(error > MOST_ERROR for error in errors)),
    ]


def _off(name: str, kind: str, measure: str, folio: Folio) -> Value:
    """How far a simulation is off what was published."""
    found, cited = folio.value(_simulated(name, measure)), folio.value(_cited(name, kind))
    assert found is not None
    assert cited is not None
    share: Value = (found - cited) / cited
    return share.shown(way="percent")


def _cited(name: str, kind: str | None = None) -> str:
    return f"cited['{reference_of(name, kind)}']"


def _simulated(name: str, measure: str) -> str:
    return f"{PEAKS.experiment}.{name}.ranks[0].measures.{measure}_bytes"


def _peak_rows(peaks: Iterable[tuple[str, Run, str]], folio: Folio) -> Iterator[Row]:
    assert folio.book.plan is not None
    assert folio.book.plan.published is not None
    before = ""
    variants, notes = folio.book.plan.published.variants, folio.book.plan.published.notes
    for name, run, kind in peaks:
        folio.run(f"{PEAKS.experiment}.{name}")
        off = _off(name, kind, kind, folio)
        error = folio.show(off)
        misses = abs(numeric(off)) > MOST_ERROR
        said = label(f"{run.settings['model']}, {_device_mesh(run)}")
        row = str(run.settings["id"])
        if row in variants:
            said += Markup(", {}").format(folio.line(variants[row]))
        note = folio.line(notes[row]) if row in notes else None
        yield [
            (said if name == before else _named(name, said))
            + _source(run.settings["url"], run.settings["repository"], f", {run.settings['case']}")
            + (_noted(name, run, kind, note, folio) if misses else ""),
            kind,
            folio.cell(_cited(name, kind)),
            folio.cell(_simulated(name, kind)),
            Marked(Markup("† {}").format(error), "pb-does-not-hold") if misses else error,
        ]
        before = name


def _noted(name: str, run: Run, kind: str, note: Markup | None, folio: Folio) -> Markup:
    """Why a row misses, in the words of the page or of the trace; and simulated with that term."""
    why = note or label(str(run.settings[f"explained_{kind}"]))
    again = f"with_term_{kind}"
    if f"{again}_bytes" in run.ranks[0].measures:
        off = folio.show(_off(name, kind, again, folio))
        value = folio.cell(_simulated(name, again))
        why += Markup(" Simulated again with this term: {} ({}).").format(value, off)
    return Markup('<br><small class="pb-regime">† {}</small>').format(why)


def _device_mesh(run: Run) -> str:
    """What data parallelism shards, how many ways each axis divides the work, and the device."""
    settings = run.settings
    device = re.split(r" \(| HBM", str(settings["device"]))[0]  # without the name of its host
    mesh = [SHARDING[str(settings["sharding"])], *_axes(settings)]
    return f"{' × '.join(mesh)} on {device}"


def _axes(sizes: dict[str, Any]) -> list[str]:
    """How many ways each axis divides the work."""
    return [f"{axis} {sizes[axis]:,}" for axis in AXES if sizes.get(axis, 1) > 1]


# --- steps


def scores(folio: Folio) -> Markup:
    """For each device its efficiency, and how far this explains the rows that were held out."""
    rates = _listed(STEPS.experiment, "rate", folio)
    rows = (
        [_named(one, label(one.upper())), *(_step(one, n, folio) for n in SCORES)]
        for one in dict.fromkeys(str(run.settings["device"]) for _, run in rates)
    )
    return table(_columns(["Device"], map(label, SCORES.values())), rows)


def steps(folio: Folio) -> Markup:
    """Every published rate, with the bound and the prediction."""
    numbers = ["Published", "Upper bound", "Predicted", "Error of the time"]
    rows = (_step_row(*one, folio) for one in _listed(STEPS.experiment, "rate", folio))
    return table(_columns([CASE, "Used for"], numbers), rows, is_wide=True)


def _step_row(name: str, run: Run, folio: Folio) -> Row:
    folio.run(f"{STEPS.experiment}.{name}")
    error, off = run.ranks[0].measures["error_share"], _step(name, "error_share", folio)
    misses = isinstance(error, float) and abs(error) > WITHIN
    unit = Markup('&nbsp;<small class="pb-label">{}</small>').format(run.settings["unit"])
    return [
        _case(name, run.settings, folio),
        "test" if run.settings["is_held_out"] else "fit",
        folio.cell(_cited(name)) + unit,
        _step(name, "at_most", folio) + unit,
        _step(name, "predicted", folio) + unit,
        Marked(Markup("† {}").format(off), "pb-does-not-hold") if misses else off,
    ]


def _case(name: str, settings: dict[str, Any], folio: Folio) -> Markup:
    """What ran where, and the table that states it."""
    inner = {axis: settings[axis] for axis in ("tensor", "pipeline")}
    ways = {"data": settings["devices"] // (inner["tensor"] * inner["pipeline"]), **inner}
    shape = f"{settings['micro']} × {settings['sequence']:,} tokens"
    sharding = SHARDING[settings["sharding"]]
    said = ", ".join([settings["model"], shape, sharding, " × ".join(_axes(ways))])
    source = _source(settings["url"], settings["title"])
    return _named(name, label(said)) + source


def choices(folio: Folio) -> Markup:
    """Published searches for a layout: what won, what the law of time prefers, and its cost."""
    texts = ["Search", "Fastest as measured", "First by the law"]
    rows = (_choice(*one, folio) for one in _listed(STEPS.experiment, "won", folio))
    pairs = label(f"Pairs of layouts that differ by {APART - 1:.0%} or more")
    columns = _columns(texts, ["Measured step longer by", pairs])
    return table(columns, rows, is_wide=True)


def _choice(name: str, run: Run, folio: Folio) -> Row:
    settings = dict[str, Any](run.settings)
    folio.run(f"{STEPS.experiment}.{name}")
    won, preferred = (label(LAYOUT.format(*settings[key])) for key in ("won", "preferred"))
    slower = folio.value(f"{STEPS.experiment}.{name}.ranks[0].measures.slower_share")
    assert slower is not None
    said = folio.show(slower.shown(way="percent"))
    about = _named(name, label(SEARCH.format(**settings)))
    pairs = (_step(name, f"num_{key}", folio) for key in ("right", "wrong", "pairs"))
    return [
        about + _source(settings["url"], "the published table"),
        won,
        preferred,
        Marked(said, "pb-does-not-hold" if settings["won"] != settings["preferred"] else ""),
        Markup("{} right, {} wrong, of {}").format(*pairs),
    ]


# --- both


def _listed(experiment: str, setting: str, folio: Folio) -> list[tuple[str, Run]]:
    """The rows of a published list, in its order: the runs that have such a setting."""
    runs = folio.book.traces[experiment].trace.runs.items()
    found = [(name, run) for name, run in runs if setting in run.settings]
    return sorted(found, key=lambda one: int(str(one[1].settings["place"])))


def _columns(texts: Iterable[Cell], numbers: Iterable[Cell]) -> list[Column]:
    return [*(Column(one, False) for one in texts), *map(Column, numbers)]


def _source(url: object, said: object, case: str = "") -> Markup:
    """Where a row was published, below what it is."""
    return Markup(
        '<br><small class="pb-regime">'
        '<a class="pb-cited" href="{}" rel="noreferrer">{}</a>{}</small>'
    ).format(url, said, label(breakable(case)) if case else "")


def _named(run: str, said: Markup) -> Markup:
    """The place of a run, to which its values and the links to it lead."""
    return Markup('<span id="{}">{}</span>').format(run, said)


def _step(run: str, measure: str, folio: Folio) -> Markup:
    return folio.cell(f"{STEPS.experiment}.{run}.ranks[0].measures.{measure}")

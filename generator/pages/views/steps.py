"""Published rates of training steps beside the law of time: a row each, and a score a device.

In: planner/plan_steps.json as a trace, and a citation of each published rate. Out: two tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from generator.evidence.folio import Folio
from generator.pages.table import Column, Marked, Row, table
from runners.traces.published_steps import EXPERIMENT, PublishedStep, published_steps

SCORES = (
    "efficiency_share", "num_within", "num_held_out", "num_right", "num_wrong", "num_pairs",
)  # fmt: skip
WITHIN, APART = 0.2, 1.05  # as runners.planning.published_steps scores them
RATES = {"within": f"{WITHIN:.0%}", "apart": f"{APART - 1:.0%}"}


def scores(folio: Folio) -> Markup:
    """For each device its efficiency, and how far this explains the rows that were held out."""
    folio.text.unmarked = "simulated"  # the page says which values were computed
    words = folio.ui["steps"]
    devices = dict.fromkeys(row.device for row in published_steps())
    rows = (
        [_named(one, one.upper()), *(_cell(one, name, folio) for name in SCORES)] for one in devices
    )
    heads = (
        Markup('<span class="pb-label">{}</span>').format(words[n].format(**RATES)) for n in SCORES
    )
    return table([Column(words["device"], False), *map(Column, heads)], rows)


def rows(folio: Folio) -> Markup:
    """Every published rate, with the bound and the prediction."""
    words, published = folio.ui["steps"], folio.ui["published"]
    columns = [
        Column(published["case"], False), Column(words["half"], False),
        Column(published["published"]), Column(words["at_most"]), Column(words["predicted"]),
        Column(words["error"]),
    ]  # fmt: skip
    return table(columns, _rows(folio))


def _rows(folio: Folio) -> Iterator[Row]:
    words, seen = folio.ui["steps"], dict[str, int]()
    for row in published_steps():
        seen[row.device] = seen.get(row.device, 0) + 1
        folio.run(f"{EXPERIMENT}.{row.run}")
        error = folio.value(f"{EXPERIMENT}.{row.run}.ranks[0].measures.error_share")
        misses = error is not None and abs(float(error.number)) > WITHIN
        yield [
            _case(row, folio),
            words["fitted" if seen[row.device] % 2 else "held_out"],
            Markup('{} <small class="pb-label">{}</small>').format(
                folio.cell(f"cited['{row.reference}']"), row.unit
            ),
            _cell(row.run, "at_most", folio),
            _cell(row.run, "predicted", folio),
            Marked(_cell(row.run, "error_share", folio), "pb-does-not-hold" if misses else ""),
        ]


def _case(row: PublishedStep, folio: Folio) -> Markup:
    """What ran where, and the table that states it."""
    words, tokens = folio.ui["published"], folio.ui["steps"]["tokens"]
    axes = [words["axes"]["data"], words["axes"]["tensor"], words["axes"]["pipeline"]]
    ways = (row.devices // (row.tensor * row.pipeline), row.tensor, row.pipeline)
    mesh = " × ".join(f"{axis} {num}" for axis, num in zip(axes, ways, strict=True) if num > 1)
    sharding = words["sharding"][row.sharding]
    said = f"{row.model}, {row.micro} × {row.sequence} {tokens}, {sharding}, {mesh}"
    return _named(row.run, said) + Markup(
        '<br><small class="pb-regime"><a class="pb-cited" href="{}" rel="noreferrer">{}</a></small>'
    ).format(row.url, row.title)


def _named(run: str, said: str) -> Markup:
    """The place of a run, to which its values lead."""
    return Markup('<span id="{}" class="pb-label">{}</span>').format(run, said)


def _cell(run: str, measure: str, folio: Folio) -> Markup:
    return folio.cell(f"{EXPERIMENT}.{run}.ranks[0].measures.{measure}")

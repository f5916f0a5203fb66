"""Published steps beside the law of time: a row each, a score a device, and searches for a layout.

In: planner/plan_steps.json as a trace, and a citation of each published rate. Out: three tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from generator.evidence.folio import Folio
from generator.pages.table import Column, Marked, Row, label, table
from generator.pages.views.published import in_order
from runners.traces.published import STEPS, reference_of
from runners.traces.schema import Setting

SCORES = (
    "efficiency_share", "num_within", "num_held_out", "num_right", "num_wrong", "num_pairs",
)  # fmt: skip
WITHIN, APART = 0.2, 1.05  # as runners.planning.published_steps scores them
RATES = {"within": f"{WITHIN:.0%}", "apart": f"{APART - 1:.0%}"}
Rows = list[tuple[str, dict[str, Setting]]]  # the name of each run, and its settings


def _listed(folio: Folio, setting: str) -> Rows:
    """The rows of a list: of rates or of searches, which have such a setting."""
    found = in_order(STEPS.experiment, folio)
    return [(name, run.settings) for name, run in found if setting in run.settings]


def scores(folio: Folio) -> Markup:
    """For each device its efficiency, and how far this explains the rows that were held out."""
    words = folio.ui["steps"]
    devices = dict.fromkeys(str(one["device"]) for _, one in _listed(folio, "rate"))
    rows = (
        [_named(one, one.upper()), *(_cell(one, name, folio) for name in SCORES)] for one in devices
    )
    return table([Column(words["device"], False), *(Column(_head(n, folio)) for n in SCORES)], rows)


def _head(word: str, folio: Folio) -> Markup:
    return label(folio.ui["steps"][word].format(**RATES))


def rows(folio: Folio) -> Markup:
    """Every published rate, with the bound and the prediction."""
    words, published = folio.ui["steps"], folio.ui["published"]
    columns = [
        Column(published["case"], False), Column(words["half"], False),
        Column(published["published"]), Column(words["at_most"]), Column(words["predicted"]),
        Column(words["error"]),
    ]  # fmt: skip
    return table(columns, _rows(folio), is_wide=True)


def _rows(folio: Folio) -> Iterator[Row]:
    words = folio.ui["steps"]
    for run, settings in _listed(folio, "rate"):
        folio.run(f"{STEPS.experiment}.{run}")
        error = folio.value(f"{STEPS.experiment}.{run}.ranks[0].measures.error_share")
        off = _cell(run, "error_share", folio)
        misses = error is not None and abs(float(error.number)) > WITHIN
        yield [
            _case(run, settings, folio),
            words["held_out" if settings["is_held_out"] else "fitted"],
            *(
                Markup('{}&nbsp;<small class="pb-label">{}</small>').format(one, settings["unit"])
                for one in (
                    folio.cell(f"cited['{reference_of(run)}']"),
                    _cell(run, "at_most", folio),
                    _cell(run, "predicted", folio),
                )
            ),
            Marked(Markup("† {}").format(off), "pb-does-not-hold") if misses else off,
        ]


def _case(run: str, settings: dict[str, Any], folio: Folio) -> Markup:
    """What ran where, and the table that states it."""
    words, tokens = folio.ui["published"], folio.ui["steps"]["tokens"]
    inner = {axis: settings[axis] for axis in ("tensor", "pipeline")}
    ways = {"data": settings["devices"] // (inner["tensor"] * inner["pipeline"]), **inner}
    mesh = [f"{words['axes'][axis]} {num:,}" for axis, num in ways.items() if num > 1]
    sharding = words["sharding"][settings["sharding"]]
    shape = f"{settings['micro']} × {settings['sequence']:,} {tokens}"
    parts = map(_whole, (settings["model"], shape, sharding))
    said = Markup(", ").join([*parts, Markup(" × ").join(map(_whole, mesh))])
    return _named(run, said) + _source(settings["url"], settings["title"])


def _whole(part: str) -> Markup:
    """A part of a description, in which no line ends."""
    return Markup('<span class="pb-keep">{}</span>').format(part)


def choices(folio: Folio) -> Markup:
    """Published searches for a layout: what won, what the law of time prefers, and its cost."""
    words = folio.ui["steps"]["choice"]
    texts = [Column(words[key], False) for key in ("case", "won", "preferred")]
    rows = (_choice(*one, folio) for one in _listed(folio, "won"))
    columns = [*texts, Column(words["slower"]), Column(_head("pairs", folio))]
    return table(columns, rows, is_wide=True)


def _choice(run: str, settings: dict[str, Any], folio: Folio) -> Row:
    words = folio.ui["steps"]["choice"]
    folio.run(f"{STEPS.experiment}.{run}")
    won, preferred = (label(words["layout"].format(*settings[key])) for key in ("won", "preferred"))
    slower = folio.value(f"{STEPS.experiment}.{run}.ranks[0].measures.slower_share")
    assert slower is not None
    said = folio.show(slower.shown(way="percent"))
    return [
        _named(run, words["about"].format(**settings)) + _source(settings["url"], words["table"]),
        won,
        preferred,
        Marked(said, "pb-does-not-hold" if settings["won"] != settings["preferred"] else ""),
        Markup("{} {} {} {} {}").format(
            _cell(run, "num_right", folio),
            words["right"],
            _cell(run, "num_wrong", folio),
            words["wrong"],
            _cell(run, "num_pairs", folio),
        ),
    ]


def _source(url: str, said: str) -> Markup:
    """Where a row was published, below what it is."""
    return Markup(
        '<br><small class="pb-regime"><a class="pb-cited" href="{}" rel="noreferrer">{}</a></small>'
    ).format(url, said)


def _named(run: str, said: Markup | str) -> Markup:
    """The place of a run, to which its values lead."""
    return Markup('<span id="{}" class="pb-label">{}</span>').format(run, said)


def _cell(run: str, measure: str, folio: Folio) -> Markup:
    return folio.cell(f"{STEPS.experiment}.{run}.ranks[0].measures.{measure}")

"""Published measurements beside what is computed of them: memory, and rates of training steps.

In: planner/plan_published.json, plan_steps.json and plan_layouts.json as traces, and a citation of
each published number. Out: the rows of tables of scores and of every number, with the place that it
was published at, and of searches for a layout; and the figure of what the estimate prefers there.
"""

import re
from collections.abc import Iterator
from statistics import median
from typing import Any

from markupsafe import Markup

from generator.content.plan_page import PeaksPage
from generator.figures.drawings.plot import MARKS, Axis, Series, plot
from generator.figures.picture import Seen, both
from generator.pages.view import Row, counted, label
from generator.printing.folio import Folio, breakable
from generator.values.value import Value, computed, numeric
from runners.planner.answers.published import (
    KINDS,
    LAYOUTS,
    MOST_ERROR,
    PEAKS,
    STEPS,
    published_bytes_of,
    reference_of,
)
from runners.planner.answers.published_steps import WITHIN
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
REGRETS = {
    LAYOUTS.experiment: "H100, fitted to other clusters",
    STEPS.experiment: "A100, not fitted",
}
MOST_SLOWER = 30  # per cent, where the axis of the figure ends
FITTED = "replicas {}, pipeline {}, tensor {}, {}, microbatch {}"
SCORES = {
    "#Rows": "num_rows",
    "#Not below the bound": "num_possible",
    "#Estimate next to measured step, median": "estimate_ratio",
    "#" + label(f"Within {WITHIN:.0%} of that"): "num_within",
}


# --- memory


def peaks(folio: Folio) -> list[tuple[str, Run, str]]:
    """The book's published measurements of memory: the name of a run, the run, and the kind."""
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    return [
        (name, run, kind)
        for name, run in _listed(PEAKS.experiment, "place", folio)
        for kind, _ in published_bytes_of(run)
    ]


def peak_scores(folio: Folio) -> Iterator[Row]:
    """How far each kind of number is off; reserved ones are scored apart."""
    for said, kinds in {" and ".join(ALLOCATED): ALLOCATED, RESERVED: [RESERVED]}.items():
        offs = [_off(name, one, one, folio) for name, _, one in peaks(folio) if one in kinds]
        errors = [abs(numeric(off)) for off in offs]
        value = computed(median(errors), offs[0].unit, MEDIAN, ()).formatted(way="percent")
        yield [
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
    return share.formatted(way="percent")


def _cited(name: str, kind: str | None = None) -> str:
    return f"cited['{reference_of(name, kind)}']"


def _simulated(name: str, measure: str) -> str:
    return f"{PEAKS.experiment}.{name}.ranks[0].measures.{measure}_bytes"


def peak_rows(page: PeaksPage, folio: Folio) -> Iterator[Row]:
    """Every published peak beside its simulation; a term that explains a miss stands below."""
    before = ""
    for name, run, kind in peaks(folio):
        folio.run(f"{PEAKS.experiment}.{name}")
        settings = run.settings
        off = _off(name, kind, kind, folio)
        misses = abs(numeric(off)) > MOST_ERROR
        said = label(f"{settings['model']}, {_device_mesh(run)}")
        row = str(settings["id"])
        if row in page.variants:
            said += Markup(", {}").format(folio.line(page.variants[row]))
        yield [
            (said if name == before else _named(name, said))
            + _source(settings["url"], settings["repository"], f", {settings['case']}")
            + (_noted(name, run, kind, page.notes.get(row), folio) if misses else ""),
            kind,
            folio.cell(_cited(name, kind)),
            folio.cell(_simulated(name, kind)),
            _marked(folio.show(off), is_off=misses),
        ]
        before = name


def _noted(name: str, run: Run, kind: str, note: str | None, folio: Folio) -> Markup:
    """Why a row misses, in the words of the page or of the trace; and simulated with that term."""
    said = re.sub(r" \(.*?\)", "", str(run.settings[f"explained_{kind}"]))  # without its files
    why = folio.line(note) if note else label(said)
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


def step_scores(folio: Folio) -> Iterator[Row]:
    """For each device how the estimate compares, which was fitted to none of these rows."""
    rates = _listed(STEPS.experiment, "rate", folio)
    for one in dict.fromkeys(str(run.settings["device"]) for _, run in rates):
        yield [
            _named(one, label(one.upper())),
            *(_step(one, part, folio) for part in SCORES.values()),
        ]


def step_rows(folio: Folio) -> Iterator[Row]:
    """Every published rate, with the bound and the estimate."""
    for name, run in _listed(STEPS.experiment, "rate", folio):
        error = run.ranks[0].measures["error_share"]
        unit = Markup('&nbsp;<small class="pb-label">{}</small>').format(run.settings["unit"])
        usual = folio.book.traces[STEPS.experiment].trace.runs[str(run.settings["device"])]
        ratio = float(str(usual.ranks[0].measures["estimate_ratio"]))
        misses = abs((1 + float(str(error))) / ratio - 1) > WITHIN
        yield [
            _case(name, run.settings, folio),
            folio.cell(_cited(name)) + unit,
            _step(name, "at_most", folio) + unit,
            _step(name, "estimated", folio) + unit,
            _marked(_step(name, "error_share", folio), is_off=misses),
        ]


def _case(name: str, settings: dict[str, Any], folio: Folio) -> Markup:
    """What ran where, and the table that states it."""
    folio.run(f"{STEPS.experiment}.{name}")
    inner = {axis: settings[axis] for axis in ("tensor", "pipeline")}
    ways = {"data": settings["devices"] // (inner["tensor"] * inner["pipeline"]), **inner}
    shape = f"{settings['micro']} × {settings['sequence']:,} tokens"
    sharding = SHARDING[settings["sharding"]]
    said = ", ".join([settings["model"], shape, sharding, " × ".join(_axes(ways))])
    return _named(name, label(said)) + _source(settings["url"], settings["title"])


def choices(folio: Folio) -> Iterator[Row]:
    """Published searches for a layout: what won, what the estimate prefers, and its cost."""
    for name, run in _listed(STEPS.experiment, "won", folio):
        settings = dict[str, Any](run.settings)
        folio.run(f"{STEPS.experiment}.{name}")
        about = _named(name, label(SEARCH.format(**settings)))
        yield [
            about + _source(settings["url"], "the published table"),
            *(label(LAYOUT.format(*settings[key])) for key in ("won", "preferred")),
            _slower(f"{STEPS.experiment}.{name}", run, folio),
        ]


def clusters(folio: Folio) -> Iterator[Row]:
    """Each cluster that the estimate was fitted to: what ran fastest, what it prefers, its cost."""
    for name, run in _listed(LAYOUTS.experiment, "won", folio):
        path = f"{LAYOUTS.experiment}.{name}"
        folio.run(path)
        ran, failed = (
            folio.cell(f"{path}.ranks[0].measures.num_{of}") for of in ("layouts", "failed")
        )
        yield [
            _named(name, label(f"{run.settings['model']}, {run.settings['devices']} H100")),
            ran,
            failed,
            *(label(_fitted(run.settings[key])) for key in ("won", "preferred")),
            _slower(path, run, folio),
        ]


def _fitted(layout: object) -> str:
    assert isinstance(layout, list)
    data, stages, tensor, shards, microbatch = layout
    return FITTED.format(data, stages, tensor, "ZeRO-1" if shards else "DDP", microbatch)


def memories(folio: Folio) -> Iterator[Row]:
    """For each of their models how far memory by closed forms is off, and what that would say."""
    parts = (
        "median_error_share | percent",
        "num_ran",
        "num_ran_over",
        "num_failed",
        "num_failed_within",
    )
    runs = folio.book.traces[LAYOUTS.experiment].trace.runs
    for name, run in runs.items():
        if "memory_of" in run.settings:
            path = f"{LAYOUTS.experiment}.{name}.ranks[0].measures"
            said = _named(name, label(str(run.settings["memory_of"])))
            yield [said, *(folio.cell(f"{path}.{part}") for part in parts)]


def regret(name: str, title: str, folio: Folio) -> Markup:
    """How much longer the step of the preferred layout is than the fastest: a point a cluster."""
    said, found = [], []
    for (experiment, who), mark in zip(REGRETS.items(), MARKS, strict=False):
        points = []
        for _, run in _listed(experiment, "won", folio):
            share, num = run.ranks[0].measures["slower_share"], run.settings["devices"]
            assert isinstance(share, float | int)
            assert isinstance(num, int)
            says = f"{run.settings['model']}, {num:,} devices: {share:.0%} slower"
            points.append((float(num), min(100 * share, MOST_SLOWER), says))
            said.append(says)
        found.append(Series(who, points, mark=mark))
    devices = Axis("devices", [8, 16, 32, 64, 128, 256, 512], is_logarithmic=True)
    slower = Axis("% slower than the fastest", [0, 10, 20, MOST_SLOWER])
    return Seen(both(plot, found, devices, slower, 150), "; ".join(said)).svg(name, title)


def _slower(path: str, run: Run, folio: Folio) -> Markup:
    differs = run.settings["won"] != run.settings["preferred"]
    return _marked(folio.cell(f"{path}.ranks[0].measures.slower_share | percent"), is_off=differs)


# --- both


def _listed(experiment: str, setting: str, folio: Folio) -> list[tuple[str, Run]]:
    """The rows of a published list, in its order: the runs that have such a setting."""
    runs = folio.book.traces[experiment].trace.runs.items()
    found = [(name, run) for name, run in runs if setting in run.settings]
    return sorted(found, key=lambda one: int(str(one[1].settings["place"])))


def _source(url: object, said: object, case: str = "") -> Markup:
    """Where a row was published, below what it is."""
    return Markup(
        '<br><small class="pb-regime">'
        '<a class="pb-cited" href="{}" rel="noreferrer">{}</a>{}</small>'
    ).format(url, said, label(breakable(case)) if case else "")


def _named(run: str, said: Markup) -> Markup:
    """The place of a run, to which its values and the links to it lead."""
    return Markup('<span id="{}">{}</span>').format(run, said)


def _marked(error: Markup, *, is_off: bool) -> Markup:
    """An error, which stands out beyond the tolerance of its table."""
    return Markup('<span class="pb-does-not-hold">† {}</span>').format(error) if is_off else error


def _step(run: str, measure: str, folio: Folio) -> Markup:
    return folio.cell(f"{STEPS.experiment}.{run}.ranks[0].measures.{measure}")

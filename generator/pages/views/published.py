"""Published measurements beside what is computed of them: memory, and layouts of many clusters.

In: planner/plan_published.json and plan_order.json as traces, and a citation of each published
peak. Out: the rows of tables of scores and of every peak, with the place that it was published at,
and of clusters, with their fastest layout and the one that the rule tries first.
"""

import re
from collections.abc import Iterator, Mapping
from statistics import median

from markupsafe import Markup

from generator.content.plan_page import PeaksPage
from generator.pages.draft import Draft
from generator.pages.elements.element import Aside, Element, Fold
from generator.pages.elements.tables import Row, Table
from generator.pages.environment import counted, label
from generator.printing.folio import Folio, breakable
from generator.values.value import Value, computed, numeric
from runners.core.trace.records import Run
from runners.planner.answers.published import (
    KINDS,
    MOST_ERROR,
    ORDER,
    PEAKS,
    published_bytes_of,
    reference_of,
)
from runners.planner.answers.published_order import NEAR

*ALLOCATED, RESERVED = KINDS
MEDIAN = "the median of |simulated − published| / published"
AXES = ("data", "tensor", "pipeline", "context", "expert")
SHARDING = {
    "none": "DDP", "zero1": "ZeRO-1", "fsdp": "FSDP", "fsdp-keep": "FSDP without resharding",
}  # fmt: skip
CASE = "Configuration, and where it is published"
CLUSTERS = "Model and cluster", "Fastest, and the rule's", "#Slower by", "#Best of its first ones"


# --- memory


def published(draft: Draft) -> Iterator[Element | Markup]:
    """Published peaks beside simulated ones."""
    assert draft.folio.book.plan
    page = draft.folio.book.plan.published
    assert page
    yield draft.lede(page.lede)
    misses = "#Off by more than " + label(f"{100 * MOST_ERROR:g}%")
    scores = [*_peak_scores(draft.folio)]
    yield Table(["Kind", "#Median error", "#Measurements", misses], scores)
    yield draft.heading(2, "Every published number")
    titles = [CASE, "Kind", "#Published", "#Simulated", "#Error"]
    rows = [*peak_rows(page, draft.folio)]
    yield Fold(Markup("The numbers, a row each"), [Table(titles, rows, is_found=False)])
    if page.compiled:
        yield from draft.passage("Compiled runs, apart", page.compiled)
    yield from draft.passage("What was compared, and how", page.selection)
    yield Aside(Markup(
        "To repeat these simulations: "
        "<code>.venv/bin/python -m runners plan check plan_published</code>"
    ))  # fmt: skip


def _peaks(folio: Folio) -> list[tuple[str, Run, str]]:
    """Triples of name, run and kind, for each published peak; sets `unmarked` to simulated."""
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    return [
        (name, run, kind)
        for name, run in _listed(PEAKS.experiment, "place", folio)
        for kind, _ in published_bytes_of(run)
    ]


def _peak_scores(folio: Folio) -> Iterator[Row]:
    """Yield two rows, for allocated and reserved peaks: median relative error, number, misses."""
    for name, kinds in {" and ".join(ALLOCATED): ALLOCATED, RESERVED: [RESERVED]}.items():
        listed = [(name, kind) for name, _, kind in _peaks(folio) if kind in kinds]
        offs = [_compared(name, kind, kind, folio)[-1] for name, kind in listed]
        errors = [abs(numeric(off)) for off in offs]
        value = computed(median(errors), offs[0].unit, MEDIAN, ()).formatted(way="percent")
        yield [
            name,
            folio.show(value, at="plan/published.html"),
            counted(len(errors)),
            counted(sum(error > MOST_ERROR for error in errors)),
        ]


def _compared(name: str, kind: str, measure: str, folio: Folio) -> tuple[Value, Value, Value]:
    """The published peak, the simulated one, and how far that is off."""
    path, cited = f"{PEAKS.experiment}.{name}", folio.reading("cited", reference_of(name, kind))
    simulated = folio.reading(path, "ranks", 0, "measures", f"{measure}_bytes")
    assert cited is not None
    assert simulated is not None
    return cited, simulated, ((simulated - cited) / cited).formatted(way="percent")


def peak_rows(page: PeaksPage, folio: Folio) -> Iterator[Row]:
    """Yield a row for each published peak beside its simulation; below a miss, what explains it."""
    before = ""
    for name, run, kind in _peaks(folio):
        folio.run(f"{PEAKS.experiment}.{name}")
        settings = run.settings
        cited, simulated, off = _compared(name, kind, kind, folio)
        misses = abs(numeric(off)) > MOST_ERROR
        device = re.split(r" \(| HBM", str(settings["device"]))[0]  # without the name of its host
        mesh = f"{_mesh(settings['sharding'], settings)} on {device}"
        text = label("{model}, {}, {microbatch} × {sequence:,} tokens".format(mesh, **settings))
        row = str(settings["id"])
        if row in page.variants:
            text += Markup(", {}").format(folio.line(page.variants[row]))
        yield [
            (text if name == before else _named(name, text))
            + _source(settings["url"], settings["repository"], f", {settings['case']}")
            + (_noted(name, run, kind, page.notes.get(row), folio) if misses else ""),
            kind,
            folio.show(cited),
            folio.show(simulated),
            _marked(folio.show(off), is_off=misses),
        ]
        before = name


def _noted(name: str, run: Run, kind: str, note: str | None, folio: Folio) -> Markup:
    """Why a row misses, in the words of the page or of the trace; and simulated with that term."""
    own = re.sub(r" \(.*?\)", "", str(run.settings[f"explained_{kind}"]))  # without its files
    why = folio.line(note) if note else label(own)
    again = f"with_term_{kind}"
    if f"{again}_bytes" in run.ranks[0].measures:
        _, simulated, off = _compared(name, kind, again, folio)
        error = folio.show(off)
        simulated_again = folio.show(simulated)
        why += Markup(" Simulated again with this term: {} ({}).").format(simulated_again, error)
    return Markup('<br><small class="pb-regime">† {}</small>').format(why)


def _mesh(sharding: object, sizes: Mapping[str, object]) -> str:
    """What data parallelism shards, and how many ways each axis divides the work."""
    ways = {axis: int(str(sizes.get(axis, 1))) for axis in AXES}
    mesh = [SHARDING[str(sharding)], *(f"{axis} {n:,}" for axis, n in ways.items() if n > 1)]
    return " × ".join(mesh)


# --- layouts


def clusters(folio: Folio) -> Iterator[Row]:
    """Yield a row for each published cluster: the fastest layout, the rule's, its slowdown."""
    for name, run in _listed(ORDER.experiment, "won", folio):
        path, settings = f"{ORDER.experiment}.{name}", run.settings
        folio.run(path)
        about = "{model}, {devices} {device}, {global_batch:,} × {sequence:,} tokens"
        both = [label(_layout(settings[of], settings[f"{of}_sharding"])) for of in ("won", "first")]
        yield [
            _named(name, label(about.format(**settings)))
            + _source(settings["url"], str(settings["title"]).partition(",")[0]),
            Markup("<br>").join(dict.fromkeys(both)),
            *(
                _slower(path, measure, folio)
                for measure in ("slower_share", "slower_share_of_three")
            ),
        ]


def _slower(path: str, measure: str, folio: Folio) -> Markup:
    share = folio.reading(path, "ranks", 0, "measures", measure)
    assert share is not None
    error = folio.show(share.formatted(way="percent", digits=2))
    return _marked(error, is_off=numeric(share) > NEAR)


def _layout(sizes: object, sharding: object) -> str:
    assert isinstance(sizes, list)
    data, stages, tensor, microbatch = sizes
    mesh = _mesh(sharding, {"data": data, "tensor": tensor, "pipeline": stages})
    return f"{mesh}, microbatch {microbatch}"


# --- both


def _listed(experiment: str, setting: str, folio: Folio) -> list[tuple[str, Run]]:
    """The rows of a published list, in its order: the runs that have such a setting."""
    runs = folio.book.traces[experiment].trace.runs.items()
    listed = [(name, run) for name, run in runs if setting in run.settings]
    return sorted(listed, key=lambda pair: int(str(pair[1].settings["place"])))


def _source(url: object, source: object, case: str = "") -> Markup:
    """Where a row was published, below what it is."""
    return Markup(
        '<br><small class="pb-regime">'
        '<a class="pb-cited" href="{}" rel="noreferrer">{}</a>{}</small>'
    ).format(url, source, label(breakable(case)) if case else "")


def _named(run: str, text: Markup) -> Markup:
    """The place of a run, to which its values and the links to it lead."""
    return Markup('<span id="{}">{}</span>').format(run, text)


def _marked(error: Markup, *, is_off: bool) -> Markup:
    """An error, which stands out beyond the tolerance of its table."""
    return Markup('<span class="pb-does-not-hold">† {}</span>').format(error) if is_off else error

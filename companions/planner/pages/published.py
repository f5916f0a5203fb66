"""Published numbers beside what is computed of them: memory, and layouts of many clusters.

In: planner/plan_published.json and plan_order.json as traces, and a citation of each published
peak. Out: tables of these peaks and their scores, and of clusters.
"""

import re
from collections.abc import Iterator
from itertools import product
from statistics import median

from markupsafe import Markup

from proofbook.companions.planner.answers import published as answers
from proofbook.companions.planner.answers.published import KINDS, MOST_ERROR, ORDER, PEAKS
from proofbook.companions.planner.answers.published_order import NEAR
from proofbook.companions.planner.words import PeaksPage, PlanFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Element, Fold, worded
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import counted, label
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.value import Value, computed, numeric
from proofbook.runners.core.trace.records import Run

*ALLOCATED, RESERVED = KINDS
MEDIAN = "the median of |simulated − published| / published"
CASE = "Configuration, and where it is published"
CLUSTERS = "Model and cluster", "Fastest, and the rule's", "#Slower by"


# --- memory


def published(draft: Draft) -> Iterator[Element | Markup]:
    """Published peaks beside simulated ones."""
    written = draft.folio.book.file(PlanFile)
    assert written is not None
    page = written.published
    assert page
    yield draft.lede(page.lede)
    misses = "#Off by more than " + label(f"{100 * MOST_ERROR:g}%")
    titles = ["Kind", "By", "#Median error", "#Measurements", misses]
    yield Table(titles, [*_peak_scores(draft.folio)])
    yield draft.heading(2, "Every published number")
    titles = [CASE, "Kind", "#Published", "#Simulated", "#Error", "#Error of closed forms"]
    rows = [*peak_rows(page, draft.folio)]
    yield Fold(Markup("The numbers, a row each"), [Table(titles, rows, is_found=False)])
    if page.compiled:
        yield from draft.passage("Compiled runs, apart", page.compiled)
    yield from draft.passage("What was compared, and how", page.selection)
    yield from draft.passage("Margin", page.margin)
    yield Aside(Markup(
        "To repeat these simulations: "
        "<code>.venv/bin/python -m runners plan check plan_published</code>"
    ))  # fmt: skip


def _peaks(folio: Folio) -> Iterator[tuple[str, Run, str]]:
    """Yield name, run and kind for each published peak; sets `unmarked` to simulated."""
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    for name, run in _listed(PEAKS.experiment, "place", folio):
        yield from ((name, run, kind) for kind, _ in answers.published_bytes_of(run))


def _peak_scores(folio: Folio) -> Iterator[Row]:
    """Yield two rows for each kind of peaks: median relative error, number, misses."""
    ways = {"simulation": "", "closed forms": "formed_"}
    for kinds, (way, prefix) in product((ALLOCATED, [RESERVED]), ways.items()):
        peaks = [(name, kind) for name, _, kind in _peaks(folio) if kind in kinds]
        offs = [_compared(name, kind, prefix + kind, folio)[-1] for name, kind in peaks]
        errors = [abs(numeric(off)) for off in offs]
        value = computed(median(errors), offs[0].unit, MEDIAN, ()).formatted(way="percent")
        num_misses = counted(sum(error > MOST_ERROR for error in errors))
        error = folio.show(value, at="plan/published.html")
        yield [" and ".join(kinds), way, error, counted(len(errors)), num_misses]


def _compared(name: str, kind: str, measure: str, folio: Folio) -> tuple[Value, Value, Value]:
    """The published peak, the simulated one, and how far that is off."""
    path = f"{PEAKS.experiment}.{name}"
    cited = folio.reading("cited", answers.reference_of(name, kind))
    simulated = folio.reading(path, "ranks", 0, "measures", f"{measure}_bytes")
    assert cited is not None
    assert simulated is not None
    return cited, simulated, ((simulated - cited) / cited).formatted(way="percent")


def peak_rows(page: PeaksPage, folio: Folio) -> Iterator[Row]:
    """Yield a row for each published peak beside its simulation; below a miss, what explains it."""
    before = ""
    for name, run, kind in _peaks(folio):
        folio.run(f"{PEAKS.experiment}.{name}")
        row, values = str(run.settings["id"]), _compared(name, kind, kind, folio)
        misses = abs(numeric(values[-1])) > MOST_ERROR
        case = worded(
            "PublishedCase", run=run,
            name=name if name != before else "",  # to which values and links lead
            variant=folio.line(page.variants.get(row, "")),
            why=_why(name, run, kind, page.notes.get(row), folio) if misses else "",
        )  # fmt: skip
        both = map(folio.show, values[:2])
        formed = folio.show(_compared(name, kind, f"formed_{kind}", folio)[-1])
        yield [case, kind, *both, _marked(values[-1], misses, folio), formed]
        before = name


def _why(name: str, run: Run, kind: str, note: str | None, folio: Folio) -> Markup:
    """Why a row misses, in the words of the page or of the trace; and simulated with that term."""
    own = re.sub(r" \(.*?\)", "", str(run.settings[f"explained_{kind}"]))  # without its files
    why, again = folio.line(note) if note else label(own), f"with_term_{kind}"
    if f"{again}_bytes" in run.ranks[0].measures:
        off, simulated = map(folio.show, _compared(name, kind, again, folio)[:0:-1])
        why += Markup(" Simulated again with this term: {} ({}).").format(simulated, off)
    return why


# --- layouts


def clusters(folio: Folio) -> Iterator[Row]:
    """Yield a row for each published cluster: the fastest layout, the rule's, its slowdown."""
    for name, run in _listed(ORDER.experiment, "won", folio):
        path = f"{ORDER.experiment}.{name}"
        folio.run(path)
        share = folio.reading(path, "ranks", 0, "measures", "slower_share")
        assert share is not None
        slower = _marked(share.formatted(way="percent", digits=2), numeric(share) > NEAR, folio)
        case = worded("PublishedCase", run=run, name=name, variant="", why="")
        yield [case, worded("ClusterLayouts", run=run), slower]


# --- both


def _listed(experiment: str, setting: str, folio: Folio) -> list[tuple[str, Run]]:
    """The rows of a published list, in its order: the runs that have such a setting."""
    runs = folio.book.traces[experiment].trace.runs.items()
    listed = [(name, run) for name, run in runs if setting in run.settings]
    return sorted(listed, key=lambda pair: int(str(pair[1].settings["place"])))


def _marked(error: Value, is_off: bool, folio: Folio) -> Markup:
    """An error, which stands out beyond the tolerance of its table."""
    marked = Markup('<span class="pb-does-not-hold">† {}</span>' if is_off else "{}")
    return marked.format(folio.show(error))

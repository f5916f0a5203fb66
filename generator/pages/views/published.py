"""Published measurements of memory beside their simulations: every row, and the median errors.

In: planner/plan_published.json as a trace, and a citation of each published number. Out: rows with
the place that each number was published at, and the medians, allocated and reserved apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from markupsafe import Markup

from generator.evidence.folio import Folio
from generator.evidence.value import Value, computed, numeric
from generator.pages.shown import Shown
from generator.pages.table import Column, Row, counted, label, table
from runners.traces.published import KINDS, MOST_ERROR, PEAKS, published_bytes_of, reference_of
from runners.traces.records import Run

*ALLOCATED, RESERVED = KINDS
TITAN = "pytorch/torchtitan"
SAYS = "the median of |simulated − published| / published"
# How the list of measurements calls a model that has no name of its own: `GPT of 64 M`.
SIZED = re.compile(r"^(\w+) of (\d+) ([MB])$")
AXES = ("data", "tensor", "pipeline", "context")


class Peak(NamedTuple):
    """A published number: its run, its kind, and how far its simulations are off.

    Attributes:
        off: of the first simulation.
        off_again: of the one with the term that explains a miss, where there is one.
    """

    name: str
    run: Run
    kind: str
    off: Value
    off_again: Value | None

    @property
    def misses(self) -> bool:
        """Whether the first simulation is off by more than the limit."""
        return abs(numeric(self.off)) > MOST_ERROR


def published(folio: Folio) -> tuple[Markup, list[Shown]]:
    """The scores of the book's published measurements, and every row of them."""
    folio.text.unmarked = "simulated"
    peaks = list(_peaks(folio))
    return _scores(peaks, folio), list(_rows(peaks, folio))


def in_order(experiment: str, folio: Folio) -> list[tuple[str, Run]]:
    """The rows of a published list among the runs of its trace."""
    runs = folio.book.traces[experiment].trace.runs.items()
    placed = [(name, run) for name, run in runs if "place" in run.settings]
    return sorted(placed, key=lambda one: int(str(one[1].settings["place"])))


def _peaks(folio: Folio) -> Iterator[Peak]:
    for name, run in in_order(PEAKS.experiment, folio):
        for kind, _ in published_bytes_of(run):
            off = _off(name, kind, kind, folio)
            is_again = f"with_term_{kind}_bytes" in run.ranks[0].measures
            again = _off(name, kind, f"with_term_{kind}", folio) if is_again else None
            assert off is not None
            yield Peak(name, run, kind, off, again)


def _scores(peaks: Sequence[Peak], folio: Folio) -> Markup:
    """How far each kind of number is off."""
    words = folio.ui["published"]
    misses = Markup('{} <span class="pb-label">{:g}%</span>').format(
        words["misses"], MOST_ERROR * 100
    )
    kind = Column(words["kind"], False)
    columns = [kind, *map(Column, (words["median"], words["numbers"]))]
    groups = _groups(peaks, words)
    rows = (_score(label, offs, folio) for label, offs in groups if offs)
    return table([*columns, Column(misses)], rows)


def _groups(peaks: Sequence[Peak], words: Mapping[str, str]) -> list[tuple[str, list[Value]]]:
    """Numbers by kind; of those the layouts that miss most, at first and with what explains it."""
    both = f" {words['together']} ".join(words[kind] for kind in ALLOCATED)
    of_tensor = [
        one
        for one in peaks
        if one.run.settings["repository"] == TITAN and one.run.settings["tensor"] != 1
    ]
    again = [one.off_again for one in of_tensor if one.off_again is not None]
    return [
        (both, [one.off for one in peaks if one.kind in ALLOCATED]),
        (words[RESERVED], [one.off for one in peaks if one.kind == RESERVED]),
        (words["tensor"], [one.off for one in of_tensor]),
        (words["again"], again),
    ]


def _score(label: str, offs: Sequence[Value], folio: Folio) -> Row:
    errors = [abs(numeric(off)) for off in offs]
    value = computed(median(errors), offs[0].unit, SAYS, ()).shown(way="percent")
    return [
        label,
        folio.text.show(value, "plan/published.html"),
        counted(len(errors)),
        counted(sum(error > MOST_ERROR for error in errors)),
    ]


def _rows(peaks: Sequence[Peak], folio: Folio) -> Iterator[Shown]:
    assert folio.book.plan is not None
    assert folio.book.plan.published is not None
    variants, notes = folio.book.plan.published.variants, folio.book.plan.published.notes
    before, noted = "", None
    for peak in peaks:
        name, kind, settings = peak.name, peak.kind, peak.run.settings
        row = str(settings["id"])
        folio.run(f"{PEAKS.experiment}.{name}")
        note = _note(peak, notes, folio)
        yield Shown(
            run=name,
            case=settings["case"],
            url=settings["url"],
            source=settings["repository"],
            model=SIZED.sub(r"\1 \2\3", str(settings["model"])),
            mesh=_mesh(peak.run, folio),
            variant=folio.line(variants[row]) if row in variants else None,
            kind=folio.ui["published"][kind],
            published=folio.cell(_cited(name, kind)),
            simulated=folio.cell(_simulated(name, kind)),
            error=_printed(peak.off, folio),
            misses=peak.misses,
            note=note,
            with_term=_with_term(peak, folio),
            is_first=name != before,
            is_same_note=note is not None and note == noted,
        )
        before, noted = name, note


def _note(peak: Peak, notes: Mapping[str, str], folio: Folio) -> Markup | None:
    """Why a row misses: in the words of the page, or of the trace."""
    if not peak.misses:
        return None
    row = str(peak.run.settings["id"])
    if row in notes:
        return folio.line(notes[row])
    return label(str(peak.run.settings[f"explained_{peak.kind}"]))


def _with_term(peak: Peak, folio: Folio) -> tuple[Markup, Markup] | None:
    if peak.off_again is None:
        return None
    simulated = folio.cell(_simulated(peak.name, f"with_term_{peak.kind}"))
    return simulated, _printed(peak.off_again, folio)


def _cited(name: str, kind: str) -> str:
    return f"cited['{reference_of(name, kind)}']"


def _simulated(name: str, measure: str) -> str:
    return f"{PEAKS.experiment}.{name}.ranks[0].measures.{measure}_bytes"


def _printed(off: Value, folio: Folio) -> Markup:
    return folio.show(off.shown(way="percent"))


def _off(name: str, kind: str, measure: str, folio: Folio) -> Value | None:
    """How far a simulation is off what was published."""
    found, cited = folio.value(_simulated(name, measure)), folio.value(_cited(name, kind))
    return None if found is None or cited is None else (found - cited) / cited


def _mesh(run: Run, folio: Folio) -> str:
    """What data parallelism shards, how many ways each axis divides the work, and the device."""
    words, settings = folio.ui["published"], run.settings
    axes = [f"{words['axes'][axis]} {settings[axis]}" for axis in AXES if settings[axis] != 1]
    sharding = words["sharding"][str(settings["sharding"])]
    device = re.split(r" \(| HBM", str(settings["device"]))[0]  # without the name of its host
    return f"{' × '.join([sharding, *axes])} {words['on']} {device}"

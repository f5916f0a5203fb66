"""Published measurements of memory beside their simulations: every row, and the median errors.

In: the committed simulations of planner/published_measurements.yml. Out: rows with the place that
each number was published at, and the medians, allocated and reserved apart.
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
from generator.pages.table import Column, Marked, Row, counted, table
from generator.pages.views.steps import RATES
from runners.traces.published_plans import (
    EXPERIMENT,
    PublishedChoice,
    PublishedPeak,
    PublishedPlan,
    PublishedPlans,
    choice_run,
    reference_of,
    run_of,
)

ALLOCATED, RESERVED = ("allocated", "active"), ("reserved",)
TITAN = "pytorch/torchtitan"
OFF, OFF_SAYS = "published-error", "(simulated − published) / published"
SIDES = ("won", "preferred")
SLOWER_SAYS = "measured step of the preferred layout / that of the winner − 1"
SAYS = "the median of |simulated − published| / published"
# How the list of measurements calls a model that has no name of its own: `GPT of 64 M`.
SIZED = re.compile(r"^(\w+) of (\d+) ([MB])$")
AXES = ("data", "tensor", "pipeline", "context")


class Group(NamedTuple):
    """Published numbers that the summary scores together."""

    label: str
    name: str
    offs: list[Value]


def published(folio: Folio) -> tuple[Markup, list[Shown]]:
    """The scores of the book's published measurements, and every row of them."""
    shown = folio.book.traces[EXPERIMENT].published
    assert shown is not None
    folio.text.unmarked = "simulated"
    rows = list(_rows(shown, folio))
    return _scores(shown, folio), rows


def choices(folio: Folio) -> Markup:
    """Published searches for a layout: what won, what the law of time prefers, and its cost."""
    shown, page = folio.book.traces[EXPERIMENT].published, folio.book.plan
    assert shown is not None
    assert page is not None
    assert page.published is not None
    words = folio.ui["published"]["choice"]
    columns = [Column(words["case"], False), *(Column(words[key], False) for key in SIDES)]
    notes = page.published.notes
    rows = (_choice(one, notes.get(one.id), words, folio) for one in shown.choices)
    pairs = Markup('<span class="pb-label">{}</span>').format(words["pairs"].format(**RATES))
    return table([*columns, Column(words["slower"]), Column(pairs)], rows)


def _choice(one: PublishedChoice, note: str | None, words: Mapping[str, str], folio: Folio) -> Row:
    run, measures = choice_run(one), f"{EXPERIMENT}.{choice_run(one)}.ranks[0].measures"
    folio.run(f"{EXPERIMENT}.{run}")
    label = '<span id="{}"><span id="run-{}-{}" class="pb-label">{}</span></span><br>{}'
    about = Markup(label).format(
        run,
        EXPERIMENT,
        run,
        words["about"].format(**one.settings),
        Markup(
            '<small class="pb-regime"><a class="pb-cited" href="{}" rel="noreferrer">{}</a></small>'
        ).format(
            f"https://github.com/{one.repository}/blob/{one.commit}/{one.path}", words["table"]
        ),
    )
    layouts = [
        Markup('<span class="pb-label">{}</span>').format(words["layout"].format(*axes))
        for axes in (one.won, one.preferred)
    ]
    if note is not None:
        layouts[1] += Markup("<br><small>{}</small>").format(folio.line(note))
    slower = folio.value(f"{measures}.slower_share")
    assert slower is not None
    is_other = one.won != one.preferred
    return [
        about,
        *layouts,
        Marked(
            folio.text.shown_alike(slower.shown(way="percent"), "choice-slower", SLOWER_SAYS),
            "pb-does-not-hold" if is_other else "",
        ),
        Markup("{} {} {} {} {}").format(
            folio.cell(f"{measures}.num_right"),
            words["right"],
            folio.cell(f"{measures}.num_wrong"),
            words["wrong"],
            folio.cell(f"{measures}.num_pairs"),
        ),
    ]


def _scores(plans: PublishedPlans, folio: Folio) -> Markup:
    """How far each kind of number is off."""
    words = folio.ui["published"]
    misses = Markup('{} <span class="pb-label">{:g}%</span>').format(
        words["misses"], plans.most_error * 100
    )
    kind = Column(folio.ui["sift"]["kind"], False)
    columns = [kind, *map(Column, (words["median"], words["numbers"]))]
    rows = (_score(*one, plans, folio) for one in _groups(plans, folio) if one.offs)
    return table([*columns, Column(misses)], rows)


def _groups(plans: PublishedPlans, folio: Folio) -> Iterator[Group]:
    """Numbers by kind; of those the layouts that miss most, at first and with what explains it."""
    words, found = folio.ui["published"], list(_offs(plans, folio))
    for kinds in (ALLOCATED, RESERVED):
        label = f" {words['together']} ".join(words[kind] for kind in kinds)
        yield Group(label, kinds[0], [off for _, peak, off in found if peak.kind in kinds])
    of_tensor = [
        one for one in found if one[0].repository == TITAN and one[0].settings["tensor"] != 1
    ]
    yield Group(words["tensor"], "tensor", [off for *_, off in of_tensor])
    again = (
        _off(row, peak.kind, _simulated(row.id, f"with_term_{peak.kind}"), folio)
        for row, peak, _ in of_tensor
        if peak.with_term_bytes
    )
    yield Group(words["again"], "again", [off for off in again if off is not None])


def _rows(plans: PublishedPlans, folio: Folio) -> Iterator[Shown]:
    assert folio.book.plan is not None
    assert folio.book.plan.published is not None
    variants, notes = folio.book.plan.published.variants, folio.book.plan.published.notes
    noted: Markup | None = None
    for row in plans.rows:
        for position, peak in enumerate(row.peaks):
            off = _off(row, peak.kind, _simulated(row.id, peak.kind), folio)
            misses = off is None or abs(numeric(off)) > plans.most_error
            note = _note(row, peak.explained, notes, folio) if misses else None
            folio.run(f"{EXPERIMENT}.{run_of(row.id)}")
            yield Shown(
                run=run_of(row.id),
                case=row.case,
                url=folio.book.references[reference_of(row.id, peak.kind)].url,
                source=row.repository,
                model=SIZED.sub(r"\1 \2\3", str(row.settings["model"])),
                mesh=_mesh(row, folio),
                variant=folio.line(variants[row.id]) if row.id in variants else None,
                kind=folio.ui["published"][peak.kind],
                published=folio.cell(_cited(row.id, peak.kind)),
                simulated=folio.cell(_simulated(row.id, peak.kind)),
                error=Markup("–") if off is None else _printed(off, folio),
                misses=misses,
                note=note,
                with_term=_with_term(row, peak.kind, folio) if peak.with_term_bytes else None,
                is_first=position == 0,
                is_same_note=note is not None and note == noted,
            )
            noted = note


def _note(
    row: PublishedPlan, explained: str | None, notes: Mapping[str, str], folio: Folio
) -> Markup | None:
    """Why a row has no simulation or misses: in the words of the page, or of the file."""
    recorded = row.reason or explained
    if recorded and row.id in notes:
        return folio.line(notes[row.id])
    return Markup('<span class="pb-label">{}</span>').format(recorded) if recorded else None


def _cited(row: str, kind: str) -> str:
    return f"cited['{reference_of(row, kind)}']"


def _simulated(row: str, kind: str) -> str:
    return f"{EXPERIMENT}.{run_of(row)}.ranks[0].measures.{kind}_bytes"


def _with_term(row: PublishedPlan, kind: str, folio: Folio) -> tuple[Markup, Markup] | None:
    simulated = _simulated(row.id, f"with_term_{kind}")
    off = _off(row, kind, simulated, folio)
    return None if off is None else (folio.cell(simulated), _printed(off, folio))


def _printed(off: Value, folio: Folio) -> Markup:
    return folio.text.shown_alike(off.shown(way="percent"), OFF, OFF_SAYS)


def _off(row: PublishedPlan, kind: str, simulated: str, folio: Folio) -> Value | None:
    """How far a simulation is off what was published; None where there is none."""
    found = folio.value(simulated) if row.reason is None else None
    cited = folio.value(_cited(row.id, kind))
    return None if found is None or cited is None else (found - cited) / cited


def _mesh(row: PublishedPlan, folio: Folio) -> str:
    """What data parallelism shards, how many ways each axis divides the work, and the device."""
    words = folio.ui["published"]
    axes = [
        f"{words['axes'][axis]} {row.settings[axis]}" for axis in AXES if row.settings[axis] != 1
    ]
    sharding = words["sharding"][str(row.settings["sharding"])]
    device = re.split(r"[ ,]", str(row.settings["device"]))[0]
    return f"{' × '.join([sharding, *axes])} {words['on']} {device}"


def _offs(
    plans: PublishedPlans, folio: Folio
) -> Iterator[tuple[PublishedPlan, PublishedPeak, Value]]:
    """Each published number, and how far its simulation is off."""
    for row in plans.rows:
        for peak in row.peaks:
            off = _off(row, peak.kind, _simulated(row.id, peak.kind), folio)
            if off is not None:
                yield row, peak, off


def _score(
    label: str, name: str, offs: Sequence[Value], plans: PublishedPlans, folio: Folio
) -> Row:
    errors = [abs(numeric(off)) for off in offs]
    value = computed(median(errors), offs[0].unit, SAYS, tuple(offs)).shown(way="percent")
    return [
        label,
        folio.text.shown_alike(value, f"median-{name}", SAYS),
        counted(len(errors)),
        counted(sum(error > plans.most_error for error in errors)),
    ]

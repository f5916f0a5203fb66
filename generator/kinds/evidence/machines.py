"""What machines are and what they measured: a page of each, and the runs of each experiment."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from markupsafe import Markup, escape

from proofbook.generator.content.shelf import MachineFolder, TraceOnPage, measure_command
from proofbook.generator.kinds.lessons import trials
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Element, Facts, Fold, Made, worded
from proofbook.generator.pages.elements.tables import with_units
from proofbook.generator.pages.environment import unbroken
from proofbook.generator.pages.views.claims import proofs
from proofbook.generator.pages.views.frame import reproduce_command
from proofbook.generator.printing.folio import ABSENT, Folio
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.regime import CROWDED, is_crowded, num_ranks
from proofbook.generator.values.value import Value, computed, numeric
from proofbook.runners.core.trace.fields import Key
from proofbook.runners.core.trace.records import NO_TORCH, Run, Trace

FACTS = (
    ("Processor", "cpu"), ("Cores", "num_cores"), ("Memory", "memory_bytes"),
    ("Caches of a core", "caches"), ("System", "system"), ("Python", "python"), ("torch", "torch"),
)  # fmt: skip
LEAST = 3  # rows that share what a table need not repeat
LAW_OR_OBSERVATION = Markup(
    "A law must hold wherever it applies; an observation may differ from machine to machine. "
    "“Does not hold” is red for both."
)
Parts = Iterator[Element | Markup]


# --- machines


def machines(draft: Draft) -> Parts:
    """The page that lists all machines."""
    book = draft.folio.book
    yield draft.opening(draft.sheet.about)
    measure = measure_command() if book.is_reference else ""  # how one more machine comes here
    yield worded("MachineList", book=book, measure=measure)


def machine(draft: Draft) -> Parts:
    """The page of a machine."""
    folio, book = draft.folio, draft.folio.book
    folder = book.machines[draft.sheet.of]
    yield worded("MachineOpening", folder=folder, book=book)
    for title, of in (("What it is", _facts), ("Measured primitives", _primitives)):
        if facts := [(escape(word), folio.show(value)) for word, value in of(folder, folio)]:
            yield draft.heading(2, title)
            yield Facts(facts, "pb-label", is_found=False)
    yield draft.heading(2, "What it measured")
    missing = " ".join(
        experiment
        for experiment, on_page in book.traces.items()
        if not on_page.nature and experiment not in folder.traces
    )
    is_shown = folder.machine.name == book.machine.name
    is_partial = is_shown and any(trace.left_out for trace in folder.traces.values())
    yield Made(
        "MeasuredTraces", is_found=False, folder=folder,
        missing=measure_command(missing) if missing and is_shown else "",
        heavier=measure_command(full=True) if is_partial else "",
    )  # fmt: skip


def _facts(folder: MachineFolder, folio: Folio) -> Iterator[tuple[str, Value]]:
    """Yield the fields of a machine's `machine.json`, each behind what it is called."""
    evidence = Evidence(replace(folio.book, machine=folder.machine))
    named: list[tuple[str, tuple[Key, ...]]] = [(word, (name,)) for word, name in FACTS]
    for place in range(len(folder.machine.accelerators)):
        at = "accelerators", place
        named += [("Accelerator", (*at, "name")), ("Its memory", (*at, "memory_bytes"))]
    for word, keys in named:
        value = evidence.reading("machine", *keys)
        # Some systems show no caches, and a machine may have no torch.
        if value and value.number not in ("", NO_TORCH):
            if word == "Caches of a core":  # the kernel's K are KiB
                value = replace(value, number=re.sub(r"(\d)K\b", r"\1 KiB", str(value.number)))
            yield word, value


def _primitives(folder: MachineFolder, folio: Folio) -> Iterator[tuple[str, Value]]:
    """Yield rates and latencies that a machine measured, each behind what it is called."""
    trace = folder.traces.get("primitives")
    for run in ("compute_1", "communicate_2", "communicate_4"):
        if trace is None or run not in trace.runs:
            continue
        read = partial(_evidence(trace, folder, folio).reading, f"primitives.{run}")
        flops = read("ranks", 0, "measures", "num_flops")
        few, many = (read("settings", "sizes_bytes", place) for place in (0, 1))
        measures = "layer", "all_reduce_4096", "all_reduce_16777216"
        layer, soon, late = (read("timing", "measures", key, "median_seconds") for key in measures)
        if flops and layer:
            yield "Operations of a matrix product", flops / layer
        if few and many and soon and late:
            yield f"Latency of an all_reduce, {trace.runs[run].world_size} ranks", soon
            yield (
                f"Its payload rate, {trace.runs[run].world_size} ranks",
                (many - few) / (late - soon),
            )


# --- the runs of an experiment


class RunRow(NamedTuple):
    """A run, with what it measured by its name in words."""

    run: Run
    name: str
    strategy: str
    nature: str
    ranks: Markup = ABSENT
    measured: Mapping[str, Markup] = {}

    @property
    def reason(self) -> str:
        """Why it was skipped, where its trace says so."""
        return self.run.reason or ""


def runs(draft: Draft) -> Parts:
    """The runs of an experiment, and the claims that rest on them."""
    experiment, folio = draft.sheet.of, draft.folio
    on_page, own = folio.book.traces[experiment], folio.at_hand.book.machine.name
    yield draft.opening(on_page.trace.question)
    having = [folder for folder in folio.book.machines.values() if experiment in folder.traces]
    if on_page.machine.name != own and own not in (folder.machine.name for folder in having):
        lacks = Markup(
            "<code>{}</code> has not run this experiment. The runs below are those of {}."
        )
        yield Aside(lacks.format(unbroken(own), folio.ui["reference_machine"]), "pb-notice")
    by_machine = [_runs_on(experiment, folder, folio) for folder in having]
    first, *others = sorted(by_machine, key=lambda runs: (not runs.rows, not runs.again))
    yield worded("MeasuresExplained", by_machine=by_machine)
    yield draft.heading(2, "On " + unbroken(first.trace.machine))
    yield first
    for other in others:
        title = Markup("The same runs on <code>{}</code>").format(unbroken(other.trace.machine))
        yield Fold(title, [other])
    if tries := trials.of_experiment(experiment, folio):
        yield draft.heading(2, "Your own runs")
        yield from tries
    if names := draft.gathered.claim_groups.get(experiment):
        yield draft.heading(2, "Claims that use these runs")
        yield Aside(LAW_OR_OBSERVATION)
        yield from proofs(names, draft.gathered.claim_lessons, folio, on_page.machine.name)
    yield Aside(Markup('<a href="../evidence.html">Evidence of all experiments</a>'))


def _runs_on(experiment: str, folder: MachineFolder, folio: Folio) -> Made:
    """The runs of an experiment on a machine, and those that it skipped."""
    book, trace = folio.book, folder.traces[experiment]
    on_page, evidence = book.traces[experiment], _evidence(trace, folder, folio)
    all_rows = [
        _row(trace, name, evidence, folio) for name in sorted(trace.runs, key=_numbers_apart)
    ]
    rows = [row for row in all_rows if row.run.status != "skipped"]
    several = [row.nature for row in rows if num_ranks(row.run) > 1]
    nature = CROWDED if len(several) >= LEAST and {*several} == {CROWDED} else ""
    if nature:
        rows = [row._replace(nature="") for row in rows]
    folio.natures.update([nature, *(row.nature for row in rows)])
    every = dict.fromkeys(word for row in rows for word in row.measured)
    words = [
        word for word in every if any(row.measured.get(word, ABSENT) != ABSENT for row in rows)
    ]
    numbers = [[row.measured.get(word, ABSENT) for word in words] for row in rows]
    is_shown = on_page.machine.name == folder.machine.name
    measures, numbers = with_units([f"#{word}" for word in words], numbers)
    return Made(
        "MachineRuns", is_found=False, folder=folder, trace=trace, book=book, nature=nature,
        again=reproduce_command(on_page, book) if is_shown else "",
        full=measure_command(experiment, full=True),
        rows=rows, measures=measures, numbers=numbers,
        skipped=[row for row in all_rows if row.run.status == "skipped"],
    )  # fmt: skip


def _numbers_apart(name: str) -> list[str | int]:
    """A key that sorts names as people do, so that `step_9` precedes `step_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _evidence(trace: Trace, folder: MachineFolder, folio: Folio) -> Evidence:
    """What expressions read where a machine's own runs of an experiment stand."""
    on_page = TraceOnPage(trace, folder.machine)
    return Evidence(replace(folio.book, traces={trace.experiment: on_page}))


def _row(trace: Trace, name: str, evidence: Evidence, folio: Folio) -> RunRow:
    run = trace.runs[name]
    # What the numbers of a row share stands once.
    nature = CROWDED if is_crowded(run) else "" if run.nature == "real" else run.nature
    if run.status == "skipped":
        return RunRow(run, name, folio.strategy(run), nature)
    num_cores = evidence.book.traces[trace.experiment].machine.num_cores
    if not nature and run.device == "cpu" and num_ranks(run) > num_cores:
        nature = CROWDED  # ranks that a launcher started, which the run did not count
    printed = folio.without_mark(nature).printed
    read = partial(evidence.reading, f"{trace.experiment}.{name}")
    num = ("world_size",) if num_ranks(run) == run.world_size else ("settings", "num_ranks")
    ranks = printed(read(*num))
    measured = {word: printed(value) for word, value in _measured(run, read).items()}
    return RunRow(run, name, folio.strategy(run), nature, ranks, measured)


def _measured(run: Run, read: Callable[..., Value | None]) -> dict[str, Value | None]:
    """By its name in words, each value that the table of a run has: of ranks, or a plain run's."""
    if run.is_plain:
        own = {name: read("measures", name) for name in run.ranks[0].measures}
        own |= {name: read("timing", "measures", name) for name in run.timing.measures}
        words = (name.removeprefix("num_").replace("_", " ").capitalize() for name in own)
        return dict(zip(words, own.values(), strict=True))
    peaks = [read("ranks", place, "memory", "peak_bytes") for place in range(len(run.ranks))]
    wall = read("timing", "wall_seconds")
    return {
        "Peak": max(filter(None, peaks), key=numeric, default=None),
        "Payload per step": _payload(run, read),
        "Step": read("timing", "step"),
        # with no digit below the millisecond that its clock tells
        "Whole run": wall and wall.formatted(digits=min(3, len(str(round(numeric(wall) * 1000))))),
    }


def _payload(run: Run, read: Callable[..., Value | None]) -> Value | None:
    """What the rank with the largest payload sends in a step; what it receives, others sent."""
    largest, most = 0.0, list[Value]()
    for place, rank in enumerate(run.ranks):
        sent = [at for at, call in enumerate(rank.collectives) if call.operation != "recv"]
        values = [*filter(None, (read("ranks", place, "collectives", at, "bytes") for at in sent))]
        total = sum(map(numeric, values))
        if total > largest:
            largest, most = total, values
    formula = " + ".join(payload.formula for payload in most)
    return computed(largest, units.BYTES, formula, tuple(most)) if most else None

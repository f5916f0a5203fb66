"""What machines are and what they measured: a page of each, and the runs of each experiment."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.shelf import MachineFolder, TraceOnPage, measure_command
from generator.pages.draft import Draft
from generator.pages.elements.element import (
    Aside,
    Block,
    Element,
    Facts,
    Fold,
    ListOfLines,
)
from generator.pages.elements.programs import PrintedText
from generator.pages.elements.tables import Row, Table, with_units
from generator.pages.environment import counted, label, unbroken, with_code
from generator.pages.views import trials
from generator.pages.views.claims import proofs
from generator.pages.views.frame import reproduce_command
from generator.printing.folio import ABSENT, Folio, breakable
from generator.printing.sources import moment
from generator.values import units
from generator.values.evaluation import Evidence
from generator.values.regime import CROWDED, is_crowded, num_ranks
from generator.values.value import Value, computed, numeric
from runners.core.trace.fields import Key
from runners.core.trace.records import NO_TORCH, Machine, Run, Trace, software
from runners.traces.summary import beside

FACTS = (
    ("Processor", "cpu"), ("Cores", "num_cores"), ("Memory", "memory_bytes"),
    ("Caches of a core", "caches"), ("System", "system"), ("Python", "python"), ("torch", "torch"),
)  # fmt: skip
HEAVIER = "Left out, to stay short; `{}` measures all runs."
DISAGREED = "meter and allocator disagreed, so its peak is no evidence"
LEAST = 3  # rows that share what a table need not repeat
WHAT_MEASURES_ARE = {
    "Peak": "Peak: the most tensor bytes of any rank. ",
    "Payload per step": "Payload: that of the rank that sends most. ",
    "Step": "Step: the median. ",
}
DIFFERS = Markup('<strong class="pb-differs">{}</strong>')
COMMAND = Markup(" This command measures {}: <code>{}</code>")
Parts = Iterator[Element | Markup]


def machine_link(name: str, is_reference: bool, folio: Folio) -> Markup:
    """A machine as a link to its page."""
    link = Markup('<a href="{}machines/{}.html"><code>{}</code></a>')
    words = f", {folio.ui['reference_machine']}" if is_reference else ""
    return link.format(folio.root, name, unbroken(name)) + words


def accelerators(machine: Machine) -> Markup:
    """The accelerators of a machine by name, each followed by a comma."""
    numbers = Counter(device.name for device in machine.accelerators)
    words = (label(f"{number} {name}") + ", " for name, number in sorted(numbers.items()))
    return Markup().join(words)


def _which(name: str, folio: Folio) -> str:
    """Which machine it is that has this name."""
    others = {folio.book.machine.name: "the machine of these pages"}
    others[folio.book.reference.name] = folio.ui["reference_machine"]
    return others.get(name, "another machine").capitalize()


def _experiments(number: int) -> Markup:
    return counted(number) + (" experiments" if number != 1 else " experiment")


# --- machines


def machines(draft: Draft) -> Parts:
    """The page that lists all machines."""
    folio, book = draft.folio, draft.folio.book
    yield draft.opening(draft.sheet.about)
    title = Markup('<p class="pb-topic-title"><a href="{}.html">{}</a></p>\n')
    facts = Markup("<p>{}: {}, {} {}, {}{}. {} measured.</p>")
    lines = []
    for name, measured in book.machines.items():
        machine = measured.machine
        cores = "core" if machine.num_cores == 1 else "cores"
        lines.append(title.format(name, unbroken(name)) + facts.format(
            _which(name, folio), label(machine.cpu), counted(machine.num_cores), cores,
            accelerators(machine), label(software(machine)), _experiments(len(measured.traces)),
        ))  # fmt: skip
    yield ListOfLines(lines)
    if book.is_reference:
        again = measure_command()
        words = f"A machine of yours appears here after `{again}`."
        if again == "make traces":
            words += " The README in `runners/` says how to send its traces."
        yield Block([with_code(words)], tag="p")
    yield Aside(Markup('<a href="../evidence.html">What the runs of these machines show</a>'))


def machine(draft: Draft) -> Parts:
    """The page of a machine."""
    name, folio, book = draft.sheet.machine or "", draft.folio, draft.folio.book
    measured = book.machines[name]
    yield draft.opening(
        Markup("{} has measured {}. This page says what the machine is, and what it measured.")
        .format(unbroken(name), _experiments(len(measured.traces)))
    )  # fmt: skip
    every = Markup('{} · <a href="{}machines/index.html">all machines</a>')
    yield Aside(every.format(_which(name, folio), folio.root), "pb-meta", is_found=False)
    for title, of in (("What it is", _facts), ("Measured primitives", _primitives)):
        if facts := [(escape(word), fact) for word, fact in of(measured, folio)]:
            yield draft.heading(2, title)
            yield Facts(facts, "pb-label", is_found=False)
    yield draft.heading(2, "What it measured")
    missing = " ".join(
        experiment
        for experiment, on_page in book.traces.items()
        if not on_page.is_of_planner and experiment not in measured.traces
    )
    lacks = []
    if missing:
        command = COMMAND.format("the others", measure_command(missing))
        lacks.append("It has not measured all experiments." + command)
    if any(trace.left_out for trace in measured.traces.values()):
        command = COMMAND.format("everything", measure_command(full=True))
        lacks.append("It skipped the heavier runs." + command)
    if lacks and name == book.machine.name:
        yield Block([Markup("<br>").join(lacks)], tag="p")
    rows = [_trace_row(trace, measured, folio) for trace in measured.traces.values()]
    yield Table(["Experiment", "#Runs", "#Skipped", "Recorded"], rows, is_found=False)


def _trace_row(trace: Trace, measured: MachineFolder, folio: Folio) -> Row:
    """An experiment that a machine measured: its runs, and those that did not end as declared."""
    link, experiment = Markup('<a href="{}evidence/{}.html"><code>{}</code></a>'), trace.experiment
    skipped = [run.status for run in trace.runs.values()].count("skipped")
    recorded = Markup('<span class="pb-label pb-keep">{}</span>').format(moment(trace.recorded_at))
    if experiment in measured.stale:
        recorded += " · " + DIFFERS.format(folio.ui["stale"])
    surprise = Markup(
        '<br><strong class="pb-does-not-hold"><code>{}</code> ended {}, expected {}</strong>'
    )
    for name, run in trace.runs.items():
        if run.is_surprise:
            ends = (status.replace("_", " ") for status in (run.status, run.expected_status))
            recorded += surprise.format(name, *ends)
    return [
        link.format(folio.root, experiment, breakable(experiment)),
        counted(len(trace.runs) - skipped),
        counted(skipped) if skipped else "–",
        recorded,
    ]


def _facts(measured: MachineFolder, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Yield pairs: a field of a machine's `machine.json`, in words, and its value as HTML."""
    evidence = Evidence(replace(folio.book, machine=measured.machine))
    named: list[tuple[str, tuple[Key, ...]]] = [(word, (name,)) for word, name in FACTS]
    for place in range(len(measured.machine.accelerators)):
        at = "accelerators", place
        named += [("Accelerator", (*at, "name")), ("Its memory", (*at, "memory_bytes"))]
    for word, keys in named:
        value = evidence.reading("machine", *keys)
        # Some systems show no caches, and a machine may have no torch.
        if value and value.number not in ("", NO_TORCH):
            if word == "Caches of a core":  # the kernel's K are KiB
                value = replace(value, number=re.sub(r"(\d)K\b", r"\1 KiB", str(value.number)))
            yield word, folio.show(value)


def _primitives(measured: MachineFolder, folio: Folio) -> Iterator[tuple[str, Markup]]:
    """Yield pairs: a rate or latency that a machine measured, in words, and its value as HTML."""
    for run in ("compute_1", "communicate_2", "communicate_4"):
        if "primitives" in measured.traces and run in measured.traces["primitives"].runs:
            read = partial(_evidence("primitives", measured, folio).reading, f"primitives.{run}")
            for word, value in _computing(read) if run == "compute_1" else _sending(read):
                yield word, folio.show(value)


def _computing(read: partial[Value | None]) -> Iterator[tuple[str, Value]]:
    flops = read("ranks", 0, "measures", "num_flops")
    seconds = read("timing", "measures", "layer", "median_seconds")
    if flops and seconds:
        yield "Operations of a matrix product", flops / seconds


def _sending(read: partial[Value | None]) -> Iterator[tuple[str, Value]]:
    few, many = (read("settings", "sizes_bytes", place) for place in (0, 1))
    names = "all_reduce_4096", "all_reduce_16777216"
    soon, late = (read("timing", "measures", name, "median_seconds") for name in names)
    if few and many and soon and late:
        yield f"Latency of an all_reduce, {read('world_size')} ranks", soon
        yield f"Its payload rate, {read('world_size')} ranks", (many - few) / (late - soon)


# --- the runs of an experiment


class RunRow(NamedTuple):
    """A run, with what it measured by its name in words."""

    run: Run
    name: str
    id: str
    strategy: str
    nature: str
    ranks: Markup
    failure: str
    reason: str  # it was skipped
    measured: dict[str, Markup]


@dataclass(frozen=True)
class MachineRuns(Element):
    """The runs of an experiment on a machine, and those that it skipped."""

    IS_FOUND = False
    machine: Machine
    which: str  # it is
    is_shown: bool  # by the pages
    is_stale: bool
    trace: Trace
    software: str
    devices: Markup
    measures: Sequence[Markup]  # titles of what some run measured
    has_gaps: bool
    has_ranks: bool
    rows: Sequence[tuple[RunRow, Sequence[Markup]]]  # each with these
    nature: str  # of all runs over several ranks
    has_kinds: bool
    skipped: Sequence[RunRow]


def runs(draft: Draft) -> Parts:
    """The runs of an experiment, and the claims that rest on them."""
    experiment, folio = draft.sheet.experiment or "", draft.folio
    on_page, own = folio.book.traces[experiment], folio.at_hand.book.machine.name
    yield draft.opening(on_page.trace.question)
    if on_page.machine.name != own and experiment not in folio.book.machines[own].traces:
        lacks = Markup(
            "<code>{}</code> has not run this experiment. The runs below are those of {}."
        )
        yield Aside(lacks.format(unbroken(own), folio.ui["reference_machine"]), "pb-notice")
    first, *others = _by_machine(experiment, folio)
    if explained := _explained([first, *others]):
        yield Aside(escape(explained))
    yield draft.heading(2, "On " + unbroken(first.machine.name))
    yield first
    if first.is_shown:
        again = Markup("{} <code>{}</code>")
        yield Aside(again.format(folio.ui["again"], reproduce_command(on_page, folio.book)))
    for other in others:
        title = Markup("The same runs on <code>{}</code>").format(unbroken(other.machine.name))
        yield Fold(title, [other])
    if tries := [*_tries(experiment, folio)]:
        yield draft.heading(2, "Your own runs")
        yield from tries
    if names := draft.gathered.claim_groups.get(experiment):
        yield draft.heading(2, "Claims that use these runs")
        yield Aside(Markup(
            "A law must hold wherever it applies; an observation may differ from machine to "
            "machine. “Does not hold” is red for both."
        ))  # fmt: skip
        yield from proofs(names, draft.gathered.claim_lessons, folio, on_page.machine.name)
    yield Aside(Markup('<a href="../evidence.html">Evidence of all experiments</a>'))


def _explained(by_machine: Sequence[MachineRuns]) -> str:
    """What the measures of some tables are."""
    measures = {word[1:].partition(",")[0] for runs in by_machine for word in runs.measures}
    words = "".join(says for measure, says in WHAT_MEASURES_ARE.items() if measure in measures)
    if any(runs.has_gaps for runs in by_machine):
        sent = ", or nothing sent" if "Payload per step" in measures else ""
        words += f"–: not measured{sent}."
    return words.strip()


def _tries(experiment: str, folio: Folio) -> Iterator[Element]:
    """The reader's own runs of an experiment, each beside the run of the page."""
    title = Markup("<code>{}</code>, {}: {}")
    for trace, name, own, book in trials.tried(experiment, folio):
        words = Markup("; ").join(trials.changed(book, own)) or "as declared"
        about = title.format(breakable(name), moment(trace.recorded_at), words)
        yield Aside(about, "pb-listing-title", is_found=False)
        yield PrintedText("\n".join(beside(own, book)))


def _by_machine(experiment: str, folio: Folio) -> list[MachineRuns]:
    """Runs of an experiment by machine: the page's own first, those that skipped all last."""
    having = [folder for folder in folio.book.machines.values() if experiment in folder.traces]
    by_machine = [_runs_on(experiment, folder, folio) for folder in having]
    return sorted(by_machine, key=lambda runs: (not runs.rows, not runs.is_shown))


def _runs_on(experiment: str, measured: MachineFolder, folio: Folio) -> MachineRuns:
    trace, machine = measured.traces[experiment], measured.machine
    is_shown = folio.book.traces[experiment].machine.name == machine.name
    evidence = _evidence(experiment, measured, folio)
    end = "" if is_shown else f"-on-{machine.name}"
    rows = [
        _row(experiment, name, end, evidence, folio)
        for name in sorted(trace.runs, key=_numbers_apart)
    ]
    ran = [row for row in rows if row.run.status != "skipped"]
    several = [row.nature for row in ran if num_ranks(row.run) > 1]
    nature = CROWDED if len(several) >= LEAST and {*several} == {CROWDED} else ""
    ran = [row._replace(nature="") for row in ran] if nature else ran
    folio.natures.update([nature, *(row.nature for row in ran)])
    words = dict.fromkeys(word for row in ran for word in row.measured)
    ran = [row._replace(measured=dict.fromkeys(words, ABSENT) | row.measured) for row in ran]
    measures = [word for word in words if any(row.measured[word] != ABSENT for row in ran)]
    numbers = [[row.measured[word] for word in measures] for row in ran]
    titles, cells = with_units([f"#{word}" for word in measures], numbers)
    return MachineRuns(
        machine=machine,
        which=_which(machine.name, folio),
        is_shown=is_shown,
        is_stale=experiment in measured.stale,
        trace=trace,
        software=software(trace.circumstances),
        devices=accelerators(machine).removesuffix(", "),
        measures=titles,
        has_gaps=any(row.measured[word] == ABSENT for row in ran for word in measures),
        has_ranks=not all(run.is_plain for run in trace.runs.values()),
        rows=list(zip(ran, cells, strict=True)),
        nature=nature,
        has_kinds=len(ran) < LEAST or len({(row.strategy, row.nature) for row in ran}) > 1,
        skipped=[row for row in rows if row.run.status == "skipped"],
    )


def _numbers_apart(name: str) -> list[str | int]:
    """A key that sorts names as people do, so that `step_9` precedes `step_10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _evidence(experiment: str, measured: MachineFolder, folio: Folio) -> Evidence:
    """What expressions read where a machine's own runs of an experiment stand."""
    trace = TraceOnPage(measured.traces[experiment], measured.machine)
    return Evidence(replace(folio.book, traces={experiment: trace}))


def _row(experiment: str, name: str, end: str, evidence: Evidence, folio: Folio) -> RunRow:
    """A run, with what it measured by its name in words."""
    trace = evidence.book.traces[experiment]
    run, is_skipped = trace.trace.runs[name], trace.trace.runs[name].status == "skipped"
    # What the numbers of a row share stands once.
    nature = CROWDED if is_crowded(run) else "" if run.nature == "real" else run.nature
    is_over = run.device == "cpu" and num_ranks(run) > trace.machine.num_cores
    if not nature and is_over and not is_skipped:
        nature = CROWDED  # ranks that a launcher started, which the run did not count
    page = folio.without_mark(nature)

    def read(*keys: Key) -> Value | None:
        """None where the run did not measure it, or was skipped."""
        return None if is_skipped else evidence.reading(f"{experiment}.{name}", *keys)

    num = ("world_size",) if num_ranks(run) == run.world_size else ("settings", "num_ranks")
    message = run.error.message if run.error else ""
    reason = (
        HEAVIER.format(measure_command(experiment, full=True)) if run.is_left_out else run.reason
    )
    return RunRow(
        run=run,
        name=name,
        id=f"{name}{end}",
        strategy=folio.strategy(run),
        nature=nature,
        ranks=page.printed(read(*num)),
        failure=DISAGREED if message.startswith("MeterDisagreesError") else "",
        reason=reason or "",
        measured={word: page.printed(value) for word, value in _measured(run, read).items()},
    )


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
    most: list[Value] = []
    for place, rank in enumerate(run.ranks):
        sent = [at for at, call in enumerate(rank.collectives) if call.operation != "recv"]
        values = (read("ranks", place, "collectives", at, "bytes") for at in sent)
        most = max(most, list(filter(None, values)), key=_total)
    formula = " + ".join(payload.formula for payload in most)
    return computed(_total(most), units.BYTES, formula, tuple(most)) if most else None


def _total(values: list[Value]) -> float:
    return sum(map(numeric, values))

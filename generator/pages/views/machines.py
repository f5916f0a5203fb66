"""A machine's own page: what it is, what it measured, what it predicted and what came of that."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from generator.content.shelf import Measured
from generator.evidence import calibration as calibrating
from generator.evidence import units
from generator.evidence.calibration import Calibration, Chosen, Predicted, Quantity
from generator.evidence.folio import Folio
from generator.evidence.other_machines import parts
from generator.evidence.units import Unit
from generator.evidence.value import Kind, Origin, Value
from generator.evidence.verdicts import Outcome
from generator.figures.drawings import predicted as drawing
from generator.figures.drawings.predicted import Dot
from generator.pages.views.claims import css_of, side
from generator.pages.views.proof import measured_by
from runners.traces.machine_records import Machine
from runners.traces.quiet_record import Quietness, quietness

UNITS: dict[Quantity, Unit] = {"peak_bytes": units.BYTES, "step_seconds": units.SECONDS}
SCALES: dict[Quantity, tuple[str, float]] = {
    "peak_bytes": ("MiB", 2.0**20),
    "step_seconds": ("ms", 1e-3),
}
PER_SECOND, BYTES_PER_SECOND = Unit(0, -1), Unit(1, -1)
PRIMITIVES: tuple[tuple[str, Unit | None, str], ...] = (
    (r"matrix_flops_per_second", PER_SECOND, "matrix"),
    (r"memory_bytes_per_second", BYTES_PER_SECOND, "memory"),
    (r"all_reduce_(?P<n>\d+)_alpha_seconds", units.SECONDS, "start"),
    (r"all_reduce_(?P<n>\d+)_beta_seconds_per_byte", None, "rate"),
)
ERROR = "predicted-off"
ERROR_SAYS = "(expected − measured) / measured"
SHARED = "calibration"
SHARED_SAYS = "from the forecasts and outcomes of this machine"


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment that a machine has measured."""

    name: str
    question: str
    recorded_at: str
    torch: str
    num_runs: int
    surprises: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    is_stale: bool


@dataclass(frozen=True)
class PredictedRow:
    """A number that was predicted, beside its outcome."""

    run: str
    quantity: str
    expected: Markup
    measured: Markup
    off: Markup | None
    is_within: bool
    counts: bool
    why: str


@dataclass(frozen=True)
class PredictedGroup:
    """What was predicted of one experiment."""

    experiment: str
    rows: tuple[PredictedRow, ...]
    num_within: int
    num_outcomes: int


@dataclass(frozen=True)
class ChoiceRow:
    """A choice among runs: which was expected to be best, and which was."""

    experiment: str
    question: str
    runs: tuple[str, ...]
    by: str
    expected: str
    best: str | None
    is_right: bool
    counts: bool


@dataclass(frozen=True)
class Calibrated:
    """How well a machine's word was worth taking, in print."""

    num_outcomes: int
    within: Markup | None
    memory: Markup | None
    time: Markup | None
    num_correct: int
    num_choices: int


@dataclass(frozen=True)
class OtherVerdict:
    """A claim on which two machines come to another verdict."""

    claim: str
    kind: str
    says: Markup
    here: Markup
    here_words: str
    here_css: str
    there: Markup
    there_words: str
    there_css: str
    why: Markup


@dataclass(frozen=True)
class Beside:
    """A machine beside another one."""

    machine: str
    num_shared: int
    observations: tuple[OtherVerdict, ...]
    laws: tuple[OtherVerdict, ...]


def experiments(measured: Measured) -> list[ExperimentRow]:
    """What a machine has measured, by experiment."""
    return [
        ExperimentRow(
            name=name,
            question=trace.question,
            recorded_at=trace.recorded_at,
            torch=trace.circumstances.torch,
            num_runs=sum(run.status != "skipped" for run in trace.runs.values()),
            surprises=tuple(one for one, run in trace.runs.items() if run.is_surprise),
            skipped=tuple(
                (one, run.reason or "")
                for one, run in trace.runs.items()
                if run.status == "skipped"
            ),
            is_stale=name in measured.stale,
        )
        for name, trace in measured.traces.items()
    ]


def quiet(measured: Measured) -> Quietness:
    """Which experiments this machine measured while nothing else disturbed them."""
    return quietness({name: trace.quiet for name, trace in measured.traces.items()})


def facts(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """What a machine is: the words of `machine.json`, each with its provenance."""
    words, machine = folio.ui["machines"], measured.machine
    found: list[tuple[str, int | str | None, Unit, str]] = [
        (words["cpu"], machine.cpu, units.TEXT, "cpu"),
        (words["cores"], machine.num_cores, units.COUNT, "num_cores"),
        (words["installed_cores"], _more_cores(machine), units.COUNT, "num_installed_cores"),
        (words["memory"], machine.memory_bytes, units.BYTES, "memory_bytes"),
        (words["system"], machine.system, units.TEXT, "system"),
        (words["python"], machine.python, units.TEXT, "python"),
        (words["torch"], machine.torch, units.TEXT, "torch"),
    ]
    for place, one in enumerate(machine.accelerators):
        field = f"accelerators[{place}]"
        found.append((words["accelerator"], one.name, units.TEXT, f"{field}.name"))
        found.append((words["its_memory"], one.memory_bytes, units.BYTES, f"{field}.memory_bytes"))
    found += [*_topology(measured, words)]
    found += [(name, version, units.TEXT, f"libraries.{name}")
              for name, version in machine.libraries.items()]  # fmt: skip
    return [
        (name, folio.show(Value(thing, unit, "measured", f"machine.{field}",
                                origin=Origin(machine.name, field=f"machine.{field}"))))
        for name, thing, unit, field in found
        if thing is not None
    ]  # fmt: skip


def _more_cores(machine: Machine) -> int | None:
    """Installed cores, where ranks may not use all of them."""
    return machine.num_installed_cores if machine.num_installed_cores != machine.num_cores else None


def _topology(
    measured: Measured, words: dict[str, str]
) -> Iterator[tuple[str, int | str | None, Unit, str]]:
    topology = measured.machine.topology
    if topology is None:
        return
    for name in ("num_sockets", "num_physical_cores", "threads_per_core"):
        yield words[name], getattr(topology, name), units.COUNT, f"topology.{name}"
    for place, cache in enumerate(topology.caches):
        name = words["cache"].format(level=cache.level, kind=cache.kind)
        yield name, cache.bytes, units.BYTES, f"topology.caches[{place}].bytes"
    if len(topology.numa_nodes) > 1:
        num = len(topology.numa_nodes)
        yield words["numa_nodes"], num, units.COUNT, "topology.numa_nodes"
    for place, link in enumerate(topology.links):
        name = words["link"].format(first=link.first, second=link.second)
        yield name, link.kind, units.TEXT, f"topology.links[{place}].kind"


def primitives(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """The rates that a machine predicted from, as far as people read their units."""
    words = folio.ui["machines"]["primitives"]
    found = measured.prediction.primitives if measured.prediction else {}
    shown = []
    for name, number in found.items():
        if isinstance(number, float) and number > 0:
            origin = Origin(measured.machine.name, field=f"prediction.primitives[{name!r}]")
            for pattern, unit, word in PRIMITIVES:
                told = re.fullmatch(pattern, name)
                if told:
                    value = _primitive(number, unit, origin)
                    shown.append((words[word].format(**told.groupdict()), folio.show(value)))
    return shown


def _primitive(number: float, unit: Unit | None, origin: Origin) -> Value:
    """A rate; one told in seconds a byte reads better as bytes a second."""
    if unit is not None:
        return Value(number, unit, "measured", origin.field, origin=origin)
    formula = f"1 / {origin.field}"
    turned = origin._replace(field=formula)
    return Value(1 / number, BYTES_PER_SECOND, "computed", formula, origin=turned)


def predicted(measured: Measured, folio: Folio) -> list[PredictedGroup]:
    """What a machine predicted, by experiment, beside what came of it."""
    groups: dict[str, list[Predicted]] = {}
    for one in calibrating.predicted(measured):
        groups.setdefault(one.path.partition(".")[0], []).append(one)
    return [
        PredictedGroup(
            experiment=name,
            rows=tuple(_row(one, measured, folio) for one in outcomes),
            num_within=sum(one.is_within for one in outcomes if one.counts),
            num_outcomes=sum(one.counts for one in outcomes),
        )
        for name, outcomes in sorted(groups.items())
    ]


def _row(one: Predicted, measured: Measured, folio: Folio) -> PredictedRow:
    words = folio.ui["machines"]
    error = None
    if one.error is not None and one.counts:
        value = Value(one.error, units.RATIO, "computed", ERROR_SAYS).shown(way="percent")
        error = folio.text.shown_alike(value, ERROR, ERROR_SAYS)
    why = one.left_out or ("" if one.is_before else words["afterwards"])
    return PredictedRow(
        run=one.path.partition(".")[2],
        quantity=words[one.quantity],
        expected=folio.show(expected_value(one, measured, words["between"])),
        measured=Markup("–") if one.outcome is None else folio.show(_outcome(one, measured)),
        off=error,
        is_within=one.is_within,
        counts=one.counts,
        why=why,
    )


def expected_value(one: Predicted, measured: Measured, between: str) -> Value:
    """What was expected and its interval, as a text with the forecast as its source."""
    unit, interval = UNITS[one.quantity], one.expected
    low, middle, high = (
        units.printed(float(number), unit, units.AS_RULED)
        for number in (interval.low, interval.expected, interval.high)
    )
    field = f"prediction.runs[{one.path!r}].{one.quantity}"
    text = between.format(expected=middle, low=low, high=high)
    return Value(
        text, units.TEXT, "computed", field, origin=Origin(measured.machine.name, field=field)
    )


def _outcome(one: Predicted, measured: Measured) -> Value:
    experiment, _, run = one.path.partition(".")
    trace = measured.traces[experiment]
    nature = trace.runs[run].nature
    origin = Origin(
        measured.machine.name, experiment, run, one.field, trace.recorded_at,
        trace.circumstances.torch, nature=nature,
    )  # fmt: skip
    assert one.outcome is not None
    kind: Kind = "simulated" if nature == "simulated" else "measured"
    return Value(one.outcome, UNITS[one.quantity], kind, f"{one.path}.{one.field}", origin=origin)


def choices(measured: Measured, folio: Folio) -> list[ChoiceRow]:
    """Which runs a machine expected to be best, and which were."""
    return [_choice(one, folio) for one in calibrating.chosen(measured)]


def _choice(one: Chosen, folio: Folio) -> ChoiceRow:
    return ChoiceRow(
        experiment=one.forecast.experiment,
        question=one.forecast.question,
        runs=tuple(one.forecast.runs),
        by=folio.ui["machines"][one.forecast.by],
        expected=one.forecast.expected,
        best=one.best,
        is_right=one.is_right,
        counts=one.best is not None and one.is_before,
    )


def calibrated(measured: Measured, folio: Folio) -> Calibrated | None:
    """How well a machine's word was worth taking; None where it gave none that can be judged."""
    found = calibrating.calibration(calibrating.predicted(measured), calibrating.chosen(measured))
    if not found.num_outcomes and not found.num_choices:
        return None
    return _in_print(found, folio)


def _in_print(found: Calibration, folio: Folio) -> Calibrated:
    def share(number: float | None) -> Markup | None:
        if number is None:
            return None
        value = Value(number, units.SHARE, "computed", SHARED_SAYS)
        return folio.text.shown_alike(value, SHARED, SHARED_SAYS)

    return Calibrated(
        num_outcomes=found.num_outcomes,
        within=share(found.within_share),
        memory=share(found.errors["peak_bytes"]),
        time=share(found.errors["step_seconds"]),
        num_correct=found.num_correct,
        num_choices=found.num_choices,
    )


def charts(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """A panel for memory and one for time: what was expected across, what was measured up."""
    words = folio.ui["machines"]
    outcomes = calibrating.predicted(measured)
    found = []
    for quantity in calibrating.QUANTITIES:
        unit, size = SCALES[quantity]
        dots = [_dot(one, size) for one in outcomes if one.quantity == quantity and one.counts]
        dots = [one for one in dots if min(one.expected, one.measured) > 0]
        if dots:
            drawn = drawing.predicted(
                dots, f"{words['expected']}, {unit}", f"{words['measured']}, {unit}"
            )
            name = f"predicted-{quantity.partition('_')[0]}"
            described = _described(dots, words)
            svg = drawn.svg(name, words[quantity], described, "pb-panel")
            found.append((words[quantity], svg))
    return found


def _dot(one: Predicted, size: float) -> Dot:
    unit = UNITS[one.quantity]
    assert one.outcome is not None
    expected, outcome = (
        units.printed(number, unit, units.AS_RULED)
        for number in (one.expected.expected, one.outcome)
    )
    return Dot(
        one.expected.expected / size,
        one.outcome / size,
        one.is_within,
        f"{one.path}: {expected}, {outcome}",
    )


def _described(dots: Sequence[Dot], words: dict[str, str]) -> str:
    return words["chart"].format(n=len(dots), m=sum(one.is_within for one in dots))


def judged_on(name: str, folio: Folio) -> dict[str, Outcome]:
    """What a machine says of the claims whose runs it has measured itself."""
    if name in folio.other_outcomes:
        return folio.other_outcomes[name].outcomes
    return {
        claim: outcome
        for claim, outcome in folio.outcomes.items()
        if outcome.runs and measured_by(outcome, folio) == name
    }


def beside(name: str, folio: Folio) -> list[Beside]:
    """A machine beside every other one: where their verdicts part."""
    here = judged_on(name, folio)
    found = []
    for other in folio.book.machines:
        there = {} if other == name else judged_on(other, folio)
        shared = [claim for claim in here if claim in there]
        if shared:
            rows = [
                _other_verdict(claim, here[claim], there[claim], folio)
                for claim in shared
                if parts(here[claim], there[claim])
            ]
            found.append(
                Beside(
                    other,
                    len(shared),
                    tuple(row for row in rows if row.kind == "observation"),
                    tuple(row for row in rows if row.kind == "law"),
                )
            )
    return found


def _other_verdict(name: str, here: Outcome, there: Outcome, folio: Folio) -> OtherVerdict:
    words = folio.ui["verdicts"]
    told = there if there.verdict != "holds" else here
    return OtherVerdict(
        claim=name,
        kind=here.claim.kind,
        says=folio.line(here.claim.says),
        here=side(here.observed, folio),
        here_words=words[here.verdict],
        here_css=css_of(here),
        there=side(there.observed, folio),
        there_words=words[there.verdict],
        there_css=css_of(there),
        why=folio.line(told.explanation),
    )

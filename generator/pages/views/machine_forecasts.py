"""The forecasts of a machine's page: predicted, measured, error, and the scores of all of them.

In: a machine's folder as read. Out: rows for the tables of the template. Each forecast is shown
beside the floor: the error of predicting a rerun from its predecessor on the same machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from generator.content.shelf import Measured
from generator.evidence import calibration as calibrating
from generator.evidence import choices as choosing
from generator.evidence import units
from generator.evidence.calibration import PROMISED_SHARE, Calibration, Coverage, Predicted
from generator.evidence.choices import Chosen, RuleScore, Score
from generator.evidence.folio import Folio
from generator.evidence.regime import is_crowded
from generator.evidence.units import Unit
from generator.evidence.value import Kind, Origin, Value
from generator.figures.drawings import predicted as drawing
from generator.figures.drawings.predicted import Dot
from runners.traces.backtest import MOST_FLOORS, Aim
from runners.traces.backtest import NEAR_SHARE as NEAR
from runners.traces.records import Run
from runners.traces.reruns import NEAR_SHARE, QUANTITIES, Floor, Quantity

UNITS: dict[Quantity, Unit] = {"peak_bytes": units.BYTES, "step_seconds": units.SECONDS}
SCALES: dict[Quantity, tuple[str, float]] = {
    "peak_bytes": ("MiB", 2.0**20),
    "step_seconds": ("ms", 1e-3),
}
ERROR, ERROR_SAYS = "predicted-off", "(predicted − measured) / measured"
RERUN, RERUN_SAYS = "rerun-off", "(first measurement − rerun) / rerun"
REGRET, REGRET_SAYS = "regret", "measured of the predicted run / least measured − 1"
SHARED, SHARED_SAYS = "calibration", "from the forecasts and outcomes of this machine"
FLOOR, FLOOR_SAYS = "floor", "from runs that this machine measured twice (reruns.json)"
PROMISE, PROMISE_SAYS = "promise", "what an interval of a forecast promises to hold"
LEFT_OUT, LEFT_OUT_SAYS = "left-out", "from the runs of each experiment, fitted on the others"
BACKTEST, BACKTEST_SAYS = "backtest", "python -m runners simulate --score"
AIM, AIM_SAYS = "aim", "what the forecasts of today aim at"
AIM_FLOORS_SAYS = f"{MOST_FLOORS} × error of a rerun"
SKILL, SKILL_SAYS = "skill", "1 − mean regret of the forecasts / mean regret of the rule"


@dataclass(frozen=True)
class AimRow:
    """A score of today's forecasts beside its aim; `is_met` is None where there is no aim.

    Attributes:
        joins: the word before `num`, which a share and a median join differently.
    """

    what: str
    of: Markup
    found: Markup
    joins: str
    num: int
    aim: Markup | None
    is_met: bool | None


@dataclass(frozen=True)
class FloorInPrint:
    """How well reruns are predicted from their predecessors."""

    num_pairs: int
    median_error: Markup
    near_share: Markup
    near: Markup


@dataclass(frozen=True)
class CalibrationRow:
    """How good the forecasts of one quantity were; `shortfall` is None where none is."""

    quantity: str
    num_outcomes: int
    promised: Markup
    within: Markup
    shortfall: Markup | None
    median_error: Markup | None
    floor: FloorInPrint | None


@dataclass(frozen=True)
class LeftOutRow:
    """Coverage with constants that were fitted without the experiment that is scored."""

    quantity: str
    num_outcomes: int
    promised: Markup
    within: Markup
    shortfall: Markup | None


@dataclass(frozen=True)
class PredictedRow:
    """A number that was predicted, beside its outcome; `rerun` is the error of a rerun."""

    run: str
    quantity: str
    predicted: Markup
    measured: Markup
    error: Markup | None
    rerun: Markup | None
    is_within: bool
    counts: bool
    why: str


@dataclass(frozen=True)
class PredictedGroup:
    """What was predicted of one experiment, and how much of it lay within its interval."""

    experiment: str
    outcomes: tuple[Predicted, ...]
    num_within: int
    num_outcomes: int


@dataclass(frozen=True)
class PredictedTable:
    """The same with a row for each number that was predicted."""

    group: PredictedGroup
    rows: tuple[PredictedRow, ...]


@dataclass(frozen=True)
class ChoiceRow:
    """A choice among runs: which was expected to be best, which was, and what it cost."""

    experiment: str
    question: str
    by: str
    predicted: str
    best: str | None
    regret: Markup | None
    verdict: str
    counts: bool
    why: str


@dataclass(frozen=True)
class ScoreRow:
    """The picks of the forecasts, or of a trivial rule; `skill` is that of the forecasts."""

    name: str
    num: int
    num_right: int
    num_decided: int
    median_regret: Markup
    worst_regret: Markup
    skill: Markup | None
    is_worse: bool


@dataclass(frozen=True)
class ScoreTable:
    """The picks by one quantity: of the forecasts first, then of each trivial rule."""

    quantity: str
    rows: tuple[ScoreRow, ...]


def _percent(number: float, name: str, says: str, folio: Folio, digits: int = 2) -> Markup:
    value = Value(number, units.RATIO, "computed", says).shown(digits=digits, way="percent")
    return folio.text.shown_alike(value, name, says)


def calibrated(measured: Measured, folio: Folio) -> list[CalibrationRow]:
    """How good a machine's forecasts were; empty where none can be scored."""
    return [_calibration(one, folio) for one in calibrating.calibrations(measured)]


def left_out(measured: Measured, folio: Folio) -> list[LeftOutRow]:
    """How the fitted constants do on experiments that they were not fitted on."""
    return [
        LeftOutRow(
            quantity=folio.ui["machines"][quantity],
            num_outcomes=one.num_outcomes,
            promised=_promise(folio),
            within=_within(one, LEFT_OUT, LEFT_OUT_SAYS, folio),
            shortfall=_shortfall(one, folio),
        )
        for quantity, one in calibrating.left_out(measured).items()
    ]


def _promise(folio: Folio) -> Markup:
    value = Value(PROMISED_SHARE, units.SHARE, "given", PROMISE_SAYS)
    return folio.text.shown_alike(value, PROMISE, PROMISE_SAYS)


def _calibration(one: Calibration, folio: Folio) -> CalibrationRow:
    error = one.median_error
    return CalibrationRow(
        quantity=folio.ui["machines"][one.quantity],
        num_outcomes=one.coverage.num_outcomes,
        promised=_promise(folio),
        within=_within(one.coverage, SHARED, SHARED_SAYS, folio),
        shortfall=_shortfall(one.coverage, folio),
        median_error=None if error is None else _percent(error, SHARED, SHARED_SAYS, folio),
        floor=_floor(one.floor, folio),
    )


def _within(coverage: Coverage, name: str, says: str, folio: Folio) -> Markup:
    """The share of outcomes within their intervals, to a tenth of a percent."""
    return _percent(coverage.share, name, says, folio, _to_tenths(100 * coverage.share))


def _to_tenths(number: float) -> int:
    """How many significant digits show a number up to 100 to its tenths; 100 is whole."""
    return min(3, 1 + len(str(int(number)))) if number >= 1 else 1


def _shortfall(coverage: Coverage, folio: Folio) -> Markup | None:
    """From the share as it is printed, in percentage points; None where the promise is kept."""
    if not coverage.shortfall:
        return None
    points = round(100 * PROMISED_SHARE - round(100 * coverage.share, 1), 1)
    value = Value(points, units.PLAIN, "computed", SHARED_SAYS).shown(digits=_to_tenths(points))
    return folio.text.shown_alike(value, SHARED, SHARED_SAYS)


def _floor(one: Floor | None, folio: Folio) -> FloorInPrint | None:
    if one is None:
        return None
    near = Value(NEAR_SHARE, units.SHARE, "given", FLOOR_SAYS)
    return FloorInPrint(
        num_pairs=one.num_pairs,
        median_error=_percent(one.median_error, FLOOR, FLOOR_SAYS, folio),
        near_share=_percent(one.near_share, FLOOR, FLOOR_SAYS, folio),
        near=folio.text.shown_alike(near, "near", FLOOR_SAYS),
    )


def backtest(measured: Measured, folio: Folio) -> list[AimRow]:
    """How near today's forecasts come to a machine's runs, each number beside its aim."""
    return [] if measured.score is None else [_aim(one, folio) for one in measured.score.aims()]


def _aim(one: Aim, folio: Folio) -> AimRow:
    words = folio.ui["machines"]
    near = _given(NEAR, folio) if one.name == "near" else Markup("")
    return AimRow(
        what=words["peak_bytes" if one.name == "near" else "step_seconds"],
        of=Markup(escape(words["backtested"][one.name])).replace("{near}", near),
        found=_percent(one.found, BACKTEST, BACKTEST_SAYS, folio),
        joins=words["scored"][one.name],
        num=one.num,
        aim=_bounds(one, folio),
        is_met=one.is_met,
    )


def _bounds(one: Aim, folio: Folio) -> Markup | None:
    """Between what a score should be; None where that cannot be told."""
    words = folio.ui["machines"]["aims"]
    if one.low is not None and one.high is not None:
        bounds = _given(one.low, folio), _given(one.high, folio)
        return Markup(escape(words["between"])).format(*bounds)
    if one.low is not None:
        return Markup(escape(words["at_least"])).format(_given(one.low, folio))
    if one.high is None:
        return None
    if one.name != "median_error":
        return Markup(escape(words["at_most"])).format(_given(one.high, folio))
    high = _percent(one.high, "aim-floors", AIM_FLOORS_SAYS, folio)
    return Markup(escape(words["at_most"])).format(high)


def _given(share: float, folio: Folio) -> Markup:
    value = Value(share, units.SHARE, "given", AIM_SAYS).shown(digits=2, way="percent")
    return folio.text.shown_alike(value, AIM, AIM_SAYS)


def floors(measured: Measured, folio: Folio) -> list[tuple[str, FloorInPrint]]:
    """The floor of peaks and of step times, as far as runs were measured twice."""
    found = [(one, calibrating.floor_of(measured, one)) for one in QUANTITIES]
    printed = [(folio.ui["machines"][name], _floor(one, folio)) for name, one in found]
    return [(name, one) for name, one in printed if one is not None]


def predicted(measured: Measured) -> list[PredictedGroup]:
    """What a machine predicted of the runs that it did not skip, and how much was within."""
    groups: dict[str, list[Predicted]] = {}
    for one in calibrating.predicted(measured):
        if _run_of(one, measured).status == "skipped":
            continue
        groups.setdefault(one.path.partition(".")[0], []).append(one)
    return [
        PredictedGroup(
            experiment=name,
            outcomes=tuple(outcomes),
            num_within=sum(one.is_within for one in outcomes if one.counts),
            num_outcomes=sum(one.counts for one in outcomes),
        )
        for name, outcomes in sorted(groups.items())
    ]


def predicted_of(experiment: str, measured: Measured, folio: Folio) -> PredictedTable | None:
    """What a machine predicted of one experiment, beside the outcomes; None where nothing."""
    group = next((one for one in predicted(measured) if one.experiment == experiment), None)
    if group is None:
        return None
    reruns = {one: calibrating.rerun_errors(measured, one) for one in QUANTITIES}
    rows = (
        _row(one, reruns[one.quantity].get(one.path), measured, folio) for one in group.outcomes
    )
    return PredictedTable(group, tuple(rows))


def _row(one: Predicted, rerun: float | None, measured: Measured, folio: Folio) -> PredictedRow:
    words = folio.ui["machines"]
    is_scored = one.error is not None and one.counts
    return PredictedRow(
        run=one.path.partition(".")[2],
        quantity=words[one.quantity],
        predicted=folio.show(expected_value(one, measured, words["between"])),
        measured=Markup("–") if one.outcome is None else folio.show(_outcome(one, measured)),
        error=_percent(one.error or 0.0, ERROR, ERROR_SAYS, folio) if is_scored else None,
        rerun=None if rerun is None else _percent(rerun, RERUN, RERUN_SAYS, folio),
        is_within=one.is_within,
        counts=one.counts,
        why=one.left_out or ("" if one.is_before else words["afterwards"]),
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


def _run_of(one: Predicted, measured: Measured) -> Run:
    experiment, _, run = one.path.partition(".")
    return measured.traces[experiment].runs[run]


def _outcome(one: Predicted, measured: Measured) -> Value:
    experiment, _, run = one.path.partition(".")
    trace, measured_run = measured.traces[experiment], _run_of(one, measured)
    nature = measured_run.nature
    origin = Origin(
        measured.machine.name, experiment, run, one.field, trace.recorded_at,
        trace.circumstances.torch, nature=nature, is_crowded=is_crowded(measured_run),
    )  # fmt: skip
    assert one.outcome is not None
    kind: Kind = "simulated" if nature == "simulated" else "measured"
    return Value(one.outcome, UNITS[one.quantity], kind, f"{one.path}.{one.field}", origin=origin)


def choices(measured: Measured, folio: Folio) -> list[ChoiceRow]:
    """Which runs a machine expected to be best, and which were."""
    return [_choice(one, folio) for one in choosing.chosen(measured)]


def _choice(one: Chosen, folio: Folio) -> ChoiceRow:
    words, picked = folio.ui["machines"], one.forecast.expected
    regret = one.regret_of(picked) if one.outcomes else None
    return ChoiceRow(
        experiment=one.forecast.experiment,
        question=one.forecast.question,
        by=words[one.forecast.by],
        predicted=picked,
        best=one.best,
        regret=None if regret is None else _percent(regret, REGRET, REGRET_SAYS, folio),
        verdict=one.verdict_of(picked),
        counts=one.counts,
        why=one.left_out or ("" if one.is_before else words["afterwards"]),
    )


def scores(measured: Measured, folio: Folio) -> list[ScoreTable]:
    """The forecasts' picks beside those of trivial rules, for times and peaks apart."""
    found, words = choosing.chosen(measured), folio.ui["machines"]
    tables = []
    for by in ("step_seconds", "peak_bytes"):
        ours = choosing.score_of(found, by)
        if ours is not None:
            rules = (_rule(one, folio) for one in choosing.rule_scores(found, by))
            rows = (_score(words["rules"]["forecast"], ours, None, folio), *rules)
            tables.append(ScoreTable(words[by], rows))
    return tables


def _rule(one: RuleScore, folio: Folio) -> ScoreRow:
    return _score(folio.ui["machines"]["rules"][one.rule], one.score, one.skill, folio)


def _score(name: str, one: Score, skill: float | None, folio: Folio) -> ScoreRow:
    in_print = None
    if skill is not None:
        value = Value(skill, units.RATIO, "computed", SKILL_SAYS).shown(digits=2)
        in_print = folio.text.shown_alike(value, SKILL, SKILL_SAYS)
    return ScoreRow(
        name=name,
        num=one.num,
        num_right=one.num_right,
        num_decided=one.num_decided,
        median_regret=_percent(one.median_regret, REGRET, REGRET_SAYS, folio),
        worst_regret=_percent(one.worst_regret, REGRET, REGRET_SAYS, folio),
        skill=in_print,
        is_worse=skill is not None and skill < 0,
    )


def charts(measured: Measured, folio: Folio) -> list[tuple[str, Markup]]:
    """A panel for memory and one for time: what was expected across, what was measured up."""
    words, log = folio.ui["machines"], folio.ui["figure"]["log_scale"]
    outcomes = calibrating.predicted(measured)
    found = []
    for quantity in QUANTITIES:
        unit, size = SCALES[quantity]
        dots = [_dot(one, size) for one in outcomes if one.quantity == quantity and one.counts]
        dots = [one for one in dots if min(one.expected, one.measured) > 0]
        if dots:
            titles = (f"{words[axis]}, {unit}, {log}" for axis in ("expected", "measured"))
            drawn = drawing.predicted(dots, *titles)
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

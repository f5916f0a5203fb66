"""Sealed forecasts, and what came of them: configurations near a device's limit, and the suite.

In: the committed forecasts and the outcomes of each machine, if there are any. Out: rows with each
forecast, beside it the outcome on each machine, and a score for each machine with every miss.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import get_args

from markupsafe import Markup, escape

from generator.content.shelf import page_of
from generator.content.typesetting import moment
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.value import Origin, Value, computed
from runners.traces.plan_grid import experiment_of
from runners.traces.sealed_forecasts import (
    EXPERIMENT,
    OUTCOMES,
    LimitForecast,
    LimitOutcome,
    Sealed,
    SealedOutcomes,
    SuiteForecast,
    run_of,
)
from runners.traces.sealed_score import LARGE_ERROR, Pair, What, score

OFF, OFF_SAYS = "sealed-error", "(predicted − measured) / measured"
MEDIAN, MEDIAN_SAYS = "sealed-median", "the median of |predicted − measured| / measured"
MARGIN, MARGIN_SAYS = "sealed-margin", "limit − needs at least"


@dataclass(frozen=True)
class Beside:
    """A forecast number, its outcome on a machine, and the error; None where they are equal."""

    kind: str
    run: str
    id: str
    predicted: Markup
    measured: Markup
    error: Markup | None
    misses: bool


@dataclass(frozen=True)
class NearOutcome:
    """What came of a configuration on a machine."""

    fits: bool
    is_right: bool
    phase: str | None
    numbers: tuple[Beside, ...]


@dataclass(frozen=True)
class NearRow:
    """A configuration near a limit, with its outcome on each machine; None where it did not run."""

    run: str
    model: str
    page: str | None
    how: Markup
    microbatch: Markup
    sequence: Markup
    allocated: Markup
    reserved: Markup
    least: Markup
    margin: Markup
    fits: bool
    outcomes: tuple[NearOutcome | None, ...]


@dataclass(frozen=True)
class Device:
    """The configurations near the limit of a device."""

    gib: int
    limit: Markup
    rows: tuple[NearRow, ...]


@dataclass(frozen=True)
class SuiteRow:
    """A run of the book, with peak and payload on each machine; None where it did not run."""

    run: str
    name: str
    ranks: int
    peak: Markup
    payload: Markup
    outcomes: tuple[tuple[Beside | None, Beside | None], ...]


@dataclass(frozen=True)
class ScoreRow:
    """How far one kind of number is off on a machine."""

    kind: str
    median: Markup
    count: int
    num_missing: int


@dataclass(frozen=True)
class OnMachine:
    """The score of a machine, with every miss."""

    id: str
    machine: str
    page: str | None
    device: str
    recorded_at: str
    torch: str
    raw: str
    scores: tuple[ScoreRow, ...]
    misses: tuple[Beside, ...]
    wrong: tuple[tuple[str, str], ...]  # the run and the id of each wrong verdict
    num_verdicts: int


@dataclass(frozen=True)
class SealedPage:
    """The page of sealed forecasts.

    Attributes:
        suite: the runs that were simulated, by experiment and the page of its runs.
        left_out: the other runs, by the reason.
        why: that reason in words, where an author has found them.
    """

    sealed: Sealed
    raw: str
    most_error: float
    machines: tuple[OnMachine, ...]
    devices: tuple[Device, ...]
    suite: tuple[tuple[str, str | None, tuple[SuiteRow, ...]], ...]
    num_runs: int
    left_out: Mapping[str, tuple[str, ...]]
    why: Mapping[str, Markup]


def sealed(folio: Folio) -> SealedPage:
    """Every sealed forecast, and its outcome on each machine that has run it."""
    shown = folio.book.traces[EXPERIMENT]
    assert shown.sealed is not None
    folio.text.unmarked = "simulated"
    forecasts, compared = shown.sealed.forecasts, _Comparison(shown.sealed, folio)
    reasons = sorted({one.reason for one in forecasts.suite if one.reason})
    assert folio.book.plan is not None
    assert folio.book.plan.sealed is not None
    words = folio.book.plan.sealed.reasons
    return SealedPage(
        sealed=shown.sealed,
        raw=shown.raw,
        most_error=LARGE_ERROR,
        machines=tuple(map(compared.on_machine, shown.sealed.outcomes)),
        devices=tuple(compared.devices()),
        suite=tuple(compared.suite()),
        num_runs=sum(one.reason is None for one in forecasts.suite),
        left_out={
            reason: tuple(one.id for one in forecasts.suite if one.reason == reason)
            for reason in reasons
        },
        why={
            reason: folio.line(line)
            for reason in reasons
            for begins, line in words.items()
            if reason.startswith(begins)
        },
    )


class _Comparison:
    """Each forecast beside its outcomes."""

    def __init__(self, own: Sealed, folio: Folio) -> None:
        self._own, self._folio = own, folio
        forecasts = own.forecasts
        self._near = {one.id: one for one in forecasts.near_limit}
        self._runs = {one.id: run_of(one) for one in forecasts.suite}
        self._runs |= {one.id: run_of(one) for one in forecasts.near_limit}
        self._scores = {one.machine: score(forecasts, one) for one in own.outcomes}
        self._sources = {
            one.machine: f"{_file(one)}: {one.device}, {moment(one.recorded_at)}, torch {one.torch}"
            for one in own.outcomes
        }
        self._pairs = {
            (machine, pair.id, pair.what): pair
            for machine, found in self._scores.items()
            for pair in found.pairs
        }

    def _value(self, name: str, field: str) -> Value:
        found = self._folio.value(f"{EXPERIMENT}.{self._runs[name]}.{field}")
        assert found is not None, (name, field)
        return found

    def _cell(self, name: str, field: str) -> Markup:
        return self._folio.show(self._value(name, field))

    def _measure(self, name: str, field: str) -> Markup:
        return self._cell(name, f"ranks[0].measures.{field}")

    def _predicted(self, pair: Pair) -> Value:
        """The forecast of a pair: what the allocator reserves ends at the limit."""
        field = f"{pair.what.rpartition(' ')[2]}_bytes"
        if pair.what == "reserved" and pair.forecast == self._near[pair.id].limit_bytes:
            return self._value(pair.id, "settings.limit_bytes")
        return self._value(pair.id, f"ranks[0].measures.{field}")

    def _off(self, machine: str, pair: Pair) -> tuple[Value, Value, Value]:
        """Forecast, outcome, and the error of the one against the other."""
        predicted = self._predicted(pair)
        field = f"{pair.what} of {pair.id}"
        measured = Value(pair.outcome, units.BYTES, "measured", field, origin=Origin(machine))
        error = computed(pair.error, units.SHARE, OFF_SAYS, (predicted, measured))
        return predicted, measured, error.shown(way="percent")

    def _beside(self, machine: str, name: str, what: What) -> Beside | None:
        pair = self._pairs.get((machine, name, what))
        if pair is None:
            return None
        words, text, place = self._folio.ui["sealed"], self._folio.text, _anchor(machine)
        predicted, measured, error = self._off(machine, pair)
        is_equal = pair.forecast == pair.outcome
        return Beside(
            kind=words["kinds"][what],
            run=self._runs[name],
            id=name,
            predicted=text.show(predicted),
            measured=escape(words["equal"])
            if is_equal
            else text.recorded(measured, place, self._sources[machine], f"#{place}"),
            error=None if is_equal else text.shown_alike(error, OFF, OFF_SAYS),
            misses=pair.is_miss,
        )

    def devices(self) -> Iterator[Device]:
        """The configurations near a limit, by device."""
        near = self._own.forecasts.near_limit
        for gib, group in groupby(near, key=lambda one: one.device_gib):
            own = list(group)
            limit = self._cell(own[0].id, "settings.limit_bytes")
            yield Device(gib, limit, tuple(map(self._near_row, own)))

    def _near_row(self, one: LimitForecast) -> NearRow:
        training, model = one.question["training"], str(one.question["model"]["name"])
        planned = self._folio.book.traces.get(experiment_of(model))
        grid = planned.grid if planned else None
        limit = self._value(one.id, "settings.limit_bytes")
        least = self._value(one.id, "ranks[0].measures.least_reserved_bytes")
        return NearRow(
            run=run_of(one),
            model=grid.title if grid else model,
            page=page_of(experiment_of(model)) if grid else None,
            how=self._how(one.question["strategy"]["name"], training),
            microbatch=self._cell(one.id, "settings.microbatch"),
            sequence=self._cell(one.id, "settings.sequence"),
            allocated=self._measure(one.id, "allocated_bytes"),
            reserved=self._measure(one.id, "reserved_bytes"),
            least=self._folio.show(least),
            margin=self._folio.text.shown_alike(
                (limit - least).shown(way="gib"), MARGIN, MARGIN_SAYS
            ),
            fits=one.fits,
            outcomes=tuple(self._near_outcome(one, own) for own in self._own.outcomes),
        )

    def _how(self, strategy: str, training: Mapping[str, str]) -> Markup:
        """How a configuration trains, in the words of the plan's pages."""
        plan = self._folio.book.plan
        assert plan is not None
        words = plan.words
        parts = [
            words.strategies.get(strategy, strategy),
            words.precision.get(training["precision"], training["precision"]),
            words.optimizer.get(training["optimizer"], training["optimizer"]),
        ]
        checkpointing = training["checkpointing"]
        if checkpointing != "none":
            label = self._folio.ui["plan"]["controls"]["checkpointing"].lower()
            parts.append(f"{label}: {words.checkpointing.get(checkpointing, checkpointing)}")
        return Markup(", ").join(map(self._folio.line, parts))

    def _near_outcome(self, one: LimitForecast, on: SealedOutcomes) -> NearOutcome | None:
        found: LimitOutcome | None = next((it for it in on.near_limit if it.id == one.id), None)
        if found is None:
            return None
        kinds: tuple[What, ...] = ("allocated", "reserved")
        numbers = (self._beside(on.machine, one.id, what) for what in kinds)
        return NearOutcome(
            fits=found.fits,
            is_right=found.fits == one.fits,
            phase=found.phase,
            numbers=tuple(it for it in numbers if it is not None),
        )

    def suite(self) -> Iterator[tuple[str, str | None, tuple[SuiteRow, ...]]]:
        """The runs of the book that were simulated, by experiment."""
        runs = (one for one in self._own.forecasts.suite if one.reason is None)
        for name, group in groupby(runs, key=lambda one: one.experiment):
            page = page_of(name) if name in self._folio.book.traces else None
            yield name, page, tuple(map(self._suite_row, group))

    def _suite_row(self, one: SuiteForecast) -> SuiteRow:
        return SuiteRow(
            run=run_of(one),
            name=one.run,
            ranks=one.num_ranks,
            peak=self._measure(one.id, "peak_bytes"),
            payload=self._measure(one.id, "payload_bytes"),
            outcomes=tuple(
                (
                    self._beside(own.machine, one.id, "suite peak"),
                    self._beside(own.machine, one.id, "suite payload"),
                )
                for own in self._own.outcomes
            ),
        )

    def on_machine(self, own: SealedOutcomes) -> OnMachine:
        """How the forecasts did there."""
        scored, machine = self._scores[own.machine], own.machine
        beside = partial(self._beside, machine)
        misses = (beside(one.id, one.what) for one in scored.misses)
        return OnMachine(
            id=_anchor(machine),
            machine=machine,
            page=f"machines/{machine}.html" if machine in self._folio.book.machines else None,
            device=own.device,
            recorded_at=own.recorded_at,
            torch=own.torch,
            raw=f"plans/{_file(own)}",
            scores=tuple(self._score_rows(machine)),
            misses=tuple(one for one in misses if one is not None),
            wrong=tuple((self._runs[name], name) for name in scored.wrong_verdicts),
            num_verdicts=scored.num_verdicts,
        )

    def _score_rows(self, machine: str) -> Iterator[ScoreRow]:
        scored = self._scores[machine]
        for what in get_args(What):
            median, pairs = scored.median_error(what), scored.of(what)
            if median is not None:
                offs = tuple(self._off(machine, pair)[2] for pair in pairs)
                value = computed(median, units.SHARE, MEDIAN_SAYS, offs).shown(way="percent")
                yield ScoreRow(
                    kind=self._folio.ui["sealed"]["kinds"][what],
                    median=self._folio.text.shown_alike(value, MEDIAN, MEDIAN_SAYS),
                    count=len(pairs),
                    num_missing=sum(one.is_miss for one in pairs),
                )


def _anchor(machine: str) -> str:
    """Where the page says what a machine recorded."""
    return f"outcomes-{re.sub(r'[^a-z0-9]+', '-', machine.lower())}"


def _file(outcomes: SealedOutcomes) -> str:
    """The file of a machine's outcomes, under the content."""
    return f"{OUTCOMES}/{outcomes.machine}.json"

"""Forecasts that were sealed before any accelerator was seen, and what came of them. No torch.

In: content/sealed_forecasts.json, whose SHA-256 stands beside it, and one file a machine in
content/sealed_outcomes. Out: typed records, and a `Score` of a machine. Forecasts are written once
(`python -m runners plan --seal`); outcomes (`--outcomes`) are written beside them.

Bytes are of the busiest rank. `peak_bytes` are tensor bytes, as the memory meter counts them;
`allocated_bytes` and `reserved_bytes` those of CUDA's caching allocator.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import Field

from runners.planning.question import Question
from runners.simulate.log import Call
from runners.traces.files import write_json
from runners.traces.measured import MemoryClasses
from runners.traces.schema import Record

CONTENT = Path(__file__).resolve().parents[2] / "content"
FORECASTS = CONTENT / "sealed_forecasts.json"
OUTCOMES = CONTENT / "sealed_outcomes"
GIB = 2**30
LARGE_ERROR = 0.15  # a forecast that errs by more is a miss
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class SealedError(ValueError):
    """Forecasts and their hash, or outcomes and their forecasts, do not belong together."""


class SuiteForecast(Record):
    """A run of the book on accelerators, one for each rank, over NCCL."""

    experiment: str
    run: str
    num_ranks: int
    peak_bytes: int | None = Field(description="null where the run is not simulated")
    payload_bytes: dict[str, int] = Field(description="of a step, by collective")
    reason: str | None = Field(description="why it is not simulated")

    @property
    def id(self) -> str:
        """As commands name the run."""
        return f"{self.experiment}.{self.run}"


class LimitForecast(Record):
    """A configuration whose memory is about as large as a device's."""

    id: str
    question: Question
    device_gib: int = Field(description="nominal memory of the device")
    limit_bytes: int = Field(description="what the allocator may reserve there")
    fits: bool = Field(description="whether the step completes within the limit")
    peak_bytes: int
    at_peak: MemoryClasses
    allocated_bytes: int
    reserved_bytes: int = Field(description="without a limit")
    least_reserved_bytes: int = Field(description="the smallest limit in which it fits")
    num_parameters: int
    flops: int = Field(description="of a step")
    payload: list[Call] = Field(description="of a step")
    seconds_at_least: float | None = Field(
        description="of a step, FLOPs by the cited rate; null where none is cited"
    )
    rate: str | None = Field(description="which rate, and who states it")


class SealedForecasts(Record):
    """content/sealed_forecasts.json."""

    version: Literal[1] = 1
    made_at: str = Field(description="UTC")
    commit: str = Field(description="of the code that made them")
    torch: str
    python: str
    suite: list[SuiteForecast]
    near_limit: list[LimitForecast]


class SuiteOutcome(Record):
    """What the same run recorded on a machine."""

    id: str
    peak_bytes: int | None
    payload_bytes: dict[str, int]


class LimitOutcome(Record):
    """What came of a configuration on a device, whose allocator was limited as forecast."""

    id: str
    fits: bool
    phase: str | None = Field(description="in which it ran out of memory")
    peak_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    num_retries: int = Field(description="requests for which the allocator released its cache")
    step_seconds: float | None


class SealedOutcomes(Record):
    """content/sealed_outcomes/<machine>.json."""

    version: Literal[1] = 1
    forecasts_sha256: Sha256
    machine: str
    recorded_at: str = Field(description="UTC")
    device: str
    device_bytes: int
    torch: str
    suite: list[SuiteOutcome]
    near_limit: list[LimitOutcome]


class Pair(Record):
    """One forecast beside its outcome."""

    id: str
    what: Literal["suite peak", "suite payload", "allocated", "reserved"]
    forecast: int
    outcome: int

    @property
    def error(self) -> float:
        """Relative to the outcome."""
        return self.forecast / self.outcome - 1 if self.outcome else float(self.forecast > 0)

    @property
    def is_miss(self) -> bool:
        """Whether it errs by more than 15 %."""
        return abs(self.error) > LARGE_ERROR


class Score(Record):
    """How forecasts did on a machine."""

    pairs: list[Pair]
    wrong_verdicts: list[str] = Field(description="which fit and were not to, or the reverse")
    num_verdicts: int

    def median_error(self, what: str) -> float | None:
        """Median of the absolute relative errors of one kind; None without any."""
        errors = [abs(one.error) for one in self.pairs if one.what == what]
        return median(errors) if errors else None

    @property
    def misses(self) -> list[Pair]:
        """Each forecast that errs by more than 15 %."""
        return [one for one in self.pairs if one.is_miss]


def sha256_of(path: Path = FORECASTS) -> str:
    """The digest of the file as it is."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seal_path(path: Path = FORECASTS) -> Path:
    """The file beside, in the form of `sha256sum`."""
    return path.with_name(f"{path.name}.sha256")


def write_forecasts(forecasts: SealedForecasts, path: Path = FORECASTS) -> None:
    """Write forecasts and their hash, once.

    Raises:
        SealedError: there are some.
    """
    if path.exists():
        raise SealedError(f"{path.name} is sealed: {read_forecasts(path).made_at}")
    write_json(path, forecasts.model_dump(mode="json"))
    seal_path(path).write_text(f"{sha256_of(path)}  {path.name}\n", encoding="utf-8")


def read_forecasts(path: Path = FORECASTS) -> SealedForecasts:
    """The forecasts, if they are those that were sealed.

    Raises:
        SealedError: file and hash do not agree.
        OSError: one of them is missing.
        ValueError: the file is not what it should be.
    """
    stated = seal_path(path).read_text(encoding="utf-8").split()
    if stated != [sha256_of(path), path.name]:
        raise SealedError(f"{path.name} is not the file that {seal_path(path).name} sealed")
    return SealedForecasts.model_validate_json(path.read_text(encoding="utf-8"))


def read_outcomes(folder: Path = OUTCOMES, path: Path = FORECASTS) -> list[SealedOutcomes]:
    """The outcomes of every machine, by its name; none where nothing was measured yet.

    Raises:
        SealedError: outcomes of other forecasts.
    """
    found = [
        SealedOutcomes.model_validate_json(file.read_text(encoding="utf-8"))
        for file in sorted(folder.glob("*.json"))
    ]
    for one in found:
        if one.forecasts_sha256 != sha256_of(path):
            raise SealedError(f"{one.machine}: outcomes of other forecasts")
    return found


def score(forecasts: SealedForecasts, outcomes: SealedOutcomes) -> Score:
    """Compare; what a machine did not run is left out."""
    by_id = {one.id: one for one in forecasts.near_limit}
    verdicts = [(one.id, one.fits == by_id[one.id].fits) for one in outcomes.near_limit]
    return Score(
        pairs=[*_suite_pairs(forecasts.suite, outcomes.suite), *_limit_pairs(by_id, outcomes)],
        wrong_verdicts=[name for name, is_right in verdicts if not is_right],
        num_verdicts=len(verdicts),
    )


def _suite_pairs(
    forecasts: Sequence[SuiteForecast], outcomes: Sequence[SuiteOutcome]
) -> Iterator[Pair]:
    by_id = {one.id: one for one in forecasts}
    for outcome in outcomes:
        forecast = by_id[outcome.id]
        if forecast.peak_bytes is not None and outcome.peak_bytes is not None:
            yield Pair(
                id=outcome.id,
                what="suite peak",
                forecast=forecast.peak_bytes,
                outcome=outcome.peak_bytes,
            )
            yield Pair(
                id=outcome.id,
                what="suite payload",
                forecast=sum(forecast.payload_bytes.values()),
                outcome=sum(outcome.payload_bytes.values()),
            )


def _limit_pairs(by_id: dict[str, LimitForecast], outcomes: SealedOutcomes) -> Iterator[Pair]:
    for outcome in outcomes.near_limit:
        forecast = by_id[outcome.id]
        if not outcome.fits:
            continue  # it ended before its peak
        yield Pair(
            id=outcome.id,
            what="allocated",
            forecast=forecast.allocated_bytes,
            outcome=outcome.allocated_bytes,
        )
        yield Pair(
            id=outcome.id,
            what="reserved",
            forecast=min(forecast.reserved_bytes, forecast.limit_bytes),
            outcome=outcome.reserved_bytes,
        )


def lines(scored: Score) -> list[str]:
    """The score, and each miss."""
    kinds = dict.fromkeys(one.what for one in scored.pairs)
    rows = [
        f"{kind}: median error {scored.median_error(kind) or 0.0:.1%} over "
        f"{sum(one.what == kind for one in scored.pairs)}"
        for kind in kinds
    ]
    right = scored.num_verdicts - len(scored.wrong_verdicts)
    rows.append(f"fits or not: {right} of {scored.num_verdicts} as forecast")
    rows += [f"    wrong: {name}" for name in scored.wrong_verdicts]
    rows += [
        f"    {one.what} of {one.id}: {one.forecast} bytes forecast, {one.outcome} found, "
        f"{one.error:+.1%}"
        for one in scored.misses
    ]
    return rows

"""Forecasts that were sealed before any accelerator was seen, and what came of them. No torch.

In: content/sealed_forecasts.json, whose SHA-256 stands beside it, and one file for each machine in
content/sealed_outcomes. Out: typed records, and the forecasts as a trace with a simulated run for
each: `plan_sealed.RUN.ranks[0].measures.peak_bytes`. `sealed_score.py` compares the two.

`python -m runners plan --seal` wrote the forecasts, once; `--outcomes` writes outcomes beside them.
Bytes are of the busiest rank. `peak_bytes` are tensor bytes, as the memory meter counts them;
`allocated_bytes` and `reserved_bytes` those of CUDA's caching allocator.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from runners.traces.files import TraceError, read_record
from runners.traces.measured import MemoryClasses, Timing
from runners.traces.plan_grid import PREFIX
from runners.traces.records import Circumstances, Code, RankRecord, Run, Trace
from runners.traces.schema import Record, Setting

EXPERIMENT = f"{PREFIX}sealed"
FILE = "sealed_forecasts.json"  # of the content
OUTCOMES = "sealed_outcomes"  # of the content, with a file for each machine
QUESTION = "What will runs need on accelerators that nobody here has seen?"
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


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

    @property
    def sent_bytes(self) -> int:
        """Payload of a step, over all collectives."""
        return sum(self.payload_bytes.values())


class LimitForecast(Record):
    """A configuration whose memory is about as large as a device's.

    `question` is a `runners.planning.question.Question` and `payload` holds
    `runners.simulate.log.Call`s, each as JSON.
    """

    id: str
    question: dict[str, Any]
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
    payload: list[dict[str, Any]] = Field(description="of a step")
    seconds_at_least: float | None = Field(
        description="of a step, FLOPs by the cited rate; null where none is cited"
    )
    rate: str | None = Field(description="which rate, and who states it")

    @property
    def reserved_within_limit_bytes(self) -> int:
        """What the allocator reserves where it may not reserve more than the limit."""
        return min(self.reserved_bytes, self.limit_bytes)


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

    @property
    def sent_bytes(self) -> int:
        """Payload of a step, over all collectives."""
        return sum(self.payload_bytes.values())


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


@dataclass(frozen=True)
class Sealed:
    """The sealed forecasts, the digest of their file, and the outcomes on each machine."""

    forecasts: SealedForecasts
    sha256: str
    outcomes: tuple[SealedOutcomes, ...] = ()


def sha256_of(path: Path) -> str:
    """The digest of the file as it is."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def seal_path(path: Path) -> Path:
    """The file beside, in the form of `sha256sum`."""
    return path.with_name(f"{path.name}.sha256")


def read_sealed(path: Path) -> Sealed | None:
    """Read content/sealed_forecasts.json and all outcomes; None where nothing was sealed.

    Raises:
        TraceError: as `read_forecasts` and `read_outcomes`.
    """
    if not path.exists() and not seal_path(path).exists():
        return None
    forecasts = read_forecasts(path)
    return Sealed(forecasts, sha256_of(path), tuple(read_outcomes(path)))


def read_forecasts(path: Path) -> SealedForecasts:
    """The forecasts, if they are those that were sealed.

    Raises:
        TraceError: one of the two files is missing, they do not agree, or a field is not what it
            should be.
    """
    seal = seal_path(path)
    for file in (path, seal):
        if not file.is_file():
            raise TraceError(f"{file}: missing; restore it from git")
    if seal.read_text(encoding="utf-8", errors="replace").split() != [sha256_of(path), path.name]:
        raise TraceError(f"{path}: is not the file that {seal.name} sealed; restore both from git")
    return read_record(path, SealedForecasts)


def read_outcomes(path: Path) -> list[SealedOutcomes]:
    """The outcomes of every machine, by its name; none where nothing was measured yet.

    Args:
        path: the forecasts, beside which the folder of outcomes stands.

    Raises:
        TraceError: they are outcomes of other forecasts, or a file or field is not what it should
            be.
    """
    folder, forecasts = path.with_name(OUTCOMES), read_forecasts(path)
    return [_outcomes(file, folder, forecasts, path) for file in sorted(folder.rglob("*.json"))]


def _outcomes(file: Path, folder: Path, forecasts: SealedForecasts, path: Path) -> SealedOutcomes:
    found = read_record(file, SealedOutcomes)
    stem = file.relative_to(folder).with_suffix("").as_posix()
    strange = [
        *_strange([one.id for one in found.suite], {one.id for one in forecasts.suite}),
        *_strange([one.id for one in found.near_limit], {one.id for one in forecasts.near_limit}),
    ]
    if found.machine != stem:
        raise TraceError(f"{file}: machine: is {found.machine!r}, the file says {stem!r}")
    if found.forecasts_sha256 != sha256_of(path):
        raise TraceError(f"{file}: forecasts_sha256: outcomes of other forecasts; delete the file")
    if strange:
        raise TraceError(f"{file}: {strange[0]!r} has no forecast, or stands there twice")
    return found


def _strange(ids: Sequence[str], known: Set[str]) -> list[str]:
    """Those that have no forecast, or stand twice."""
    return [one for one in ids if one not in known or ids.count(one) > 1]


def run_of(forecast: SuiteForecast | LimitForecast) -> str:
    """The name of a forecast's run."""
    name = re.sub(r"\W", "_", forecast.id)
    return name if isinstance(forecast, SuiteForecast) else f"near_{name}"


def as_trace(forecasts: SealedForecasts) -> Trace:
    """The forecasts as a trace: a simulated run for each that could be simulated."""
    near = {run_of(one): _limit_run(one) for one in forecasts.near_limit}
    suite = {run_of(one): _suite_run(one) for one in forecasts.suite if one.reason is None}
    made_at = f"{datetime.fromisoformat(forecasts.made_at).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return Trace(
        schema_version=2, experiment=EXPERIMENT, question=QUESTION, recorded_at=made_at,
        machine="", code=Code(digest=forecasts.commit[:16], commit=forecasts.commit, dirty=False),
        circumstances=Circumstances(
            python=forecasts.python, torch=forecasts.torch, affinity=None, visible_devices=None,
            huge_pages=None,
        ),
        runs=near | suite,
    )  # fmt: skip


def _limit_run(one: LimitForecast) -> Run:
    training = one.question["training"]
    names = ("precision", "optimizer", "checkpointing", "sequence", "microbatch")
    settings = {
        "model": one.question["model"]["name"],
        "num_ranks": 1,
        **{name: training[name] for name in names},
        "device_gib": one.device_gib,
        "limit_bytes": one.limit_bytes,
        "num_parameters": one.num_parameters,
    }
    measures: dict[str, Setting] = {
        "peak_bytes": one.peak_bytes,
        "allocated_bytes": one.allocated_bytes,
        "reserved_bytes": one.reserved_bytes,
        "least_reserved_bytes": one.least_reserved_bytes,
        "flops": one.flops,
    }
    return _run(one.question["strategy"]["name"], settings, measures)


def _suite_run(one: SuiteForecast) -> Run:
    measures: dict[str, Setting] = {"peak_bytes": one.peak_bytes, "payload_bytes": one.sent_bytes}
    return _run(one.run, {"num_ranks": one.num_ranks}, measures)


def _run(strategy: str, settings: dict[str, Setting], measures: dict[str, Setting]) -> Run:
    rank = RankRecord(
        rank=0, status="completed", failure=None, num_parameters=None, num_samples=None,
        first_parameter_digest=None, start_parameter_digest=None, parameter_digest=None,
        memory=None, collectives=[], measures=measures,
    )  # fmt: skip
    return Run(
        strategy=strategy, world_size=1, backend="nccl", device="cuda", seed=0, settings=settings,
        budget_bytes=None, expected_status="completed", status="completed", reason=None, error=None,
        passes=["metered"], allocator={}, model=None, stages=[], epochs=[], step_losses=[],
        validation=None, prediction=[], ranks=[rank], printed=[], non_finite=[],
        timing=Timing(
            wall_seconds=0.0, oversubscribed=False, step=None, stages={}, prediction={},
            timeline=[], ranks=[],
        ),
        nature="simulated",
    )  # fmt: skip

"""Make the sealed forecasts: the book's runs on accelerators, and models near a device's limit.

In: this checkout, on a machine without an accelerator. Out: `SealedForecasts`. Near a limit lie,
for each way to train in `TRAININGS`, the largest microbatch that fits a device and the next one,
as the simulation sees them.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from runners.planning.answer import Answer, RankPlan
from runners.planning.processes import answers
from runners.planning.question import Model, PlanError, Question, Strategy, Training
from runners.planning.sealed import PATH, question_of
from runners.planning.table import GIB
from runners.plans.experiment import find, names
from runners.plans.model_presets import model_presets
from runners.simulate.log import SimulatedRun
from runners.simulate.suite import CACHE, ROOT, Wanted, cores, failures, simulate, wanted
from runners.traces.records import Run
from runners.traces.sealed_forecasts import (
    LimitForecast,
    SealedForecasts,
    SuiteForecast,
    as_trace,
    read_forecasts,
    run_of,
)

# The limits of the allocator under which runs are forecast, and which `--outcomes` enforces, on
# devices of so many nominal GiB. They do not say what fits (`runners.traces.device_memory`).
LIMITS = {24: 22 * GIB, 40: 38 * GIB, 80: 78 * GIB, 141: 138 * GIB}
# Dense products in bf16 a second, as torchtitan states them for its utilisation (get_peak_flops in
# torchtrain/utils.py at e62573d4, which cites the data sheets).
RATES = {80: (989e12, "H100, torchtitan e62573d4"), 40: (312e12, "A100, torchtitan e62573d4")}
LEAST_SIZES = 2  # of microbatches, through which a line is drawn
MOST_GROWTH = 4  # from one microbatch to the next that is tried
_BF16 = {"precision": "bf16-mixed", "optimizer": "adam"}
TRAININGS: dict[int, list[tuple[str, dict[str, Any]]]] = {
    24: [
        ("gpt2-124m", {**_BF16, "precision": "autocast", "sequence": 1024}),
        ("gpt2-1.5b", {**_BF16, "optimizer": "adam8bit", "sequence": 1024}),
    ],
    40: [
        ("llama-1b", {**_BF16, "sequence": 2048, "checkpointing": "all"}),
        ("gpt2-1.5b", {**_BF16, "sequence": 1024}),
    ],
    80: [
        ("gpt2-1.5b", {**_BF16, "sequence": 1024}),
        ("gpt2-1.5b", {**_BF16, "sequence": 1024, "checkpointing": "all"}),
        ("gpt2-1.5b", {"precision": "fp32", "optimizer": "momentum", "sequence": 512}),
        ("llama-1b", {**_BF16, "sequence": 4096}),
        ("llama-1b", {**_BF16, "precision": "autocast", "sequence": 2048}),
        ("llama-1b", {**_BF16, "sequence": 8192, "checkpointing": "selective"}),
    ],
    141: [
        ("llama-8b", {**_BF16, "optimizer": "adam8bit", "sequence": 2048}),
        ("llama-8b", {**_BF16, "optimizer": "sgd", "sequence": 4096, "checkpointing": "all"}),
    ],
}


def seal() -> SealedForecasts:
    """Simulate everything.

    Raises:
        PlanError: tracked files differ from the commit, which is to say what made the forecasts; or
            a simulation failed.
    """
    commit = _commit()
    runs = simulate(suite(), CACHE / "cuda", cores()).runs
    if failures(runs):
        raise PlanError("; ".join(failures(runs)))
    return SealedForecasts(
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        torch=metadata.version("torch"),
        python=platform.python_version(),
        suite=[_of_run(one) for one in runs],
        near_limit=near_limits(),
    )


def again(names: Sequence[str], path: Path = PATH) -> dict[str, Run]:
    """Sealed forecasts simulated anew by today's code, as runs by their names.

    Raises:
        PlanError: a run cannot be simulated now.
        UnknownRunError: the book has no such run any more.
        TraceError: the forecasts are not those that were sealed.
    """
    forecasts = read_forecasts(path)
    suite = [one for one in forecasts.suite if run_of(one) in names]
    near = [one for one in forecasts.near_limit if run_of(one) in names]
    asked = [question_of(one) for one in near]
    with TemporaryDirectory() as folder:
        runs = simulate(wanted([one.id for one in suite], "cuda") if suite else [], Path(folder))
        found = answers(asked, 1, folder=Path(folder))
    new = forecasts.model_copy(update={
        "suite": [_of_run(one) for one in runs.runs],
        "near_limit": [
            _forecast(one.device_gib, question, _busiest(answer))
            for one, question, answer in zip(near, asked, found, strict=True)
        ],
    })  # fmt: skip
    failed = [one for one in new.suite if one.reason]
    if failed:
        raise PlanError(f"{failed[0].id}: {failed[0].reason}")
    return as_trace(new).runs


def suite() -> list[Wanted]:
    """The runs that `python -m runners run` measures without `--full`."""
    found = []
    for name in names():
        experiment = find(name)
        if not experiment.full:
            light = [run for run, plan in experiment.runs.items() if not plan.full]
            found += [one for one in wanted([name], "cuda") if one.run in light]
    return found


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    if git("status", "--porcelain", "--untracked-files=no", "--", "runners", "content"):
        raise PlanError(
            "commit what you have changed first: forecasts name the code they follow from"
        )
    return git("rev-parse", "HEAD")


def _of_run(run: SimulatedRun) -> SuiteForecast:
    peaks = [one.peak_bytes for one in run.ranks if one.peak_bytes is not None]
    payloads = [one.payload_bytes for one in run.ranks]
    return SuiteForecast(
        experiment=run.experiment,
        run=run.run,
        num_ranks=len(run.ranks) + len(run.like_first),
        peak_bytes=max(peaks, default=None),
        payload_bytes=max(payloads, key=lambda one: sum(one.values()), default={}),
        reason=run.reason,
    )


def near_limits() -> list[LimitForecast]:
    """The configurations on both sides of each limit."""
    searches = [
        _Search(device, preset, how) for device, own in TRAININGS.items() for preset, how in own
    ]
    while asked := [question for one in searches for question in one.asks()]:
        found = answers(asked, cores())
        for one in searches:
            one.hear([answer for answer in found if answer.question in one.asked])
    return [forecast for one in searches for forecast in one.forecasts()]


class _Search:
    """The largest microbatch that fits, and the next one."""

    def __init__(self, device: int, preset: str, how: dict[str, Any]) -> None:
        self._device, self._preset, self._how = device, preset, how
        self._fits: dict[int, RankPlan] = {}
        self._fits_not: dict[int, RankPlan] = {}
        self.asked: list[Question] = []

    def question(self, microbatch: int) -> Question:
        """One update of one microbatch on one device."""
        shape = model_presets()[self._preset].architecture
        return Question(
            model=Model(name=self._preset, architecture=shape),
            training=Training(**self._how, microbatch=microbatch, global_batch=microbatch),
            strategy=Strategy(name="single"),
            seeks_least=True,
        )

    def _next(self) -> int | None:
        """Memory grows by as much with each sample: a line through the two nearest to the limit."""
        if len(known := self._fits | self._fits_not) < LEAST_SIZES:
            return len(known) + 1
        low, high = max(self._fits), min(self._fits_not, default=None)
        if high == low + 1:
            return None
        limit = LIMITS[self._device]
        near = sorted(known, key=lambda size: abs(_least(known[size]) - limit))[:LEAST_SIZES]
        (one, first), (two, second) = ((size, _least(known[size])) for size in sorted(near))
        guess = one + (limit - first) * (two - one) // max(second - first, 1)
        most = high - 1 if high is not None else MOST_GROWTH * low  # a peak may lie in the update
        return max(low + 1, min(guess, most))

    def asks(self) -> Sequence[Question]:
        """What to simulate next; nothing once both neighbours of the limit are known."""
        size = self._next()
        self.asked = [] if size is None else [self.question(size)]
        return self.asked

    def hear(self, found: Sequence[Answer]) -> None:
        """The outcomes.

        Raises:
            PlanError: it cannot be simulated, or not even one sample fits.
        """
        for answer in found:
            rank, size = _busiest(answer), answer.question.training.microbatch
            fits = _least(rank) <= LIMITS[self._device]
            if size == 1 and not fits:
                raise PlanError(f"{self._preset} does not fit {self._device} GiB: {self._how}")
            (self._fits if fits else self._fits_not)[size] = rank

    def forecasts(self) -> list[LimitForecast]:
        """The two that lie beside the limit."""
        low, high = max(self._fits), min(self._fits_not)
        return [
            _forecast(self._device, self.question(low), self._fits[low]),
            _forecast(self._device, self.question(high), self._fits_not[high]),
        ]


def _forecast(device: int, question: Question, rank: RankPlan) -> LimitForecast:
    training = question.training
    rate = RATES.get(device) if training.precision != "fp32" else None
    words = (training.precision, training.optimizer, training.checkpointing)
    size = f"{training.sequence}x{training.microbatch}"
    return LimitForecast(
        id=f"{device}gib-{question.model.name}-{'-'.join(words)}-{size}",
        question=question.model_dump(mode="json"),
        device_gib=device,
        limit_bytes=LIMITS[device],
        fits=_least(rank) <= LIMITS[device],
        peak_bytes=rank.peak_bytes,
        at_peak=rank.at_peak,
        allocated_bytes=rank.allocated_bytes,
        reserved_bytes=rank.reserved_bytes,
        least_reserved_bytes=_least(rank),
        num_parameters=rank.num_parameters,
        flops=rank.flops,
        payload=[one.model_dump(mode="json") for one in rank.calls],
        seconds_at_least=rank.flops / rate[0] if rate else None,
        rate=rate[1] if rate else None,
    )


def _busiest(answer: Answer) -> RankPlan:
    if answer.busiest is None:
        raise PlanError(f"{answer.question.model.name}: {answer.reason}")
    return answer.busiest


def _least(rank: RankPlan) -> int:
    assert rank.least_reserved_bytes is not None
    return rank.least_reserved_bytes

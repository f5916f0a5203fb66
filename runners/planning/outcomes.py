"""Run what was forecast on this machine's accelerator, and write the outcomes.

In: the sealed forecasts, a device, and the traces that `python -m runners run` left for this
machine. Out: `SealedOutcomes`. Each configuration near a limit runs in a process of its own: the
simulated steps' code with real tensors, under the forecast's limit of the allocator.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch

from runners.meters.memory import MemoryMeter
from runners.planning.one_rank import take_steps
from runners.planning.question import PlanError
from runners.planning.sealed import PATH, question_of
from runners.planning.step import Step, repeats
from runners.simulate.suite import ROOT
from runners.system import accelerator
from runners.traces import machine
from runners.traces.files import read
from runners.traces.records import Run
from runners.traces.sealed_forecasts import (
    LimitForecast,
    LimitOutcome,
    SealedForecasts,
    SealedOutcomes,
    SuiteForecast,
    SuiteOutcome,
    read_forecasts,
    sha256_of,
)

NUM_TIMED_STEPS = 3
ROOM_BYTES = 2**30  # of the device, which driver and context take


def outcomes(path: Path = PATH) -> SealedOutcomes:
    """Run what fits this machine.

    Raises:
        PlanError: there is no accelerator.
        TraceError: the forecasts are not those that were sealed.
    """
    if not accelerator.num_devices():
        raise PlanError("outcomes need an accelerator; there is none here")
    forecasts = read_forecasts(path)
    name, memory = accelerator.described()[0]
    possible = [one for one in forecasts.near_limit if one.limit_bytes + ROOM_BYTES <= memory]
    return SealedOutcomes(
        forecasts_sha256=sha256_of(path),
        machine=machine.name(),
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=name,
        device_bytes=memory,
        torch=torch.__version__,
        suite=list(_suite(forecasts)),
        near_limit=[_in_a_process(one) for one in possible],
    )


def _suite(forecasts: SealedForecasts) -> Iterator[SuiteOutcome]:
    """Runs that were measured on accelerators, one a rank."""
    folder = machine.TRACES / machine.name()
    by_experiment: dict[str, list[SuiteForecast]] = {}
    for one in forecasts.suite:
        by_experiment.setdefault(one.experiment, []).append(one)
    for experiment, own in by_experiment.items():
        path = folder / f"{experiment}.json"
        runs = read(path).runs if path.exists() else {}
        for one in own:
            run = runs.get(one.run)
            if run is not None and run.device == "cuda" and _has_own_devices(run):
                yield _of_run(one.id, run)


def _has_own_devices(run: Run) -> bool:
    return run.world_size == 1 or run.backend == "nccl"


def _of_run(name: str, run: Run) -> SuiteOutcome:
    peaks = [r.memory.peak_bytes for r in run.ranks if r.memory and r.memory.peak_bytes]
    payloads = [{one.operation: one.bytes for one in rank.collectives} for rank in run.ranks]
    return SuiteOutcome(
        id=name,
        peak_bytes=max(peaks, default=None),
        payload_bytes=max(payloads, key=lambda one: sum(one.values()), default={}),
    )


def _in_a_process(forecast: LimitForecast) -> LimitOutcome:
    """A process of its own, since what one configuration leaves would count for the next."""
    done = subprocess.run(
        [sys.executable, "-m", "runners.planning.outcomes"],
        input=forecast.model_dump_json(),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise PlanError(f"{forecast.id}: {said[-1] if said else 'its process ended'}")
    return LimitOutcome.model_validate_json(done.stdout.strip().splitlines()[-1])


def outcome_of(forecast: LimitForecast, device: torch.device) -> LimitOutcome:
    """Take the simulated steps with real tensors; then a few without a meter, for their time."""
    is_accelerator = device.type == "cuda"
    if is_accelerator:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(forecast.limit_bytes / total, device)
    meter = MemoryMeter(device)
    question, seconds, fits = question_of(forecast), None, True
    try:
        with torch.device(device), meter:
            step = take_steps(question, None, 0, device, meter)
        with torch.device(device):
            seconds = _seconds(step, repeats(question).simulated, device)
    except torch.OutOfMemoryError:
        fits = False
    counted = torch.cuda.memory_stats(device) if is_accelerator else {}
    return LimitOutcome(
        id=forecast.id,
        fits=fits,
        phase=None if fits else meter.phase,
        peak_bytes=meter.memory(None).peak_bytes or 0,
        allocated_bytes=counted.get("allocated_bytes.all.peak", 0),
        reserved_bytes=counted.get("reserved_bytes.all.peak", 0),
        num_retries=counted.get("num_alloc_retries", 0),
        step_seconds=seconds,
    )


def _seconds(step: Step, num_microbatches: int, device: torch.device) -> float:
    found = []
    for _ in range(NUM_TIMED_STEPS):
        start = time.perf_counter()
        step.run(num_microbatches)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return median(found)


if __name__ == "__main__":
    given = LimitForecast.model_validate(json.load(sys.stdin))
    print(outcome_of(given, torch.device("cuda", 0)).model_dump_json())  # noqa: T201 its answer

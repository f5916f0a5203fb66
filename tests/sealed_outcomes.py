"""Made-up outcomes of the sealed forecasts, for tests alone: no accelerator recorded them."""

from __future__ import annotations

from typing import Any

from runners.planning.sealed import PATH
from runners.traces.sealed_forecasts import (
    LimitOutcome,
    SealedForecasts,
    SealedOutcomes,
    SuiteOutcome,
    sha256_of,
)

# What content/plan.yml needs for the page.
WORDS = """
sealed:
  title: Sealed forecasts
  about: Forecasts, and their outcomes.
  lede: We sealed these forecasts.
  near: Configurations near a limit.
  suite: The runs of the book.
  check: The command checks the seal.
  outcomes: A command records outcomes.
"""


def outcomes_of(
    forecasts: SealedForecasts, machine: str = "some", **changes: Any
) -> SealedOutcomes:
    """Outcomes as forecast, but for some changes of the first configuration that fits."""
    limits = [
        LimitOutcome(
            id=one.id,
            fits=one.fits,
            phase=None if one.fits else "backward",
            peak_bytes=one.peak_bytes,
            allocated_bytes=one.allocated_bytes,
            reserved_bytes=min(one.reserved_bytes, one.limit_bytes),
            num_retries=0,
            step_seconds=1.0,
        )
        for one in forecasts.near_limit
    ]
    first = next(index for index, one in enumerate(limits) if one.fits)
    limits[first] = limits[first].model_copy(update=changes)
    suite = [
        SuiteOutcome(id=one.id, peak_bytes=one.peak_bytes, payload_bytes=one.payload_bytes)
        for one in forecasts.suite
    ]
    return SealedOutcomes(
        forecasts_sha256=sha256_of(PATH),
        machine=machine,
        recorded_at="2030-01-01T00:00:00+00:00",
        device="made up",
        device_bytes=80 * 2**30,
        torch="2.13.0",
        suite=suite,
        near_limit=limits,
    )

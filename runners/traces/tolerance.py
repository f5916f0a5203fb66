"""When a value that was measured again is the same: one rule for each kind of field.

In: a field, the run that the page shows and the one measured just now. Out: a `Tolerance`, which
says in words how far apart the two may be, and whether they are. It follows `compare.py`: what a
rerun must reproduce is equal, kernel marks agree within its share, and two times with samples are
told apart by their quartile ranges. What `compare` leaves out, because one measurement has no
spread, has a bound of its own here: a reader who repeats a number wants a verdict.

| field | the same where |
|---|---|
| counts, bytes, words, outcomes, digests | equal |
| floats (losses …) | equal; on another processor or torch within `FLOAT_SHARE`, `ROUNDED_OFF` |
| the kernel's own peak, and what was held at a refusal | within `KERNEL_SHARE` |
| a time with `FEWEST_SAMPLES` samples or more | the quartile ranges overlap |
| any other time, and shares of a time | within a factor of `TIME_FACTOR` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runners.traces.compare import (
    FEWEST_SAMPLES,
    FLOAT_SHARE,
    KERNEL_SHARE,
    ROUNDED_OFF,
    overlap,
)
from runners.traces.fields import Key, at, exactly, in_words, is_of_time
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run

TIME_FACTOR = 2.0  # one measurement has no spread; a busy machine takes its share


@dataclass(frozen=True)
class Tolerance:
    """How far apart two values may be, in words, and whether these two are the same."""

    words: str
    is_same: bool


def tolerance(steps: Sequence[Key], page: Run, here: Run, *, is_like: bool) -> Tolerance:
    """Compare one field of two runs.

    Args:
        steps: where the field is in either run.
        page: the run that the page shows.
        here: the run measured again.
        is_like: whether processor, cores, torch and device are those of the page's run.

    Raises:
        KeyError, IndexError, AttributeError, TypeError: one of them has no such field.
    """
    one, other = at(page, steps), at(here, steps)
    samples = _samples(steps, page), _samples(steps, here)
    if steps[-1] == "samples" and samples[0] and samples[1]:  # all that a time was taken from
        one, other = samples[0].median_seconds, samples[1].median_seconds
    if not _are_numbers(one, other):
        return _equal(steps, one, other, is_like=is_like)
    if steps[0] == "timing":
        if samples[0] and samples[1] and steps[-1] != "num_samples":
            return _by_samples(samples[0], samples[1], one, other)
        return _by_factor(one, other)
    if is_of_time(steps):
        return _by_factor(one, other)
    if steps[-1] in ("kernel_peak_bytes", "held_bytes"):
        return _within(KERNEL_SHARE, one, other, "the kernel counts in pages and threads")
    if isinstance(one, float) and not is_like:
        return _within(FLOAT_SHARE, one, other, "another processor, torch or device rounds apart")
    return Tolerance("none; equal", one == other)


def _equal(steps: Sequence[Key], one: object, other: object, *, is_like: bool) -> Tolerance:
    """Compare what is no number: a text, an outcome, a digest, or all of a list."""
    if isinstance(one, str) and is_of_time(steps):
        return Tolerance("any; it follows from single times", is_same=True)
    if "digest" in str(steps[-1]) and not is_like:
        return Tolerance("none; equal, where processor and torch are the same", one == other)
    if isinstance(one, list | dict) and isinstance(other, list | dict):
        return Tolerance("none; equal", in_words(one, steps) == in_words(other, steps))
    return Tolerance("none; equal", one == other)


def _are_numbers(*things: object) -> bool:
    return all(isinstance(t, int | float) and not isinstance(t, bool) for t in things)


def _samples(steps: Sequence[Key], run: Run) -> SampledSeconds | None:
    """The samples that a time was taken from."""
    for end in range(len(steps) - 1, 0, -1):
        thing = at(run, steps[:end])
        if isinstance(thing, SampledSeconds):
            return thing
    return None


def _by_samples(page: SampledSeconds, here: SampledSeconds, one: float, other: float) -> Tolerance:
    if min(page.num_samples, here.num_samples) < FEWEST_SAMPLES:
        return _by_factor(one, other)
    low, high = page.first_quartile_seconds, page.third_quartile_seconds
    near, far = here.first_quartile_seconds, here.third_quartile_seconds
    words = (
        f"quartile ranges overlap: {exactly(low, None)} to {exactly(high, None)} s "
        f"there, {exactly(near, None)} to {exactly(far, None)} s here"
    )
    return Tolerance(words, overlap(page, here))


def _by_factor(one: float, other: float) -> Tolerance:
    low, high = sorted((abs(one), abs(other)))
    return Tolerance(
        f"a factor of {TIME_FACTOR:g}: a single time, without a spread",
        one == other or high <= TIME_FACTOR * low,
    )


def _within(share: float, one: float, other: float, why: str) -> Tolerance:
    largest = max(abs(one), abs(other))
    floor = ROUNDED_OFF if isinstance(one, float) else 0
    above = f", or {floor:g}" if floor else ""
    return Tolerance(
        f"{share:.0%} of the larger{above}: {why}",
        abs(one - other) <= max(share * largest, floor),
    )

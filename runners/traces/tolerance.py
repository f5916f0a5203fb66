"""When two measurements of a field are the same: one rule, for a number and for whole traces.

In: a field and its two values. Out: a `Tolerance`, which says in words how far apart they may be,
and whether they are. `reproduce` judges one field by it, `compare` every field of two machines.

| field | the same where |
|---|---|
| counts, bytes, words, outcomes | equal |
| floats (losses …) | equal; elsewhere within `LEAST_SHARE`, and `MARGIN` times the `spread` |
| accuracies; floats without a `spread` | equal; elsewhere so, or within `FLOAT_SHARE` |
| digests of floats; what spreads by more than `MOST_SPREAD` | equal; elsewhere not compared |
| what the kernel counts in pages or frames | within `KERNEL_SHARE` |
| a time with `FEWEST_SAMPLES` samples or more | the quartile ranges overlap |
| any other time, and shares of a time | within a factor of `TIME_FACTOR` |
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from runners.core.trace.fields import Key, as_written, at, in_words, is_number, quantity
from runners.core.trace.measured import SampledSeconds
from runners.core.trace.records import Run
from runners.core.trace.schema import Quantity
from runners.core.trace.spread import ROUNDED_OFF, field_of

FEWEST_SAMPLES = 5
KERNEL_SHARE = 0.02  # the meter itself accepts that the kernel's peak is so far off
FLOAT_SHARE = 0.01  # rounding in another order, carried through a short training
# Times the spread: two sets of instructions are few. On two generations of a maker, a loss of the
# least stable training lay 1.4 times its spread apart.
MARGIN = 4.0
MOST_SPREAD = 0.01  # above it rounding decides what a training gives
# The least share by which a float may differ on another processor, where one loss in bf16 lay
# 0.04 % apart that had spread by 0.007 %.
LEAST_SHARE = 1e-3
TIME_FACTOR = 2.0  # one measurement has no spread; a busy machine takes its share


class Tolerance(NamedTuple):
    """How far apart two values may be, in words, and whether these are the same; None: either."""

    words: str
    is_same: bool | None


def rounding(steps: Sequence[Key], page: Run, here: Run, *, is_like: bool) -> float:
    """The share by which rounding may turn one field of two runs; infinite where it decides it."""
    known = [run.spread for run in (page, here) if run.spread is not None]
    field = field_of(page, steps)
    spread = max((one.get(field, 0) for one in known), default=0)
    if is_like or spread > MOST_SPREAD:
        return 0 if is_like else math.inf
    is_share = quantity(steps, page.quantities).unit == "share"  # it turns by whole samples
    least = LEAST_SHARE if known and not is_share else FLOAT_SHARE
    return max(MARGIN * spread, least)


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
    there, again = at(page, steps[:-1]), at(here, steps[:-1])
    are_sampled = isinstance(there, SampledSeconds) and isinstance(again, SampledSeconds)
    if are_sampled and steps[-1] != "num_samples":
        if min(there.num_samples, again.num_samples) >= FEWEST_SAMPLES:
            return _by_samples(there, again)
        if steps[-1] == "samples":  # all that a time was taken from
            one, other = there.median_seconds, again.median_seconds
    share = rounding(steps, page, here, is_like=is_like)
    return of_values(quantity(steps, page.quantities), one, other, share)


def of_values(kind: Quantity, one: object, other: object, share: float) -> Tolerance:
    """Compare two values of a field without regard to samples.

    Args:
        kind: what the field is in, and how closely it repeats.
        one: the value on the page.
        other: the value measured again.
        share: by which rounding may turn it; infinite where it decides it.
    """
    equal = Tolerance("none; equal", one == other)
    if isinstance(one, list | dict) and isinstance(other, list | dict):
        return _of_parts(kind, one, other, share)
    if math.isinf(share):
        words = f"not compared: over instruction sets it spreads by more than {MOST_SPREAD:.0%}"
        return Tolerance(words, None)
    if not (is_number(one) and is_number(other)):
        return _of_words(kind, one, other, share)
    if kind.repeats == "clock":
        low, high = sorted((abs(one), abs(other)))
        words = f"a factor of {TIME_FACTOR:g}: a single time, without a spread"
        return Tolerance(words, one == other or high <= TIME_FACTOR * low)
    if kind.repeats == "kernel":
        return _within(KERNEL_SHARE, one, other, "the kernel counts in pages and threads")
    if isinstance(one, float) and share:
        return _within(share, one, other, "another processor, torch or device rounds apart")
    return equal


def _of_words(kind: Quantity, one: object, other: object, share: float) -> Tolerance:
    if isinstance(one, str) and kind.repeats == "clock":
        return Tolerance("any; it follows from single times", is_same=True)
    if kind.repeats == "bits" and share and one and other:
        return Tolerance("not compared: another processor or torch rounds some bit apart", None)
    return Tolerance("none; equal", one == other)


def _of_parts(kind: Quantity, one: Any, other: Any, share: float) -> Tolerance:  # noqa: ANN401
    """Lists of single values are compared one by one, anything else as `in_words` tells it."""
    both = [*one, *other] if isinstance(one, list) and isinstance(other, list) else [{}]
    plain = all(isinstance(part, int | float | str | None) for part in both)
    if not plain or len(one) != len(other):
        return Tolerance("none; equal", in_words(one, kind.unit) == in_words(other, kind.unit))
    found = [of_values(kind, *pair, share) for pair in zip(one, other, strict=True)]
    words = found[0].words if found else "none; equal"
    verdicts = {each.is_same for each in found}
    return Tolerance(words, None if None in verdicts else False not in verdicts)


def _by_samples(page: SampledSeconds, here: SampledSeconds) -> Tolerance:
    low, high = page.first_quartile_seconds, page.third_quartile_seconds
    near, far = here.first_quartile_seconds, here.third_quartile_seconds
    words = (
        f"quartile ranges overlap: {as_written(low)} to {as_written(high)} s "
        f"there, {as_written(near)} to {as_written(far)} s here"
    )
    return Tolerance(words, overlap(page, here))


def overlap(one: SampledSeconds, other: SampledSeconds) -> bool:
    """Whether the quartile ranges of two times have anything in common."""
    return (
        one.first_quartile_seconds <= other.third_quartile_seconds
        and other.first_quartile_seconds <= one.third_quartile_seconds
    )


def _within(share: float, one: float, other: float, why: str) -> Tolerance:
    floor = ROUNDED_OFF if isinstance(one, float) else 0
    above = f", or {floor:g}" if floor else ""
    slack = max(share * max(abs(one), abs(other)), floor)
    return Tolerance(f"{100 * share:.2g} % of the larger{above}: {why}", abs(one - other) <= slack)

"""When two measurements of a field are the same: one rule, for a number and for whole traces.

In: a field and its two values. Out: a `Tolerance`, which says in words how far apart they may be,
and whether they are. `reproduce` judges one field by it, `compare` every field of two machines.

| field | the same where |
|---|---|
| counts, bytes, words, outcomes | equal |
| floats (losses …) | equal; on another processor or torch within `FLOAT_SHARE`, `ROUNDED_OFF` |
| digests | equal; on another processor or torch any, because a digest tells every bit |
| what the kernel counts in pages or frames | within `KERNEL_SHARE` |
| a time with `FEWEST_SAMPLES` samples or more | the quartile ranges overlap |
| any other time, and shares of a time | within a factor of `TIME_FACTOR` |
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

from runners.traces.fields import Key, as_written, at, in_words, is_of_kernel, is_of_time
from runners.traces.measured import SampledSeconds
from runners.traces.records import Run

FEWEST_SAMPLES = 5
KERNEL_SHARE = 0.02  # the meter itself accepts that the kernel's peak is so far off
FLOAT_SHARE = 0.01  # rounding in another order, carried through a short training
ROUNDED_OFF = 1e-6  # below it lies what fp32 rounds off: differences from zero, not values
TIME_FACTOR = 2.0  # one measurement has no spread; a busy machine takes its share


class Tolerance(NamedTuple):
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
    there, again = at(page, steps[:-1]), at(here, steps[:-1])
    are_sampled = isinstance(there, SampledSeconds) and isinstance(again, SampledSeconds)
    if are_sampled and steps[-1] != "num_samples":
        if min(there.num_samples, again.num_samples) >= FEWEST_SAMPLES:
            return _by_samples(there, again)
        if steps[-1] == "samples":  # all that a time was taken from
            one, other = there.median_seconds, again.median_seconds
    return of_values(steps, one, other, is_like=is_like)


def of_values(steps: Sequence[Key], one: object, other: object, *, is_like: bool) -> Tolerance:
    """Compare two values of a field without regard to samples; as `tolerance`."""
    equal = Tolerance("none; equal", one == other)
    if isinstance(one, list | dict) and isinstance(other, list | dict):
        return _of_parts(steps, one, other, is_like=is_like)
    if not (is_number(one) and is_number(other)):
        if isinstance(one, str) and is_of_time(steps):
            return Tolerance("any; it follows from single times", is_same=True)
        if "parameter_digest" in str(steps[-1]) and not is_like and one and other:
            return Tolerance("any; another processor or torch rounds some bit apart", is_same=True)
        return equal
    if is_of_time(steps) or steps[0] == "timing":
        low, high = sorted((abs(one), abs(other)))
        words = f"a factor of {TIME_FACTOR:g}: a single time, without a spread"
        return Tolerance(words, one == other or high <= TIME_FACTOR * low)
    if is_of_kernel(steps):
        return _within(KERNEL_SHARE, one, other, "the kernel counts in pages and threads")
    if isinstance(one, float) and not is_like:
        return _within(FLOAT_SHARE, one, other, "another processor, torch or device rounds apart")
    return equal


def _of_parts(steps: Sequence[Key], one: Any, other: Any, *, is_like: bool) -> Tolerance:  # noqa: ANN401
    """Lists of single values are compared one by one, anything else as `in_words` tells it."""
    both = [*one, *other] if isinstance(one, list) and isinstance(other, list) else [{}]
    plain = all(isinstance(part, int | float | str | None) for part in both)
    if not plain or len(one) != len(other):
        return Tolerance("none; equal", in_words(one, steps) == in_words(other, steps))
    found = [of_values(steps, *pair, is_like=is_like) for pair in zip(one, other, strict=True)]
    words = found[0].words if found else "none; equal"
    return Tolerance(words, all(each.is_same for each in found))


def is_number(thing: object) -> TypeGuard[int | float]:
    """Whether a value is a number, which true and false are not."""
    return isinstance(thing, int | float) and not isinstance(thing, bool)


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
    return Tolerance(f"{share:.0%} of the larger{above}: {why}", abs(one - other) <= slack)

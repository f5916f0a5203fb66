"""When two measurements of a field are the same: one rule, for a number and for whole traces.

In: a field and its two values. Out: an `Agreement`: the allowed difference in words, and whether
they are the same. `reproduce` judges one field by it, `compare` every field of two machines. It
allows what a whole training makes of rounding; of a single computation, `judging/rounding.py` does.

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

from proofbook.runners.core.trace.fields import (
    Key,
    as_written,
    in_words,
    is_number,
    quantity,
    value_at,
)
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Quantity
from proofbook.runners.core.trace.spread import ROUNDED_OFF, field_of

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
EQUAL = "none; equal"  # the allowed difference of everything else


class Agreement(NamedTuple):
    """The allowed difference of two values, in words, and whether they are the same.

    `is_same` is None where the values cannot be compared.
    """

    allowed: str
    is_same: bool | None


def rounding(steps: Sequence[Key], page: Run, here: Run, *, is_like: bool) -> float:
    """The share rounding may change a field by: 0 if `is_like`, else by spread, up to infinity."""
    if is_like:
        return 0
    known = [run.spread for run in (page, here) if run.spread is not None]
    field = field_of(page, steps)
    spread = max((by_field.get(field, 0) for by_field in known), default=0)
    if spread > MOST_SPREAD:
        return math.inf
    is_share = quantity(steps, page.quantities).unit == "share"  # it turns by whole samples
    return max(MARGIN * spread, LEAST_SHARE if known and not is_share else FLOAT_SHARE)


def compare_field(steps: Sequence[Key], page: Run, here: Run, *, is_like: bool) -> Agreement:
    """The Agreement on a field of two runs: well-sampled times by quartile ranges, others by value.

    `is_like`: processor, cores, torch, device are the same. KeyError, IndexError, AttributeError or
    TypeError where a run has no such field.
    """
    old, new = value_at(page, steps), value_at(here, steps)
    there, again = value_at(page, steps[:-1]), value_at(here, steps[:-1])
    are_sampled = isinstance(there, SampledSeconds) and isinstance(again, SampledSeconds)
    if are_sampled and steps[-1] != "num_samples":
        if min(there.num_samples, again.num_samples) >= FEWEST_SAMPLES:
            return _by_quartiles(there, again)
        if steps[-1] == "samples":
            old, new = there.median_seconds, again.median_seconds
    share = rounding(steps, page, here, is_like=is_like)
    return compare_values(quantity(steps, page.quantities), old, new, share)


def compare_values(kind: Quantity, old: object, new: object, share: float) -> Agreement:
    """The Agreement of two values: numbers as their kind allows, lists by element, others equal.

    Rounding may change them by `share`, which is infinite where rounding decides them.
    """
    if isinstance(old, list | dict) and isinstance(new, list | dict):
        return _by_elements(kind, old, new, share)
    if math.isinf(share):
        words = f"not compared: over instruction sets it spreads by more than {MOST_SPREAD:.0%}"
        return Agreement(words, None)
    if is_number(old) and is_number(new):
        return _by_size(kind, old, new, share)
    if isinstance(old, str) and kind.repeats == "clock":
        return Agreement("any; it follows from single times", is_same=True)
    if kind.repeats == "bits" and share and old and new:
        return Agreement("not compared: another processor or torch rounds some bit apart", None)
    return Agreement(EQUAL, old == new)


def _by_size(kind: Quantity, old: float, new: float, share: float) -> Agreement:
    if kind.repeats == "clock":
        low, high = sorted((abs(old), abs(new)))
        words = f"a factor of {TIME_FACTOR:g}: a single time, without a spread"
        return Agreement(words, old == new or high <= TIME_FACTOR * low)
    if kind.repeats == "kernel":
        return _within(KERNEL_SHARE, old, new, "the kernel counts in pages and threads")
    if isinstance(old, float) and share:
        return _within(share, old, new, "another processor, torch or device rounds apart")
    return Agreement(EQUAL, old == new)


def _by_elements(kind: Quantity, old: Any, new: Any, share: float) -> Agreement:  # noqa: ANN401
    """Lists of single values are compared element by element, others as `in_words` prints them."""
    both = [*old, *new] if isinstance(old, list) and isinstance(new, list) else [{}]
    are_single = all(isinstance(element, int | float | str | None) for element in both)
    if not are_single or len(old) != len(new):
        return Agreement(EQUAL, in_words(old, kind.unit) == in_words(new, kind.unit))
    pairs = [compare_values(kind, *pair, share) for pair in zip(old, new, strict=True)]
    verdicts = {pair.is_same for pair in pairs}
    is_same = None if None in verdicts else False not in verdicts
    return Agreement(pairs[0].allowed if pairs else EQUAL, is_same)


def _by_quartiles(page: SampledSeconds, here: SampledSeconds) -> Agreement:
    there, again = (
        f"{as_written(times.first_quartile_seconds)} to {as_written(times.third_quartile_seconds)}"
        for times in (page, here)
    )
    words = f"quartile ranges overlap: {there} s there, {again} s here"
    return Agreement(words, overlap(page, here))


def overlap(page: SampledSeconds, here: SampledSeconds) -> bool:
    """Whether the quartile ranges of two times overlap."""
    return (
        page.first_quartile_seconds <= here.third_quartile_seconds
        and here.first_quartile_seconds <= page.third_quartile_seconds
    )


def _within(share: float, old: float, new: float, why: str) -> Agreement:
    floor = ROUNDED_OFF if isinstance(old, float) else 0
    above = f", or {floor:g}" if floor else ""
    slack = max(share * max(abs(old), abs(new)), floor)
    return Agreement(f"{100 * share:.2g} % of the larger{above}: {why}", abs(old - new) <= slack)

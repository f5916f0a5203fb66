"""The spread of a run: how far its values differ between instruction sets of the processor.

In: a run, and the same training with fewer instructions. Out: by field, the largest relative
difference between them. Other instructions round a sum otherwise, and a training carries that on:
to a loss, and to a count that depends on it. Pure; no torch.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from proofbook.runners.core.trace.fields import (
    Key,
    Steps,
    has_value_at,
    is_number,
    quantity,
    value_at,
)
from proofbook.runners.core.trace.records import Run

# Fields that are set, that are words for people, or whose times are compared by themselves.
NOT_COMPARED = {
    "settings", "timing", "printed", "allocator", "error", "model", "reason", "circumstances",
    "spread", "quantities",
}  # fmt: skip
ROUNDED_OFF = 1e-6  # below it lies what fp32 rounds off: differences from zero, not values


def leaves(run: Run) -> dict[Steps, object]:
    """Every value of a run that a rerun must reproduce, by its path."""
    return dict(_below((), run.model_dump(mode="json", exclude=NOT_COMPARED), run))


def _below(steps: Steps, value: object, run: Run) -> Iterator[tuple[Steps, object]]:
    if isinstance(value, dict | list):
        below = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in below:
            if key not in ("failure", "status"):  # of a rank: how a failure reaches it is chance
                yield from _below((*steps, key), part, run)
    elif quantity(steps, run.quantities).repeats not in ("clock", "kernel"):  # it has no spread
        yield steps, value


def field_of(run: Run, steps: Sequence[Key]) -> str:
    """The dotted path of steps, without indices and names of list elements: `epochs.loss`."""

    def picks_element(place: int) -> bool:
        above = steps[:place]
        return has_value_at(run, above) and isinstance(value_at(run, above), list)

    keys = (k for place, k in enumerate(steps) if isinstance(k, str) and not picks_element(place))
    return ".".join(keys)


def spread_of(run: Run, others: list[Run]) -> dict[str, float]:
    """By field: the largest relative difference of the others from a run, where above rounding.

    A word or a count that differs has the difference 1. Digests of floats are left out.
    """
    spread: defaultdict[str, float] = defaultdict(float)
    native = leaves(run)
    for steps, there in (pair for other in others for pair in leaves(other).items()):
        here = native.get(steps)
        is_digest = quantity(steps, run.quantities).repeats == "bits"
        if None in (here, there) or here == there or is_digest:
            continue
        apart = 1.0
        if isinstance(here, float) and is_number(there):
            apart = max(abs(here - there) - ROUNDED_OFF, 0) / max(abs(here), abs(there))
        field = field_of(run, steps)
        spread[field] = max(spread[field], float(f"{apart:.2g}"))
    return {field: apart for field, apart in sorted(spread.items()) if apart > ROUNDED_OFF}

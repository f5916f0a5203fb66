"""How far a processor's instruction sets turn what a run recorded.

In: a run, and the same training with fewer instructions. Out: by field, the largest relative
difference between them. With other instructions a sum is rounded otherwise, and a training carries
that on: to a loss, and to a count that depends on one. Pure; no torch.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from runners.core.trace.fields import Key, Steps, at, has, is_number, quantity
from runners.core.trace.records import Run

# Fields of a run that are set, or are words for people, or whose times are compared by themselves.
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
        for key, one in below:
            if key not in ("failure", "status"):  # of a rank: how a failure reaches it is chance
                yield from _below((*steps, key), one, run)
    elif quantity(steps, run.quantities).repeats not in ("clock", "kernel"):  # it has no spread
        yield steps, value


def field_of(run: Run, steps: Sequence[Key]) -> str:
    """A path without what picks an element of a list: `epochs.loss`."""
    return ".".join(
        key
        for place, key in enumerate(steps)
        if isinstance(key, str)
        and not (has(run, above := steps[:place]) and isinstance(at(run, above), list))
    )


def spread_of(run: Run, others: list[Run]) -> dict[str, float]:
    """How far the others lie from a run, by field, where that is more than rounding.

    A word or a count that differs counts as wholly apart. Digests of floats are left out.
    """
    found: defaultdict[str, float] = defaultdict(float)
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
        found[field] = max(found[field], float(f"{apart:.2g}"))
    return {field: apart for field, apart in sorted(found.items()) if apart > ROUNDED_OFF}

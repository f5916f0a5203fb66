"""How far a processor's instruction sets turn what a run recorded.

In: a run, and the same training with fewer instructions. Out: by field, the largest relative
difference between them. With other instructions a sum is rounded otherwise, and a training carries
that on: to a loss, and to a count that depends on one. Pure; no torch.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from runners.traces.fields import Key, Steps, at, has, is_number, is_of_kernel, is_of_time
from runners.traces.records import Run

# Fields of a run that are set, or are words for people, or whose times are compared by themselves.
NOT_COMPARED = {
    "settings", "timing", "printed", "allocator", "error", "model", "reason", "circumstances",
    "spread",
}  # fmt: skip
ROUNDED_OFF = 1e-6  # below it lies what fp32 rounds off: differences from zero, not values


def leaves(run: Run) -> dict[Steps, object]:
    """Every value of a run that a rerun must reproduce, by its path."""
    return dict(_below((), run.model_dump(mode="json", exclude=NOT_COMPARED)))


def _below(steps: Steps, value: object) -> Iterator[tuple[Steps, object]]:
    if isinstance(value, dict | list):
        below = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in below:
            if key not in ("failure", "status"):  # of a rank: how a failure reaches it is chance
                yield from _below((*steps, key), one)
    elif not (is_of_time(steps) or is_of_kernel(steps)):  # a single time has no spread
        yield steps, value


def field_of(run: Run, steps: Sequence[Key]) -> str:
    """A path without what picks an element of a list: `epochs.loss`."""
    return ".".join(
        key
        for place, key in enumerate(steps)
        if isinstance(key, str)
        and not (has(run, above := steps[:place]) and isinstance(at(run, above), list))
    )


def is_digest_of_floats(steps: Sequence[Key]) -> bool:
    """Whether a word is the digest of parameters or gradients: it tells every bit of them."""
    name = next(key for key in reversed(steps) if isinstance(key, str))
    return "digest" in name and name != "text_digest" and not name.startswith("num_")


def spread_of(run: Run, others: list[Run]) -> dict[str, float]:
    """How far the others lie from a run, by field, where that is more than rounding.

    A word or a count that differs counts as wholly apart. Digests of floats are left out.
    """
    found: defaultdict[str, float] = defaultdict(float)
    native = leaves(run)
    for steps, there in (pair for other in others for pair in leaves(other).items()):
        here = native.get(steps)
        if None in (here, there) or here == there or is_digest_of_floats(steps):
            continue
        apart = 1.0
        if isinstance(here, float) and is_number(there):
            apart = max(abs(here - there) - ROUNDED_OFF, 0) / max(abs(here), abs(there))
        field = field_of(run, steps)
        found[field] = max(found[field], float(f"{apart:.2g}"))
    return {field: apart for field, apart in sorted(found.items()) if apart > ROUNDED_OFF}

"""What a training curve shows, epoch by epoch: how the loss moves, its gap to validation, its end.

Epochs in, sentences out: each names a sentence of `ui.yml`, under `observations`, and the
expressions of its values. Authors write none of them, so no sentence can praise a run that did
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from runners.traces.records import Epoch

RISE_SHARE = 0.01  # of the loss before: more than this upwards is a rise
PLATEAU_SHARE = 0.01  # of the loss before: less than this either way is a plateau
DROP_SHARE = 0.05  # of the loss before: a largest drop below this is not named
GAP_SHARE = 0.2  # of the training loss: validation further above it than this is a gap
RISE_POINTS = 0.05  # of all samples: a largest rise of accuracy below this is not named


@dataclass(frozen=True)
class Observation:
    """A sentence about one epoch.

    Attributes:
        sentence: its name in `ui.yml`.
        values: the expression of each value that the sentence shows.
    """

    sentence: str
    values: Mapping[str, str] = field(default_factory=dict)


def observe(epochs: Sequence[Epoch], run: str) -> list[list[Observation]]:
    """The sentences about each epoch of a run, at least one for each.

    Args:
        epochs: what the run recorded.
        run: its path, which the expressions begin with.
    """
    found: list[list[Observation]] = [[] for _ in epochs]
    for detect in (_movements, _rise, _gap, _turn):
        for position, one in detect(epochs, f"{run}.epochs"):
            found[position].append(one)
    return found


def _movements(epochs: Sequence[Epoch], path: str) -> Iterator[tuple[int, Observation]]:
    """How the loss of each epoch compares with that of the epoch before."""
    changes = _changes(epochs)
    drop = _largest_drop(changes)
    last = len(epochs) - 1
    for position, epoch in enumerate(epochs):
        change = changes[position]
        if epoch.loss is None:
            yield position, Observation("not_finite")
        elif change is None:
            yield position, Observation(_start(epoch) if position == 0 else "moves")
        elif position == drop:
            yield position, Observation("largest_drop", _fall(path, position, "loss"))
        elif -PLATEAU_SHARE < change <= RISE_SHARE:
            yield position, Observation("last_plateau" if position == last else "plateau")
        elif position == last and change < 0:
            yield position, _last(epochs, path)
        else:
            yield position, _step(epochs, position, changes, path)
    if drop is not None and drop == last:
        yield last, Observation("still_falling")


def _changes(epochs: Sequence[Epoch]) -> list[float | None]:
    """The change of the loss as a share of the loss before; None where there is no such share."""
    shares: list[float | None] = [None] if epochs else []
    for before, after in pairwise(epochs):
        is_share = before.loss is not None and before.loss > 0 and after.loss is not None
        shares.append((after.loss - before.loss) / before.loss if is_share else None)  # type: ignore[operator]
    return shares


def _largest_drop(changes: Sequence[float | None]) -> int | None:
    drops = [(change, position) for position, change in enumerate(changes) if change is not None]
    return min(drops)[1] if drops and min(drops)[0] < -DROP_SHARE else None


def _start(epoch: Epoch) -> str:
    validation = epoch.validation_loss
    is_below = validation is not None and epoch.loss is not None and validation < epoch.loss
    return "start_above_validation" if is_below else "start"


def _step(
    epochs: Sequence[Epoch], position: int, changes: Sequence[float | None], path: str
) -> Observation:
    """A rise; or a fall, beside the gap to validation or beside the fall of the epoch before."""
    change, before = changes[position], changes[position - 1]
    assert change is not None
    if change > 0:
        rise = f"({path}[{position}].loss / {path}[{position - 1}].loss - 1) | percent"
        return Observation("rises", {"change": rise})
    values = _fall(path, position, "loss")
    side = _side_of_validation(epochs[position])
    if side and position != _gap_start(epochs):
        return Observation(f"falls_{side}", {**values, "gap": _apart(path, position, side)})
    sentence = "falls"
    if before is not None and before < 0:
        sentence = "falls_less" if change > before else "falls_more"
    return Observation(sentence, values)


def _side_of_validation(epoch: Epoch) -> str | None:
    """Whether the training loss is above or below that of validation; None where nothing tells."""
    validation = epoch.validation_loss
    if not epoch.loss or not validation or validation == epoch.loss:
        return None
    return "below" if validation > epoch.loss else "above"


def _apart(path: str, position: int, side: str = "below") -> str:
    """The expression of the gap to validation, as a share of the training loss on that side."""
    ratio = f"{path}[{position}].validation_loss / {path}[{position}].loss"
    return f"({ratio} - 1) | percent" if side == "below" else f"(1 - {ratio}) | percent"


def _last(epochs: Sequence[Epoch], path: str) -> Observation:
    """What the last epoch gained, on training samples and on validation samples."""
    position = len(epochs) - 1
    before, after = (one.validation_loss for one in epochs[-2:])
    values = _fall(path, position, "loss")
    if before is None or after is None or before <= 0:
        return Observation("last", values)
    if after >= before:
        return Observation("last_training_only", values)
    gained = _fall(path, position, "validation_loss")["change"]
    return Observation("last_both", {**values, "validation": gained})


def _fall(path: str, position: int, name: str) -> dict[str, str]:
    """The expression of a fall, as a share of the value one epoch before."""
    share = f"(1 - {path}[{position}].{name} / {path}[{position - 1}].{name}) | percent"
    return {"change": share}


def _rise(epochs: Sequence[Epoch], path: str) -> Iterator[tuple[int, Observation]]:
    """The epoch in which accuracy rises most: on validation samples, where they were graded."""
    for name in ("validation_accuracy", "accuracy"):
        known = [getattr(one, name) for one in epochs]
        if len(known) < 2 or None in known:
            continue
        rises = [after - before for before, after in pairwise(known)]
        if max(rises) >= RISE_POINTS:
            position = rises.index(max(rises)) + 1
            before, after = (f"{path}[{at}].{name}" for at in (position - 1, position))
            yield position, Observation(f"{name}_rises", {"before": before, "after": after})
        return


def _gap(epochs: Sequence[Epoch], path: str) -> Iterator[tuple[int, Observation]]:
    """The first epoch of the last stretch in which validation is well above training."""
    start = _gap_start(epochs)
    if start is not None:
        sentence = "gap" if start < len(epochs) - 1 else "last_gap"
        yield start, Observation(sentence, {"gap": _apart(path, start)})


def _gap_start(epochs: Sequence[Epoch]) -> int | None:
    start: int | None = None
    for position, epoch in enumerate(epochs):
        if epoch.loss is None or epoch.validation_loss is None:
            continue
        is_gap = epoch.loss > 0 and epoch.validation_loss - epoch.loss > GAP_SHARE * epoch.loss
        if not is_gap:
            start = None
        elif start is None:
            start = position
    return start


def _turn(epochs: Sequence[Epoch], _: str) -> Iterator[tuple[int, Observation]]:
    """The epoch after which validation loss rises, and whether training loss falls below it."""
    known = [
        (one.validation_loss, position)
        for position, one in enumerate(epochs)
        if one.validation_loss is not None
    ]
    if not known or known[-1][0] <= min(known)[0] * (1 + RISE_SHARE):
        return
    lowest = min(known)[1]
    there, last = epochs[lowest].loss, epochs[-1].loss
    is_overfitting = there is not None and last is not None and last < min(there, known[-1][0])
    yield lowest, Observation("turn_overfits" if is_overfitting else "turn")

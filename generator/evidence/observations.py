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

RISE_SHARE = 0.01  # of the lowest validation loss: an end above it by more than this is a turn
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
    path = f"{run}.epochs"
    drops = [change for change in map(_change, epochs, epochs[1:]) if change is not None]
    drop = min(drops, default=0.0)
    found = []
    for position, (before, epoch) in enumerate(pairwise([None, *epochs])):
        assert epoch is not None
        change = _change(before, epoch) if before else None
        if change is not None and change == drop < -DROP_SHARE:
            found.append([Observation("largest_drop", _fall(path, position, "loss"))])
        else:
            found.append([_movement(epochs, position, change, path)])
    for detect in (_rise, _gap, _turn):
        for position, one in detect(epochs, path):
            found[position].append(one)
    return found


def _change(before: Epoch, after: Epoch) -> float | None:
    """The change of the loss as a share of the loss before; None where there is no such share."""
    if not before.loss or after.loss is None:
        return None
    return (after.loss - before.loss) / before.loss


def _movement(
    epochs: Sequence[Epoch], position: int, change: float | None, path: str
) -> Observation:
    """How the loss of an epoch compares with that of the epoch before, and with validation."""
    epoch, side = epochs[position], _side_of_validation(epochs[position])
    if epoch.loss is None:
        return Observation("not_finite")
    if change is None:
        start = "start_above_validation" if side == "above" else "start"
        return Observation("moves" if position else start)
    if change > 0:
        rise = f"({path}[{position}].loss / {path}[{position - 1}].loss - 1) | percent"
        return Observation("rises", {"change": rise})
    values = _fall(path, position, "loss")
    before, after = epochs[position - 1].validation_loss, epoch.validation_loss
    if position == len(epochs) - 1 and before and after:
        if after >= before:
            return Observation("last_training_only", values)
        gained = _fall(path, position, "validation_loss")["change"]
        return Observation("last_both", {**values, "validation": gained})
    if side is None or position == _gap_start(epochs):
        return Observation("falls", values)
    return Observation(f"falls_{side}", {**values, "gap": _apart(path, position, side)})


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


def _fall(path: str, position: int, name: str) -> dict[str, str]:
    """The expression of a fall, as a share of the value one epoch before."""
    share = f"(1 - {path}[{position}].{name} / {path}[{position - 1}].{name}) | percent"
    return {"change": share}


def _rise(epochs: Sequence[Epoch], path: str) -> Iterator[tuple[int, Observation]]:
    """The epoch in which accuracy on validation samples rises most."""
    known = [one.validation_accuracy for one in epochs if one.validation_accuracy is not None]
    if len(known) < 2 or len(known) < len(epochs):
        return
    rises = [after - before for before, after in pairwise(known)]
    if max(rises) >= RISE_POINTS:
        position = rises.index(max(rises)) + 1
        before, after = (f"{path}[{at}].validation_accuracy" for at in (position - 1, position))
        yield position, Observation("validation_accuracy_rises", {"before": before, "after": after})


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
        if epoch.loss <= 0 or epoch.validation_loss <= epoch.loss * (1 + GAP_SHARE):
            start = None
        elif start is None:
            start = position
    return start


def _turn(epochs: Sequence[Epoch], _: str) -> Iterator[tuple[int, Observation]]:
    """The epoch after which validation loss rises."""
    known = [
        (one.validation_loss, position)
        for position, one in enumerate(epochs)
        if one.validation_loss is not None
    ]
    if known and known[-1][0] > min(known)[0] * (1 + RISE_SHARE):
        yield min(known)[1], Observation("turn")

"""What is notable in an epoch: a closed set of detectors, at most one sentence an epoch.

Epochs in, sentences out. Authors write none of them, so no sentence can praise a run that did
nothing. Thresholds stand here; the sentences hold no numbers, since the table beside them does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from runners.traces.records import Epoch

RISE_SHARE = 0.01  # of the loss before: more than this upwards is a rise
PLATEAU_SHARE = 0.01  # of the loss before: less than this either way is a plateau
DROP_SHARE = 0.05  # of the loss before: a largest drop below this is not worth a word
GAP_SHARE = 0.2  # of the training loss: validation further above it than this is a gap

NOT_FINITE = "The loss is not a finite number any more."
RISE = "The loss rises."
GAP = "Validation loss moves away from training loss."
TURN = "Validation loss is at its lowest; from here it rises."
LARGEST_DROP = "The largest drop in loss."
PLATEAU = "The loss barely moves."
SENTENCES = frozenset({NOT_FINITE, RISE, GAP, TURN, LARGEST_DROP, PLATEAU})


def observe(epochs: Sequence[Epoch]) -> dict[int, str]:
    """The notable epochs, by epoch number; where two detectors see one, the graver one speaks."""
    found: dict[int, str] = {}
    for detect in _DETECTORS:
        for epoch, sentence in detect(epochs):
            found.setdefault(epoch, sentence)
    return dict(sorted(found.items()))


def _changes(epochs: Sequence[Epoch]) -> Iterator[tuple[int, float]]:
    """The change of the loss as a share of the loss before, for each epoch after the first."""
    for before, after in pairwise(epochs):
        if before.loss and after.loss is not None:
            yield after.epoch, (after.loss - before.loss) / abs(before.loss)


def _not_finite(epochs: Sequence[Epoch]) -> Iterator[tuple[int, str]]:
    for epoch in epochs:
        if epoch.loss is None:
            yield epoch.epoch, NOT_FINITE
            return


def _rise(epochs: Sequence[Epoch]) -> Iterator[tuple[int, str]]:
    for epoch, change in _changes(epochs):
        if change > RISE_SHARE:
            yield epoch, RISE


def _gap(epochs: Sequence[Epoch]) -> Iterator[tuple[int, str]]:
    """The first epoch of the last stretch in which validation lies well above training."""
    start: int | None = None
    for epoch in epochs:
        if epoch.loss is None or epoch.validation_loss is None:
            continue
        is_gap = epoch.validation_loss - epoch.loss > GAP_SHARE * abs(epoch.loss)
        start = (start or epoch.epoch) if is_gap else None
    if start is not None:
        yield start, GAP


def _turn(epochs: Sequence[Epoch]) -> Iterator[tuple[int, str]]:
    losses = [(e.validation_loss, e.epoch) for e in epochs if e.validation_loss is not None]
    if losses and losses[-1][0] > min(losses)[0] * (1 + RISE_SHARE):
        yield min(losses)[1], TURN


def _largest_drop(epochs: Sequence[Epoch]) -> Iterator[tuple[int, str]]:
    drops = [
        (before.loss - after.loss, -after.epoch, before.loss)
        for before, after in pairwise(epochs)
        if before.loss is not None and after.loss is not None
    ]
    if drops and max(drops)[0] > DROP_SHARE * abs(max(drops)[2]):
        yield -max(drops)[1], LARGEST_DROP


def _plateau(epochs: Sequence[Epoch]) -> Iterator[tuple[int, str]]:
    for epoch, change in _changes(epochs):
        if abs(change) < PLATEAU_SHARE:
            yield epoch, PLATEAU


_DETECTORS: tuple[Callable[[Sequence[Epoch]], Iterator[tuple[int, str]]], ...] = (
    _not_finite,
    _rise,
    _gap,
    _turn,
    _largest_drop,
    _plateau,
)

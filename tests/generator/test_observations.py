"""What is notable in an epoch: at most one sentence, from a closed set, by thresholds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.evidence import observations
from generator.evidence.observations import (
    GAP,
    LARGEST_DROP,
    NOT_FINITE,
    PLATEAU,
    RISE,
    SENTENCES,
    TURN,
    observe,
)
from runners.traces.records import Epoch


def epochs(losses, validation=None):
    validation = validation or [None] * len(losses)
    return [
        Epoch(epoch=number, loss=loss, accuracy=None, validation_loss=other,
              validation_accuracy=None, ranks=[])
        for number, (loss, other) in enumerate(zip(losses, validation, strict=True), 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("losses", "validation", "expected"),
    [
        ([2.0, 1.5, 1.2, 1.0, 0.9], None, {2: LARGEST_DROP}),
        ([2.0, 1.9, 1.2, 1.1], None, {3: LARGEST_DROP}),
        ([2.0, 1.5, 1.6, 1.4], None, {2: LARGEST_DROP, 3: RISE}),
        ([2.0, 1.0, 0.999, 1.001], None, {2: LARGEST_DROP, 3: PLATEAU, 4: PLATEAU}),
        ([2.0, 1.98, 1.96], None, {}),
        ([2.0, None, None], None, {2: NOT_FINITE}),
        ([2.0, 1.5, 1.0], [2.1, 1.7, 1.5], {2: LARGEST_DROP, 3: GAP}),
        ([2.0, 1.5, 1.4], [2.0, 1.5, 1.6], {2: TURN}),
        ([2.0], [2.1], {}),
        ([], None, {}),
    ],
)
def test_each_detector_speaks_where_its_threshold_is_passed(losses, validation, expected):
    assert observe(epochs(losses, validation)) == expected


def test_a_gap_that_closes_again_is_not_one():
    assert GAP not in observe(epochs([2.0, 1.0, 1.0], [2.0, 1.5, 1.0])).values()


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=9), st.data())
def test_every_epoch_has_at_most_one_sentence_of_the_closed_set(losses, data):
    others = st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=len(losses),
                      max_size=len(losses))  # fmt: skip
    found = observe(epochs(losses, data.draw(others)))
    assert set(found.values()) <= SENTENCES
    assert set(found) <= set(range(1, len(losses) + 1))


def test_no_sentence_holds_a_number():
    assert not any(char.isdigit() for sentence in observations.SENTENCES for char in sentence)

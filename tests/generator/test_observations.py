"""What an epoch table says: at least one sentence an epoch, by thresholds, its numbers computed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.evidence.folio import interface_words
from generator.evidence.observations import observe
from runners.traces.records import Epoch


def epochs(losses, validation=None, accuracies=None):
    validation = validation or [None] * len(losses)
    accuracies = accuracies or [(None, None)] * len(losses)
    return [
        Epoch(epoch=number, loss=loss, accuracy=accuracy, validation_loss=other,
              validation_accuracy=graded, ranks=[])
        for number, (loss, other, (accuracy, graded)) in enumerate(
            zip(losses, validation, accuracies, strict=True), 1
        )
    ]  # fmt: skip


def names(losses, validation=None, accuracies=None):
    return [
        " ".join(one.sentence for one in said)
        for said in observe(epochs(losses, validation, accuracies), "demo.run")
    ]


@pytest.mark.parametrize(
    ("losses", "validation", "expected"),
    [
        ([2.0, 1.9, 1.2, 1.1], None, ["start", "falls", "largest_drop", "falls"]),
        ([2.0, 1.5, 1.6, 1.4], None, ["start", "largest_drop", "rises", "falls"]),
        ([2.0, None, None], None, ["start", "not_finite", "not_finite"]),
        ([0.0, 1.0], None, ["start", "moves"]),
        ([2.0, 1.5, 1.0, 0.9], [1.8, 1.7, 1.5, 1.4],
         ["start_above_validation", "falls_below", "largest_drop gap", "last_both"]),
        ([2.0, 1.5, 1.3, 1.2], [1.6, 1.4, 1.25, 1.1],
         ["start_above_validation", "largest_drop", "falls_above", "last_both"]),
        ([2.0, 1.5, 1.4], [2.0, 1.6, 1.7],
         ["start", "largest_drop turn", "last_training_only last_gap"]),
        ([2.0, 1.5, 1.8], [2.0, 1.5, 1.6], ["start", "largest_drop turn", "rises"]),
        ([], None, []),
    ],
)  # fmt: skip
def test_each_sentence_is_said_where_its_threshold_is_passed(losses, validation, expected):
    assert names(losses, validation) == expected


@pytest.mark.parametrize(
    ("accuracies", "expected"),
    [
        ([(0.2, 0.3), (0.7, 0.4), (0.8, 0.7)], ["", "", "validation_accuracy_rises"]),
        ([(0.2, 0.3), (0.2, 0.34), (0.9, 0.33)], ["", "", ""]),  # graded, and hardly risen
        ([(0.2, 0.3), (None, None), (0.9, 0.9)], ["", "", ""]),
    ],
)
def test_the_largest_rise_of_accuracy_is_named_where_it_is_one(accuracies, expected):
    said = names([2.0, 1.5, 1.2], None, accuracies)
    assert [" ".join(re.findall(r"\S*accuracy\S*", one)) for one in said] == expected


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=9), st.data())
def test_every_epoch_has_a_sentence_that_the_interface_knows(losses, data):
    others = st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=len(losses),
                      max_size=len(losses))  # fmt: skip
    found = observe(epochs(losses, data.draw(others)), "demo.run")
    assert len(found) == len(losses)
    for said in found:
        assert said
        for one in said:
            interface_words()["observations"][one.sentence].format(**one.values)

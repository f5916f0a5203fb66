"""A rule over a list: for every rank or step, refuted by any of them."""

import json
from dataclasses import replace

import pytest

from generator.content.claim import Claim
from generator.evidence import list_sides
from generator.evidence.evaluation import Evidence

RUN = "tiny_memory.halves"
PARTS = f"{RUN}.ranks | each('num_parameters')"


def claim(predicted, observed, relation="equals", **fields):
    return Claim(
        id="a-claim", says="It is so.", predicted=predicted, observed=observed, relation=relation,
        **fields,
    )  # fmt: skip


def judged(book, one):
    return Evidence(replace(book, claims={one.id: one})).outcome(one.id)


def with_ranks(copy, field, values):
    """The copy's run with one value of a field for each rank."""
    ranks = json.loads(copy.trace("tiny_memory").read_text())["runs"]["halves"]["ranks"]
    assert len(ranks) == len(values)
    changed = [{**rank, field: value} for rank, value in zip(ranks, values, strict=True)]
    copy.change_run(RUN, ranks=changed)
    return copy.load()


@pytest.mark.parametrize(
    ("values", "predicted", "relation", "fields", "holds"),
    [
        ([7, 7], "7", "equals", {}, True),
        ([7, 8], "7", "equals", {}, False),
        ([7, 8], "7", "equals", {"tolerance": {"absolute": 1}}, True),
        ([7, 9], "7", "equals", {"tolerance": {"absolute": 1}}, False),
        ([7, 6], "6", "above", {}, False),
    ],
)
def test_a_rule_holds_where_it_holds_for_each(copy, values, predicted, relation, fields, holds):
    book = with_ranks(copy, "num_parameters", values)
    outcome = judged(book, claim(predicted, PARTS, relation, **fields))
    assert outcome.verdict == ("holds" if holds else "does_not_hold")
    assert "for each rank" in outcome.explanation


def test_two_lists_are_compared_element_by_element(copy):
    book = with_ranks(copy, "num_parameters", [7, 8])
    start = with_ranks(copy, "num_samples", [7, 8])
    samples = PARTS.replace("num_parameters", "num_samples")
    assert judged(start, claim(samples, PARTS)).verdict == "holds"
    assert str(judged(book, claim("7", PARTS)).observed) == "7, 8"
    assert str(judged(start, claim(samples, PARTS)).observed) == "7, 8"


@pytest.mark.parametrize(
    ("predicted", "observed", "relation", "said"),
    [
        (f"{RUN}.ranks[0].memory", PARTS, "equals", "a list as long"),
        (f"{RUN}.ranks[:1] | each('num_samples')", PARTS, "equals", "a list as long"),
        (PARTS, PARTS, "equals", "the very field that it observes"),
        (PARTS, f"{RUN}.ranks | each('num_samples')", "faster", "and no lists"),
    ],
)
def test_what_cannot_be_compared_one_by_one_is_said(copy, predicted, observed, relation, said):
    book = with_ranks(copy, "num_samples", [7, 7])
    assert said in judged(book, claim(predicted, observed, relation)).error


@pytest.mark.parametrize(
    ("observed", "counted"),
    [
        (PARTS, "rank"),
        (f"{RUN}.ranks | each('epochs[-1].loss')", "rank"),
        (f"{RUN}.ranks[0].epochs | each('loss')", "epoch"),
        (f"{RUN}.step_losses[1:]", "step"),
        (f"{RUN}.ranks[0].facts", "value"),
    ],
)
def test_what_is_counted_is_what_the_rule_goes_through(observed, counted):
    assert list_sides.noun(observed) == counted

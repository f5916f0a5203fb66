"""The real book over the committed traces: invariants only, since every rerun changes numbers."""

from contextlib import suppress

import pytest

from generator.checks.content_checks import check
from generator.content.errors import ContentError
from generator.evidence.evaluation import Evidence
from generator.items.kinds import kind_of
from tests.generator.falsified import refuted


@pytest.fixture(scope="module")
def outcomes(real):
    return Evidence(real).outcomes


def test_the_book_has_no_mistake(real):
    assert [str(error) for error in check(Evidence(real))] == []


def test_every_law_holds_or_says_why_it_does_not_apply(outcomes):
    broken = {name: o.explanation for name, o in outcomes.items() if o.is_broken_law}
    assert broken == {}


def test_every_claim_that_holds_stops_holding_once_one_field_is_changed(real, outcomes):
    """A claim that no change of a field can refute is not a claim."""
    evidence = Evidence(real)
    holding = [name for name, outcome in outcomes.items() if outcome.verdict == "holds"]
    assert [name for name in holding if refuted(evidence, real.claims[name]) is None] == []


def test_every_key_moves_once_a_claim_behind_it_is_refuted(real, outcomes):
    evidence, stuck, num_moved = Evidence(real), [], 0
    for item in (item for topic in real.topics for item in topic.items.values()):
        key = kind_of(item, evidence).key
        for position in key.right if item.kind in ("choice", "several") else ():
            claim = item.options[position].right_if.claim
            if outcomes[claim].verdict != "holds":
                continue
            changed = refuted(evidence, real.claims[claim])
            with suppress(ContentError):  # it has no key any more, or two
                stuck += [item.id] if kind_of(item, changed).key == key else []
            num_moved += 1
    assert stuck == []
    assert num_moved >= len(real.topics)

"""Hints that lead to a number: its law, then what the run was given, and never the number."""

from __future__ import annotations

import re

import pytest

from generator.content import book as books
from generator.evidence.evaluation import Evidence
from generator.evidence.folio import interface_words
from generator.items.kinds import key_of
from generator.items.worked import steps
from tests.conftest import ROOT

WORDS = interface_words()["item"]


@pytest.fixture(scope="module")
def real():
    return Evidence(books.load(ROOT / "content"))


def _steps(item, evidence):
    found = steps(item, key_of(item, evidence), evidence, WORDS)
    return [evidence.plain(one) for one in found]


def _items(evidence):
    return {name: item for topic in evidence.book.topics for name, item in topic.items.items()}


def test_a_number_that_a_law_gives_is_worked_out_step_by_step(evidence):
    item = _items(evidence)["what-peak"]
    assert _steps(item, evidence) == []  # it names no law
    led = item.model_copy(update={"claims": ["whole-peak"]})
    assert _steps(led, evidence) == [
        "Start from the law: `2 · model bytes`.",
        "Insert what the run was given: `model bytes` = 78.1 KiB.",
    ]


def test_the_terms_of_a_law_stand_by_its_own_symbols(real):
    # The experiment sums up what it predicts in settings of its own, one of which is the answer.
    assert _steps(_items(real)["sd-try-zero"], real) == [
        "Start from the law: `3 × M + 2 × M / n`.",
        "Insert what the run was given: `M` = 8.02 MiB; `n` = 4.",
    ]


def test_no_step_of_this_book_tells_the_answer(real):
    told = 0
    for name, item in _items(real).items():
        for step in _steps(item, real):
            answer = re.escape(real.plain(str(key_of(item, real).value)))
            assert not re.search(rf"(?<![\d.,]){answer}(?![\w.,])", step), name
            told += 1
    assert told >= 5

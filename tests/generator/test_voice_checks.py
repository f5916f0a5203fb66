"""Phrases that the book does not write, found in a text with their places."""

from __future__ import annotations

import pytest

from generator.checks import voice_checks


@pytest.mark.parametrize(
    ("text", "phrase", "instead"),
    [
        ("The ranks exchange gradients.", "exchange", "communication"),
        ("Each rank hands\nover its gradient.", "hands\nover", "send"),
        ("DDP makes no room.", "no room", "memory"),
        ("The run came to {{ ddp.ddp.epochs[-1].loss }}.", "came to ", "totals"),
        ("It fits. Nor is it slow.", "Nor", "plain clause"),
        ("It waits, for it has no samples.", "for it", "because"),
        ("The device was refused memory.", "was refused", "ran out of memory"),
        ("Replicas synchronise.", "synchronise", "-iz-"),
    ],
)
def test_a_phrase_is_found_where_it_stands(text, phrase, instead):
    [(offset, message)] = voice_checks.phrases(text)
    assert text[offset:].startswith(phrase)
    assert instead in message


@pytest.mark.parametrize(
    "text",
    [
        "A pipeline written by hand to read.",
        "The build refuses a bare numeral.",
        "It came to rest.",
        "Run `exchange.py` again.",
        "See {{ showed('ddp-exchange') }}.",
        "[The program](exchange.html).",
        "For each rank, for each step.",
        "The ring sends parts of the gradient.",
    ],
)
def test_plain_english_is_left_alone(text):
    assert list(voice_checks.phrases(text)) == []


def test_a_lesson_with_such_a_phrase_is_a_located_mistake(copy):
    copy.edit("topics/averaging/why.yml", "takeaway: Averaging", "takeaway: To exchange means")
    (error,) = (one for one in copy.errors() if "'exchange'" in one)
    assert error.startswith("content/topics/averaging/why.yml:")
    assert error.endswith("write 'collective, all-reduce, communication' instead")

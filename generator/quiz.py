"""Questions as an author writes them.

A key is never typed: an option is right where the claim behind it has the verdict the option names,
on the machine whose numbers the page shows. The build fails unless exactly one option is right.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.claim import Verdict
from generator.words import Id, Line, Prose, Written


class RightIf(Written):
    """The claim, and its verdict, that make an option right."""

    claim: Id
    verdict: Verdict = "holds"


class Option(Written):
    """One answer. Every option explains itself; one that can be wrong names its misconception."""

    text: Line
    why: Line
    right_if: RightIf | None = None
    misconception: Id | None = None
    refuted_by: Id | None = None  # a claim that must hold; shown as the evidence


class Item(Written):
    """One question with one answer."""

    id: Id
    stem: Prose
    options: Annotated[list[Option], Field(min_length=2, max_length=4)]
    hint: Line | None = None


class QuizFile(Written):
    """content/topics/<topic>/quiz.yml: items that modes name by id."""

    items: list[Item]

"""content/statements.yml: sentences that people read, each with the claim that tests it."""

from typing import Literal

from proofbook.generator.content.claim import Verdict
from proofbook.generator.content.words import ClaimId, Id, Line, Prose, RunPath, SourceId, Written

SentenceVerdict = Literal["false", "too_general", "true", "depends"]


class Statement(Written):
    """One sentence that people read, where it stands, and what a run shows of it.

    The claim states what is true, or, with `confirmed_if`, the sentence itself. The build refuses a
    verdict that the claim does not bear out on the reference machine
    (`pages.py`).
    """

    id: Id
    said: Line
    """the sentence, in our own words."""
    where: Line
    """what kind of source says it."""
    source: SourceId | None = None
    """the exact reference, of references.yml."""
    verdict: SentenceVerdict
    """false, true, too general (a run shows where it fails), or depends on the implementation."""
    regime: Line
    """under which conditions the sentence is true, or was tested."""
    claim: ClaimId
    """what tests it."""
    confirmed_if: Verdict | None = None
    """the claim's verdict that confirms the sentence; None where the claim contradicts the sentence
    when it holds."""
    correction: Prose
    """what is true instead, or why."""
    stakes: Line | None = None
    """who reads the sentence and what it costs them to act on it; wanted of the ten that the home
    page names."""
    program: RunPath | None = None
    """the run of a program of `content/retracted/` that is read at a glance."""
    uses: Line | None = None
    """the model of that program, or what stands in for one; said once for each program."""


class StatementFile(Written):
    """content/statements.yml."""

    statements: list[Statement]

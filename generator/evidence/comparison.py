"""`python -m generator compare A B`: which claims say something else on another machine.

In: a book that shows A, with every machine's traces. Out: lines. An observation may differ from
machine to machine; a law may not, within its domain: where one does, it is broken on that machine,
and the command says so by its exit code.
"""

from __future__ import annotations

from dataclasses import dataclass

from generator.content.book import Book
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import other_outcomes, parts
from generator.evidence.verdicts import WORDS, Outcome, judge


@dataclass(frozen=True)
class Compared:
    """What two machines say of the same claims.

    Attributes:
        laws: that changed their verdict, a line each.
        observations: that changed theirs.
        num_stayed: claims that both machines judge alike.
        num_open: claims of which one of the machines lacks evidence of its own.
        breaks_law: whether a law is broken on the second machine that is not on the first.
    """

    laws: list[str]
    observations: list[str]
    num_stayed: int
    num_open: int
    breaks_law: bool

    def lines(self) -> list[str]:
        """The whole as a person reads it."""
        parts = (
            ("laws that changed their verdict", self.laws),
            ("observations that changed theirs", self.observations),
        )
        said = [line for head, rows in parts if rows for line in (f"{head}:", *rows)]
        return [
            *said,
            f"stayed: {self.num_stayed} claims; {self.num_open} more lack evidence on one of the "
            "two: not measured there, or by other code",
        ]


def compared(book: Book, other: str) -> Compared:
    """The verdicts of the machine that a book shows, against another machine's.

    Raises:
        ValueError: there is no such other machine.
    """
    if other not in book.machines:
        known = ", ".join(sorted(book.machines))
        raise ValueError(f"no machine {other!r}; there are: {known}")
    here = judge(book, Evidence(book))
    found = other_outcomes(book, here).get(other)
    there = found.outcomes if found else {}
    changed = {name: there[name] for name in there if parts(here[name], there[name])}
    stayed = [name for name in there if there[name].verdict == here[name].verdict]
    said = {name: _said(name, here[name], outcome) for name, outcome in changed.items()}
    return Compared(
        laws=[said[name] for name, outcome in changed.items() if outcome.claim.kind == "law"],
        observations=[
            said[name] for name, outcome in changed.items() if outcome.claim.kind != "law"
        ],
        num_stayed=len(stayed),
        num_open=len(here) - len(stayed) - len(changed),
        breaks_law=any(
            outcome.is_broken_law and not here[name].is_broken_law
            for name, outcome in changed.items()
        ),
    )


def _said(name: str, here: Outcome, there: Outcome) -> str:
    return f"  {name}: {WORDS[here.verdict]} | {WORDS[there.verdict]}: {there.explanation}"

"""`python -m generator compare A B`: which claims say something else on another machine.

In: a book that shows A, with every machine's traces. Out: lines. An observation may differ from
machine to machine; a law may not, within its domain: where one does, it is broken on that machine,
and the command says so by its exit code.
"""

from __future__ import annotations

from generator.content.book import Book
from generator.evidence.evaluation import Evidence
from generator.evidence.other_machines import other_outcomes, parts
from generator.evidence.verdicts import WORDS, judge


def compared(book: Book, other: str) -> tuple[list[str], bool]:
    """The verdicts of the machine that a book shows, against another machine's.

    Returns:
        Lines for a person, and whether a law is broken on the second machine that holds on the
        first.

    Raises:
        ValueError: there is no such other machine.
    """
    if other not in book.machines:
        known = ", ".join(sorted(book.machines))
        raise ValueError(f"no machine {other!r}; there are: {known}")
    here = judge(book, Evidence(book))
    found = other_outcomes(book, here).get(other)
    there = found.outcomes if found else {}
    lines, num_open, breaks_law = [], len(here), False
    for kind, head in (
        ("law", "laws that changed their verdict"),
        ("observation", "observations that changed theirs"),
    ):
        changed = {
            name: outcome
            for name, outcome in there.items()
            if outcome.claim.kind == kind and parts(here[name], outcome)
        }
        lines += [f"{head}:"] if changed else []
        for name, outcome in changed.items():
            verdicts = f"{WORDS[here[name].verdict]} | {WORDS[outcome.verdict]}"
            lines.append(f"  {name}: {verdicts}: {outcome.explanation}")
            breaks_law |= outcome.is_broken_law and not here[name].is_broken_law
        num_open -= len(changed)
    num_stayed = sum(one.verdict == here[name].verdict for name, one in there.items())
    lines.append(
        f"stayed: {num_stayed} claims; {num_open - num_stayed} more lack evidence on one of the "
        "two: not measured there, or by other code"
    )
    return lines, breaks_law

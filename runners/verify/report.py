"""What the tool prints: findings first, what was compared, then what was not and why.

In: a `Verdict`. Out: at most a screen of lines, of which the last has the word; or JSON. No
torch.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

from runners.system.errors import FixableError
from runners.system.patience import say
from runners.verify.causes import table
from runners.verify.trace import Found, Report, Word
from runners.verify.verdict import Finding, Verdict

SCHEMA = 1
WIDTH = 84
MOST_FINDINGS = 4
MOST_REASONS = 6
WORDS: dict[int, Word] = {0: "agrees", 1: "differs", 3: "not compared"}


def lines(verdict: Verdict, script: str, world_size: int) -> Iterator[str]:
    """The report of a run."""
    numbers = verdict.numbers
    yield f"verify {script} on {world_size} ranks"
    for finding in verdict.findings[:MOST_FINDINGS]:
        yield from _finding(finding)
    if len(verdict.findings) > MOST_FINDINGS:
        yield f"  … and {len(verdict.findings) - MOST_FINDINGS} more; --json lists all"
    if verdict.weights and all(one.detail != verdict.weights for one in verdict.findings):
        yield f"  {verdict.weights}"
    if numbers.get("parameters_compared"):
        yield (
            f"  agree: {numbers['parameters_compared']} of {numbers['parameters']} parameters, "
            f"in {numbers['updates']} update{'s' * (numbers['updates'] != 1)}"
        )
    for note in verdict.notes:
        yield from _wrapped(f"note: {note}")
    for reason in verdict.not_compared[:MOST_REASONS]:
        yield from _wrapped(f"not compared: {reason}")
    if len(verdict.not_compared) > MOST_REASONS:
        yield f"  … and {len(verdict.not_compared) - MOST_REASONS} more; --json lists all"
    yield f"verify: {WORDS[verdict.exit_code]}{_head(verdict)}"


def _head(verdict: Verdict) -> str:
    if verdict.findings:
        title = table()[verdict.findings[0].cause].title
        return f" ({_lower(title)})"
    if verdict.not_compared:
        is_some = verdict.numbers.get("parameters_compared")
        return " in all parts; what was compared agrees" if is_some else ""
    return " with one process: forward, weights of the loss, gradients and update"


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _finding(one: Finding) -> Iterator[str]:
    row = table()[one.cause]
    where = [one.parameter] if one.parameter else []
    where += [] if one.rank is None else [f"rank {one.rank}"]
    where += [] if one.step is None else [f"step {one.step}"]
    yield f"✗ {one.place}: {_lower(row.title)}" if one.place else f"✗ {row.title}"
    for line in (one.says + (f"; {one.detail}" if one.detail else "")).splitlines():
        yield from _wrapped(line, 4)
    if where:
        yield from _wrapped(", ".join(where), 4)
    yield from _wrapped(row.usually, 4)
    yield f"    The book: {row.page}, “{row.section}”"


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)
    )


def document(verdict: Verdict, script: str, world_size: int) -> Report:
    """The same, all of it, for programs."""
    found = [
        Found(**asdict(one), title=row.title, usually=row.usually,
              lesson={"page": row.page, "section": row.section})
        for one in verdict.findings for row in [table()[one.cause]]
    ]  # fmt: skip
    return Report(
        script=script, world_size=world_size, verdict=WORDS[verdict.exit_code], findings=found,
        weights=verdict.weights, compared=verdict.numbers, not_compared=verdict.not_compared,
        notes=verdict.notes,
    )  # fmt: skip


def as_json(report: Report) -> str:
    """The document as it is printed."""
    held = {"schema": SCHEMA, **report.model_dump()}
    return json.dumps(held, indent=2, sort_keys=True, ensure_ascii=False)


def say_wrong(error: FixableError) -> int:
    """Say that the call was wrong; the exit code."""
    say(f"runners.verify: {error}")
    sys.stdout.write("verify: wrong call\n")
    sys.stdout.flush()
    return error.exit_code

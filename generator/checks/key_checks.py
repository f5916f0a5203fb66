"""What decides a key: no difference of times, which another machine may turn round.

In: a file of items, and the evidence. Out: located mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.content.quiz import Item, Predict, QuizFile
from generator.content.yaml_source import Path
from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import sides
from generator.items.kinds import Part, kind_of

_TIME = re.compile(r"\.timing\b|seconds\b")
Found = tuple[Path, str]


def mistakes(evidence: Evidence, document: Document[QuizFile]) -> Iterator[ContentError]:
    """Graded questions about times that another machine turns."""
    for position, item in enumerate(document.model.items):
        for path, message in _timed(item, evidence):
            yield document.error(("items", position, *path), message)


def _timed(item: Item, evidence: Evidence) -> Iterator[Found]:
    """A graded item that an observation of times decides, or whose order follows from times."""
    if isinstance(item, Predict):
        return
    parts = kind_of(item, evidence).parts()
    times = dict.fromkeys(time for part in parts for time in _times_of_part(part, evidence))
    if not times:
        return
    if item.this_table is None:
        yield (
            ("id",),
            f"its key hangs on times ({next(iter(times))}), which another machine may turn round; "
            "ask for what a law says, make it kind: predict, or ask about the times themselves, "
            "shown in this_table:",
        )
        return
    cells = (cell for row in item.this_table.rows for cell in row.cells)
    shown = {field for cell in cells for field in evidence.evaluate(cell).measured}
    for time in times:
        if not any(field.startswith(time) for field in shown):
            yield ("this_table",), f"the key hangs on {time}, which this table does not show"


def _times_of_part(part: Part, evidence: Evidence) -> Iterator[str]:
    """The measured times on which it hangs whether a part is right."""
    for name in part.claims:
        claim = evidence.book.claims.get(name)
        if claim is not None and claim.kind == "observation":
            for side in sides(evidence, claim):
                yield from _times(side.measured, evidence)
    if part.path[0] in ("pieces", "pairs"):  # other numbers are what is asked for
        for expression in part.expressions:
            yield from _times(evidence.evaluate(expression).measured, evidence)


def _times(fields: Iterable[str], evidence: Evidence) -> Iterator[str]:
    for field in fields:
        run = evidence.book.run(".".join(field.split(".")[:2]))
        if _TIME.search(field) and run is not None and run.nature != "simulated":
            yield field

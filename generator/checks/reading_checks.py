"""What decides each key: a claim, an expression or a run for every part of every item, and readers.

In: a file of items, or the evidence. Out: located mistakes, for parts that nothing decides and for
graded questions that hang on a difference of times; and a line for each item and claim that nobody
has read blind since its rule was last changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from generator.content.documents import Document
from generator.content.errors import ContentError
from generator.content.quiz import Item, Predict, QuizFile
from generator.content.readings import ItemReading
from generator.content.yaml_source import Path
from generator.evidence.verdicts import sides
from generator.items.blind_readings import claims_of_book, still_key
from generator.items.rules import Part, claim_digest, item_digest, parts

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

AGAIN = "run `python -m generator blind --missing`, and have it read"
NOBODY = f"nobody has read it blind; {AGAIN}"
CHANGED = f"its {{what}} has changed since it was read on {{on}}; {AGAIN}"
UNDECIDED = (
    "nothing says what decides this option; name a claim under right_if:, refuted_by: or decides:"
)
_TIME = re.compile(r"\.timing\b|seconds\b")
Found = tuple[Path, str]


def mistakes(evidence: Evidence, document: Document[QuizFile]) -> Iterator[ContentError]:
    """Options without a decider, and graded questions about times that another machine turns."""
    for position, item in enumerate(document.model.items):
        for path, message in (*_undecided(item), *_timed(item, evidence)):
            yield document.error(("items", position, *path), message)


def _undecided(item: Item) -> Iterator[Found]:
    for part in parts(item):
        if not part.is_decided and part.path[0] == "options":  # other kinds: evidence_checks.py
            yield part.path, UNDECIDED


def _timed(item: Item, evidence: Evidence) -> Iterator[Found]:
    """A graded item that an observation of times decides, or whose order follows from times."""
    if isinstance(item, Predict):
        return
    times = dict.fromkeys(time for part in parts(item) for time in _times_of_part(part, evidence))
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


def lacks(evidence: Evidence) -> list[str]:
    """A line for each item and claim without a valid reading, where readings are complete."""
    book = evidence.book
    if not book.is_reference:  # keys that move elsewhere are no business of the readers here
        return []
    found = []
    for topic, file in book.item_readings.items():
        if file.complete:
            path = f"content/topics/{topic}/readings.yml"
            found += [f"{path}: {line}" for line in _of_items(evidence, topic)]
    if book.claim_readings.complete:
        found += [f"content/readings.yml: {line}" for line in _of_claims(evidence)]
    return found


def unread_items(evidence: Evidence) -> dict[str, str]:
    """Why each item of the book needs a reading, by id; those that need none are left out."""
    known = {topic.id: evidence.book.item_readings.get(topic.id) for topic in evidence.book.topics}
    found = {}
    for topic in evidence.book.topics:
        file = known[topic.id]
        for name, item in topic.items.items():
            problem = _of_item(item, file.items.get(name) if file else None, evidence)
            if problem:
                found[name] = problem
    return found


def unread_claims(evidence: Evidence) -> dict[str, str]:
    """Why each claim of the book needs a reading, by id; those that need none are left out."""
    found = {}
    for name, written in claims_of_book(evidence.book).items():
        reading = evidence.book.claim_readings.claims.get(name)
        if reading is None:
            found[name] = NOBODY
        elif reading.rule != claim_digest(written):
            found[name] = CHANGED.format(on=reading.read_on, what="rule or sentence")
    return found


def progress(evidence: Evidence) -> list[str]:
    """A line for the items and one for the claims that nobody has read, while that may be."""
    book = evidence.book
    claims = claims_of_book(book)
    unread, open_claims = unread_items(evidence), unread_claims(evidence)
    found = []
    for topic in book.topics:
        file = book.item_readings.get(topic.id)
        num = sum(name in unread for name in topic.items)
        if num and not (file and file.complete):
            found.append(f"{topic.id}: {num} of {len(topic.items)} items are not read blind yet")
    if open_claims and not book.claim_readings.complete:
        found.append(f"{len(open_claims)} of {len(claims)} claims are not read blind yet")
    return found


def _of_items(evidence: Evidence, topic: str) -> Iterator[str]:
    """What the readings of one topic lack, and those that are about nothing."""
    items = next((one.items for one in evidence.book.topics if one.id == topic), {})
    kept = evidence.book.item_readings[topic].items
    for name, item in items.items():
        problem = _of_item(item, kept.get(name), evidence)
        if problem:
            yield f"item {name}: {problem}"
    yield from (
        f"no item {name} any more; delete its reading" for name in kept if name not in items
    )


def _of_claims(evidence: Evidence) -> Iterator[str]:
    yield from (f"claim {name}: {why}" for name, why in unread_claims(evidence).items())
    known, kept = claims_of_book(evidence.book), evidence.book.claim_readings.claims
    yield from (
        f"no claim {name} any more; delete its reading" for name in kept if name not in known
    )


def _of_item(item: Item, reading: ItemReading | None, evidence: Evidence) -> str | None:
    if reading is None:
        return NOBODY
    if reading.rule != item_digest(item, evidence.book):
        return CHANGED.format(on=reading.read_on, what="rule")
    if not still_key(item, reading, evidence):
        return f"its key is no longer what was chosen on {reading.read_on}; {AGAIN}"
    return None

"""A field that somebody reads cannot change unseen: a page, a verdict or a refusal changes with it.

make soak ARGS='-k mutated_field'                          1,000 of them, others each day
PROOFBOOK_SOAK=20000 make soak ARGS='-k mutated_field'     that day's again
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from generator.checks import content_checks
from generator.content import shelf
from generator.content.book import Book, load
from generator.content.errors import ContentError
from generator.evidence import trace_events
from generator.evidence.evaluation import Evidence
from generator.evidence.value import ExpressionError
from generator.evidence.verdicts import Outcome
from generator.pages import field_readers
from generator.pages.page import Judged, Printed, Sheet, printed
from generator.pages.press import Press
from runners.traces import files, values
from runners.traces.records import Trace
from tests.conftest import ROOT
from tests.soak import field_changes
from tests.soak.kills import SEED

REFERENCE = "reference-cpu-2c"
_POSITION = re.compile(r"\[\d+\]")
NUM_CHANGES, PART = 1_000, 125  # in all, and in one test, whose time-out is one's own


@dataclass
class Whole:
    """The book over a copy of the reference traces, its pages, and who reads which field."""

    folder: Path
    book: Book
    judged: Judged
    pages: dict[str, tuple[Sheet, Printed]]
    readers: dict[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("fields") / REFERENCE
    shutil.copytree(ROOT / "content" / "traces" / REFERENCE, folder)
    book = load(ROOT / "content", REFERENCE)
    press = Press()
    press.printed(book)
    readers = {one: by for one, by in field_readers.readers(book).items() if by}
    return Whole(folder, book, press.judged(book), press.pages, readers)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(NUM_CHANGES // PART))
def test_a_mutated_field_that_is_read_changes_a_page_a_verdict_or_is_refused(whole, part):
    chosen = random.Random(f"{SEED} fields").sample(sorted(whole.readers), NUM_CHANGES)
    counts: Counter[str] = Counter()
    unseen = []
    for path in chosen[part * PART : (part + 1) * PART]:
        found = _of_change(whole, path)
        counts[found or "unseen"] += 1
        if found is None:
            unseen.append(f"{path}, read by {', '.join(whole.readers[path])}")
    print("\nfields: " + ", ".join(f"{num} {what}" for what, num in sorted(counts.items())))
    assert not unseen, "\n".join([f"PROOFBOOK_SOAK={SEED}", *unseen])


def _of_change(whole: Whole, path: str) -> str | None:
    """What notices that a field of a trace has changed, its digest made anew; None: nothing.

    A claim on the smallest of several values lets each of them grow, and a claim that all differ
    lets each become another: so an unnoticed change is followed by the next.
    """
    file = whole.folder / f"{path.partition('.')[0]}.json"
    text = file.read_text("utf-8")
    document = json.loads(text)
    try:
        for attempt, what in enumerate(field_changes.changes(document, path, _like(whole, path))):
            file.write_text(json.dumps(document), "utf-8")
            values.list_values(whole.folder, file.stem)
            assert values.edited(file) is None
            found = _of_file(whole, path, file)
            if found:
                return f"{found}{f', {what}' if attempt else ''}"
    finally:
        file.write_text(text, "utf-8")
        values.list_values(whole.folder, file.stem)
    return None


def _like(whole: Whole, path: str) -> list[str]:
    """The fields that differ from this one by a position."""
    pattern = _POSITION.sub("[]", path)
    return [one for one in whole.readers if one != path and _POSITION.sub("[]", one) == pattern]


def _of_file(whole: Whole, path: str, file: Path) -> str | None:
    try:
        return _seen(whole, path, files.read(file))
    except files.TraceError:
        return "refused by an invariant"


def _seen(whole: Whole, path: str, changed: Trace) -> str | None:
    assert changed != whole.book.traces[changed.experiment].trace, path
    if shelf.is_stale(changed):
        return "refused as stale"
    judged = _judged(whole, path, changed)
    return _seen_in_verdicts(whole, judged) or _seen_on_pages(whole, path, changed, judged)


def _seen_in_verdicts(whole: Whole, judged: Judged) -> str | None:
    for name, outcome in judged.outcomes.items():
        before = whole.judged.outcomes[name]
        if outcome.verdict != before.verdict:
            return "seen in a verdict"
        if _texts(outcome) != _texts(before):
            return "seen in what a verdict prints"
    return None


def _seen_on_pages(whole: Whole, path: str, changed: Trace, judged: Judged) -> str | None:
    for reader in whole.readers[path]:
        if not reader.startswith(field_readers.CLAIM):
            before, page = whole.pages[reader]
            sheet = replace(before, book=_over(before.book, changed))
            try:
                again = printed(sheet, judged)
            except (ContentError, ExpressionError):  # a build looks for mistakes before it prints
                assert content_checks.check(Evidence(_over(whole.book, changed))), path
                return "refused where it is read"
            if (again.content, again.assets) != (page.content, page.assets):
                return f"seen on {field_readers.kind_of(reader)}"
    return "seen in a timeline to download" if _exported(whole, path, changed) else None


def _exported(whole: Whole, path: str, changed: Trace) -> bool:
    """Whether the timeline of the field's run is another, which its evidence page links."""
    before = whole.book.traces[changed.experiment].trace
    return any(
        trace_events.exported(before, name) != trace_events.exported(changed, name)
        for name, run in before.runs.items()
        if run.timing.timeline and path.startswith(f"{changed.experiment}.{name}.timing.")
    )


def _judged(whole: Whole, path: str, changed: Trace) -> Judged:
    """The evidence over the changed trace, those claims judged again that read the field."""
    evidence = Evidence(_over(whole.book, changed))
    outcomes = dict(whole.judged.outcomes)
    for reader in whole.readers[path]:
        if reader.startswith(field_readers.CLAIM):
            name = reader.removeprefix(field_readers.CLAIM)
            outcomes[name] = evidence.outcome(name)
    return Judged(evidence, outcomes, whole.judged.other_outcomes)


def _over(book: Book, changed: Trace) -> Book:
    """A book whose reference trace of one experiment is another."""
    measured = book.machines[REFERENCE]
    measured = replace(measured, traces={**measured.traces, changed.experiment: changed})
    shown = replace(book.traces[changed.experiment], trace=changed, reference=changed)
    return replace(
        book,
        traces={**book.traces, changed.experiment: shown},
        machines={**book.machines, REFERENCE: measured},
    )


def _texts(outcome: Outcome) -> list[object]:
    """What the experiment's page prints of a verdict beside its word, popovers included."""
    sides = [one for one in (outcome.predicted, outcome.observed) if one is not None]
    exact = [str(one.shown(way="exact")) for one in sides if not isinstance(one.number, str)]
    leaves = [str(leaf) for one in sides for leaf in one.leaves]
    return [*map(str, sides), *exact, *leaves, outcome.explanation, outcome.scope]

"""Exported files → what an author reads about each item, line by line.

In: the book and the paths of exported files. Out: lines to print, and one line for each file that
could not be used. Two files of one reader count once: two that answered the same item in
the same millisecond are the same reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from generator.content.quiz import Choice, FaultyLine, Item, Several
from generator.evidence.evaluation import Evidence
from generator.items.digests import digest_of
from generator.items.item_statistics import ItemReport, Report, Share, report
from generator.items.readers import Export, ExportError, read

SURENESS = ("a guess", "fairly sure", "sure")
SURE = 2
HEAD = f"{'item':34}{'readers':>8}{'right':>7}{'discrimination':>17}  sure and right"


class Told(NamedTuple):
    """What came of the files: lines about items, and lines about files that are none."""

    lines: list[str]
    refused: list[str]


def tell(evidence: Evidence, files: Sequence[Path]) -> Told:
    """Read every file that can be read, and report on all items together."""
    exports, refused = [], []
    for path in files:
        try:
            exports.append(read(path))
        except ExportError as error:
            refused.append(str(error))
    readers = one_each(exports)
    items = {name: item for topic in evidence.book.topics for name, item in topic.items.items()}
    digests = {name: digest_of(item, evidence) for name, item in items.items()}
    found = report(items, digests, readers)
    lines = list(_lines(evidence, found, len(readers), len(exports))) if exports else []
    return Told(lines, refused)


def one_each(exports: Sequence[Export]) -> list[Export]:
    """One export a reader: of two that share an answer, the one that holds more."""
    kept: list[tuple[set[tuple[str, int]], Export]] = []
    for export in sorted(exports, key=_num_attempts, reverse=True):
        answers = {(name, one.attempts[0].at) for name, one in export.items.items()}
        if not any(answers & others for others, _ in kept):
            kept.append((answers, export))
    return [export for _, export in kept]


def _num_attempts(export: Export) -> int:
    return sum(len(record.attempts) for record in export.items.values())


def _lines(evidence: Evidence, found: Report, num_readers: int, num_files: int) -> Iterator[str]:
    yield f"{_count(num_readers, 'reader')} in {_count(num_files, 'file')}"
    yield ""
    yield HEAD
    for one in found.items:
        yield from _of_item(evidence, one)
    yield ""
    for level, share in found.by_confidence.items():
        yield f"{SURENESS[level]}: right at first in {_of(share)}"
    if found.never_answered:
        yield f"never answered: {', '.join(found.never_answered)}"
    if found.num_unknown:
        yield f"{_count(found.num_unknown, 'record')} of items that this book does not have"
    if found.num_unfit:
        yield f"{_count(found.num_unfit, 'attempt')} left out: no answers that such an item takes"


def _of_item(evidence: Evidence, one: ItemReport) -> Iterator[str]:
    if not one.num_readers:
        yield one.item.id
    else:
        discrimination = one.why_unknown
        if one.discrimination is not None:
            discrimination = f"{one.discrimination:+.2f}"
        sure = _of(one.by_confidence[SURE]) if SURE in one.by_confidence else ""
        numbers = f"{one.num_readers:>8}{_percent(one.right):>7}{discrimination:>17}"
        yield f"{one.item.id:34}{numbers}  {sure}".rstrip()
    for place in one.never_chosen:
        yield f"    nobody chose: {_words(evidence, one.item, place)}"
    if one.older[1]:
        yield f"    older versions: right at first in {_of(one.older)}"


def _words(evidence: Evidence, item: Item, place: int) -> str:
    if isinstance(item, FaultyLine):
        return item.lines[place].code.strip()
    assert isinstance(item, Choice | Several)
    return evidence.plain(item.options[place].says)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _percent(share: Share) -> str:
    right, num = share
    return f"{right / num:.0%}" if num else "–"


def _of(share: Share) -> str:
    right, num = share
    return f"{right} of {num} ({_percent(share)})"

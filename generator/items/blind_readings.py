"""A reader's answers to blind sheets → the readings that are kept, and what to look at again.

In: a file of answers, and the evidence. Out: the readings that chose the key, written into the
topic's `readings.yml` (for claims `content/readings.yml`), and a line for each answer that did not,
each doubt, and each answer that could not be used.

    by: AB
    read_on: 2026-03-01
    items:
      ddp-what-travels: B
      ddp-order: [C, A, B]
      ddp-cost-bytes: {choice: A, doubt: the rule says nothing about each step}
    claims:
      ddp-payload: "yes"
      ddp-drift: {entailed: "no", doubt: the sentence says every rank, the rule reads one}

An answer belongs to the sheet that is printed now. Where a rule changed after a sheet was printed,
the sheet is printed and read again before it is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import yaml
from pydantic import BeforeValidator

from generator.content import content_files
from generator.content.book import Book
from generator.content.claim import Claim, ClaimFile
from generator.content.documents import read
from generator.content.errors import ContentError, ContentErrors, nearest
from generator.content.quiz import Item
from generator.content.readings import (
    ClaimReadingsFile,
    Day,
    Doubt,
    Initials,
    ItemReading,
    ItemReadingsFile,
    Reading,
)
from generator.content.words import Id, Written
from generator.items.blind_sheets import Sheet, of_claim, of_item
from generator.items.keys import key_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

STRING = "tag:yaml.org,2002:str"
HEAD = "# Written by `python -m generator blind --record FILE`; generator/README.md says how.\n"


def _listed(written: object) -> object:
    """An answer with its parts: letters alone are the choice, and one letter needs no list."""
    if isinstance(written, str | list):
        written = {"choice": written}
    if isinstance(written, dict) and isinstance(written.get("choice"), str):
        return {**written, "choice": [written["choice"]]}
    return written


def _entailed(written: object) -> object:
    return {"entailed": written} if isinstance(written, str) else written


class ItemAnswer(Written):
    """The letters that a reader chose, and what was doubtful."""

    choice: list[str]
    doubt: Doubt | None = None


class ClaimAnswer(Written):
    """Whether the rule entails the sentences, and what was doubtful."""

    entailed: Literal["yes", "no"]
    doubt: Doubt | None = None


class AnswersFile(Written):
    """What one reader answered on one day."""

    by: Initials
    read_on: Day
    items: dict[Id, Annotated[ItemAnswer, BeforeValidator(_listed)]] = {}
    claims: dict[Id, Annotated[ClaimAnswer, BeforeValidator(_entailed)]] = {}


class Recorded(NamedTuple):
    """What came of a file of answers.

    Attributes:
        num_agreeing: answers that are kept.
        num_doubted: those of them with a doubt.
        lines: the disagreements and doubts, one each.
        refused: answers to sheets that there are not.
    """

    num_agreeing: int
    num_doubted: int
    lines: list[str]
    refused: list[str]


def record(evidence: Evidence, content: Path, file: Path) -> Recorded:
    """Compare a reader's answers with the keys, and keep those that agree.

    Raises:
        ContentErrors: the file is no file of answers.
        OSError: it cannot be read, or the readings cannot be written.
    """
    answers = _read(file)
    lines: list[str] = []
    refused: list[str] = []
    kept_items = dict(_items(evidence, answers, lines, refused))
    kept_claims = dict(_claims(evidence, answers, lines, refused))
    kept: list[Reading] = [*kept_items.values(), *kept_claims.values()]
    _write(evidence.book, content, kept_items, kept_claims)
    return Recorded(len(kept), sum(one.doubt is not None for one in kept), lines, refused)


def _read(file: Path) -> AnswersFile:
    try:
        text = content_files.text_of(file, file.resolve().parent)
    except content_files.FileError as error:
        message = str(error)
        raise ContentErrors([ContentError(str(file), error.line, error.column, message)]) from None
    answers: AnswersFile = read(str(file), text, AnswersFile).model
    return answers


def _items(
    evidence: Evidence, answers: AnswersFile, lines: list[str], refused: list[str]
) -> Iterator[tuple[str, ItemReading]]:
    known = items_of(evidence.book)
    for name, answer in answers.items.items():
        if name not in known:
            refused.append(f"no item {name!r}{nearest(name, known)}")
            continue
        sheet = of_item(known[name], evidence)
        places = _places(answer.choice, sheet)
        if places is None:
            letters = ascii_uppercase[: len(sheet.order)]
            refused.append(f"{name}: {_letters(answer.choice)} is no answer; choose of {letters}")
            continue
        doubt = f": {answer.doubt}" if answer.doubt else ""
        if sheet.key is None:
            refused.append(f"{name}: this machine leaves it open; read it on the reference machine")
        elif not is_key(known[name], places, sheet.key):
            right = _letters([ascii_uppercase[sheet.order.index(one)] for one in sheet.key])
            lines.append(f"{name}: chose {_letters(answer.choice)}, the key is {right}{doubt}")
        else:
            if doubt:
                lines.append(f"{name}: chose the key, with a doubt{doubt}")
            yield (
                name,
                ItemReading(
                    rule=sheet.digest, by=answers.by, read_on=answers.read_on, doubt=answer.doubt,
                    choice=[place + 1 for place in places],
                ),
            )  # fmt: skip


def _claims(
    evidence: Evidence, answers: AnswersFile, lines: list[str], refused: list[str]
) -> Iterator[tuple[str, Reading]]:
    known = claims_of_book(evidence.book)
    for name, answer in answers.claims.items():
        doubt = f": {answer.doubt}" if answer.doubt else ""
        if name not in known:
            refused.append(f"no claim {name!r}{nearest(name, known)}")
        elif answer.entailed == "no":
            lines.append(f"{name}: its rule does not entail its sentence{doubt}")
        else:
            if doubt:
                lines.append(f"{name}: entailed, with a doubt{doubt}")
            digest = of_claim(known[name], evidence).digest
            yield (
                name,
                Reading(
                    rule=digest, by=answers.by, read_on=answers.read_on, doubt=answer.doubt
                ),
            )  # fmt: skip


def items_of(book: Book) -> dict[str, Item]:
    """Every item of a book, by id."""
    return {name: item for topic in book.topics for name, item in topic.items.items()}


def claims_of_book(book: Book) -> dict[str, Claim]:
    """Every claim of a book as it stands in its file, by id."""
    files = (one.model for one in book.documents if isinstance(one.model, ClaimFile))
    return {claim.id: claim for file in files for claim in file.claims}


def is_key(item: Item, places: tuple[int, ...], key: tuple[int, ...]) -> bool:
    """Whether a choice is the key; the order counts where the item asks for one."""
    ordered = item.kind in ("order", "match")
    return places == key if ordered else sorted(places) == sorted(key)


def still_key(item: Item, reading: ItemReading, evidence: Evidence) -> bool:
    """Whether what a reading chose is the key now; an open key refutes nothing."""
    key = key_of(item, evidence)
    if key.is_open:
        return True
    places = tuple(place - 1 for place in reading.choice)
    return is_key(item, places, key.right or (0,))


def _places(letters: list[str], sheet: Sheet) -> tuple[int, ...] | None:
    """The positions, as written, behind letters; None where there is no such letter, or twice."""
    if sheet.kind in ("number", "predict", "complete") and letters == ["none"]:
        return ()
    known = ascii_uppercase[: len(sheet.order)]
    if not letters or len(set(letters)) < len(letters) or any(one not in known for one in letters):
        return None
    return tuple(sheet.order[known.index(one)] for one in letters)


def _letters(letters: list[str]) -> str:
    return ", ".join(letters)


def _write(
    book: Book, content: Path, items: dict[str, ItemReading], claims: dict[str, Reading]
) -> None:
    """Put readings beside those that are kept already."""
    for topic in book.topics:
        own = {name: one for name, one in items.items() if name in topic.items}
        if own:
            file = book.item_readings.get(topic.id) or ItemReadingsFile()
            changed = file.model_copy(update={"items": {**file.items, **own}})
            _dump(content / "topics" / topic.id / "readings.yml", changed)
    if claims:
        read_before = book.claim_readings
        changed_claims = read_before.model_copy(update={"claims": {**read_before.claims, **claims}})
        _dump(content / "readings.yml", changed_claims)


class _Dumper(yaml.SafeDumper):
    """Quotes what our reader of YAML takes for a number, such as the digest 441525916e57."""


def _represented(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_like_a_number = re.fullmatch(r"\d+(e\d+)?", text)
    return dumper.represent_scalar(STRING, text, style="'" if is_like_a_number else None)


_Dumper.add_representer(str, _represented)


def _dump(path: Path, file: ItemReadingsFile | ClaimReadingsFile) -> None:
    document = file.model_dump(exclude_none=True)
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=True, allow_unicode=True, width=100)
    path.write_text(HEAD + text, encoding="utf-8")

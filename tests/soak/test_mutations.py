"""Mutations of the real content: refused in lines with their place, or accepted and visible."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from generator.checks import content_checks
from generator.content.book import Book, load
from generator.content.documents import Document
from generator.content.errors import ContentError, ContentErrors
from generator.content.quiz import QuizFile
from generator.evidence.evaluation import Evidence
from tests.conftest import ROOT
from tests.soak import mutations
from tests.soak.kills import SEED

REFERENCE = "reference-cpu-2c"
NUM_YAML, NUM_JSON, PART = 1_000, 500, 125  # in all, and in one test, whose time-out is one's own
NUM_READERS = 3  # the files that are checked over a trace
IN_YAML = re.compile(r"content/[^:]+\.yml:\d+(:\d+)?: \S.*")
IN_JSON = re.compile(
    r"content/traces/[^:]+\.json: ([\w.()\[\]\\<>-]*[: ]|not a whole JSON file \()\S.*"
)
IN_FOLDER = re.compile(r"content/[^:]+: \S.*")  # of a machine or a topic as a whole


@dataclass
class Real:
    """A copy of the real content, and its book."""

    content: Path
    book: Book

    def load(self) -> Book:
        return load(self.content, REFERENCE, is_stale=lambda _: False)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    content = tmp_path_factory.mktemp("mutations") / "content"
    shutil.copytree(ROOT / "content", content, ignore=shutil.ignore_patterns("tries"))
    (content.parent / "runners").symlink_to(ROOT / "runners")
    for folder in (content / "traces").iterdir():
        if folder.name != REFERENCE:
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    return Real(content, load(content, REFERENCE, is_stale=lambda _: False))


def _mistakes(book: Book, documents: list[Document[Any]]) -> Iterator[ContentError]:
    evidence = Evidence(book)
    for document in documents:
        yield from content_checks.of_document(evidence, document)
        if isinstance(document.model, QuizFile):
            folder = document.source.file.split("/")[-2]
            for topic in book.topics:
                if topic.id == folder:
                    yield from content_checks.of_writing(evidence, topic)


def _tell(kind: str, counts: Counter[str]) -> None:
    print(f"\n{kind}: " + ", ".join(f"{num} {what}" for what, num in sorted(counts.items())))


def _placed(errors: list[ContentError], name: str) -> None:
    for error in errors:
        line = str(error)
        assert line.isprintable(), line
        found = IN_YAML.fullmatch(line) or IN_JSON.fullmatch(line)
        assert found or (IN_FOLDER.fullmatch(line) and error.file != name), line


@pytest.mark.soak
@pytest.mark.parametrize("part", range(NUM_YAML // PART))
def test_a_mutation_of_yaml_is_refused_at_its_place_or_seen(real, part):
    before = {one.source.file: one for one in real.book.documents}
    # The runners alone read what the book does not.
    files = sorted(path for path in real.content.rglob("*.yml") if _name(path, real) in before)
    counts: Counter[str] = Counter()
    for attempt in range(part * PART, (part + 1) * PART):
        chosen = random.Random(f"{SEED} yaml {attempt}")
        path = chosen.choice(files)
        name, text = _name(path, real), path.read_text("utf-8")
        path.write_bytes(mutations.of_yaml(text, chosen))
        try:
            counts[_of_yaml(real, before[name], name)] += 1
        except Exception as error:
            error.add_note(f"PROOFBOOK_SOAK={SEED}, attempt {attempt}, {name}")
            raise
        finally:
            path.write_text(text, "utf-8")
    _tell("YAML", counts)


def _name(path: Path, real: Real) -> str:
    return path.relative_to(real.content.parent).as_posix()


def _of_yaml(real: Real, before: Document[Any], name: str) -> str:
    try:
        book = real.load()
        (document,) = (one for one in book.documents if one.source.file == name)
        errors = list(_mistakes(book, [document]))
    except ContentErrors as found:
        errors = found.errors
    if errors:
        _placed(errors, name)
        return "refused"
    if document.source.document == before.source.document:
        assert document.model == before.model
        return "accepted: the same values"
    if document.model == before.model:
        return "accepted: a default written out"
    assert document.fields != before.fields or repr(document.model) != repr(before.model)
    return "accepted: seen in the book"


@pytest.mark.soak
@pytest.mark.parametrize("part", range(NUM_JSON // PART))
def test_a_mutation_of_a_trace_is_refused_by_field_or_seen(real, part):
    files = sorted((real.content / "traces" / REFERENCE).glob("*.json"))
    counts: Counter[str] = Counter()
    for attempt in range(part * PART, (part + 1) * PART):
        chosen = random.Random(f"{SEED} json {attempt}")
        path = chosen.choice(files)
        text = path.read_text("utf-8")
        path.write_bytes(mutations.of_json(text, chosen))
        try:
            counts[_of_json(real, path)] += 1
        except Exception as error:
            error.add_note(f"PROOFBOOK_SOAK={SEED}, attempt {attempt}, {path.name}")
            raise
        finally:
            path.write_text(text, "utf-8")
    _tell("JSON", counts)


def _of_json(real: Real, path: Path) -> str:
    try:
        book = real.load()
    except ContentErrors as found:
        _placed(found.errors, "")
        return "refused"
    reading = [one for one in book.documents if f"{path.stem}." in one.source.text]
    errors = list(_mistakes(book, reading[:NUM_READERS]))
    if errors:
        _placed(errors, "")
        return "refused where it is read"
    was, now = (one.machines[REFERENCE] for one in (real.book, book))
    return "accepted: the same values" if was == now else "accepted: seen in the book"

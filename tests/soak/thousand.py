"""The real book, its topics repeated until it has a thousand pages. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import copy_of_the_book

NUM_PAGES = 1000
NAMES_ITEMS = (  # keys whose values name items of a quiz
    "commit", "question", "quiz", "items", "guess", "checks", "item", "leave_out",
)  # fmt: skip


def _renamed(written: Any, suffix: str, *, is_item: bool = False) -> Any:
    """A lesson with every item's id, and every mention of one, made its own by a suffix."""
    if isinstance(written, dict):
        return {
            key: _renamed(value, suffix, is_item=key in NAMES_ITEMS or (is_item and key == "id"))
            for key, value in written.items()
        }
    if isinstance(written, list):
        return [_renamed(value, suffix, is_item=is_item) for value in written]
    return f"{written}{suffix}" if is_item else written


def _num_pages(files: Iterable[Path]) -> int:
    """topic.yml is the topic's index; the files of questions are no pages of their own."""
    return sum(not path.stem.startswith("quiz") for path in files)


def _repeat(topic: Path, number: int) -> int:
    """Write a topic once more under another name; return how many pages that adds."""
    copy = topic.with_name(f"{topic.name}-{number}")
    copy.mkdir()
    files = sorted(topic.glob("*.yml"))
    for path in files:
        written = _renamed(yaml.safe_load(path.read_text(encoding="utf-8")), f"-{number}")
        text = yaml.safe_dump(written, sort_keys=False, allow_unicode=True, width=1000)
        (copy / path.name).write_text(text, encoding="utf-8")
    return _num_pages(files)


def thousand_pages(folder: Path) -> Path:
    """Make the book in `folder`, and return it."""
    book = copy_of_the_book(folder)
    topics = sorted(path.parent for path in (book / "content" / "topics").glob("*/topic.yml"))
    num_pages = sum(_num_pages(topic.glob("*.yml")) for topic in topics)
    for number in count(2):
        for topic in topics:
            if num_pages >= NUM_PAGES:
                return book
            num_pages += _repeat(topic, number)
    raise AssertionError("unreachable")

"""Fences `quiz` in pages: ids of items, or items."""

import re
from collections.abc import Iterator

from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document, validated
from proofbook.generator.content.errors import ContentError, ContentErrors, place_of
from proofbook.generator.content.handwritten import within
from proofbook.generator.content.quiz import Item, QuizFence
from proofbook.generator.content.words import as_list
from proofbook.generator.content.yaml_source import YamlFile
from proofbook.generator.kinds.questions import elements
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Element


def parsed(name: str, text: str, start: int, end: int) -> YamlFile:
    """The YAML `text[start:end]` of a page as a fence's keys; ContentErrors of a mistake."""
    return read(name, text, start, end).source


def asked(fence: QuizFence, _: int, draft: Draft) -> Iterator[Element]:
    """The questions of a fence."""
    for quiz_item in items_of(fence, draft.folio.book):
        yield elements.question(quiz_item, draft.folio, "question")


def read(name: str, text: str, start: int, end: int) -> Document[QuizFence]:
    """A `Document` of a fence, YAML `text[start:end]` of a page: items or ids; or ContentErrors."""
    if not text[start:end].strip():
        message = "the fence asks nothing; write the id of an item, a list of ids, or an item"
        raise ContentErrors([ContentError(name, *place_of(text, start), message)])
    source = within(name, text, start, end)
    written, places = source.document, source.places
    ids = written.replace(",", " ").split() if isinstance(written, str) else []
    if len(ids) > 1 and all(re.fullmatch("[a-z0-9-]+", name) for name in ids):
        message = f"several ids are a list: write [{', '.join(ids)}]"
        raise ContentErrors([source.error((), message)])
    key = "items" if isinstance(written, dict) else "names"
    at = (key,) if isinstance(written, list) else (key, 0)
    moved = {(*at, *path): place for path, place in places.items()}
    moved = {(): places[()], (key,): places[()], **moved}
    return validated(YamlFile(name, text, {key: as_list(written)}, moved), QuizFence)


def items_of(fence: QuizFence, book: Book) -> list[Item]:
    """The items that a fence asks, in their order: of any topic, or its own."""
    return [*(book.items[name] for name in fence.names), *fence.items]

"""Questions in files of quizzes and in fences of pages, ids of items or items: their mistakes."""

import re
from collections.abc import Iterator
from typing import Any

from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document, validated
from proofbook.generator.content.errors import ContentError, ContentErrors, place_of
from proofbook.generator.content.handwritten import HandWritten, within
from proofbook.generator.content.lesson import LessonFile
from proofbook.generator.content.quiz import Item, QuizFence, QuizFile
from proofbook.generator.content.words import as_list
from proofbook.generator.content.yaml_source import Mistake, YamlFile
from proofbook.generator.kinds.questions import asked, elements, item_checks
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Element
from proofbook.generator.values.evaluation import Evidence


def parsed(name: str, text: str, start: int, end: int) -> YamlFile:
    """The YAML `text[start:end]` of a page as a fence's keys; ContentErrors of a mistake."""
    return read(name, text, start, end).source


def questions(fence: QuizFence, _: int, draft: Draft) -> Iterator[Element]:
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


def known(book: Book, document: Document[Any]) -> list[str]:
    """The questions that a file may name: those of its topic, or of any for other files."""
    return [
        question
        for topic in book.topics
        for question in topic.items
        if document in topic.lessons.values() or not isinstance(document.model, LessonFile)
    ]


def of_quiz(evidence: Evidence, document: Document[QuizFile]) -> Iterator[Mistake]:
    """Those of all questions of a file."""
    for position, question in enumerate(document.model.items):
        for path, message in _item_mistakes(evidence, question):
            yield ("items", position, *path), message


def of_page(evidence: Evidence, document: Document[HandWritten]) -> Iterator[Mistake]:
    """Those of the questions that stand in fences of a page."""
    fences = document.model.of_kinds()["quiz"]
    for number, fence in enumerate(part for part in fences if isinstance(part, QuizFence)):
        for position, question in enumerate(fence.items):
            for path, message in _item_mistakes(evidence, question):
                yield ("quiz", number, "items", position, *path), message


def _item_mistakes(evidence: Evidence, question: Item) -> Iterator[Mistake]:
    wrong = list(item_checks.mistakes(question, evidence))
    is_unread = any(item_checks.missing_evidence(question, evidence))
    wrong += [] if is_unread else item_checks.draw_mistakes(question, evidence)
    wrong += [] if wrong else asked.mistakes(question, evidence)
    yield from wrong
    for number, other in enumerate(question.others, 1):
        if not wrong and not is_unread:  # else its other cases would say the same again
            for message in item_checks.mistakes_of_case(question, other, evidence)[:1]:
                yield ("for", number), message


def notes(evidence: Evidence) -> Iterator[str]:
    """A line on the questions that could not be checked, if there are some."""
    lender = evidence.reference or evidence
    items = evidence.book.items.items()
    if left := [name for name, question in items if kind_of(question, lender).key.is_open]:
        yield f"not checked here, since runs are missing or ended otherwise: {', '.join(left)}"

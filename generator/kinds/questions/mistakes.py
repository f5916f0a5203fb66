"""Mistakes of questions, in files of quizzes and in fences of pages by hand."""

from collections.abc import Iterator
from typing import Any

from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document
from proofbook.generator.content.handwritten import HandWritten
from proofbook.generator.content.lesson import LessonFile
from proofbook.generator.content.quiz import Item, QuizFence, QuizFile
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.questions import asked, item_checks
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.values.evaluation import Evidence


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

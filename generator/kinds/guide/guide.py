"""What is wrong in the guide of a book: in `content/guide.yml`, and where its questions lead."""

from collections.abc import Callable, Collection, Iterator

from proofbook.generator.content.book import Book
from proofbook.generator.content.documents import Document
from proofbook.generator.content.errors import ContentError, nearest
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.guide.words import GuideFile
from proofbook.generator.kinds.questions import item_checks
from proofbook.generator.values.evaluation import Evidence


def techniques(_: Book, document: Document[GuideFile]) -> list[str]:
    """What a question may lead to."""
    return [technique.id for technique in document.model.techniques]


def symptoms(_: Book, document: Document[GuideFile]) -> list[str]:
    """Where a question may go on: a symptom, or a question of one."""
    return [
        f"{symptom.id}{ask}"
        for _, symptom in document.model.symptoms
        for ask in ("", *(f"#ask-{number}" for number, _ in enumerate(symptom.edges, 1)))
    ]


def mistakes(evidence: Evidence, document: Document[GuideFile]) -> Iterator[Mistake]:
    """Claims behind an advice that do not hold, and figures that no lesson has."""
    known = [f"{topic.id}/{name}" for topic in evidence.book.topics for name in topic.figures]
    for at, edge in document.model.edges:
        if edge.figure and edge.figure not in known:
            yield (*at, "figure"), f"no lesson figure {edge.figure!r}{nearest(edge.figure, known)}"
    for field in document.fields:
        is_known = field.mark == "claim" and field.text in evidence.book.claims
        if is_known and (problem := item_checks.why_unheld(evidence, field.text)):
            yield field.path, problem


def missing_sections(
    book: Book, sections: Callable[[str], Collection[str]]
) -> Iterator[ContentError]:
    """An error for each link of the guide to a section that a printed lesson lacks.

    `sections` gives the headings of a lesson, `topic/mode`; none where it is not printed.
    """
    for guide in (document for document in book.documents if isinstance(document.model, GuideFile)):
        for at, edge in guide.model.edges:
            page, section = edge.lesson.page, edge.lesson.section
            known = sections(page)
            if known and section not in known:
                message = f"{page} has no section {section!r}{nearest(section, known)}"
                yield guide.error((*at, "lesson", "section"), message)

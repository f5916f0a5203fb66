"""Recall: the questions of a topic again, each when it is due, and why they return."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from generator.content.book import Topic
from generator.content.lesson import RecallFile
from generator.pages.draft import Draft
from generator.pages.elements import questions
from generator.pages.elements.element import Block, Element, Heading, ListOfLines
from generator.pages.elements.questions import Question
from generator.pages.views import ways
from generator.printing.folio import Folio

VARIANTS = "assets/variants"
# Why questions return, and the studies that say so.
REASONS = {
    "A question that has rested for some days is remembered longer than one repeated at once.":
        ("latimier-spacing",),
    "The interval follows your own answers. A published model of memory, FSRS with its default "
    "parameters, estimates after each answer how long you will remember, and the question returns "
    "when the probability that you still know it has fallen to nine in ten. A right answer of "
    "which you were sure lengthens the interval most; a wrong one shortens it.":
        ("ye-scheduling",),
    "Writing or working out an answer teaches more than reading it again, and an answer with an "
    "explanation teaches more than a bare “right” or “wrong”. So each answer here explains itself.":
        ("yang-testing", "vanderkleij-feedback"),
    "An error made with confidence is corrected readily, because the surprise is remembered, but "
    "it tends to return where the correction was forgotten. So wrong answers and guesses are due "
    "again at once, and you can retake them at the end of the sitting; they return after a day as "
    "well.":
        ("butterfield-hypercorrection", "butler-return"),
}  # fmt: skip


@dataclass(frozen=True)
class Sitting(Element):
    """The questions of a topic, of which a script asks those that are due."""

    IS_FOUND = False
    topic: str
    variants: str  # the address of their script, if there are any
    questions: Sequence[Question]
    elsewhere: Sequence[Markup]  # links to questions that their own pages ask, as lines of a list

    @property
    def needs(self) -> frozenset[str]:
        """Also the scripts of all forms, if there are variants."""
        return super().needs | ({"variants"} if self.variants else set())


@dataclass(frozen=True)
class KeptAnswers(Element):
    """What readers do with the answers that their browser keeps."""

    IS_FOUND = False
    heading: Heading


def recall(draft: Draft) -> Iterator[Element | Markup]:
    """The questions of a topic, other topics, what is kept, and why questions return."""
    lesson, topic, folio = draft.lesson(RecallFile), draft.topic, draft.folio
    yield draft.lede(lesson.introduction)
    yield draft.heading(2, "Questions of this topic")
    names = [name for name in topic.items if name not in lesson.leave_out]
    variants = [
        variant
        for name in names
        for variant in questions.variants(topic.items[name], folio, "recall")
    ]
    yield Sitting(
        topic=topic.id,
        variants=folio.root + _script_of(variants, folio) if variants else "",
        questions=[draft.question(topic.items[name], "recall") for name in names],
        elsewhere=list(_elsewhere(topic, folio)),
    )
    others = [_topic(other, folio) for other in folio.book.topics if other is not topic]
    if links := [*filter(None, others)]:
        yield draft.heading(2, "Other topics")
        yield ListOfLines(links, css="pb-queue")
    yield KeptAnswers(draft.heading(2, "Your progress"))
    heading = draft.heading(2, "Why it asks again")
    reasons = [
        Markup("<p>{} {}</p>").format(reason, _cited(studies, folio))
        for reason, studies in REASONS.items()
    ]
    yield Block([heading, *reasons, draft.prose(lesson.afterword)], "pb-live", "section")


def _script_of(variants: Sequence[Question], folio: Folio) -> str:
    """Put variants into a script of their own; its path under the root.

    Only a script can ask them, so the page itself stays that much lighter.
    """
    path = f"{VARIANTS}/{folio.path.removesuffix('.md').replace('/', '-')}.js"
    html = "\n".join(map(escape, variants))
    folio.assets[path] = f"proofbook.variants({json.dumps(html.strip())});\n".encode()
    return path


def _elsewhere(topic: Topic, folio: Folio) -> Iterator[Markup]:
    """The questions that Recall leaves out, as lines with links to the pages that ask them."""
    line = Markup('<li data-items="{}"><a class="pb-label" href="{}.html#item-{}">{}</a> ({})</li>')
    for name, (mode, page) in ways.led_to(topic).items():
        marks = ways.item_marks([name], topic, folio.evidence)
        words = questions.in_short(topic.items[name], folio)
        yield line.format(marks, page, name, words, folio.ui["modes"][mode])


def _topic(topic: Topic, folio: Folio) -> Markup:
    """A link to the Recall page of a topic; empty where it has none."""
    if "recall" not in topic.items_by_mode:
        return Markup()
    marks = ways.item_marks(topic.items_by_mode["recall"], topic, folio.evidence)
    link = Markup(
        '<a href="{}topics/{id}/recall.html" data-page="{id}/recall" data-items="{}">{}'
        '<span class="pb-progress"></span></a>'
    )
    return link.format(folio.root, marks, folio.in_link.line(topic.file.title), id=topic.id)


def _cited(studies: Sequence[str], folio: Folio) -> Markup:
    """Those of some studies that the book cites, in brackets."""
    link = Markup('<a class="pb-cited" href="{}" rel="noreferrer">{}</a>')
    known = [folio.book.references[name] for name in studies if name in folio.book.references]
    links = Markup("; ").join(link.format(study.url, study.title) for study in known)
    return Markup("({})").format(links) if known else links

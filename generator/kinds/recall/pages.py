"""Recall: the questions of a topic again, each when it is due, and why they return."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from proofbook.generator.content.book import Topic
from proofbook.generator.content.quiz import Item
from proofbook.generator.kinds.lessons import parts, ways
from proofbook.generator.kinds.lessons.words import RecallFile
from proofbook.generator.kinds.questions import elements as questions
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Block, Element, ListOfLines, Made
from proofbook.generator.printing.folio import Folio

VARIANTS = "assets/variants"
RETURNS = (
    "This is spaced repetition: a question returns when, by your own answers, the probability that "
    "you still know it has fallen to nine in ten. Wrong answers and guesses are due again at once."
)


@dataclass(frozen=True)
class Sitting(Element):
    """The questions of a topic, of which a script asks those that are due."""

    is_found = False
    topic: str
    variants: str  # the address of their script, if there are any
    questions: Sequence[Element]
    elsewhere: Sequence[tuple[str, ...]]  # questions of other pages: id, mode, page, marks, words

    @property
    def needs(self) -> frozenset[str]:
        """Also the scripts of all forms, if there are variants."""
        return super().needs | ({"variants"} if self.variants else set())


def recall(draft: Draft) -> Iterator[Element | Markup]:
    """The questions of a topic, other topics, what is kept, and why questions return."""
    lesson, topic, folio = draft.lesson(RecallFile), draft.topic, draft.folio
    yield draft.heading(2, "Questions of this topic")
    names = topic.items_by_mode["recall"]
    script = _script([topic.items[name] for name in names], folio)
    asked = [question for name in names for question in parts.item(draft, name, "recall")]
    elsewhere = []
    for name, (mode, page) in ways.led_to(topic).items():
        words = questions.in_short(topic.items[name], folio)
        elsewhere.append((name, mode, page, ways.item_marks([name], topic, folio.evidence), words))
    yield Sitting(topic.id, script, asked, elsewhere)
    others = (other for other in folio.book.topics if other is not topic)
    if links := [_link(other, folio) for other in others if "recall" in other.items_by_mode]:
        yield draft.heading(2, "Other topics")
        yield ListOfLines(links, css="pb-queue")
    yield Made("KeptAnswers", heading=draft.heading(2, "Your progress"), is_found=False)
    heading = draft.heading(2, "Why it asks again")
    yield Block([heading, *draft.texts(RETURNS, lesson.afterword)], "pb-live", "section")


def _script(items: Sequence[Item], folio: Folio) -> str:
    """Put the variants of some questions into a script; its address, or '' if there are none.

    Only a script can ask them, so the page itself stays that much lighter.
    """
    variants = [variant for own in items for variant in questions.variants(own, folio, "recall")]
    if not variants:
        return ""
    path = f"{VARIANTS}/{folio.path.removesuffix('.md').replace('/', '-')}.js"
    html = "\n".join(map(escape, variants))
    folio.assets[path] = f"proofbook.variants({json.dumps(html.strip())});\n".encode()
    return folio.root + path


def _link(topic: Topic, folio: Folio) -> Markup:
    """A link to the Recall page of a topic."""
    marks = ways.item_marks(topic.items_by_mode["recall"], topic, folio.evidence)
    link = Markup(
        '<a href="{}topics/{id}/recall.html" data-page="{id}/recall" data-items="{}">{}'
        '<span class="pb-progress"></span></a>'
    )
    return link.format(folio.root, marks, folio.in_link.line(topic.file.title), id=topic.id)

"""The path: the first hour, a map of what topics need, and the lessons of one of them."""

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup, escape

from proofbook.generator.content.book import Topic
from proofbook.generator.kinds.lessons import ways
from proofbook.generator.kinds.lessons.lessons import CHEAT_SHEET
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Element, Made
from proofbook.generator.pages.way import Groups, Step
from proofbook.generator.printing.folio import Folio

Lines = list[tuple[float, float]]  # where each begins above and ends below, as shares of the width


def path(draft: Draft) -> Iterator[Element | Markup]:
    """The first hour, and all topics."""
    folio, minutes = draft.folio, draft.gathered.minutes
    yield draft.opening(draft.sheet.about)
    if steps := ways.first_hour(folio, minutes):
        yield draft.heading(2, "First hour")
        yield Made("WayList", steps=steps, root=folio.root)
    yield draft.heading(2, "All topics")
    words = "A line leads from a topic to those that need it. Choose one to see its lessons. "
    says = escape(f"{words}Its minutes are those of the first pass.")
    if any(topic.file.key_laws for topic in folio.book.topics):
        link = Markup(' The laws of all topics stand on the <a href="{}{}.html">cheat sheet</a>.')
        says += link.format(folio.root, CHEAT_SHEET)
    yield Aside(says)
    topics = folio.book.topics
    titles = {topic.id: folio.in_link.line(topic.file.title) for topic in topics}
    cards = {topic.id: _card(topic, titles, folio, minutes) for topic in topics}
    rows = [
        ([cards[topic.id][0] for topic in row], passing, lines)
        for row, passing, lines in drawn(topics)
    ]
    yield Made("TopicMap", rows=rows, cards=[*cards.values()])


def drawn(topics: Sequence[Topic]) -> Iterator[tuple[list[Topic], Lines, Lines]]:
    """Yield each row of a map: topics, lines that pass between them, lines to the next row.

    A topic stands below all that it requires. Boxes of a row have equal shares of its width.
    """
    depths = dict[str, int]()
    for topic in topics:  # which stand behind what they require
        depths[topic.id] = max((depths[name] + 1 for name in topic.file.requires), default=0)
    rows = [
        [topic for topic in topics if depths[topic.id] == depth]
        for depth in sorted({*depths.values()})
    ]
    middles = {topic.id: (at + 0.5) / len(row) for row in rows for at, topic in enumerate(row)}
    passing, lines = ([Lines() for _ in rows] for _ in range(2))
    for topic in topics:
        end, last = depths[topic.id], middles[topic.id]
        for name in topic.file.requires:
            place = middles[name]
            for depth in range(depths[name] + 1, end + 1):
                before, num = place, len(rows[depth])
                place += (last - place) / (end - depth + 1)
                if depth < end:
                    place = round(place * num) / num  # between two boxes
                    passing[depth].append((place, place))
                lines[depth - 1].append((before, place))
    return zip(rows, passing, lines, strict=True)


def _card(
    topic: Topic, titles: Mapping[str, Markup], folio: Folio, minutes: Mapping[str, int]
) -> tuple[Step, Sequence[Markup], Groups]:
    """A topic, those that it requires, and its lessons by their titles."""
    groups, (says, *_) = ways.ways(topic, folio, minutes), topic.file.modes.values()
    marks = ways.item_marks(ways.all_items(topic), topic, folio.evidence)
    first = sum(step.minutes for step in groups.get(ways.FIRST_PASS, ()))
    card = Step(topic.id, titles[topic.id], folio.line(says), items=marks, minutes=first)
    return card, [titles[name] for name in topic.file.requires], groups

"""Items → questions as other programs hold them: HTML without links, classes and scripts.

In: a checked book. Out: `Question`s, an item in each of its cases, in the order of the topics. An
item that the runs leave open has no key, and is none of them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from generator.content.book import Topic
from generator.content.listed_code import listed
from generator.content.typesetting import plain
from generator.items.answers import Answer, Backing
from generator.items.kinds.arranged import Order
from generator.items.kinds.picked import FaultyLine
from generator.pages.view import View
from generator.pages.views import question
from generator.printing.folio import Folio
from generator.values.evaluation import Evidence

_DROPPED = re.compile(r"</?(?:a|span|wbr)\b[^>]*>")
_SMALL = re.compile(r"<small[^>]*>(.*?)</small>")
_TAG = re.compile(r"<(\w+)\b[^>]*?( ?/)?>")


@dataclass(frozen=True)
class Reply:
    """An answer that can be given; of a number, also one that a mistake gives.

    Attributes:
        id: within its question.
        text: the option, the piece, the left side of a pair, or what is typed, as printed.
        is_right: whether it is right; pieces and pairs all are.
        why: why it is right or wrong, with the evidence.
        beside: the right side of a pair, or the value that a piece is sorted by.
        number: what is typed, in the unit that the stem names; empty for a shape.
        within: how far off an answer may be, in that unit.
        ends: the smallest and the largest number that is as good.
    """

    id: str
    text: Markup
    is_right: bool
    why: Markup
    beside: Markup
    number: str = ""
    within: str = ""
    ends: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question; its texts are HTML.

    Attributes:
        id: the item's; in a further case, with its number.
        topic: the id of its topic, and `topic_title` the title as text.
        kind: choice, several, order, match, number, shape, or predict, which nobody grades.
        replies: those of an order in the right one.
        shown: the replies in the order in which the page shows them; none where one is typed.
        explains: what is said of any answer.
    """

    id: str
    topic: str
    topic_title: str
    kind: str
    stem: Markup
    replies: Sequence[Reply]
    shown: Sequence[Reply]
    explains: Markup
    hints: Sequence[Markup]

    @property
    def is_typed(self) -> bool:
        """Whether the answer is typed."""
        return not self.shown

    @property
    def is_arranged(self) -> bool:
        """Whether pieces or pairs are arranged, which are explained all at once."""
        return self.kind in ("order", "match")

    @property
    def solution(self) -> Markup:
        """What is said of any answer, and why pieces and pairs belong where they do."""
        if not self.is_arranged:
            return self.explains
        pieces = "".join(
            f"<li>{one.text}{': ' if one.beside else ''}{one.beside}<br/>{one.why}</li>"
            for one in self.replies
        )
        tag = "ol" if self.kind == "order" else "ul"
        return Markup(f"<{tag}>{pieces}</{tag}>{self.explains}")

    @property
    def spellings(self) -> list[str]:
        """How a shape such as 50 × 20 is typed."""
        shape = plain(self.replies[0].text)
        return list(dict.fromkeys(shape.replace(" × ", sign) for sign in (" × ", "×", " x ", "x")))


def questions(evidence: Evidence, topics: Iterable[Topic]) -> tuple[list[Question], list[str]]:
    """The questions of some topics, and the ids of the items that the runs leave open."""
    found: list[Question] = []
    is_open = []
    for topic in topics:
        folio = Folio(evidence, evidence).in_link
        for item in topic.items.values():
            asked = question.question(item, folio, "question")
            if asked.is_open:
                is_open.append(item.id)
                continue
            every = [asked, *question.variants(item, folio, "question")]
            found += [_question(one, topic, folio) for one in every]
    return found, is_open


def tidy(markup: str) -> Markup:
    """HTML that any program shows: no links, and elements without attributes."""
    bare = _SMALL.sub(r"(\1)", _DROPPED.sub("", str(markup)))
    return Markup(_TAG.sub(lambda tag: f"<{tag[1]}{'/' if tag[2] else ''}>", bare).strip())


def _question(asked: View, topic: Topic, folio: Folio) -> Question:
    item, field, kind = asked.item, asked.field, asked.item.kind
    stem, explains = f"{folio.prose(item.stem)}{_tabled(*asked.about)}", f"{asked.explains}"
    if isinstance(item, FaultyLine):
        wrong, right = (
            escape(listed(folio.book.root, one.path, one.object).strip())
            for one in (item.wrong, item.right)
        )
        kind, stem = "choice", f"{stem}<p>Which line is at fault?</p><pre>{wrong}</pre>"
        explains += f"<p>Corrected:</p><pre>{right}</pre>"
    elif isinstance(item, Order) and item.ends:
        first, last = map(folio.line, item.ends)
        stem += f"<p>First: {first}. Last: {last}.</p>"
    elif field and field.is_number:
        unit = f" ({escape(field.unit.label)})" if field.unit.label else ""
        stem += f"<p>Type a number{unit}.</p>"
    elif field:
        kind = "shape"
    if asked.backing:
        explains += f"<p>{_backed(asked.backing)}</p>"
    replies = [_reply(one, field.unit.scale if field else 1) for one in asked.answers]
    by_id = {one.id: one for one in replies}
    return Question(
        id=item.id,
        topic=topic.id,
        topic_title=plain(folio.line(topic.file.title)),
        kind=kind,
        stem=tidy(stem),
        replies=replies,
        shown=[] if field else [by_id[f"r{one.position}"] for one in asked.shown],
        explains=tidy(explains),
        hints=list(map(tidy, asked.hints)),
    )


def _reply(answer: Answer, scale: float) -> Reply:
    reach, is_right = answer.reach, answer.verdict == "right"
    number, within, *ends = "", ""
    if reach and reach.number is not None:
        low, high = reach.number - reach.within, reach.number + reach.within
        number, within, *ends = (
            f"{one / scale:.12g}" for one in (reach.number, reach.within, low, high)
        )
    return Reply(
        id=f"r{answer.position}" if is_right or reach is None else f"slip{answer.position}",
        text=tidy(answer.text),
        is_right=is_right,
        why=tidy(f"{answer.why} {_backed(answer.backing)}"),
        beside=tidy(answer.beside or ""),
        number=number,
        within=within,
        ends=tuple(ends),
    )


def _backed(backing: Iterable[Backing]) -> str:
    """What shows it, in words; a claim by its name in place of its link."""
    said = []
    for one in backing:
        says = "The evidence"
        if one.belief:
            said.append(f"The misconception: “{one.belief}”")
            says = "The evidence against it"
        if one.says:
            named = f"claim <code>{one.href.partition('#claim-')[2]}</code>"
            named = f"{one.verdict}, {named}" if one.verdict else named
            said.append(f"{says}: {one.says} ({named})")
    return " ".join(said)


def _tabled(titles: Sequence[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """A table of values; nothing where there is none."""
    head = "".join(f"<th>{one.removeprefix('#')}</th>" for one in titles)
    body = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    lines = "".join(f"<tr>{one}</tr>" for one in (head, *body))
    noted = f"<p>The runs of this table are {caption}.</p>" if caption else ""
    return f"<table><tbody>{lines}</tbody></table>{noted}" if head else ""

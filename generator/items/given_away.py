"""Whether a page tells an answer before it asks: the answer read above a question on its page.

In: the HTML of a page's body and the items of its topic. Out: for each item that a reader is to
commit to (before reading on, on a myth, in a trial, in a challenge), what of its answer stands
above it, or in its own stem. Checks at the end of a page ask about what stands above on purpose,
and keys of other questions are not counted: they open only when those are answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import TYPE_CHECKING, NamedTuple

from generator.content import prose
from generator.content.book import Book
from generator.content.errors import ContentError
from generator.content.quiz import Choice, Complete, Item, Number, Option, Predict, Several
from generator.evidence.value import AbsentError, ExpressionError, Value
from generator.items import writing_checks
from generator.items.item_seen import Finding
from generator.items.keys import Key, key_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

COMMITMENTS = frozenset({"commit", "before", "challenge"})
MIN_WORDS_QUOTED = 4
_TRIVIAL = re.compile(r"[-−]?\d{1,2}")  # stands on every page, whatever it counts
_QUESTION = '<div class="pb-question"'
_BLOCK = re.compile(r"</?div\b")
_FORM = re.compile(r"<form\b[^>]*>")
_FIELD = re.compile(r'\bdata-(item|as)="([^"]*)"')
_TAG = re.compile(r"<[^>]*>")


class _Asked(NamedTuple):
    """A question on a page: where its block begins and ends, which item, asked in what place."""

    begin: int
    end: int
    item: str
    place: str


def _questions(body: str) -> list[_Asked]:
    """The questions of a page, in order."""
    found = []
    begin = body.find(_QUESTION)
    while begin >= 0:
        end = _closed(body, begin)
        form = _FORM.search(body, begin, end)
        fields = dict(_FIELD.findall(form[0])) if form else {}
        found.append(_Asked(begin, end, fields.get("item", ""), fields.get("as", "")))
        begin = body.find(_QUESTION, end)
    return found


def _closed(body: str, begin: int) -> int:
    """Where the block that begins here ends."""
    depth = 0
    for tag in _BLOCK.finditer(body, begin):
        depth += -1 if tag[0].startswith("</") else 1
        if depth == 0:
            return tag.end()
    return len(body)


def _text(html: str) -> str:
    """What a reader reads of HTML."""
    return " ".join(unescape(_TAG.sub(" ", html)).split())


def messages(
    body: str, page_path: str, items: Mapping[str, Item], evidence: Evidence
) -> dict[str, str]:
    """For each item asked on a page whose answer is read above it: what is wrong with that."""
    found: dict[str, str] = {}
    above, read_to = "", 0
    for one in _questions(body):
        above += " " + _text(body[read_to : one.begin])
        read_to = one.end
        if one.place not in COMMITMENTS or one.item not in items:
            continue
        name, item = one.item, items[one.item]
        answer = _read(f"{above} {evidence.plain(item.stem)}", item, evidence)
        if answer:
            message = f"its answer, {answer!r}, is read on {page_path} before it is asked"
            found[name] = f"{message}; move the item up, or let what stands above it say less"
    return found


def mistakes(book: Book, found: Mapping[str, str]) -> Iterator[ContentError]:
    """The items of a whole book whose answers were told and that do not say they mean it.

    On the reference machine alone: elsewhere a measured number may equal an answer by coincidence,
    or equal none any more, and an author cannot write for both.
    """
    if not book.is_reference:
        return
    for topic in book.topics:
        for name, item in topic.items.items():
            document, place = book.item_places[name]
            rule, path = writing_checks.PAGE_RULES[0], ("id",)
            fired = [Finding(rule, path, found[name])] if name in found else []
            for at, message in writing_checks.judged(item, fired, writing_checks.PAGE_RULES):
                yield document.error((*place, *at), message)


def _read(above: str, item: Item, evidence: Evidence) -> str | None:
    """The first of an item's answers that a text holds."""
    try:
        key = key_of(item, evidence)
        answers = list(_answers(item, key, evidence))
    except (ContentError, ExpressionError):
        return None
    folded = above.casefold()
    for answer in answers:
        words = " ".join(answer.split())
        pattern = rf"(?<![\w.,]){re.escape(words.casefold())}(?![\w%]|[.,]\d)"
        if words and re.search(pattern, folded):
            return words
    return None


def _answers(item: Item, key: Key, evidence: Evidence) -> Iterator[str]:
    if key.is_open:
        return
    if isinstance(item, Number | Predict | Complete):
        assert key.value is not None
        yield from _printed(key.value)
    elif isinstance(item, Choice | Several):
        for place in key.right:
            yield from _said(item.options[place], evidence)


def _said(option: Option, evidence: Evidence) -> Iterator[str]:
    """What a right option says, and the numbers in it."""
    text = option.text or ""
    words = evidence.plain(text).rstrip(".!?…")
    if len(words.split()) >= MIN_WORDS_QUOTED:
        yield words
    for one in prose.expressions(text):
        try:
            value = evidence.value(one.text)
        except AbsentError:
            continue
        if isinstance(value, Value) and not isinstance(value.number, str):
            yield from _printed(value)


def _printed(value: Value) -> Iterator[str]:
    """The ways in which pages print a value; none for one so small that it says nothing."""
    for shown in (value, value.shown(way="exact")):
        text = " ".join(str(shown).split())
        is_shape = isinstance(value.number, str) and "×" in text
        if (is_shape or not isinstance(value.number, str)) and not _TRIVIAL.fullmatch(text):
            yield text

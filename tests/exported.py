"""What the verdicts say is right, with which exported questions are compared, and the files."""

import re
from html import unescape

from proofbook.companions.export import formats
from proofbook.generator.kinds.questions.item_checks import answerable_cases
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.kinds.questions.kinds.typed import unit_of
from proofbook.generator.printing.folio import Folio

_GIFT = {"number": "Numerical", "shape": "Short", "match": "Matching"}


def keys(evidence):
    """By the id of a question, its kind and its key."""
    items = evidence.book.items.values()
    every = [
        case for one in items for case in (one, *(c for _, c in answerable_cases(one, evidence)))
    ]
    return {one.id: (one.kind, _key(kind_of(one, evidence), evidence)) for one in every}


def _key(kind, evidence):
    answers = {one.position: one for one in kind.answers(Folio(evidence, evidence).in_link)}
    if kind.item.kind == "order":
        return [bare(answers[place].text) for place in kind.key.right]
    if kind.item.kind == "match":
        return {bare(one.text): bare(one.beside) for one in answers.values()}
    if kind.key.value is None:
        return {bare(answers[place].text) for place in kind.key.right}
    number = kind.key.value.number
    return bare(number) if isinstance(number, str) else number / unit_of(kind.key.value).scale


def bare(html):
    """A text without HTML, brackets and spaces; of a formula its LaTeX."""
    latex = re.sub(r"<math.*?<annotation[^>]*>(.*?)</annotation>.*?</math>", r"\1", str(html))
    text = unescape(re.sub(r"</?\w[^>]*>", "", latex))
    return re.sub(r"[\s\\()]", "", text)


def made(name, found, evidence):
    """A file's content, and the questions that it should hold."""
    lacks = formats.LACKS[name]
    kept = [
        one for one in found if one.kind not in lacks and not ("picture" in lacks and one.pictures)
    ]
    return formats.file_content(name, kept, evidence.book, Folio(evidence, evidence)), kept


def gift_kinds(kept):
    """The kind that each question has in GIFT."""
    return {one.id: _GIFT.get(one.kind, "MC") for one in kept}

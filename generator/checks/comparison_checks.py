"""Sentences of lessons that compare two things, with nothing behind the comparison.

In: a lesson and the evidence. Out: the sentences with a comparative word, such as *faster*,
*fewer*, *hardly* or *as much as*, that nothing backs. A sentence is backed by

- a claim: its block names one (`claims:`, `claim:`, `law:`), or the sentence itself does, with
  `{{ holds('claim-id') }}`, which prints nothing where the claim holds and its verdict elsewhere;
- a ratio or a difference of two values, `{{ (a / b) | times }}`;
- a source: its block has `sources:`, or it links to one;
- `{{ by_definition }}`, which prints nothing: the comparison follows from what its words mean, or
  from how a run was set up, and no measurement could refute it.

Titles, labels and questions assert nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from generator.content import prose
from generator.content.documents import Document, Field
from generator.content.errors import ContentError
from generator.content.modes.cost import CostTable
from generator.content.yaml_source import Path

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence

COMPARATIVE = re.compile(
    r"\b(?:faster|slower|quicker|longer|shorter|larger|smaller|bigger|higher|lower|greater|fewer|"
    r"less|more|cheaper|costlier|better|worse|heavier|lighter|wider|deeper|nearer|closer|sooner|"
    r"hardly|barely|nearly|almost|equally|most\s+of|half|exceeds?|outweighs?|"
    r"as\s+(?:much|many|fast|slow|large|small|little|few|high|low|good|big|often)\s+as|"
    r"(?:takes?|lasts?|waits?)\s+as\s+long\s+as)\b",
    re.IGNORECASE,
)
NO_COMPARISON = re.compile(
    r"\b(?:no\s+longer|(?:any|once|one|what\s+is)\s+more|more\s+than\s+once|"
    r"nothing\s+more|more\s+or\s+less)\b",
    re.IGNORECASE,
)
ASSERT_NOTHING = frozenset({"title", "label", "x_label", "y_label"})
_BACKED = re.compile(r"\b(?:showed|verdict|predicted|observed|holds)\(|\bby_definition\b|\bcited\b")
_CALCULATED = re.compile(r"[\w\])]\s+[-/]\s+[\w(]")
_ASKS = re.compile(r"^\W*whether\b|\?[\s*\"”)]*$", re.IGNORECASE)
_LINKED = re.compile(r"\]\(https://")
_END = re.compile(r"(?<=[.!?:])[”\")*]*\s+(?=[A-Z“\"`*(\[\ue000])|\n\s*\n|\n\s*(?=[-*] )")
MESSAGE = (
    "compares ({word!r}), with nothing behind it; name the claim, {{{{ holds('…') }}}}, or print "
    "the ratio or the difference, or cite a source, or mark what no run could refute: "
    "{{{{ by_definition }}}}"
)


def mistakes(evidence: Evidence, document: Document[Any]) -> Iterator[ContentError]:
    """Comparisons that nothing backs, and claims that a sentence leans on and that do not hold."""
    for one in document.fields:
        if one.mark not in ("line", "prose") or one.name in ASSERT_NOTHING:
            continue
        found = unbacked(one.text)
        if found and not _is_backed(document.model, one.path):
            for offset, word in found:
                yield document.error(one.path, MESSAGE.format(word=word), offset=offset)
        yield from _fallen(evidence, document, one)


@lru_cache(maxsize=65536)
def unbacked(text: str) -> tuple[tuple[int, str], ...]:
    """The comparative words of a text whose sentence gives nothing behind it, with their places."""
    return tuple(_unbacked(text))


def _unbacked(text: str) -> Iterator[tuple[int, str]]:
    for begin, end in sentences(text):
        sentence = text[begin:end]
        if _ASKS.search(sentence) or _LINKED.search(sentence):
            continue
        told = [one.text for one in prose.expressions(sentence)]
        if any(_BACKED.search(one) or _CALCULATED.search(one) for one in told):
            continue
        plain = NO_COMPARISON.sub(_blank, prose.masked(sentence))
        word = COMPARATIVE.search(plain)
        if word:
            yield begin + word.start(), word[0]


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence of a text begins and ends; what an expression holds ends none."""
    plain = prose.held(text)
    begin = 0
    for end in _END.finditer(plain):
        yield begin, end.start()
        begin = end.end()
    yield begin, len(text)


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


def _is_backed(model: BaseModel, path: Path) -> bool:
    """Whether the block that a text stands in names a claim or a source.

    It is the innermost part of the lesson that can name one; what the whole page names backs the
    page's own texts alone.
    """
    parts = list(_parts(model, path))
    able = [part for part in parts[1:] if _KEYS & type(part).model_fields.keys()]
    block = (able or parts)[-1]
    if not able and len(parts) > 1:
        return False
    return any(getattr(block, key, None) for key in _KEYS) or isinstance(block, CostTable)


_KEYS = frozenset({"claims", "claim", "law", "sources"})


def _parts(model: BaseModel, path: Path) -> Iterator[BaseModel]:
    """The parts of a lesson that hold a text, from the outermost on."""
    thing: Any = model
    for key in path:
        if isinstance(thing, BaseModel):
            yield thing
        thing = thing[key] if isinstance(key, int) else getattr(thing, key, None)


def _fallen(evidence: Evidence, document: Document[Any], one: Field) -> Iterator[ContentError]:
    """Claims that a sentence leans on, and that the reference machine's runs refute."""
    for found in prose.expressions(one.text):
        for claim in _HOLDS.findall(found.text):
            outcome = evidence.outcome(claim) if claim in evidence.book.claims else None
            if outcome and outcome.on_reference and outcome.verdict != "holds":
                message = f"leans on {claim}, which does not hold: {outcome.explanation}"
                yield document.error(one.path, message, offset=found.start)


_HOLDS = re.compile(r"\bholds\(\s*['\"]([^'\"]+)['\"]\s*\)")

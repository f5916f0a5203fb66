"""Phrases for which the field, or plain English, has a standard word.

In: a text that readers see. Out: each phrase of the table with its place and what to write instead.
Only what a machine can decide is here: whole phrases, and words that mean one thing in this book.
Text inside expressions, code and links' targets is not looked at.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from generator.content import prose


class Phrase(NamedTuple):
    """What is not written, and what is written instead."""

    pattern: str
    instead: str


PHRASES = (
    Phrase(r"(?:training|validation) rows", "samples"),
    Phrase(r"(?:no|more|enough|makes?|making|made|saves?|needs?|for|of) room|roomy", "memory"),
    Phrase(r"foret(?:ells?|elling|old)", "predict, forecast"),
    Phrase(r"what came of it", "outcome"),
    Phrase(r"(?<!by )hand(?:s|ed|ing)?[- ](?:over|to)", "send, transfer, pass to"),
    Phrase(r"(?<!in )exchang(?:es?|ed|ing)(?! \w+ for)", "collective, all-reduce, communication"),
    Phrase(r"let(?:s|ting)? (?:them |it )?go|l(?:ies?|ay|ying) still", "free; idle"),
    Phrase(
        r"(?:was|were|is|are|be|been|rank|device) refused(?! by)|refused (?:in|at|when|on) \w+",
        "ran out of memory",
    ),
    Phrase(r"parts of (?:a|the|one|each|its) batch", "microbatch, or shard of the batch"),
    Phrase(r"voices?", "weights"),
    Phrase(r"mend(?:s|ed|ing)?|cure[sd]?", "fix"),
    Phrase(r"perceptrons?", "MLP"),
    Phrase(r"held against", "compared with"),
    Phrase(r"stands? (?:here|there|beside)", "is"),
    Phrase(r"(?:comes?|came) to (?=\ue000)", "is, totals"),
    Phrase(r"whoever|nought|(?<=[.!?] )not so(?=[.,:])", "readers who …, zero, not quite"),
    Phrase(r"so (?:many|much) [a-z ]{0,20}(?:fewer|less|more)", "a plain clause"),
    Phrase(r"(?<=, )for (?:it|they|there|nobody|nothing|neither|none|nowhere)", "because"),
    Phrase(r"(?:is|are) (?:only )?cited|this was run", "we measured this; see [source]"),
    Phrase(r"(?<=\w )(?:by name|in all)(?=\.)", "a plain clause"),
    Phrase(r"into the bargain", "and also"),
    Phrase(r"(?:(?<=[.!?] )|^)nor", "a plain clause"),
    Phrase(
        r"(?:un)?(?:synchron|(?:de|re)?normal|initial|general|recogn|optim|amort|ideal|parallel|"
        r"serial|minim|maxim)is(?:e[ds]?|ers?|ing|ations?)",
        "the same word with -iz-, as PyTorch spells it",
    ),
)


def _whole(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{pattern})(?!\w)".replace(" ", r"\s"))


_ANY = _whole("|".join(one.pattern for one in PHRASES))


@lru_cache(maxsize=65536)
def phrases(text: str) -> tuple[tuple[int, str], ...]:
    """What a text says otherwise than the field does.

    Returns:
        Where in the text each phrase begins, and a message that names it and what to write.
    """
    plain = prose.masked(prose.held(text)).lower()  # `re` takes three times as long for any case
    return tuple((found.start(), _instead(plain, found)) for found in _ANY.finditer(plain))


def _instead(plain: str, found: re.Match[str]) -> str:
    begin = found.start()
    one = next(one for one in PHRASES if _whole(one.pattern).match(plain, begin))
    return f"{found[0]!r}: write {one.instead!r} instead"

"""Short names in expressions, written out: `run.world_size` becomes `ddp.ddp.world_size`.

In: a text with `{{ … }}`, or one expression, and what each short name stands for. Out: the same
with the names written out, and for a place in it the place in what the author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from generator.content import prose

QUOTED = r"'[^']*'|\"[^\"]*\""


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """A name where a path begins: not a field, not the name of a call, not within quotes."""
    return re.compile(rf"{QUOTED}|(?<![\w.])(?:{'|'.join(names)})\b(?!\s*\()")


def of_expression(expression: str, names: Mapping[str, str]) -> str:
    """An expression with its short names written out."""
    if not names or not any(name in expression for name in names):
        return expression
    return _pattern(tuple(names)).sub(lambda found: names.get(found[0], found[0]), expression)


def of_text(text: str, names: Mapping[str, str]) -> str:
    """A text with the short names of its expressions written out."""
    if "{{" not in text or not names:
        return text
    written, done = "", 0
    for one in prose.expressions(text):
        end = one.start + len(one.text)
        written += text[done : one.start] + of_expression(one.text, names)
        done = end
    return written + text[done:]


def place_before(text: str, names: Mapping[str, str], offset: int, *, is_text: bool) -> int:
    """Where in an author's text the character is that is at `offset` of the text written out.

    A character within a name that was written out is at the name's first character.
    """
    added = 0
    stretches = prose.expressions(text) if is_text else [prose.Expressed(0, text, 0, len(text))]
    for one in stretches:
        for found in _pattern(tuple(names)).finditer(one.text):
            begin, longer = one.start + found.start(), names.get(found[0], found[0])
            if offset < begin + added:
                return offset - added
            if offset < begin + added + len(longer):
                return begin
            added += len(longer) - len(found[0])
    return offset - added


def with_words(text: str, name: str, words: str) -> str:
    """A text in which `{{ name }}` is replaced by words."""
    written, done = "", 0
    for one in prose.expressions(text):
        if one.text == name:
            written, done = written + text[done : one.begin] + words, one.end
    return written + text[done:]

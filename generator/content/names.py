"""Short names in expressions, written out: `run.world_size` becomes `ddp.ddp.world_size`.

In: a text with `{{ … }}`, an expression or an id, and what each short name stands for: a path, or
words, which `{{ called }}` prints as they are. Out: the same with the names written out, and for a
place in it the place in what the author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from generator.content import prose

QUOTED = r"'[^']*'|\"[^\"]*\""


class Words(str):
    """What a name prints, where it stands for no path: a phrase, or the id of a claim."""


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """A name where a path begins: not a field, not the name of a call; or whatever is in quotes."""
    return re.compile(rf"{QUOTED}|(?<![\w.])(?:{'|'.join(names)})\b(?!\s*\()")


def of_expression(expression: str, names: Mapping[str, str]) -> str:
    """An expression with its short names written out."""
    if not names or not any(name in expression for name in names):
        return expression
    return _pattern(tuple(names)).sub(lambda found: _meant(found[0], names), expression)


def _meant(written: str, names: Mapping[str, str]) -> str:
    """What a name stands for in an expression; in quotes, it is the run of a claim: `'law@run'`."""
    if written[0] in "'\"":
        return written[0] + of_id(written[1:-1], names, is_alone=False) + written[-1]
    value = names[written]
    return repr(str(value)) if isinstance(value, Words) else value


def of_id(text: str, names: Mapping[str, str], *, is_alone: bool = True) -> str:
    """An id with the name of a run written out, `law@run`, or an id that is a name itself."""
    law, at, run = text.partition("@")
    if at:
        return f"{law}@{names.get(run, run)}"
    return str(names.get(text, text)) if is_alone else text


def of_text(text: str, names: Mapping[str, str]) -> str:
    """A text with the short names of its expressions written out."""
    if "{{" not in text or not names:
        return text
    written, done = "", 0
    for one in prose.expressions(text):
        words = names.get(one.text)
        if isinstance(words, Words):
            written, done = written + text[done : one.begin] + words, one.end
            continue
        end = one.start + len(one.text)
        written += text[done : one.start] + of_expression(one.text, names)
        done = end
    return written + text[done:]


def place_before(text: str, names: Mapping[str, str], offset: int, *, is_text: bool) -> int:
    """Where in an author's text the character is that is at `offset` of the text written out.

    A character within a name that was written out is at the name's first character.
    """
    added = 0
    for begin, short, meant in _written_out(text, names, is_text=is_text):
        if offset < begin + added:
            return offset - added
        if offset < begin + added + len(meant):
            return begin
        added += len(meant) - len(short)
    return offset - added


def _written_out(
    text: str, names: Mapping[str, str], *, is_text: bool
) -> Iterator[tuple[int, str, str]]:
    """Every stretch of a text that is written out: its place, what it was, what it becomes."""
    stretches = prose.expressions(text) if is_text else [prose.Expressed(0, text, 0, len(text))]
    for one in stretches:
        words = names.get(one.text)
        if is_text and isinstance(words, Words):
            yield one.begin, text[one.begin : one.end], words
            continue
        for found in _pattern(tuple(names)).finditer(one.text):
            yield one.start + found.start(), found[0], _meant(found[0], names)

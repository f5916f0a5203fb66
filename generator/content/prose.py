"""Author's Markdown: where its expressions and formulas are, and what it may not hold.

What a page prints of it, `generator/printing/markdown.py` says.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby, starmap
from typing import NamedTuple

from generator.content import blocks, formulas
from generator.content.numerals import AFTER_VALUE, SPELLED, blank, numerals, states_quantity
from runners.system.errors import near

# Private-use characters, and those that come with a text copied from elsewhere.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\ue000-\uf8ff\ufeff]"
)
_EXPRESSION = re.compile(r"\{\{(?<!\\\{\{)(?!\{)(.*?)\}\}", re.DOTALL)  # as `re` finds it fast
_BRACES = re.compile(r"\{\{(?<!\\\{\{)|\}\}")
_LITERAL = r"\{{"  # braces of code that begin no expression
_CODE = re.compile(r"(?<![`\\])(?P<ticks>`+)(?!`)(.*?)(?<!`)(?P=ticks)(?!`)", re.DOTALL)
_FENCE = re.compile(
    r"^ {0,3}(?P<fence>```+|~~~+).*?^ {0,3}(?P=fence)[`~]*[ \t]*$", re.DOTALL | re.MULTILINE
)
_FORMULA = re.compile(  # between two dollars or one that touch it; code, and a dollar itself
    rf"(?=[ `~$\\])(?:{_FENCE.pattern}|{_CODE.pattern}|\\\$|"
    r"(?<!\$)\$\$(?P<block>(?:\\.|[^$\\])+)\$\$"
    r"|(?<!\$)\$(?P<inline>(?![\s$])(?:\\.|(?!\n\s*\n)[^$\\])+(?<!\s))\$(?![\d$]))",
    re.DOTALL | re.MULTILINE,
)
_DOLLAR = re.compile(r"\$")
_ENTITY = re.compile(r"&[a-zA-Z]\w*;")
_DUNDER = re.compile(r"__(?<![\w\\]__)\w+__(?!\w)")
OWN_FENCE = re.compile(  # of a page by hand
    r"^```(listing|quiz|verified)\n(?P<yaml>.*?)^```$", re.DOTALL | re.MULTILINE
)
_OTHER_FENCE = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)(?![`~]|[ \t]*(?:python|sh|text)?[ \t]*$)[^\n`]*$", re.MULTILINE
)
_LISTED = re.compile(r"^(?:[ \t]*[-*+])?[ \t]*\d{1,2}[.)](?=[ \t])", re.MULTILINE)
_LINK = re.compile(r"\]\((<[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)|<https?:[^>\s]*>")
_OTHER_ADDRESS = re.compile(
    r"(?<=\]\()(?:<?(?!https:)[a-z][a-z0-9+.-]*:|<?[/\\]|[^)\s]*\{\{)[^)\s]*", re.IGNORECASE
)
_SLOTTED = re.compile("\ue000~*")
FIRST_EXPRESSION, FIRST_FORMULA = 0xE000, 0xF000


class Expressed(NamedTuple):
    """One `{{ … }}` of a text."""

    start: int  # of the expression's first character
    text: str


class Formula(NamedTuple):
    """One formula of a text."""

    latex: str  # with private-use characters for expressions
    is_block: bool  # it stands in a line of its own


class Slotted(NamedTuple):
    """A text with private-use characters, and the expressions and formulas that they stand for."""

    text: str
    marks: dict[str, str | Formula]


class Fault(NamedTuple):
    """A mistake at a character of a text."""

    offset: int
    message: str
    code: str = ""  # that a program of the page may hold


@lru_cache(maxsize=65536)
def expressions(text: str) -> tuple[Expressed, ...]:
    """The expressions of a text, in order."""
    return tuple(
        Expressed(match.end(1) - len(match[1].lstrip()), match[1].strip())
        for match in _EXPRESSION.finditer(text)
    )


def filled(text: str, fill: Callable[[str], str]) -> str:
    """Replace each `{{ expression }}` of a text by `fill(expression)`."""
    return _EXPRESSION.sub(lambda match: fill(match[1].strip()), text)


@lru_cache(maxsize=65536)
def faults(text: str, mark: str) -> tuple[Fault, ...]:
    """Everything that a text may not hold, apart from what its expressions say.

    A `line` has no lists whose numbers could be exempt; a `page` may show images.
    """
    return tuple(sorted(_faults(text, mark)))


def _faults(text: str, mark: str) -> Iterator[Fault]:
    even, kept = _kept(text)
    yield from _spans(text, even)
    for match in filter(_is_formula, _FORMULA.finditer(even)):
        if match["block"] and mark == "line":
            yield Fault(match.start(), "a formula in a line stands between single dollars")
        at = match.start("block" if match["block"] else "inline")
        for offset, message in formulas.faults(match["block"] or match["inline"]):
            yield Fault(at + offset, message)
    coded = _FORMULA.sub(lambda match: blank(match) if _is_formula(match) else match[0], even)
    yield from starmap(Fault, blocks.faults(kept, coded, mark))
    prints = blocks.NOTE.sub(blank, _SLOTTED.sub(blank, kept))
    bare = _LINK.sub(blank, prints if mark == "line" else _LISTED.sub(blank, prints))
    yield from _fences(text, mark)
    for within, pattern, wrong, instead in (
        (text, _INVISIBLE, "invisible character", "delete it"),
        (even, AFTER_VALUE, "unit", "a value prints the one that its inputs give it"),
        (text, _OTHER_ADDRESS, "link to", "links are relative or https"),
        (bare, _BRACES, "braces", "the other half of the expression is missing"),
        (bare, _DOLLAR, "dollar", "a formula ends where its last $ touches it; else write \\$"),
        (bare, _DUNDER, "name", "put it in `code`; the underscores make it bold"),
        (bare, _ENTITY, "character reference", "write the character itself"),
        (bare, SPELLED, "spelled quantity", "compute it in {{ … }} or say it without a number"),
    ):
        of = pattern.groups  # the last, or all of it
        matches = ((fault.start(of), fault[of]) for fault in pattern.finditer(within))
        for offset, words in _by_line(within, matches):
            yield Fault(offset, f"{wrong} {words}; {instead}")
    for offset, words in _by_line(bare, numerals(bare)):
        instead = "print a value with {{ … }}, or put a name or a sequence in `code`"
        wrong = "bare numerals" if "', '" in words else "bare numeral"
        yield Fault(offset, f"{wrong} {words}; {instead}")


def _spans(text: str, even: str) -> Iterator[Fault]:
    """Code spans that state a quantity."""
    for match in _FORMULA.finditer(even):
        code = _SLOTTED.sub("_", match[0].strip("`"))
        if match["ticks"] and states_quantity(code):
            written = text[match.start() : match.end()]
            message = f"quantity {written!r}; it is no code; print it with {{{{ … }}}}"
            yield Fault(match.start(), message, code)


def _fences(text: str, mark: str) -> Iterator[Fault]:
    """Fences that print as no text may; in a page, also those that were to be one of ours."""
    for match in _OTHER_FENCE.finditer(OWN_FENCE.sub(blank, text) if mark == "page" else text):
        write = "``` alone, or ```python, ```sh or ```text"
        if mark == "page" and (kind := meant(match[0], ("listing", "quiz", "verified"))):
            write = f"```{kind}, and ``` below it, each at the beginning of a line"
        yield Fault(match.start("fence"), f"fence {match[0].strip()!r}; write {write}")


def _by_line(text: str, words_at: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Group words by line: the first one's position, and the quoted words."""
    for _, group in groupby(words_at, lambda pair: text.count("\n", 0, pair[0])):
        offsets, words = zip(*group, strict=True)
        yield offsets[0], ", ".join(map(repr, dict.fromkeys(words)))


def meant(info: str, kinds: Iterable[str]) -> str | None:
    """The kind of fence that its first line was probably meant to name."""
    word = re.search("[a-z]+", info.lower())
    return near(word[0], kinds, likeness=0.72) if word else None


def _kept(text: str) -> tuple[str, str]:
    """Mask expressions at equal length; the same text with code and formulas masked too."""
    even = _EXPRESSION.sub(lambda match: "\ue000".ljust(len(match[0]), "~"), text)
    return even, _FORMULA.sub(blank, even)


def in_code(text: str, at: int) -> bool:
    """Whether a character stands in a code span or in a fence."""
    around = filter(lambda match: match.start() < at < match.end(), _FORMULA.finditer(text))
    return not all(map(_is_formula, around))


def images(text: str) -> list[tuple[int, str]]:
    """The images of a text: where each begins, and the address of its file."""
    return list(blocks.images(_kept(text)[1])) if "![" in text else []


def _is_formula(match: re.Match[str]) -> bool:
    """Whether a match of `_FORMULA` is a formula, not code."""
    return bool(match["block"] or match["inline"])


def slotted(text: str) -> Slotted:
    """A text in which a private-use character stands for each expression and formula."""
    marks: dict[str, str | Formula] = {}
    first: dict[str, str] = {}
    for position, (_, expression) in enumerate(expressions(text)):
        mark = first.setdefault(expression, chr(FIRST_EXPRESSION + position))
        marks[mark] = expression

    def taken(match: re.Match[str]) -> str:
        if not _is_formula(match):
            return "$" if match[0] == r"\$" else match[0]
        mark = chr(FIRST_FORMULA + len(marks))
        marks[mark] = Formula(match["block"] or match["inline"], bool(match["block"]))
        return mark

    with_marks = _FORMULA.sub(taken, filled(text, first.__getitem__))
    return Slotted(with_marks.replace(_LITERAL, "{{"), marks)

"""Author's Markdown: where its expressions and formulas are, and what it may not hold.

What a page prints of it, `generator/printing/markdown.py` says.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby, starmap
from typing import NamedTuple

from proofbook.generator.content import blocks, formulas
from proofbook.generator.content.addresses import INSTEAD, MARKDOWN, begins
from proofbook.generator.content.numerals import (
    AFTER_VALUE,
    MEASURE,
    SPELLED,
    blank,
    numerals,
    states_quantity,
)
from proofbook.runners.system.errors import near
from proofbook.runners.system.kinds import kinds

# Private-use characters, and those that come with a text copied from elsewhere.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\ue000-\uf8ff\ufeff]"
)
_EXPRESSION = re.compile(r"\{\{(?<!\\\{\{)(?!\{)(.*?)\}\}", re.DOTALL)  # as `re` finds it fast
_LITERAL = r"\{{"  # braces of code that begin no expression
_CODE = r"(?<![`\\])(?P<ticks>`+)(?!`)(.*?)(?<!`)(?P=ticks)(?!`)"
_FENCE = r"^ {0,3}(?P<fence>```+|~~~+).*?^ {0,3}(?P=fence)[`~]*[ \t]*$"
_FORMULA = re.compile(  # between two dollars or one that touch it; code, and a dollar itself
    rf"(?=[ `~$\\])(?:{_FENCE}|{_CODE}|\\\$|"
    r"(?<!\$)\$\$(?P<block>(?:\\.|[^$\\])+)\$\$"
    r"|(?<!\$)\$(?P<inline>(?![\s$])(?:\\.|(?!\n\s*\n)[^$\\])+(?<!\s))\$(?![\d$]))",
    re.DOTALL | re.MULTILINE,
)
# What Markdown would print otherwise than its author meant.
_STRAY = tuple((re.compile(form), wrong, instead) for form, wrong, instead in (
    (r"\{\{(?<!\\\{\{)|\}\}", "braces", "the other half of the expression is missing"),
    (r"\$", "dollar", r"a formula ends where its last $ touches it; else write \$"),
    (r"__(?<![\w\\]__)\w+__(?!\w)", "name", "put it in `code`; the underscores make it bold"),
    (r"&[a-zA-Z]\w*;", "character reference", "write the character itself"),
))  # fmt: skip
_UNIT_PRINTED = "a value prints the one that its inputs give it"
_UNSPELLED = "compute it in {{ … }} or say it without a number"
_WORDS = ["listing", *(word for kind in kinds() for word in kind.fences)]
_FENCES = "|".join(_WORDS)
OWN_FENCE = re.compile(  # of a page by hand
    rf"^```({_FENCES})\n(?P<yaml>.*?)^```$", re.DOTALL | re.MULTILINE
)
_LISTED = re.compile(r"^(?:[ \t]*[-*+])?[ \t]*\d{1,2}[.)](?=[ \t])", re.MULTILINE)
_OPENING = re.compile(r"\][(:]|<")  # of an address
_SLOT = re.compile("[\ue000-\uf7ff].*")
_LINK = re.compile(r"\]\((<[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)|<https?:[^>\s]*>")
_SENTENCE = re.compile(r"(?:(?![.!?;]\s|\n\s*\n|\n\s*[-*+] ).)+", re.DOTALL)
_COMMANDS = re.compile(rf"[ `~]*(?:sh|{_FENCES})\n")  # or YAML, checked as such
_INFOS = ("", "python", "diff", "sh", "text")  # behind the mark of a fence
_WITHOUT_SLOTS = str.maketrans("\ue000~", "  ")
FIRST_EXPRESSION, FIRST_FORMULA = 0xE000, 0xF000


class Expressed(NamedTuple):
    """One `{{ … }}` of a text."""

    start: int  # of the expression's first character
    text: str


class Formula(NamedTuple):
    """One formula of a text."""

    latex: str  # with private-use characters for expressions
    is_block: bool  # it stands in a line of its own


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
    yield from _formula_faults(text, even, mark)
    coded = _FORMULA.sub(lambda match: blank(match) if _latex(match) else match[0], even)
    yield from starmap(Fault, blocks.faults(kept, coded, mark))
    yield from _fences(text, mark)
    bare = blocks.NOTE.sub(blank, kept.translate(_WITHOUT_SLOTS))
    bare = _LINK.sub(blank, _unnumbered(bare, even, mark))
    for within, places, wrong, instead in (
        (text, _places(_INVISIBLE, text), "invisible character", "delete it"),
        (even, _places(AFTER_VALUE, even), "unit", _UNIT_PRINTED),
        (text, sorted(_refused(text, mark)), "link to", INSTEAD),
        *((bare, _places(pattern, bare), wrong, instead) for pattern, wrong, instead in _STRAY),
        (bare, _places(SPELLED, bare), "spelled quantity", _UNSPELLED),
    ):
        for offset, words in _by_line(within, places):
            yield Fault(offset, f"{wrong} {words}; {instead}")
    for offset, words in _by_line(bare, numerals(bare)):
        instead = "print a value with {{ … }}, or put a name or a sequence in `code`"
        wrong = "bare numerals" if "', '" in words else "bare numeral"
        yield Fault(offset, f"{wrong} {words}; {instead}")


def _formula_faults(text: str, even: str, mark: str) -> Iterator[Fault]:
    for match in _FORMULA.finditer(even):
        if latex := _latex(match):
            if match["block"] and mark == "line":
                yield Fault(match.start(), "a formula in a line stands between single dollars")
            at = match.start("block" if match["block"] else "inline")
            for offset, message in formulas.faults(latex):
                yield Fault(at + offset, message)
        else:
            written = text[match.start() : match.end()]
            code = filled(written, lambda _: "_").strip("`")
            is_shown = match["fence"] and not _COMMANDS.match(written)
            measure = MEASURE.search(code) if is_shown else None
            if measure or (match["ticks"] and states_quantity(code)):
                stated = measure[0] if measure else written
                message = f"quantity {stated!r}; it is no code; print it with {{{{ … }}}}"
                yield Fault(match.start(), message, code)


def _unnumbered(bare: str, even: str, mark: str) -> str:
    """A text without the numbers of its lists, which a page counts anew."""
    marks = {"line": "", "page": "."}.get(mark, ".)")  # of MkDocs, no list has a parenthesis
    tokens = MARKDOWN.parse(even) if marks and _LISTED.search(bare) else ()
    items = {token.map[0] for token in tokens if token.map and token.info and token.markup in marks}
    lines = enumerate(bare.split("\n"))
    return "\n".join(_LISTED.sub(blank, line) if at in items else line for at, line in lines)


def _places(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    """Where a pattern, or its last group, matches, and what."""
    of = pattern.groups
    return ((match.start(of), match[of]) for match in pattern.finditer(text))


def _refused(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Addresses of which Markdown makes no link, each where it stands first."""
    MARKDOWN.refused = []
    if _OPENING.search(text):
        MARKDOWN.parse(slotted(text)[0])
        if mark == "line":  # in which nothing is a block
            MARKDOWN.parseInline(slotted(" ".join(text.split()))[0])
    for address in dict.fromkeys(_SLOT.sub("{{", address) for address in MARKDOWN.refused):
        yield max(0, begins(address, text)), address


def _fences(text: str, mark: str) -> Iterator[Fault]:
    """Fences that print as no text may; in a page, also those that were to be one of ours."""
    start = 0
    for line in (OWN_FENCE.sub(blank, text) if mark == "page" else text).split("\n"):
        fence = line.strip()
        info = fence.lstrip("`~").strip()
        if fence.startswith(("```", "~~~")) and info not in _INFOS and "`" not in info:
            write = "``` alone, or ```python, ```diff, ```sh or ```text"
            if mark == "page" and (kind := meant(info, _WORDS)):
                write = f"```{kind}, and ``` below it, each at the beginning of a line"
            yield Fault(start + line.index(fence), f"fence {fence!r}; write {write}")
        start += len(line) + 1


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


def _latex(match: re.Match[str]) -> str:
    """The LaTeX of a match of `_FORMULA`; empty for code."""
    return match["block"] or match["inline"] or ""


@lru_cache(maxsize=65536)
def formulas_of(text: str) -> tuple[tuple[int, str], ...]:
    """The formulas of a text: where the LaTeX of each begins, and it."""
    matches = _FORMULA.finditer(_kept(text)[0] if "$" in text else "")
    return tuple(
        (match.start(match.lastgroup or 0), _latex(match)) for match in matches if _latex(match)
    )


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Where each sentence of a text begins, and it without code and values; a table is one."""
    kept = _kept(text)[1].translate(_WITHOUT_SLOTS)
    return ((match.start(), match[0]) for match in _SENTENCE.finditer(_LINK.sub(blank, kept)))


def in_code(text: str, at: int) -> bool:
    """Whether a character stands in a code span or in a fence."""
    around = filter(lambda match: match.start() < at < match.end(), _FORMULA.finditer(text))
    return not all(map(_latex, around))


def images(text: str) -> list[tuple[int, str]]:
    """The images of a text: where each begins, and the address of its file."""
    matches = blocks.IMAGE.finditer(_kept(text)[1] if "![" in text else "")
    return [(match.start(), match["file"]) for match in matches if match["file"]]


def slotted(text: str) -> tuple[str, dict[str, str | Formula]]:
    """(The text, a private-use character for each expression and formula; what these stand for)."""
    names = dict.fromkeys(expression for _, expression in expressions(text))
    first = {name: chr(FIRST_EXPRESSION + position) for position, name in enumerate(names)}
    slots: dict[str, str | Formula] = {slot: name for name, slot in first.items()}

    def taken(match: re.Match[str]) -> str:
        if not (latex := _latex(match)):
            return "$" if match[0] == r"\$" else match[0]
        slot = chr(FIRST_FORMULA + len(slots))
        slots[slot] = Formula(latex, bool(match["block"]))
        return slot

    with_slots = _FORMULA.sub(taken, filled(text, first.__getitem__))
    return with_slots.replace(_LITERAL, "{{"), slots

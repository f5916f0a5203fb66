"""Author's Markdown: where its expressions are, which numerals stand bare, and how it renders.

Expressions are taken out before Markdown sees the text and put back after it, as private-use
characters, so Markdown cannot touch what they print and they cannot write Markdown.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from types import MethodType
from typing import NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_PRIVATE = re.compile("[\ue000-\uf8ff]")
_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")  # would hide a spelled quantity
_SLOT = re.compile(f"{_OPEN}([\ue100-\uf0ff]+){_CLOSE}")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_CODE = re.compile(r"(?<![`\\])(`+)(?!`)(.*?)(?<!`)\1(?!`)", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((<[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)|<https?:[^>\s]*>")
_MAY_LINK = re.compile(r"[\[<]")
_MAY_HIDE = re.compile(r"[&\[<\\]|```|~~~")  # entities, links, escapes, fences
_LISTED = re.compile(r"^(?:[ \t]*[-*+])?[ \t]*\d{1,2}[.)](?=[ \t])", re.MULTILINE)
_WORD = re.compile(r"[^\W_](?:[^\W_]|[_.,:/·×^%°'’-](?=[^\W_]))*%?")
_PIECE = re.compile(r"[^\W_]+%?")
_HYPHENED = re.compile(r"\b(?:ZeRO-[123]|GPT-[234])\b")
_UNITS = re.compile(
    r"\d+(?:x|×|k|m|g|b|bn|kb|mb|gb|tb|kib|mib|gib|tib|[kmgt]?bit|[kmgt]bps|ns|us|µs|μs|ms|s|"
    r"secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|hz|khz|ghz|mhz|fold|pp|pct|"
    r"st|nd|rd|th|bits|byte|bytes|%|e\d+)|x\d+",
    re.IGNORECASE,
)
_NUMBER_WORDS = (
    "five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|"
    "eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundreds?|"
    "thousands?|millions?|billions?|trillions?|dozens?"
)
_ORDINAL_WORDS = (
    "fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|hundredth|thousandth|millionth"
)
_SPELLED = re.compile(
    rf"\b(?:twice|thrice|half|halve[sd]?|halving|doubl(?:e|es|ed|ing)|tripl(?:e|es|ed|ing)|"
    rf"trebl(?:e|es|ed|ing)|quadrupl(?:e|es|ed|ing)|quarters?|(?:one|two)[- ]thirds?|"
    rf"thirds?\s+(?:of|less|more|as|\w+er)|"
    rf"(?:{_ORDINAL_WORDS})s?|percent|per cent|"
    rf"(?:two|three|four)\s+times\s+(?:as|more|less|the|over|\w+er)|"
    rf"(?:two|three|four|many|several|{_NUMBER_WORDS})-?fold|{_NUMBER_WORDS})\b"
    rf"(?![- ]precision\b)",
    re.IGNORECASE,
)


Fill = Callable[[str], str]  # an expression to its HTML


class Expressed(NamedTuple):
    """One `{{ … }}` of a text."""

    start: int  # of the expression's first character
    text: str
    begin: int  # of the braces
    end: int


class Fault(NamedTuple):
    """What is wrong at a character of a text."""

    offset: int
    message: str


def expressions(text: str) -> list[Expressed]:
    """The expressions of a text, in order."""
    found = []
    for match in _EXPRESSION.finditer(text):
        inside = match[1]
        lead = len(inside) - len(inside.lstrip())
        found.append(Expressed(match.start(1) + lead, inside.strip(), match.start(), match.end()))
    return found


@lru_cache(maxsize=65536)
def faults(text: str, *, inline: bool = False) -> tuple[Fault, ...]:
    """Everything that a text may not hold, apart from what its expressions say.

    Args:
        text: Markdown with expressions.
        inline: it renders as one line, so it has no lists whose numbers could be exempt.
    """
    found = [
        Fault(match.start(), "private-use characters are not allowed in text")
        for match in _PRIVATE.finditer(text)
    ]
    found += [
        Fault(match.start(), "an invisible character; delete it")
        for match in _INVISIBLE.finditer(text)
    ]
    if not found and _PRIVATE.search(html.unescape(text)):  # as &#xe000;
        found.append(Fault(max(text.find("&#"), 0), "private-use characters are not allowed"))
    found += [
        Fault(one.begin, "an expression between {{ and }} is empty")
        for one in expressions(text)
        if not one.text
    ]
    plain = masked(text, inline=inline)
    found += _template_faults(plain)
    found += _numeral_faults(plain)
    if _MAY_LINK.search(text):
        found += _link_faults(text)
    if not found and _may_print_more(text):
        found += _printed_faults(text, inline)
    return tuple(sorted(found))


def code(text: str) -> Iterator[re.Match[str]]:
    """The code blocks and code spans of a text of several paragraphs."""
    yield from _FENCE.finditer(text)
    yield from _CODE.finditer(_FENCE.sub(_blank, text))


def masked(text: str, *, inline: bool = False) -> str:
    """The text with everything exempt from the rule on numerals blanked out, place by place."""
    blocks = () if inline else (_FENCE, _LISTED)
    for pattern in (_EXPRESSION, *blocks, _CODE, _LINK):
        text = pattern.sub(_blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"\S", " ", match[0])


def _template_faults(plain: str) -> Iterator[Fault]:
    for match in re.finditer(r"\{\{|\}\}|\{%|%\}|\{#", plain):
        if match[0] in ("{{", "}}"):
            yield Fault(match.start(), f"{match[0]} without its other half on either side")
        else:
            yield Fault(match.start(), f"{match[0]} is not allowed; only {{{{ expressions }}}} are")


def _numeral_faults(plain: str) -> Iterator[Fault]:
    for offset, word in numerals(plain):
        yield Fault(
            offset,
            f"bare numeral {word!r}; print a value with {{{{ … }}}}, or put a name in `code`",
        )
    for match in _SPELLED.finditer(plain):
        yield Fault(
            match.start(),
            f"spelled quantity {match[0]!r}; compute it in {{{{ … }}}} or say it without a number",
        )


def numerals(plain: str) -> Iterator[tuple[int, str]]:
    """The bare numerals of a text without expressions and code, with their places.

    Letters joined to digits are a name (fp32, 1F1B), unless they are a unit (10x, 5GB, 3rd). So are
    the few names of the field that are written with a hyphen.
    """
    plain = _HYPHENED.sub(lambda name: " " * len(name[0]), plain)
    if not _has_digit(plain):
        return
    for word in _WORD.finditer(plain):
        if any(_is_numeral(piece) for piece in _PIECE.findall(word[0])):
            yield word.start(), word[0]
    for match in re.finditer(r"[^\w\s]", plain):
        if _is_digit(match[0]):
            yield match.start(), match[0]


def _has_digit(text: str) -> bool:
    return any(map(_is_digit, set(text)))


@cache
def _is_digit(char: str) -> bool:
    return unicodedata.category(char) in ("Nd", "Nl", "No")


def _is_numeral(piece: str) -> bool:
    if not any(_is_digit(char) for char in piece):
        return False
    return not any(char.isalpha() for char in piece) or _UNITS.fullmatch(piece) is not None


def _link_faults(text: str) -> list[Fault]:
    _refused.clear()
    MARKDOWN.parseInline(_slotted(text))
    return [_link_fault(text, link) for link in _refused]


def _link_fault(text: str, link: str) -> Fault:
    if _PRIVATE.search(unquote(link)):
        return Fault(max(text.find("]({{") + 2, 0), "a link's target holds no expression")
    return Fault(max(text.find(link[:20]), 0), f"link to {link!r}; links are relative or https")


def is_allowed_link(link: str) -> bool:
    """Whether a link stays inside the site or goes to https."""
    lowered = link.strip().lower()
    if lowered.startswith("https://"):
        return True
    return not re.match(r"[a-z][a-z0-9+.-]*:", lowered) and not lowered.startswith(("/", "\\"))


def _may_print_more(text: str) -> bool:
    """Whether Markdown could print a numeral, or hold a title, that the text itself hides."""
    outside = _EXPRESSION.sub("", text)
    return _has_digit(outside) or _MAY_HIDE.search(outside) is not None


def _printed_faults(text: str, inline: bool) -> Iterator[Fault]:
    """The backstop: numerals in what Markdown really prints, however they came there."""
    for token in _tokens(text, inline):
        titled = token.attrGet("title") is not None or _PRIVATE.search(token.info) is not None
        if titled and token.type in ("link_open", "fence"):
            yield Fault(
                0, "a link takes no title, and a code block no expression in its first line"
            )
        content = token.content if token.type == "text" else ""
        for _, word in numerals(_SLOT.sub(" ", content)):
            yield Fault(max(text.find(word), 0), f"bare numeral {word!r}")


def _tokens(text: str, inline: bool) -> Iterator[Token]:
    parse = MARKDOWN.parseInline if inline else MARKDOWN.parse
    for block in parse(_slotted(text)):
        yield block
        is_autolink = False
        for token in block.children or ():
            if token.type == "link_open":
                is_autolink = token.info == "auto"
            if not (is_autolink and token.type == "text"):
                yield token
            if token.type == "link_close":
                is_autolink = False


def _slotted(text: str) -> str:
    """The text with a run of private-use characters for each expression."""
    position = -1

    def slot(_: re.Match[str]) -> str:
        nonlocal position
        position += 1
        return _OPEN + "".join(chr(_FIRST + int(digit)) for digit in str(position)) + _CLOSE

    return _EXPRESSION.sub(slot, text)


_refused: list[str] = []  # the links that `MARKDOWN` met last and would not make


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True})
    markdown.disable(["image", "html_block", "html_inline", "heading", "lheading", "hr"])

    def validate(_: object, link: str) -> bool:
        allowed = is_allowed_link(link) and not _PRIVATE.search(unquote(link))
        if not allowed:
            _refused.append(link)
        return allowed

    markdown.validateLink = MethodType(validate, markdown)  # type: ignore[method-assign]
    return markdown


MARKDOWN = _markdown()


@lru_cache(maxsize=65536)
def _inline(text: str) -> str:
    return str(MARKDOWN.renderInline(_slotted(" ".join(text.split()))))


@lru_cache(maxsize=65536)
def _blocks(text: str) -> str:
    tokens = MARKDOWN.parse(_slotted(text))
    for token in tokens:
        token.attrs.pop("start", None)
    return str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})).strip()


def render(text: str, fill: Fill, *, inline: bool) -> str:
    """HTML of an author's text.

    Args:
        text: Markdown with expressions.
        fill: the HTML of one expression, given as text.
        inline: without paragraphs.
    """
    found = expressions(text)

    def put(match: re.Match[str]) -> str:
        position = int("".join(str(ord(char) - _FIRST) for char in match[1]))
        return fill(found[position].text)

    return _SLOT.sub(put, _inline(text) if inline else _blocks(text))

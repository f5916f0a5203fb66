"""Author's Markdown: where its expressions are, which numerals stand bare, and how it renders.

Expressions are taken out before Markdown sees the text and put back after it, as private-use
characters, so Markdown cannot touch what they print and they cannot write Markdown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from generator.content.typesetting import parted

_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_PRIVATE = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
# Come with a text that was copied from elsewhere, and no author sees them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\ud800-\udfff\ufeff]"
)
_IMAGE = re.compile(r"!\[")
_ADMONITION = re.compile(r'^[ \t>]*((?:!!!|\?\?\?\+?)[ \t]+\w+|===[!+]*[ \t]+".*")', re.MULTILINE)
_FORMULA = re.compile(r" [−·×/] ")
_JOINED = re.compile(r" (?=[/−] )|(?<= [/−]) |(?<=\d) (?=B\b)")
_TERM = re.compile(r"[^+=≈≤≥,\s](?:[^+=≈≤≥,]*[^+=≈≤≥,\s])?")
_OPTION = re.compile(r"(?<=[\s>])(--?[a-z][\w-]{,23})(?=[\s=<])")  # of a command, in HTML
_LONG = re.compile(r"[\w.=]{33,}")  # more letters than a line of a phone holds beside its label
_JOINT = re.compile(r"(?<=\w[.=])(?=[^\W\d])|(?<=[a-z])(?=[A-Z][a-z])")
SHORT = 24  # letters of a formula, or of a part of a name, that a line holds with words beside it
_SLOT = re.compile(f"{_OPEN}([\ue100-\uf0ff]+){_CLOSE}")
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_CODE = re.compile(r"(?<![`\\])(`+)(?!`)(.*?)(?<!`)\1(?!`)", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((<[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)|<https?:[^>\s]*>")
NO_ADMONITION = "prints as it is written; begin the paragraph with **Note.** instead"
NO_IMAGE = "an image; lessons show figures, and pages of content/pages the images beside them"
_MAY_LINK = re.compile(r"[\[<]")
_LISTED = re.compile(r"^(?:[ \t]*[-*+])?[ \t]*\d{1,2}[.)](?=[ \t])", re.MULTILINE)
_WORD = re.compile(r"[^\W_](?:[^\W_]|[_.,:/·×^%°'’-](?=[^\W_]))*%?")
_PIECE = re.compile(r"[^\W_]+%?")
_HYPHENED = re.compile(r"\b(?:ZeRO-[123]|GPT-[234])\b")
_UNITS = re.compile(
    r"\d+(?:x|×|k|m|g|b|bn|kb|mb|gb|tb|kib|mib|gib|tib|[kmgt]?bit|[kmgt]bps|ns|us|µs|μs|ms|s|"
    r"secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|hz|khz|ghz|mhz|fold|pp|pct|"
    r"st|nd|rd|th|bits|byte|bytes|%|e\d+)|x\d+|0x[\da-f]+|0b[01]+|0o[0-7]+",
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


@lru_cache(maxsize=65536)
def expressions(text: str) -> tuple[Expressed, ...]:
    """The expressions of a text, in order."""
    found = []
    for match in _EXPRESSION.finditer(text):
        inside = match[1]
        lead = len(inside) - len(inside.lstrip())
        found.append(Expressed(match.start(1) + lead, inside.strip(), match.start(), match.end()))
    return tuple(found)


def around(text: str) -> str:
    """What a text says outside its expressions."""
    said, done = "", 0
    for one in expressions(text):
        said, done = said + text[done : one.begin], one.end
    return said + text[done:]


@lru_cache(maxsize=65536)
def faults(text: str, *, inline: bool = False, is_page: bool = False) -> tuple[Fault, ...]:
    """Everything that a text may not hold, apart from what its expressions say.

    Args:
        text: Markdown with expressions.
        inline: it renders as one line, so it has no lists whose numbers could be exempt.
        is_page: it is a page by hand, which may show images.
    """
    found = list(hidden(text))
    found += [
        Fault(one.begin, "an expression between {{ and }} is empty")
        for one in expressions(text)
        if not one.text
    ]
    plain = masked(text, inline=inline)
    found += _template_faults(plain)
    found += _numeral_faults(plain)
    found += [
        Fault(one.start(1), f"{one[1]} {NO_ADMONITION}") for one in _ADMONITION.finditer(plain)
    ]
    if not is_page:
        found += [Fault(match.start(), NO_IMAGE) for match in _IMAGE.finditer(plain)]
    if _MAY_LINK.search(text):
        found += _link_faults(text, inline)
    return tuple(sorted(found))


def hidden(text: str) -> Iterator[Fault]:
    """The characters that no text may hold, be it Markdown or not."""
    for match in _PRIVATE.finditer(text):
        yield Fault(match.start(), "private-use characters are not allowed in text")
    for match in _INVISIBLE.finditer(text):
        message = f"an invisible character (U+{ord(match[0]):04X}); delete it"
        yield Fault(match.start(), message)


def plain_faults(text: str) -> Iterator[Fault]:
    """What a text may not hold that prints as it stands, such as a source's title."""
    yield from hidden(text)
    for match in re.finditer(r"\{\{|\{%|\{#", text):
        yield Fault(match.start(), f"{match[0]} has no meaning here: this text prints as it stands")


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
    if unicodedata.category(char) in ("Nd", "Nl", "No"):
        return True
    return unicodedata.numeric(char, None) is not None  # numerals that are letters of a script


def _is_numeral(piece: str) -> bool:
    digits = [char for char in piece if _is_digit(char)]
    if not digits:
        return False
    if not all(map(str.isascii, digits)):  # names such as fp32 are spelled with 0 to 9
        return True
    return not any(char.isalpha() for char in piece) or _UNITS.fullmatch(piece) is not None


def _link_faults(text: str, inline: bool) -> Iterator[Fault]:
    parse = MARKDOWN.parseInline if inline else MARKDOWN.parse
    for block in parse(_slotted(text)):
        for token in block.children or ():
            if token.type != "link_open":
                continue
            link = unquote(str(token.attrGet("href")))
            if _PRIVATE.search(link):
                message = "a link's target holds no expression"
                yield Fault(max(text.find("]({{") + 2, 0), message)
            elif not is_allowed_link(link):
                message = f"link to {link!r}; links are relative or https"
                yield Fault(max(text.find(link), 0), message)
            if token.attrGet("title") is not None:
                yield Fault(max(text.find("]("), 0), "a link takes no title")


def is_allowed_link(link: str) -> bool:
    """Whether a link is relative, or goes to a host by https."""
    return link.startswith("https://") or not re.match(r"[a-z][a-z0-9+.-]*:|[/\\]", link.lower())


def _slotted(text: str) -> str:
    """The text with a run of private-use characters for each expression."""
    position = -1

    def slot(_: re.Match[str]) -> str:
        nonlocal position
        position += 1
        return _OPEN + "".join(chr(_FIRST + int(digit)) for digit in str(position)) + _CLOSE

    return _EXPRESSION.sub(slot, text)


def _joined(term: re.Match[str]) -> str:
    return term[0].replace(" ", "\u00a0") if len(term[0]) <= SHORT else term[0]


def _code(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """A code span; a short one breaks nowhere, a formula at no short term, fraction or unit.

    A long name breaks where its parts meet, and a part at its underscores if it is long itself; an
    option such as `--prefix` breaks at no hyphen.
    """
    token = tokens[at]
    if _FORMULA.search(token.content):
        token.content = _JOINED.sub("\u00a0", _TERM.sub(_joined, token.content))
    if " " in token.content and len(token.content) <= SHORT:
        token.attrSet("class", "pb-keep")
    shown = str(RendererHTML.code_inline(self, tokens, at, *how))
    shown = _OPTION.sub(r'<span class="pb-keep">\1</span>', shown)
    return _LONG.sub(lambda name: parted(_JOINT.split(name[0]), SHORT), shown)


def _text(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """Words; a name such as ZeRO-1 breaks at no hyphen."""
    shown = str(RendererHTML.text(self, tokens, at, *how))
    return _HYPHENED.sub(r'<span class="pb-keep">\g<0></span>', shown)


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True})
    markdown.disable(["image", "html_block", "html_inline", "heading", "lheading", "hr"])
    markdown.add_render_rule("code_inline", _code)
    markdown.add_render_rule("text", _text)
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

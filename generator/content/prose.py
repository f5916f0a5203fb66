"""Author's Markdown: where its expressions are, which numerals stand bare, and how it renders.

Expressions are taken out before Markdown sees the text and put back after it, as private-use
characters, so Markdown cannot touch what they print and they cannot write Markdown.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from generator.content.typesetting import parted

_FIRST = 0xE000
_LINKED = "\uf8ff"  # before the character of an expression that stands in a link
_SLOT = re.compile(f"({_LINKED}?)([\ue000-\uf8fe])")
# Private-use characters, and those that come with a text copied from elsewhere.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\ue000-\uf8ff\ufeff]"
)
_LONG = re.compile(r"[\w.=()]{21,}")  # more letters than a line of a phone holds beside its label
_JOINT = re.compile(r"(?<=\w[.=])(?=[^\W\d])|(?<=\w\()|(?<=[a-z])(?=[A-Z][a-z])")
_GROUP = re.compile(r"\([^()<> ]+ [^()<>]{,18}\)")  # a bracket of a formula
SHORT = 26  # letters of a span that a line holds with words beside it
_ENDS = re.compile(r"[ /-]")  # where a line of a browser may end
LINE = 32  # letters of a name that a line of a phone holds
WHOLE = 20  # letters of a part of a name that stays whole
_EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_BRACES = re.compile(r"\{\{|\}\}")
_CODE = re.compile(r"(?<![`\\])(`+)(?!`)(.*?)(?<!`)\1(?!`)", re.DOTALL)
_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$", re.DOTALL | re.MULTILINE)
_OTHER_FENCE = re.compile(
    r"^ {0,3}(?:```+|~~~+)(?![`~]|[ \t]*(?:python|sh|text)?[ \t]*$)[^\n`]*$", re.MULTILINE
)
_LISTED = re.compile(r"^(?:[ \t]*[-*+])?[ \t]*\d{1,2}[.)](?=[ \t])", re.MULTILINE)
_LINK = re.compile(r"\]\((<[^>\n]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)|<https?:[^>\s]*>")
_OTHER_ADDRESS = re.compile(
    r"(?<=\]\()(?:<?(?!https:)[a-z][a-z0-9+.-]*:|<?[/\\]|[^)\s]*\{\{)[^)\s]*", re.IGNORECASE
)
_IMAGE = re.compile(r"!\[")
_WORD = re.compile(r"[^\W_](?:[^\W_]|[_.,:/·×^%°'’-](?=[^\W_]))*%?")
_PIECE = re.compile(r"[^\W_]+%?")
_HYPHENED = re.compile(r"\b(?:ZeRO-[123]|GPT-[234]|[Aa]ll-(?:gather|reduce)|[Rr]educe-scatter)\b")
_NAME = re.compile(r"(?!x\d)[^\W\d]\w*|\dF\dB|\dD", re.IGNORECASE)  # fp32, 1F1B, 3D
_NUMBERS = (
    "five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|twenty|"
    "(?:thir|for|fif|six|seven|eigh|nine)ty|hundreds?|thousands?|millions?|billions?|trillions?"
)
_SPELLED = re.compile(
    rf"\b(?:twice|thrice|hal(?:f|ves?|ved|ving)|(?:doubl|tripl|trebl|quadrupl)(?:e[sd]?|ing)|"
    rf"quarters?|dozens?|orders?\s+of\s+magnitude|"
    rf"(?:single|double|two|three|four)-digit|(?:one|two)[- ]thirds?|"
    rf"thirds?\s+(?:of|as|less|more|\w+er)|"
    rf"(?:fif|six|seven|eigh|nin|ten|eleven|twelf|hundred|thousand|million)ths?|per\s?cent|"
    rf"(?:two|three|four)\s+times\s+(?:as|more|less|the|over|\w+er)|"
    rf"(?:two|three|four|many|several|{_NUMBERS})-?fold|{_NUMBERS})\b(?![- ]precision\b)",
    re.IGNORECASE,
)

_MEASURED = re.compile(  # a code span of a number with its unit
    r"(?<![`\\])(`+)\s*[<>=~≈≤≥±+−-]?\s*\d[\d.,]*(?:e[+-]?\d+)?\s*(?:%|(?:[KMGT]i?)?(?:B|bits?|"
    r"bytes)(?:/s)?|(?:[x×]|times|-?fold)(?:\s+[a-z]+)?|[mµun]?s|min|h|(?:hour|minute|second|day)s?|"
    r"[kMGT]?Hz|[KMGTPE]?FLOPs?(?:/s)?|(?:steps|samples|tokens)/s)\s*\1(?!`)",
    re.IGNORECASE,
)

Fill = Callable[[str], str]  # an expression to what it prints


class Expressed(NamedTuple):
    """One `{{ … }}` of a text."""

    start: int  # of the expression's first character
    text: str


class Fault(NamedTuple):
    """What is wrong at a character of a text."""

    offset: int
    message: str


@lru_cache(maxsize=65536)
def expressions(text: str) -> tuple[Expressed, ...]:
    """The expressions of a text, in order."""
    return tuple(
        Expressed(match.end(1) - len(match[1].lstrip()), match[1].strip())
        for match in _EXPRESSION.finditer(text)
    )


def filled(text: str, fill: Fill) -> str:
    """A text with something else in the places of its expressions, braces included."""
    return _EXPRESSION.sub(lambda match: fill(match[1].strip()), text)


@lru_cache(maxsize=65536)
def faults(text: str, mark: str) -> tuple[Fault, ...]:
    """Everything that a text may not hold, apart from what its expressions say.

    Args:
        text: Markdown with expressions.
        mark: a `line` has no lists whose numbers could be exempt; a `page` may show images.
    """
    return tuple(sorted(_faults(text, mark)))


def _faults(text: str, mark: str) -> Iterator[Fault]:
    prints = text
    blocks = () if mark == "line" else (_FENCE, _LISTED)
    for pattern in (_EXPRESSION, *blocks, _CODE):
        prints = pattern.sub(_blank, prints)
    plain = _LINK.sub(_blank, prints)
    fenced = text.replace("```listing\n", "```text   \n").replace("```quiz\n", "```text\n")
    fenced = fenced if mark == "page" else text
    for within, pattern, wrong, instead in (
        (text, _INVISIBLE, "invisible character", "delete it"),
        (fenced, _OTHER_FENCE, "fence", "write ``` alone, or ```python, ```sh or ```text"),
        (text, _MEASURED, "quantity", "it is no code; print it with {{ … }}"),
        (text, _OTHER_ADDRESS, "link to", "links are relative or https"),
        ("" if mark == "page" else plain, _IMAGE, "an image", "lessons show figures"),
        (plain, _BRACES, "braces", "the other half of the expression is missing"),
        (plain, _SPELLED, "spelled quantity", "compute it in {{ … }} or say it without a number"),
    ):
        for match in pattern.finditer(within):
            yield Fault(match.start(), f"{wrong} {match[0]!r}; {instead}")
    for offset, word in numerals(plain):
        instead = "print a value with {{ … }}, or put a name in `code`"
        yield Fault(offset, f"bare numeral {word!r}; {instead}")


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"\S", " ", match[0])


def numerals(plain: str) -> Iterator[tuple[int, str]]:
    """The bare numerals of a text without expressions and code, with their places.

    A word that begins with a letter is a name (fp32), and so are a few others of the field (1F1B).
    """
    plain = _HYPHENED.sub(_blank, plain)
    if any(map(str.isnumeric, plain)):
        for word in _WORD.finditer(plain):
            if any(map(_is_numeral, _PIECE.findall(word[0]))):
                yield word.start(), word[0]


def _is_numeral(piece: str) -> bool:
    digits = [char for char in piece if char.isnumeric()]  # of any script
    is_name = _NAME.fullmatch(piece) and all(map(str.isascii, digits))
    return bool(digits) and not is_name


def _slotted(text: str) -> str:
    """The text with a private-use character for each expression."""
    positions = count(_FIRST)
    return _EXPRESSION.sub(lambda _: chr(next(positions)), text)


def _code_span(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """A code span: a short one breaks nowhere, and of a long one its names where parts meet."""
    token = tokens[at]
    if len(token.content) <= SHORT and _ENDS.search(token.content):
        token.attrSet("class", "pb-keep")
    shown = str(RendererHTML.code_inline(self, tokens, at, *how))
    return _LONG.sub(_name, _GROUP.sub(r'<span class="pb-keep">\g<0></span>', shown))


def _name(found: re.Match[str]) -> str:
    """A long name, which moves to the next line whole where each line holds it."""
    shown = parted(_JOINT.split(found[0]), WHOLE)
    return f'<span class="pb-name">{shown}</span>' if len(found[0]) <= LINE else shown


def _words(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """Words; a name such as ZeRO-1 breaks at no hyphen."""
    shown = str(RendererHTML.text(self, tokens, at, *how))
    if sum(one.nesting for one in tokens[:at] if one.type.startswith("link_")):
        shown = _SLOT.sub(rf"{_LINKED}\2", shown)
    return _HYPHENED.sub(r'<span class="pb-keep">\g<0></span>', shown)


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True})
_MARKDOWN.disable(["image", "html_block", "html_inline", "heading", "lheading", "hr"])
_MARKDOWN.add_render_rule("code_inline", _code_span)
_MARKDOWN.add_render_rule("text", _words)


@lru_cache(maxsize=65536)
def _rendered(text: str, *, inline: bool) -> str:
    if inline:
        return str(_MARKDOWN.renderInline(_slotted(" ".join(text.split()))))
    tokens = _MARKDOWN.parse(_slotted(text))
    for token in tokens:
        token.attrs.pop("start", None)
        if token.type in ("fence", "code_block"):  # which a keyboard scrolls
            token.type, token.attrs["tabindex"] = "fence", "0"
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})).strip()


def render(text: str, fill: Fill, linked: Fill, *, inline: bool) -> str:
    """HTML of an author's text.

    Args:
        text: Markdown with expressions.
        fill: the HTML of one expression, given as text.
        linked: the same for one in the words of a link.
        inline: without paragraphs.
    """
    found, fills = expressions(text), {"": fill, _LINKED: linked}
    rendered = _rendered(text, inline=inline)
    return _SLOT.sub(lambda slot: fills[slot[1]](found[ord(slot[2]) - _FIRST].text), rendered)

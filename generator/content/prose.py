"""Author's Markdown: where its expressions and formulas are, what it may not hold, how it renders.

Expressions and formulas are taken out before Markdown sees the text and put back after it, as
private-use characters, so Markdown cannot touch what they print and they cannot write Markdown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, starmap
from typing import Any, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.footnote import footnote_plugin

from generator.content import blocks, formulas
from generator.content.formulas import VALUE
from generator.content.numerals import (
    AFTER_VALUE,
    HYPHENED,
    SPELLED,
    blank,
    numerals,
    states_quantity,
)
from generator.content.typesetting import parted, plain
from runners.system.errors import near

_FIRST, _FIRST_FORMULA = 0xE000, 0xF000
_LINKED = "\uf8ff"  # before the character of an expression or a formula that stands in a link
_PLAIN = "\uf8fe"  # before that of one whose text alone is wanted
_IN_LATEX = "\uf8fc"  # before that of one whose text stands in LaTeX
_SLOT = re.compile(f"([{_LINKED}{_PLAIN}{_IN_LATEX}]?)([\ue000-\uf7ff])")
_FORMULA_SLOT = re.compile(  # with what a line may not part from it
    rf"(?P<opens>\(?)(?P<how>[{_LINKED}{_PLAIN}]?)(?P<slot>[\uf000-\uf7ff])(?P<ends>[.,;:)]*)"
)
NOTES = "\uf8fd"  # in the ids of footnotes: what tells those of a text from others of its page
SCROLLED = '<div class="pb-scroll" tabindex="0" role="group">'  # around a table; a page names it
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
Fill = Callable[[str], str]  # an expression to what it prints
Formulas = list[tuple[str, bool]]  # the LaTeX of each, and whether it stands in a line of its own


class Expressed(NamedTuple):
    """One `{{ … }}` of a text."""

    start: int  # of the expression's first character
    text: str


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


def filled(text: str, fill: Fill) -> str:
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


def _slotted(text: str) -> tuple[str, Formulas]:
    """The text with a private-use character for each expression and formula; the formulas."""
    extracted, first = Formulas(), dict[str, int]()
    for position, expression in enumerate(expressions(text)):
        first.setdefault(expression.text, position)

    def taken(match: re.Match[str]) -> str:
        if not _is_formula(match):
            return "$" if match[0] == r"\$" else match[0]
        extracted.append((match["block"] or match["inline"], bool(match["block"])))
        return chr(_FIRST_FORMULA + len(extracted) - 1)

    slotted = _FORMULA.sub(taken, filled(text, lambda expression: chr(_FIRST + first[expression])))
    return slotted.replace(_LITERAL, "{{"), extracted


def _with_formulas(text: str, extracted: Formulas, as_html: Fill = str) -> str:
    """A text with MathML in the places of its formulas; with LaTeX where a text alone is wanted.

    No screen reader finds a link in a formula, so what its values are read from follows it. A
    browser may end a line on either side of a formula, also where a bracket or a point touches it.
    """

    def shown(match: re.Match[str]) -> str:
        latex, is_block = extracted[ord(match["slot"]) - _FIRST_FORMULA]
        if match["how"] == _PLAIN:
            return match["opens"] + str(escape(VALUE.sub(rf"{_PLAIN}\g<0>", latex))) + match["ends"]
        drawn = formulas.mathml(latex.strip(), is_block=is_block)
        drawing, annotation, written = drawn.partition("<annotation")
        drawn = VALUE.sub(rf"{_PLAIN}\g<0>", drawing) + annotation
        drawn += VALUE.sub(rf"{_IN_LATEX}\g<0>", written)
        if values := dict.fromkeys(VALUE.findall(latex) if match["how"] != _LINKED else ()):
            drawn += f' <small class="pb-inputs">({", ".join(values)})</small>'
        touched = match["opens"] + drawn + match["ends"]
        if touched != drawn and not values and not is_block:
            touched = f'<span class="pb-keep">{touched}</span>'
        return as_html(touched)

    return _FORMULA_SLOT.sub(shown, text)


def _code_span(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """A code span: a short one breaks nowhere, and of a long one its names where parts meet."""
    token = tokens[at]
    if len(token.content) <= SHORT and _ENDS.search(token.content):
        token.attrSet("class", "pb-keep")
    html = str(RendererHTML.code_inline(self, tokens, at, *how))
    return _LONG.sub(_name, _GROUP.sub(r'<span class="pb-keep">\g<0></span>', html))


def _name(match: re.Match[str]) -> str:
    """A long name, which moves to the next line whole where each line holds it."""
    html = parted(_JOINT.split(match[0]), WHOLE)
    return f'<span class="pb-name">{html}</span>' if len(match[0]) <= LINE else html


def _words(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """Words; a name such as ZeRO-1 breaks at no hyphen."""
    html = str(RendererHTML.text(self, tokens, at, *how))
    if sum(token.nesting for token in tokens[:at] if token.type.startswith("link_")):
        html = _SLOT.sub(rf"{_LINKED}\2", html)
    return HYPHENED.sub(r'<span class="pb-keep">\g<0></span>', html)


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True}).enable("table")
_MARKDOWN.use(admon_plugin).use(footnote_plugin, inline=False)
_MARKDOWN.disable(["html_block", "html_inline", "heading", "lheading", "hr"])
_MARKDOWN.add_render_rule("code_inline", _code_span)
_MARKDOWN.add_render_rule("text", _words)
ALIGNED = {"right": "pb-number", "center": "pb-center"}  # cells of tables, by class
_AROUND = {  # what stands there in other pages
    "footnote_block_open": '<div class="footnote"><ol>',
    "footnote_block_close": "</ol></div>",
    "table_open": f'{SCROLLED}<table class="pb-table">',
    "table_close": "</table></div>",
}
_REFERRED = re.compile(r'<sup class="footnote-ref"><a( href="[^"]+")( id="[^"]+")>')
for _part in _AROUND:
    _MARKDOWN.add_render_rule(_part, lambda _, tokens, at, *__: _AROUND[tokens[at].type])


@lru_cache(maxsize=65536)
def _rendered(text: str, *, inline: bool) -> str:
    text, extracted = _slotted(" ".join(text.split()) if inline else text)
    if inline:
        html = str(_MARKDOWN.renderInline(text))
    else:
        of_page = {"docId": NOTES}
        tokens = _MARKDOWN.parse(text, of_page)
        for at, token in enumerate(tokens):
            token.attrs.pop("start", None)
            if token.type in ("fence", "code_block"):  # which a keyboard scrolls
                token.type, token.attrs["tabindex"] = "fence", "0"
            if token.type in ("th_open", "td_open"):
                _as_cell(tokens[at - 1 : at + 3])
        html = str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, of_page)).strip()
    html = re.sub(r"<[^>]+>", lambda tag: _SLOT.sub(rf"{_PLAIN}\2", tag[0]), html)
    html = _REFERRED.sub(r'<sup class="footnote-ref pb-label"\2><a\1>', html)
    return _with_formulas(html, extracted)


def _as_cell(tokens: Sequence[Token]) -> None:
    """Let a cell be as in templates: the first heads its row, and alignment is a class."""
    before, begins, says, ends = tokens
    aligned = str(begins.attrs.pop("style", "")).rpartition(":")[2]
    if aligned in ALIGNED:
        begins.attrs["class"] = ALIGNED[aligned]
    scope = "col" if begins.tag == "th" else "row" if before.type == "tr_open" else ""
    begins.tag = ends.tag = "th" if says.content and scope else "td"
    if begins.tag == "th":
        begins.attrs["scope"] = scope


def render(text: str, fill: Fill, linked: Fill, *, inline: bool) -> str:
    """HTML of an author's Markdown, or of one line of it (`inline`).

    `fill` gives the HTML of an expression, and `linked` that of one in the words of a link.
    """
    return _put_back(_rendered(text, inline=inline), text, fill, linked)


def put_into(text: str, fill: Fill, linked: Fill, escaped: Fill) -> str:
    """Markdown `text`, its expressions and formulas as HTML, `escaped` lest Markdown reads it.

    `fill` and `linked` are those of `render`; `escaped` is of some HTML, in which nothing is
    Markdown.
    """
    slotted = _with_formulas(
        *_slotted(text), lambda drawn: f'<span class="pb-formula">{escaped(Markup(drawn))}</span>'
    )
    return _put_back(
        slotted,
        text,
        lambda expression: escaped(fill(expression)),
        lambda expression: escaped(linked(expression)),
    )


def _put_back(html: str, text: str, fill: Fill, linked: Fill) -> str:
    expressed, fills = expressions(text), {"": fill, _LINKED: linked}
    fills[_PLAIN] = lambda expression: str(escape(plain(linked(expression))))
    fills[_IN_LATEX] = lambda expression: str(escape(formulas.as_latex(plain(linked(expression)))))
    return _SLOT.sub(lambda slot: fills[slot[1]](expressed[ord(slot[2]) - _FIRST].text), html)

"""Author's Markdown → HTML, with what is in it: its words, its links, formulas, tables, notes.

Expressions and formulas are taken out before Markdown sees the text and put back after it, as
private-use characters, so Markdown cannot touch what they print and they cannot write Markdown.
Other such characters say, in what Markdown made, of which mode the letters behind them are.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from html import unescape
from itertools import groupby
from typing import Any, Literal, NamedTuple, Self

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.footnote import footnote_plugin

from generator.content import formulas, prose
from generator.content.numerals import HYPHENED

Fill = Callable[[str], str]  # an expression to its HTML


class Mode(NamedTuple):
    """How letters up to the next change of mode are read, and an expression among them printed."""

    form: Literal["value", "linked", "plain", "latex"] = "plain"
    is_read: bool = False  # by a reader, so that its words count
    is_text: bool = False  # of the text without markup
    is_running: bool = False  # words outside links, code and formulas


_TAGS, _RUNNING, _IN_LINK, _CODE, _LISTING, _DRAWN, _LATEX = map(chr, range(0xF8F0, 0xF8F7))
_MODES = {
    _TAGS: Mode(),
    _RUNNING: Mode("value", True, True, True),
    _IN_LINK: Mode("linked", True, True),
    _CODE: Mode("value", True, True),
    _LISTING: Mode("value", False, True),
    _DRAWN: Mode("plain", True, False),
    _LATEX: Mode("latex", False, True),
}
_NOTES, _TABLE = "\uf8fd", "\uf8fe"  # in ids of footnotes, their text's number; a table's name
_PRIVATE = re.compile("([\ue000-\uf8ff])")
_FORMULA = re.compile(r"(\(?)([\uf000-\uf7ff])([.,;:)]*)")  # with what a line may not part from it
_LONG = re.compile(r"[\w.=()]{21,}")  # more letters than a line of a phone holds beside its label
_JOINT = re.compile(r"(?<=\w[.=])(?=[^\W\d])|(?<=\w\()|(?<=[a-z])(?=[A-Z][a-z])")
_GROUP = re.compile(r"\([^()<> ]+ [^()<>]{,18}\)")  # a bracket of a formula
SHORT = 26  # letters of a span that a line holds with words beside it
LINE = 32  # letters of a name that a line of a phone holds
WHOLE = 20  # letters of a part of a name that stays whole
ALIGNED = {"right": "pb-number", "center": "pb-center"}  # cells of tables, by class
MARKUP = ("formula", "table", "footnote", "admonition")


class Piece(NamedTuple):
    """HTML between two changes of mode."""

    html: str
    mode: Mode


class Slot(NamedTuple):
    """The place of an expression."""

    expression: str
    mode: Mode


class Text(Markup):
    """HTML of an author's text, and what is in it.

    HTML that is no author's, such as what methods of strings make of a text, is one piece.
    """

    links: tuple[str, ...] = ()
    """addresses that its author links."""
    markup: frozenset[str] = frozenset()
    """those of `MARKUP` that it holds."""

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Its parts, between two changes of mode."""
        return (Piece(str(self), _MODES[_CODE]),)

    @classmethod
    def of(
        cls, pieces: Iterable[Piece], links: Iterable[str] = (), markup: Iterable[str] = ()
    ) -> Self:
        """The text that consists of these pieces."""
        pieces = tuple(pieces)
        text = cls("".join(piece.html for piece in pieces))
        text.pieces, text.links, text.markup = pieces, tuple(links), frozenset(markup)
        return text

    @classmethod
    def of_words(cls, words: str) -> Self:
        """Running words that are no Markdown."""
        return cls.of([Piece(str(escape(words)), _MODES[_RUNNING])])

    @property
    def read(self) -> str:
        """What of its HTML a reader reads: no listings, and of a formula its signs."""
        return "".join(html for html, mode in self.pieces if mode.is_read or not mode.is_text)

    @property
    def num_words(self) -> int:
        """The words that a reader reads."""
        return _num_words(self.read)

    @property
    def plain(self) -> str:
        """The text without markup; a formula is its LaTeX."""
        return "".join(
            _without_tags(html) if mode.is_text else "\n" * html.count("\n")
            for html, mode in self.pieces
        )


def render(
    text: str, fill: Fill, linked: Fill, *, inline: bool, note: str = "", table: str = ""
) -> Text:
    """`Text` of an author's Markdown, or of one line of it (`inline`).

    `fill` gives the HTML of an expression, and `linked` that of one in the words of a link. `note`
    tells the footnotes of this text from others of its page, and `table` names its tables.
    """
    pieces, links, markup = _rendered(text, inline=inline)
    names = {_NOTES: note, _TABLE: table}
    return Text.of(_filled(pieces, fill, linked, names), links, markup)


def bare(text: str, fill: Fill, *, inline: bool) -> Text:
    """An author's text as any program shows it: no links, no attributes, formulas as LaTeX."""
    tokens, env = _parsed(text, inline=inline)
    html = _CODE + RendererHTML().render([*_bare(tokens)], _MARKDOWN.options, env).strip()
    for slot, expressed in env["slots"].items():
        if isinstance(expressed, prose.Formula):
            begins, ends = (r"\[", r"\]") if expressed.is_block else (r"\(", r"\)")
            latex = f"{_LATEX}{escape(expressed.latex.strip())}{_CODE}"
            html = html.replace(slot, f"{begins}{latex}{ends}")
    return Text.of(_filled(_pieces(html, env["slots"]), fill, fill))


def links_of(text: str) -> tuple[str, ...]:
    """The addresses that an author's text links."""
    return _rendered(text, inline=False)[1]


def put_into(text: str, fill: Fill, linked: Fill, escaped: Fill) -> str:
    """Markdown `text`, its expressions and formulas as HTML, `escaped` lest Markdown reads it.

    `fill` and `linked` are those of `render`; `escaped` is of some HTML, in which nothing is
    Markdown.
    """
    slotted, slots = prose.slotted(text)

    def put(slot: re.Match[str]) -> str:
        html = _drawn(slot, slots, _CODE) if slot[2] else f"{_CODE}{slot[0]}"
        filled = escaped(Text.of(_filled(_pieces(html, slots), fill, linked)))
        return f'<span class="pb-formula">{filled}</span>' if slot[2] else filled

    return re.sub(f"{_FORMULA.pattern}|[\ue000-\uefff]", put, slotted)


def _filled(
    pieces: Iterable[Piece | Slot], fill: Fill, linked: Fill, names: Mapping[str, str] = {}
) -> Iterator[Piece]:
    """The pieces of a text with those of its expressions."""
    for piece in pieces:
        if isinstance(piece, Piece):
            yield piece
        elif piece.expression in names:
            yield Piece(names[piece.expression], piece.mode)
        else:
            mode = piece.mode
            printed = (fill if mode.form == "value" else linked)(piece.expression)
            printed = printed if isinstance(printed, Text) else Text(printed)
            if mode.form in ("plain", "latex"):
                words = printed.plain if mode.form == "plain" else formulas.as_latex(printed.plain)
                yield Piece(str(escape(words)), mode)
                continue
            for part in printed.pieces:
                yield part if mode.is_running or not part.mode.is_text else Piece(part.html, mode)


def plain(html: str) -> str:
    """Plain text of HTML; in an author's text, a formula is its LaTeX."""
    return html.plain if isinstance(html, Text) else _without_tags(html)


def unlinked(html: str) -> Markup:
    """HTML without its links, whose words stay."""
    begins, *links = str(html).replace("</a>", "").split("<a ")
    return Markup(begins + "".join(link.partition(">")[2] for link in links))


def parted(parts: Iterable[str], limit: int) -> str:
    """Escaped parts of a name, joined by `<wbr>`, also after `_` in parts over `limit` letters."""
    within = (part if len(part) <= limit else part.replace("_", "_<wbr>") for part in parts)
    return "<wbr>".join(within)


def _without_tags(html: str) -> str:
    if "<" in html:
        html = "".join(part.partition(">")[2] for part in f">{html}".split("<"))
    return unescape(html)


def _num_words(html: str) -> int:
    """The words between the tags of HTML."""
    texts = (part.partition(">")[2] for part in f">{html.replace('<wbr>', '')}".split("<"))
    words = [word for text in texts for word in text.split()]  # a comma behind a link is none
    return sum(word[0].isalnum() or any(map(str.isalnum, word)) or "_" in word for word in words)


# --- what Markdown makes of a text


def _code_span(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """A code span: a short one breaks nowhere, and of a long one its names where parts meet."""
    token = tokens[at]
    if len(token.content) <= SHORT and any(end in token.content for end in " /-"):
        token.attrSet("class", "pb-keep")
    html = RendererHTML.code_inline(self, tokens, at, *how)
    html = _LONG.sub(_name, _GROUP.sub(r'<span class="pb-keep">\g<0></span>', html))
    return f"{_IN_LINK if _is_in_link(tokens, at) else _CODE}{html}{_TAGS}"


def _name(match: re.Match[str]) -> str:
    """A long name, which moves to the next line whole where each line holds it."""
    html = parted(_JOINT.split(match[0]), WHOLE)
    return f'<span class="pb-name">{html}</span>' if len(match[0]) <= LINE else html


def _is_in_link(tokens: Sequence[Token], at: int) -> bool:
    return bool(sum(token.nesting for token in tokens[:at] if token.type.startswith("link_")))


def _words(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """Words; a name such as ZeRO-1 breaks at no hyphen."""
    mode, slots = _IN_LINK if _is_in_link(tokens, at) else _RUNNING, how[-1]["slots"]
    is_break = tokens[at].type == "softbreak"
    html = "\n" if is_break else RendererHTML.text(self, tokens, at, *how)
    html = HYPHENED.sub(rf'{_TAGS}<span class="pb-keep">{mode}\g<0>{_TAGS}</span>{mode}', html)
    drawn = _FORMULA.sub(lambda match: _drawn(match, slots, mode), html)
    return f"{mode}{drawn}{_TAGS}"


def _drawn(match: re.Match[str], slots: Mapping[str, Any], around: str) -> str:
    """A formula, which carries its LaTeX, in the mode `around` it.

    No screen reader finds a link in a formula, so what its values are read from follows it. A
    browser may end a line on either side of a formula, also where a bracket or a point touches it.
    """
    opens, slot, ends = match.groups()
    latex, is_block = slots[slot]
    made = formulas.mathml(latex.strip(), is_block=is_block)
    drawing, annotation, written = made.partition("<annotation")
    drawn = f"{_DRAWN}{drawing}{_LATEX}{annotation}{written}{around}"
    values = dict.fromkeys(formulas.values(latex)) if around != _IN_LINK else {}
    if values:
        drawn += f'{_CODE} <small class="pb-inputs">({", ".join(values)})</small>{around}'
    touched = f"{opens}{drawn}{ends}"
    if opens + ends and not values and not is_block:
        touched = f'{_TAGS}<span class="pb-keep">{around}{touched}{_TAGS}</span>{around}'
    return touched


def _listing(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """Code in lines, which a keyboard scrolls."""
    tokens[at].attrs["tabindex"] = "0"
    return f"{_LISTING}{RendererHTML.fence(self, tokens, at, *how).strip()}{_TAGS}\n"


def _reference(self: RendererHTML, tokens: Sequence[Token], at: int, *how: Any) -> str:
    """The number of a footnote, which leads to it."""
    name, number = (
        self.rules[f"footnote_{part}"](tokens, at, *how) for part in ("anchor_name", "caption")
    )
    again = f":{tokens[at].meta['subId']}" if tokens[at].meta.get("subId", -1) > 0 else ""
    link = f'<a href="#fn{name}">{_IN_LINK}{number}{_TAGS}</a>'
    return f'<sup class="footnote-ref pb-label" id="fnref{name}{again}">{link}</sup>'


_AROUND = {  # what stands there in other pages
    "footnote_block_open": '<div class="footnote"><ol>',
    "footnote_block_close": "</ol></div>",
    "table_open": f'<div class="pb-scroll" tabindex="0" role="group" aria-label="{_TABLE}">'
    '<table class="pb-table">',
    "table_close": "</table></div>",
}
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "xhtmlOut": True}).enable("table")
_MARKDOWN.use(admon_plugin).use(footnote_plugin, inline=False)
_MARKDOWN.disable(["html_block", "html_inline", "heading", "lheading", "hr"])
for _type, _rule in {
    "code_inline": _code_span, "text": _words, "softbreak": _words, "fence": _listing,
    "code_block": _listing, "footnote_ref": _reference,
    **dict.fromkeys(_AROUND, lambda _, tokens, at, *__: _AROUND[tokens[at].type]),
}.items():  # fmt: skip
    _MARKDOWN.add_render_rule(_type, _rule)


def _parsed(text: str, *, inline: bool) -> tuple[list[Token], dict[str, Any]]:
    """What Markdown reads in a text, and its `slots`, with what else renders it."""
    slotted, slots = prose.slotted(" ".join(text.split()) if inline else text)
    env: dict[str, Any] = {"docId": _NOTES, "slots": slots}
    tokens = _MARKDOWN.parseInline(slotted, env) if inline else _MARKDOWN.parse(slotted, env)
    for at, token in enumerate(tokens):
        token.attrs.pop("start", None)
        if token.type in ("th_open", "td_open"):
            _as_cell(tokens[at - 1 : at + 3])
    return tokens, env


def _bare(tokens: Iterable[Token]) -> Iterator[Token]:
    """Tokens without links and boxes, and without attributes but those of images."""
    for token in tokens:
        kind = token.type.removesuffix("_open").removesuffix("_close")
        token.tag = {"footnote_block": "ol", "footnote": "li"}.get(kind, token.tag)
        if kind == "footnote_ref":
            yield Token("text", "", 0, content=f"[{token.meta['id'] + 1}]")
        elif kind != "footnote_anchor" and token.tag not in ("a", "div"):
            token.attrs, token.info = token.attrs if kind == "image" else {}, ""
            token.children = token.children and [*_bare(token.children)]
            yield token


@lru_cache(maxsize=65536)
def _rendered(
    text: str, *, inline: bool
) -> tuple[tuple[Piece | Slot, ...], tuple[str, ...], frozenset[str]]:
    """The pieces, the links and the markup of a text, as every page prints it."""
    tokens, env = _parsed(text, inline=inline)
    slots = env["slots"]
    html = str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, env)).strip()
    spans = [span for token in tokens for span in token.children or ()]
    links = (str(span.attrs["href"]) for span in spans if span.type == "link_open")
    kinds = {token.type.partition("_")[0] for token in tokens}
    if any(isinstance(expressed, prose.Formula) for expressed in slots.values()):
        kinds.add("formula")
    return tuple(_pieces(html, slots)), tuple(links), frozenset(kinds.intersection(MARKUP))


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


def _pieces(html: str, slots: Mapping[str, str | prose.Formula]) -> Iterator[Piece | Slot]:
    """What the slots and modes in HTML part; of a formula in an attribute its LaTeX."""
    mode, parts = _MODES[_TAGS], list[tuple[Mode, bool, str]]()
    for part in _PRIVATE.split(html):
        if part in _MODES:
            mode = _MODES[part]
        elif part:
            parts.append((mode, part in (*slots, _NOTES, _TABLE), part))
    for (mode, is_slot), group in groupby(parts, lambda part: part[:2]):
        if is_slot:
            for *_, slot in group:
                match slots.get(slot, slot):
                    case prose.Formula() as formula:
                        yield from _pieces(str(escape(formula.latex)), slots)
                    case expression:
                        yield Slot(expression, mode)
        else:
            yield Piece("".join(part for *_, part in group), mode)

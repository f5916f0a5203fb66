"""Author's Markdown → HTML, with what is in it: its words, its links, formulas, tables, notes.

Markdown makes tokens of a text, and each token spans of HTML of one kind. An expression is a span
too, which `fill` prints; for Markdown it and a formula are private-use characters, so that Markdown
cannot touch what they print and they cannot write Markdown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from html import unescape
from itertools import groupby
from typing import Any, Literal, NamedTuple, Self

from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from proofbook.generator.content import formulas, prose
from proofbook.generator.content.addresses import MARKDOWN
from proofbook.generator.content.numerals import HYPHENED

Fill = Callable[[str], str]  # an expression to its HTML
Slots = Mapping[str, str | prose.Formula]
# Running words, and those of a link or in code; code in lines; what is between words: tags with
# their attributes; of a formula its MathML, and the LaTeX in it.
Kind = Literal["words", "link", "code", "listing", "tags", "mathml", "latex"]
NO_TEXT: frozenset[Kind] = frozenset({"tags", "mathml"})  # but markup, or drawn
NOT_READ: frozenset[Kind] = frozenset({"listing", "latex"})
_SLOT = "[\ue000-\uf7ff]"
_PARTS = re.compile(  # of words: a name, a formula with what a line may not part from it, a slot
    rf"({HYPHENED.pattern}|\(?[\uf000-\uf7ff][\ue000-\uefff]?[.,;:)]*|[\ue000-\uefff])"
)
_LONG = re.compile(r"[\w.=()]{21,}")  # more letters than a line of a phone holds beside its label
_JOINT = re.compile(r"(?<=\w[.=])(?=[^\W\d])|(?<=\w\()|(?<=[a-z])(?=[A-Z][a-z])")
_GROUP = re.compile(r"\([^()<> ]+ [^()<>]{,18}\)")  # a bracket of a formula
_KEEP, _KEPT = '<span class="pb-keep">', "</span>"
SHORT = 26  # letters of a span that a line holds with words beside it
LINE = 32  # letters of a name that a line of a phone holds
WHOLE = 20  # letters of a part of a name that stays whole
ALIGNED = {"right": "pb-number"}  # cells of tables, by class
LISTING = '<pre><code class="pb-lines" tabindex="0">{}</code></pre>'  # which a keyboard scrolls
MARKUP = {"formula", "footnote", "admonition"}


class Span(NamedTuple):
    """HTML of one kind, or an expression where such HTML is to stand."""

    html: str
    kind: Kind
    is_expression: bool = False


class Text(Markup):
    """HTML of an author's text, and what is in it.

    HTML that is no author's, such as what methods of strings make of a text, is one span.
    """

    markup: frozenset[str] = frozenset()
    """those of `MARKUP` that it holds, where it was rendered."""

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Its parts, each of one kind."""
        return (Span(str(self), "code"),)

    @classmethod
    def of(cls, spans: Iterable[Span], markup: frozenset[str] = frozenset()) -> Self:
        """The text that consists of these spans."""
        spans = tuple(spans)
        text = cls("".join(span.html for span in spans))
        text.spans, text.markup = spans, markup
        return text

    def __add__(self, other: object, /) -> Self:
        more = other if isinstance(other, Text) else Text(escape(other))
        return self.of([*self.spans, *more.spans], self.markup | more.markup)

    @property
    def read(self) -> str:
        """What of its HTML a reader reads: no listings, and of a formula its signs."""
        return "".join(html for html, kind, _ in self.spans if kind not in NOT_READ)

    @property
    def num_words(self) -> int:
        """The words that a reader reads."""
        parts = (part.partition(">")[2] for part in f">{self.read.replace('<wbr>', '')}".split("<"))
        words = [word for part in parts for word in part.split()]  # a comma behind a link is none
        return sum(any(map(str.isalnum, word)) or "_" in word for word in words)

    @property
    def plain(self) -> str:
        """The text without markup; a formula is its LaTeX."""
        return "".join(
            "\n" * html.count("\n") if kind in NO_TEXT else _without_tags(html)
            for html, kind, _ in self.spans
        )


def render(
    text: str, fill: Fill, linked: Fill, *, inline: bool, note: str = "", table: str = ""
) -> Text:
    """`Text` of an author's Markdown, or of one line of it (`inline`).

    `fill` gives the HTML of an expression, and `linked` that of one in the words of a link. `note`
    tells the footnotes of this text from others of its page, and `table` names its tables.
    """
    note = note if "[^" in text else ""
    spans, markup = _rendered(text, inline=inline, note=note, table=table)
    return Text.of(_filled(spans, fill, linked), markup)


def bare(text: str, fill: Fill, *, inline: bool) -> Text:
    """An author's text as any program shows it: no links, no attributes, formulas as LaTeX."""
    tokens, slots, env = _parsed(text, inline=inline)
    html = RendererHTML().render([*_bare(tokens)], MARKDOWN.options, env).strip()
    spans = list[Span]()
    for part in re.split(f"({_SLOT})", html):
        if isinstance(formula := slots.get(part), prose.Formula):
            begins, ends = (r"\[", r"\]") if formula.is_block else (r"\(", r"\)")
            latex = _parts(str(escape(formula.latex.strip())), "latex", slots)
            spans += [Span(begins, "code"), *latex, Span(ends, "code")]
        else:
            spans += _parts(part, "code", slots)
    return Text.of(_filled(spans, fill, fill))


def num_links(text: str) -> int:
    """How many links an author's text has."""
    children = (child for token in _parsed(text, inline=False)[0] for child in token.children or ())
    return sum(child.type == "link_open" for child in children)


def put_into(text: str, fill: Fill, linked: Fill, escaped: Fill) -> str:
    """Markdown `text`, its expressions and formulas as HTML, `escaped` lest Markdown reads it.

    `fill` and `linked` are those of `render`; `escaped` is of some HTML, in which nothing is
    Markdown.
    """
    slotted, slots = prose.slotted(text)

    def put(part: re.Match[str]) -> str:
        if HYPHENED.fullmatch(part[0]):
            return part[0]
        filled = escaped(Text.of(_filled(_words(part[0], "code", slots), fill, linked)))
        is_expression = isinstance(slots.get(part[0]), str)
        return filled if is_expression else f'<span class="pb-formula">{filled}</span>'

    return _PARTS.sub(put, slotted)


def _filled(spans: Iterable[Span], fill: Fill, linked: Fill) -> Iterator[Span]:
    for span in spans:
        kind = span.kind
        if not span.is_expression:
            yield span
            continue
        printed = (fill if kind in ("words", "code", "listing") else linked)(span.html)
        if kind in ("tags", "mathml"):
            yield Span(str(escape(plain(printed))), kind)
        elif kind == "latex":
            yield Span(str(escape(formulas.as_latex(plain(printed)))), kind)
        else:
            inner = printed if isinstance(printed, Text) else Text(printed)
            is_kept = kind == "words"
            for part in inner.spans:
                yield part if is_kept or part.kind in NO_TEXT else Span(part.html, kind)


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


def whole_words(html: str) -> Markup:
    """HTML of code in which no line ends at a hyphen or before a backslash that continues it."""
    begins, *tags = str(escape(html)).split("<")
    parts = (part.partition(">") for part in tags)
    return Markup(_kept(begins) + "".join(f"<{tag}>{_kept(text)}" for tag, _, text in parts))


def _kept(text: str) -> str:
    """Text of code with its words of hyphens, and the last words of commands that go on, whole."""
    text = text.replace(" \\\n", "\0\\\n").replace("\n", " \n ")
    words = (
        f"{_KEEP}{word}{_KEPT}"
        if 1 < len(word) <= WHOLE and not {"-", "\0"}.isdisjoint(word)
        else word
        for word in text.split(" ")
    )
    return " ".join(words).replace(" \n ", "\n").replace("\0", " ")


def in_lines(html: str) -> Markup:
    """HTML of code, each line an element: what does not fit into the page goes on indented."""
    return Markup("").join(map(Markup("<span>{}\n</span>").format, whole_words(html).splitlines()))


def _without_tags(html: str) -> str:
    if "<" in html:
        html = "".join(part.partition(">")[2] for part in f">{html}".split("<"))
    return unescape(html)


# --- what Markdown makes of a text

_RENDERER: Any = MARKDOWN.renderer
_AROUND = {  # what stands there in other pages
    "footnote_block_open": '<div class="footnote"><ol>',
    "footnote_block_close": "</ol></div>",
    "table_open": '<div class="pb-scroll" tabindex="0" role="group" aria-label="{table}">'
    '<table class="pb-table">',
    "table_close": "</table></div>",
}


@lru_cache(maxsize=65536)
def _rendered(
    text: str, *, inline: bool, note: str, table: str
) -> tuple[tuple[Span, ...], frozenset[str]]:
    tokens, slots, env = _parsed(text, inline=inline)
    env |= {"docId": note, "table": table}
    spans = [*_joined(_spans(tokens, slots, env))]
    if not inline and spans:
        spans[-1] = spans[-1]._replace(html=spans[-1].html.rstrip())
    kinds = [token.type.partition("_")[0] for token in tokens]
    kinds += ["formula" for expressed in slots.values() if isinstance(expressed, prose.Formula)]
    return tuple(spans), frozenset(MARKUP.intersection(kinds))


def _parsed(text: str, *, inline: bool) -> tuple[list[Token], Slots, dict[str, Any]]:
    """What Markdown reads in a text; its slots; and what else renders it."""
    slotted, slots = prose.slotted(" ".join(text.split()) if inline else text)
    env = dict[str, Any]()
    tokens = MARKDOWN.parseInline(slotted, env) if inline else MARKDOWN.parse(slotted, env)
    for at, token in enumerate(tokens):
        token.attrs.pop("start", None)
        if token.type in ("th_open", "td_open"):
            _as_cell(tokens[at - 1 : at + 3])
    return tokens, slots, env


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


def _spans(tokens: Sequence[Token], slots: Slots, env: dict[str, Any]) -> Iterator[Span]:
    kind: Kind = "words"
    for at, token in enumerate(tokens):
        how = tokens, at, MARKDOWN.options, env
        match token.type:
            case "inline":
                yield from _spans(token.children or [], slots, env)
            case "text" | "softbreak":
                words = "\n" if token.type == "softbreak" else escapeHtml(token.content)
                yield from _words(words, kind, slots)
            case "code_inline":
                yield from _parts(_code(token), "link" if kind == "link" else "code", slots)
            case "fence" | "code_block":
                html = LISTING.format(in_lines(Markup(escapeHtml(token.content))))
                yield from _parts(html, "listing", slots)
                yield Span("\n", "tags")
            case "footnote_ref":
                yield from _reference(*how)
            case other:
                if other.startswith("link_"):
                    kind = "link" if token.nesting > 0 else "words"
                html = _AROUND[other].format(**env) if other in _AROUND else _tag(*how)
                yield from _parts(html, "tags", slots)


def _tag(tokens: Sequence[Token], at: int, *how: Any) -> str:
    rule = _RENDERER.rules.get(tokens[at].type, _RENDERER.renderToken)
    return str(rule(tokens, at, *how))


def _reference(tokens: Sequence[Token], at: int, *how: Any) -> tuple[Span, ...]:
    name, number = (_RENDERER.rules[f"footnote_{part}"](tokens, at, *how)
                    for part in ("anchor_name", "caption"))  # fmt: skip
    again = f":{subid}" if (subid := tokens[at].meta.get("subId", -1)) > 0 else ""
    begins = f'<sup class="footnote-ref pb-label" id="fnref{name}{again}"><a href="#fn{name}">'
    return Span(begins, "tags"), Span(number, "link"), Span("</a></sup>", "tags")


def _parts(html: str, kind: Kind, slots: Slots) -> Iterator[Span]:
    """HTML and the expressions in it; of a formula, which is in an attribute, the LaTeX."""
    for part in re.split(f"({_SLOT})", html) if slots else [html]:
        match slots.get(part):
            case str() as expression:
                yield Span(expression, kind, is_expression=True)
            case prose.Formula() as formula:
                yield from _parts(str(escape(formula.latex)), kind, slots)
            case None:
                yield Span(part, kind)


def _words(html: str, kind: Kind, slots: Slots) -> Iterator[Span]:
    """Words with the expressions and formulas among them; a name as ZeRO-1 breaks at no hyphen."""
    for part in _PARTS.split(html):
        slot = part.strip("(.,;:)")[:1]
        match slots.get(slot):
            case prose.Formula() as formula:
                yield from _drawn(formula, part.partition(slot), kind, slots)
            case str() as expression:
                yield Span(expression, kind, is_expression=True)
            case None if HYPHENED.fullmatch(part):
                yield from (Span(_KEEP, "tags"), Span(part, kind), Span(_KEPT, "tags"))
            case None:
                yield Span(part, kind)


def _drawn(
    formula: prose.Formula, touching: tuple[str, str, str], kind: Kind, slots: Slots
) -> Iterator[Span]:
    """A formula, which carries its LaTeX, among words of some kind, with the signs that touch it.

    No screen reader finds a link in a formula, so what its values are read from follows it. A
    browser may end a line on either side of a formula, also where a bracket or a point touches it.
    """
    before, _, after = touching
    latex, is_block = formula
    mathml = formulas.mathml(latex.strip(), is_block=is_block)
    drawing, annotation, written = mathml.partition("<annotation")
    values = dict.fromkeys(formulas.values(latex)) if kind != "link" else {}
    is_kept = before + after and not values and not is_block
    yield from [Span(_KEEP, "tags")] if is_kept else []
    yield Span(before, kind)
    yield from _parts(drawing, "mathml", slots)
    yield from _parts(annotation + written, "latex", slots)
    if values:
        behind = f' <small class="pb-inputs">({", ".join(values)})</small>'
        yield from _parts(behind, "code", slots)
    yield from _words(after, kind, slots)
    yield from [Span(_KEPT, "tags")] if is_kept else []


def _code(token: Token) -> str:
    """A code span: a short one breaks nowhere, and of a long one its names where parts meet."""
    is_kept = len(token.content) <= SHORT and any(end in token.content for end in " /-")
    code = _GROUP.sub(rf"{_KEEP}\g<0>{_KEPT}", escapeHtml(token.content))
    css = ' class="pb-keep"' * is_kept
    code = _LONG.sub(_name, code)
    return f"<code{css}>{code if is_kept else whole_words(Markup(code))}</code>"


def _name(match: re.Match[str]) -> str:
    """A long name, which moves to the next line whole where each line holds it."""
    html = parted(_JOINT.split(match[0]), WHOLE)
    return f'<span class="pb-name">{html}</span>' if len(match[0]) <= LINE else html


def _joined(spans: Iterable[Span]) -> Iterator[Span]:
    """Spans, of which those of one kind that follow one another are one."""
    for (kind, is_expression), group in groupby(spans, lambda span: span[1:]):
        if is_expression:
            yield from group
        else:
            yield Span("".join(span.html for span in group), kind)

"""What Material's search indexes: which parts of a page, and which other words find them.

Flow: the HTML of a page in, the part of it that the search may show out; then the entries that
Material made of it in, with the synonyms of `content/glossary.yml` out. Material's own search does
the rest in the browser, over http and from disk alike. How pages rank among each other stands in
`generator/pages/search_rank.py`, how fields weigh and which words are ignored in `mkdocs.yml`.

Material's search has no synonyms of its own. It searches every field that `mkdocs.yml` gives it,
and shows only title and text; so synonyms are fields of the index beside those two.
`assets/search-results.js` puts what it finds in order once more, and knows leads and places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from html import unescape
from typing import Any, NamedTuple

# Parts of a page that are no text of a lesson: of a question, controls, code, evidence in rows.
_CLASSES = (
    "option", "pieces", "end", "typed", "actions", "sure", "status", "waits", "listing",
    "listing-title", "printed", "suggestions", "claim", "apart", "largest", "sources", "meta",
    "eyebrow", "level", "step-controls", "controls", "fields",
)  # fmt: skip
# Drawings, tables, code, and what a template marks. Material's search honours that mark only until
# an element of the same name ends inside the block; here it holds for all of it.
_UNREAD = re.compile(r"<(?:(svg|table|pre)\b|(\w+)\b[^<>]*\sdata-search-exclude\b)")
# Those classes, what waits for an answer, what is folded, and buttons that are not values.
_KEPT_BACK = re.compile(
    r"<(?:(details|svg|table|select|noscript|pre)\b"
    r'|(button)\b(?![^<>]*\bclass="pb-value\b)'
    r"|(\w+)\b[^<>]*\sdata-(?:search-exclude|after)\b"
    rf'|(\w+)\b[^<>]*\sclass="(?:[^"]*\s)?pb-(?:{"|".join(_CLASSES)})[\s"])'
)
_WAITS = re.compile(r'<(?:details\b|\w+\b[^<>]*\s(?:data-after\b|class="[^"]*pb-option\b))')
_INLINE = re.compile(r"</?(?:a|abbr|b|button|em|i|small|span|strong|wbr)\b[^<>]*>")
_BETWEEN = re.compile(r"((?<=[.?!])\s+|(?<=[.?!]</code>)\s+|<(?!/?(?:code|sub|sup)\b)[^<>]+>)")
LONG = 25  # letters of a sentence that says something; shorter ones, such as “Neither.”, stay
# Material drops these tags and joins the text before them to the text after them.
_BLOCK = re.compile(
    r"</?(?:blockquote|d[dlt]|div|fieldset|fig(?:caption|ure)|label|legend|output|section)\b[^<>]*>"
)
_END = "\ue000"  # stands where such a block begins or ends, until the entries are made
_EMPTY = re.compile(r"<(p|li)>[\s…]*</\1>")
_GAP = re.compile(r"…(?:\s*…)+")
_SPACES = re.compile(" {2,}")
_PIECE = re.compile(rf"(</?(?:p|ul|ol|li|pre)>|{_END})")
# A place that a link leads to without being a heading: a retracted sentence, a term, a figure that
# readers play with.
_SENTENCE = re.compile(
    r'<section class="pb-retraction[^<>]*>\s*'
    r'<h3 class="pb-sentence" id="([^"]+)">(.*?)</h3>.*?</section>',
    re.DOTALL,
)
_FIGURE = re.compile(
    r'<figure class="pb-figure pb-play\b[^<>]*\sid="([^"]+)"[^<>]*>\s*'
    r'<figcaption class="pb-figure-title">(.*?)</figcaption>',
    re.DOTALL,
)
_NUMBER = re.compile(r'(<h[1-6][^<>]*>)\s*<span class="pb-label">\d+</span>\s*')
_TERM = re.compile(r'<dt id="([^"]+)">(.*?)</dt>', re.DOTALL)
_MACHINE = re.compile(r"machines/(?!index\.html)([^#]+)\.html")
_TAG = re.compile(r"<[^>]+>")
_WORDS = re.compile(r"[\W_]+")


class Part(NamedTuple):
    """The part of a page that the search may find and show, and the sentences that wait."""

    html: str
    waiting: frozenset[str]


def part_of(html: str) -> Part:
    """Divide a page.

    Retracted sentences, terms and titles of figures that readers play with become headings here,
    so that each is an entry of its own. Such a title names quantities and answers nothing, so it
    stays where its figure waits for an answer. Headings lose their numbers, and what precedes the
    first heading stays out, so that the page's own entry holds its introduction.

    Args:
        html: the page's content.
    """
    read, unread = _divided(html[max(html.find("<h1"), 0) :], _UNREAD)
    text = _SENTENCE.sub(r'<h3 id="\1">\2</h3>', read)
    text = _NUMBER.sub(r"\1", text)
    text = _TERM.sub(r'<h3 id="\1">\2</h3>', text)
    shown, kept_back = _divided(text, _KEPT_BACK, _titles_of_figures)
    waiting = (one for one in (*kept_back, *unread) if _WAITS.match(one))
    sentences = (plain for one in waiting for _, plain in _sentences(one))
    kept = frozenset(one for one in sentences if len(one) >= LONG)
    shown = _FIGURE.sub(r'<figure><h3 id="\1">\2</h3>', shown)
    return Part(_BLOCK.sub(rf"\g<0>{_END}", shown), kept)


def _divided(
    html: str, begins: re.Pattern[str], instead: Callable[[str], str] = lambda _: ""
) -> tuple[str, list[str]]:
    """A page without some of its elements, and those elements.

    Args:
        html: the page, or what is left of it.
        begins: how their opening tags begin; one of its groups is the element's name.
        instead: what stands in the place of one.
    """
    left, taken, done = [], list[str](), 0
    while opening := begins.search(html, done):
        end = _closed(html, opening.start(), next(filter(None, opening.groups())))
        taken.append(html[opening.start() : end])
        left += [html[done : opening.start()], instead(taken[-1])]
        done = end
    return "".join([*left, html[done:]]), taken


def _closed(html: str, begin: int, name: str) -> int:
    """Where the element that begins here ends."""
    depth = 0
    for tag in _tags(name).finditer(html, begin):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return html.index(">", tag.end()) + 1
    raise ValueError(f"<{name}> is never closed: {html[begin : begin + 80]!r}")


@cache
def _tags(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){name}\b")


def _titles_of_figures(html: str) -> str:
    """The titles of the figures of a block that is left out."""
    found = _FIGURE.finditer(html)
    return "".join(f'<section><h3 id="{one[1]}">{one[2]}</h3></section>' for one in found)


def make_paragraphs(entries: Iterable[dict[str, Any]]) -> None:
    """Put text of every entry that stands in no paragraph and no list into paragraphs.

    A result shows whole paragraphs and lists. Of text outside them it shows what stands between the
    first and the last word that the search knows, up to the next piece of code.
    """
    for entry in entries:
        entry["text"] = _in_paragraphs(entry["text"])


def _in_paragraphs(html: str) -> str:
    pieces = _PIECE.split(html)
    made, depth = "", 0
    for text, mark in zip(pieces[::2], [*pieces[1::2], _END], strict=True):
        made += f"<p>{text.strip()}</p>" if text.strip() and not depth else text
        made += " " if mark == _END else mark
        if mark != _END:
            depth += -1 if mark.startswith("</") else 1
    return _SPACES.sub(" ", _EMPTY.sub("", made)).strip()


def take_out(entries: Iterable[dict[str, Any]], waiting: Set[str]) -> None:
    """Take out of every entry the sentences that wait for an answer on any page.

    An ellipsis stands where a sentence is missing between others.
    """
    for entry in entries:
        parts = _sentences(entry["text"])
        text = "".join("…" if plain in waiting else part for part, plain in parts)
        entry["text"] = _EMPTY.sub("", _GAP.sub("…", text))


def _sentences(html: str) -> Iterator[tuple[str, str]]:
    """The sentences and the tags between them, as they stand; the long ones as plain text too."""
    for part in _BETWEEN.split(_INLINE.sub("", html)):
        yield part, " ".join(unescape(_TAG.sub("", part)).split()) if len(part) >= LONG else ""


def add_words(entries: Sequence[dict[str, Any]], groups: Sequence[Sequence[str]]) -> None:
    """Give each entry of the index other words by which it is found, and which nobody sees.

    Args:
        entries: of Material's index. Each gets `title_synonyms` and `text_synonyms`, the other
            words for what its title and its text say, and in a lesson `above`, the titles of its
            page and its topic.
        groups: words and phrases that mean the same.
    """
    known = _Groups(groups)
    titles = {entry["location"]: entry["title"] for entry in entries}
    for entry in entries:
        above = " ".join(_above(entry["location"], titles))
        if above:
            entry["above"] = " ".join([above, *known.others(above)])
        for name in ("title", "text"):
            plain = unescape(_TAG.sub(" ", entry[name]))
            found = dict.fromkeys(known.others(plain))
            entry.pop(f"{name}_synonyms", None)
            if found:
                entry[f"{name}_synonyms"] = " ".join(found)


def add_leads(
    entries: Iterable[dict[str, Any]], leads: Mapping[str, Iterable[str]], field: str = "leads"
) -> Iterator[str]:
    """Give entries the words that lead to them; the addresses that no entry has come back.

    Args:
        entries: of Material's index.
        leads: by address, the words that lead there.
        field: `leads` for words that lead there among others, `alone` for whole searches.
    """
    by_place = {entry["location"]: entry for entry in entries}
    for location, searches in leads.items():
        if location in by_place:
            by_place[location][field] = list(searches)
        else:
            yield location


def add_machines(entries: Iterable[dict[str, Any]]) -> None:
    """Let the id of a machine lead to its page, and the part of the id that names the hardware."""
    for entry in entries:
        found = _MACHINE.fullmatch(entry["location"])
        if found:
            entry["leads"] = list(dict.fromkeys((found[1], found[1].partition("/")[0])))


def add_places(
    entries: Sequence[dict[str, Any]],
    sections: Mapping[str, str],
    modes: Mapping[str, str],
    of_statement: str,
    of_figure: str,
) -> None:
    """Give the entry of each page what its title does not say: a lesson's topic and kind.

    A title that is a sentence of others, quoted or on the page of statements, would read among
    results as an answer of the book. A figure is found by what it is called, too.

    Args:
        entries: of Material's index.
        sections: what the navigation calls a page, by its address.
        modes: what readers call each kind of lesson.
        of_statement: what such a sentence is called.
        of_figure: what a figure is called that readers play with.
    """
    titles = {entry["location"]: entry["title"] for entry in entries}
    for entry in entries:
        folder, _, page = entry["location"].rpartition("/")
        topic = titles.get(f"{folder}/index.html") if folder.startswith("topics/") else None
        mode = modes.get(page.removesuffix(".html"))
        if topic and mode:
            entry["place"] = f"{topic} · {mode}"
        elif _is_of_others(entry):
            entry["place"] = of_statement
        elif "#figure-" in entry["location"]:
            entry["place"] = of_figure
            entry["above"] = f"{entry.get('above', '')} {of_figure}".strip()
        elif sections.get(entry["location"], entry["title"]) != entry["title"]:
            entry["place"] = sections[entry["location"]]


def _is_of_others(entry: Mapping[str, str]) -> bool:
    """Whether the title of a section is a sentence that the book only tests."""
    if entry["location"].startswith("retracted.html#"):
        return entry["title"].endswith(".")  # other headings of that page are no sentences
    return "#" in entry["location"] and entry["title"].startswith("\N{LEFT DOUBLE QUOTATION MARK}")


def _above(location: str, titles: Mapping[str, str]) -> Iterator[str]:
    """The titles of the page and of the topic that an entry belongs to."""
    page, _, anchor = location.partition("#")
    topic = f"{page.rpartition('/')[0]}/index.html"
    if not page.startswith("topics/") or page == topic:
        return
    if anchor:
        yield titles.get(page, "")
    yield titles.get(topic, "")


class _Form(NamedTuple):
    """A word or a phrase; a text without its first word, alone or in the plural, lacks it."""

    text: str
    first: frozenset[str]
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> _Form:
        first = next(filter(None, _WORDS.split(text.lower())))
        return cls(text, frozenset({first, f"{first}s"}), _pattern(text.lower()))


class _Groups:
    """Groups of forms that mean the same, found by a word that a text has."""

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self._groups = [[_Form.of(form) for form in group] for group in groups]
        self._with: dict[str, set[int]] = {}
        for place, group in enumerate(self._groups):
            for word in (word for one in group for word in one.first):
                self._with.setdefault(word, set()).add(place)

    def others(self, text: str) -> Iterator[str]:
        """The words that mean the same as those of a text, but do not stand in it."""
        text = text.lower()
        words = set(_WORDS.split(text))
        for place in sorted({place for word in words for place in self._with.get(word, ())}):
            group = self._groups[place]
            said = [one for one in group if words & one.first and one.pattern.search(text)]
            if said:
                yield from (one.text for one in group if one not in said)


@lru_cache(maxsize=4096)
def _pattern(form: str) -> re.Pattern[str]:
    """A phrase of small letters as whole words, however its words are joined."""
    said = "[ _-]".join(re.escape(word) for word in re.split(r"[\s_-]+", form))
    return re.compile(rf"{said}(?<!\w{said})s?(?!\w)")  # begins with letters, which `re` finds fast

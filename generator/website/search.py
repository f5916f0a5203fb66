"""What Material's search indexes: which parts of a page, and which other words find them.

Flow: the HTML of a page in, the part of it that the search may show out; then the entries that
Material made of it in, with the synonyms of `content/glossary.yml` out. Material's own search does
the rest in the browser, over http and from disk alike. How pages rank among each other stands in
`generator/pages/views/frame.py`, how fields weigh and which words are ignored in `mkdocs.yml`.

Material's search has no synonyms of its own. It searches every field that `mkdocs.yml` gives it,
and shows only title and text; so synonyms are fields of the index beside those two.
`assets/search-results.js` cuts endings off what is typed, puts what is found in order once more,
and knows leads, places and the terms of the glossary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape, unescape
from typing import Any, NamedTuple

Entry = dict[str, Any]
Words = Mapping[str, Any]  # of the interface

# Drawings, tables, code, and what a reader opens, chooses or presses.
_UNREAD = frozenset({"details", "svg", "table", "select", "noscript", "pre", "button", "script"})
# Parts of a page that are no text of a lesson: of a question, controls, code, evidence in rows.
_PARTS = frozenset(
    f"pb-{name}"
    for name in (
        "option", "pieces", "end", "typed", "actions", "sure", "status", "waits", "listing",
        "listing-title", "printed", "suggestions", "claim", "largest", "sources", "meta",
        "eyebrow", "level", "controls", "fields", "retraction",
    )
)  # fmt: skip
_KEEPS_OUT = frozenset({"data-search-exclude", "data-after"})  # marked so, or waits for an answer
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BLOCKS = _HEADINGS | {"p", "li"}  # what holds text
_WRITTEN = _BLOCKS | {"ul", "ol", "code", "sub", "sup"}
_INLINE = frozenset({"a", "abbr", "b", "button", "em", "i", "small", "span", "strong"})
_VOID = frozenset({"br", "img", "input", "hr", "wbr", "source"})
_MACHINE = re.compile(r"machines/(?!index\.html)([^#]+)\.html")
_TAG = re.compile(r"<[^>]+>")
# What is never read and holds none of its kind.
_SKIPPED = re.compile(r"<(svg|table|select|pre|script)\b.*?</\1>", re.DOTALL)
_TOKEN = re.compile(r"<(/?)(\w+)([^>]*)>|([^<]+)")  # templates escape > in attributes
_ATTRIBUTE = re.compile(r'([\w-]+)(?:="([^"]*)")?')


class _Element(NamedTuple):
    """An open element: its name, what is written at its end, and whether its text is."""

    name: str
    end: str
    is_kept: bool
    is_block: bool


class _Excerpt:
    """Writes the headings, paragraphs, lists and code of a page that the search may show.

    Text outside of them gets paragraphs: a result shows whole paragraphs and lists, and of other
    text only what stands between the words that the search knows.
    """

    def __init__(self, *, is_begun: bool) -> None:
        self.parts: list[str] = []
        self._open: list[_Element] = []
        self._is_begun = is_begun
        self._is_loose = False  # a paragraph is open that the page does not have
        self._figure = ""  # the id of the figure whose title comes next

    def read(self, html: str) -> None:
        """Read a page: its tags and the text between them."""
        for end, tag, attributes, text in _TOKEN.findall(_SKIPPED.sub(r"<\1></\1>", html)):
            if text:
                self._text(unescape(text))
            elif end:
                self._end(tag)
            else:
                self._begin(tag, dict(_ATTRIBUTE.findall(attributes)))

    def _begin(self, tag: str, given: Mapping[str, str]) -> None:
        self._is_begun = self._is_begun or tag == "h1"
        if tag in _VOID or not self._is_begun:
            return
        classes = given.get("class", "").split()
        above = self._open[-1] if self._open else _Element("", "", is_kept=True, is_block=False)
        is_kept = above.is_kept and not _is_kept_out(tag, given, classes)
        name, anchor, is_kept = self._named(tag, given, above, is_kept=is_kept)
        begin = end = ""
        if tag not in _INLINE:
            self._end_loose(tag)
        if tag == "figure" and self._figure:
            begin, end = "<figure>", "</figure>"
        elif is_kept and name in _WRITTEN:
            begin = f'<{name} id="{anchor}">' if name in _HEADINGS and anchor else f"<{name}>"
            end = f"</{name}>"
        self.parts.append(begin)
        self._open.append(_Element(tag, end, is_kept, above.is_block or name in _BLOCKS))

    def _named(
        self, tag: str, given: Mapping[str, str], above: _Element, *, is_kept: bool
    ) -> tuple[str, str, bool]:
        """The name and the id under which an element is written, and whether its text is."""
        classes = given.get("class", "").split()
        anchor = given.get("id", "")
        if tag == "figure" and "pb-play" in classes:
            self._figure = anchor
        elif tag == "figcaption" and self._figure:
            anchor, self._figure = self._figure, ""
            return "h3", anchor, True
        elif tag == "dt" and anchor:
            return "h3", anchor, is_kept
        elif "pb-label" in classes and self.parts[-1].startswith("<h"):
            return tag, anchor, False  # the number of a section
        return tag, anchor, is_kept or ("pb-sentence" in classes and above.name == "section")

    def _end(self, tag: str) -> None:
        while any(one.name == tag for one in self._open):
            closed = self._open.pop()
            if tag not in _INLINE:
                self._end_loose(tag)
            self.parts.append(closed.end)
            if closed.name == tag:
                return

    def _text(self, data: str) -> None:
        if not self._open or not self._open[-1].is_kept:
            return
        if data.strip() and not (self._open[-1].is_block or self._is_loose):
            self.parts.append("<p>")
            self._is_loose = True
        self.parts.append(escape(data, quote=False))

    def _end_loose(self, tag: str) -> None:
        if self._is_loose and tag not in ("code", "sub", "sup"):
            self.parts.append("</p>")
            self._is_loose = False


def _is_kept_out(tag: str, given: Mapping[str, str], classes: Sequence[str]) -> bool:
    is_read = (tag == "button" and "pb-value" in classes) or "pb-stage" in classes
    return bool(
        (tag in _UNREAD and not is_read) or _KEEPS_OUT & given.keys() or _PARTS & set(classes)
    )


def part_of(html: str) -> str:
    """The part of a page that the search may find and show.

    Retracted sentences, terms and titles of figures that readers play with become headings here,
    so that each is an entry of its own. Such a title names quantities and answers nothing, so it
    stays where its figure waits for an answer. Headings lose their numbers, and what precedes the
    first heading stays out, so that the page's own entry holds its introduction.

    Args:
        html: the page's content.
    """
    excerpt = _Excerpt(is_begun="<h1" not in html)
    excerpt.read(html)
    return " ".join("".join(excerpt.parts).split())


def add_words(entries: Sequence[Entry], groups: Iterable[Sequence[str]]) -> None:
    """Give each entry of the index other words by which it is found, and which nobody sees.

    Args:
        entries: of Material's index. Each gets `title_synonyms` and `text_synonyms`, the other
            words for what its title and its text say, and in a lesson `above`, the titles of its
            page and its topic.
        groups: words and phrases that mean the same.
    """
    known = [[_Form.of(form) for form in group] for group in groups]
    titles = {entry["location"]: entry["title"] for entry in entries}
    for entry in entries:
        above = " ".join(_above(entry["location"], titles))
        if above:
            entry["above"] = " ".join([above, *_others(above, known)])
        for name in ("title", "text"):
            plain = unescape(_TAG.sub(" ", entry[name]))
            found = dict.fromkeys(_others(plain, known))
            entry.pop(f"{name}_synonyms", None)
            if found:
                entry[f"{name}_synonyms"] = ", ".join(found)


class _Form(NamedTuple):
    """A word or a phrase; a text without its first word cannot hold it."""

    text: str
    first: str
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> _Form:
        words = re.split(r"[\s_-]+", text.lower())
        said = "[ _-]".join(map(re.escape, words))  # however its words are joined
        return cls(text, words[0], re.compile(rf"(?<!\w){said}s?(?!\w)"))


def _others(text: str, groups: Iterable[Sequence[_Form]]) -> Iterator[str]:
    """The words that mean the same as those of a text, but do not stand in it."""
    text = text.lower()
    for group in groups:
        said = [one for one in group if one.first in text and one.pattern.search(text)]
        if said:
            yield from (one.text for one in group if one not in said)


def _above(location: str, titles: Mapping[str, str]) -> Iterator[str]:
    """The titles of the page and of the topic that an entry belongs to."""
    page, _, anchor = location.partition("#")
    topic = f"{page.rpartition('/')[0]}/index.html"
    if page.startswith("topics/") and page != topic:
        yield from (titles.get(one, "") for one in ([page, topic] if anchor else [topic]))


def add_leads(
    entries: Iterable[Entry], leads: Mapping[str, Iterable[str]], field: str = "leads"
) -> Iterator[str]:
    """Give entries the words that lead to them; the addresses that no entry has come back.

    Args:
        entries: of Material's index.
        leads: by address, the words that lead there.
        field: `leads` for words that lead there among others, `alone` for whole searches, `names`
            for those of a term, which bring it among the first two.
    """
    by_place = {entry["location"]: entry for entry in entries}
    for location, searches in leads.items():
        if location in by_place:
            by_place[location][field] = list(searches)
        else:
            yield location


def add_places(entries: Sequence[Entry], sections: Mapping[str, str], words: Words) -> None:
    """Give the entry of each page what its title does not say: a lesson's topic and kind.

    A title that is a sentence of others, quoted or on the page of statements, would read among
    results as an answer of the book. A figure is found by what it is called, too, and a machine by
    its id and the part of the id that names the hardware.

    Args:
        entries: of Material's index.
        sections: what the navigation calls a page, by its address.
        words: of the interface.
    """
    titles = {entry["location"]: entry["title"] for entry in entries}
    for entry in entries:
        location, title = entry["location"], entry["title"]
        folder, _, page = location.rpartition("/")
        topic = titles.get(f"{folder}/index.html") if folder.startswith("topics/") else None
        mode = words["modes"].get(page.removesuffix(".html"))
        if machine := _MACHINE.fullmatch(location):
            entry["leads"] = list(dict.fromkeys((machine[1], machine[1].partition("/")[0])))
        if topic and mode:
            entry["place"] = f"{topic} · {mode}"
        elif _is_of_others(location, title):
            entry["place"] = words["search"]["statement"]
        elif "#figure-" in location:
            entry["place"] = words["search"]["figure"]
            entry["above"] = f"{entry.get('above', '')} {entry['place']}".strip()
        elif sections.get(location, title) != title:
            entry["place"] = sections[location]


def _is_of_others(location: str, title: str) -> bool:
    """Whether the title of a section is a sentence that the book only tests."""
    if location.startswith("retracted.html#"):
        return title.endswith(".")  # other headings of that page are no sentences
    return "#" in location and title.startswith("\N{LEFT DOUBLE QUOTATION MARK}")

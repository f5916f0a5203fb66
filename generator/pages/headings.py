"""The headings of one page: templates write them here, and lists and links are made from them.

A heading is HTML with the anchor that MkDocs would give it, and links to itself. From what was
written come the sidebar, the folded list that phones show instead of it, and the anchors that other
pages link to. Pages by hand have their headings in Markdown.
"""

import re
from typing import NamedTuple

from markdown import Markdown  # type: ignore[import-untyped]
from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]
from markupsafe import Markup, escape

_TAG = re.compile(r"<[^>]+>")
LEVEL, FEWEST = 2, 5  # of the headings in a list of contents


class Heading(NamedTuple):
    """A heading of a page, as lists, links and the search use it."""

    level: int
    words: Markup
    anchor: str
    text: str  # without the number before it, as authors name the section
    is_listed: bool = True  # otherwise lists leave it out, and the search takes it for text


class Headings:
    """The headings of one page, in the order in which its templates write them."""

    def __init__(self) -> None:
        """Start a page."""
        self.written: list[Heading] = []
        self.above = 1
        self._taken: set[str] = set()

    def heading(
        self, level: int, words: str, number: int | None = None, *, anchor: str = "",
        css: str = "", is_listed: bool = True,
    ) -> Markup:  # fmt: skip
        """Record a heading in `written`, and return it as HTML; below level 1, it links to itself.

        The words may be HTML. An `anchor` that is given stands in place of theirs, and such a
        heading is not recorded; lists leave out what `is_listed` denies.
        """
        content = words = escape(words)
        if number:
            content = Markup('<span class="pb-label">{}</span> {}').format(number, words)
        if not anchor:
            anchor = unique(slugify(content.striptags(), "-"), self._taken)
            new = Heading(
                level, Markup(_TAG.sub("", content)), anchor, words.striptags(), is_listed
            )
            self.written.insert(0 if level == 1 else len(self.written), new)
        self.above = level
        if level > 1 and "<a " not in content:  # links do not nest
            content = Markup('<a href="#{}">{}</a>').format(anchor, content)
        marked = Markup(' class="{}"').format(css) if css else ""
        return Markup('<h{0}{1} id="{2}">{3}</h{0}>').format(level, marked, anchor, content)

    def read(self, markdown: str) -> None:
        """Record in `written` the level-2 headings of a Markdown text, with MkDocs' anchors."""
        reader = Markdown(extensions=["attr_list", "md_in_html", "toc"])
        reader.convert(markdown)
        for token in (token for title in reader.toc_tokens for token in title["children"]):
            self.written.append(
                Heading(token["level"], Markup(token["name"]), token["id"], token["name"])
            )

    def contents(self) -> list[tuple[str, Markup]]:
        """Pairs of anchor and words, of headings of level 2, or 2 and 3 if few; [] if still few."""
        for deepest in (LEVEL, LEVEL + 1):
            parts = [
                heading
                for heading in self.written
                if LEVEL <= heading.level <= deepest and heading.is_listed
            ]
            if len(parts) >= FEWEST:
                return [(heading.anchor, heading.words) for heading in parts]
        return []

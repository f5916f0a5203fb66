"""The headings of a printed page, with the anchors that any Markdown builder gives them.

From them a page has its folded list of contents, which phones show instead of the sidebar. All else
of a page is HTML, so with its headings the whole page is.

MkDocs checks the anchors of Markdown links only. Links that the generator writes as HTML take their
anchors from here.
"""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]
from markupsafe import Markup

__all__ = ["anchors", "as_html", "contents", "headings", "slug", "unique"]
_CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
_HEADING = re.compile(r"\n(#{1,6}) (.+)")  # begins with a character, which `re` finds fast
_TAG = re.compile(r"<[^>]+>")
_NUMBER = re.compile(r"^\d+ ")
LEVEL, FEWEST = 2, 5  # of the headings in a list of contents


class Heading(NamedTuple):
    """A heading of a page: its level, its words without tags, its anchor."""

    level: int
    words: Markup
    anchor: str


def headings(page: str) -> Iterator[Heading]:
    """The headings of a page in Markdown, below its title."""
    return (heading for _, heading in _found(f"\n{page}") if heading.level > 1)


def as_html(page: str) -> str:
    """A page in Markdown as HTML."""
    page = f"\n{page}"
    parts, done = [], 1
    for found, heading in _found(page):
        tag = f"h{heading.level}"
        element = f'<{tag} id="{heading.anchor}">{found[2]}</{tag}>'
        parts += [page[done : found.start(1)], element]
        done = found.end()
    return "".join([*parts, page[done:]])


def _found(page: str) -> Iterator[tuple[re.Match[str], Heading]]:
    """Each heading below an end of line, where it stands; no line of code is one."""
    taken: set[str] = set()
    code = [one.span() for one in _CODE.finditer(page)]
    for found in _HEADING.finditer(page):
        if not any(begin < found.start() < end for begin, end in code):
            words = Markup(_TAG.sub("", found[2]))
            yield found, Heading(len(found[1]), words, unique(slug(_plain(words)), taken))


def anchors(page: str) -> dict[str, str]:
    """The anchor of each heading of a page in Markdown; a number before a heading is left out."""
    found: dict[str, str] = {}
    for one in headings(page):
        found.setdefault(_NUMBER.sub("", _plain(one.words)), one.anchor)
    return found


def contents(page: str) -> list[tuple[str, Markup]]:
    """The anchors and words of the headings that divide a page, where they are many."""
    found = [(one.anchor, one.words) for one in headings(page) if one.level == LEVEL]
    return found if len(found) >= FEWEST else []


def _plain(words: str) -> str:
    return " ".join(html.unescape(words).split())


def slug(text: str) -> str:
    """The anchor of a heading without tags, as MkDocs makes it."""
    return str(slugify(text, "-"))

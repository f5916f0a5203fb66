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
_HEADING = re.compile(r"(?s:<pre\b.*?</pre>)|^(#{1,6}) (.+)$", re.MULTILINE)
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
    return (heading for _, heading in _found(page) if heading.level > 1)


def as_html(page: str) -> str:
    """A page in Markdown as HTML."""
    parts, done = [], 0
    for found, heading in _found(page):
        tag = f"h{heading.level}"
        parts += [page[done : found.start()], f'<{tag} id="{heading.anchor}">{found[2]}</{tag}>']
        done = found.end()
    return "".join([*parts, page[done:]])


def _found(page: str) -> Iterator[tuple[re.Match[str], Heading]]:
    """Each heading where it stands; no line of code is one."""
    taken: set[str] = set()
    for found in _HEADING.finditer(page):
        if found[1]:
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

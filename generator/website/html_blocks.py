"""What neither Markdown nor the search need read of a page: it is HTML already.

Flow: a page's Markdown in, the same with a mark for each such block out; once the page is HTML, the
blocks stand in their places again. A build that does not parse them is that much shorter.

Two kinds of blocks are set aside. Markdown reads headings alone, so all between two headings waits
until the page is HTML. The search then reads that too, but no drawing, no table, no code, and
nothing that a template marks `data-search-exclude`. The theme's own search honours that mark only
until an element of the same name ends inside the block; here it holds for all of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_OPENING = re.compile(r"<(?:(svg|table|pre)\b|(\w+)\b[^<>]*\sdata-search-exclude\b)")
_HEADING = re.compile(r"(?<=\n\n)(#{1,6} [^\n]*)\n")
_ID = re.compile(r'id="(?<=\sid=")([^"]+)"')  # begins with letters, which `re` finds fast
_SKIP = re.compile(r'<a href="[^"]*" class="md-skip">')
_CODE = re.compile(r"<pre><code(?![^>]*\btabindex=)")
_TITLE = re.compile(r'<h1 id="([^"]+)"')
_MARK = re.compile(r"<!--pb-aside-(\d+)-->")  # no author can write one: their HTML is escaped


class Aside(NamedTuple):
    """A page without its blocks, and the blocks."""

    text: str
    blocks: tuple[str, ...]


def set_aside(markdown: str, begins: re.Pattern[str] = _OPENING) -> Aside:
    """Take the blocks out of a page, and leave a mark for each.

    Args:
        markdown: a page, as Markdown or HTML.
        begins: how a block's opening tag begins; one of its groups is the element's name.
    """
    blocks: list[str] = []
    text, done = "", 0
    opening = begins.search(markdown)
    while opening:
        name = next(filter(None, opening.groups()))
        end = _closed(markdown, opening.start(), name)
        text += f"{markdown[done : opening.start()]}<!--pb-aside-{len(blocks)}-->"
        blocks.append(markdown[opening.start() : end])
        done = end
        opening = begins.search(markdown, end)
    return Aside(text + markdown[done:], tuple(blocks))


def between_headings(markdown: str) -> Aside:
    """Leave nothing of a page but its headings, and a mark for what stands between two of them.

    Args:
        markdown: a page without code, in which a line may look like a heading.
    """
    parts = [part.strip() for part in _HEADING.split(f"\n\n{markdown}")]
    marked = (f"<!--pb-aside-{n}-->" if n % 2 == 0 else part for n, part in enumerate(parts))
    text = "\n\n".join(marked)
    return Aside(text, tuple(parts))


def without_marks(html: str) -> str:
    """A page without its blocks and without their marks."""
    return _MARK.sub("", html)


def put_back(html: str, blocks: tuple[str, ...]) -> str:
    """Put the blocks in the places of their marks."""
    return _MARK.sub(lambda mark: blocks[int(mark[1])], html)


def ids(html: str) -> set[str]:
    """The ids of a page's elements."""
    return set(_ID.findall(html))


@cache
def _tags(name: str) -> re.Pattern[str]:
    return re.compile(rf"<(/?){name}\b")


def _closed(html: str, begin: int, name: str) -> int:
    """Where the element that begins here ends."""
    depth = 0
    for tag in _tags(name).finditer(html, begin):
        depth += -1 if tag[1] else 1
        if depth == 0:
            return html.index(">", tag.end()) + 1
    raise ValueError(f"<{name}> is never closed: {html[begin : begin + 80]!r}")


def skipped_to_title(html: str) -> str:
    """A page whose skip link leads to its title; the theme's own leads past the first section."""
    title = _TITLE.search(html)
    return _SKIP.sub(f'<a href="#{title[1]}" class="md-skip">', html, count=1) if title else html


def code_within_reach(html: str) -> str:
    """A page whose code blocks all take the focus, so that a keyboard scrolls them."""
    return _CODE.sub('<pre><code tabindex="0"', html)

"""What neither Markdown nor the search need read of a page: drawings, tables, provenance.

Flow: a page's Markdown in, the same with a mark for each such block out; once the page is HTML, the
blocks stand in their places again. They are HTML already and make up half of a page, so a build
that does not parse them over and over is that much shorter.

A block is a drawing, a table, or whatever a template marks `data-search-exclude`. The theme's own
search honours that mark only until an element of the same name ends inside the block; here it holds
for all of it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_OPENING = re.compile(r"<(?:(svg|table)\b|(\w+)\b[^<>]*\sdata-search-exclude\b)")
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


def without_marks(html: str) -> str:
    """A page without its blocks and without their marks."""
    return _MARK.sub("", html)


def put_back(html: str, blocks: tuple[str, ...]) -> str:
    """Put the blocks in the places of their marks."""
    return _MARK.sub(lambda mark: blocks[int(mark[1])], html)


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

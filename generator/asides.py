"""What neither Markdown nor the search need read of a page: drawings, and where numbers come from.

Flow: a page's Markdown in, the same with a mark for each such block out; once the page is HTML, the
blocks stand in their places again. They are HTML already and make up half of a page, so a build
that does not parse them over and over is that much shorter.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_BLOCK = re.compile(
    r"<svg\b.*?</svg>|"
    r'^<div class="pb-provenances"[^\n]*\n.*?^</div>$',
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"<!--pb-aside-(\d+)-->")  # no author can write one: their HTML is escaped


class Aside(NamedTuple):
    """A page without its blocks, and the blocks."""

    text: str
    blocks: tuple[str, ...]


def set_aside(markdown: str) -> Aside:
    """Take the blocks out of a page, and leave a mark for each."""
    blocks: list[str] = []

    def take(found: re.Match[str]) -> str:
        blocks.append(found[0])
        return f"<!--pb-aside-{len(blocks) - 1}-->"

    return Aside(_BLOCK.sub(take, markdown), tuple(blocks))


def put_back(html: str, blocks: tuple[str, ...]) -> str:
    """Put the blocks in the places of their marks."""
    return _MARK.sub(lambda mark: blocks[int(mark[1])], html)

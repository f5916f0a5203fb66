"""What a page by hand may not hold beyond the rules of every text: MkDocs renders it, not we.

In: the Markdown of a page. Out: faults, for HTML, for attributes in braces, and for images that do
not lie beside the page. What slips through, a page's policy blocks (`website/csp.py`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MethodType

from markdown_it import MarkdownIt
from markdown_it.token import Token

from generator.content import prose
from generator.content.prose import Fault

NO_HTML = "HTML; write Markdown, or put a name in `code`"
NO_ATTRIBUTES = "attributes in braces; write Markdown without them"
FOREIGN_IMAGE = "an image from elsewhere; put it beside the page and name its file"
_ATTRIBUTES = re.compile(r"(?<!\{)\{(?!\{)(?::|[^{}\n]*=)[^{}\n]*\}")
_COMMENT = re.compile(r"<!--(?!pb-)(?:(?!-->).)*-->\s*", re.DOTALL)


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": True})

    def validate(_: object, url: str) -> bool:
        return bool(url)

    markdown.validateLink = MethodType(validate, markdown)  # type: ignore[method-assign]
    return markdown


_MARKDOWN = _markdown()


@lru_cache(maxsize=1024)
def faults(text: str) -> tuple[Fault, ...]:
    """The faults of a page's Markdown, by their places."""
    found = [Fault(one.start(), NO_ATTRIBUTES) for one in _ATTRIBUTES.finditer(prose.masked(text))]
    lines = text.splitlines(keepends=True)
    for block in _MARKDOWN.parse(text):
        begin = sum(map(len, lines[: block.map[0]])) if block.map else 0
        for token in (block, *(block.children or ())):
            fault = _fault(token, text, begin)
            if fault:
                found.append(fault)
    return tuple(sorted(found))


def _fault(token: Token, text: str, begin: int) -> Fault | None:
    if token.type in ("html_block", "html_inline") and not _COMMENT.fullmatch(token.content):
        return Fault(_place(text, token.content, begin), NO_HTML)
    if token.type == "image" and not _is_beside(str(token.attrGet("src") or "")):
        return Fault(_place(text, "![", begin), FOREIGN_IMAGE)
    return None


def _is_beside(source: str) -> bool:
    return prose.is_allowed_link(source) and not source.lower().startswith("https:")


def _place(text: str, written: str, begin: int) -> int:
    found = text.find(written[:20], begin)
    return begin if found < 0 else found

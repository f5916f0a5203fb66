"""Addresses of links and images as a browser gets them: those that a parser has read.

`MARKDOWN` parses the texts of a book, and makes no link of an address that it refuses; `mistakes`
names those in HTML that something else made.
"""

import re
from collections.abc import Collection, Iterator
from html import unescape
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from mdit_py_plugins.admon import admon_plugin
from mdit_py_plugins.footnote import footnote_plugin

from proofbook.generator.content.errors import ContentError, place_of

SCHEMES = ("https", "mailto")
ELSEWHERE = (*SCHEMES, "ftp", "http", "irc", "ircs", "sms", "ssh", "tel", "vscode", "xmpp")
INSTEAD = "links are relative, https or mailto"
_OF_A_PAGE = {"action", "data", "formaction", "from", "href", "poster", "src", "to", "values"}


def is_allowed(address: str, schemes: Collection[str] = SCHEMES) -> bool:
    """Whether an address is relative or has one of the schemes; no other may hold a colon."""
    scheme, colon, _ = re.split("[/?#]", address, maxsplit=1)[0].partition(":")
    return not colon or scheme.lower() in schemes


def begins(address: str, text: str) -> int:
    """Where an address stands in what somebody wrote, also as entities; -1 where it does not."""
    sought, reach = _signs(address), 8 * len(address)
    starts = (at for at in range(len(text)) if not text[at].isspace())
    return next((at for at in starts if _signs(text[at : at + reach]).startswith(sought)), -1)


def _signs(written: str) -> str:
    return "".join(unescape(written.replace("\\", "")).split())


class _Markdown(MarkdownIt):
    """The parser of a book's texts, which keeps the addresses that it refused."""

    refused: list[str] = []

    def normalizeLink(self, url: str) -> str:  # noqa: N802
        """An address, written without entities and escapes, as it stands in HTML."""
        has_slot = re.search("[\ue000-\uf7ff]", url)  # an expression or a formula
        if is_allowed(url) and not url.startswith(("/", "\\")) and not has_slot:
            return super().normalizeLink(url)
        self.refused.append(url)
        return "javascript:"  # of which it makes no link


MARKDOWN = _Markdown("commonmark", {"html": False, "xhtmlOut": True})
MARKDOWN.enable("table").use(admon_plugin).use(footnote_plugin, inline=False)
MARKDOWN.disable(["html_block", "html_inline", "heading", "lheading", "hr"])


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = [value for name, value in attrs if name.rpartition(":")[2] in _OF_A_PAGE]
        inside = "data:image/" if tag in ("img", "image") else "\0"  # what is drawn runs nothing
        self.addresses += [value for value in values if value and not value.startswith(inside)]


def mistakes(
    html: str, file: str, written: str, schemes: Collection[str] = SCHEMES
) -> Iterator[ContentError]:
    """An error for each other address in HTML, at its place in what somebody wrote in a file."""
    page = _Page()
    page.feed(html)
    for address in (found for found in page.addresses if not is_allowed(found, schemes)):
        at = begins(address, written)
        place = place_of(written, at) if at >= 0 else (0, 0)
        yield ContentError(file, *place, f"link to {address!r}; {INSTEAD}")

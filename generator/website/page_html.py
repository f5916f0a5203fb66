"""The HTML of a page as it is written: the last look at one by hand, and idle space out of all.

In: the HTML of one page. Out: why it may not stand in the site, or None; or the same in fewer
bytes. `content/page_markup.py` refuses the same where an author wrote it; what Markdown's many
dialects read differently is found here.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

_REFUSED = frozenset(
    {"script", "iframe", "object", "embed", "style", "link", "meta", "base", "form"}
)
_LOADED = frozenset({"src", "srcset", "poster", "data", "background"})
_LED_TO = frozenset({"href", "action", "formaction", "cite"})
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):|[/\\\\]{2}")
_AS_WRITTEN = re.compile(r"<(pre|code|script|style|textarea)\b.*?</\1>", re.DOTALL | re.IGNORECASE)
_IDLE = re.compile(r"[ \t\r\n]*\n[ \t\r\n]*")  # the indentation of templates, and their empty lines
_IGNORED = re.compile(r"[\x00-\x20]")  # browsers drop these in an address


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _REFUSED:
            self.found.append(f"<{tag}> has no place in a page")
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                self.found.append(f"the attribute {name} has no place in a page")
            self._address(name, _IGNORED.sub("", value or "").lower())

    def _address(self, name: str, address: str) -> None:
        scheme = _SCHEME.match(address)
        if scheme is None:
            return
        if name in _LOADED:
            self.found.append(f"{address[:100]!r} is loaded from elsewhere; put it beside the page")
        if name in _LED_TO and scheme[1] != "https":
            self.found.append(f"link to {address[:100]!r}; links are relative or https")


def problem(html: str) -> str | None:
    """The first thing of a page that may not stand in the site, or None."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.found[0] if reader.found else None


def lean(html: str) -> str:
    """The same page without empty lines and indentation, where these say nothing."""
    parts, done = [], 0
    for kept in _AS_WRITTEN.finditer(html):
        parts += [_IDLE.sub("\n", html[done : kept.start()]), kept[0]]
        done = kept.end()
    return "".join([*parts, _IDLE.sub("\n", html[done:])])

"""Links of the built site that lead nowhere.

In: the folder of the site. Out: a line for each link from page to page whose target is missing.
MkDocs checks its menu and the links of pages by hand; the texts of a book become links only here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')
_ID = re.compile(r'\s(?:id|name)="([^"]*)"')


def broken(site: Path) -> Iterator[str]:
    """Each page and link that lead to a page or a place on one that the site does not have."""

    @cache
    def ids(page: Path) -> frozenset[str]:
        return frozenset(map(unescape, _ID.findall(page.read_text(encoding="utf-8"))))

    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # shown at any depth, so it has links from the root
            continue
        _, _, article = page.read_text(encoding="utf-8").partition("<article")
        for link in dict.fromkeys(map(unescape, _LINK.findall(article.partition("</article>")[0]))):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = page.parent / unquote(parts.path) if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file():
                lack = "the site has no such page"
            elif anchor and target.suffix == ".html" and anchor not in ids(target.resolve()):
                lack = "that page has no such place"
            else:
                continue
            yield f"{page.relative_to(site).as_posix()}: a link leads to {link!r}: {lack}"

"""The headings of a printed page, with the anchors that MkDocs will give them.

MkDocs checks the anchors of Markdown links only. Links that the generator writes as HTML take their
anchors from here.
"""

from __future__ import annotations

import html
import re
import unicodedata

_HEADING = re.compile(r"^#{2,6} (.+)$", re.MULTILINE)
_TAG = re.compile(r"<[^>]+>")
_NUMBER = re.compile(r"^\d+ ")


def anchors(page: str) -> dict[str, str]:
    """The anchor of each heading of a page in Markdown; a number before a heading is left out."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for one in _HEADING.finditer(page):
        text = " ".join(html.unescape(_TAG.sub("", one[1])).split())
        anchor = _unique(_slug(text), taken)
        found.setdefault(_NUMBER.sub("", text), anchor)
    return found


def _slug(text: str) -> str:
    """As `markdown.extensions.toc.slugify` does, which MkDocs uses."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def _unique(slug: str, taken: set[str]) -> str:
    """A slug that no heading above has: MkDocs counts them up."""
    name, number = slug, 0
    while name in taken or not name:
        number += 1
        name = f"{slug}_{number}"
    taken.add(name)
    return name

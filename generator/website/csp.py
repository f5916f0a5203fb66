"""Built HTML in, the same HTML with a Content-Security-Policy out, and what that policy blocks.

The policy allows own files, and of inline scripts the theme's, each by its hash. It is the theme's
if one of its templates holds it; what a template fills in differs by page. Any other script may
come from a text, a plugin or somebody's template, and no reader should run it unseen. Styles come
from files only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from generator.content.errors import one_line
from generator.website import page_html

OVERRIDES = Path(__file__).resolve().parent / "overrides"  # our own templates
_SCRIPT = re.compile(
    r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.DOTALL | re.IGNORECASE
)
_CHARSET = re.compile(r'<meta charset="utf-8">', re.IGNORECASE)
_NOT_RUN = re.compile(r'(?:^|\s)(?:src\s*=|type="application/(?:ld\+)?json")')
_FILLED = re.compile(r"\{\{.*?\}\}")  # by a template, within quotes
_FILLING = r"[^\"'\\<>\s]*"
_MAY_BE_BLOCKED = re.compile(
    r"<style\b|\s(?:style|on[a-z]+)\s*="
    r"""|(?:\s(?:src|srcset|poster|data)|<link\b[^<>]*\shref)\s*=\s*["']?\s*(?:https?:)?//""",
    re.IGNORECASE,
)
_LOADED = frozenset({"src", "srcset", "poster", "data"})
_FROM_ELSEWHERE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_LOADING = frozenset({"stylesheet", "icon", "preload", "modulepreload", "manifest"})
LONGEST = 80  # characters of what is blocked that a message shows

UNKNOWN = "is an inline script that the theme does not have; put it into a file of extra_javascript"
BLOCKED = (
    "is blocked by the page's policy; styles belong into a file of extra_css, scripts into one of "
    "extra_javascript, and nothing is loaded from another host"
)

Known = re.Pattern[str]


class Blocked(NamedTuple):
    """What the policies of a site block: a line for each, with the pages that have it."""

    scripts: list[str]
    others: list[str]


def material() -> Path:
    """The templates of the Material that is installed."""
    return Path(str(files("material"))) / "templates"


def scripts_of(theme: Path) -> Known:
    """What an inline script of this theme, or of our own templates, looks like in a page."""
    bodies = [
        found["body"]
        for folder in (theme / "partials", OVERRIDES)
        for path in folder.rglob("*.html")
        for found in _inline(path.read_text(encoding="utf-8"))
    ]
    patterns = (_FILLING.join(map(re.escape, _FILLED.split(body))) for body in bodies)
    return re.compile("|".join(patterns))


def put(site: Path, paths: Iterable[Path], known: Known) -> Blocked:
    """Give each of these pages of a site its policy."""
    scripts: dict[str, list[str]] = defaultdict(list)
    others: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        html = page_html.lean(path.read_text(encoding="utf-8"))
        name = path.relative_to(site).as_posix()
        for found, in_html in ((scripts, unknown_scripts(html, known)), (others, blocked(html))):
            for one in dict.fromkeys(in_html):
                found[one].append(name)
        path.write_text(with_policy(html, known), encoding="utf-8")
    return Blocked(_lines(scripts, UNKNOWN), _lines(others, BLOCKED))


def _lines(found: Mapping[str, list[str]], says: str) -> list[str]:
    return [
        one_line(f"{names[0]}{_and_more(len(names) - 1)}: {what[:LONGEST]!r} {says}")
        for what, names in found.items()
    ]


def _and_more(num: int) -> str:
    return f" and {num} more" if num else ""


def unknown_scripts(html: str, known: Known) -> list[str]:
    """The inline scripts of a page that its theme does not have; the policy blocks them."""
    return [one["body"].strip() for one in _inline(html) if not known.fullmatch(one["body"])]


def policy(html: str, known: Known) -> str:
    """The Content-Security-Policy that fits one page."""
    bodies = {found["body"] for found in _inline(html) if known.fullmatch(found["body"])}
    digests = (hashlib.sha256(body.encode("utf-8")).digest() for body in bodies)
    hashes = sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return "; ".join(
        [
            "default-src 'self'",
            " ".join(["script-src 'self'", *hashes]),
            "style-src 'self'",
            "img-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def with_policy(html: str, known: Known) -> str:
    """The page with its policy as the first thing after the charset.

    Raises:
        ValueError: the page has no place to put it.
    """
    placed, count = _CHARSET.subn(
        lambda found: (
            f'{found[0]}<meta http-equiv="Content-Security-Policy" content="{policy(html, known)}">'
        ),
        html,
        count=1,
    )
    if not count:
        raise ValueError('no <meta charset="utf-8"> to put the policy after')
    return placed


def blocked(html: str) -> list[str]:
    """What else of a page the policy blocks, as it is written: styles, handlers, other hosts."""
    if not _MAY_BE_BLOCKED.search(html):
        return []
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.found


def _inline(html: str) -> Iterator[re.Match[str]]:
    return (one for one in _SCRIPT.finditer(html) if not _NOT_RUN.search(one["attributes"]))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        loaded = [given[name] for name in _LOADED & given.keys()]
        if tag == "link" and _LOADING & set(given.get("rel", "").split()):
            loaded.append(given.get("href", ""))
        if (
            tag == "style"
            or any(name == "style" or name.startswith("on") for name in given)
            or any(map(_FROM_ELSEWHERE.match, loaded))
        ):
            self.found.append(" ".join((self.get_starttag_text() or "").split()))

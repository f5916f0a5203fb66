"""What a built site says of its numbers: each popover with its value and its command."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

_POPOVER = re.compile(r'<div popover id="(pb-v\d+)">(.*?)</div>', re.DOTALL)
_HEAD = re.compile(r"<p><b>(.*?)</b>: (\w+)")
_ROW = re.compile(r"<dt>(.*?)</dt><dd>(.*?)</dd>", re.DOTALL)
_INPUT = re.compile(r"= (.*) \((\w+)\)$")


@dataclass(frozen=True)
class Popover:
    """One value as a reader sees it.

    Attributes:
        page: the page's path under the site.
        shown: the value as printed.
        kind: given, measured, computed, simulated or cited.
        source: where it was read off; None for what is computed.
        exactly: the same with all digits; None for words and for what is computed.
        command: what measures it again; None where nothing does.
        inputs: of a computed one, the values it was computed from, as printed, with their kinds.
    """

    page: str
    shown: str
    kind: str
    source: str | None
    exactly: str | None
    command: str | None
    inputs: tuple[tuple[str, str], ...]


def popovers(site: Path) -> list[Popover]:
    """Every popover of every page, in the order of the pages."""
    found = []
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).as_posix()
        for _, body in _POPOVER.findall(path.read_text(encoding="utf-8")):
            found.append(_read(page, body))
    return found


def _read(page: str, body: str) -> Popover:
    shown, kind = _HEAD.search(body).groups()
    rows = [(_text(name), _text(said)) for name, said in _ROW.findall(body)]
    facts = dict(rows)
    inputs = [_INPUT.search(said) for name, said in rows if name == "from"]
    return Popover(
        page,
        _text(shown),
        kind,
        facts.get("from"),
        facts.get("exactly"),
        facts.get("repeat") or facts.get("repeat its inputs"),
        tuple(one.groups() for one in inputs if one),
    )


def _text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup))

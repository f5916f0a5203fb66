"""Built HTML, read with nothing but the standard library: links, anchors, text by its ancestors."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from html.parser import HTMLParser
from pathlib import Path

VOID = frozenset(
    "area base br col embed hr img input link meta source track wbr path rect line".split()  # noqa: SIM905
)


PRESSED = ("a", "button")


@dataclass
class Tag:
    """One element that is open while its text is read."""

    name: str
    attributes: dict[str, str]
    within: "Tag | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def classes(self) -> frozenset[str]:
        return frozenset(self.attributes.get("class", "").split())

    @property
    def around(self) -> "tuple[Tag, ...]":
        """The elements that it is in, the outermost first."""
        return (*self.within.around, self.within) if self.within else ()


@dataclass
class Reading(HTMLParser):
    """Everything that tests ask of a page."""

    tags: list[Tag] = field(default_factory=list)
    texts: list[tuple[str, tuple[Tag, ...]]] = field(default_factory=list)
    nested: list[tuple[Tag, Tag]] = field(default_factory=list)  # a link or button in another
    open_tags: list[Tag] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        element = self.tags[-1]
        if tag in PRESSED:
            self.nested += [(one, element) for one in self.open_tags if one.name in PRESSED]
        if tag not in VOID:
            self.open_tags.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.tags.append(Tag(tag, attributes, self.open_tags[-1] if self.open_tags else None))

    def handle_endtag(self, tag: str) -> None:
        while self.open_tags:
            if self.open_tags.pop().name == tag:
                return

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((data, tuple(self.open_tags)))

    @cached_property
    def ids(self) -> set[str]:
        return {tag.attributes["id"] for tag in self.tags if "id" in tag.attributes}

    @property
    def links(self) -> list[str]:
        return [
            tag.attributes[name]
            for tag in self.tags
            for name in ("href", "src")
            if name in tag.attributes
        ]


def read(path: Path) -> Reading:
    """Parse one page."""
    return _reading(path.read_text(encoding="utf-8"))


def read_head(path: Path) -> Reading:
    """Parse what stands before a page's body."""
    head, end, _ = path.read_text(encoding="utf-8").partition("</head>")
    assert end, f"{path} has no head"
    return _reading(head)


def _reading(html: str) -> Reading:
    reading = Reading()
    reading.feed(html)
    reading.close()
    return reading


def leads_to(reading: Reading) -> str | None:
    """Where a page that has moved sends its readers; None for any other."""
    refreshed = (tag for tag in reading.tags if tag.attributes.get("http-equiv") == "refresh")
    return next((tag.attributes["content"].partition("url=")[2] for tag in refreshed), None)


@cache
def pages(site: Path) -> tuple[Path, ...]:
    """Every page of a site but those that have moved, and MkDocs' own 404, served at any depth."""
    found = (path for path in sorted(site.rglob("*.html")) if path.name != "404.html")
    return tuple(path for path in found if leads_to(read_head(path)) is None)


def of_each_kind(paths: Iterable[Path]) -> list[Path]:
    """Few of some pages that together have every element with every list of classes."""
    kinds = {
        path: set(re.findall(r'<(\w+)[^>]*?\sclass="([^"]*)"', path.read_text(encoding="utf-8")))
        for path in paths
    }
    left, chosen = set().union(*kinds.values()), []
    while left:
        chosen.append(max(kinds, key=lambda path: len(kinds[path] & left)))
        left -= kinds[chosen[-1]]
    return chosen

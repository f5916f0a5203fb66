"""The HTML of a page: Markdown looks like ours, rows get anchors, mistakes stand on top.

MkDocs checks its menu and the links of pages by hand; the texts of a book become links only here.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement

import markdown  # type: ignore[import-untyped]
from markdown.extensions.toc import slugify, unique  # type: ignore[import-untyped]
from markupsafe import Markup, escape

from generator.pages.elements.tables import row_name
from generator.printing.folio import interface_words
from generator.printing.markdown import ALIGNED

_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')
_ID_OR_NAME = re.compile(r'\s(?:id|name)="([^"]*)"')
_ID = re.compile(r'id="(?<=\sid=")([^"]+)"')  # begins with letters, which `re` finds fast
# A row of cells, and the cells that say something; what is a head stays as it is.
_ROW = re.compile(
    r'<thead>.*?</thead>|<tr(?P<css>(?: class="[^"]*")?)>(?P<cells>.*?)</tr>', re.DOTALL
)
_CELL = re.compile(r"<(t[hd])\b(?![^>]*\bpb-number\b)[^>]*>(.*?)</\1>", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{2,}")
_NO_WORDS = re.compile(r"<code>.*?</code>|<[^>]+>")
SENTENCE, IN_ANCHOR = 5, 8  # words of a cell, and of the first one those in an anchor
_HTML = markdown.util.HTML_PLACEHOLDER_RE
_MISTAKES = re.compile(r'(<article\b[^>]*>)(?:<pre class="pb-mistakes".*?</pre>)?', re.DOTALL)


def ids(html: str) -> set[str]:
    """The ids of a page's elements."""
    return set(_ID.findall(html))


def with_anchors(html: str) -> str:
    """HTML whose table rows with a sentence in a cell get an `id` of the first cell's words."""
    taken: set[str] = set()

    def anchored(row: re.Match[str]) -> str:
        says = [cell[2].replace("<br>", " ") for cell in _CELL.finditer(row["cells"] or "")]
        num_words = [len(_WORD.findall(_NO_WORDS.sub(" ", cell))) for cell in says]
        if len(says) < 2 or max(num_words) < SENTENCE:
            return row[0]
        name = slugify(" ".join(Markup(says[0]).striptags().split()[:IN_ANCHOR]), "-")
        return f'<tr id="{unique(f"row-{name}", taken)}"{row["css"]}>{row["cells"]}</tr>'

    return _ROW.sub(anchored, html)


class SiteMarkup(markdown.Extension):  # type: ignore[misc]
    """Markdown extension that gives pages by hand the markup of our templates."""

    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802
        """Register after headings have got their ids, and MkDocs has read the links."""
        md.treeprocessors.register(self, "like_ours", -10)

    searched = ""  # what the search finds of the last page: what stands there in Markdown

    def run(self, root: Element) -> None:
        """Change the tree: link headings to themselves, wrap tables, let keyboards scroll code."""
        _give_ids(root)
        self.searched = _searched(root)
        _scroll_tables(root)
        for element in root.iter():
            _as_class(element)
        for code in root.iterfind(".//pre/code"):
            code.set("tabindex", "0")
        for level in range(2, 7):
            for heading in root.iter(f"h{level}"):
                _link(heading)


def _give_ids(root: Element) -> None:
    """Give each row with a sentence in a cell an id of the first cell's words."""
    taken: set[str] = set()
    for row in root.iterfind(".//tbody/tr"):
        cells = [Markup(_html(cell)) for cell in row if "right" not in cell.get("style", "")]
        if name := row_name(cells):
            row.set("id", unique(name, taken))


def _scroll_tables(root: Element) -> None:
    for parent in list(root.iter()):
        for at, table in enumerate(parent):
            if table.tag == "table":
                table.set("class", "pb-table")
                parent[at] = _scrolled(table)


def _searched(root: Element) -> str:
    """The HTML of a tree as the search reads it: no code, and a section for a row with an id."""
    tree = deepcopy(root)
    tags = [element.tag for element in tree]
    tree[:] = tree[tags.index("h1") if "h1" in tags else 0 :]
    for element in list(tree.iter()):
        for child in list(element):
            if child.tag == "pre" or "right" in child.get("style", ""):
                element.remove(child)
        if element.tag == "tr" and (place := element.get("id")):
            heading = SubElement(element, "h3", id=place)
            heading.text, heading[:] = element[0].text, element[0][:]
            element[:] = [heading, *element[1:-1]]
    return str(_HTML.sub("", _html(tree)))


def _html(element: Element) -> str:
    html: str = markdown.serializers.to_html_string(element)
    return html


def _scrolled(table: Element) -> Element:
    """A table in a box that scrolls where the page is narrower."""
    name = interface_words()["table"]["scroll"]
    box = Element(
        "div", {"class": "pb-scroll", "tabindex": "0", "role": "group"}, **{"aria-label": name}
    )
    box.append(table)
    return box


def _as_class(element: Element) -> None:
    """Classes for how a cell is aligned, in place of a style, and for the number of a footnote."""
    if element.tag in ("th", "td") and (aligned := element.attrib.pop("style", "").strip("; ")):
        element.set("class", ALIGNED.get(aligned.rpartition(" ")[2], ""))
    if element.get("class") == "footnote-ref":
        element.set("class", "footnote-ref pb-label")


def _link(heading: Element) -> None:
    """Put a heading's words into a link to it, unless they hold a link or a value already."""
    if heading.find(".//a") is None and not _HTML.search("".join(heading.itertext())):
        link = Element("a", href=f"#{heading.get('id')}")
        link.text, heading.text = heading.text, None
        link[:], heading[:] = heading[:], [link]


def put_mistakes(site: Path, mistakes: str) -> None:
    """Replace the mistakes shown in the `<article>` of each HTML file of a site; '' removes them.

    A build that finds a mistake writes no page again.
    """
    box = f'<pre class="pb-mistakes" role="alert">{escape(mistakes)}</pre>' if mistakes else ""
    for path in site.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        told = _MISTAKES.sub(lambda article: article[1] + box, html, count=1)
        if told != html:
            path.write_text(told, encoding="utf-8")


def broken_links(site: Path) -> Iterator[str]:
    """Yield a message per relative link of an `<article>` whose file or anchor the site lacks."""

    @cache
    def ids(page: Path) -> frozenset[str]:
        return frozenset(map(unescape, _ID_OR_NAME.findall(page.read_text(encoding="utf-8"))))

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

"""The HTML of MkDocs: Markdown looks like ours, mistakes stand on top.

MkDocs checks its menu and the links of pages by hand; the texts of a book become links only here.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from html import unescape
from pathlib import Path
from posixpath import dirname, join, normpath, splitext
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element, SubElement

import markdown  # type: ignore[import-untyped]
from markdown.extensions.toc import unique  # type: ignore[import-untyped]
from markupsafe import Markup, escape

from proofbook.generator.pages.elements.tables import is_long, row_name
from proofbook.generator.printing.folio import interface_words
from proofbook.generator.printing.markdown import ALIGNED

_LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]*)"')
_ID_OR_NAME = re.compile(r'\s(?:id|name)="([^"]*)"')
_LINKED = re.compile(
    r'<a\b[^>]*?\bhref="(?P<to>[^"#:]+)[^"]*"[^>]*>(?P<text>.*?)</a>'
    r"|(?<!!)\[(?P<words>[^][]+)\]\((?P<page>[^()\s#:]+)[^()\s]*\)",
    re.DOTALL,
)
_TO_MARKDOWN = re.compile(r'href="([^":#?]+\.md)(?=["#])')
_SECTION = re.compile(r'aria-labelledby="(\w+)_label"([^>]*>\s*<label class="md-nav__title")')
_HTML = markdown.util.HTML_PLACEHOLDER_RE


def ids(html: str) -> frozenset[str]:
    """The ids and names of a page's elements, to which links may lead."""
    return frozenset(map(unescape, _ID_OR_NAME.findall(html)))


def relinked(html: str, address_of: Callable[[str], str]) -> str:
    """HTML whose links to Markdown files lead to the addresses of their pages."""
    return _TO_MARKDOWN.sub(lambda link: f'href="{address_of(link[1])}', html)


def without_absent(files: Mapping[str, bytes], optional: Iterable[str]) -> dict[str, bytes]:
    """A book's files, in which links to optional pages that are not there are their text.

    `optional` are paths without a suffix, each for the pages below it, too.
    """
    absent = [name for name in optional if f"{name}.md" not in files]

    def replaced(link: re.Match[str]) -> str:
        to = splitext(normpath(join(dirname(path), link["to"] or link["page"])))[0]
        if f"{to}.md" in files or not any(f"{to}/".startswith(f"{name}/") for name in absent):
            return link[0]
        return link["text"] or link["words"]

    kept = dict(files)
    for path in (path for path in files if absent and path.endswith(".md")):
        kept[path] = _LINKED.sub(replaced, files[path].decode()).encode()
    return kept


def named_sections(nav: str) -> str:
    """Material's drawer, in which each section is named by its title and not by its button."""
    return _SECTION.sub(r'aria-labelledby="\1_title"\2 id="\1_title"', nav)


def last_level(html: str) -> int:
    """The level of the last heading in some HTML; 1 where there is none."""
    return max(range(1, 7), key=lambda level: html.rfind(f"<h{level}"))


class SiteMarkup(markdown.Extension):  # type: ignore[misc]
    """Markdown extension that gives pages by hand the markup of our templates."""

    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802
        """Register after headings have got their ids, and MkDocs has read the links."""
        md.treeprocessors.register(self, "like_ours", -10)
        self.md = md

    searched = ""  # what the search finds of the last page: what stands there in Markdown

    def run(self, root: Element) -> None:
        """Change the tree: link headings to themselves, wrap tables, let keyboards scroll code."""
        _give_ids(root)
        self.searched = _searched(root, self.md.htmlStash.rawHtmlBlocks)
        for parent in list(root.iter()):
            for at, element in enumerate(parent):
                if element.tag == "table":
                    parent[at] = _scrolled(element)
        for code in root.iterfind(".//pre/code"):
            code.set("tabindex", "0")
        for element in root.iter():
            _as_class(element)
            if element.tag in ("h2", "h3", "h4", "h5", "h6"):
                _link(element)


def _give_ids(root: Element) -> None:
    """Give each row with a sentence in a cell an id of the first cell's words."""
    taken: set[str] = set()
    for row in root.iterfind(".//tbody/tr"):
        cells = [Markup(_html(cell)) for cell in row if "right" not in cell.get("style", "")]
        if name := row_name(cells):
            row.set("id", unique(name, taken))


def _searched(root: Element, raw: Sequence[str | Element]) -> str:
    """The HTML of a tree as the search reads it: no code, and a section for a row with an id.

    Of the `raw` HTML that Markdown keeps aside, only entities are read.
    """
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
    aside = [html if str(html).startswith("&") else "" for html in raw]
    return str(_HTML.sub(lambda html: aside[int(html[1])], "".join(map(_html, tree))))


def _html(element: Element) -> str:
    html: str = markdown.serializers.to_html_string(element)
    return html


def _scrolled(table: Element) -> Element:
    """A table in a box that scrolls where the page is narrower."""
    has_long = any(is_long(Markup(_html(cell))) for cell in table.iterfind(".//td"))
    table.set("class", "pb-table pb-stacks" if has_long else "pb-table")
    heads = ["".join(head.itertext()) for head in table.iterfind("./thead/tr/th")]
    for row in table.iterfind("./tbody/tr"):
        for head, cell in zip(heads[1:], row[1:], strict=False):
            cell.set("data-label", head)
    label = {"aria-label": interface_words()["table"]["scroll"]}
    box = Element("div", {"class": "pb-scroll", "tabindex": "0", "role": "group", **label})
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
    begins = '<pre class="pb-mistakes" role="alert">'
    box = f"{begins}{escape(mistakes)}</pre>" if mistakes else ""
    for path in site.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        above, article, below = html.partition("<article")
        head, ends, content = below.partition(">")
        if content.startswith(begins):
            _, _, content = content.partition("</pre>")
        marked = "".join((above, article, head, ends, box if article else "", content))
        if marked != html:
            path.write_text(marked, encoding="utf-8")


def broken_links(site: Path) -> Iterator[str]:
    """Yield a message per relative link of an `<article>` whose file or anchor the site lacks."""
    ids_of = cache(lambda page: ids(page.read_text(encoding="utf-8")))
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
            elif anchor and target.suffix == ".html" and anchor not in ids_of(target.resolve()):
                lack = "that page has no such place"
            else:
                continue
            yield f"{page.relative_to(site).as_posix()}: a link leads to {link!r}: {lack}"


def without_indentation(html: str) -> str:
    """A page whose drawer, which every page has, begins its lines at their first sign."""
    drawer = r'<nav class="md-nav md-nav--primary.*?</nav>'
    return re.sub(drawer, lambda found: re.sub(r"\n\s+", "\n", found[0]), html, flags=re.DOTALL)

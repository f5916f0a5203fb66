"""The HTML of a page: headings with links, what a keyboard reaches, mistakes on top."""

import re
from html import unescape
from pathlib import Path

from markupsafe import escape

from generator.pages import headings

_HEADING = re.compile(r"<h([2-6])\b([^>]*)>(.*?)</h\1>", re.DOTALL)
_HEADING_ID = re.compile(r'\sid="([^"]+)"')
_TAG = re.compile(r"<[^>]+>")
_OF_A_QUESTION = 6  # how templates write such a heading, whose level depends on the one above it
_ID = re.compile(r'id="(?<=\sid=")([^"]+)"')  # begins with letters, which `re` finds fast
_CODE = re.compile(r"<pre><code(?![^>]*\btabindex=)")
_MISTAKES = re.compile(r'(<article\b[^>]*>)(?:<pre class="pb-mistakes".*?</pre>)?', re.DOTALL)


def ids(html: str) -> set[str]:
    """The ids of a page's elements."""
    return set(_ID.findall(html))


def finished(html: str) -> str:
    """A page whose tables from Markdown look like others, and whose code takes the focus.

    So a keyboard scrolls the code. Headings link to themselves, but for those that have a link.
    """
    html = html.replace("<table>", '<table class="pb-table pb-stack pb-rows">')
    return _linked_headings(_CODE.sub('<pre><code tabindex="0"', html))


def _linked_headings(html: str) -> str:
    """The same page with linked headings, those of questions one level below the one above."""
    taken, above = ids(html), 1

    def linked(heading: re.Match[str]) -> str:
        nonlocal above
        level, attributes, words = int(heading[1]), heading[2], heading[3]
        if level == _OF_A_QUESTION:
            level = above + 1
        else:
            above = level
        if "<a " not in words:
            own = _HEADING_ID.search(attributes)
            slug = headings.slug(unescape(_TAG.sub("", words)))
            name = own[1] if own else headings.unique(slug, taken)
            attributes += "" if own else f' id="{name}"'
            words = f'<a href="#{name}">{words}</a>'
        return f"<h{level}{attributes}>{words}</h{level}>"

    return _HEADING.sub(linked, html)


def put_mistakes(site: Path, mistakes: str) -> None:
    """Show these mistakes of the content over every page that `mkdocs serve` serves, and no others.

    A build that finds a mistake writes no page again, so they come into the last good pages.

    Args:
        site: the folder that is served.
        mistakes: one a line, with file, line and column; none takes those of before away.
    """
    shown = f'<pre class="pb-mistakes" role="alert">{escape(mistakes)}</pre>' if mistakes else ""
    for path in site.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        told = _MISTAKES.sub(lambda article: article[1] + shown, html, count=1)
        if told != html:
            path.write_text(told, encoding="utf-8")

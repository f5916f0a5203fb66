"""The HTML of a page: headings that link to themselves, and what a keyboard reaches."""

from __future__ import annotations

import re
from html import unescape

from generator.pages import headings

_HEADING = re.compile(r"<h([2-6])\b([^>]*)>(.*?)</h\1>", re.DOTALL)
_HEADING_ID = re.compile(r'\sid="([^"]+)"')
_TAG = re.compile(r"<[^>]+>")
_LISTED = re.compile(r'<a href="#([^"]+)" class="md-nav__link"')
_NOT_LISTED = re.compile(r'data-md-type="toc"[^>]*\shidden')
_OF_A_QUESTION = 6  # how templates write such a heading, whose level depends on the one above it
_ID = re.compile(r'id="(?<=\sid=")([^"]+)"')  # begins with letters, which `re` finds fast
_SKIP = re.compile(r'<a href="[^"]*" class="md-skip">')
_CODE = re.compile(r"<pre><code(?![^>]*\btabindex=)")
_INLINE = re.compile(r"((?<!<pre>)(?<!</span>)<code\b[^>]*>)([^<]+)(?=</code>)")
_FACTOR = r"(?:\([^()]{3,12}\)|\w{1,11})"
# an option, a command with a hyphen, a fraction, a number of something, a bracket
_WHOLE = re.compile(
    rf"(?<!\S)--?[a-z][\w-]*|nvidia-smi|(?:\d )?{_FACTOR} / {_FACTOR}|\d+ \w\b|\([^()]{{3,16}}\)"
)
_TITLE = re.compile(r'<h1 id="([^"]+)"')


def ids(html: str) -> set[str]:
    """The ids of a page's elements."""
    return set(_ID.findall(html))


def skipped_to_title(html: str) -> str:
    """A page whose skip link leads to its title; the theme's own leads past the first section."""
    title = _TITLE.search(html)
    return _SKIP.sub(f'<a href="#{title[1]}" class="md-skip">', html, count=1) if title else html


def tables_alike(html: str) -> str:
    """A page whose tables in Markdown look like those of templates."""
    return html.replace("<table>", '<table class="pb-table pb-stack pb-rows">')


def code_within_reach(html: str) -> str:
    """A page whose code blocks all take the focus, so that a keyboard scrolls them."""
    return _CODE.sub('<pre><code tabindex="0"', html)


def whole_words(html: str) -> str:
    """A page in whose code, within a line, no option, fraction or small bracket is broken."""
    return _INLINE.sub(
        lambda code: code[1] + _WHOLE.sub(r'<span class="pb-keep">\g<0></span>', code[2]), html
    )


def linked_headings(html: str) -> str:
    """The same page with headings that link to themselves, and those of questions one level down.

    A heading that has a link already, such as that of a question, keeps it. The Tab key stops once
    for each address: where the sidebar links a heading, the heading's own link is no further stop.
    """
    taken, above = ids(html), 1
    listed = set() if _NOT_LISTED.search(html) else set(_LISTED.findall(html))

    def linked(heading: re.Match[str]) -> str:
        nonlocal above
        level, attributes, words = int(heading[1]), heading[2], heading[3]
        if level == _OF_A_QUESTION:
            level = above + 1
        else:
            above = level
        if "<a " not in words:
            own = _HEADING_ID.search(attributes)
            name = own[1] if own else headings.unique(_slug(words), taken)
            attributes += "" if own else f' id="{name}"'
            skipped = ' tabindex="-1"' if name in listed else ""
            words = f'<a href="#{name}"{skipped}>{words}</a>'
        return f"<h{level}{attributes}>{words}</h{level}>"

    return _HEADING.sub(linked, html)


def _slug(words: str) -> str:
    return headings.slug(unescape(_TAG.sub("", words)))

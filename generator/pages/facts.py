"""What is known of a page from its elements: its headings, assets and minutes, and for the search.

Flow: the content of a page in; facts out. Nobody reads them off its HTML.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain

from markupsafe import Markup, escape

from proofbook.generator.pages.elements.element import Content, Element, Heading, Waiting, walk
from proofbook.generator.pages.elements.programs import (
    ListedProgram,
    PrintedText,
    RunOutput,
    WholeProgram,
)
from proofbook.generator.pages.elements.tables import Table
from proofbook.generator.pages.views.handwritten import WrittenMarkdown
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import Text
from proofbook.runners.system.kinds import kinds

# As a reader takes them: words, also those that explain answers, lines of code, and time to think.
WORDS_PER_MINUTE, LINES_PER_MINUTE, MINUTES_PER_QUESTION = 180, 25, 0.75
# Which script a page takes: one that an element of it needs (`Element.needs`), or what else it has:
# links on a way, terms and values that open, formulas. Where answers are kept, proofbook.js comes
# before any.
SCRIPTS = {"page": "page", "proofbook": "way", "sources": "opening Table"}
LAST = {"narrow": "NarrowingField", "formulas": "formula"}  # behind those of kinds
# Which style sheets that few pages need.
STYLES = {"markup": "formula footnote admonition"}
JOINT = "+"  # between the names of scripts that a page loads as one file
# What of these elements the search finds beside their parts: code, and what runs printed.
VERBATIM = {ListedProgram: "code", RunOutput: "text", PrintedText: "text"}
_NAME = re.compile(r"[A-Za-z]\w*_\w+|[A-Z]\w*[a-z]\w*[A-Z]\w*|[A-Z]{2,}[a-z]\w*")  # as `all_reduce`
LEVEL = 2  # of the headings in a list of contents
CLOSED = (Waiting, WholeProgram)  # their words find a section, which then does not show them
BEHIND = "\u2063"  # in the words of a section: from here on, they only find it


def scripts(needs: Iterable[str]) -> list[str]:
    """Names of scripts that meet some needs, joined by `+` in two strings: shared, others."""
    names = _meeting(needs, _with_kinds(SCRIPTS, "scripts") | LAST)
    shared = {*SCRIPTS, *(name for kind in kinds() for name in kind.shared_scripts)}
    parts = ([name for name in names if (name in shared) is is_in] for is_in in (True, False))
    return [JOINT.join(part) for part in parts if part]


def styles(needs: Iterable[str]) -> list[str]:
    """Paths of the style sheets that meet some needs."""
    names = _meeting(needs, _with_kinds(STYLES, "styles"))
    return [f"assets/{name}.css" for name in sorted(names)]


@cache
def _of_kinds(field: str) -> list[tuple[str, str]]:
    return [pair for kind in kinds() for pair in getattr(kind, field).items()]


def _with_kinds(table: dict[str, str], field: str) -> dict[str, str]:
    """A table, with what kinds and companions add to it."""
    table = dict(table)
    for name, met in _of_kinds(field):
        table[name] = f"{table.get(name, '')} {met}"
    return table


def _meeting(needs: Iterable[str], table: dict[str, str]) -> list[str]:
    return [name for name, met in table.items() if not {*met.split()}.isdisjoint(needs)]


def headings(content: Content) -> list[Heading]:
    """The headings of a page that have an anchor of their words."""
    of_markdown = (part.headings for part in content if isinstance(part, WrittenMarkdown))
    own = (part.headings for part in walk(content) if not isinstance(part, WrittenMarkdown))
    return [*chain.from_iterable(own), *chain.from_iterable(of_markdown)]


def minutes(content: Content, folio: Folio) -> int:
    """Minutes that a reader takes for a page: its words, questions, explanations and code."""
    read = [*_read(content)]
    num_words = sum(_text(part).num_words for part in read if isinstance(part, Markup))
    num_lines = sum(part.num_lines for part in read if isinstance(part, ListedProgram))
    took = num_words / WORDS_PER_MINUTE + num_lines / LINES_PER_MINUTE
    return max(1, round(took + MINUTES_PER_QUESTION * len(folio.items)))


def _text(words: Markup) -> Text:
    return words if isinstance(words, Text) else Text(words)


def _read(content: Iterable[Element | Markup]) -> Iterator[Element | Markup]:
    """Words, and the elements that have them, that are read as the page is read."""
    for part in content:
        yield part
        if isinstance(part, Element) and part.is_read:
            yield from _read(part.parts())


# --- for the search


@dataclass
class SearchPart:
    """What the search finds at a place of a page: a title, and the words below it."""

    anchor: str
    title: Markup
    words: list[Markup] = field(default_factory=list)
    behind: list[Markup] = field(default_factory=list)  # that find it and are not shown


def searched(content: Content, heading: Heading, *, is_markdown: bool) -> str:
    """The sections of a page as the search finds them, as HTML that Material reads.

    What it shows of each ends at `BEHIND`.

    Of a page that is Markdown, only those of its elements: MkDocs knows the rest.
    """
    sections = [SearchPart(heading.anchor, heading.html)]
    elements = [part for part in content if not isinstance(part, WrittenMarkdown)]
    _gather(elements, sections, sections[0], is_found=True)
    section = Markup('<h{} id="{}">{}</h{}>{}')
    html = []
    for number, part in enumerate(sections):
        texts = (_text(words).read for words in (part.title, *part.words))
        title, *words = (Markup(text.replace("<br>", "<br> ")) for text in texts)
        level = 2 if number else 1
        if part.behind:  # without tags, since a heading would begin a section
            closed = (escape(Markup(_text(text).read).striptags()) for text in part.behind)
            words += [Markup(BEHIND), *closed]
        html.append(section.format(level, part.anchor, title, level, Markup(" ").join(words)))
    return "".join(html[is_markdown:])


def _gather(
    content: Iterable[Element | Markup], sections: list[SearchPart], own: SearchPart, *,
    is_found: bool,
) -> SearchPart:  # fmt: skip
    """Add to `sections` what the search finds, first in the section `own`; the last one."""
    for part in content:
        if isinstance(part, Heading) and part.is_listed and is_found:
            own = SearchPart(part.anchor, part.html)
            sections.append(own)
        elif isinstance(part, Markup | Heading):
            words = part.html if isinstance(part, Heading) else part
            own.words += [words] * is_found
        elif entry := part.entry:  # its title answers nothing
            sections.append(SearchPart(*entry))
            _gather([*part.parts()][1:], sections, sections[-1], is_found=is_found)
        elif isinstance(part, Table):
            if is_found and part.is_found:
                _gather_rows(part, sections, own)
        else:
            own.behind += _behind(part, is_found=is_found)
            is_own = is_found and part.is_found
            own = _gather(part.parts(), sections, own, is_found=is_own)
            if is_own and type(part) in VERBATIM:
                own.words.append(escape(getattr(part, VERBATIM[type(part)])))
    return own


def _behind(part: Element, *, is_found: bool) -> Iterator[Markup]:
    """The words that find a section and are not shown, where an element is closed."""
    return _words(part.parts() if is_found and isinstance(part, CLOSED) else ())


def _words(content: Iterable[Element | Markup]) -> Iterator[Markup]:
    """The words of content without the rows of its tables, and the names in its code."""
    for part in content:
        if isinstance(part, Markup | Heading):
            yield part.html if isinstance(part, Heading) else part
        elif isinstance(part, Table):
            yield from (escape(title) for title in part.titles)
        elif part.is_found or isinstance(part, CLOSED):
            yield from _words(part.parts())
            if isinstance(part, ListedProgram):
                yield from map(escape, _NAME.findall(part.code.striptags()))


def _gather_rows(table: Table, sections: list[SearchPart], own: SearchPart) -> None:
    """Each row with an anchor is a section; of others, and of the head, the words are found."""
    own.words += [escape(title.removeprefix("#")) for title in table.titles]
    for row, anchor in zip(table.rows, table.anchors, strict=True):
        cells = table.words_of(row)
        if anchor:
            sections.append(SearchPart(anchor, escape(row[0]), cells[1:]))
        else:
            own.words += cells

"""Links from lessons to the glossary: each term where a page's prose uses it first.

In: the HTML of a paragraph, an item of a list, an explanation of a line or a cell of prose, in the
order in which a page prints them. Out: the same with links. Text in links, values and code stays as
it is. Headings, options, questions and captions do not come here. A long page keeps the links of
its first terms only.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from markupsafe import Markup

from generator.content.glossary import Term

PAGE = "glossary"
_TAG = re.compile(r"(<[^>]+>)")
MOST_LINKS = 40  # in the text of a page; values open their popover, and do not count
# What is no running text: tables, headings, what is folded or operated.
_APART = (
    r"<(?P<tag>table|script|h[1-6])\b.*?</(?P=tag)>"
    r'|<details class="pb-details pb-(?:answer|backing|contents|numbers|whole)".*?</details>'
    r'|<p class="pb-waits.*?</p>|<a\b[^>]*(?:data-v=|pb-run-name|download)[^>]*>'
)
_LINK = re.compile(rf'{_APART}|<a class="pb-term"[^>]*>(?P<term>.*?)</a>|<a\b', re.DOTALL)
_UNLINKED = frozenset({"a", "button", "code", "math", "pre"})


class TermLinks:
    """Links the first use of each term on a page; `used` has the ids of the terms linked so far."""

    def __init__(self, terms: Sequence[Term], root: str) -> None:
        """Start a page that stands `root` below the site's root, such as `../../`."""
        self._ids, self._pattern = _term_pattern(tuple((term.id, term.spellings) for term in terms))
        self._root = root
        self.used: set[str] = set()

    def linked(self, html: Markup) -> Markup:
        """A paragraph's HTML with a link at each term that is not in `used`, and now is."""
        if self._pattern is None:
            return html
        depth, parts = 0, _TAG.split(html)
        for position, part in enumerate(parts):
            if part.startswith("<"):
                name = re.sub(r"\W.*", "", part.lstrip("</"), flags=re.DOTALL)
                depth += (-1 if part.startswith("</") else 1) if name in _UNLINKED else 0
            elif depth == 0:
                parts[position] = self._pattern.sub(self._link, part)
        return Markup("".join(parts))

    def _link(self, match: re.Match[str]) -> str:
        term = self._ids[" ".join(match[0].lower().split())]
        if term in self.used:
            return match[0]
        self.used.add(term)
        return f'<a class="pb-term" href="{self._root}{PAGE}.html#term-{term}">{match[0]}</a>'


def limit_links(body: str) -> str:
    """HTML of a body with the first links to terms only: `MOST_LINKS` less its other links."""
    links = list(_LINK.finditer(body))
    terms = [link.start() for link in links if link["term"]]
    num_others = sum(link[0] == "<a" for link in links)
    lost = {*terms[max(0, MOST_LINKS - num_others) :]}
    return _LINK.sub(lambda link: link["term"] if link.start() in lost else link[0], body)


@lru_cache(maxsize=8)
def _term_pattern(
    terms: tuple[tuple[str, tuple[str, ...]], ...],
) -> tuple[dict[str, str], re.Pattern[str] | None]:
    """The terms' ids by spelling, and the pattern that finds any of them; the longest first.

    A number after it makes a name of it, such as rank 1.
    """
    ids = {spelling.lower(): term for term, spellings in terms for spelling in spellings}
    forms = sorted((form for _, spellings in terms for form in spellings), key=len, reverse=True)
    alternatives = "|".join(map(_form, forms))
    return ids, re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-]|\s\d)") if alternatives else None


def _form(spelling: str) -> str:
    """A spelling as text has it: a name such as ZeRO as it is, since *zero* is none."""
    form = r"\s+".join(map(re.escape, spelling.split()))
    is_a_name = spelling[1:] != spelling[1:].lower()
    return form if is_a_name else f"(?i:{form})"

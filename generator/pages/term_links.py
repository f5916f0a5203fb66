"""Links from lessons to the glossary: each term where a page's prose uses it first.

In: the HTML of a paragraph, an item of a list, an explanation of a line or a cell of prose, in the
order in which a page prints them. Out: the same with links. Text in links, values and code stays as
it is, and so does a heading; a term in code or a heading counts as used, and is linked where prose
uses it first. Options, questions and captions do not come here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from markupsafe import Markup

from generator.content.glossary import Term

PAGE = "glossary"
_TAG = re.compile(r"(<[^>]+>)")
_UNLINKED = frozenset({"a", "button", "code", "pre"})


class TermLinks:
    """The terms that one page has not used yet.

    Attributes:
        used: the ids of those that it has.
        linked_terms: those of them that have their link.
    """

    def __init__(self, terms: Sequence[Term], root: str) -> None:
        """Start a page that stands `root` below the site's root, such as `../../`."""
        self._ids, self._pattern = _spelled(tuple((one.id, one.spellings) for one in terms))
        self._names = {s.lower() for one in terms for s in one.spellings if s[1:] != s[1:].lower()}
        self._root = root
        self.used: set[str] = set()
        self.linked_terms: set[str] = set()

    def linked(self, html: Markup) -> Markup:
        """A paragraph with a link at each term that it is the first to use."""
        if self._pattern is None:
            return html
        depth, parts = 0, _TAG.split(html)
        for position, part in enumerate(parts):
            if part.startswith("<"):
                name = re.sub(r"\W.*", "", part.lstrip("</"), flags=re.DOTALL)
                depth += (-1 if part.startswith("</") else 1) if name in _UNLINKED else 0
            elif depth == 0:
                parts[position] = self._pattern.sub(self._link, part)
            elif part.lower() in self._ids:
                self.used.add(self._ids[part.lower()])
        return Markup("".join(parts))

    def read(self, line: Markup) -> Markup:
        """A heading or another line as it is; its terms count as used."""
        if self._pattern is not None:
            found = self._pattern.findall(_TAG.sub(" ", line))
            terms = map(self._term, found)
            self.used.update(term for term in terms if term)
        return line

    def _term(self, form: str) -> str | None:
        """The term that is meant; none where a word has a name's letters, as Zero has ZeRO's."""
        spelled = " ".join(form.lower().split())
        is_a_word = form[1:] == form[1:].lower()
        return None if is_a_word and spelled in self._names else self._ids[spelled]

    def _link(self, found: re.Match[str]) -> str:
        term = self._term(found[0])
        if term is None or term in self.linked_terms:
            return found[0]
        self.used.add(term)
        self.linked_terms.add(term)
        return f'<a class="pb-term" href="{self._root}{PAGE}.html#term-{term}">{found[0]}</a>'


@lru_cache(maxsize=8)
def _spelled(
    terms: tuple[tuple[str, tuple[str, ...]], ...],
) -> tuple[dict[str, str], re.Pattern[str] | None]:
    """The terms' ids by spelling, and the pattern that finds any of them; the longest first."""
    ids = {spelling.lower(): term for term, spellings in terms for spelling in spellings}
    if not ids:
        return ids, None
    forms = sorted(map(_form, ids), key=len, reverse=True)
    return ids, re.compile(rf"(?<![\w-])(?:{'|'.join(forms)})(?![\w-])", re.IGNORECASE)


def _form(spelling: str) -> str:
    return r"\s+".join(map(re.escape, spelling.split()))

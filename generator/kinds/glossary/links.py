"""Links from lessons to the glossary: each term where a page's prose uses it first.

In: a text, an item of a list, an explanation of a line or a cell of prose, in the order in which a
page prints them. Out: the same with links. Text in links, values and code stays as it is. Headings,
options, questions and captions do not come here. A long page keeps the links of its first terms
only.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from proofbook.generator.kinds.glossary.glossary import Glossary
from proofbook.generator.kinds.glossary.words import Term
from proofbook.generator.pages.draft import Links
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import Text

PAGE = "glossary"
MOST_LINKS = 40  # in the text of a page; values open their popover, and do not count


class TermLinks(Links):
    """Links the first use of each term on a page; `used` has the ids of the terms used so far."""

    def __init__(self, terms: Sequence[Term], root: str, num_others: int = 0) -> None:
        """Start a page that stands `root` below the site's root, and has `num_others` links."""
        self._ids, self._pattern = _term_pattern(tuple((term.id, term.spellings) for term in terms))
        self._root = root
        self.most = MOST_LINKS - num_others
        super().__init__()

    def linked(self, text: Text) -> Text:
        """A text with a link at each term that is not in `used`, and now is."""
        if self._pattern is None:
            return text
        spans = (
            span._replace(html=self._pattern.sub(self._link, span.html))
            if span.kind == "words" else span for span in text.spans
        )  # fmt: skip
        return Text.of(spans)

    def _link(self, match: re.Match[str]) -> str:
        term = self._ids[" ".join(match[0].lower().split())]
        is_first = term not in self.used
        self.used.add(term)
        if not is_first or len(self.used) > self.most:
            return match[0]
        return f'<a class="pb-term" href="{self._root}{PAGE}.html#term-{term}">{match[0]}</a>'


def links(folio: Folio, num_others: int) -> TermLinks:
    """The links of a page of a book."""
    return TermLinks(folio.book.part(Glossary).terms, folio.root, num_others)


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

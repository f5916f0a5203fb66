"""The glossary: each term with its definition, a run that shows it, and the lessons that use it."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from generator.content.glossary import Term
from generator.pages.draft import Draft
from generator.pages.elements.element import (
    Content,
    Element,
    Fold,
    Heading,
    NarrowingField,
    Unfound,
)
from generator.pages.elements.programs import run_link
from generator.printing.folio import Folio
from generator.printing.markdown import plain, unlinked

TERMS = "assets/terms.js"  # sources.js knows it


@dataclass(frozen=True)
class DefinedTerm(Element):
    """A term, which has an entry of its own in the search."""

    id: str
    name: Markup
    content: Content  # its definition and what follows that

    def parts(self) -> Iterator[Element | Markup]:
        """Its name as the heading of its entry, and the content."""
        yield Heading(3, self.name, f"term-{self.id}", is_anchored=False)
        yield from self.content


@dataclass(frozen=True)
class Terms(Element):
    """All terms."""

    script: str  # the address of that with their definitions, for popovers of other pages
    terms: Sequence[DefinedTerm]


def glossary(draft: Draft) -> Iterator[Element | Markup]:
    """The page of all terms."""
    folio, written = draft.folio, draft.folio.book.terms
    yield draft.opening(draft.sheet.about)
    link = Markup('<a class="pb-label" href="#term-{}">{}</a>')
    by_letter = groupby(written, key=lambda term: term.term[0].upper())
    letters = [link.format(next(terms).id, letter) for letter, terms in by_letter]
    yield Unfound([Markup(" ").join(letters)], "pb-aside pb-operate", "p")
    yield NarrowingField(Markup("Show terms with:"), ".pb-terms > div")
    definitions = {term.id: folio.prose(term.definition) for term in written}
    words = {term.id: [term.term, unlinked(definitions[term.id])] for term in written}
    script = f"proofbook.terms = {json.dumps(words, ensure_ascii=True)};\n"
    folio.assets[TERMS] = script.encode()
    terms = [
        DefinedTerm(term.id, escape(term.term), [definitions[term.id], *_where(term, draft)])
        for term in written
    ]
    yield Terms(TERMS, terms)


def _where(term: Term, draft: Draft) -> Iterator[Element]:
    """The run that shows a term, and the lessons that use it."""
    folio = draft.folio
    if term.run:
        words = "Shown by the run " + run_link(term.run, folio)
        yield Unfound([words], "pb-aside", "p")
    if pages := draft.gathered.used_in.get(term.id):
        used = Markup(
            'Used in <span class="pb-label" title="counted from the lessons of this book">{}</span>'
            " {}"
        )
        words = used.format(len(pages), "lesson" if len(pages) == 1 else "lessons")
        yield Fold(words, [*_lessons(pages, folio)])


def _lessons(pages: Collection[str], folio: Folio) -> Iterator[Markup]:
    """Links to lessons, by their pages, a paragraph for each topic."""
    link = Markup('<a href="topics/{0}/{1}.html" aria-label="{2}: {3}">{3}</a>')
    for topic in folio.book.topics:
        modes = [mode for mode in topic.lessons if f"topics/{topic.id}/{mode}.md" in pages]
        if modes:
            title = folio.line(topic.file.title)
            links = [link.format(topic.id, m, plain(title), folio.ui["modes"][m]) for m in modes]
            yield Markup("<p>{}<br>{}</p>").format(title, Markup("\n").join(links))

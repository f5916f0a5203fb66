"""The glossary: each term with its definition, a run that shows it, and the lessons that use it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from proofbook.generator.content.book import Book
from proofbook.generator.kinds.glossary.glossary import Glossary
from proofbook.generator.kinds.glossary.words import Term
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Element, Heading, NarrowingField, Unfound
from proofbook.generator.pages.elements.programs import run_link
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.printing.markdown import unlinked

TERMS = "assets/terms.js"  # sources.js knows it


@dataclass(frozen=True)
class DefinedTerm(Element):
    """A term, which has an entry of its own in the search."""

    term: Term
    definition: Markup
    run: Markup | None  # the link of one that shows it
    num_lessons: int  # that use it
    lessons: Sequence[tuple[str, Markup, Sequence[str]]]  # by topic, its title and their modes

    def parts(self) -> Iterator[Element | Markup]:
        """Its name as the heading of its entry, and the definition."""
        yield Heading(3, escape(self.term.term), f"term-{self.term.id}", is_anchored=False)
        yield self.definition


@dataclass(frozen=True)
class Terms(Element):
    """All terms."""

    script: str  # the address of that with their definitions, for popovers of other pages
    terms: Sequence[DefinedTerm]


def sheets(book: Book) -> Iterator[Sheet]:
    """The page of all terms, if there are some."""
    if book.part(Glossary).terms:
        about = "Each term with its definition and, where one exists, a run that shows it."
        yield Sheet("glossary.md", "glossary", "Glossary", about, "content/glossary.yml")


def glossary(draft: Draft) -> Iterator[Element | Markup]:
    """The page of all terms."""
    folio, written = draft.folio, draft.folio.book.part(Glossary).terms
    yield draft.opening(draft.sheet.about)
    link = Markup('<a class="pb-label" href="#term-{}">{}</a>')
    by_letter = groupby(written, key=lambda term: term.term[0].upper())
    letters = [link.format(next(terms).id, letter) for letter, terms in by_letter]
    yield Unfound([Markup(" ").join(letters)], "pb-aside pb-operate", "p")
    yield NarrowingField(Markup("Show terms with:"), ".pb-terms > div", "terms")
    terms = [_defined(term, draft) for term in written]
    words = {of.term.id: [of.term.term, unlinked(of.definition)] for of in terms}
    script = f"proofbook.terms = {json.dumps(words, ensure_ascii=True)};\n"
    folio.assets[TERMS] = script.encode()
    yield Terms(TERMS, terms)


def _defined(term: Term, draft: Draft) -> DefinedTerm:
    folio, pages = draft.folio, draft.gathered.used_in.get(term.id, ())
    definition = folio.prose(term.definition)
    run = run_link(term.run, folio) if term.run else None
    lessons = []
    for topic in folio.book.topics:
        modes = [mode for mode in topic.lessons if f"topics/{topic.id}/{mode}.md" in pages]
        if modes:
            lessons.append((topic.id, folio.line(topic.file.title), modes))
    return DefinedTerm(term, definition, run, len(pages), lessons)

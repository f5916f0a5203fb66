"""The glossary: each term with its definition, a run that shows it, and the lessons that use it."""

import json
from collections.abc import Iterator
from itertools import groupby

from markupsafe import Markup, escape

from proofbook.generator.content.book import Book
from proofbook.generator.kinds.glossary.glossary import Glossary
from proofbook.generator.kinds.glossary.words import Term
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements import element
from proofbook.generator.pages.elements.programs import run_link
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.printing.markdown import unlinked

TERMS = "assets/terms.js"  # sources.js knows it


def sheets(book: Book) -> Iterator[Sheet]:
    """The page of all terms, if there are some."""
    if book.part(Glossary).terms:
        about = "Each term with its definition and, where one exists, a run that shows it."
        yield Sheet("glossary.md", "glossary", "Glossary", about, "content/glossary.yml")


def glossary(draft: Draft) -> Iterator[element.Element | Markup]:
    """The page of all terms."""
    folio, written = draft.folio, draft.folio.book.part(Glossary).terms
    yield draft.opening(draft.sheet.about)
    link = Markup('<a class="pb-label" href="#term-{}">{}</a>')
    by_letter = groupby(written, key=lambda term: term.term[0].upper())
    letters = [link.format(next(terms).id, letter) for letter, terms in by_letter]
    yield element.Block([Markup(" ").join(letters)], "pb-aside pb-operate", "p", is_found=False)
    yield element.narrowing(Markup("Show terms with:"), ".pb-terms > div", "terms")
    words, terms = {}, []
    for term in written:
        definition = folio.prose(term.definition)
        words[term.id] = [term.term, unlinked(definition)]
        terms.append(_defined(term, definition, draft))
    script = f"proofbook.terms = {json.dumps(words, ensure_ascii=True)};\n"
    folio.assets[TERMS] = script.encode()  # for popovers of other pages
    yield element.Made("Terms", script=TERMS, terms=terms)


def _defined(term: Term, definition: Markup, draft: Draft) -> element.Made:
    folio, pages = draft.folio, draft.gathered.used_in.get(term.id, ())
    run = run_link(term.run, folio) if term.run else None
    lessons = []
    for topic in folio.book.topics:
        modes = [mode for mode in topic.lessons if f"topics/{topic.id}/{mode}.md" in pages]
        if modes:
            lessons.append((topic.id, folio.line(topic.file.title), modes))
    entry = element.Heading(3, escape(term.term), f"term-{term.id}", is_anchored=False)
    return element.Made(
        "DefinedTerm", visible=[entry, definition], term=term, definition=definition, run=run,
        num_lessons=len(pages), lessons=lessons,
    )  # fmt: skip

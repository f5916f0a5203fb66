"""The glossary of a book: its file, and its terms in order."""

from functools import cached_property

from proofbook.generator.content.book import Book
from proofbook.generator.content.reading import Loader
from proofbook.generator.kinds.glossary.words import GlossaryFile, Term
from proofbook.generator.website.search import Vocabulary


class Glossary:
    """As written; a book without the file has one without terms."""

    def __init__(self, file: GlossaryFile | None = None) -> None:
        self.file = file or GlossaryFile(terms=[])

    @cached_property
    def terms(self) -> list[Term]:
        """Sorted alphabetically."""
        return sorted(self.file.terms, key=lambda term: term.term.lower())


def vocabulary(book: Book) -> Vocabulary:
    """What the search knows of words."""
    own = book.part(Glossary)
    synonyms = (*own.file.synonyms, *(term.alike for term in own.terms))
    names = {f"glossary.html#term-{term.id}": term.spellings for term in own.terms}
    return Vocabulary(synonyms, own.file.leads, names)


def glossary(loader: Loader, _: bool) -> Glossary:
    """What was read."""
    return Glossary(next((document.model for document in loader.of(GlossaryFile)), None))

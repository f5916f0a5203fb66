"""The glossary of a book: its file, and its terms in order."""

from functools import cached_property

from proofbook.generator.content.reading import Loader
from proofbook.generator.kinds.glossary.words import GlossaryFile, Term


class Glossary:
    """As written; a book without the file has one without terms."""

    def __init__(self, file: GlossaryFile | None = None) -> None:
        self.file = file or GlossaryFile(terms=[])

    @cached_property
    def terms(self) -> list[Term]:
        """Sorted alphabetically."""
        return sorted(self.file.terms, key=lambda term: term.term.lower())


def glossary(loader: Loader, _: bool) -> Glossary:
    """What was read."""
    return Glossary(next((document.model for document in loader.of(GlossaryFile)), None))

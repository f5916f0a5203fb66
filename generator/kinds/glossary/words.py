"""The words of the field, as an author writes them: content/glossary.yml."""

from typing import Annotated

from pydantic import Field, StringConstraints

from proofbook.generator.content.words import Id, Prose, RunPath, Written

Word = Annotated[str, StringConstraints(min_length=2, max_length=60, strip_whitespace=True)]


class Term(Written):
    """One term."""

    id: Id
    """its anchor on the page of the glossary."""
    term: Word
    """as its entry is headed; lessons that use it link the entry."""
    also: list[Word] = []
    """other spellings that lessons use, such as plurals and abbreviations; linked as well."""
    definition: Prose
    """what it means."""
    run: RunPath | None = None
    """the run that shows it; none where no run of the book can."""
    of_this_book: bool = False
    """not a word of the field, so an exported question that uses it explains it."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The term and its other spellings."""
        return (self.term, *self.also)

    @property
    def alike(self) -> tuple[str, ...]:
        """Spellings that are search synonyms; stages such as ZeRO-1 are not."""
        return tuple(spelling for spelling in self.spellings if spelling[-2:-1] != "-")


class GlossaryFile(Written):
    """content/glossary.yml."""

    terms: list[Term]
    """with their definitions."""
    synonyms: list[Annotated[list[Word], Field(min_length=2)]] = []
    """groups of words and phrases that the search takes for one another."""
    leads: dict[str, Annotated[list[Word], Field(min_length=1)]] = {}
    """by the address of a page or a section, such as `plan.html`: words, all of which in a search
    bring it to the front."""

"""The words of the field, as an author writes them: content/glossary.yml."""

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from generator.content.words import Id, Prose, RunPath, Written

_STAGE = re.compile(r"-\d$")
Word = Annotated[str, StringConstraints(min_length=2, max_length=60, strip_whitespace=True)]


class Term(Written):
    """One term.

    Attributes:
        id: its anchor on the page of the glossary.
        term: as its entry is headed; lessons that use it link the entry.
        also: other spellings that lessons use, such as plurals and abbreviations; linked as well.
        definition: what it means.
        run: the run that shows it; none where no run of the book can.
    """

    id: Id
    term: Word
    also: list[Word] = []
    definition: Prose
    run: RunPath | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every way in which lessons write it."""
        return (self.term, *self.also)

    @property
    def alike(self) -> tuple[str, ...]:
        """Those that the search takes for one another; ZeRO-1 and ZeRO-3 are two stages."""
        return tuple(one for one in self.spellings if not _STAGE.search(one))


class GlossaryFile(Written):
    """content/glossary.yml.

    Attributes:
        terms: with their definitions.
        synonyms: groups of words and phrases that the search takes for one another.
        leads: by the address of a page or a section, such as `plan.html`: words, all of which in
            a search bring it to the first place.
        alone: the same for searches that consist of these words alone; little words do not count.
    """

    terms: list[Term]
    synonyms: list[Annotated[list[Word], Field(min_length=2)]] = []
    leads: dict[str, Annotated[list[Word], Field(min_length=1)]] = {}
    alone: dict[str, Annotated[list[Word], Field(min_length=1)]] = {}

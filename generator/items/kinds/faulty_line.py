"""Find the line at fault: the one that the corrected program, which a run executed, lacks there."""

from __future__ import annotations

import difflib
from functools import cached_property, lru_cache

from markupsafe import Markup

from generator.content.errors import ContentError
from generator.content.listed_code import listed, misplaced
from generator.content.quiz import CodeLine, FaultyLine
from generator.evidence.folio import Folio
from generator.items.answers import Answer, against
from generator.items.kinds.kind import Form, ItemError, Key, Kind


class Lines(Kind[FaultyLine]):
    """The lines of a program, of which one was corrected."""

    places = "lines"

    @cached_property
    def key(self) -> Key:
        """The line at fault.

        Raises:
            ItemError: none of them was corrected, more than one was, or one is not in the program.
            ContentError: there is no such program.
        """
        wrong, right = self._programs
        for place, line in enumerate(self.item.lines):
            problem = misplaced(wrong, line.code)
            if problem:
                raise ItemError(("lines", place, "code"), problem)
        gone = _corrected(wrong, right)
        found = [i for i, line in enumerate(self.item.lines) if line.code.strip() in gone]
        if len(found) != 1:
            differ = f"{len(found)} of its lines differ in the corrected program, not one"
            raise ItemError(("lines",), f"item {self.item.id!r}: {differ}")
        return Key(right=tuple(found))

    @property
    def _programs(self) -> tuple[str, str]:
        root = self.evidence.book.root
        try:
            wrong, right = (
                listed(root, one.path, one.object) for one in (self.item.wrong, self.item.right)
            )
        except ValueError as error:
            raise ContentError("", 0, 0, str(error)) from None
        return wrong, right

    def answers(self, folio: Folio) -> tuple[Answer, ...]:
        """The lines as written."""
        return tuple(
            self._explained(line, place, folio) for place, line in enumerate(self.item.lines)
        )

    def _explained(self, line: CodeLine, place: int, folio: Folio) -> Answer:
        words, verdict = folio.ui["item"], self.verdict(place)
        backing = () if verdict == "right" else against(line.misconception, folio)
        text = Markup("<code>{}</code>").format(line.code.strip())
        word = words["fault" if verdict == "right" else "sound"]
        return Answer(text, folio.line(line.why), verdict, word, place, backing)

    def shown_order(self) -> tuple[int, ...]:
        """As written, which is the order of the program."""
        return tuple(range(self.num_places))

    def form(self, folio: Folio, explained: tuple[Answer, ...]) -> Form:
        """Nothing beside the program, whose lines a reader picks from."""
        return Form()


@lru_cache(maxsize=256)
def _corrected(wrong: str, right: str) -> frozenset[str]:
    """The lines of a program, without their indents, that the corrected one lacks there."""
    before, after = ([line.strip() for line in text.splitlines()] for text in (wrong, right))
    return frozenset(line[2:] for line in difflib.ndiff(before, after) if line.startswith("- "))

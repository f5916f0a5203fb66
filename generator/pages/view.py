"""What views give to templates: names with what a page shows under each, and rows of tables."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Self

from markupsafe import Markup

from generator.printing.folio import interface_words

Row = Sequence[Markup | str]  # the first cell heads it


class View(SimpleNamespace):
    """Attributes for one part of a page; the function that makes it documents them."""

    def copy_with(self, **changes: object) -> Self:
        """A copy with some attributes changed."""
        return type(self)(**{**vars(self), **changes})


def label(text: str) -> Markup:
    """Words or a number without provenance."""
    return Markup('<span class="pb-label">{}</span>').format(text)


def counted(number: int | str) -> Markup:
    """A number that the generator counted, with a tooltip that says so."""
    return Markup('<span class="pb-label" title="{}">{}</span>').format(
        interface_words()["counted"], number
    )

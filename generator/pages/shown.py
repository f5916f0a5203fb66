"""What views give to templates: names and what a page shows under each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Self


class Shown(SimpleNamespace):
    """One thing of a page; the function that makes it says what its template reads."""

    def but(self, **changes: object) -> Self:
        """The same, with some of it otherwise."""
        return type(self)(**{**vars(self), **changes})

"""Blind readings as they are kept: topics/<topic>/readings.yml for items, readings.yml for claims.

A *reading* is somebody who saw a question, its options and the rules that decide them, without the
key, and chose; or who saw a claim's rule with its numbers, and said whether it entails the claim's
sentence. `python -m generator blind --record` writes these files. Each reading holds the digest of
what was read (`generator/items/rules.py`), so that a changed rule asks for another one.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from generator.content.former_digests import Digest
from generator.content.words import Id, Written

Day = Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")]
Initials = Annotated[str, StringConstraints(pattern=r"^\w[\w .-]{0,39}$")]
Doubt = Annotated[str, StringConstraints(min_length=1, max_length=600)]


class Reading(Written):
    """One reading that agreed: of what, by whom, on which day.

    Attributes:
        rule: the digest of what was read.
        doubt: what the reader doubted all the same.
    """

    rule: Digest
    by: Initials
    read_on: Day
    doubt: Doubt | None = None


class ItemReading(Reading):
    """A reader who chose the key: the positions that it has in the file, from 1."""

    choice: list[Annotated[int, Field(ge=1)]]


class ItemReadingsFile(Written):
    """content/topics/<topic>/readings.yml.

    Where it is `complete`, a strict build asks for a reading of each of the topic's items.
    """

    complete: bool = False
    items: dict[Id, ItemReading] = {}


class ClaimReadingsFile(Written):
    """content/readings.yml: readers who found that a claim's rule entails its sentence.

    Where it is `complete`, a strict build asks for a reading of each claim.
    """

    complete: bool = False
    claims: dict[Id, Reading] = {}

"""The digests that items once had, so that answers kept with them stay valid: former_digests.yml.

A reader's answers are kept with a digest of the item (`generator/items/digests.py`). What the
digest covers has changed once. It may change again, where an expression is renamed and the question
stays the same. This file then holds the item's former digests beside the digest that it has now. A
line counts only while that digest is the item's: an item that has become another question accepts
no old answer.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from generator.content.words import Id, Written

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class FormerDigests(Written):
    """One item: the digest that it has now, and those that answers were kept with before."""

    digest: Digest
    former: Annotated[list[Digest], Field(min_length=1)]


class FormerDigestsFile(Written):
    """content/former_digests.yml: by the id of the item."""

    items: dict[Id, FormerDigests]

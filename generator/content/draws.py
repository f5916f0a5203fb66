"""`draws:`: settings that an item draws from stated sets, so that it can be asked again.

In: the sets, and the id of the item, which is the seed. Out: the draws in the order in which they
are asked, and what the names of one stand for in the item's texts. `item_checks.py` of questions
tries the key and the wrong answers on each draw.
"""

import math
import re
from hashlib import sha256
from itertools import product
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from proofbook.generator.content.claim import SEVERAL
from proofbook.generator.content.words import ClaimId, Name, PerRun, Written
from proofbook.runners.core.trace.fields import SIZES, THOUSANDS, TIMES

MOST, MOST_TRIED = 20_000, 500
NUM_ASKED = 6  # of them a page shows the first, and Recall asks all in turn
CALL = "drawn("  # what a drawn number is in an expression; no author writes it
_CALLED = re.compile(r"drawn\('(\w+)', [^()]+\)")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(?: (\S+))?")
_UNITS: dict[str, tuple[str, float]] = {  # a kind of number, and the size of its unit
    "%": ("share", 0.01), "million": ("plain", 1e6), "billion": ("plain", 1e9),
    **{name: ("bytes", size) for name, size in SIZES},
    **{f"{name}B/s": ("bytes/s", size) for name, size in THOUSANDS},
    **{name: ("seconds", size) for name, size in TIMES},
}  # fmt: skip

Quantity = int | float | Annotated[str, StringConstraints(min_length=1, max_length=40)]
Draw = dict[str, Quantity]


class Draws(Written):
    """Settings that are drawn, and the law that gives the key.

    The build tries all draws, or 500 of them by the item's id.
    """

    settings: dict[Name, Annotated[list[Quantity], Field(min_length=1)]]
    """the sets, by the names that the texts print and the expressions calculate with. A number, or
    one with its unit: `64 MiB`, `20 µs`, `12 GB/s`, `1.5 billion`, `25 %`."""
    domain: Annotated[list[str], SEVERAL] = []
    """what must be true of every draw, as in `stages <= layers`: where the law holds."""
    law: ClaimId
    """the law behind the key: with the settings of its run, the key is what it predicts."""
    measured_with: dict[Name, PerRun]
    """each setting of the key as the run of the law had it: `{ranks: run.world_size}`."""

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        for values in self.settings.values():
            _ = [*map(parsed, values)]
        if not 1 < math.prod(map(len, self.settings.values())) <= MOST:
            raise ValueError(f"settings: give from two to {MOST:,} draws")
        if unknown := self.measured_with.keys() - self.settings.keys():
            raise ValueError(f"measured_with: {min(unknown)!r} does not stand under settings:")
        return self

    def shuffled(self, seed: str) -> list[Draw]:
        """Every draw, at most MOST_TRIED, in an order seeded by the item's id."""
        draws = product(*self.settings.values())
        order = sorted(draws, key=lambda draw: sha256(f"{seed} {draw}".encode()).digest())
        return [dict(zip(self.settings, draw, strict=True)) for draw in order[:MOST_TRIED]]


def parsed(quantity: Quantity) -> tuple[int | float, str]:
    """(number in base units, kind: plain, bytes, …) of 3 or `"3 MiB"`; ValueError if malformed."""
    number, kind = quantity, "plain"
    if isinstance(number, str):
        match = _QUANTITY.fullmatch(number)
        if match and not match[2]:
            raise ValueError(f"{number!r} is text; a number without a unit has no quotes")
        if not match or match[2] not in _UNITS:
            raise ValueError(f"{number!r} is no number with one of the units {', '.join(_UNITS)}")
        kind, size = _UNITS[match[2]]
        number = float(match[1]) * size
    is_whole = number == int(number) and kind in ("plain", "bytes")
    return int(number) if is_whole else number, kind


def as_written(text: str) -> str:
    """Replace `drawn(…)` in a message by the name that the author wrote."""
    return _CALLED.sub(r"\1", text)


def short_names(draw: Draw) -> dict[str, str]:
    """The `drawn(…)` expression for each name of a draw."""
    return {name: f"{CALL}{name!r}, {value!r})" for name, value in draw.items()}

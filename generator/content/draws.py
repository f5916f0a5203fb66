"""`draws:`: settings that an item draws from stated sets, so that it can be asked again.

In: the sets, and the id of the item, which is the seed. Out: the draws in the order in which they
are asked, and what the name of each setting stands for in the item's texts. The sets, the order and
the texts need no run; `items/draws.py` tries the key and the wrong answers on each draw.
"""

import math
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import count, islice
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from generator.content.words import ClaimId, Name, PerRun, Written
from runners.traces.fields import SIZES, TIMES

MOST_TRIED = 500
NUM_ASKED = 6  # of them a page shows the first, and Recall asks all in turn
CALL = "drawn("  # what a drawn number is in an expression; no author writes it
_CALLED = re.compile(r"drawn\('(\w+)', [^()]+\)")
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(?: (\S+))?")
_UNITS: dict[str, tuple[str, float]] = {  # what a set may be in: a kind of number, and a size
    "": ("plain", 1), "%": ("share", 0.01), "million": ("plain", 1e6), "billion": ("plain", 1e9),
    **{name: ("bytes", size) for name, size in SIZES},
    **{f"{name}/s": ("bytes_per_second", size) for name, size in SIZES},
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
    one with its unit: `64 MiB`, `20 µs`, `12 GiB/s`, `1.5 billion`, `25 %`."""
    domain: list[str] = []
    """what is true of each draw, as in `stages <= layers`: where the law holds."""
    law: ClaimId
    """the law behind the key: with the settings of its run, the key is what it predicts."""
    measured_with: dict[Name, PerRun]
    """each setting of the key as the run of the law had it: `{ranks: run.world_size}`."""

    @model_validator(mode="after")
    def _of_several(self) -> Self:
        for name, values in self.settings.items():
            for one in values:
                try:
                    parsed(one)
                except ValueError as error:
                    raise ValueError(f"settings: {name}: {error}") from None
            if len({*map(str, values)}) < len(values):
                raise ValueError(f"settings: {name} has a number twice")
        if math.prod(map(len, self.settings.values())) < 2:
            raise ValueError("settings: a single draw; give a setting more than one number")
        if unknown := self.measured_with.keys() - self.settings.keys():
            raise ValueError(f"measured_with: {min(unknown)!r} does not stand under settings:")
        return self

    def tried(self, seed: str) -> list[Draw]:
        """All draws, or as many as are tried; the first ones are asked."""
        total = math.prod(map(len, self.settings.values()))
        by_seed = (_number(f"{seed} {n}") for n in count())
        if total <= MOST_TRIED:
            order = dict(zip(range(total), by_seed, strict=False))
            return [self._draw(n) for n in sorted(order, key=order.__getitem__)]
        return [self._draw(n) for n in islice(_distinct(n % total for n in by_seed), MOST_TRIED)]

    def _draw(self, number: int) -> Draw:
        found: Draw = {}
        for name, values in self.settings.items():
            number, place = divmod(number, len(values))
            found[name] = values[place]
        return found


def parsed(quantity: Quantity) -> tuple[int | float, str]:
    """A number in base units, and its kind: plain, bytes, bytes_per_second, seconds or share.

    Raises:
        ValueError: it is no number, or its unit is not known.
    """
    found = _QUANTITY.fullmatch(str(quantity))
    unit = found and _UNITS.get(found[2] or "")
    if not found or not unit:
        known = ", ".join(filter(None, _UNITS))
        raise ValueError(f"{quantity!r} is no number, alone or with one of the units {known}")
    number = float(found[1]) * unit[1]
    is_whole = number.is_integer() and unit[0] in ("plain", "bytes")
    return int(number) if is_whole else number, unit[0]


def as_written(text: str) -> str:
    """A message with the names that an author wrote in the place of drawn numbers."""
    return _CALLED.sub(r"\1", text)


def short_names(draw: Mapping[str, Quantity]) -> dict[str, str]:
    """What the names of a draw stand for in expressions."""
    return {name: f"{CALL}{name!r}, {value!r})" for name, value in draw.items()}


def in_words(draw: Mapping[str, Quantity]) -> str:
    """A draw as messages name it."""
    return "draw " + ", ".join(f"{name} = {value}" for name, value in draw.items())


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def _distinct(numbers: Iterator[int]) -> Iterator[int]:
    seen: set[int] = set()
    for one in numbers:
        if one not in seen:
            seen.add(one)
            yield one

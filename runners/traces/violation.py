"""A statement of a trace that cannot be true, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Violation:
    """A statement of a trace that cannot be true.

    Attributes:
        path: of the field, from the whole trace.
        message: what is wrong.
    """

    path: Place
    message: str

    @property
    def field(self) -> str:
        """The path as messages write it."""
        return ".".join(str(part) for part in self.path)


def unless_rank(place: Place, rank: int | None, world_size: int) -> Iterator[Violation]:
    """A violation where a run of so many ranks has no such rank; null stands for every rank."""
    if rank is not None and not 0 <= rank < world_size:
        yield Violation(place, f"there is no rank {rank} among {world_size}")


def is_each_rank(ranks: list[int], world_size: int) -> bool:
    """Whether these are all ranks of a run, each once."""
    return len(ranks) == world_size and sorted(ranks) == list(range(world_size))

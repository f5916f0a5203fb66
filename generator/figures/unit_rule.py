"""What a rank of FSDP does in a step, unit by unit, and what it holds after each event: no clock.

Each event takes one unit of time. The order is that of `fully_shard`: a unit is gathered before it
computes, in backward while the unit behind it still computes, and its gradient is reduced while the
next one is computed. The last unit belongs to the root, which stays whole from forward on.
"""

from __future__ import annotations

from collections.abc import Sequence

from generator.figures.schedule_rule import Action, Kind

NUM_MOMENTS = 2  # of Adam, for each parameter
# Parts of what is held, from shards to what is whole.
PARTS = ("optimizer", "parameters", "gradients", "whole_parameters", "whole_gradients", "copies")


class Step:
    """A step with Adam, and its events.

    Attributes:
        rows: the actions of each unit, the root's last.
        held: bytes of each of `PARTS` at the end of each event.
    """

    def __init__(self, sizes: Sequence[int], num_ranks: int, *, frees: bool) -> None:
        """Take the step.

        Args:
            sizes: bytes of the parameters of each unit, the root's last.
            num_ranks: over which every unit is sharded.
            frees: whether units but the root are freed after forward, and gathered again.
        """
        self.rows: list[list[Action]] = [[] for _ in sizes]
        self.held: list[dict[str, float]] = []
        self._sizes, self._num_ranks = sizes, num_ranks
        self._whole: dict[int, int] = {}  # since when a unit is whole
        self._gradients: set[int] = set()  # of which units they are whole
        self._sent: int | None = None  # the unit that was gathered or reduced last
        self._reduced_bytes = 0  # of gradients that are shards again
        self._forward(len(sizes) - 1, frees=frees)
        self._backward(len(sizes) - 1, frees=frees)

    @property
    def peak_bytes(self) -> float:
        """The most bytes held at the end of an event."""
        return max(sum(one.values()) for one in self.held)

    def _forward(self, root: int, *, frees: bool) -> None:
        self._gather(root)
        for unit in range(root):
            self._gather(unit)
            self._event("forward", unit)
            if frees:
                self._free(unit)
        self._event("forward", root)
        self._sent = None

    def _backward(self, root: int, *, frees: bool) -> None:
        for unit in range(root, -1, -1):
            if frees and unit:
                self._event("gather", unit - 1)  # into its place at once
            self._gradients.add(unit)
            self._event("backward", unit)
            if unit != root:
                self._reduce(unit)
        self._reduce(root)

    def _gather(self, unit: int) -> None:
        """What was gathered stays in its buffer as well, until the next unit is."""
        self._sent = unit
        self._event("gather", unit)

    def _reduce(self, unit: int) -> None:
        """A gradient is copied to be reduced, and the copy stays until the next one is."""
        self._free(unit)
        self._gradients.remove(unit)
        self._sent = unit
        self._reduced_bytes += self._sizes[unit]
        self._event("reduce", unit)

    def _free(self, unit: int) -> None:
        since, now = self._whole.pop(unit), len(self.held)
        self.rows[unit].insert(0, Action("whole", "", since, now))

    def _event(self, kind: Kind, unit: int) -> None:
        now, sizes = len(self.held), self._sizes
        if kind == "gather":
            self._whole[unit] = now
        self.rows[unit].append(Action(kind, "", now, now + 1))
        model = sum(sizes) / self._num_ranks
        values = (
            NUM_MOMENTS * model,
            model,
            self._reduced_bytes / self._num_ranks,
            sum(sizes[one] for one in self._whole),
            sum(sizes[one] for one in self._gradients),
            0 if self._sent is None else sizes[self._sent],
        )
        self.held.append(dict(zip(PARTS, values, strict=True)))

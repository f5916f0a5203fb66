"""Which ranks hold a module, and which of them share a batch, as meshes and wrappers say.

In: what the ranks recorded. Out: a `Layout` for each module: groups of ranks that train on the
same samples, the first of which replays them, and whole tensors from the parts of all ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from runners.verify.records import Forward, Part, RootRecord, Seen, Update, assembled, mapped

Tensors = Mapping[str, Tensor | None]  # by name


@dataclass
class Layout:
    """The ranks of one module.

    Attributes:
        key: of the module.
        records: of the ranks that hold it.
        groups: ranks that share their batches; there are as many groups as there are batches.
    """

    key: str
    records: dict[int, RootRecord]
    groups: list[list[int]]

    @property
    def first(self) -> RootRecord:
        """The record of the first rank."""
        return self.records[self.view]

    @property
    def view(self) -> int:
        """The first rank."""
        return min(self.records)

    @property
    def leaders(self) -> list[int]:
        """One rank of each group."""
        return [group[0] for group in self.groups]

    @property
    def num_updates(self) -> int:
        """The updates that all ranks have."""
        return min(len(one.updates) for one in self.records.values())

    @property
    def is_tensor_parallel(self) -> bool:
        """Whether ranks share batches."""
        return any(len(group) > 1 for group in self.groups)

    @property
    def has_later(self) -> bool:
        """Whether all ranks have recorded one step after the last of these updates."""
        records = self.records.values()
        later = {one.later[0].number if one.later else None for one in records}
        return len(later) == len({len(one.updates) for one in records}) == 1 and None not in later

    def update(self, rank: int, number: int) -> Update:
        """An update of one rank; after the last one, what was seen later."""
        record = self.records[rank]
        return record.updates[number] if number < len(record.updates) else record.later[0]

    def whole(self, number: int, rank: int, held: str) -> dict[str, Tensor | None]:
        """Whole tensors by name, as a rank sees them; None where a part is missing.

        Args:
            number: of the update.
            rank: whose view.
            held: the field of `Update` that has their parts.
        """
        chosen = {r: getattr(self.update(r, number), held) for r in self.records}
        found: dict[str, Tensor | None] = {}
        for name, own in chosen[rank].items():
            parts = {r: one[name] for r, one in chosen.items() if one.get(name) is not None}
            ranks = own.spec.ranks if own is not None and own.spec else [rank]
            is_whole = own is not None and all(r in parts for r in ranks)
            found[name] = assembled(parts, rank) if is_whole else None
        return found

    def views(self) -> Iterator[int]:
        """One rank of each set of ranks that together hold the whole module."""
        seen: set[tuple[int, ...]] = set()
        for rank, record in sorted(self.records.items()):
            ranks = {rank}
            for one in record.updates[0].parameters.values() if record.updates else ():
                ranks |= set(one.spec.ranks) if one.spec else set()
            if tuple(sorted(ranks)) not in seen:
                seen.add(tuple(sorted(ranks)))
                yield rank

    def passes(self, number: int, rank: int) -> list[Forward]:
        """The forward passes of a rank, with what its peers hold parts of put together."""
        peers = {r: self.update(r, number).forwards for r in self.records}
        return [
            _joined({r: passes[index] for r, passes in peers.items() if len(passes) > index}, rank)
            for index in range(len(peers[rank]))
        ]


def _joined(peers: Mapping[int, Forward], rank: int) -> Forward:
    def join(choose: Callable[[Forward], Part | None]) -> Part:
        part = choose(peers[rank])
        assert part is not None
        if part.spec is None:
            return part
        parts = {r: held for r, one in peers.items() if (held := choose(one)) is not None}
        return Part(assembled(parts, rank))

    own = peers[rank]
    given = [join(lambda one, i=i: one.tensors[i]) for i in range(len(own.tensors))]  # type: ignore[misc]
    return dataclasses.replace(
        own,
        arguments=mapped(own.arguments, lambda _: given.pop(0)),
        outputs=[join(lambda one, i=i: one.outputs[i]) for i in range(len(own.outputs))],  # type: ignore[misc]
        gradients={i: join(lambda one, i=i: one.gradients.get(i)) for i in own.gradients},  # type: ignore[misc]
    )


def layouts(seen: Mapping[int, Seen]) -> list[Layout]:
    """The layout of each module that some rank trains."""
    keys = dict.fromkeys(key for one in seen.values() for key in one.roots)
    found = []
    for key in keys:
        records = {r: one.roots[key] for r, one in sorted(seen.items()) if key in one.roots}
        found.append(Layout(key, records, _groups(records)))
    return found


def _groups(records: Mapping[int, RootRecord]) -> list[list[int]]:
    """Ranks by the place that they have among those with other samples."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, record in records.items():
        parameters = (one for update in record.updates[:1] for one in update.parameters.values())
        spec = next((one.spec for one in parameters if one.spec), None)
        place = (rank,) if spec is None else tuple(spec.ranks)
        if record.data_ranks is not None and rank in record.data_ranks:
            place = (-1, record.data_ranks.index(rank))
        groups.setdefault(place, []).append(rank)
    return list(groups.values())

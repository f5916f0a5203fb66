"""Experts that ranks hold under names of their own, in the names of the unsharded module.

In: the records of all ranks of a module, and the parameters' names in the unsharded one. Out: the
same records, in which every rank has every parameter: what one rank alone holds is empty on the
others. A rank may hold its experts under their numbers of all (`experts.3`) or, as its own first,
second and so on, under numbers from zero (`experts.0`), in the order of the ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping

from proofbook.companions.verify.records import DistributedModule, LocalPart, RootRecord

PARTS = (  # attributes of `UpdateRecord`, by parameter
    "parameters", "after", "after_backward", "at_sum", "before_clipping", "at_step", "carried",
)  # fmt: skip


def share_experts(module: DistributedModule, names: Collection[str]) -> dict[str, int]:
    """Give all ranks all names, in place; returns those that one rank alone holds, with the rank.

    It changes nothing where experts are divided in another way.
    """
    first, *others = (record.updates[0].parameters.keys() for record in module.records.values())
    if all(own == first for own in others):
        for place, record in enumerate(module.records.values()):
            _number(record, _numbers_of_all(first, names, place, len(module.records)))
    owners = {
        name: [r for r, own in module.records.items() if name in own.updates[0].parameters]
        for name in names
    }
    owned = {name: ranks[0] for name, ranks in owners.items() if len(ranks) == 1}
    if any(len(ranks) not in (1, len(module.records)) for ranks in owners.values()):
        return {}
    for name, owner in owned.items():
        _lend(name, owner, module)
    for update in module.updates if owned else ():
        for attribute in PARTS:  # in one order on all ranks
            parts = getattr(update, attribute)
            setattr(update, attribute, {name: parts[name] for name in names if name in parts})
    return owned


def _numbers_of_all(
    held: Collection[str], names: Collection[str], place: int, num_ranks: int
) -> Mapping[str, Mapping[str, str]]:
    """For each list of which a rank holds an equal share: the numbers of all by its own."""
    own, all_numbers = (defaultdict[str, set[int]](set) for _ in range(2))
    for known, numbers in (held, own), (names, all_numbers):
        for name in known:
            for match in re.finditer(r"(?<=\.)\d+(?=\.)", name):
                numbers[name[: match.start()]].add(int(match[0]))
    return {
        path: {str(n): str(place * len(mine) + n) for n in sorted(mine)}
        for path, mine in own.items() if len(mine) * num_ranks == len(all_numbers[path])
    }  # fmt: skip


def _number(record: RootRecord, numbers: Mapping[str, Mapping[str, str]]) -> None:
    """Give a rank's parameters the numbers that they have in the unsharded module."""

    def new(name: str) -> str:
        for path, of_all in numbers.items():
            if name.startswith(path):
                number, dot, rest = name.removeprefix(path).partition(".")
                return f"{path}{of_all.get(number, number)}{dot}{rest}"
        return name

    record.unowned = [*map(new, record.unowned)]
    for update in (*record.updates, *record.later):
        for attribute in (*PARTS, "settings", "state"):
            renamed = {new(name): part for name, part in getattr(update, attribute).items()}
            setattr(update, attribute, renamed)
        update.frozen, update.outside = [*map(new, update.frozen)], [*map(new, update.outside)]
        for clip in update.clips:
            clip.names = [(key, new(name)) for key, name in clip.names]


def _lend(name: str, owner: int, module: DistributedModule) -> None:
    """Give all other ranks empty parts of what one holds, and the settings of its optimizer."""
    peers = (record.updates for rank, record in module.records.items() if rank != owner)
    for update, *others in zip(module.records[owner].updates, *peers, strict=False):
        for attribute in PARTS:
            parts = getattr(update, attribute)
            for other in others if name in parts else ():
                part = parts[name] and LocalPart(parts[name].local.new_empty(0))
                getattr(other, attribute)[name] = part
        for other in others:
            other.settings |= {name: update.settings[name]} if name in update.settings else {}
            other.state |= {k: v for k, v in update.state.items() if k.startswith(f"{name} ")}
            other.frozen += [name] * (name in update.frozen)

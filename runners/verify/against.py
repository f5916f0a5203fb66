"""Knows a module that ranks divide by hand, from the unsharded module that `--against` names.

In: `module:function`, and what all ranks recorded. Out: the same records, in which each part has
its place (`Spec`), as if a mesh divided the module; and replays of the unsharded module. Shapes say
how parameters are split; inputs and values say which ranks hold one module together, or none do.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import torch
from torch import Tensor, nn

from runners.judging.rounding import are_apart
from runners.system.errors import FixableError, first_line
from runners.verify.intercept import INSIDE
from runners.verify.records import (
    Forward,
    Layout,
    Part,
    RootRecord,
    Seen,
    Spec,
    Update,
    layouts,
    mapped,
)
from runners.verify.replay import Replayed, replay_pass, replayed, unsharded
from runners.verify.roots import digest

_STATED = re.compile(r"([^=\s]+)=(\d+)(?:/([1-9]\d*))?")
_FUSED = re.compile(r"qkv|query_key_value|in_proj|c_attn|kv_|_kv|gate_up|w13|fused", re.IGNORECASE)
_HELD = ("parameters", "after", "after_backward", "at_sum", "before_clipping", "at_step", "carried")
_Split = tuple[int, int]  # an axis, and the number of blocks of which each is split along it
_Tensors = Mapping[str, Tensor]


class UnreadError(Exception):
    """How a module is divided cannot be read, and why."""


class Against:
    """The unsharded module.

    Args:
        given: `module:function`; the module lies beside the script, or can be imported.
        stated: `NAME=DIM` or `NAME=DIM/BLOCKS`; names may have `*`.
        script: the one that is watched.

    Attributes:
        modules: the unsharded module, by the name of the script's in reports.
        says: how it is split, in one line.

    Raises:
        FixableError: there is no such module, or a split cannot be understood.
    """

    def __init__(self, given: str, stated: Iterable[str], script: Path) -> None:
        self._given, self._stated = given, dict[str, _Split]()
        for one in stated:
            match = _STATED.fullmatch(one)
            if match is None:
                raise FixableError(f"--split must be NAME=DIM or NAME=DIM/BLOCKS, not {one}")
            self._stated[match[1]] = (int(match[2]), int(match[3] or 1))
        self._inputs = self._stated.pop("inputs", None)
        match = re.fullmatch(r"(?!__main__)(\w+)[\w.]*:\w+", given)
        if match is None:
            raise FixableError(f"--against must be module:function, not {given}")
        beside = PathFinder.find_spec(match[1], [str(script.resolve().parent)])
        if not (beside or importlib.util.find_spec(match[1])):
            raise FixableError(f"--against {given}: no module {match[1]} beside {script.name}")
        self.modules, self.says = dict[str, nn.Module](), ""
        self._splits: dict[str, _Split] = {}
        self._groups: list[list[int]] = []

    def divide(self, seen: Mapping[int, Seen]) -> None:
        """Give the recorded parts of the module their places.

        Raises:
            FixableError: the function fails, or its module has other names or shapes.
        """
        if not (found := [one for one in layouts(seen) if one.num_updates]):
            return
        whole = self._load()
        names = {name for name, _ in whole.named_parameters()}
        layout = max(found, key=lambda one: len(names & one.first.updates[0].parameters.keys()))
        first = {rank: one.updates[0] for rank, one in layout.records.items()}
        self._check_names(layout.key, names, first)
        try:
            self._groups = _groups(first, self._read(whole, first), is_stated=bool(self._inputs))
            for group in self._groups:
                for rank in group:
                    self._place(layout.records[rank], whole, group)
                self._share([layout.records[rank] for rank in group])
            self.modules = {layout.key: whole}
            self.says = f"split of {layout.key}: {self._said(len(names))}"
        except UnreadError as why:
            for update in (update for one in layout.records.values() for update in one.updates):
                update.by_hand = [f"it is divided among ranks by hand; {why}"]

    def _load(self) -> nn.Module:
        name, _, function = self._given.partition(":")
        try:
            found = getattr(importlib.import_module(name), function)()
            says = f"it returns {type(found).__name__}, which is no nn.Module"
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it raises is told
            found, says = None, f"{type(error).__name__}: {first_line(error)}"
        if not isinstance(found, nn.Module):
            raise FixableError(f"--against {self._given}: {says}")
        return found

    def _check_names(self, key: str, names: set[str], first: Mapping[int, Update]) -> None:
        for pattern in self._stated:
            if not fnmatch.filter(names, pattern):
                raise FixableError(f"--split {pattern}: the unsharded module has no such parameter")
        for rank, update in first.items():
            for name in sorted(names ^ update.parameters.keys()):
                says = f"{key} has no {name}" if name in names else f"only {key} has {name}"
                raise FixableError(f"--against {self._given}: {says} (on rank {rank})")

    def _read(self, whole: nn.Module, first: Mapping[int, Update]) -> int:
        """How each parameter is split that is; among how many ranks."""
        counts, ranks = dict[int, str](), len(first)
        for name, shape in ((name, one.shape) for name, one in whole.named_parameters()):
            parts = [one.parameters[name] for one in first.values()]
            local, apart = parts[0].local.shape, _apart(shape, parts[0].local.shape)
            stated = [one for like, one in self._stated.items() if fnmatch.fnmatch(name, like)]
            own = stated[-1:] or [(axis, 1) for axis in apart]
            is_even = apart == [axis for axis, _ in own][:1] and all(
                local[a] % n == 0 < local[a] and local[a] * ranks % shape[a] == 0 for a, n in own
            )
            if not is_even or any(one.spec or one.local.shape != local for one in parts):
                says = f"{name} is {tuple(local)} on rank {min(first)} and {tuple(shape)} unsharded"
                raise FixableError(f"{says}: no even split among ranks explains that")
            for axis, blocks in own:
                self._splits[name] = (axis, blocks)
                counts[shape[axis] // local[axis]] = name
                if not stated and _FUSED.search(name):
                    raise UnreadError(f"state the blocks of {name} (--split {name}=DIM/BLOCKS)")
        if len(counts) > 1:
            raise UnreadError(f"parameters have different numbers of parts ({counts})")
        return min(counts, default=1)

    def _place(self, record: RootRecord, whole: nn.Module, group: Sequence[int]) -> None:
        """Give parts their places, and leave out what the unsharded module knows."""
        record.data_ranks, mesh, specs = None, torch.tensor(group), {}
        for name, one in whole.named_parameters():
            split = self._splits.get(name)
            placement = ("blocks", *split) if split else ("replicate",)
            specs[name] = Spec(tuple(one.shape), mesh, (placement,))
        for update in (*record.updates, *record.later):
            for held in _HELD:
                parts = getattr(update, held).items()
                setattr(update, held, {n: p and Part(p.local, specs[n]) for n, p in parts})
            own = update.buffers
            update.buffers = {
                n: own[n] if n in own and own[n].local.shape == one.shape else Part(one.detach())
                for n, one in whole.named_buffers()
            }
            update.by_hand = [one for one in update.by_hand if not one.endswith(INSIDE)]

    def _share(self, records: Sequence[RootRecord]) -> None:
        """Ranks that have parts of a batch have its inputs, and its losses, together."""
        for updates in zip(*(one.updates for one in records), strict=False):
            passes = list(zip(*(one.forwards for one in updates), strict=False))
            for forwards in passes if self._inputs else ():
                for one in forwards:
                    one.digests = forwards[0].digests
            if any(map(_unequal, passes)):
                losses = [one for update in updates for one in update.losses]
                for update in updates:
                    update.losses = losses

    def _said(self, number: int) -> str:
        named = {re.sub(r"\d+", "*", name): split for name, split in self._splits.items()}
        listed = [f"{name} {axis}" + f"/{n}" * (n > 1) for name, (axis, n) in named.items()]
        listed += [f"inputs {self._inputs[0]}"] if self._inputs else []
        ranks = " and ".join("-".join(map(str, one)) for one in self._groups)
        whole = number - len(self._splits)
        return f"{', '.join(listed) or 'nothing'} over ranks {ranks}; {whole} whole"

    def replayed(
        self, layout: Layout, number: int, rank: int, parameters: _Tensors, buffers: _Tensors
    ) -> Replayed:
        """Replay what a rank recorded, with whole inputs and outputs, in the unsharded module."""
        whole, passes = self.modules[layout.key], []
        group = next(one for one in self._groups if rank in one)
        try:
            for peers in zip(*(layout.update(r, number).forwards for r in group), strict=False):
                own = dataclasses.replace(peers[group.index(rank)])
                if len(own.training) != len(list(whole.modules())):
                    own.training = own.training[:1] * len(list(whole.modules()))
                if self._inputs:
                    columns = zip(*(one.tensors for one in peers), strict=True)
                    given = [_joined(column, self._inputs[0]) for column in columns]
                    own.arguments = mapped(own.arguments, lambda _, g=given: g.pop(0))  # type: ignore[misc]
                if _unequal(peers):
                    clone = unsharded(whole, parameters, buffers, is_exact=False)
                    _join_outputs(own, peers, replay_pass(clone, own, {}, is_exact=False))
                passes.append(own)
        except Exception as error:  # noqa: BLE001 whatever it is, the module is not compared
            return Replayed(failed=f"its replay failed: {first_line(error)}")
        return replayed(whole, parameters, buffers, passes, layout.update(rank, number).frozen)


def _groups(first: Mapping[int, Update], count: int, *, is_stated: bool) -> list[list[int]]:
    """Ranks that hold one module together, in the order of its `count` parts."""
    digests = {r: str([f.digests for f in one.forwards]) for r, one in first.items()}
    held = {r: str([digest(p.local) for p in u.parameters.values()]) for r, u in first.items()}
    inputs, values = (  # ranks that have the same
        [[r for r in keys if keys[r] == one] for one in dict.fromkeys(keys.values())]
        for keys in (digests, held)
    )
    if count == 1 and not is_stated:
        return inputs if len({*map(len, inputs)}) == 1 else [[r] for r in first]
    count = len(first) if count == 1 else count
    is_known = len(values) == count and len({*map(len, values)}) == 1  # who holds which part
    place = {r: index if is_known else r for index, same in enumerate(values) for r in same}
    columns = [[*one] for one in zip(*values, strict=True)] if is_known else []
    for found in (inputs, columns, [list(first)]):
        if found and all(len({place[r] for r in one}) == count == len(one) for one in found):
            if is_stated or all(any({*one} <= {*same} for same in inputs) for one in found):
                return [sorted(one, key=place.__getitem__) for one in found]
            says = (
                f"ranks {found[0]} hold it together, but have different inputs: other batches, or"
            )
            raise UnreadError(f"{says} parts of one (then state --split inputs=DIM)")
    raise UnreadError(f"inputs and values do not say which {count} of the ranks hold it together")


def _apart(whole: Sequence[int], local: Sequence[int]) -> list[int]:
    """The axes in which shapes differ."""
    if len(whole) != len(local):
        return [-1]
    return [axis for axis, (a, b) in enumerate(zip(whole, local, strict=True)) if a != b]


def _unequal(forwards: Sequence[Forward]) -> dict[int, list[Tensor]]:
    """The outputs that ranks do not have alike, by their number."""
    columns = [
        [p.local for p in parts] for parts in zip(*(f.outputs for f in forwards), strict=False)
    ]
    return {i: one for i, one in enumerate(columns) if any(are_apart(one[0], each) for each in one)}


def _joined(parts: Sequence[Part], axis: int) -> Part:
    """What ranks have parts of; what is equal on all of them is whole already."""
    is_whole = not any(are_apart(parts[0].local, one.local) for one in parts)
    return parts[0] if is_whole else Part(torch.cat([one.local for one in parts], axis))


def _join_outputs(own: Forward, peers: Sequence[Forward], whole: Sequence[Tensor]) -> None:
    """Put outputs and their gradients together, if the shapes say along which axis."""
    own.outputs, own.gradients = list(own.outputs), dict(own.gradients)
    for index, parts in _unequal(peers).items():
        axes = _apart(whole[index].shape, parts[0].shape)
        if len(axes) > 1 or axes == [-1]:
            raise UnreadError(f"along which axis output {index} is split cannot be read")
        for axis in axes:  # of equal shapes, the comparison says that values differ
            own.outputs[index] = Part(torch.cat(parts, axis))
            if gradients := [one.gradients[index].local for one in peers if index in one.gradients]:
                own.gradients[index] = Part(torch.cat(gradients, axis))

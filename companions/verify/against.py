"""Divides a module by hand: places the parts of ranks in the unsharded module of `--against`.

In: `module:function`, and the records of all ranks. Out: the same records, in which each part has
its place (`Spec`), as if a mesh divided the module; and replays of the unsharded module. Shapes say
how parameters are split; inputs and values say which ranks hold one module together, or none do.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib.util
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proofbook.companions.verify.experts import PARTS, share_experts
from proofbook.companions.verify.intercept import INSIDE
from proofbook.companions.verify.records import (
    DistributedModule,
    Forward,
    LocalPart,
    Recordings,
    RootRecord,
    Spec,
    Updates,
    distributed_modules,
    mapped,
)
from proofbook.companions.verify.replay import Replay, replay_pass, replay_passes, unsharded
from proofbook.companions.verify.roots import digest
from proofbook.runners.judging.rounding import are_apart
from proofbook.runners.system.errors import FixableError, first_line

_STATED = re.compile(r"([^=\s]+)=(\d+)(?:/([1-9]\d*))?")
_FUSED = re.compile(r"qkv|query_key_value|in_proj|c_attn|kv_|_kv|gate_up|w13|fused", re.IGNORECASE)
_Split = tuple[int, int]  # an axis, and the number of blocks of which each is split along it
_Tensors = Mapping[str, Tensor]


class UnreadError(Exception):
    """How a module is divided cannot be read, and why."""


class Against:
    """The unsharded module, which a `module:function` beside the script, or installed, returns.

    Splits are `NAME=DIM` or `NAME=DIM/BLOCKS`; names may have `*`.

    Raises:
        FixableError: there is no such module, or a split cannot be understood.
    """

    def __init__(self, name: str, splits: Iterable[str], script: Path) -> None:
        self._name, self._stated = name, dict[str, _Split]()
        for split in splits:
            match = _STATED.fullmatch(split)
            if match is None:
                raise FixableError(f"--split must be NAME=DIM or NAME=DIM/BLOCKS, not {split}")
            self._stated[match[1]] = (int(match[2]), int(match[3] or 1))
        self._inputs = self._stated.pop("inputs", None)
        match = re.fullmatch(r"(?!__main__)(\w+)[\w.]*:\w+", name)
        if match is None:
            raise FixableError(f"--against must be module:function, not {name}")
        beside = PathFinder.find_spec(match[1], [str(script.resolve().parent)])
        if not (beside or importlib.util.find_spec(match[1])):
            raise FixableError(f"--against {name}: no module {match[1]} beside {script.name}")
        self.modules: dict[str, nn.Module] = {}  # by the name of the script's in reports
        self.summary = ""  # how it is split, in one line
        self._splits: dict[str, _Split] = {}
        self._groups: list[list[int]] = []
        self._owned: dict[str, int] = {}  # parameters that one rank alone holds, as of experts

    def place_parts(self, recordings: Recordings) -> None:
        """Give parts in all ranks' recordings their specs, in place, by splits stated or read.

        Raises:
            FixableError: the function fails, or its module has other names or shapes.
        """
        modules = [module for module in distributed_modules(recordings) if module.num_updates]
        if not modules:
            return
        whole = self._load()
        names = dict(whole.named_parameters()).keys()
        module = max(modules, key=lambda m: len(names & m.first.updates[0].parameters.keys()))
        first = {rank: record.updates[0] for rank, record in module.records.items()}
        self._owned = share_experts(module, names)
        self._check_names(module.key, names, first)
        try:
            count = self._read_splits(whole, first)
            self._groups = _groups(first, count, is_stated=bool(self._inputs))
            for group in self._groups:
                for rank in group:
                    self._place(module.records[rank], whole, group)
                self._share([module.records[rank] for rank in group])
            self.modules = {module.key: whole}
            self.summary = f"split of {module.key}: {self._in_words(len(names))}"
        except UnreadError as why:
            for update in module.updates:
                update.by_hand = [f"it is divided among ranks by hand; {why}"]

    def _load(self) -> nn.Module:
        name, _, function = self._name.partition(":")
        try:
            module = getattr(importlib.import_module(name), function)()
            says = f"it returns {type(module).__name__}, which is no nn.Module"
        except (Exception, SystemExit) as error:  # noqa: BLE001 whatever it raises is told
            module, says = None, f"{type(error).__name__}: {first_line(error)}"
        if not isinstance(module, nn.Module):
            raise FixableError(f"--against {self._name}: {says}")
        return module

    def _check_names(self, key: str, names: Set[str], first: Updates) -> None:
        for pattern in self._stated:
            if not fnmatch.filter(names, pattern):
                raise FixableError(f"--split {pattern}: the unsharded module has no such parameter")
        for rank, update in first.items():
            for name in sorted(names ^ update.parameters.keys()):
                says = f"{key} has no {name}" if name in names else f"only {key} has {name}"
                raise FixableError(f"--against {self._name}: {says} (on rank {rank})")

    def _read_splits(self, whole: nn.Module, first: Updates) -> int:
        """Read from shapes how each parameter is split; returns among how many ranks."""
        counts, ranks = dict[int, str](), len(first)
        if self._owned and not self._inputs and not _are_alike(first):
            self._inputs = (0, 1)  # each rank has samples of its own, which experts share
        for name, parameter in whole.named_parameters():
            shape, parts = parameter.shape, {r: u.parameters[name] for r, u in first.items()}
            by_mesh = all(part.spec and part.shape == tuple(shape) for part in parts.values())
            if by_mesh or name in self._owned:
                counts[ranks] = name
                continue
            for axis, blocks in self._split_of(name, shape, parts):
                self._splits[name] = (axis, blocks)
                counts[shape[axis] // parts[min(parts)].local.shape[axis]] = name
        if len(counts) > 1:
            raise UnreadError(f"parameters have different numbers of parts ({counts})")
        return min(counts, default=1)

    def _split_of(
        self, name: str, shape: Sequence[int], parts: Mapping[int, LocalPart]
    ) -> list[_Split]:
        """The axis along which ranks split a parameter, stated or read; empty where they do not."""
        ranks, local = len(parts), parts[min(parts)].local.shape
        apart = _apart(shape, local)
        stated = [s for like, s in self._stated.items() if fnmatch.fnmatch(name, like)]
        own = stated[-1:] or [(axis, 1) for axis in apart]
        is_even = apart == [axis for axis, _ in own][:1] and all(
            local[a] % n == 0 < local[a] and local[a] * ranks % shape[a] == 0 for a, n in own
        )
        if not is_even or any(part.spec or part.local.shape != local for part in parts.values()):
            says = f"{name} is {tuple(local)} on rank {min(parts)} and {tuple(shape)} unsharded"
            raise FixableError(f"{says}: no even split among ranks explains that")
        if own and not stated and _FUSED.search(name):
            raise UnreadError(f"state the blocks of {name} (--split {name}=DIM/BLOCKS)")
        return own

    def _place(self, record: RootRecord, whole: nn.Module, group: Sequence[int]) -> None:
        """Give the parts of a rank their places, and drop reasons that the division explains."""
        record.data_ranks, mesh, specs = None, torch.tensor(group), {}
        for name, parameter in whole.named_parameters():
            split = self._splits.get(name)
            placement: tuple[Any, ...] = ("blocks", *split) if split else ("replicate",)
            placement = ("partial", "sum") if name in self._owned else placement
            specs[name] = Spec(tuple(parameter.shape), mesh, (placement,))
        for update in (*record.updates, *record.later):
            for attribute in PARTS:
                parts = getattr(update, attribute).items()
                placed = {
                    name: part if part is None or part.spec else LocalPart(part.local, specs[name])
                    for name, part in parts
                }
                setattr(update, attribute, placed)
            own, update.buffers = update.buffers, {}
            for name, buffer in whole.named_buffers():
                is_whole = name in own and own[name].local.shape == buffer.shape
                update.buffers[name] = own[name] if is_whole else LocalPart(buffer.detach())
            update.by_hand = [why for why in update.by_hand if not why.endswith(INSIDE)]

    def _share(self, records: Sequence[RootRecord]) -> None:
        """Give ranks that have parts of a batch its inputs, and its losses, together."""
        for updates in zip(*(record.updates for record in records), strict=False):
            passes = list(zip(*(update.forwards for update in updates), strict=False))
            for forwards in passes if self._inputs else ():
                for forward in forwards:
                    forward.digests = forwards[0].digests
            if any(map(_unequal_outputs, passes)):
                losses = [
                    dataclasses.replace(loss, part=part)
                    for part, update in enumerate(updates) for loss in update.losses
                ]  # fmt: skip
                for update in updates:
                    update.losses = losses

    def _in_words(self, number: int) -> str:
        named = {re.sub(r"\d+", "*", name): split for name, split in self._splits.items()}
        listed = [f"{name} {axis}" + f"/{n}" * (n > 1) for name, (axis, n) in named.items()]
        listed += [f"{len(self._owned)} on one rank each"] if self._owned else []
        listed += [f"inputs {self._inputs[0]}"] if self._inputs else []
        ranks = " and ".join("-".join(map(str, group)) for group in self._groups)
        whole = number - len(self._splits) - len(self._owned)
        return f"{', '.join(listed) or 'nothing'} over ranks {ranks}; {whole} whole"

    def replay(
        self, module: DistributedModule, number: int, rank: int, parameters: _Tensors,
        buffers: _Tensors,
    ) -> Replay:  # fmt: skip
        """The `Replay` of a rank's update in the unsharded module, with peers' inputs joined."""
        whole, passes = self.modules[module.key], []
        num_modules = len(list(whole.modules()))
        group = next(group for group in self._groups if rank in group)
        try:
            for peers in zip(*(module.update(r, number).forwards for r in group), strict=False):
                own = dataclasses.replace(peers[group.index(rank)])
                if len(own.training) != num_modules:
                    own.training = own.training[:1] * num_modules
                if self._inputs:
                    columns = zip(*(forward.tensors for forward in peers), strict=True)
                    joined = [_joined(column, self._inputs[0]) for column in columns]
                    own.arguments = mapped(own.arguments, lambda _, g=joined: g.pop(0))  # type: ignore[misc]
                if _unequal_outputs(peers):
                    clone = unsharded(whole, parameters, buffers, is_exact=False)
                    _join_outputs(own, peers, replay_pass(clone, own, {}, is_exact=False))
                passes.append(own)
        except Exception as error:  # noqa: BLE001 whatever it is, the module is not compared
            return Replay(failed=f"its replay failed: {first_line(error)}")
        frozen = module.update(rank, number).frozen
        return replay_passes(whole, parameters, buffers, passes, frozen)


def _groups(first: Updates, count: int, *, is_stated: bool) -> list[list[int]]:
    """Ranks that hold one module together, in the order of its `count` parts, or UnreadError."""
    digests = {r: str([f.digests for f in update.forwards]) for r, update in first.items()}
    held = {r: str([digest(p.local) for p in u.parameters.values()]) for r, u in first.items()}
    inputs, values = (  # ranks that have the same
        [[r for r in keys if keys[r] == key] for key in dict.fromkeys(keys.values())]
        for keys in (digests, held)
    )
    if count == 1 and not is_stated:
        return inputs if len({*map(len, inputs)}) == 1 else [[r] for r in first]
    own = {tuple(f.group) for update in first.values() for f in update.forwards[:1]}
    together = [[*group] for group in sorted(own)]  # ranks with which a module communicates
    if sorted(itertools.chain(*together)) != sorted(first):
        together = [list(first)]
    count = len(together[0]) if count == 1 else count
    is_known = len(values) == count and len({*map(len, values)}) == 1  # who holds which part
    place = {r: index if is_known else r for index, same in enumerate(values) for r in same}
    columns = [[*column] for column in zip(*values, strict=True)] if is_known else []
    for groups in (inputs, columns, together, [list(first)]):
        if not groups or any({len({place[r] for r in g}), len(g)} != {count} for g in groups):
            continue
        if is_stated or all(any({*group} <= {*same} for same in inputs) for group in groups):
            return [sorted(group, key=place.__getitem__) for group in groups]
        says = f"ranks {groups[0]} hold it together, but have different inputs: other batches, or"
        raise UnreadError(f"{says} parts of one (then state --split inputs=DIM)")
    raise UnreadError(f"inputs and values do not say which {count} of the ranks hold it together")


def _are_alike(first: Updates) -> bool:
    """Whether all ranks are given the same inputs."""
    return len({str([f.digests for f in update.forwards]) for update in first.values()}) == 1


def _apart(whole: Sequence[int], local: Sequence[int]) -> list[int]:
    """The axes in which shapes differ; -1 where their numbers of axes do."""
    if len(whole) != len(local):
        return [-1]
    return [axis for axis, (a, b) in enumerate(zip(whole, local, strict=True)) if a != b]


def _unequal_outputs(forwards: Sequence[Forward]) -> dict[int, list[Tensor]]:
    """The outputs that differ between ranks, by their number."""
    columns = enumerate(zip(*(forward.outputs for forward in forwards), strict=False))
    tensors = {i: [part.local for part in parts] for i, parts in columns}
    return {i: own for i, own in tensors.items() if any(are_apart(own[0], other) for other in own)}


def _joined(parts: Sequence[LocalPart], axis: int) -> LocalPart:
    """The whole of which ranks have parts; a tensor that is equal on all ranks is whole already."""
    is_whole = not any(are_apart(parts[0].local, part.local) for part in parts)
    return parts[0] if is_whole else LocalPart(torch.cat([part.local for part in parts], axis))


def _join_outputs(own: Forward, peers: Sequence[Forward], whole: Sequence[Tensor]) -> None:
    """Put outputs and their gradients together, if the shapes say along which axis."""
    own.outputs, own.gradients = list(own.outputs), dict(own.gradients)
    for index, parts in _unequal_outputs(peers).items():
        axes = _apart(whole[index].shape, parts[0].shape)
        if len(axes) > 1 or axes == [-1]:
            raise UnreadError(f"along which axis output {index} is split cannot be read")
        for axis in axes:  # of equal shapes, the comparison says that values differ
            own.outputs[index] = LocalPart(torch.cat(parts, axis))
            if gradients := [f.gradients[index].local for f in peers if index in f.gradients]:
                own.gradients[index] = LocalPart(torch.cat(gradients, axis))

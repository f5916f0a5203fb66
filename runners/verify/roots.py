"""Modules that train on one rank, and what is copied of them.

In: a module of the script. Out: a `Root`, with names for the tensors that an optimizer holds, and
copies and digests of what it holds now.
"""

from __future__ import annotations

import functools
import hashlib
import math
import pickle
import random
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Placement
from torch.optim import Optimizer

from runners.verify.internals import LACKING, fsdp_groups, policy, pytree, unreduced, variables
from runners.verify.records import Forward, Part, RootRecord, Update, part

_MOST_SAMPLES = 4096
_LEAST_BYTES = 16  # of a sample that does not come twice by chance


class Root:
    """A module that trains, its names, and its present update.

    Args:
        module: with its wrapper, if it has one.
        inner: without.
        key: its name in reports.
        stage: its number in a pipeline.
    """

    def __init__(self, module: nn.Module, inner: nn.Module, key: str, stage: int | None) -> None:
        # A DDP that is dropped joins gloo's thread while it holds the GIL, for which that one may
        # wait: torch 2.13 hangs so now and then where a script ends. One that is kept does not.
        self.wrapper = module
        self.module, self.modules = inner, list(inner.modules())
        groups = fsdp_groups(inner)
        data_ranks = groups[0].mesh_info.mesh.mesh.flatten().tolist() if groups else None
        self.record = RootRecord(key, data_ranks, stage, *_eps(inner), _refused(module))
        hooks = (hook for one in self.modules for hook in one._forward_pre_hooks.values())
        self.record.takes_parts = any(map(_names_sequence, hooks))
        self.names: dict[str, Any] = {}  # name → parameter; under FSDP a DTensor
        self.update = Update(-1, {}, {})  # none has begun
        self.stepped = False
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters that an optimizer has: under FSDP the shards."""
        for name, one in self.module.named_parameters():
            if isinstance(one, DTensor) or not isinstance(self.names.get(name), DTensor):
                self.names[name] = one

    def begin_update(self) -> Update:
        """Copy parameters and buffers before the first forward pass of an update."""
        self.stepped = False
        self.update = Update(
            self.num_stepped,
            {name: part(one) for name, one in self.names.items()},
            {name: part(one) for name, one in self.module.named_buffers()},
            frozen=[name for name, one in self.names.items() if not one.requires_grad],
        )
        return self.update

    def gradients(self) -> dict[str, Part | None]:
        """Copies of all gradients."""
        return {name: None if one.grad is None else part(one.grad) for name, one in self.trained()}

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that require a gradient."""
        return ((name, one) for name, one in self.names.items() if one.requires_grad)

    @property
    def is_reset(self) -> bool:
        """Whether no gradient is left."""
        found = [one.grad for _, one in self.trained() if one.grad is not None]
        found += unreduced(self.module)
        return not any(bool(part(one, copy=False).local.any()) for one in found)

    @property
    def is_finite(self) -> bool:
        """Whether all gradients are finite."""
        found = (one.grad for _, one in self.trained() if one.grad is not None)
        return all(bool(part(one, copy=False).local.isfinite().all()) for one in found)

    @property
    def done(self) -> list[Forward]:
        """The passes of this update whose backward pass has ended."""
        return [one for one in self.update.forwards if one.backward is not None]

    @property
    def num_stepped(self) -> int:
        """The updates that an optimizer has made."""
        return sum(one.has_step for one in self.record.updates)

    @property
    def is_pending(self) -> bool:
        """Whether there are gradients that no optimizer has used yet."""
        return bool(self.done) and not self.stepped

    def sums(self, number: tuple[str, Tensor]) -> None:
        """The script sums a number over ranks after its backward pass: by this norm it may clip."""
        update = self.update
        update.sums.append(number)
        if not update.at_sum and not update.before_clipping:
            now = self.gradients()
            pairs = ((one, update.after_backward.get(name)) for name, one in now.items())
            is_same = all(a and b and torch.equal(a.local, b.local) for a, b in pairs if a or b)
            update.at_sum = {} if is_same else now

    @property
    def exchanged(self) -> str:
        """Why it is refused where FSDP has gathered its parameters for another module."""
        held = ((one, self.names[name]) for name, one in self.module.named_parameters())
        is_so = any(isinstance(one, DTensor) and not isinstance(own, DTensor) for one, own in held)
        return "a call of a part whose parameters FSDP has gathered for the whole" if is_so else ""

    def names_in(self, ids: Collection[int]) -> list[str]:
        """The names of parameters with these ids."""
        return [name for name, one in self.names.items() if id(one) in ids]


def named(module: nn.Module, others: Collection[str]) -> str:
    """The name of a module in reports: its class, and what tells it from others of that class."""
    own = type(module).__name__.removeprefix("FSDP") or type(module).__name__
    same = sum(one.split(" ")[0] == own for one in others)
    held = (n for n, one in variables().items() if getattr(one, "module", one) is module)
    names = (f"{own} {one}" for one in (*held, same + 1))
    return next(one for one in names if one not in others) if same else own


def _eps(module: nn.Module) -> tuple[float, float]:
    """The step of the coarsest dtype in which a module computes, and that of its gradients."""
    units = [one for one in module.modules() if isinstance(one, FSDPModule)]
    policies = [policy(one) for one in units if not LACKING["fully_shard"]]
    kept = {one.dtype for one in module.parameters() if one.is_floating_point()}
    kept |= {dtype for one in policies if (dtype := one.reduce_dtype or one.param_dtype)}
    used = kept | {one.param_dtype for one in policies if one.param_dtype}
    default = torch.finfo(torch.float32).eps
    sum_eps = max((torch.finfo(one).eps for one in kept), default=default)
    return max((torch.finfo(one).eps for one in used), default=default), sum_eps


def _names_sequence(value: Any, depth: int = 6) -> bool:
    """Whether a hook of a plan is given the placement of a part of a sequence."""
    if isinstance(value, Placement):
        return value.is_shard() and value.dim >= 0  # type: ignore[attr-defined]
    inner: list[Any] = list(value) if isinstance(value, tuple | list) else []
    if isinstance(value, functools.partial):
        inner = [value.func, *value.args]
    elif isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or ()]
    return depth > 0 and any(_names_sequence(one, depth - 1) for one in inner)


def random_states() -> tuple[Any, ...]:
    """The states of the generators that a forward pass may draw from."""
    numpy = sys.modules.get("numpy")
    own = (torch.get_rng_state(), random.getstate())
    return (*own, numpy.random.get_state(legacy=False)) if numpy else own


def digest(tensor: Tensor) -> str:
    """Of a tensor's bytes, its shape, and its dtype."""
    local = part(tensor, copy=False).local.contiguous().cpu()
    head = f"{local.dtype} {tuple(local.shape)}".encode()
    held = head + local.view(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(held, digest_size=12).hexdigest()


def samples(tensors: Sequence[Tensor]) -> list[str]:
    """Digests of the samples of a batch; none where they are too short or too many to tell apart.

    Args:
        tensors: inputs of a forward pass; those of one length along the first axis are the batch.
    """
    held = [part(one, copy=False).local for one in tensors if one.dim()]
    rows = [one.contiguous().cpu() for one in held if 0 < len(one) == len(held[0]) <= _MOST_SAMPLES]
    flat = [one.view(len(one), -1).view(torch.uint8) for one in rows]
    is_long = sum(one.shape[1] for one in flat) >= _LEAST_BYTES
    found = [digest(one) for one in torch.cat(flat, 1)] if is_long else []
    return found if len({*found}) == len(found) else []


def same(a: Any, b: Any) -> bool:
    """Whether states of generators, or settings, are equal."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return pickle.dumps(a) == pickle.dumps(b) or str(a) == str(b)  # text of arrays takes long


def have_drawn(before: Sequence[Any]) -> bool:
    """Whether generators have other states than before."""
    return any(not same(a, b) for a, b in zip(before, random_states(), strict=False))


def ids_of(optimizer: Optimizer) -> set[int]:
    """The ids of an optimizer's parameters."""
    return {id(one) for group in optimizer.param_groups for one in group["params"]}


def state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """What an optimizer holds for one parameter."""
    held = optimizer.state.get(parameter, {})
    return {key: one for key, one in held.items() if isinstance(one, Tensor)}


_STATE = re.compile(r"(?:^|\.)state\.(.+)\.[^.]+$")  # of a parameter, in an optimizer's state


def moments(held: Any) -> Counter[tuple[int, ...]]:
    """What a checkpoint holds of optimizers: by parameter, the shape of its largest tensor.

    Args:
        held: what `torch.load` returned, or the metadata of a distributed checkpoint.
    """
    stored = getattr(held, "state_dict_metadata", None)
    pairs = [] if stored else pytree.tree_leaves_with_path(held)
    named = {re.sub(r"[]['.]+", ".", pytree.keystr(path)).strip("."): one for path, one in pairs}
    found: dict[str, tuple[int, ...]] = {}
    for key, one in (stored or named).items():
        shape = tuple(getattr(one, "size" if stored else "shape", ()))
        if name := _STATE.search(key):
            found[name[1]] = max(found.get(name[1], ()), shape, key=math.prod)
    return Counter(found.values())


def _refused(module: nn.Module) -> str:
    """What of a module is not supported; empty where all is."""
    for one in module.modules():
        if isinstance(one, FullyShardedDataParallel):
            return "FSDP1 (FullyShardedDataParallel; use fully_shard)"
        if isinstance(one, FSDPModule) and LACKING["fully_shard"]:
            return LACKING["fully_shard"]
        if isinstance(one, nn.SyncBatchNorm):
            return "SyncBatchNorm, which mixes the samples of all ranks"
    return ""


def plain(value: Any) -> Any:
    """A setting of an optimizer, copied."""
    return value.detach().clone() if isinstance(value, Tensor) else value

"""Roots, which are the outermost modules that train on one rank, and copies of their state.

In: a module of the script. Out: a `Root`, with names for the tensors that an optimizer holds, and
copies and digests of their present values.
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
from contextlib import suppress
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Placement
from torch.optim import Optimizer

from proofbook.companions.verify import internals, records
from proofbook.companions.verify.records import UpdateRecord, local_part, local_tensor

_MOST_SAMPLES = 4096
_LEAST_BYTES = 16  # of a sample that does not come twice by chance


class Root:
    """A module that trains, its parameters, and its present update; `inner` has no wrapper."""

    def __init__(self, module: nn.Module, inner: nn.Module, key: str, stage: int | None) -> None:
        # A DDP that is dropped joins gloo's thread while it holds the GIL, for which that one may
        # wait: torch 2.13 hangs so now and then where a script ends. One that is kept does not.
        self.wrapper = module
        self.module, self.modules = inner, list(inner.modules())
        groups = internals.fsdp_groups(inner)
        data_ranks = groups[0].mesh_info.mesh.mesh.flatten().tolist() if groups else None
        self.record = records.RootRecord(key, data_ranks, stage, *_eps(inner), _unsupported(module))
        hooks = (hook for child in self.modules for hook in child._forward_pre_hooks.values())
        self.record.takes_parts = any(map(_names_sequence, hooks))
        self.parameters: dict[str, Any] = {}  # by name; under FSDP a DTensor
        self.update = UpdateRecord(-1, {}, {})  # none has begun
        self.stepped = False
        self.refresh()

    def refresh(self) -> None:
        """Find the parameters that an optimizer has: under FSDP the shards."""
        for name, parameter in self.module.named_parameters():
            is_shard = isinstance(parameter, DTensor)
            if is_shard or not isinstance(self.parameters.get(name), DTensor):
                self.parameters[name] = parameter

    def begin_update(self) -> UpdateRecord:
        """Begin an update; returns its `UpdateRecord`, with copies of parameters and buffers."""
        self.stepped = False
        self.update = UpdateRecord(
            self.num_stepped,
            {name: local_part(parameter) for name, parameter in self.parameters.items()},
            {name: local_part(buffer) for name, buffer in self.module.named_buffers()},
            frozen=[name for name, own in self.parameters.items() if not own.requires_grad],
        )
        return self.update

    def gradients(self) -> dict[str, records.LocalPart | None]:
        """Copies of all gradients."""
        return {
            name: None if parameter.grad is None else local_part(parameter.grad)
            for name, parameter in self.trainable()
        }

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that require a gradient, by name."""
        return ((name, own) for name, own in self.parameters.items() if own.requires_grad)

    def _local_gradients(self) -> list[Tensor]:
        return [local_tensor(own.grad) for _, own in self.trainable() if own.grad is not None]

    @property
    def is_zeroed(self) -> bool:
        """Whether all gradients are absent or zero."""
        gradients = self._local_gradients() + list(
            map(local_tensor, internals.unreduced(self.module))
        )
        return not any(bool(gradient.any()) for gradient in gradients)

    @property
    def is_finite(self) -> bool:
        """Whether all gradients are finite."""
        return all(bool(gradient.isfinite().all()) for gradient in self._local_gradients())

    @property
    def backpropagated(self) -> list[records.Forward]:
        """The forward passes of this update whose backward pass has ended."""
        return [forward for forward in self.update.forwards if forward.backward is not None]

    @property
    def num_stepped(self) -> int:
        """The number of updates that an optimizer has made."""
        return sum(update.has_step for update in self.record.updates)

    @property
    def is_pending(self) -> bool:
        """Whether there are gradients that no optimizer has used yet."""
        return bool(self.backpropagated) and not self.stepped

    def record_sum(self, place: str, number: Tensor) -> None:
        """Keep a number that the script sums over ranks, and the gradients at the first one."""
        update = self.update
        update.sums.append((place, number))
        if not update.before_clipping:
            update.at_sum = update.at_sum or self.gradients()

    @property
    def gathered_elsewhere(self) -> str:
        """The refusal of a root whose parameters FSDP gathers for another module; else empty."""
        pairs = ((own, self.parameters[name]) for name, own in self.module.named_parameters())
        is_so = any(isinstance(a, DTensor) and not isinstance(b, DTensor) for a, b in pairs)
        return "a call of a part whose parameters FSDP has gathered for the whole" if is_so else ""

    def names_of(self, ids: Collection[int]) -> list[str]:
        """The names of parameters with these ids."""
        return [name for name, parameter in self.parameters.items() if id(parameter) in ids]


def report_name(module: nn.Module, others: Collection[str]) -> str:
    """The name of a module in reports: its class, and a variable or number if others have it."""
    own = type(module).__name__.removeprefix("FSDP") or type(module).__name__
    same = sum(other.split(" ")[0] == own for other in others)
    held = (name for name, m in internals.variables().items() if getattr(m, "module", m) is module)
    names = (f"{own} {suffix}" for suffix in (*held, same + 1))
    return next(name for name in names if name not in others) if same else own


def _eps(module: nn.Module) -> tuple[float, float]:
    """The eps of the coarsest dtype in which a module computes, and that of its gradients."""
    units = [child for child in module.modules() if isinstance(child, FSDPModule)]
    policies = [internals.policy(unit) for unit in units if not internals.LACKING["fully_shard"]]
    kept = {p.dtype for p in module.parameters() if p.is_floating_point()}
    kept |= {dtype for own in policies if (dtype := own.reduce_dtype or own.param_dtype)}
    used = kept | {own.param_dtype for own in policies if own.param_dtype}
    default = torch.finfo(torch.float32).eps
    eps, sum_eps = (
        max((torch.finfo(dtype).eps for dtype in dtypes), default=default)
        for dtypes in (used, kept)
    )
    return eps, sum_eps


def _names_sequence(value: Any, depth: int = 6) -> bool:
    """Whether a hook of a plan refers to the placement of a part of a sequence."""
    if isinstance(value, Placement):
        return value.is_shard() and value.dim >= 0  # type: ignore[attr-defined]
    inner: list[Any] = list(value) if isinstance(value, tuple | list) else []
    if isinstance(value, functools.partial):
        inner = [value.func, *value.args]
    elif isinstance(value, FunctionType):
        inner = [cell.cell_contents for cell in value.__closure__ or ()]
    return depth > 0 and any(_names_sequence(held, depth - 1) for held in inner)


def random_states() -> tuple[Any, ...]:
    """The states of the generators that a forward pass may draw from."""
    numpy = sys.modules.get("numpy")
    own = (torch.get_rng_state(), random.getstate())
    return (*own, numpy.random.get_state(legacy=False)) if numpy else own


def digest(tensor: Tensor) -> str:
    """The digest of this rank's part of a tensor: its bytes, shape and dtype."""
    local = local_tensor(tensor).contiguous().cpu()
    head = f"{local.dtype} {tuple(local.shape)}".encode()
    content = head + local.view(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def sample_digests(tensors: Sequence[Tensor]) -> list[str]:
    """A list of digests, of each sample of a batch; empty if too many, too short, or repeated.

    Tensors of one length along the first axis are the batch.
    """
    local = [local_tensor(tensor) for tensor in tensors if tensor.dim()]
    batch = [own for own in local if 0 < len(own) == len(local[0]) <= _MOST_SAMPLES]
    rows = [own.contiguous().cpu().view(len(own), -1).view(torch.uint8) for own in batch]
    is_long = sum(own.shape[1] for own in rows) >= _LEAST_BYTES
    digests = [digest(sample) for sample in torch.cat(rows, 1)] if is_long else []
    return digests if len({*digests}) == len(digests) else []


def are_equal(a: Any, b: Any) -> bool:
    """Whether states of generators, or settings, are equal."""
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return pickle.dumps(a) == pickle.dumps(b) or str(a) == str(b)  # text of arrays takes long


def have_drawn(before: Sequence[Any]) -> bool:
    """Whether generators have other states than before."""
    return any(not are_equal(a, b) for a, b in zip(before, random_states(), strict=False))


def parameter_ids(optimizer: Optimizer) -> set[int]:
    """The ids of an optimizer's parameters."""
    return {id(own) for group in optimizer.param_groups for own in group["params"]}


def optimizer_state(optimizer: Optimizer, parameter: Tensor) -> dict[str, Tensor]:
    """The tensors of an optimizer's state for one parameter, by key."""
    state = optimizer.state.get(parameter, {})
    return {key: value for key, value in state.items() if isinstance(value, Tensor)}


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the text of an object: no rank has another's
_STATE = re.compile(r"(?:^|\.)state\.(.+)\.[^.]+$")  # of a parameter, in an optimizer's state


def moment_shapes(checkpoint: Any) -> Counter[tuple[int, ...]]:
    """A `Counter` of shapes, of each parameter's largest state tensor in a checkpoint's tree."""
    stored = getattr(checkpoint, "state_dict_metadata", None)
    pairs = [] if stored else internals.pytree.tree_leaves_with_path(checkpoint)
    leaves = {
        re.sub(r"[]['.]+", ".", internals.pytree.keystr(path)).strip("."): leaf
        for path, leaf in pairs
    }
    shapes: dict[str, tuple[int, ...]] = {}
    for key, leaf in (stored or leaves).items():
        shape = tuple(getattr(leaf, "size" if stored else "shape", ()))
        if name := _STATE.search(key):
            shapes[name[1]] = max(shapes.get(name[1], ()), shape, key=math.prod)
    return Counter(shapes.values())


def _unsupported(module: nn.Module) -> str:
    """The part of a module that is not supported; empty where all of it is."""
    for child in module.modules():
        if isinstance(child, FullyShardedDataParallel):
            return "FSDP1 (FullyShardedDataParallel; use fully_shard)"
        if isinstance(child, FSDPModule) and internals.LACKING["fully_shard"]:
            return internals.LACKING["fully_shard"]
        if isinstance(child, nn.SyncBatchNorm):
            return "SyncBatchNorm, which mixes the samples of all ranks"
    return ""


def copied_setting(value: Any) -> Any:
    """A setting of an optimizer, copied: a tensor, plain values, or the text of anything else."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in (tuple, list):
        return type(value)(map(copied_setting, value))
    if hasattr(value, "item"):  # a number of numpy
        with suppress(TypeError, ValueError):
            return value.item()
    is_plain = value is None or type(value) in (bool, int, float, str)
    return value if is_plain else _ADDRESS.sub("", repr(value))

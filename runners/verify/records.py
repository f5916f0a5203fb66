"""What a rank records of a script, and how tensors that ranks hold in parts are put together.

In: tensors of a module, DTensors among them. Out: dataclasses that other ranks can load. A part of
a DTensor keeps its place (`Spec`), so that `assembled` builds the whole tensor from files alone. A
`Layout` says which ranks hold a module, and which of them share a batch, as meshes and wrappers
have it: groups of ranks that train on the same samples, the first of which replays them.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from runners.verify.internals import pytree


class Spec(NamedTuple):
    """Where the parts of a DTensor lie: its whole shape, its mesh, and a placement for each axis.

    A placement is `("shard", dim)`, `("strided", dim)` (FSDP over tensor parallelism: this axis
    cuts what the axes to its right have cut), `("blocks", dim, number)` (each of so many blocks is
    cut), `("replicate",)` or `("partial", "sum" or "avg")`.
    """

    shape: tuple[int, ...]
    mesh: Tensor
    placements: tuple[tuple[Any, ...], ...]

    @property
    def ranks(self) -> list[int]:
        """The global ranks that hold parts."""
        return list(self.mesh.flatten().tolist())


class Part(NamedTuple):
    """What one rank holds of a tensor; without a spec it is the whole."""

    local: Tensor
    spec: Spec | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        return tuple(self.spec.shape if self.spec else self.local.shape)


def part(tensor: Tensor, *, copy: bool = True) -> Part:
    """This rank's part of a tensor, copied, off the graph."""
    with torch.no_grad():
        local, spec = tensor, None
        if isinstance(tensor, DTensor):  # whose own operations take long
            placements = tuple(map(_placement, tensor.placements))
            spec = Spec(tuple(tensor.shape), _mesh(tensor.device_mesh), placements)
            local = tensor.to_local()
        return Part(local.clone() if copy else local.detach(), spec)


@functools.cache  # torch makes it anew in each call
def _mesh(one: DeviceMesh) -> Tensor:
    return one.mesh.clone()


def _placement(one: Any) -> tuple[Any, ...]:
    if one.is_partial():
        return ("partial", str(getattr(one, "reduce_op", "sum")))
    if one.is_replicate():
        return ("replicate",)
    return ("strided" if "Strided" in type(one).__name__ else "shard", one.dim)


def assembled(parts: Mapping[int, Part], rank: int) -> Tensor:
    """The whole tensor as the mesh of this rank holds it.

    Raises:
        KeyError: a rank of the mesh has recorded no part.
    """
    own = parts[rank]
    if own.spec is None:
        return own.local
    spec, whole = own.spec, own.local.new_zeros(own.spec.shape)
    cut = [i for i, one in enumerate(spec.placements) if one[0] not in ("partial", "replicate")]
    cut.sort(key=lambda axis: spec.placements[axis][0] == "strided")
    for at in itertools.product(*map(range, spec.mesh.shape)):
        local, view = parts[int(spec.mesh[at])].local, whole
        is_copy = any(
            i and one[0] == "replicate" for i, one in zip(at, spec.placements, strict=True)
        )
        if is_copy or not local.numel():
            continue
        for axis in cut:
            kind, dim, *blocks = spec.placements[axis]
            if kind == "blocks":
                view, dim = view.unflatten(dim, (*blocks, -1)), dim + 1
            view = view.chunk(spec.mesh.shape[axis], dim)[at[axis]]
        view.add_(local.view(view.shape))
    for size, one in zip(spec.mesh.shape, spec.placements, strict=True):
        if one == ("partial", "avg"):
            whole /= size
    return whole


def tensors_of(tree: Any) -> list[Any]:
    """The tensors, or parts, of nested tuples, lists, dicts and model outputs, in order."""
    found: list[Any] = []
    mapped(tree, found.append)
    return found


def mapped(tree: Any, do: Callable[[Any], Any]) -> Any:
    """The same tree with its tensors and parts replaced."""

    def leaf(one: Any) -> Any:
        if isinstance(one, Tensor | Part):
            return do(one)
        if not is_dataclass(one) or isinstance(one, type):
            return one
        new = copy.copy(one)
        for name in (each.name for each in fields(one)):
            with suppress(AttributeError):  # of a frozen one
                object.__setattr__(new, name, mapped(getattr(one, name), do))
        return new

    return pytree.tree_map(leaf, tree, is_leaf=lambda one: isinstance(one, Part))


@dataclass
class Forward:
    """One outermost forward pass of a module that trains."""

    path: str  # of the module that was called, inside its root
    arguments: Any  # positional and keyword arguments, tensors copied
    method: str = ""  # that is called in the place of `forward`; empty where that one is
    outputs: list[Part] = field(default_factory=list)  # its tensors, in order
    gradients: dict[int, Part] = field(default_factory=dict)  # that arrived, by number of output
    random: tuple[Any, ...] = ()  # states of the generators before it
    autocast: tuple[bool, torch.dtype] = (False, torch.float32)
    training: list[bool] = field(default_factory=list)  # of each module, whether in that mode
    digests: list[str] = field(default_factory=list)  # of the inputs
    shapes: list[tuple[int, ...]] = field(default_factory=list)  # of the inputs
    samples: list[str] = field(default_factory=list)  # digests, where samples can be told apart
    draws: bool = False  # random numbers, in the pass or before its backward pass
    place: str = ""  # the script's line that called it
    backward: int | None = None  # the number of the backward pass that reached it
    chunk: int | None = None  # of a pipeline, the number of the microbatch
    is_shared: bool = False  # peers need all its tensors, as of a module that is divided by hand
    nodes: dict[int, Any] = field(default_factory=dict)  # of the graph now, by number of output
    numbers: list[Tensor] = field(default_factory=list)  # that its collectives added up over ranks

    def __getstate__(self) -> dict[str, Any]:
        """Peers need what they hold parts of, and the rest stays here."""
        shared, is_all = dict(self.__dict__), self.is_shared
        shared["arguments"] = [one if one.spec or is_all else None for one in self.tensors]
        shared["outputs"] = [one if one.spec or is_all else None for one in self.outputs]
        shared["gradients"] = {i: one for i, one in self.gradients.items() if one.spec or is_all}
        shared["random"], shared["nodes"] = (), {}
        return shared

    @property
    def ids(self) -> set[int]:
        """The ids of its nodes."""
        return set(map(id, self.nodes.values()))

    @property
    def tensors(self) -> list[Part]:
        """Of the arguments, in order; those of a peer come without the rest."""
        return self.arguments if isinstance(self.arguments, list) else tensors_of(self.arguments)


@dataclass
class Loss:
    """A loss over tokens or samples, and the weight with which each entered the backward pass."""

    kind: str  # the function's name
    place: str  # the script's line
    count: int  # of the elements that count
    weights: Tensor | None = None  # of the elements; one number where all have the same
    backward: int | None = None  # the number of the backward pass
    half: bool = False  # multiplied by a number, which may be one half by convention
    combining: str = ""  # what combines samples before it, which is then no sum over them
    sizes: Tensor | None = None  # class weights of the elements; None where all are one

    @property
    def counted(self) -> Tensor:
        """Which of the elements that count have a weight; a mask leaves others out."""
        if self.weights is None or self.weights.numel() != self.count or not self.weights.any():
            return torch.ones(self.count, dtype=torch.bool)
        return self.weights.flatten() != 0

    @property
    def size(self) -> float:
        """The number of elements that have a weight; with class weights, the sum of those."""
        counted = self.counted
        return float(counted.sum() if self.sizes is None else self.sizes[counted].sum())


@dataclass
class Clip:
    """A call that clips gradients."""

    kind: str  # the function's name
    limit: float
    norm_type: float
    total: float | None  # the norm that it returned
    names: list[tuple[str, str]]  # of parameters, each behind the key of its root
    place: str
    backward: int = 0  # the number of the backward pass before it


Gradients = dict[str, Part | None]  # by parameter
STEPS_INSIDE = "an optimizer that steps inside the backward pass"
STATE = "the state"  # among settings, the names of what an optimizer holds before its first step


@dataclass
class Update:
    """What led to one update of a root, on one rank."""

    number: int
    parameters: dict[str, Part]  # before the first forward pass
    buffers: dict[str, Part]  # the same
    forwards: list[Forward] = field(default_factory=list)  # whose gradients the update has
    after_backward: Gradients = field(default_factory=dict)  # when the last one had ended
    at_sum: Gradients = field(default_factory=dict)  # that the script had changed since, when it
    # first summed a number over ranks, as the square of a norm
    before_clipping: Gradients = field(default_factory=dict)  # or before unscaling, or the step
    at_step: Gradients = field(default_factory=dict)  # that the optimizer used
    carried: Gradients = field(default_factory=dict)  # from before the first backward pass
    scale: float = 1.0  # of a gradient scaler
    after: dict[str, Part] = field(default_factory=dict)  # parameters after the step
    # Of each parameter's optimizer: its class, and the settings of its group.
    settings: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    state: dict[str, Part] = field(default_factory=dict)  # before the first, by parameter and key
    losses: list[Loss] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    # Numbers that the script sums over ranks after backward, and where.
    sums: list[tuple[str, Tensor]] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)  # parameters that require no gradient
    outside: list[str] = field(default_factory=list)  # that the loss reaches past all modules
    other_terms: list[str] = field(default_factory=list)  # of the loss, by no known function
    by_hand: list[str] = field(default_factory=list)  # why the module of one process is not known
    schedulers: int = 0  # their steps since the update before
    backwards: int = 0  # backward passes of this rank up to the step
    dropped: int = 0  # backward passes whose gradients were reset before any update
    has_step: bool = False
    backward_place: str = ""
    step_place: str = ""

    @property
    def used(self) -> Gradients:
        """Gradients that the optimizer used; where no optimizer stepped, those that were left."""
        return self.at_step or self.before_clipping


@dataclass
class RootRecord:
    """A module that trains, as one rank holds it."""

    key: str  # its name in reports, the same on all ranks that hold it
    data_ranks: list[int] | None  # that train it on other samples; None where no wrapper says so
    stage: int | None  # its number in a pipeline
    eps: float  # of the coarsest dtype in which it computes or communicates
    sum_eps: float  # of the coarsest dtype in which its gradients are kept and added up
    refused: str = ""  # why it cannot be compared
    unowned: list[str] = field(default_factory=list)  # parameters that no optimizer has
    takes_parts: bool = False  # of sequences, as a plan says
    backwards: int = 0  # of this rank while it was watched
    left_behind: str = ""  # the line that read an optimizer's state, which its optimizer lacked
    updates: list[Update] = field(default_factory=list)
    later: list[Update] = field(default_factory=list)  # next and newest, with parameters only
    buffers_from: int | None = None  # the rank that sends its buffers before each pass
    unwrapped: list[str] = field(default_factory=list)  # parameters that DDP found frozen

    @property
    def specs(self) -> list[Spec]:
        """Where its parameters lie, of those that ranks hold in parts."""
        held = (one for update in self.updates[:1] for one in update.parameters.values())
        return [one.spec for one in held if one.spec]


# The parameters of a module that ran without gradients, by the number of optimizers' steps before
# the pass and the script's line.
Quiet = dict[tuple[int, str], list[Tensor]]


@dataclass
class Seen:
    """What one rank recorded."""

    roots: dict[str, RootRecord] = field(default_factory=dict)  # by key
    ended: str = ""  # how the script failed; empty where it ended well, or was stopped by us
    ended_at: str = ""  # the script's line of that
    is_stopped: bool = False  # by us
    waits: str = ""  # where, for ranks that were stopped
    ended_line: str = ""  # its text, after that of the two lines before
    ended_seconds: float = 0.0  # when, by the clock that all processes of a host share
    refused: list[str] = field(default_factory=list)  # names of what is not supported
    eager: str = ""  # the line of the first `torch.compile`, which did nothing
    unpreserved: str = ""  # the line of a checkpoint that does not preserve the generators
    lost: list[str] = field(default_factory=list)  # those of `cuts` that the loss multiplies by
    cuts: list[str] = field(default_factory=list)  # calls that pass no gradient back
    quiet: dict[str, Quiet] = field(default_factory=dict)  # by name of the module
    broken: str = ""  # an error of the tool's own, which ended the watching


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
        """Whether all ranks have recorded the same steps after the last of these updates."""
        records = self.records.values()
        later = {tuple(u.number for u in one.later) for one in records}
        return len(later) == len({len(one.updates) for one in records}) == 1 and later != {()}

    def update(self, rank: int, number: int) -> Update:
        """An update of one rank; after the last one, the first and the newest seen later."""
        record = self.records[rank]
        held = [*record.updates, *record.later]
        return held[min(number, len(held) - 1)]

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
            ranks = own.spec.ranks if own and own.spec else [rank]
            found[name] = assembled(parts, rank) if all(r in parts for r in ranks) else None
        return found

    def views(self) -> list[int]:
        """One rank of each set of ranks that together hold the whole module."""
        found: dict[frozenset[int], int] = {}
        for rank, record in self.records.items():
            peers = (peer for one in record.specs for peer in one.ranks)
            found.setdefault(frozenset((rank, *peers)), rank)
        return list(found.values())

    def passes(self, number: int, rank: int) -> list[Forward]:
        """The forward passes of a rank, with what its peers hold parts of put together."""
        peers = {r: self.update(r, number).forwards for r in self.records}
        return [
            _joined({r: one[index] for r, one in peers.items() if len(one) > index}, rank)
            for index in range(len(peers[rank]))
        ]


def _joined(peers: Mapping[int, Forward], rank: int) -> Forward:
    def join(choose: Callable[[Forward], Mapping[int, Part]]) -> dict[int, Part]:
        held = {r: choose(one) for r, one in peers.items()}
        every = ((i, {r: one[i] for r, one in held.items() if one.get(i)}) for i in held[rank])
        return {i: Part(assembled(parts, rank)) for i, parts in every}

    given = iter(join(lambda one: dict(enumerate(one.tensors))).values())
    return dataclasses.replace(
        peers[rank],
        arguments=mapped(peers[rank].arguments, lambda _: next(given)),
        outputs=list(join(lambda one: dict(enumerate(one.outputs))).values()),
        gradients=join(lambda one: one.gradients),
    )


def layouts(seen: Mapping[int, Seen]) -> list[Layout]:
    """The layout of each module that some rank trains."""
    found: dict[str, Layout] = {}
    for rank, one in sorted(seen.items()):
        for key, record in one.roots.items():
            found.setdefault(key, Layout(key, {}, [])).records[rank] = record
    for layout in found.values():
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, record in layout.records.items():  # by its place among those with other samples
            place = next((tuple(one.ranks) for one in record.specs), (rank,))
            if record.data_ranks is not None and rank in record.data_ranks:
                place = (-1, record.data_ranks.index(rank))
            groups.setdefault(place, []).append(rank)
        layout.groups = list(groups.values())
    return list(found.values())

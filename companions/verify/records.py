"""Records of one rank, and whole tensors assembled from the parts that ranks hold.

In: tensors of a module, DTensors among them. Out: dataclasses that other ranks can load. A part of
a DTensor keeps its place (`Spec`), so that `assembled` builds the whole tensor from files alone. A
`DistributedModule` has the records of all ranks of a module, and the groups of ranks that train on
the same samples, as meshes and wrappers define them: the first rank of a group replays these.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from proofbook.companions.verify.internals import pytree


class Spec(NamedTuple):
    """The placement of a DTensor: its whole shape, its mesh, and a placement for each mesh axis.

    A placement is `("shard", dim)`, `("strided", dim)` (FSDP over tensor parallelism: this axis
    cuts what the axes to its right have cut), `("blocks", dim, number)` (each of so many blocks is
    cut), `("replicate",)` or `("partial", "sum" or "avg")`.
    """

    shape: tuple[int, ...]
    mesh: Tensor
    placements: tuple[tuple[Any, ...], ...]

    @property
    def is_of_one_rank(self) -> bool:
        """Whether the parts of all ranks but one are empty, and are added up."""
        return self.placements == (("partial", "sum"),)

    @property
    def ranks(self) -> list[int]:
        """The global ranks of the mesh, which hold the parts."""
        return list(self.mesh.flatten().tolist())


class LocalPart(NamedTuple):
    """The part of a tensor that one rank holds; without a spec it is the whole tensor."""

    local: Tensor
    spec: Spec | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        return tuple(self.spec.shape if self.spec else self.local.shape)


def local_part(tensor: Tensor, *, copy: bool = True) -> LocalPart:
    """A `LocalPart`: this rank's part of a tensor, off the graph, copied unless `copy` is False."""
    with torch.no_grad():
        local, spec = tensor, None
        if isinstance(tensor, DTensor):  # whose own operations take long
            placements = tuple(map(_placement, tensor.placements))
            spec = Spec(tuple(tensor.shape), _mesh(tensor.device_mesh), placements)
            local = tensor.to_local()
        return LocalPart(local.clone() if copy else local.detach(), spec)


def local_tensor(tensor: Tensor) -> Tensor:
    """The elements of a tensor that this rank holds, off the graph, not copied."""
    return local_part(tensor, copy=False).local


@functools.cache  # torch makes it anew in each call
def _mesh(mesh: DeviceMesh) -> Tensor:
    return mesh.mesh.clone()


def _placement(placement: Any) -> tuple[Any, ...]:
    if placement.is_partial():
        return ("partial", str(getattr(placement, "reduce_op", "sum")))
    if placement.is_replicate():
        return ("replicate",)
    return ("strided" if "Strided" in type(placement).__name__ else "shard", placement.dim)


def assembled(parts: Mapping[int, LocalPart], rank: int) -> Tensor:
    """The whole tensor, from parts by rank, over the mesh of `rank`: cut, copied or summed.

    Raises:
        KeyError: a rank of the mesh has recorded no part.
    """
    spec = parts[rank].spec
    if spec is None:
        return parts[rank].local
    whole, kinds = parts[rank].local.new_zeros(spec.shape), [kind for kind, *_ in spec.placements]
    cut = [axis for axis, kind in enumerate(kinds) if kind not in ("partial", "replicate")]
    cut.sort(key=lambda axis: kinds[axis] == "strided")
    for coordinates in itertools.product(*map(range, spec.mesh.shape)):
        local, view = parts[int(spec.mesh[coordinates])].local, whole
        is_copy = any(i and kind == "replicate" for i, kind in zip(coordinates, kinds, strict=True))
        if is_copy or not local.numel():
            continue
        for axis in cut:
            kind, dim, *blocks = spec.placements[axis]
            if kind == "blocks":
                view, dim = view.unflatten(dim, (*blocks, -1)), dim + 1
            view = view.chunk(spec.mesh.shape[axis], dim)[coordinates[axis]]
        view.add_(local.view(view.shape))
    for size, placement in zip(spec.mesh.shape, spec.placements, strict=True):
        if placement == ("partial", "avg"):
            whole /= size
    return whole


def tensors_of(tree: Any) -> list[Any]:
    """The tensors, or parts, of nested tuples, lists, dicts and model outputs, in order."""
    tensors: list[Any] = []
    mapped(tree, tensors.append)
    return tensors


def mapped(tree: Any, do: Callable[[Any], Any]) -> Any:
    """A copy of a pytree (dataclasses too) with `do` applied to each tensor and `LocalPart`."""

    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor | LocalPart):
            return do(value)
        if not is_dataclass(value) or isinstance(value, type):
            return value
        new = copy.copy(value)
        for name in (attribute.name for attribute in fields(value)):
            with suppress(AttributeError):  # of a frozen dataclass
                object.__setattr__(new, name, mapped(getattr(value, name), do))
        return new

    return pytree.tree_map(leaf, tree, is_leaf=lambda value: isinstance(value, LocalPart))


@dataclass
class Forward:
    """One outermost forward pass of a module that trains."""

    path: str  # of the module that was called, inside its root
    arguments: Any  # positional and keyword arguments, tensors copied
    method: str = ""  # that is called in the place of `forward`; empty where that one is
    outputs: list[LocalPart] = field(default_factory=list)  # its tensors, in order
    gradients: dict[int, LocalPart] = field(default_factory=dict)  # by number of output
    random: tuple[Any, ...] = ()  # states of the generators before it
    autocast: tuple[bool, torch.dtype] = (False, torch.float32)
    training: list[bool] = field(default_factory=list)  # of each module, whether in that mode
    digests: list[str] = field(default_factory=list)  # of the inputs
    shapes: list[tuple[int, ...]] = field(default_factory=list)  # of the inputs
    samples: list[str] = field(default_factory=list)  # digests, where samples can be told apart
    draws: bool = False  # random numbers, in the pass or before its backward pass
    seed: str = ""  # the digest of torch's generator before it, where it draws from that
    place: str = ""  # the script's line that called it
    backward: int | None = None  # the number of the backward pass that reached it
    chunk: int | None = None  # of a pipeline, the number of the microbatch
    group: list[int] = field(default_factory=list)  # ranks with which the module communicates
    is_shared: bool = False  # peers need all its tensors, as of a module that is divided by hand
    nodes: dict[int, Any] = field(default_factory=dict)  # of the graph now, by number of output
    numbers: list[Tensor] = field(default_factory=list)  # that its collectives added up over ranks

    def __getstate__(self) -> dict[str, Any]:
        """What other ranks load: tensors of which ranks hold parts, or all where these are shared.

        Graph nodes and states of generators stay on this rank.
        """

        def is_sent(part: LocalPart) -> bool:
            return bool(part.spec or self.is_shared)

        return self.__dict__ | {
            "arguments": [part if is_sent(part) else None for part in self.tensors],
            "outputs": [part if is_sent(part) else None for part in self.outputs],
            "gradients": {i: part for i, part in self.gradients.items() if is_sent(part)},
            "random": (),
            "nodes": {},
        }

    @property
    def ids(self) -> set[int]:
        """The ids of its graph nodes."""
        return set(map(id, self.nodes.values()))

    @property
    def tensors(self) -> list[LocalPart]:
        """The tensors of the arguments, in order; another rank has only those that it was sent."""
        return self.arguments if isinstance(self.arguments, list) else tensors_of(self.arguments)


@dataclass
class Loss:
    """A call of a loss function, and the weight of each element in the backward pass."""

    kind: str  # the function's name
    place: str  # the script's line
    count: int  # of the elements that count
    weights: Tensor | None = None  # of the elements; one number where all have the same
    backward: int | None = None  # the number of the backward pass
    is_scaled: bool = False  # multiplied by a number, which may be one half by convention
    combining: str = ""  # the operation that combines samples before it: no sum over samples
    sizes: Tensor | None = None  # class weights of the elements; None where all are one
    part: int = 0  # of the batch, where ranks hold parts of one and share their losses

    @property
    def counted(self) -> Tensor:
        """A mask of the counted elements with a weight; the script may mask others out."""
        if self.weights is None or self.weights.numel() != self.count or not self.weights.any():
            return torch.ones(self.count, dtype=torch.bool)
        return self.weights.flatten() != 0

    @property
    def size(self) -> float:
        """The number of elements that have a weight, or the sum of their class weights."""
        counted = self.counted
        return float(counted.sum() if self.sizes is None else self.sizes[counted].sum())


@dataclass
class Clip:
    """A call of a torch function that clips gradients."""

    kind: str  # the function's name
    limit: float
    norm_type: float
    total: float | None  # the norm that it returned
    names: list[tuple[str, str]]  # of parameters, each behind the key of its root
    place: str
    backward: int = 0  # the number of the backward pass before it


Gradients = dict[str, LocalPart | None]  # by parameter
STEPS_INSIDE = "an optimizer that steps inside the backward pass"
STATE = "the state"  # among settings, the names of what an optimizer holds before its first step


@dataclass
class UpdateRecord:
    """What one rank records of one update of a module, from the forward passes to the step."""

    number: int
    parameters: dict[str, LocalPart]  # before the first forward pass
    buffers: dict[str, LocalPart]  # the same
    forwards: list[Forward] = field(default_factory=list)  # whose gradients the update has
    after_backward: Gradients = field(default_factory=dict)  # when the last one had ended
    at_sum: Gradients = field(default_factory=dict)  # when the script first summed a number over
    # ranks, as the square of a norm
    before_clipping: Gradients = field(default_factory=dict)  # or before unscaling, or the step
    at_step: Gradients = field(default_factory=dict)  # that the optimizer used
    carried: Gradients = field(default_factory=dict)  # from before the first backward pass
    scale: float = 1.0  # of a gradient scaler, by which gradients are divided again
    loss_scale: float = 1.0  # by which it has multiplied the loss
    after: dict[str, LocalPart] = field(default_factory=dict)  # parameters after the step
    # Of each parameter's optimizer: its class, and the settings of its group.
    settings: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    state: dict[str, LocalPart] = field(default_factory=dict)  # at first, by parameter and key
    losses: list[Loss] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    # Numbers that the script sums over ranks after backward, and where.
    sums: list[tuple[str, Tensor]] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)  # parameters that require no gradient
    outside: list[str] = field(default_factory=list)  # that the loss reaches past all modules
    other_terms: list[str] = field(default_factory=list)  # of the loss, by no known function
    by_hand: list[str] = field(default_factory=list)  # why the module of one process is not known
    scheduler_steps: int = 0  # since the update before
    backwards: int = 0  # backward passes of this rank up to the step
    dropped: int = 0  # backward passes whose gradients were reset before any update
    has_step: bool = False
    backward_place: str = ""
    step_place: str = ""

    @property
    def used(self) -> Gradients:
        """The gradients that the optimizer used, or the last ones if no optimizer stepped."""
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
    steps_on_parts: str = ""  # the line of an optimizer that reads parts of sharded gradients
    backwards: int = 0  # of this rank while it was watched
    left_behind: str = ""  # the line that read an optimizer's state, which its optimizer lacked
    updates: list[UpdateRecord] = field(default_factory=list)
    later: list[UpdateRecord] = field(default_factory=list)  # next and newest, with parameters only
    buffers_from: int | None = None  # the rank that sends its buffers before each pass
    frozen_in_ddp: list[str] = field(default_factory=list)  # when DDP wrapped the module

    @property
    def specs(self) -> list[Spec]:
        """The specs of its sharded parameters."""
        parts = (part for update in self.updates[:1] for part in update.parameters.values())
        return [part.spec for part in parts if part.spec]


# The parameters of a module that ran without gradients, by the number of optimizers' steps before
# the pass and the script's line.
NoGradPasses = dict[tuple[int, str], list[Tensor]]


class ScriptFailure(NamedTuple):
    """How the script failed on a rank."""

    error: str
    place: str  # the script's line
    seconds: float  # when, by the clock that all processes of a host share
    text: str = ""  # of the line, after the two lines before it


class Resumed(NamedTuple):
    """Where a scheduler of a resumed run stands before the first watched update."""

    steps: int  # that it has made
    updates: int  # that its optimizer has made
    place: str  # the script's line that steps it
    rates: tuple[float, float] = (0.0, 0.0)  # its last learning rate, and its optimizer's


@dataclass
class RankRecording:
    """Everything that one rank recorded of the script."""

    roots: dict[str, RootRecord] = field(default_factory=dict)  # by key
    failure: ScriptFailure | None = None  # None where the script ended well, or was stopped by us
    is_stopped: bool = False  # by us
    resumed: Resumed | None = None
    is_whole: bool = False  # all updates are recorded
    waits: str = ""  # where, for ranks whose peers were stopped, or failed later
    refused: list[str] = field(default_factory=list)  # names of what is not supported
    eager: str = ""  # the line of the first `torch.compile`, which did nothing
    unpreserved: str = ""  # the line of a checkpoint that does not preserve the generators
    lost: list[str] = field(default_factory=list)  # those of `cuts` that the loss multiplies by
    cuts: list[str] = field(default_factory=list)  # calls that pass no gradient back
    no_grad: dict[str, NoGradPasses] = field(default_factory=dict)  # by name of the module
    part_read: str = ""  # the line that reads the local part of a sharded gradient
    without_group: str = ""  # the line of the first pass before a process group was made
    broken: str = ""  # an error of the tool's own, which ended the recording


Recordings = Mapping[int, RankRecording]  # by rank
Tensors = Mapping[str, Tensor | None]  # by name


@dataclass
class DistributedModule:
    """A module that trains, with the records of all ranks that hold it.

    Ranks of a group share their batches; there are as many groups as there are batches.
    """

    key: str  # its name in reports
    records: dict[int, RootRecord]  # by rank
    groups: list[list[int]]

    @property
    def first(self) -> RootRecord:
        """The record of the first rank."""
        return self.records[self.first_rank]

    @property
    def first_rank(self) -> int:
        """The lowest of its ranks."""
        return min(self.records)

    @property
    def leaders(self) -> list[int]:
        """The first rank of each group."""
        return [group[0] for group in self.groups]

    @property
    def num_updates(self) -> int:
        """The number of updates that all ranks have recorded."""
        return min(len(record.updates) for record in self.records.values())

    @property
    def updates(self) -> list[UpdateRecord]:
        """All updates of all ranks."""
        return [update for record in self.records.values() for update in record.updates]

    @property
    def is_tensor_parallel(self) -> bool:
        """Whether ranks share batches."""
        return any(len(group) > 1 for group in self.groups)

    @property
    def has_later(self) -> bool:
        """Whether all ranks have recorded the same steps after the last of these updates."""
        records = self.records.values()
        later = {tuple(update.number for update in record.later) for record in records}
        return len(later) == len({len(record.updates) for record in records}) == 1 and later != {()}

    def update(self, rank: int, number: int) -> UpdateRecord:
        """An update of one rank; after the last one, the first and the newest recorded later."""
        record = self.records[rank]
        updates = [*record.updates, *record.later]
        return updates[min(number, len(updates) - 1)]

    def whole(self, number: int, rank: int, attribute: str) -> dict[str, Tensor | None]:
        """By name, whole tensors of an attribute of a rank's update; None if a part is missing."""
        held = {r: getattr(self.update(r, number), attribute) for r in self.records}
        whole: dict[str, Tensor | None] = {}
        for name, own in held[rank].items():
            parts = {r: peer[name] for r, peer in held.items() if peer.get(name) is not None}
            ranks = own.spec.ranks if own and own.spec else [rank]
            whole[name] = assembled(parts, rank) if all(r in parts for r in ranks) else None
        return whole

    def present(self, number: int, rank: int, attribute: str) -> dict[str, Tensor]:
        """The tensors of `whole` of which no part is missing."""
        whole = self.whole(number, rank, attribute)
        return {name: tensor for name, tensor in whole.items() if tensor is not None}

    def replicas(self) -> list[int]:
        """A list of ranks: the first of each set that together holds the whole module."""
        first: dict[frozenset[int], int] = {}
        for rank, record in self.records.items():
            peers = (peer for spec in record.specs for peer in spec.ranks)
            first.setdefault(frozenset((rank, *peers)), rank)
        return list(first.values())

    def whole_passes(self, number: int, rank: int) -> list[Forward]:
        """Copies of a rank's `Forward`s, with tensors assembled from the parts of its peers."""
        passes = {r: self.update(r, number).forwards for r in self.records}
        return [
            _assembled_pass({r: own[i] for r, own in passes.items() if len(own) > i}, rank)
            for i in range(len(passes[rank]))
        ]


Modules = Sequence[DistributedModule]
Updates = Mapping[int, UpdateRecord]  # by rank


def _assembled_pass(peers: Mapping[int, Forward], rank: int) -> Forward:
    def assemble(choose: Callable[[Forward], Mapping[int, LocalPart]]) -> dict[int, LocalPart]:
        held = {r: choose(forward) for r, forward in peers.items()}
        columns = {i: {r: own[i] for r, own in held.items() if own.get(i)} for i in held[rank]}
        return {i: LocalPart(assembled(parts, rank)) for i, parts in columns.items()}

    arguments = iter(assemble(lambda forward: dict(enumerate(forward.tensors))).values())
    return dataclasses.replace(
        peers[rank],
        arguments=mapped(peers[rank].arguments, lambda _: next(arguments)),
        outputs=list(assemble(lambda forward: dict(enumerate(forward.outputs))).values()),
        gradients=assemble(lambda forward: forward.gradients),
    )


def distributed_modules(recordings: Recordings) -> list[DistributedModule]:
    """A `DistributedModule` for each that ranks train: records by rank, groups by batch."""
    modules: dict[str, DistributedModule] = {}
    for rank, recording in sorted(recordings.items()):
        for key, record in recording.roots.items():
            modules.setdefault(key, DistributedModule(key, {}, [])).records[rank] = record
    for module in modules.values():
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank, record in module.records.items():  # by its place among those with other samples
            place = next((tuple(spec.ranks) for spec in record.specs), (rank,))
            if record.data_ranks is not None and rank in record.data_ranks:
                place = (-1, record.data_ranks.index(rank))
            groups.setdefault(place, []).append(rank)
        module.groups = list(groups.values())
    return list(modules.values())

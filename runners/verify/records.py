"""What a rank records of a script, and how tensors that ranks hold in parts are put together.

In: tensors of a module, DTensors among them. Out: dataclasses that other ranks can load. A part of
a DTensor keeps its place (`Spec`), so that `assembled` builds the whole tensor from files alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils import _pytree


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
        return [int(one) for one in self.mesh.flatten()]


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
        if not isinstance(tensor, DTensor):
            local = tensor.detach()
            return Part(local.clone() if copy else local)
        placements = tuple(_placement(one) for one in tensor.placements)
        spec = Spec(tuple(tensor.shape), tensor.device_mesh.mesh.clone(), placements)
        local = tensor.detach()._local_tensor  # type: ignore[attr-defined] # mypy sees a Tensor
        return Part(local.clone() if copy else local, spec)


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
    spec = own.spec
    axes = [i for i, one in enumerate(spec.placements) if one[0] in ("shard", "blocks")]
    axes += [i for i, one in enumerate(spec.placements) if one[0] == "strided"]
    partial = [i for i, one in enumerate(spec.placements) if one[0] == "partial"]
    replicated = [i for i, one in enumerate(spec.placements) if one[0] == "replicate"]
    whole = own.local.new_zeros(spec.shape)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in spec.mesh.shape)).view(
        -1, spec.mesh.dim()
    ):
        at = place.tolist()
        other = parts[int(spec.mesh[tuple(at)])].local
        if any(at[i] for i in replicated) or not other.numel():
            continue
        view = whole
        for axis in axes:
            kind, dim, *blocks = spec.placements[axis]
            if kind == "blocks":
                view, dim = view.unflatten(dim, (*blocks, -1)), dim + 1
            view = view.chunk(spec.mesh.shape[axis], dim)[at[axis]]
        view.add_(other.view(view.shape))
    for axis in partial:
        if spec.placements[axis][1] == "avg":
            whole /= spec.mesh.shape[axis]
    return whole


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors of nested tuples, lists, dicts and model outputs, in order."""
    found: list[Tensor] = []
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

    return _pytree.tree_map(leaf, tree, is_leaf=lambda one: isinstance(one, Part))


@dataclass
class Forward:
    """One outermost forward pass of a module that trains.

    Attributes:
        path: of the module that was called, inside its root.
        arguments: positional and keyword arguments, tensors copied.
        method: that is called in the place of `forward`; empty where that one is.
        outputs: its tensors, in order.
        gradients: what arrived at each output, by its index.
        random: states of the generators before it.
        autocast: whether autocast was on, and its dtype.
        training: of each module, whether it was in training mode.
        digests, shapes: of the inputs.
        samples: digests of the samples of its batch, where they can be told apart.
        draws: whether it drew random numbers.
        place: the script's line that called it.
        backward: the number of the backward pass that reached it.
        chunk: of a pipeline, the number of the microbatch.
        outputs_sent: digests of the outputs, of a pipeline's stage.
        is_shared: whether peers need all its tensors, as of a module that is divided by hand.
        nodes: of the graph, for the outputs; until its backward pass has ended.
        numbers: that collectives in it have added up over ranks.
    """

    path: str
    arguments: Any
    method: str = ""
    outputs: list[Part] = field(default_factory=list)
    gradients: dict[int, Part] = field(default_factory=dict)
    random: tuple[Any, ...] = ()
    autocast: tuple[bool, torch.dtype] = (False, torch.float32)
    training: list[bool] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)
    draws: bool = False
    place: str = ""
    backward: int | None = None
    chunk: int | None = None
    outputs_sent: list[str] = field(default_factory=list)
    is_shared: bool = False
    nodes: dict[int, Any] = field(default_factory=dict)
    numbers: list[Tensor] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        """Peers need what they hold parts of, and the rest stays here."""
        shared, is_all = dict(self.__dict__), self.is_shared
        shared["arguments"] = [one if one.spec or is_all else None for one in self.tensors]
        shared["outputs"] = [one if one.spec or is_all else None for one in self.outputs]
        shared["gradients"] = {i: one for i, one in self.gradients.items() if one.spec or is_all}
        shared["random"], shared["nodes"] = (), {}
        return shared

    @property
    def tensors(self) -> list[Part]:
        """Of the arguments, in order; those of a peer come without the rest."""
        return self.arguments if isinstance(self.arguments, list) else parts_of(self.arguments)


def parts_of(tree: Any) -> list[Part]:
    """All parts in a tree, in order."""
    found: list[Part] = []
    mapped(tree, found.append)
    return found


@dataclass
class Loss:
    """A loss over tokens or samples, and the weight with which each entered the backward pass.

    Attributes:
        kind: the function's name.
        place: the script's line.
        count: how many elements count.
        weights: of the elements; one number where all have the same.
        backward: the number of the backward pass.
        is_seen: whether elements are known, not only guessed from a sum.
        half: whether it was multiplied by one half, as by convention.
    """

    kind: str
    place: str
    count: int
    weights: Tensor | None = None
    backward: int | None = None
    is_seen: bool = True
    half: bool = False


@dataclass
class Clip:
    """A call that clips gradients."""

    kind: str
    limit: float
    norm_type: float
    total: float | None
    names: list[tuple[str, str]]
    place: str
    backward: int = 0  # the number of the backward pass before it


@dataclass
class Update:
    """What led to one update of a root, on one rank.

    Attributes:
        parameters, buffers: before the first forward pass.
        forwards: the passes whose gradients the update has.
        after_backward: gradients when the last backward pass had ended.
        before_clipping: gradients before unscaling, clipping or the step, whichever came first.
        at_step: gradients that the optimizer used.
        carried: gradients that were there before the first backward pass.
        scale: of a gradient scaler.
        after: parameters after the step.
        settings: of the optimizer, by parameter.
        outside: parameters that the loss reaches without any module's forward pass.
        sums: numbers that the script sums over ranks after backward, and where.
        frozen: parameters that do not require a gradient.
        other_terms: whether the loss has terms that no known loss function computes.
        by_hand: why the module of one process is not known: lines that communicate activations.
        schedulers: steps of schedulers since the update before.
        dropped: backward passes whose gradients were reset before any update.
    """

    number: int
    parameters: dict[str, Part]
    buffers: dict[str, Part]
    forwards: list[Forward] = field(default_factory=list)
    after_backward: dict[str, Part | None] = field(default_factory=dict)
    before_clipping: dict[str, Part | None] = field(default_factory=dict)
    at_step: dict[str, Part | None] = field(default_factory=dict)
    carried: dict[str, Part | None] = field(default_factory=dict)
    scale: float = 1.0
    after: dict[str, Part] = field(default_factory=dict)
    settings: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    sums: list[tuple[str, Tensor]] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    other_terms: bool = False
    by_hand: list[str] = field(default_factory=list)
    schedulers: int = 0
    dropped: int = 0
    has_step: bool = False
    backward_place: str = ""
    step_place: str = ""

    @property
    def used(self) -> dict[str, Part | None]:
        """Gradients that the optimizer used; where no optimizer stepped, those that were left."""
        return self.at_step or self.before_clipping


@dataclass
class RootRecord:
    """A module that trains, as one rank holds it.

    Attributes:
        key: its name in reports, the same on all ranks that hold it.
        data_ranks: ranks that train it on other samples; None where no wrapper says so.
        stage: its number in a pipeline.
        eps: of the coarsest dtype in which it computes or communicates.
        sum_eps: of the coarsest dtype in which its gradients are kept and added up.
        refused: why it cannot be compared.
        unowned: parameters that no optimizer has.
        later: parameters in the newest forward pass after what was watched.
        takes_parts: whether a plan gives it parts of sequences.
        buffers_from: the rank that sends its buffers before each pass.
    """

    key: str
    data_ranks: list[int] | None
    stage: int | None
    eps: float
    sum_eps: float
    refused: str = ""
    unowned: list[str] = field(default_factory=list)
    takes_parts: bool = False
    updates: list[Update] = field(default_factory=list)
    later: list[Update] = field(default_factory=list)
    buffers_from: int | None = None


@dataclass
class Seen:
    """What one rank recorded.

    Attributes:
        roots: by key.
        loose: losses of backward passes that reached no root.
        ended: how the script ended, in words; empty where it ran to its end or was stopped by us.
        ended_at: the script's line of that.
        refused: names of what is not supported.
        cuts: calls of the script that send what has a gradient, and pass none back.
        quiet: digests of parameters of modules that ran without gradients, by their names.
        broken: an error of the tool's own, which ended the watching.
        unpreserved: the line of a checkpoint that does not preserve the generators.
        passed: gradients that went unchanged through `log_softmax`; see `identity`.
    """

    roots: dict[str, RootRecord] = field(default_factory=dict)
    loose: list[Loss] = field(default_factory=list)
    ended: str = ""
    ended_at: str = ""
    refused: list[str] = field(default_factory=list)
    unpreserved: str = ""
    cuts: list[str] = field(default_factory=list)
    quiet: dict[str, list[str]] = field(default_factory=dict)
    broken: str = ""
    passed: list[Any] = field(default_factory=list)

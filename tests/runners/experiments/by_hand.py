"""The mechanisms by hand and torch's own, on the same model and samples in the same ranks.

Each strategy loads a program from `content/topics/*/code/`, takes the same steps with its functions
and with torch's implementation, and records the largest difference and both payloads.
"""

from __future__ import annotations

import copy
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from runners.experiment import RunPlan
from runners.programs import ROOT, found
from runners.rank import Rank

QUESTION = "Do the mechanisms by hand compute what torch's own implementations compute?"
PATHS = {n: p.path for n, p in found(ROOT, "content/topics/*/code/*_by_hand.py").items()}
NAMES = {
    "allreduce_": "all_reduce",
    "broadcast_": "broadcast",
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
    "send": "send",
}


class Payload(TorchDispatchMode):
    """Counts the calls of each collective and the bytes of its larger side."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional"):
            name = NAMES.get(func.overloadpacket.__name__)
            if name is not None:
                sides = [[t for t in tree_leaves(a) if isinstance(t, Tensor)] for a in args]
                self.calls[name] += 1
                self.bytes[name] += max(sum(t.nbytes for t in side) for side in sides)
        return func(*args, **(kwargs or {}))


def program(name: str) -> ModuleType:
    """A program as a module; its main() does not run."""
    spec = importlib.util.spec_from_file_location(name, PATHS[name])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def difference(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """The largest absolute difference."""
    pairs = list(zip(ours, theirs, strict=True))
    return max((whole(a.detach()) - whole(b.detach())).abs().max().item() for a, b in pairs)


def note(rank: Rank, whose: str, payload: Payload) -> None:
    for name, num_bytes in sorted(payload.bytes.items()):
        rank.measure(f"{whose}_{name}_bytes", num_bytes)
        rank.measure(f"{whose}_{name}_calls", payload.calls[name])


def samples(rank: Rank, batch: int, num_inputs: int, num_targets: int) -> list[Tensor]:
    """This rank's inputs and targets, out of a batch that is the same on every rank."""
    torch.manual_seed(0)
    shapes = (batch, num_inputs), (batch, num_targets)
    whole_batch = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    return [t.chunk(rank.world_size)[rank.rank] for t in whole_batch]


def gradients(model: nn.Module) -> Iterator[Tensor]:
    for parameter in model.parameters():
        assert parameter.grad is not None
        yield parameter.grad


def ring_all_reduce(rank: Rank) -> None:
    """The sum of a tensor whose size the ranks do not divide."""
    hand = program("ring_all_reduce_by_hand")
    torch.manual_seed(rank.rank)
    ours = torch.randn(1003, dtype=torch.float64)
    theirs = ours.clone()
    with Payload() as payload:
        sent_bytes = hand.ring_all_reduce(ours)
    note(rank, "hand", payload)
    with Payload() as payload:
        dist.all_reduce(theirs)
    note(rank, "torch", payload)
    rank.measure("sent_bytes", sent_bytes)
    rank.measure("difference", difference([ours], [theirs]))


def ddp(rank: Rank) -> None:
    """Five steps of the program's training, with its buckets and with DDP's."""
    hand = program("ddp_by_hand")
    ours = hand.build_model(rank.rank).double()
    theirs = DistributedDataParallel(copy.deepcopy(ours), bucket_cap_mb=0.1)
    inputs, targets = samples(rank, hand.BATCH, 20, 1)
    buckets = hand.replicate(ours)
    with Payload() as payload:
        hand.train(ours, inputs, targets, buckets)
    note(rank, "hand", payload)
    with Payload() as payload:
        hand.train(theirs, inputs, targets)
    note(rank, "torch", payload)
    rank.measure("difference", difference(ours.parameters(), theirs.parameters()))


def accumulation(rank: Rank) -> None:
    """One update from three microbatches, the last of them smaller; DDP's under no_sync()."""
    hand = program("accumulation_by_hand")
    ours = hand.build_model().double()
    theirs = DistributedDataParallel(copy.deepcopy(ours))
    inputs, targets = samples(rank, hand.BATCH, 20, 1)
    with Payload() as payload:
        hand.accumulate_gradients(ours, inputs, targets, hand.MICROBATCH)
        hand.average_gradients(ours)
    note(rank, "hand", payload)
    cuts = list(range(0, len(inputs), hand.MICROBATCH))
    with Payload() as payload:
        for cut in cuts:
            part = slice(cut, cut + hand.MICROBATCH)
            with theirs.no_sync() if cut != cuts[-1] else nullcontext():
                errors = mse_loss(theirs(inputs[part]), targets[part], reduction="sum")
                (errors / len(inputs)).backward()
    note(rank, "torch", payload)
    rank.measure("difference", difference(gradients(ours), gradients(theirs)))


RUNS = {
    name: RunPlan(name, num_ranks, passes=("timed",), only_on_cpu=True)
    for name, num_ranks in [
        ("ring_all_reduce", 4),
        ("ddp", 2),
        ("accumulation", 2),
    ]
}
STRATEGIES = {"ring_all_reduce": ring_all_reduce, "ddp": ddp, "accumulation": accumulation}

"""The mechanisms by hand and torch's own, on the same model and samples in the same ranks.

Each strategy loads a program `content/topics/*/code/*_by_hand.py`, takes the same steps with its
functions and with torch's implementation, and records the largest difference and both payloads.
"""

from __future__ import annotations

import copy
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining.schedules import PipelineScheduleSingle
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from runners.experiments._programs import plans
from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank
from runners.traces.programs import ROOT, found
from runners.training.executed import program as executed

QUESTION = "Do the mechanisms by hand compute what torch's own implementations compute?"
PROGRAMS = found(ROOT, "content/topics/*/code/*_by_hand.py")
NUM_LARGE = 1 << 21
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
    spec = importlib.util.spec_from_file_location(name, PROGRAMS[name].path)
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
    inputs, targets = samples(rank, rank.world_size * hand.BATCH, 20, 1)
    parts = inputs.split(hand.MICROBATCH), targets.split(hand.MICROBATCH)
    with Payload() as payload:
        hand.accumulate_gradients(ours, list(zip(*parts, strict=True)))
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


def batch_split(rank: Rank) -> None:
    """One gradient from shards of unequal size, and the one of the whole batch on one device."""
    hand = program("batch_split_by_hand")
    ours = hand.build_model().double()
    theirs = copy.deepcopy(ours)
    inputs = torch.randn(hand.BATCH, hand.FEATURES, dtype=torch.float64)
    labels = inputs[:, : hand.CLASSES].argmax(1)
    dist.broadcast(inputs, 0)
    dist.broadcast(labels, 0)
    own = hand.shard_of(rank.rank, rank.world_size)
    with Payload() as payload:
        rank.measure("saved_bytes", hand.backward(ours, inputs[own], labels[own])[1])
        rank.measure("counted_bytes", hand.sum_gradients(ours))
    note(rank, "hand", payload)
    cross_entropy(theirs(inputs), labels).backward()
    rank.measure("difference", difference(gradients(ours), gradients(theirs)))


def fsdp(rank: Rank) -> None:
    """Five steps of a small model, under hooks by hand and under FSDP2's."""
    hand = program("fsdp_by_hand")
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 4)).double()
    theirs = copy.deepcopy(ours)
    inputs, targets = samples(rank, 32, 4, 4)
    units = [hand.FSDPUnit(layer) for layer in (ours[0], ours[2])]
    held = sum(unit.flat.untyped_storage().nbytes() for unit in units)
    with Payload() as payload:
        hand.train(ours, [unit.shard for unit in units], inputs, targets)
    rank.measure("held_between_steps", held)
    rank.measure("held_after_training", sum(u.flat.untyped_storage().nbytes() for u in units))
    rank.measure("shard_bytes", sum(unit.shard.nbytes for unit in units))
    note(rank, "hand", payload)
    mesh = init_device_mesh("cpu", (rank.world_size,))
    for layer in theirs[0], theirs[2], theirs:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    with Payload() as payload:
        hand.train(theirs, theirs.parameters(), inputs, targets)
    note(rank, "torch", payload)
    for unit in units:
        unit.unshard()
    rank.measure("difference", difference(ours.parameters(), theirs.parameters()))


def zero1(rank: Rank) -> None:
    """Five steps of Adam, its moments sharded by hand and by ZeroRedundancyOptimizer."""
    hand = program("zero1_by_hand")
    ours = hand.build_model().double()
    theirs = DistributedDataParallel(copy.deepcopy(ours))
    inputs, targets = samples(rank, hand.BATCH, 20, 1)
    optimizer = hand.ZeRO1Adam(ours.parameters())
    with Payload() as payload:
        hand.train(ours, optimizer, inputs, targets)
    note(rank, "hand", payload)
    rank.measure("state_bytes", optimizer.state_bytes())
    torch_optimizer = ZeroRedundancyOptimizer(
        theirs.parameters(), optimizer_class=torch.optim.Adam, lr=hand.LEARNING_RATE
    )
    with Payload() as payload:
        hand.train(theirs, torch_optimizer, inputs, targets)
    note(rank, "torch", payload)
    rank.measure("difference", difference(ours.parameters(), theirs.parameters()))


def tensor_parallel(rank: Rank) -> None:
    """Outputs, the input's gradient and every parameter's, beside parallelize_module()."""
    hand = program("tensor_parallel_by_hand")
    mlp = hand.build_mlp().double()
    ours = hand.TensorParallelMLP(mlp)
    mesh = init_device_mesh("cpu", (rank.world_size,))
    theirs = parallelize_module(mlp, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    (inputs, _) = samples(rank, rank.world_size * hand.BATCH, hand.WIDTH, 1)
    dist.broadcast(inputs, 0)
    found = []
    for whose, model in ("hand", ours), ("torch", theirs):
        own_inputs = inputs.clone().requires_grad_()
        with Payload() as payload:
            outputs = model(own_inputs)
            outputs.square().mean().backward()
        note(rank, whose, payload)
        assert own_inputs.grad is not None
        own = [g.to_local() if isinstance(g, DTensor) else g for g in gradients(model)]
        found.append([outputs, own_inputs.grad, *own])
    rank.measure("difference", difference(*found))
    rank.measure("num_parameters", sum(p.numel() for p in ours.parameters()))


def _pipeline(rank: Rank, name: str, schedule: type[PipelineScheduleSingle]) -> None:
    """One batch through four stages, by hand and under torch's schedule."""
    hand = program(f"{name}_by_hand")
    ours = hand.build_stages()[rank.rank].double()
    theirs = copy.deepcopy(ours)
    torch.manual_seed(0)
    inputs, targets = torch.randn(2, hand.BATCH, hand.WIDTH, dtype=torch.float64)
    microbatches = inputs.chunk(hand.MICROBATCHES)
    stage = hand.Stage(ours, microbatches, targets.chunk(hand.MICROBATCHES))
    with Payload() as payload:
        getattr(hand, name)(stage)
    note(rank, "hand", payload)
    rank.measure("most_waiting", stage.most_waiting)
    torch_stage = PipelineStage(theirs, rank.rank, rank.world_size, torch.device("cpu"))
    scheduled = schedule(torch_stage, hand.MICROBATCHES, loss_fn=mse_loss)
    is_last = rank.rank == rank.world_size - 1
    given = [inputs] if rank.rank == 0 else []
    scheduled.step(*given, target=targets if is_last else None)  # the stages exchange shapes
    theirs.zero_grad()
    with Payload() as payload:
        scheduled.step(*given, target=targets if is_last else None)
    note(rank, "torch", payload)
    rank.measure("difference", difference(gradients(ours), gradients(theirs)))


def gpipe(rank: Rank) -> None:
    """The gradients of a batch, beside ScheduleGPipe's."""
    _pipeline(rank, "gpipe", ScheduleGPipe)


def one_forward_one_backward(rank: Rank) -> None:
    """The gradients of a batch, beside Schedule1F1B's."""
    _pipeline(rank, "one_forward_one_backward", Schedule1F1B)


def one_forward_one_backward_of_large_messages(rank: Rank) -> None:
    """A batch whose messages no socket buffers, so that a blocking send waits for its receiver."""
    hand = program("one_forward_one_backward_by_hand")
    inputs = torch.ones(6, NUM_LARGE)
    layers = nn.PReLU()
    hand.one_forward_one_backward(hand.Stage(layers, inputs.chunk(6), inputs.chunk(6)))
    assert layers.weight.grad is not None
    rank.measure("gradient", layers.weight.grad.item())


def checkpointing(rank: Rank) -> None:
    """Gradients with dropout and saved bytes, beside torch.utils.checkpoint's."""
    hand = program("checkpointing_by_hand")
    torch.manual_seed(0)
    blocks = nn.ModuleList(hand.build_block() for _ in range(hand.DEPTH)).double()
    inputs = torch.randn(hand.BATCH, hand.WIDTH, dtype=torch.float64)
    ways = {
        "kept": hand.run_block,
        "hand": hand.checkpoint,
        "torch": partial(checkpoint, use_reentrant=False),
    }
    found = {}
    for name, run in ways.items():
        found[name], saved_bytes = hand.forward_and_backward(blocks, inputs, run)
        rank.measure(f"{name}_saved_bytes", saved_bytes)
    rank.measure("difference", difference(found["hand"], found["torch"]))
    rank.measure("difference_from_kept", difference(found["hand"], found["kept"]))


def local_sgd(rank: Rank) -> None:
    """All steps of the program, beside a loop with PeriodicModelAverager."""
    hand = program("local_sgd_by_hand")
    ours, theirs = hand.build_model().double(), hand.build_model().double()
    inputs, targets = (t.double() for t in hand.build_samples(rank.rank))
    with Payload() as payload:
        averaged = hand.PeriodicAverager(hand.PERIOD)
        hand.train(ours, averaged, inputs, targets)
    note(rank, "hand", payload)
    rank.measure("counted_bytes", averaged.num_bytes)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=hand.LEARNING_RATE)
    # It averages at the first step after its warm-up, and then once in a period.
    averager = PeriodicModelAverager(period=hand.PERIOD, warmup_steps=hand.PERIOD - 1)
    with Payload() as payload:
        for step in range(hand.STEPS):
            optimizer.zero_grad()
            mse_loss(theirs(inputs[step]), targets[step]).backward()
            optimizer.step()
            averager.average_parameters(theirs.parameters())
    note(rank, "torch", payload)
    rank.measure("difference", difference(ours.parameters(), theirs.parameters()))


def ring_all_reduce_on_links(rank: Rank) -> None:
    """The bytes that pass a rank's own network for the ring by hand and for gloo's all-reduce."""
    hand = program("ring_all_reduce_by_hand")
    for whose, all_reduce in ("hand", hand.ring_all_reduce), ("torch", dist.all_reduce):
        tensor = torch.ones(hand.NUM_VALUES)
        all_reduce(tensor)  # the first call connects
        before = rank.link_count()
        all_reduce(tensor)
        after = rank.link_count()
        assert before is not None
        assert after is not None
        rank.measure(f"{whose}_sent_bytes", (after - before).sent_bytes)


STRATEGIES = {
    "ring_all_reduce": ring_all_reduce,
    "ring_all_reduce_on_links": ring_all_reduce_on_links,
    "ddp": ddp,
    "accumulation": accumulation,
    "batch_split": batch_split,
    "fsdp": fsdp,
    "zero1": zero1,
    "tensor_parallel": tensor_parallel,
    "gpipe": gpipe,
    "one_forward_one_backward": one_forward_one_backward,
    "one_forward_one_backward_of_large_messages": one_forward_one_backward_of_large_messages,
    "checkpointing": checkpointing,
    "local_sgd": local_sgd,
}
# The program of a strategy that does not have its name.
OTHERWISE = {
    "ring_all_reduce_on_links": "ring_all_reduce",
    "one_forward_one_backward_of_large_messages": "one_forward_one_backward",
}
RUNS = {
    name: RunPlan(
        name,
        PROGRAMS[f"{OTHERWISE.get(name, name)}_by_hand"].ranks,
        passes=("timed",),
        only_on_cpu=True,
        own_network=name.endswith("_on_links"),
    )
    for name in STRATEGIES
}
RUNS |= plans(PROGRAMS)  # as they stand
STRATEGIES["program"] = executed

"""The mechanisms by hand and torch's own, on the same model and samples in the same ranks.

Each strategy loads a program `content/topics/*/code/*_by_hand.py`, takes the same steps with its
functions and with torch's implementation, and records the largest difference.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from types import ModuleType

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
from torch.utils.checkpoint import checkpoint

from runners.experiments._programs import plans
from runners.plans.experiment import RunPlan
from runners.ranks.rank import Rank
from runners.traces.programs import ROOT, found
from runners.training.executed import program as executed

QUESTION = "Do the mechanisms by hand compute what torch's own implementations compute?"
PROGRAMS = found(ROOT, "content/topics/*/code/*_by_hand.py")


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
    rank.measure("sent_bytes", hand.ring_all_reduce(ours))
    dist.all_reduce(theirs)
    rank.measure("difference", difference([ours], [theirs]))


def ddp(rank: Rank) -> None:
    """Five steps of the program's training, with its buckets and with DDP's."""
    hand = program("ddp_by_hand")
    ours = hand.build_model(rank.rank).double()
    theirs = DistributedDataParallel(copy.deepcopy(ours), bucket_cap_mb=0.1)
    inputs, targets = samples(rank, hand.BATCH, 20, 1)
    buckets = hand.replicate(ours)
    hand.train(ours, inputs, targets, buckets)
    hand.train(theirs, inputs, targets)
    rank.measure("difference", difference(ours.parameters(), theirs.parameters()))


def accumulation(rank: Rank) -> None:
    """One update from three microbatches, the last of them smaller; DDP's under no_sync()."""
    hand = program("accumulation_by_hand")
    ours = hand.build_model().double()
    theirs = DistributedDataParallel(copy.deepcopy(ours))
    inputs, targets = samples(rank, rank.world_size * hand.BATCH, 20, 1)
    parts = inputs.split(hand.MICROBATCH), targets.split(hand.MICROBATCH)
    hand.accumulate_gradients(ours, list(zip(*parts, strict=True)))
    hand.average_gradients(ours)
    cuts = list(range(0, len(inputs), hand.MICROBATCH))
    for cut in cuts:
        part = slice(cut, cut + hand.MICROBATCH)
        with theirs.no_sync() if cut != cuts[-1] else nullcontext():
            errors = mse_loss(theirs(inputs[part]), targets[part], reduction="sum")
            (errors / len(inputs)).backward()
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
    hand.backward(ours, inputs[own], labels[own])
    hand.sum_gradients(ours)
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
    hand.train(ours, [unit.shard for unit in units], inputs, targets)
    mesh = init_device_mesh("cpu", (rank.world_size,))
    for layer in theirs[0], theirs[2], theirs:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    hand.train(theirs, theirs.parameters(), inputs, targets)
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
    hand.train(ours, optimizer, inputs, targets)
    torch_optimizer = ZeroRedundancyOptimizer(
        theirs.parameters(), optimizer_class=torch.optim.Adam, lr=hand.LEARNING_RATE
    )
    hand.train(theirs, torch_optimizer, inputs, targets)
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
    for model in (ours, theirs):
        own_inputs = inputs.clone().requires_grad_()
        outputs = model(own_inputs)
        outputs.square().mean().backward()
        assert own_inputs.grad is not None
        own = [g.to_local() if isinstance(g, DTensor) else g for g in gradients(model)]
        found.append([outputs, own_inputs.grad, *own])
    rank.measure("difference", difference(*found))


def _pipeline(rank: Rank, name: str, schedule: type[PipelineScheduleSingle]) -> None:
    """One batch through four stages, by hand and under torch's schedule."""
    hand = program(f"{name}_by_hand")
    ours = hand.build_stages()[rank.rank].double()
    theirs = copy.deepcopy(ours)
    torch.manual_seed(0)
    inputs, targets = torch.randn(2, hand.BATCH, hand.WIDTH, dtype=torch.float64)
    microbatches = inputs.chunk(hand.MICROBATCHES)
    stage = hand.Stage(ours, microbatches, targets.chunk(hand.MICROBATCHES))
    getattr(hand, name)(stage)
    torch_stage = PipelineStage(theirs, rank.rank, rank.world_size, torch.device("cpu"))
    scheduled = schedule(torch_stage, hand.MICROBATCHES, loss_fn=mse_loss)
    is_last = rank.rank == rank.world_size - 1
    given = [inputs] if rank.rank == 0 else []
    scheduled.step(*given, target=targets if is_last else None)  # the stages exchange shapes
    theirs.zero_grad()
    scheduled.step(*given, target=targets if is_last else None)
    rank.measure("difference", difference(gradients(ours), gradients(theirs)))


def gpipe(rank: Rank) -> None:
    """The gradients of a batch, beside ScheduleGPipe's."""
    _pipeline(rank, "gpipe", ScheduleGPipe)


def one_forward_one_backward(rank: Rank) -> None:
    """The gradients of a batch, beside Schedule1F1B's."""
    _pipeline(rank, "one_forward_one_backward", Schedule1F1B)


def checkpointing(rank: Rank) -> None:
    """Gradients with dropout and saved bytes, beside torch.utils.checkpoint's."""
    hand = program("checkpointing_by_hand")
    torch.manual_seed(0)
    blocks = nn.ModuleList(hand.build_block() for _ in range(hand.DEPTH)).double()
    inputs = torch.randn(hand.BATCH, hand.WIDTH, dtype=torch.float64)
    ways = {
        "hand": hand.checkpoint,
        "torch": partial(checkpoint, use_reentrant=False),
    }
    found = {}
    for name, run in ways.items():
        found[name], _ = hand.forward_and_backward(blocks, inputs, run)
    rank.measure("difference", difference(found["hand"], found["torch"]))


def local_sgd(rank: Rank) -> None:
    """All steps of the program, beside a loop with PeriodicModelAverager."""
    hand = program("local_sgd_by_hand")
    ours, theirs = hand.build_model().double(), hand.build_model().double()
    inputs, targets = (t.double() for t in hand.build_samples(rank.rank))
    averaged = hand.PeriodicAverager(hand.PERIOD)
    hand.train(ours, averaged, inputs, targets)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=hand.LEARNING_RATE)
    # It averages at the first step after its warm-up, and then once in a period.
    averager = PeriodicModelAverager(period=hand.PERIOD, warmup_steps=hand.PERIOD - 1)
    for step in range(hand.STEPS):
        optimizer.zero_grad()
        mse_loss(theirs(inputs[step]), targets[step]).backward()
        optimizer.step()
        averager.average_parameters(theirs.parameters())
    rank.measure("difference", difference(ours.parameters(), theirs.parameters()))


STRATEGIES = {
    "ring_all_reduce": ring_all_reduce,
    "ddp": ddp,
    "accumulation": accumulation,
    "batch_split": batch_split,
    "fsdp": fsdp,
    "zero1": zero1,
    "tensor_parallel": tensor_parallel,
    "gpipe": gpipe,
    "one_forward_one_backward": one_forward_one_backward,
    "checkpointing": checkpointing,
    "local_sgd": local_sgd,
}
RUNS = {
    name: RunPlan(name, PROGRAMS[f"{name}_by_hand"].ranks, passes=("timed",), only_on_cpu=True)
    for name in STRATEGIES
}
RUNS |= plans(PROGRAMS)  # as they stand
STRATEGIES["program"] = executed

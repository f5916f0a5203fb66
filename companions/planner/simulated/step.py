"""One training step of one rank: microbatches forward and backward in a schedule's order.

In: a `BuiltStage` module and an `RankOptimizer`. Out: nothing; the meter records what happens.
The order of interleaved 1F1B is torch's own. Not all microbatches need be simulated: those in the
middle allocate and send what their neighbours do, so their phases are counted as often as they
occur (`Repeats`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

from proofbook.companions.planner.answers.question import PlanError, Question
from proofbook.companions.planner.simulated import own_model
from proofbook.companions.planner.simulated.built import BuiltStage
from proofbook.companions.planner.simulated.updates import RankOptimizer
from proofbook.runners.core.meters.collectives import tensors_in
from proofbook.runners.core.meters.memory import MemoryMeter, local

LEAST_MICROBATCHES = 2  # one that stands for all but the last, and the last
LAST = "last "
EMBEDDING = "embedding"  # describes the group of stages that have its weight
FORWARD, BACKWARD = "forward", "backward"
_KINDS = {"FORWARD": FORWARD, "FULL_BACKWARD": BACKWARD}


@dataclass(frozen=True)
class Repeats:
    """How many microbatches a step has, and how many of them are simulated."""

    total: int
    simulated: int

    def of_phase(self, phase: str) -> float:
        """How often the operations counted in a phase occur in a whole step."""
        if self.simulated == 1 or phase not in (FORWARD, BACKWARD):  # or of the last microbatch
            return 1.0
        return (self.total - 1) / (self.simulated - 1)


def repeats(question: Question) -> Repeats:
    """`Repeats`: all microbatches, and simulated: GPipe all, 1F1B ranks + 1, 3 rounds, else two."""
    total, strategy = question.num_microbatches, question.strategy
    match strategy.schedule:
        case "gpipe":
            needed = total
        case "1f1b":
            needed = strategy.pipeline + 1
        case "interleaved":
            needed = 3 * question.microbatches_of_round
        case _:
            needed = LEAST_MICROBATCHES
    return Repeats(total, min(total, needed))


class Turn(NamedTuple):
    """A unit of work of a rank: `forward` or `backward` of a stage and a microbatch."""

    kind: str
    chunk: int
    microbatch: int


def turns(question: Question, rank: int, num: int) -> Iterator[Turn]:
    """Yield a rank's `Turn`s, forward or backward of a microbatch, in its schedule's order."""
    strategy = question.strategy
    if strategy.chunks > 1:
        yield from _interleaved(question, rank, num)
        return
    num_warmup_microbatches = 0
    if strategy.schedule == "gpipe":
        num_warmup_microbatches = num - 1
    elif strategy.schedule == "1f1b":
        num_warmup_microbatches = min(num, strategy.pipeline - rank) - 1
    for index in range(num):
        yield Turn(FORWARD, 0, index)
        if index >= num_warmup_microbatches:  # the steady state
            yield Turn(BACKWARD, 0, index - num_warmup_microbatches)
    for index in range(num - num_warmup_microbatches, num):  # the cooldown
        yield Turn(BACKWARD, 0, index)


def _interleaved(question: Question, rank: int, num: int) -> Iterator[Turn]:
    """The turns as torch's schedule lists them, which reads these numbers of its stages alone."""
    strategy = question.strategy
    schedule: Any = ScheduleInterleaved1F1B
    read = SimpleNamespace(
        pp_group_size=strategy.pipeline,
        n_local_stages=strategy.chunks,
        microbatches_per_round=min(num, question.microbatches_of_round),
        _n_microbatches=num,
    )
    own = strategy.stages_of(rank)
    for action in schedule._calculate_single_rank_operations(read, rank):
        if action is not None:
            kind = _KINDS[action.computation_type.name]
            yield Turn(kind, own.index(action.stage_index), action.microbatch_index)


class Step:
    """Executes steps of one rank."""

    def __init__(
        self,
        question: Question,
        chunks: Sequence[BuiltStage],
        update: RankOptimizer,
        mesh: DeviceMesh | None,
        meter: MemoryMeter,
    ) -> None:
        self._question, self._chunks, self._update = question, chunks, update
        self._mesh, self._meter = mesh, meter
        is_pipelined = question.strategy.pipeline > 1
        self._is_torchs = is_pipelined and question.implementation.has_stages_of_torch
        self._num = 1
        self._logits: Tensor | None = None  # which some training loops keep
        self._stages = mesh.get_group("pipeline") if mesh is not None else None
        self._rank = self._stages.rank() if self._stages is not None else 0
        self._ends = _ends(question, chunks, self._stages)
        self._received: dict[tuple[str, int], list[Tensor]] = {}
        self._in_flight: dict[tuple[int, int], tuple[tuple[Any, ...], Any, Any]] = {}

    @property
    def module(self) -> nn.Module:
        """This rank's part of the model, without wrappers."""
        return nn.ModuleList(chunk.module for chunk in self._chunks)

    def run(self, num_microbatches: int) -> None:
        """Execute a step: its microbatches, the sums of gradients at its end, and the update."""
        self._num = num_microbatches
        self._update.zero_grad()
        if self._question.strategy.chunks > 1 and not self._question.reduces_each:
            units = (m for m in self.module.modules() if isinstance(m, FSDPModule))
            handles: list[Any] = [unit.unshard(async_op=True) for unit in units]
            for handle in handles:  # all of them at once, as in torch's schedule
                handle.wait()
        for turn in turns(self._question, self._rank, self._num):
            self._meter.enter(f"{LAST if turn.microbatch == self._num - 1 else ''}{turn.kind}")
            with self._quiet(turn):
                if turn.kind == FORWARD:
                    self._forward(turn)
                else:
                    self._backward(turn)
            self._meter.name((g for _, g in self._update.gradients()), "gradients")
            self._finish(turn)
        _check_reducer(self._chunks[0].wrapped)
        self._meter.enter("update")
        self._sum_gradients()
        self._update.step()
        self._meter.name(self._update.state(), "optimizer")

    def _quiet(self, turn: Turn) -> AbstractContextManager[None]:
        """Let gradients be summed with the last microbatch alone, or by FSDP with each."""
        wrapped, is_last = self._chunks[turn.chunk].wrapped, turn.microbatch == self._num - 1
        if isinstance(wrapped, DistributedDataParallel) and not is_last:
            return wrapped.no_sync()
        if isinstance(wrapped, FSDPModule) and self._question.reduces_each:
            wrapped.set_requires_all_reduce(is_last)  # of HSDP, between replicas
        elif isinstance(wrapped, FSDPModule):
            # Torch's stages reduce after the last backward (`backward_maybe_with_nosync`).
            reduces = is_last and self._question.strategy.pipeline == 1
            wrapped.set_is_last_backward(reduces)
            wrapped.set_reshard_after_backward(reduces)
            wrapped.set_requires_gradient_sync(reduces)
        return nullcontext()

    def _finish(self, turn: Turn) -> None:
        """Reduce gradients that FSDP kept whole, as torch's stages do after the last backward."""
        wrapped = self._chunks[turn.chunk].wrapped
        if not isinstance(wrapped, FSDPModule) or self._question.reduces_each:
            return
        self._meter.name(_whole_gradients(wrapped), "gradients")
        is_last = turn.kind == BACKWARD and turn.microbatch == self._num - 1
        if is_last and self._question.strategy.pipeline > 1:
            stage: Any = SimpleNamespace(submod=wrapped)
            PipelineStage.perform_reduce_grad(stage, 1)

    def _forward(self, turn: Turn) -> None:
        built = self._chunks[turn.chunk]
        if built.is_first:
            arguments = built.arguments()
        else:
            received = self._memory(turn, lambda: built.arguments()[0])
            self._receive(received, -1)
            arguments = (received.detach().requires_grad_(),)
        self._meter.name(tensors_in(arguments), "buffers")
        is_autocast = self._question.training.precision == "autocast"
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            output = own_model.call(built.wrapped, built.module, arguments)
            if built.is_last and self._question.implementation.keeps_logits:
                output = self._logits = output.float()
            stays = output if self._is_torchs else None
            if built.is_last:
                output = built.loss(output)
        if not built.is_last:
            self._send(output.detach(), 1)
        self._in_flight[turn.chunk, turn.microbatch] = arguments, output, stays

    def _backward(self, turn: Turn) -> None:
        built = self._chunks[turn.chunk]
        arguments, output, stays = self._in_flight.pop((turn.chunk, turn.microbatch))
        gradient = None
        if not built.is_last:
            gradient = self._memory(turn, partial(torch.empty_like, output))
            self._receive(gradient, 1)
        torch.autograd.backward(output, gradient)
        del output, gradient, stays
        if not built.is_first:
            self._send(arguments[0].grad, -1)

    def _memory(self, turn: Turn, empty: Callable[[], Tensor]) -> Tensor:
        """Memory to receive into; torch's stages have some for each microbatch from the start."""
        if not self._is_torchs:
            return empty().detach()
        key, count = (turn.kind, turn.chunk), self._question.num_microbatches
        if key not in self._received:
            self._received[key] = [empty().detach() for _ in range(count)]
            self._meter.name(self._received[key], "buffers")
        return self._received[key][turn.microbatch]

    def _send(self, tensor: Tensor, step: int) -> None:
        """Send to the rank of the next stage, or with a step of -1 to that of the one before."""
        rank = (self._rank + step) % self._question.strategy.pipeline
        dist.send(tensor.contiguous(), group=self._stages, group_dst=rank)

    def _receive(self, tensor: Tensor, step: int) -> None:
        rank = (self._rank + step) % self._question.strategy.pipeline
        dist.recv(tensor.contiguous(), group=self._stages, group_src=rank)

    def _sum_gradients(self) -> None:
        """All-reduce gradients that no wrapper sums: of stages, fp32, sequence parallelism."""
        strategy = self._question.strategy
        if self._mesh is None:
            return
        if strategy.has_sequence_parallel:
            group = self._mesh.get_group("tensor")
            for parameter, gradient in self._update.gradients():
                if parameter.dim() == 1:  # norms, and biases that follow a sum
                    dist.all_reduce(gradient, group=group)
        wraps = isinstance(self._chunks[0].wrapped, DistributedDataParallel)
        if strategy.num_summing > 1 and strategy.sharding == "none" and not wraps:
            group = self._mesh.get_group("data")
            for _, gradient in self._update.gradients():
                dist.all_reduce(gradient, group=group)
        self._sum_tied()

    def _sum_tied(self) -> None:
        """All-reduce the gradient of an embedding that the first and the last stage share."""
        if self._ends is None:
            return
        end = next(chunk for chunk in self._chunks if chunk.is_first or chunk.is_last)
        tied = end.module.get_parameter("embedding.weight")
        for parameter, gradient in self._update.gradients():
            if parameter is tied:
                dist.all_reduce(gradient, group=self._ends)


def _whole_gradients(module: FSDPModule) -> Iterator[Tensor]:
    """Gradients of several microbatches that FSDP has not reduced to shards yet."""
    for state in fully_shard.state(module)._state_ctx.all_states:  # type: ignore[attr-defined]
        for own in (own for group in state._fsdp_param_groups for own in group.fsdp_params):
            gradients = own.unsharded_accumulated_grad, own._unsharded_param.grad
            yield from (local(gradient) for gradient in gradients if gradient is not None)


def _check_reducer(wrapped: nn.Module) -> None:
    """Refuse, by a PlanError, a parameter without a gradient, at which DDP's next step stops."""
    if not isinstance(wrapped, DistributedDataParallel):
        return
    for name, parameter in wrapped.module.named_parameters():
        if parameter.requires_grad and parameter.grad is None:
            raise PlanError(f"ddp: {name} takes no part in the loss, so DDP stops in its next step")


def _ends(
    question: Question, chunks: Sequence[BuiltStage], stages: dist.ProcessGroup | None
) -> dist.ProcessGroup | None:
    """The group of the first and the last stage, where both have the embedding."""
    shape = question.model.architecture
    is_end = any(chunk.is_first for chunk in chunks) != any(chunk.is_last for chunk in chunks)
    if shape is None or not shape.has_tied_embeddings or not is_end or stages is None:
        return None
    ranks = dist.get_process_group_ranks(stages)
    ends: dist.ProcessGroup = dist.new_group(
        [ranks[0], ranks[-1]], use_local_synchronization=True, group_desc=EMBEDDING
    )
    return ends

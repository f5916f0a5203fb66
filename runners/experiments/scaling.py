"""What a step takes on more ranks, with more parameters and with more samples, and when ranks pay.

All train stacks of equal layers on random samples. `growth` measures memory, bytes passed and time
at sizes that double; under DDP and FSDP each rank has a batch of its own, stages and a split batch
share one. `speedup` takes the same global batch on one device and over two ranks, from small
batches to large. `scaling` predicts a step as compute / ranks + update + all_reduce: under strong
scaling the same batch is dealt out to more ranks, under weak scaling each further rank brings as
many samples again. In `too_small`, the same two processes take turns: rank 0 trains alone on the
whole batch while rank 1 waits, then both train under DDP on their shares, so that whatever disturbs
the machine disturbs both alike.

    python -m runners run growth
    python -m runners run scaling
    python -m runners run speedup
    python -m runners run too_small
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from proofbook.runners.api import (
    NUM_SETTLING_STEPS,
    Count,
    Declaration,
    Factor,
    RunSettings,
    Setting,
    Settled,
    closed_form,
)
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, mlp_parameters
from proofbook.runners.closed_forms.training_settings import SharedBatchSettings, StackSettings
from proofbook.runners.training import steps
from proofbook.runners.training.networks import description, mlp
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.stages import back_through_stage, through_stage
from proofbook.runners.training.transfers import fit, in_turns, sent


def single(rank: Rank[GrowthSettings | SharedBatchSettings]) -> None:
    """One device holds everything."""
    _train(rank, steps.stack_for(rank))


def ddp(rank: Rank[GrowthSettings | SharedBatchSettings]) -> None:
    """A replica and a batch on every rank; gradients are averaged."""
    _train(rank, steps.replica_of(rank, steps.stack_for(rank)))


def fsdp(rank: Rank[GrowthSettings]) -> None:
    """Each layer's parameters in shards, a batch on every rank."""
    model = steps.stack_for(rank, is_sharded=True)
    steps.shard_layers(rank, model)
    _train(rank, model)


def stages(rank: Rank[GrowthSettings]) -> None:
    """Build and train a stage of layers a rank; a batch goes forward through all, and back."""
    settings = rank.settings
    own = settings.num_layers // rank.world_size
    held_by = [[layer // own] for layer in range(settings.num_layers)]
    rank.describe(description(settings.widths, held_by))
    is_last = rank.rank == rank.world_size - 1
    model = mlp([settings.width] * (own + 1), device=rank.device)
    features, labels = steps.random_samples(rank, settings.batch_size, rank.seed)

    def layers(taken: Tensor) -> Tensor:
        given: Tensor = model(taken)
        return given if is_last else torch.relu(given)

    def step() -> float | None:
        taken, given = through_stage(rank, layers, features, features.shape)
        if not is_last:
            back_through_stage(rank, taken, given)
            return None
        with rank.phase("forward"):
            loss = cross_entropy(given, labels)
        back_through_stage(rank, taken, loss)
        return loss.item()

    _train(rank, model, step)


def split(rank: Rank[GrowthSettings]) -> None:
    """Build and train replicas: rank 0 scatters batches, takes the loss, scatters gradients."""
    settings, is_root = rank.settings, rank.rank == 0
    model = steps.stack_for(rank)
    shape = (settings.batch_size // rank.world_size, settings.width)
    features = labels = None
    if is_root:
        features, labels = steps.random_samples(rank, settings.batch_size, rank.seed)

    def scattered(whole: Tensor | None) -> Tensor:
        with rank.phase("scatter", computes=False):
            own = torch.empty(shape, device=rank.device)
            dist.scatter(own, None if whole is None else list(whole.chunk(rank.world_size)))
        return own

    def whole_loss(gathered: list[Tensor]) -> tuple[float, Tensor | None]:
        assert labels is not None
        with rank.phase("loss"):
            logits = torch.cat(gathered).requires_grad_()
            loss = cross_entropy(logits, labels)
            loss.backward()
            return loss.item(), logits.grad

    def step() -> float | None:
        own = scattered(features)
        with rank.phase("forward"):  # a hook would take the loss of the whole batch for a part
            logits = model(own)
        with rank.phase("gather", computes=False):
            parts = [torch.empty_like(logits) for _ in range(rank.world_size)] if is_root else None
            dist.gather(logits.detach(), parts)
        loss, gradients = whole_loss(parts) if parts else (None, None)
        del parts
        gradient = scattered(gradients)
        logits.backward(gradient)
        with rank.phase("all_reduce", computes=False):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        return loss

    _train(rank, model, step)


def _train(
    rank: Rank[GrowthSettings | SharedBatchSettings],
    model: nn.Module,
    step: Callable[[], float | None] | None = None,
) -> None:
    """Repeat one step, which goes forward and backward and gives the loss where it is known."""
    settings = rank.settings
    loss = steps.sgd_steps(rank, model, step or steps.step_on_samples(rank, model))
    if isinstance(settings, SharedBatchSettings):
        rank.count_samples(settings.num_steps * settings.batch_size)
        return
    parts = rank.world_size if rank.declaration.strategy == "split" else 1
    rank.epoch(1, loss=loss, num_samples=settings.batch_size // parts if loss else 0)


class GrowthSettings(StackSettings):
    """A stack of equal layers, its batch, and how both are divided among the ranks."""

    width: Count = 1000
    num_layers: Count = 4
    batch_size: Count = 32  # of a rank under DDP and FSDP, of all ranks together elsewhere
    num_steps: Count = 13
    learning_rate: Factor = 0.01
    equal_parts = (("num_layers", "world_size"), ("batch_size", "world_size"))

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: number, bytes and copies of parameters; a layer's output.

        Plain SGD keeps each parameter and its gradient.
        """
        num_parameters = mlp_parameters(self.widths)
        return {
            "num_parameters": num_parameters,
            "bytes_per_value": FLOAT_BYTES,
            "copies_per_parameter": 2,
            "model_bytes": FLOAT_BYTES * num_parameters,
            "activation_bytes": FLOAT_BYTES * self.batch_size * self.width,
        }


SIZES = (250, 500, 1000, 2000)  # widths, and batch sizes
BATCH_WIDTH = 500  # narrower, so that activations show beside parameters


def _grown(strategy: str, world_size: int, **settings: int) -> Declaration[GrowthSettings]:
    """A run; gloo cannot scatter, gather or shard the tensors of a shared accelerator."""
    shares = strategy in ("single", "ddp", "stages")
    return Declaration(strategy, world_size, GrowthSettings(**settings), can_share_device=shares)


class _Growth:
    QUESTION = (
        "How do memory, payload and time grow with the ranks, the parameters and the batch size?"
    )
    RUNS = {
        **{
            f"{strategy}_width_{width}": _grown(strategy, world_size, width=width)
            for width in SIZES
            for strategy, world_size in (("single", 1), ("ddp", 2))
        },
        **{
            f"{strategy}_ranks_{world_size}": _grown(strategy, world_size)
            for strategy in ("ddp", "fsdp", "stages", "split")
            for world_size in (2, 4)
        },
        **{
            f"{strategy}_batch_{size}": _grown(
                strategy, world_size, width=BATCH_WIDTH, batch_size=size
            )
            for size in SIZES
            for strategy, world_size in (("single", 1), ("split", 2))
        },
    }
    TRIED_WITH = {"*": {"num_steps": 2}}


class _Speedup:
    QUESTION = "From which batch size on is a step on two ranks faster than a step on one device?"
    RUNS = {
        f"{name}_{num_samples}": Declaration(
            strategy,
            world_size,
            SharedBatchSettings(
                width=256,
                num_layers=8,
                global_batch_size=num_samples,
                num_steps=18,
                learning_rate=0.01,
            ),
            passes=("timed",),
        )
        for num_samples in (64, 256, 1024, 4096)
        for name, strategy, world_size in (("one", "single", 1), ("two", "ddp", 2))
    }
    TRIED_WITH = {run: {"num_steps": 6} for run in ("one_4096", "two_4096")}


def timed_single(rank: Rank[ScalingSettings]) -> None:
    """The whole batch on one device."""
    _time_steps(rank, steps.stack_for(rank))


def timed_ddp(rank: Rank[ReplicaSettings]) -> None:
    """Build a stack; record seconds of DDP steps, and of all_reduce as smaller ones predict."""
    model = steps.stack_for(rank)
    _predict_all_reduce(rank)
    replica = steps.replica_of(rank, model)
    with sent(rank, sent_bytes=rank.settings.num_steps):
        _time_steps(rank, replica)


def _time_steps(rank: Rank[ScalingSettings], model: nn.Module) -> None:
    """Take steps; time apart what more ranks would share and what each does whole."""
    settings = rank.settings
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    # The batch is the same however many ranks share it.
    features, labels = steps.random_samples(rank, settings.global_batch_size, rank.seed)
    own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
    features, labels = features[own], labels[own]
    rank.watch(model, optimizer)
    compute, update, loss = [], [], torch.zeros(())
    for _ in rank.steps(settings.num_steps):
        start = time.perf_counter()
        loss = cross_entropy(model(features), labels)
        loss.backward()
        rank.settle()
        computed = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        rank.settle()
        compute.append(computed - start)
        update.append(time.perf_counter() - computed)
    # In a replica, backward holds the all_reduce as well: only one device tells the two apart.
    if rank.world_size == 1:
        rank.measure_seconds("compute", compute[NUM_SETTLING_STEPS:])
    rank.measure_seconds("update", update[NUM_SETTLING_STEPS:])
    rank.count_samples(settings.batch_size * settings.num_steps)
    rank.epoch(1, loss=loss.item(), num_samples=settings.batch_size)


def _predict_all_reduce(rank: Rank[ReplicaSettings]) -> None:
    """Fit α and β to bare all_reduces, none of which is as large as the gradients."""
    whole = rank.settings.gradient_bytes
    sizes = [whole // 16, whole // 4, whole // 2]
    payloads = [torch.zeros(size // FLOAT_BYTES, device=rank.device) for size in sizes]
    calls = [partial(dist.all_reduce, payload) for payload in payloads]
    with rank.phase("all_reduce", computes=False):
        fits = [fit(sizes, turn) for turn in in_turns(rank, calls, NUM_TURNS)]
    rank.measure_seconds("all_reduce", [alpha + beta * whole for alpha, beta in fits])


NUM_TURNS = 5  # of the bare all_reduces
MEGABIT = 1_000_000


class ScalingSettings(SharedBatchSettings):
    """A stack of equal layers and a batch, dealt out to the ranks."""

    width: Count = 320
    num_layers: Count = 4
    global_batch_size: Count = 800
    num_steps: Settled = 8
    learning_rate: Factor = 0.1


class ReplicaSettings(ScalingSettings):
    """Of several ranks, which average their gradients."""

    @closed_form
    def gradient_bytes(self) -> int:
        """Bytes of all gradients of the model."""
        return FLOAT_BYTES * mlp_parameters(self.widths)


class LinkedSettings(ReplicaSettings):
    """Of ranks with a link of their own each."""

    link_bits_per_second: Count = 200 * MEGABIT


timed = partial(Declaration, passes=("timed",))
linked = partial(timed, "ddp", only_on_cpu=True, own_network=True)
LINKS = {rate: LinkedSettings(link_bits_per_second=rate * MEGABIT) for rate in (100, 400, 800)}


class _Scaling:
    QUESTION = (
        "How much faster is a step on more ranks, and from which number on do more ranks not pay?"
    )
    STRATEGIES = {"single": timed_single, "ddp": timed_ddp}
    RUNS = {
        "one": timed("single", 1, ScalingSettings()),
        "strong_2": timed("ddp", 2, ReplicaSettings()),
        "strong_4": timed("ddp", 4, ReplicaSettings()),
        "weak_2": timed("ddp", 2, ReplicaSettings(global_batch_size=1600)),
        "weak_4": timed("ddp", 4, ReplicaSettings(global_batch_size=3200)),
        "link_fast": linked(2, LinkedSettings(link_bits_per_second=1600 * MEGABIT)),
        "link_slow": linked(2, LinkedSettings()),
        **{f"link_{rate}": linked(2, settings, full=True) for rate, settings in LINKS.items()},
        "link_weak": linked(2, LinkedSettings(global_batch_size=1600), full=True),
        "link_four": linked(4, LinkedSettings(), full=True),
    }


def take_turns(rank: Rank[SweepSettings]) -> None:
    """Record seconds of steps by width, rank 0 alone and DDP by turns; metered: DDP, widest."""
    settings = rank.settings
    own = slice(rank.rank * settings.batch_size, (rank.rank + 1) * settings.batch_size)
    rank.describe(description(settings.layers_of(settings.widths[-1]), rank.world_size))
    if rank.is_metered:
        replica = Trainee(rank, settings.widths[-1], own, wrapped=True)
        rank.watch(replica.model, replica.optimizer)
        for _ in rank.steps(1):
            replica.step()
        return
    for width in settings.widths:
        single = Trainee(rank, width, slice(None), wrapped=False)
        replica = Trainee(rank, width, own, wrapped=True)
        alone: list[float] = []
        shared: list[float] = []
        for _ in range(NUM_SETTLING_TURNS + settings.num_turns):
            dist.barrier()
            if rank.rank == 0:
                alone.append(single.step())
            dist.barrier()
            shared.append(replica.step())
        rank.measure_seconds(f"single_{width}", alone[NUM_SETTLING_TURNS:])
        rank.measure_seconds(f"ddp_{width}", shared[NUM_SETTLING_TURNS:])


class Trainee:
    """One model on some samples: alone, or as a replica under DDP."""

    def __init__(
        self, rank: Rank[SweepSettings], width: int, samples: slice, *, wrapped: bool
    ) -> None:
        self.rank, settings = rank, rank.settings
        source = torch.Generator().manual_seed(rank.seed)
        shape = (settings.global_batch_size, width)
        features = torch.randn(shape, generator=source)[samples]
        labels = torch.randint(0, width, shape[:1], generator=source)[samples]
        self.features = features.clone().to(rank.device)
        self.labels = labels.clone().to(rank.device)
        rank.inputs(self.features, self.labels)
        torch.manual_seed(rank.seed)
        self.model: nn.Module = mlp(settings.layers_of(width), device=rank.device)
        self.called = DistributedDataParallel(self.model) if wrapped else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=settings.learning_rate)

    def step(self) -> float:
        """Take a step: forward, backward and update, in marked phases; the seconds that it took."""
        start = time.perf_counter()
        with self.rank.phase("forward"):
            loss = cross_entropy(self.called(self.features), self.labels)
        with self.rank.phase("backward"):
            loss.backward()
        with self.rank.phase("optimizer"):
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.rank.settle()
        return time.perf_counter() - start


NUM_SETTLING_TURNS = 3  # the first build DDP's buckets and fill caches


class SweepSettings(RunSettings):
    """Models of several widths, each trained on the same global batch."""

    widths: tuple[Count, ...] = (16, 32, 64, 128, 256)
    num_layers: Count = 4
    global_batch_size: Count = 512
    num_turns: Count = 15
    learning_rate: Factor = 0.1
    equal_parts = (("global_batch_size", "world_size"),)

    @closed_form
    def batch_size(self) -> int:
        """Samples of a rank under DDP."""
        return self.global_batch_size // self.world_size

    @closed_form
    def num_parameters(self) -> list[int]:
        """Parameters of each model, by width."""
        return [mlp_parameters(self.layers_of(width)) for width in self.widths]

    def layers_of(self, width: int) -> tuple[int, ...]:
        """Input and output widths of all layers of one model."""
        return (width,) * (self.num_layers + 1)


sweep = partial(Declaration, "take_turns", 2)
FAR = SweepSettings(widths=(16, 32, 64, 128, 256, 512, 1024), global_batch_size=1024, num_turns=30)


class _TooSmall:
    QUESTION = (
        "From which size on does a model gain from a second rank, with as many samples in all?"
    )
    RUNS = {
        "sweep": sweep(SweepSettings()),
        "sweep_few_samples": sweep(SweepSettings(global_batch_size=64)),
        "sweep_far": sweep(FAR, full=True),
    }
    TRIED_WITH = {"sweep_far": {"widths": [16, 64, 256], "num_turns": 5}}
    ON_CUDA = {"*": {"widths": [128, 256, 512, 1024, 2048, 4096], "global_batch_size": 4096}}


EXPERIMENTS = {"growth": _Growth, "scaling": _Scaling, "speedup": _Speedup, "too_small": _TooSmall}
